//! Connections that have not shown who they are.
//!
//! Invariants: there are no more than [`LIMIT`] in all and [`OF_AN_ADDRESS`] of one address. A new one is always
//! taken: at a limit it displaces the oldest of the address that has most, so who is silent keeps nobody out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Strangers at once.
///
/// Limit: connections to the cluster's port without a handshake | {}, {OF_AN_ADDRESS} of one address, 5 s | the
/// oldest of the address that has most is closed
const LIMIT: usize = 128;

/// Of one address; of IPv6, of one /64 network, which is what one machine may have. A node dials four at once.
const OF_AN_ADDRESS: usize = 16;

/// All strangers, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    strangers: Vec<(u64, IpAddr, CancellationToken)>,
}

/// A stranger, until it is dropped: it has shown who it is, or is gone.
#[derive(Debug)]
pub(crate) struct Stranger {
    of: Arc<Strangers>,
    number: u64,
    /// Cancelled when another one takes its place.
    pub(crate) displaced: CancellationToken,
}

impl Strangers {
    /// Takes one in, and displaces another one at a limit.
    pub(crate) fn admit(self: &Arc<Self>, ip: IpAddr) -> Stranger {
        let network = network(ip);
        let displaced = CancellationToken::new();
        let mut waiting = self.0.lock();
        waiting.make_room(network);
        waiting.last += 1;
        let number = waiting.last;
        waiting.strangers.push((number, network, displaced.clone()));
        Stranger {
            of: Arc::clone(self),
            number,
            displaced,
        }
    }
}

impl Waiting {
    fn make_room(&mut self, network: IpAddr) {
        let of_it = self.strangers.iter().filter(|(_, of, _)| *of == network);
        let crowded = if of_it.count() >= OF_AN_ADDRESS {
            Some(network)
        } else if self.strangers.len() >= LIMIT {
            self.most_crowded()
        } else {
            None
        };
        let oldest = crowded.and_then(|crowded| {
            let mut strangers = self.strangers.iter();
            strangers.position(|(_, of, _)| *of == crowded)
        });
        if let Some(oldest) = oldest {
            let (_, _, displaced) = self.strangers.remove(oldest);
            displaced.cancel();
        }
    }

    /// The address that has most; of several the one that came first.
    fn most_crowded(&self) -> Option<IpAddr> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (_, of, _) in &self.strangers {
            *counts.entry(*of).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let mut addresses = self.strangers.iter().map(|(_, of, _)| *of);
        addresses.find(|of| counts.get(of) == Some(&most))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let number = self.number;
        let mut waiting = self.of.0.lock();
        waiting.strangers.retain(|(other, _, _)| *other != number);
    }
}

fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn open(strangers: &[Stranger]) -> usize {
        let is_open = |stranger: &&Stranger| !stranger.displaced.is_cancelled();
        strangers.iter().filter(is_open).count()
    }

    #[test]
    fn an_address_displaces_its_own() {
        let strangers = Arc::new(Strangers::default());
        let other = strangers.admit(ip(1));
        let many: Vec<_> = (0..1_000).map(|_| strangers.admit(ip(2))).collect();
        assert_eq!(open(&many), OF_AN_ADDRESS);
        assert_eq!(open(&many[1_000 - OF_AN_ADDRESS..]), OF_AN_ADDRESS);
        assert!(!other.displaced.is_cancelled());
    }

    #[test]
    fn addresses_that_have_most_make_room() {
        let strangers = Arc::new(Strangers::default());
        let node: Vec<_> = (0..4).map(|_| strangers.admit(ip(1))).collect();
        let many: Vec<_> = (0..10_000)
            .map(|n| strangers.admit(ip(2 + (n % 20) as u8)))
            .collect();
        assert_eq!((open(&node), open(&many)), (4, LIMIT - 4));
    }

    #[test]
    fn the_oldest_goes_where_all_have_as_many() {
        let strangers = Arc::new(Strangers::default());
        let many: Vec<_> = (0..=255).map(|n| strangers.admit(ip(n))).collect();
        assert_eq!(open(&many[..LIMIT]), 0);
        assert_eq!(open(&many), LIMIT);
    }

    #[test]
    fn who_is_known_or_gone_is_no_stranger() {
        let strangers = Arc::new(Strangers::default());
        for n in 0..=255 {
            drop(strangers.admit(ip(n)));
        }
        assert!(strangers.0.lock().strangers.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let text = |text: &str| network(text.parse().unwrap());
        assert_eq!(text("2001:db8::1"), text("2001:db8::ffff:1:2:3"));
        assert_ne!(text("2001:db8::1"), text("2001:db8:0:1::1"));
        assert_eq!(text("::ffff:10.0.0.1"), text("10.0.0.1"));
    }
}
