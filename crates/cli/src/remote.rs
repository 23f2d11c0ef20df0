//! Daemons on other machines, from both sides: which one a command speaks to, and what a daemon needs before it lets others
//! reach it.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tenure_client::{Target, Trust};
use tenure_server::{Kept, Made, Tls};

use crate::{
    args::Global,
    config::{self, Hidden},
    data,
    exit::Problem,
};

/// The daemon's own certificate and key, where it made them itself.
pub const CERTIFICATE_FILE: &str = "tls-cert.pem";
const KEY_FILE: &str = "tls-key.pem";
/// Where systems keep the authorities they trust.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Names of this machine that a certificate of our own holds.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The daemon that flags and environment name, if they do.
pub fn target(global: &Global) -> anyhow::Result<Option<Target>> {
    let Some(url) = &global.url else { return Ok(None) };
    let no_address = || {
        let hint = "write it with its scheme and port, such as --url https://box.example:8787";
        Problem::usage(format!("'{url}' is no address of a daemon"), hint)
    };
    let (scheme, place) = parts(url).ok_or_else(no_address)?;
    let token = match (&global.token_file, &global.token) {
        (Some(path), _) => token(&path.display().to_string(), &read(path, "the token", TOKEN_HINT)?)?,
        (None, Some(Hidden(text))) => token("TENURE_TOKEN", text)?,
        (None, None) => return Err(Problem::usage("there is no token for that daemon", TOKEN_HINT).into()),
    };
    let target = Target::new(url, token);
    if scheme == "https" {
        return Ok(Some(target.trusting(trust(global)?)));
    }
    let unused = [("--fingerprint", global.fingerprint.is_some()), ("--ca", global.ca.is_some())];
    if let Some((flag, _)) = unused.into_iter().find(|(_, given)| *given) {
        let message = format!("{flag} is about a certificate, and {url} is reached without one");
        return Err(
            Problem::usage(message, format!("write https:// in --url, or leave out {flag} (or its variable)")).into()
        );
    }
    if !is_loopback(place) {
        let message = format!("{url} is on another machine: without TLS anybody between could read the token");
        let hint = "write https:// in --url; the daemon speaks TLS with `tenure serve --tls`, or behind a proxy";
        return Err(Problem::usage(message, hint).into());
    }
    Ok(Some(target))
}

/// The scheme of an address, and its host with its port.
fn parts(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme))?;
    let place = rest.split('/').next()?;
    let (host, has_port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().is_ok()),
        _ => (place, true),
    };
    (has_port && is_host(host.trim_matches(['[', ']']))).then_some((scheme, place))
}

const TOKEN_HINT: &str = "give the file that holds it with --token-file FILE, or set TENURE_TOKEN; \
                          `tenure token add NAME` on the daemon's machine prints one";

/// One word that can stand in a header.
fn token(from: &str, text: &str) -> Result<String, Problem> {
    let token = text.trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(Problem::usage(format!("{from} holds no token"), TOKEN_HINT)),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn trust(global: &Global) -> anyhow::Result<Trust> {
    if let Some(text) = &global.fingerprint {
        let hint = "give it as `tenure serve` printed it, or as `tenure doctor` shows it on the daemon's machine";
        return Trust::fingerprint(text).map_err(|why| Problem::usage(why, hint).into());
    }
    let known = global.ca.clone().or_else(|| AUTHORITIES.iter().map(PathBuf::from).find(|path| path.exists()));
    let Some(path) = known else {
        let hint = "give --fingerprint HEX, as `tenure doctor` shows it on the daemon's machine, or certificates with --ca FILE";
        return Err(Problem::usage("this system names no authorities to trust", hint).into());
    };
    let hint = "name a file of certificates (PEM) with --ca FILE, or give --fingerprint HEX instead";
    let pem = read(&path, "certificates", hint)?;
    Trust::roots(pem.as_bytes()).map_err(|why| Problem::usage(format!("{}: {why}", path.display()), hint).into())
}

fn read(path: &Path, what: &str, hint: &str) -> Result<String, Problem> {
    fs::read_to_string(path)
        .map_err(|error| Problem::usage(format!("cannot read {what} from {}: {error}", path.display()), hint))
}

/// How a daemon lets others reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remote {
    /// Names and addresses under which it may be reached, beside those of loopback.
    pub names: Vec<String>,
    pub proxy: Option<String>,
    pub tls: TlsSource,
}

