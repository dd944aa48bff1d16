//! Where a connection comes from, as limits see it.

use std::net::IpAddr;

use config::Network;

/// A customer's share of IPv6: the addresses in it are one for the limits.
const IPV6_PREFIX: u8 = 64;

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// The address: of the peer or, behind a proxy, what the proxy says; the proxy's own, if it says nothing.
    pub ip: IpAddr,
    /// It came by a listener of proxies. Then a loopback address is not that of a process of this machine: it
    /// is the proxy's own, or one that the proxy has seen on its machine.
    pub is_proxied: bool,
}

impl Source {
    /// The network that its limits count it as.
    #[must_use]
    pub fn network(&self) -> Network {
        Network::around(self.ip, IPV6_PREFIX)
    }

    /// Whether a process of this machine has connected.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        !self.is_proxied && self.ip.to_canonical().is_loopback()
    }
}

impl From<IpAddr> for Source {
    fn from(ip: IpAddr) -> Self {
        let is_proxied = false;
        Self { ip, is_proxied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_recognised_in_all_its_forms() {
        let source = |ip: &str| Source::from(ip.parse::<IpAddr>().unwrap());
        for ip in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(source(ip).is_this_machine(), "{ip}");
            let is_proxied = true;
            let proxied = Source {
                is_proxied,
                ..source(ip)
            };
            assert!(!proxied.is_this_machine(), "{ip}");
        }
        for ip in ["192.0.2.1", "::", "::ffff:192.0.2.1"] {
            assert!(!source(ip).is_this_machine(), "{ip}");
        }
    }
}
