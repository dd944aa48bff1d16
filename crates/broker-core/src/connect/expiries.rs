//! The times at which logins end.

use std::collections::BTreeSet;

use net_api::Key;

/// The clients of a loop whose logins end, at most one entry each.
#[derive(Debug, Default)]
pub(crate) struct Expiries(pub(super) BTreeSet<(u64, Key)>);

impl Expiries {
    /// A client's login ends `at` a time, in seconds since 1970-01-01 UTC, or not by itself. `before`: what it was.
    /// True: no other login ends, so the loop has to begin to look at the time.
    pub(crate) fn replace(&mut self, client: Key, before: Option<u64>, at: Option<u64>) -> bool {
        if let Some(before) = before {
            self.remove(before, client);
        }
        at.is_some_and(|at| self.add(at, client))
    }

    /// Adds a client whose login ends `at` this time. True: it is the only one.
    pub(super) fn add(&mut self, at: u64, client: Key) -> bool {
        self.0.insert((at, client));
        self.0.len() == 1
    }

    /// A client is gone, or its login ends at another time.
    pub(super) fn remove(&mut self, at: u64, client: Key) {
        self.0.remove(&(at, client));
    }

    /// Takes a client whose login has ended.
    pub(super) fn take_ended(&mut self, now: u64) -> Option<Key> {
        let (at, _) = self.0.first()?;
        (*at <= now).then(|| self.0.pop_first().map(|(_, client)| client))?
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32) -> Key {
        Key {
            slot,
            generation: 0,
        }
    }

    #[test]
    fn logins_end_by_the_time_that_is_told_even_if_it_jumps() {
        let mut expiries = Expiries::default();
        assert!(expiries.add(100, key(1)));
        assert!(!expiries.add(50, key(2)));
        assert!(!expiries.add(100, key(3)));
        assert_eq!(expiries.take_ended(49), None);
        assert_eq!(expiries.take_ended(50), Some(key(2)));
        // Set back, and forward over everything.
        assert_eq!(expiries.take_ended(0), None);
        assert_eq!(expiries.take_ended(u64::MAX), Some(key(1)));
        assert_eq!(expiries.take_ended(u64::MAX), Some(key(3)));
        assert!(expiries.is_empty());
    }

    #[test]
    fn a_login_that_is_renewed_or_gone_does_not_end() {
        let mut expiries = Expiries::default();
        expiries.add(10, key(1));
        expiries.add(10, key(2));
        expiries.remove(10, key(1));
        expiries.add(20, key(1));
        expiries.remove(10, key(2));
        assert_eq!(expiries.take_ended(10), None);
        assert_eq!(expiries.take_ended(20), Some(key(1)));
    }
}
