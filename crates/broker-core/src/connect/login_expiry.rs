//! Logins that end at a time, by which their clients are disconnected.
//!
//! The time is the system's, not the loop's: it may be set, and goes on while the machine sleeps. A timer of the
//! loop cannot wait for it, so the loop looks at it once a second while a login ends at all.

use std::collections::BTreeSet;

use mqtt_proto::ReasonCode;
use net_api::Key;

use crate::clients::{ClientLoop, LoopIo, Timer};
use crate::excerpt::excerpt;
use crate::rim::Rim;

/// How often the loop looks at the system's time, in ms.
const LOOK_MS: u64 = 1_000;

/// Clients that are disconnected in one turn.
const PER_TURN: usize = 256;

/// The clients of a loop whose logins end, at most one entry each.
#[derive(Debug, Default)]
pub(crate) struct Expiries(BTreeSet<(u64, Key)>);

impl Expiries {
    /// Adds a client whose login ends `at` this time. True: it is the only one.
    fn add(&mut self, at: u64, client: Key) -> bool {
        self.0.insert((at, client));
        self.0.len() == 1
    }

    /// A client is gone, or its login ends at another time.
    fn remove(&mut self, at: u64, client: Key) {
        self.0.remove(&(at, client));
    }

    /// Takes a client whose login has ended.
    fn take_ended(&mut self, now: u64) -> Option<Key> {
        let (at, _) = self.0.first()?;
        (*at <= now).then(|| self.0.pop_first().map(|(_, client)| client))?
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<R: Rim> ClientLoop<R> {
    /// A client has logged in until a time, in seconds since 1970-01-01 UTC. `before`: what it was.
    pub(crate) fn watch_expiry(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        before: Option<u64>,
        at: Option<u64>,
    ) {
        if let Some(before) = before {
            self.expiries.remove(before, key);
        }
        if let Some(at) = at
            && self.expiries.add(at, key)
        {
            // Not now: whoever logs a client in goes on with it.
            io.arm(io.now_ms(), Timer::LoginExpiry.to_bits());
        }
    }

    /// Disconnects clients whose logins have ended, and looks again while there are others.
    pub(crate) fn end_logins(&mut self, io: &mut impl LoopIo) {
        let now = self.node.rim.system_s();
        let mut left = PER_TURN;
        while left > 0
            && let Some(key) = self.expiries.take_ended(now)
        {
            left -= 1;
            if let Some(client) = self.clients.get(key)
                && let Some(left_out) = self.node.refusal_lines.take(io.now_ms())
            {
                tracing::info!(
                    client_id = &*excerpt(client.session.client_id()),
                    left_out,
                    "a login has expired and its client is disconnected"
                );
            }
            self.kick(io, key, ReasonCode::NotAuthorized);
        }
        if !self.expiries.is_empty() {
            let pause = if left == 0 { 0 } else { LOOK_MS };
            io.arm(io.now_ms() + pause, Timer::LoginExpiry.to_bits());
        }
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
