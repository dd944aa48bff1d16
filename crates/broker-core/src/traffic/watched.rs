//! What clients do that somebody watches: each packet is counted, for as long as somebody asks.

use hashing::HashMap;
use mqtt_session::Timestamp;

use super::Amount;

/// Clients that are watched at a time.
const CLIENTS: usize = 32;

/// How long a client is watched after somebody has asked last, in ms.
const WATCHED_MS: u64 = 30_000;

/// What a client has done since it is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WatchedTraffic {
    /// Since when, in ms of Unix time.
    pub since: Timestamp,
    /// What it has published.
    pub published: Amount,
    /// What it was sent.
    pub sent: Amount,
}

#[derive(Debug)]
struct Row {
    asked: Timestamp,
    traffic: WatchedTraffic,
}

#[derive(Debug, Default)]
pub(super) struct Watched(HashMap<Box<str>, Row>);

impl Watched {
    /// What a client has done; it is watched from now on if it was not.
    pub(super) fn watch(&mut self, client_id: &str, now: Timestamp) -> WatchedTraffic {
        self.0
            .retain(|_, row| now.saturating_since(row.asked) < WATCHED_MS);
        if let Some(row) = self.0.get_mut(client_id) {
            row.asked = now;
            return row.traffic;
        }
        if self.0.len() >= CLIENTS {
            let oldest = self.0.iter().min_by_key(|(_, row)| row.traffic.since);
            let oldest = oldest.map(|(client_id, _)| client_id.clone());
            if let Some(oldest) = oldest {
                self.0.remove(&oldest);
            }
        }
        let traffic = WatchedTraffic {
            since: now,
            ..WatchedTraffic::default()
        };
        let row = Row {
            asked: now,
            traffic,
        };
        self.0.insert(client_id.into(), row);
        traffic
    }

    pub(super) fn handle_published(&mut self, client_id: &str, amount: Amount) {
        if let Some(row) = self.row(client_id) {
            row.traffic.published.add(amount);
        }
    }

    pub(super) fn handle_sent(&mut self, client_id: &str, amount: Amount) {
        if let Some(row) = self.row(client_id) {
            row.traffic.sent.add(amount);
        }
    }

    fn row(&mut self, client_id: &str) -> Option<&mut Row> {
        // Nearly always nobody is watched, and nothing is hashed.
        let is_watched = !self.0.is_empty();
        is_watched.then(|| self.0.get_mut(client_id)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_asked_for_is_forgotten() {
        let mut watched = Watched::default();
        let one = Amount::of_one(5);
        watched.handle_published("a", one);
        assert_eq!(
            watched.watch("a", Timestamp(100)).published,
            Amount::default()
        );
        watched.handle_published("a", one);
        watched.handle_sent("b", one);
        let seen = watched.watch("a", Timestamp(100 + WATCHED_MS - 1));
        assert_eq!((seen.since, seen.published), (Timestamp(100), one));
        watched.watch("b", Timestamp(100 + 2 * WATCHED_MS));
        assert_eq!(watched.0.len(), 1);
    }

    #[test]
    fn few_are_watched_at_a_time() {
        let mut watched = Watched::default();
        for n in 0..=CLIENTS as u64 {
            watched.watch(&n.to_string(), Timestamp(1_000 + n));
        }
        assert_eq!(watched.0.len(), CLIENTS);
        assert!(!watched.0.contains_key("0"));
    }
}
