//! The same complaint about the same peer is logged once a minute, and of all together no more than
//! [`LINES`] a second: strangers have as many addresses as they like.

use std::collections::HashMap;

use parking_lot::Mutex;

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

impl Complaints {
    /// Whether to log this now.
    pub(crate) fn is_due(&self, about: &str, reason: &'static str, now_ms: u64) -> bool {
        let mut logged = self.0.lock();
        let key = (about.to_owned(), reason);
        let last = logged.last.get(&key);
        if last.is_some_and(|&last| now_ms.saturating_sub(last) < INTERVAL_MS) {
            return false;
        }
        if logged.second != now_ms / 1000 {
            logged.second = now_ms / 1000;
            logged.lines = 0;
        }
        if logged.lines == LINES {
            return false;
        }
        logged.lines += 1;
        if logged.last.len() >= REMEMBERED {
            logged.last.clear();
        }
        logged.last.insert(key, now_ms);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_due_once_a_minute() {
        let complaints = Complaints::default();
        assert!(complaints.is_due("a", "x", 5));
        assert!(!complaints.is_due("a", "x", 60_004));
        assert!(complaints.is_due("a", "y", 6));
        assert!(complaints.is_due("b", "x", 6));
        assert!(complaints.is_due("a", "x", 60_005));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let complaints = Complaints::default();
        for peer in 0..3 * REMEMBERED {
            complaints.is_due(&peer.to_string(), "x", 1000 * peer as u64);
        }
        assert!(complaints.0.lock().last.len() <= REMEMBERED);
    }

    #[test]
    fn a_flood_of_peers_is_logged_in_a_few_lines() {
        let complaints = Complaints::default();
        let lines = |at: u64| {
            let due = |peer: &u64| complaints.is_due(&format!("{at} {peer}"), "x", at);
            (0..1_000).filter(due).count()
        };
        assert_eq!([lines(5_000), lines(5_999), lines(6_000)], [10, 0, 10]);
    }
}