/// Where the certificate comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TlsSource {
    /// There is none: the daemon speaks plainly.
    #[default]
    Off,
    /// Made by the daemon itself, once, and kept in the data folder.
    Own,
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

/// What was said about it, by flags or file.
#[derive(Debug, Clone, Default)]
pub struct Said {
    pub allow: bool,
    pub names: Vec<String>,
    pub proxy: Option<String>,
    pub tls: bool,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// Refuses to be reached by others unless that was said, and said in a way that keeps the token to itself.
pub fn settle(listen: SocketAddr, said: Said) -> Result<Remote, Problem> {
    let tls = match (said.certificate, said.key) {
        (Some(certificate), Some(key)) => TlsSource::Files { certificate, key },
        (None, None) if said.tls => TlsSource::Own,
        (None, None) => TlsSource::Off,
        _ => {
            let hint = "give both --tls-cert FILE and --tls-key FILE";
            return Err(Problem::usage("a certificate needs its key, and a key its certificate", hint));
        }
    };
    let how = "either --tls (or --tls-cert FILE --tls-key FILE), or --behind-proxy NAME where a proxy speaks TLS";
    if !listen.ip().is_loopback() && !said.allow {
        let message = format!("{listen} is not a loopback address: others could reach the daemon");
        return Err(Problem::usage(message, format!("use 127.0.0.1; or --allow-remote with {how}")));
    }
    if !listen.ip().is_loopback() && tls == TlsSource::Off && said.proxy.is_none() {
        let message = format!("on {listen} without TLS anybody between could read the token");
        return Err(Problem::usage(message, format!("add {how}")));
    }
    let mut names = said.names;
    if let Some(bad) = names.iter().chain(&said.proxy).find(|name| !is_host(name)) {
        return Err(Problem::usage(
            format!("'{bad}' is no host name"),
            "write it without scheme and port, such as box.example",
        ));
    }
    if !listen.ip().is_unspecified() && !listen.ip().is_loopback() {
        names.push(listen.ip().to_string());
    }
    Ok(Remote { names, proxy: said.proxy, tls })
}

fn is_host(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    name.parse::<IpAddr>().is_ok() || (!name.is_empty() && name.len() <= 253 && name.bytes().all(plain))
}

impl Remote {
    /// The names as a `Host` header spells them.
    pub fn hosts(&self) -> Vec<String> {
        let spelled = |name: &String| match name.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => name.clone(),
        };
        self.names.iter().map(spelled).collect()
    }

    pub fn tls(&self, data: &Path) -> anyhow::Result<Option<Tls>> {
        let (certificate, key) = match &self.tls {
            TlsSource::Off => return Ok(None),
            TlsSource::Files { certificate, key } => (certificate.clone(), key.clone()),
            TlsSource::Own => self.own(data)?,
        };
        let hint = "give a certificate and its key as PEM files that can be read, with --tls-cert and --tls-key (or [tls] in \
                    config.toml); --tls alone makes both";
        let (pem, key_pem) = (read(&certificate, "the certificate", hint)?, read(&key, "the key", hint)?);
        let tls = Tls::from_pem(pem.as_bytes(), key_pem.as_bytes()).map_err(|error| {
            let hint = match self.tls {
                TlsSource::Own => "remove it: the daemon makes another, with another fingerprint",
                _ => hint,
            };
            Problem::usage(format!("{}: {error}", certificate.display()), hint)
        })?;
        Ok(Some(tls))
    }

    /// The files of our own certificate, made at the first start.
    fn own(&self, data: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
        let (certificate, key) = (data.join(CERTIFICATE_FILE), data.join(KEY_FILE));
        if !certificate.exists() || !key.exists() {
            let names = LOCAL_NAMES.into_iter().map(str::to_owned).chain(self.names.iter().cloned());
            let Made { certificate_pem, key_pem } = Tls::make(names.collect()).context("TLS")?;
            data::replace(&key, key_pem.as_bytes(), data::Keep::Synced)?;
            data::replace(&certificate, certificate_pem.as_bytes(), data::Keep::Synced)?;
        }
        data::make_private(&key)?;
        Ok((certificate, key))
    }
}

impl Said {
    /// What the file says, unless flags say it too.
    pub fn or(self, remote: config::Remote, tls: config::Tls) -> Self {
        Said {
            allow: self.allow || remote.allow,
            names: if self.names.is_empty() { remote.names } else { self.names },
            proxy: self.proxy.or(remote.behind_proxy),
            tls: self.tls || tls.on,
            certificate: self.certificate.or(tls.cert),
            key: self.key.or(tls.key),
        }
    }
}

