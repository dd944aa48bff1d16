//! The address of a peer, as a connection keeps it.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use net_api::PeerAddress;

/// A [`PeerAddress`] in 24 bytes instead of 32: few IPv6 addresses have a scope or a flow label.
#[derive(Debug)]
pub(crate) enum PackedAddress {
    V4(SocketAddrV4),
    /// Without scope and flow label.
    V6 {
        ip: [u8; 16],
        port: u16,
    },
    Scoped(Box<SocketAddrV6>),
    Unix,
}

impl From<PeerAddress> for PackedAddress {
    fn from(address: PeerAddress) -> Self {
        match address {
            PeerAddress::Ip(SocketAddr::V4(address)) => Self::V4(address),
            PeerAddress::Ip(SocketAddr::V6(address))
                if address.scope_id() == 0 && address.flowinfo() == 0 =>
            {
                Self::V6 {
                    ip: address.ip().octets(),
                    port: address.port(),
                }
            }
            PeerAddress::Ip(SocketAddr::V6(address)) => Self::Scoped(Box::new(address)),
            PeerAddress::Unix => Self::Unix,
        }
    }
}

impl PackedAddress {
    pub(crate) fn address(&self) -> PeerAddress {
        let address = match self {
            Self::V4(address) => SocketAddr::V4(*address),
            Self::V6 { ip, port } => {
                SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(*ip), *port, 0, 0))
            }
            Self::Scoped(address) => SocketAddr::V6(**address),
            Self::Unix => return PeerAddress::Unix,
        };
        PeerAddress::Ip(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_comes_back_as_it_was() {
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 1883, 7, 3);
        let addresses = ["10.1.2.3:1883", "[2001:db8::1]:8883"].map(|text| text.parse().unwrap());
        let all = addresses.into_iter().chain([SocketAddr::V6(scoped)]);
        for address in all.map(PeerAddress::Ip).chain([PeerAddress::Unix]) {
            assert_eq!(PackedAddress::from(address).address(), address);
        }
    }
}
