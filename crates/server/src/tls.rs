//! TLS for daemons that others reach: version 1.3 alone. A certificate of our own making is known by its fingerprint.

use std::sync::Arc;

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate cannot be read: {0}")]
    Certificate(String),
    #[error("the key cannot be read: {0}")]
    Key(String),
    #[error("certificate and key do not go together: {0}")]
    Pair(rustls::Error),
    #[error("no certificate could be made: {0}")]
    Made(rcgen::Error),
}

/// A certificate and its key, as they are written to files.
pub struct Made {
    pub certificate_pem: String,
    pub key_pem: String,
}

#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    fingerprint: String,
}

impl Tls {
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| TlsError::Certificate(error.to_string()))?;
        let first = chain.first().ok_or_else(|| TlsError::Certificate("there is none in it".into()))?;
        let fingerprint = fingerprint(first);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Key(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(TlsError::Pair)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint })
    }

    /// A certificate signed by itself, for these host names and addresses.
    pub fn make(names: Vec<String>) -> Result<Made, TlsError> {
        let mut params = rcgen::CertificateParams::new(names).map_err(TlsError::Made)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "tenure");
        let key = rcgen::KeyPair::generate().map_err(TlsError::Made)?;
        let certificate = params.self_signed(&key).map_err(TlsError::Made)?;
        Ok(Made { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// SHA-256 of the certificate, in hex: what a client may know it by.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

fn fingerprint(certificate: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_can_be_used_and_what_is_broken_is_named() {
        let made = Tls::make(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        let (certificate, key) = (made.certificate_pem.as_bytes(), made.key_pem.as_bytes());
        let tls = Tls::from_pem(certificate, key).unwrap();
        assert_eq!(tls.fingerprint().len(), 64);
        assert!(matches!(Tls::from_pem(b"", key), Err(TlsError::Certificate(_))));
        assert!(matches!(Tls::from_pem(certificate, b"nothing"), Err(TlsError::Key(_))));
        let other = Tls::make(vec!["localhost".into()]).unwrap();
        assert!(matches!(Tls::from_pem(certificate, other.key_pem.as_bytes()), Err(TlsError::Pair(_))));
    }
}
