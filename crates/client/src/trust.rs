//! Whose certificate is believed: that of a known fingerprint, those that a known authority has signed, or nobody's.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring::default_provider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

const SHA256_BYTES: usize = 32;

#[derive(Debug, Clone)]
pub enum Trust {
    /// For addresses without TLS; one with it is refused.
    Nobody,
    /// One certificate, whatever name or time is written on it.
    Pinned([u8; SHA256_BYTES]),
    /// What these authorities have signed, for the name that was asked for.
    Roots { pem: Arc<[u8]>, store: Arc<RootCertStore> },
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Trust::Nobody, Trust::Nobody) => true,
            (Trust::Pinned(one), Trust::Pinned(two)) => one == two,
            (Trust::Roots { pem: one, .. }, Trust::Roots { pem: two, .. }) => one == two,
            _ => false,
        }
    }
}

impl Eq for Trust {}

impl Trust {
    /// The fingerprint of a certificate: SHA-256 in hex, with or without colons.
    pub fn fingerprint(text: &str) -> Result<Self, String> {
        let digits: Vec<u8> = text.trim().bytes().filter(|byte| *byte != b':').collect();
        let bad = || "a fingerprint is SHA-256 in hex: 64 digits, with or without colons".to_owned();
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        if digits.len() != 2 * SHA256_BYTES {
            return Err(bad());
        }
        let mut bytes = [0; SHA256_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0]).zip(digit(pair[1])).map(|(high, low)| high << 4 | low).ok_or_else(bad)?;
        }
        Ok(Trust::Pinned(bytes))
    }

    /// Certificates of authorities, or the daemon's own, as PEM.
    pub fn roots(pem: &[u8]) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            store.add(certificate).map_err(|error| error.to_string())?;
        }
        if store.is_empty() {
            return Err("there is no certificate in it".into());
        }
        Ok(Trust::Roots { pem: pem.into(), store: Arc::new(store) })
    }

    pub(crate) fn config(&self) -> ClientConfig {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider knows the versions it was made for");
        match self {
            Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
            Trust::Roots { store, .. } => builder.with_root_certificates(Arc::clone(store)).with_no_client_auth(),
            Trust::Pinned(fingerprint) => {
                let pin = Arc::new(Pin { fingerprint: *fingerprint, provider });
                builder.dangerous().with_custom_certificate_verifier(pin).with_no_client_auth()
            }
        }
    }
}

/// Believes one certificate. That its owner has the key is checked as always.
#[derive(Debug)]
struct Pin {
    fingerprint: [u8; SHA256_BYTES],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = ring::digest::digest(&ring::digest::SHA256, end_entity);
        match found.as_ref() == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints() {
        let plain = "0123456789abcdef".repeat(4);
        let colons = plain.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair)).collect::<Vec<_>>().join(":");
        let read = Trust::fingerprint(&plain).unwrap();
        assert_eq!(Trust::fingerprint(&colons.to_uppercase()).unwrap(), read);
        assert_eq!(Trust::fingerprint(&format!(" {plain}\n")).unwrap(), read);
        for bad in ["", "ab", &plain[1..], &plain.replace('0', "g"), &format!("{plain}00")] {
            assert!(Trust::fingerprint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_no_trust() {
        assert!(Trust::roots(b"").is_err());
        assert!(Trust::roots(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
    }
}
