//! Which addresses may be spoken to: public ones, and those that the user allows. It resolves nothing.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Addresses of this machine and of private networks that may be fetched from all the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PrivateAddresses {
    #[default]
    Refused,
    Allowed,
    /// These alone.
    Only(Vec<Network>),
}

impl PrivateAddresses {
    pub(super) fn may_reach(&self, address: IpAddr) -> bool {
        let address = plain(address);
        is_public(address)
            || match self {
                Self::Refused => false,
                Self::Allowed => true,
                Self::Only(networks) => networks.iter().any(|network| network.holds(address)),
            }
    }
}

/// An address, or all that begin as it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no address and no network; write it like 127.0.0.1, 192.168.1.0/24 or fd00::/8")]
pub struct BadNetwork(String);

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| bad())?)),
        };
        let address = plain(address.parse().map_err(|_| bad())?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        match bits.unwrap_or(most) {
            bits if bits <= most => Ok(Self { address, bits }),
            _ => Err(bad()),
        }
    }
}

impl Network {
    fn holds(&self, address: IpAddr) -> bool {
        let differs =
            |difference: u128, width: u32| difference.checked_shr(width - u32::from(self.bits)).unwrap_or(0) != 0;
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => !differs(u128::from(own.to_bits() ^ other.to_bits()), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => !differs(own.to_bits() ^ other.to_bits(), 128),
            _ => false,
        }
    }
}

/// An IPv4 address in the clothes of IPv6 is taken as what it leads to.
pub(super) fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let leads_to = six.to_ipv4_mapped().or_else(|| {
        // What a network without IPv4 makes of it: 64:ff9b::/96.
        let [0x64, 0xff9b, 0, 0, 0, 0, ..] = six.segments() else { return None };
        Some(Ipv4Addr::from_bits(six.to_bits() as u32))
    });
    leads_to.map_or(address, IpAddr::V4)
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_4(four),
        IpAddr::V6(six) => is_public_6(six),
    }
}

/// All that is not set aside for something else.
fn is_public_4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [192, 168, ..]
            | [198, 18..=19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            // Groups, what is kept for later, and everybody at once.
            | [224..=255, ..]
    )
}

/// Only what is given out to the public is; of that, neither what leads into IPv4 nor what is for examples.
fn is_public_6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[0] & 0xe000 == 0x2000
        && !matches!(segments, [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_public_addresses_are_reached_unasked() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.5",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.2.3",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "4000::1",
            "5f00::1",
        ] {
            assert!(!PrivateAddresses::Refused.may_reach(ip(text)), "{text}");
            assert!(PrivateAddresses::Allowed.may_reach(ip(text)), "{text}");
        }
        for text in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "223.255.0.1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert!(PrivateAddresses::Refused.may_reach(ip(text)), "{text}");
        }
    }

    #[test]
    fn a_network_holds_what_begins_as_it_does() {
        for (network, address, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("10.0.0.0/8", "10.255.1.1", true),
            ("10.0.0.0/8", "172.16.0.1", false),
            ("0.0.0.0/0", "192.168.1.1", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fc00::1", false),
            ("::/0", "fe80::1", true),
            ("192.168.1.128/25", "192.168.1.127", false),
        ] {
            let allowed = PrivateAddresses::Only(vec![network.parse().unwrap()]);
            assert_eq!(allowed.may_reach(ip(address)), expected, "{network} {address}");
        }
        for bad in ["", "x", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "10.0.0/8", "localhost", "10.0.0.0/8/8"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