/// The most that named tokens can come to.
const TOKENS_BYTES_MAX: u64 = 16 << 20;

/// Keeps tokens in the data folder.
pub struct Files(pub PathBuf);

impl Files {
    pub const TOKENS: &str = "tokens.json";

    /// What is known of tokens. A file that cannot be understood is refused: nobody is let in or shut out by mistake.
    pub fn kept(&self) -> anyhow::Result<Kept> {
        let path = self.0.join(Self::TOKENS);
        let kept = self.look()?;
        if path.exists() {
            data::make_private(&path)?;
        }
        Ok(kept)
    }

    /// The same, and nothing is changed.
    pub fn look(&self) -> Result<Kept, Problem> {
        let path = self.0.join(Self::TOKENS);
        let hint = "`tenure store repair` mends one turned bit; else mend the file yourself, or remove it to forget all \
                    tokens but the daemon's own";
        let refused = |why: String| Problem::usage(format!("{}: {why}", path.display()), hint);
        match data::read_plain(&path, TOKENS_BYTES_MAX).map_err(|error| refused(error.to_string()))? {
            Some(bytes) => tenure_server::read_tokens(&bytes).map_err(refused),
            None => Ok(Kept::default()),
        }
    }
}

impl tenure_server::Keeper for Files {
    fn keep_named(&self, json: &[u8]) -> io::Result<()> {
        data::replace_file(&self.0.join(Self::TOKENS), json, data::Keep::Synced)
    }

    fn keep_own(&self, token: &str) -> io::Result<()> {
        data::keep_token(&self.0, token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(listen: &str, said: Said) -> Result<Remote, String> {
        settle(listen.parse().unwrap(), said).map_err(|problem| problem.to_string())
    }

    #[test]
    fn others_are_let_in_only_when_it_was_said_and_said_safely() {
        let allow = Said { allow: true, ..Said::default() };
        let tls = Said { tls: true, ..allow.clone() };
        let proxy = Said { proxy: Some("tenure.example".into()), ..allow.clone() };
        let unsaid = Said { allow: false, ..tls.clone() };
        for (listen, said, fits) in [
            ("127.0.0.1:1", Said::default(), true),
            ("[::1]:1", Said::default(), true),
            ("0.0.0.0:1", Said::default(), false),
            ("0.0.0.0:1", allow.clone(), false),
            ("0.0.0.0:1", unsaid, false),
            ("0.0.0.0:1", tls.clone(), true),
            ("[::]:1", proxy, true),
            ("127.0.0.1:1", Said { certificate: Some("c".into()), ..allow.clone() }, false),
            ("127.0.0.1:1", Said { names: vec!["https://box".into()], ..allow.clone() }, false),
            ("127.0.0.1:1", Said { proxy: Some("box:443".into()), ..allow }, false),
        ] {
            assert_eq!(settled(listen, said.clone()).is_ok(), fits, "{listen} {said:?}");
        }
        let remote = settled("192.0.2.7:1", tls).unwrap();
        assert_eq!((remote.hosts(), remote.tls), (vec!["192.0.2.7".to_owned()], TlsSource::Own));
    }

    #[test]
    fn our_own_certificate_is_made_once_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let data = tempfile::tempdir().unwrap();
        let remote = Remote { names: vec!["box.example".into()], proxy: None, tls: TlsSource::Own };
        let first = remote.tls(data.path()).unwrap().unwrap();
        let again = remote.tls(data.path()).unwrap().unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        let mode = fs::metadata(data.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(data.path().join(CERTIFICATE_FILE), "nothing").unwrap();
        assert!(remote.tls(data.path()).is_err());
    }

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        assert_eq!(parts("https://box.example:8787/"), Some(("https", "box.example:8787")));
        assert_eq!(parts("http://[::1]"), Some(("http", "[::1]")));
        assert_eq!(parts("http://[::1]:80"), Some(("http", "[::1]:80")));
        for bad in
            ["", "box", "box:1", "ftp://box", "https://", "https://:1", "https://box:x", "https://a b", "https://u@b"]
        {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn loopback_is_told_from_elsewhere() {
        for (host, near) in [
            ("127.0.0.1:8787", true),
            ("localhost", true),
            ("[::1]:8787", true),
            ("box.example:8787", false),
            ("localhost.example", false),
            ("127.0.0.1.example:1", false),
        ] {
            assert_eq!(is_loopback(host), near, "{host}");
        }
    }
}
