//! The address that the other nodes reach this one by, where the configuration names none: that of the seed which is this
//! machine, or else the one that this node sends from on its way to the seeds.
//!
//! A machine may have several addresses in the seeds' network, of which its system sends from the first. If one of them is
//! a seed, that is the one that the others have in their files.
//!
//! Invariant: an address that only this machine reaches is chosen only if every seed has an address and all are reached
//! from such a one. Otherwise a machine whose own name stands for 127.0.1.1, as Debian has it, would tell that to the
//! others.
//!
//! Nothing is sent: a UDP socket that is connected has the address that the route begins at.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::links::names::Names;

/// Between two looks while there is no route.
const ROUND: Duration = Duration::from_millis(500);

/// Between two lines in the log that say what is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks for a route to one of `endpoints`, each `host:port`, in their order, until there is one: at the start of a machine
/// its network or the names may come later. `None`: `give_up` became true before. Blocks.
///
/// # Errors
/// The system gives no runtime.
pub fn own_address(endpoints: &[String], give_up: &AtomicBool) -> io::Result<Option<IpAddr>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let address = runtime.block_on(find(endpoints, give_up));
    // A look-up that goes on is not waited for.
    runtime.shutdown_background();
    Ok(address)
}

async fn find(endpoints: &[String], give_up: &AtomicBool) -> Option<IpAddr> {
    let names = Names::default();
    let mut said: Option<Instant> = None;
    while !give_up.load(Relaxed) {
        match look(endpoints, &names).await {
            Ok(address) => return Some(address),
            Err(problems) if said.is_none_or(|said| said.elapsed() >= PATIENCE) => {
                let tried = problems.join("; ");
                tracing::warn!(
                    tried,
                    "waits for a route to the seeds: clusterConfig.host is not set, so this node takes the address that the route begins at"
                );
                said = Some(Instant::now());
            }
            Err(_) => {}
        }
        tokio::time::sleep(ROUND).await;
    }
    None
}

async fn look(endpoints: &[String], names: &Names) -> Result<IpAddr, Vec<String>> {
    let mut problems = Vec::new();
    let mut seeds = Vec::new();
    let looks = endpoints.iter().map(|endpoint| names.look_up(endpoint));
    for (endpoint, look) in endpoints.iter().zip(join_all(looks).await) {
        match look {
            Err(error) => problems.push(format!("{endpoint}: {error}")),
            Ok(addresses) => seeds.extend(addresses),
        }
    }
    choose(&seeds, problems, is_own, source)
}

/// `problems`: what is wrong with seeds that have no address.
fn choose(
    seeds: &[SocketAddr],
    mut problems: Vec<String>,
    is_own: impl Fn(IpAddr) -> bool,
    source: impl Fn(SocketAddr) -> io::Result<IpAddr>,
) -> Result<IpAddr, Vec<String>> {
    // All machines have each loopback address.
    let mut own = seeds
        .iter()
        .map(SocketAddr::ip)
        .filter(|ip| !ip.is_loopback());
    if let Some(own) = own.find(|ip| is_own(*ip)) {
        return Ok(own);
    }
    let mut loopback = None;
    for seed in seeds {
        match source(*seed) {
            Ok(own) if own.is_loopback() => {
                loopback.get_or_insert(own);
            }
            Ok(own) => return Ok(own),
            Err(error) => problems.push(format!("{seed}: {error}")),
        }
    }
    loopback.filter(|_| problems.is_empty()).ok_or(problems)
}

/// Whether it is an address of this machine, which can be listened on. Where the system lets everybody listen on foreign
/// addresses (`ip_nonlocal_bind`), none is known to be one.
fn is_own(address: IpAddr) -> bool {
    let can_bind = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    // For documentation, RFC 5737 and RFC 3849: no machine has it.
    let foreign: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 254).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfffe).into(),
    };
    !address.is_unspecified() && can_bind(address) && !can_bind(foreign)
}

/// Where the route to an address begins.
fn source(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    let own = socket.local_addr()?.ip();
    match own {
        IpAddr::V6(own) if own.is_unicast_link_local() => Err(io::Error::other(
            "the route to it begins at a link-local address, which has no meaning elsewhere",
        )),
        own => Ok(own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(endpoints: &[&str], expect: Result<&str, usize>) {
        let endpoints: Vec<String> = endpoints.iter().map(|e| (*e).to_owned()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let found = runtime.block_on(look(&endpoints, &Names::default()));
        let found = found.map(|address| address.to_string());
        let found = found.as_deref().map_err(Vec::len);
        assert_eq!(found, expect, "{endpoints:?}");
    }

    #[test]
    fn seeds_of_this_machine_are_reached_from_a_loopback_address() {
        check(&["127.0.0.1:8899"], Ok("127.0.0.1"));
        check(&["127.0.0.1:8899", "127.0.0.2:8899"], Ok("127.0.0.1"));
    }

    #[test]
    fn a_loopback_address_is_not_taken_while_another_seed_has_none() {
        check(&["127.0.0.1:8899", "without-a-port"], Err(1));
        check(&["without-a-port"], Err(1));
    }

    #[test]
    fn a_seed_that_is_this_machine_comes_before_routes() {
        // Own addresses, the seeds, where their routes begin, and what is chosen.
        let check = |own: &[&str], seeds: &[(&str, &str)], expect: &str| {
            let ip = |text: &str| text.parse::<IpAddr>().unwrap();
            let own: Vec<IpAddr> = own.iter().map(|text| ip(text)).collect();
            let addresses: Vec<SocketAddr> =
                seeds.iter().map(|(to, _)| (ip(to), 8899).into()).collect();
            let source = |to: SocketAddr| {
                let route = seeds.iter().find(|(seed, _)| ip(seed) == to.ip());
                Ok(ip(route.unwrap().1))
            };
            let chosen = choose(
                &addresses,
                Vec::new(),
                |address| own.contains(&address),
                source,
            );
            assert_eq!(chosen, Ok(ip(expect)), "{own:?} {seeds:?}");
        };
        // In the network of the seeds, and one of them.
        let routes = [
            ("192.168.0.11", "192.168.0.5"),
            ("192.168.0.12", "192.168.0.5"),
        ];
        check(
            &["10.0.0.5", "192.168.0.5", "192.168.0.12"],
            &routes,
            "192.168.0.12",
        );
        // In their network only.
        check(&["10.0.0.5", "192.168.0.5"], &routes, "192.168.0.5");
        // All have loopback addresses: of those, where the route begins counts.
        let loopback = [("127.0.0.2", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")];
        check(&["127.0.0.1", "127.0.0.2"], &loopback, "127.0.0.1");
    }

    #[test]
    fn only_addresses_of_this_machine_are_its_own() {
        let is_own = |text: &str| is_own(text.parse().unwrap());
        assert!(is_own("127.0.0.1"));
        assert!(!is_own("0.0.0.0"));
        assert!(!is_own("198.51.100.1"));
    }

    #[test]
    fn who_gives_up_waits_for_no_route() {
        let endpoints = ["without-a-port".to_owned()];
        let found = own_address(&endpoints, &AtomicBool::new(true));
        assert_eq!(found.unwrap(), None);
    }
}
