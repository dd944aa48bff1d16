//! Who has gone, and why: the last connections that have ended, of one part of the registry.
//!
//! Invariant: what is kept is bounded in number and, however long names are, in bytes. It is lost with the process.

use std::collections::VecDeque;

use mqtt_session::Timestamp;

use crate::drops::kept;

/// Departures that each of the 64 parts remembers: 8,192 in all.
const REMEMBERED: usize = 128;

/// The end of a client's connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departure {
    /// When.
    pub at: Timestamp,
    /// Whose, or the beginning of it.
    client_id: Box<str>,
    /// As in the log.
    pub reason: &'static str,
    /// Where the connection came from.
    pub address: Option<Box<str>>,
}

/// The last departures, the latest at the end.
#[derive(Debug, Default)]
pub(super) struct Departures(VecDeque<Departure>);

impl Departures {
    /// A connection has ended.
    pub(super) fn record(
        &mut self,
        at: Timestamp,
        client_id: &str,
        reason: &'static str,
        address: Option<String>,
    ) {
        let departure = Departure {
            at,
            client_id: kept(client_id).into(),
            reason,
            address: address.map(Into::into),
        };
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(departure);
    }

    /// The last of a client, if it is remembered.
    pub(super) fn last(&self, client_id: &str) -> Option<Departure> {
        let mut latest_first = self.0.iter().rev();
        latest_first
            .find(|departure| *departure.client_id == *kept(client_id))
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_is_found_as_long_as_it_is_remembered() {
        let mut departures = Departures::default();
        for at_ms in 0..3 {
            departures.record(
                Timestamp(at_ms),
                "a",
                "DISCONNECT",
                Some("10.0.0.1:1".to_owned()),
            );
        }
        departures.record(Timestamp(3), "b", "Session taken over", None);
        let last = departures.last("a").map(|of| (of.at, of.reason));
        assert_eq!(last, Some((Timestamp(2), "DISCONNECT")));
        assert_eq!(departures.last("c"), None);
        for at_ms in 0..REMEMBERED as u64 - 1 {
            departures.record(Timestamp(at_ms), "others", "DISCONNECT", None);
        }
        assert!(departures.last("b").is_some());
        departures.record(Timestamp(9), "others", "DISCONNECT", None);
        assert_eq!(departures.last("b"), None);
    }

    #[test]
    fn long_names_are_kept_in_part() {
        let mut departures = Departures::default();
        let long = "x".repeat(60_000);
        departures.record(Timestamp(1), &long, "DISCONNECT", None);
        assert_eq!(departures.last(&long).map(|of| of.at), Some(Timestamp(1)));
        assert!(departures.0.iter().all(|of| of.client_id.len() < 1_000));
    }
}
