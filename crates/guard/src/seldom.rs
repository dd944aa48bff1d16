//! How often what an address causes is written to the log.

use config::Network;

use crate::source::Source;
use crate::tracked::Tracked;
use crate::window::Window;

/// Time for which an address has a line.
const MINUTE_MS: u64 = 60_000;

/// Addresses that are remembered. One that is forgotten may have a line too early.
///
/// Limit: lines in the log about refused handshakes | one in {MINUTE_MS} of an address, of {} addresses | counted,
/// the next line says how many; an address that is forgotten may have one earlier
const ADDRESSES: usize = 4_096;

/// One line a minute for each address; those left out are counted.
#[derive(Debug)]
pub struct Seldom {
    told: Tracked<Network, Told>,
}

#[derive(Default, Debug)]
struct Told {
    lines: Window,
    left_out: Repeated,
}

/// How often the same has happened since the last line about it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Repeated(pub u32);

impl Default for Seldom {
    fn default() -> Self {
        Self {
            told: Tracked::new(ADDRESSES),
        }
    }
}

impl Seldom {
    /// Whether a line about this address may be written, and how many about it were left out before.
    pub fn take(&self, source: Source, now_ms: u64) -> Option<Repeated> {
        self.told.with(source.network(), |told| {
            if told.lines.count(now_ms, MINUTE_MS) > 1 {
                told.left_out.0 = told.left_out.0.saturating_add(1);
                return None;
            }
            Some(std::mem::take(&mut told.left_out))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn source(ip: &str) -> Source {
        Source::from(ip.parse::<IpAddr>().expect("an address"))
    }

    #[test]
    fn an_address_has_a_line_a_minute() {
        let (seldom, one, other) = (Seldom::default(), source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(seldom.take(one, MINUTE_MS), Some(Repeated(0)));
        assert_eq!(seldom.take(one, MINUTE_MS), None);
        assert_eq!(seldom.take(other, MINUTE_MS), Some(Repeated(0)));
        assert_eq!(seldom.take(one, 2 * MINUTE_MS - 1), None);
        assert_eq!(seldom.take(one, 2 * MINUTE_MS), Some(Repeated(2)));
    }

    #[test]
    fn so_many_addresses_are_remembered() {
        let seldom = Seldom::default();
        for number in 0..3 * ADDRESSES {
            let ip = std::net::Ipv4Addr::from_bits(number as u32);
            assert!(
                seldom
                    .take(Source::from(IpAddr::V4(ip)), MINUTE_MS)
                    .is_some()
            );
        }
        assert!(seldom.told.len() <= ADDRESSES);
    }
}
