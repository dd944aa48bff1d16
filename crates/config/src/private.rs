//! Which addresses belong to networks that the internet does not route to.

use std::net::IpAddr;

/// Whether an address is a loopback address (127.0.0.0/8, `::1`), a private one (RFC 1918; unique local addresses,
/// `fc00::/7`), or a link-local one (169.254.0.0/16, `fe80::/10`). IPv4-mapped IPv6 addresses count as IPv4.
///
/// All others are public, among them the shared addresses of carriers (100.64.0.0/10, RFC 6598): a carrier's other
/// customers have them, too.
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_those_of_own_networks() {
        for (address, private) in [
            ("127.0.0.1", true),
            ("127.255.255.255", true),
            ("128.0.0.0", false),
            ("9.255.255.255", false),
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("172.15.255.255", false),
            ("172.16.0.0", true),
            ("172.31.255.255", true),
            ("172.32.0.0", false),
            ("192.167.255.255", false),
            ("192.168.0.0", true),
            ("192.168.255.255", true),
            ("192.169.0.0", false),
            ("169.253.255.255", false),
            ("169.254.0.0", true),
            ("169.254.255.255", true),
            ("169.255.0.0", false),
            ("100.64.0.1", false),
            ("192.0.2.1", false),
            ("198.18.0.1", false),
            ("203.0.113.1", false),
            ("8.8.8.8", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::1", true),
            ("::", false),
            ("::2", false),
            ("fbff::1", false),
            ("fc00::", true),
            ("fdff:ffff::1", true),
            ("fe00::1", false),
            ("fe7f::1", false),
            ("fe80::1", true),
            ("febf::1", true),
            ("fec0::1", false),
            ("ff02::1", false),
            ("2001:db8::1", false),
            ("2a00::1", false),
            ("::ffff:127.0.0.1", true),
            ("::ffff:192.168.0.11", true),
            ("::ffff:100.64.0.1", false),
            ("::ffff:8.8.8.8", false),
            // Not mapped, but translated (RFC 6052): what is behind it is anywhere.
            ("64:ff9b::192.168.0.11", false),
        ] {
            assert_eq!(is_private(address.parse().unwrap()), private, "{address}");
        }
    }
}
