//! What the threads of this process had used in the last minute, so that one look at them shows their use.
//!
//! Invariant: it is read beside the history of the node, each 10 s, and never by an event loop: a message costs nothing for it.

use std::collections::VecDeque;

use admin::api::EarlierThreads;
use parking_lot::Mutex;

/// How many are kept: the first of them is 50 to 60 s old.
const KEPT: usize = 6;

/// The earlier looks, the oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentThreads(Mutex<VecDeque<EarlierThreads>>);

impl RecentThreads {
    /// Keeps another one.
    pub(super) fn record(&self, look: EarlierThreads) {
        let mut looks = self.0.lock();
        if looks.len() == KEPT {
            looks.pop_front();
        }
        looks.push_back(look);
    }

    /// The first that is kept.
    pub(super) fn oldest(&self) -> Option<EarlierThreads> {
        self.0.lock().front().cloned()
    }
}

#[cfg(test)]
mod tests {
    use admin::api::Amount;

    use super::*;

    #[test]
    fn the_first_of_the_last_minute_is_kept() {
        let recent = RecentThreads::default();
        assert_eq!(recent.oldest(), None);
        let look = |uptime_s: u64| EarlierThreads {
            uptime_us: Amount(uptime_s * 1_000_000),
            threads: Vec::new(),
        };
        for uptime_s in (0..=200).step_by(10) {
            recent.record(look(uptime_s));
            assert_eq!(recent.oldest(), Some(look(uptime_s.saturating_sub(50))));
        }
    }
}
