//! Networks as they are written in a configuration: an address, or an address and a prefix length.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::listed::{Item, Listed};

/// A range of IP addresses in CIDR notation (RFC 4632, RFC 4291 §2.3). An address without a prefix
/// length is that address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The bits that all IPv4-mapped IPv6 addresses share (RFC 4291 §2.5.5.2).
const MAPPED_PREFIX: u8 = 96;

/// Networks separated by commas, or a YAML list of them.
pub type Networks = Listed<Network>;

impl Network {
    /// `None` unless `text` is an address or `address/prefix`, with no bits set behind the prefix. A network of IPv4-mapped IPv6
    /// addresses alone counts as that of IPv4.
    pub fn new(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok()?,
            Some(_) => return None,
        };
        let network = Self { address, prefix };
        if prefix > longest || network.masked(address) != bits(address) {
            return None;
        }
        let mapped = prefix.checked_sub(MAPPED_PREFIX);
        Some(match mapped {
            Some(prefix) if address.to_canonical() != address => Self::around(address, prefix),
            _ => network,
        })
    }

    /// The network of this prefix length that an address is in. IPv4-mapped IPv6 addresses count as IPv4;
    /// a prefix longer than the address stands for the whole of it.
    pub fn around(address: IpAddr, prefix: u8) -> Self {
        let address = address.to_canonical();
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.min(longest);
        let masked = Self { address, prefix }.masked(address);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((masked >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(masked)),
        };
        Self { address, prefix }
    }

    /// Bits that all its addresses share, from the left.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether it is one of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether the address is in the network. IPv4-mapped IPv6 addresses count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && self.masked(address) == bits(self.address)
    }

    /// The bits of an address that the prefix covers, left-aligned.
    fn masked(&self, address: IpAddr) -> u128 {
        let mask = match self.prefix {
            0 => 0,
            prefix => u128::MAX << (128 - u32::from(prefix)),
        };
        bits(address) & mask
    }
}

/// An address, left-aligned.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Item for Network {
    const EXPECTED: &str =
        "a network such as 192.0.2.0/24 or an address, or several separated by commas or as a list";

    fn parse(text: &str) -> Option<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_mapped_addresses_is_that_of_ipv4() {
        for (text, expected) in [
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("::ffff:192.0.2.7/128", "192.0.2.7/32"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
            ("::/95", "::/95"),
            ("::1/128", "::1/128"),
        ] {
            let network = Network::new(text).unwrap();
            assert_eq!(network.to_string(), expected, "{text}");
        }
        assert_eq!(Network::new("::ffff:192.0.2.7/120"), None);
    }

    #[test]
    fn networks_contain_what_their_prefix_says() {
        let contains = |network: &str, address: &str| {
            Network::new(network)
                .unwrap()
                .contains(address.parse().unwrap())
        };
        assert!(contains("192.0.2.0/24", "192.0.2.255"));
        assert!(!contains("192.0.2.0/24", "192.0.3.0"));
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.9"));
        assert!(contains("192.0.2.7", "192.0.2.7"));
        assert!(!contains("192.0.2.7", "192.0.2.8"));
        assert!(contains("0.0.0.0/0", "203.0.113.1"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(!contains("::/0", "192.0.2.1"));
    }

    #[test]
    fn the_network_around_an_address_has_no_bits_behind_its_prefix() {
        let around = |address: &str, prefix| {
            let network = Network::around(address.parse().unwrap(), prefix);
            assert_eq!(Network::new(&network.to_string()), Some(network));
            network.to_string()
        };
        assert_eq!(around("192.0.2.77", 24), "192.0.2.0/24");
        assert_eq!(around("192.0.2.77", 0), "0.0.0.0/0");
        assert_eq!(around("::ffff:192.0.2.77", 64), "192.0.2.77/32");
        assert_eq!(around("2001:db8:1:2:3:4:5:6", 64), "2001:db8:1:2::/64");
        assert_eq!(around("2001:db8::1", 255), "2001:db8::1/128");
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "/8",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::/129",
            "10.0.0.0/+8",
            "ten",
            "10/8",
        ] {
            assert_eq!(Network::new(text), None, "{text}");
        }
    }
}
