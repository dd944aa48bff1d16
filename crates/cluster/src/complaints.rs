//! The same complaint about the same peer is logged once a minute.

use std::collections::HashMap;

use parking_lot::Mutex;

const INTERVAL_MS: u64 = 60_000;

/// With more peers and reasons than these, all are forgotten, and logged once more.
const REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<HashMap<(String, &'static str), u64>>);

impl Complaints {
    /// Whether to log this now.
    pub(crate) fn is_due(&self, about: &str, reason: &'static str, now_ms: u64) -> bool {
        let mut logged = self.0.lock();
        let key = (about.to_owned(), reason);
        let last = logged.get(&key);
        if last.is_some_and(|&last| now_ms.saturating_sub(last) < INTERVAL_MS) {
            return false;
        }
        if logged.len() >= REMEMBERED {
            logged.clear();
        }
        logged.insert(key, now_ms);
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
            complaints.is_due(&peer.to_string(), "x", 0);
        }
        assert!(complaints.0.lock().len() <= REMEMBERED);
    }
}
