//! Where a daemon listens, as people write it: an address and a port; `localhost` will do.

use std::net::{Ipv4Addr, SocketAddr};

use serde::Deserialize;

pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let local = || {
        let port = text.strip_prefix("localhost:")?.parse().ok()?;
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    let bad = || format!("'{text}' is no socket address: write an IP address and a port, such as 127.0.0.1:8787");
    text.parse().ok().or_else(local).ok_or_else(bad)
}

/// The same in a file.
pub fn read<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, read) in
            [("127.0.0.1:1", "127.0.0.1:1"), ("localhost:8787", "127.0.0.1:8787"), ("[::1]:0", "[::1]:0")]
        {
            assert_eq!(parse(text), Ok(read.parse().unwrap()), "{text}");
        }
        for bad in
            ["", "localhost", "localhost:", "localhost:x", "8787", "127.0.0.1", "box.example:80", "1.2.3.4:99999"]
        {
            assert!(parse(bad).unwrap_err().contains("such as 127.0.0.1:8787"), "{bad}");
        }
    }
}
