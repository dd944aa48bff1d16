//! The same complaint about the same peer is logged once a minute, and of all together no more than
//! [`LINES`] a second: strangers have as many addresses as they like.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Limit: complaints about other nodes in the log | one in {} of a kind and peer, {LINES} a second | left out
const INTERVAL_MS: u64 = 60_000;

/// With more peers and reasons than these, all are forgotten, and logged once more.
const REMEMBERED: usize = 1024;

/// Complaints a second.
const LINES: u32 = 10;

#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<Logged>);

#[derive(Debug, Default)]
struct Logged {
    last: HashMap<(String, &'static str), u64>,
    second: u64,
    lines: u32,
}

/// Whether a complaint is to be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// It was, less than a minute ago, or there are too many.
    No,
    /// It is the first one.
    First,
    /// It was logged before.
    Again,
}

impl Complaints {
    /// Whether to log this now.
    pub(crate) fn due(&self, about: &str, reason: &'static str, now_ms: u64) -> Due {
        let mut logged = self.0.lock();
        let key = (about.to_owned(), reason);
        let last = logged.last.get(&key);
        if last.is_some_and(|&last| now_ms.saturating_sub(last) < INTERVAL_MS) {
            return Due::No;
        }
        let due = match last {
            None => Due::First,
            Some(_) => Due::Again,
        };
        if logged.second != now_ms / 1000 {
            logged.second = now_ms / 1000;
            logged.lines = 0;
        }
        if logged.lines == LINES {
            return Due::No;
        }
        logged.lines += 1;
        if logged.last.len() >= REMEMBERED {
            logged.last.clear();
        }
        logged.last.insert(key, now_ms);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_due_once_a_minute() {
        let complaints = Complaints::default();
        for (about, reason, now_ms, due) in [
            ("a", "x", 5, Due::First),
            ("a", "x", 60_004, Due::No),
            ("a", "y", 6, Due::First),
            ("b", "x", 6, Due::First),
            ("a", "x", 60_005, Due::Again),
        ] {
            assert_eq!(
                complaints.due(about, reason, now_ms),
                due,
                "{about} {reason} {now_ms}"
            );
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let complaints = Complaints::default();
        for peer in 0..3 * REMEMBERED {
            complaints.due(&peer.to_string(), "x", 1000 * peer as u64);
        }
        assert!(complaints.0.lock().last.len() <= REMEMBERED);
    }

    #[test]
    fn a_flood_of_peers_is_logged_in_a_few_lines() {
        let complaints = Complaints::default();
        let lines = |at: u64| {
            let due = |peer: &u64| complaints.due(&format!("{at} {peer}"), "x", at) != Due::No;
            (0..1_000).filter(due).count()
        };
        assert_eq!([lines(5_000), lines(5_999), lines(6_000)], [10, 0, 10]);
    }
}
