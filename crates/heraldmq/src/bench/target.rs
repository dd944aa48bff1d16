//! Where load goes to and comes from: the broker's listeners, and addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use loadtest::Listener;

use crate::failure::Failure;

/// Connections from one address of this machine; it has some 28,000 ports for them.
const PER_SOURCE: usize = 20_000;

/// A HOST:PORT of the command line.
pub(super) fn parse(text: &str) -> Result<String, &'static str> {
    let expected = "expected HOST:PORT, such as 127.0.0.1:1883";
    let (host, port) = text.rsplit_once(':').ok_or(expected)?;
    match port.parse::<u16>() {
        Ok(1..) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err(expected),
    }
}

/// The first address of each listener.
pub(super) fn resolve(targets: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let first = |target: &String| {
        let failed = |reason: &str| Failure::Runtime(format!("{target}: {reason}"));
        let mut addresses = target
            .to_socket_addrs()
            .map_err(|error| failed(&error.to_string()))?;
        addresses.next().ok_or_else(|| failed("has no address"))
    };
    targets.iter().map(first).collect()
}

/// The same, with the hosts' names.
pub(super) fn listeners(targets: &[String]) -> Result<Vec<Listener>, Failure> {
    let addresses = resolve(targets)?;
    let listener = |(target, address): (&String, SocketAddr)| Listener {
        host: host(target).to_owned(),
        address,
    };
    Ok(targets.iter().zip(addresses).map(listener).collect())
}

/// The host of a HOST:PORT, as certificates have it.
pub(super) fn host(target: &str) -> &str {
    let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
    let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    inner.unwrap_or(host)
}

/// By worker, addresses to connect from. Only the loopback network lends itself to having several; on
/// others the kernel chooses.
pub(super) fn sources(
    targets: &[SocketAddr],
    connections: usize,
    workers: usize,
) -> Vec<Vec<IpAddr>> {
    let is_v4_loopback = |target: &SocketAddr| target.is_ipv4() && target.ip().is_loopback();
    if !targets.iter().all(is_v4_loopback) || connections <= PER_SOURCE {
        return Vec::new();
    }
    let each = connections.div_ceil(workers).div_ceil(PER_SOURCE);
    let first = u32::from(Ipv4Addr::new(127, 0, 0, 2));
    let of_worker = |worker: usize| {
        let from = first + (worker * each) as u32;
        let addresses = from..from + each as u32;
        addresses.map(|bits| Ipv4Addr::from(bits).into()).collect()
    };
    (0..workers).map(of_worker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_host_and_port() {
        assert!(parse("localhost:1883").is_ok());
        assert!(parse("[::1]:1883").is_ok());
        for wrong in [
            "localhost",
            ":1883",
            "localhost:",
            "localhost:0",
            "localhost:x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_listener_is_called_as_its_certificate_calls_it() {
        assert_eq!(host("broker.example.org:8883"), "broker.example.org");
        assert_eq!(host("[::1]:8883"), "::1");
    }

    #[test]
    fn many_connections_come_from_several_loopback_addresses() {
        let local = [SocketAddr::from(([127, 0, 0, 1], 1883))];
        assert!(sources(&local, PER_SOURCE, 2).is_empty());
        let many = sources(&local, PER_SOURCE * 3 + 1, 2);
        let [one, other] = many.as_slice() else {
            panic!("{many:?}");
        };
        assert_eq!((one.len(), other.len()), (2, 2));
        assert!(one.iter().all(|address| !other.contains(address)));
        let remote = SocketAddr::from(([192, 0, 2, 1], 1883));
        assert!(sources(&[local[0], remote], PER_SOURCE * 3, 2).is_empty());
    }
}
