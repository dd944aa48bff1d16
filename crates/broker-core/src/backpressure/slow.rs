//! What a node knows of subscribers that do not keep up, for all its loops.

use guard::Quota;
use mqtt_session::Timestamp;
use parking_lot::Mutex;

use super::pairs::{HeldBy, Pairs};
use super::stalls::Stalls;

/// Lines of the log about it in a second.
const LINES: u32 = 10;

/// Who has held whom back, who is to be spared, and how much the log says of it.
#[derive(Debug)]
pub struct SlowSubscribers {
    state: Mutex<(Pairs, Stalls)>,
    lines: Quota,
}

impl Default for SlowSubscribers {
    fn default() -> Self {
        Self {
            state: Default::default(),
            lines: Quota::new(LINES),
        }
    }
}

impl SlowSubscribers {
    /// The queue of a durable session that is connected is filling up: with a message to this topic.
    pub fn handle_filling(&self, topic: &[u8], session: &str, now: Timestamp) {
        self.state.lock().0.handle_filling(topic, session, now);
    }

    /// Who has held whom back, the latest first, `limit` at most.
    pub fn list(&self, limit: usize) -> Vec<HeldBy> {
        let mut pairs = self.state.lock().0.list();
        pairs.truncate(limit);
        pairs
    }

    /// A session that is connected holds a publisher back.
    pub(crate) fn handle_held(&self, subscriber: &str, publisher: &str, now: Timestamp) {
        let (pairs, _) = &mut *self.state.lock();
        pairs.handle_held(subscriber, publisher, now);
    }

    /// A publisher to this topic is held back, for durable sessions that are filling up: for which, if it is known.
    pub(crate) fn handle_paused(
        &self,
        publisher: &str,
        topic: &[u8],
        now: Timestamp,
    ) -> Option<Box<str>> {
        self.state.lock().0.handle_paused(publisher, topic, now)
    }

    /// Publishers have waited in vain.
    pub(crate) fn handle_stall(
        &self,
        publishers: impl Iterator<Item = u64>,
        until_ms: u64,
        now_ms: u64,
    ) {
        self.state.lock().1.note(publishers, until_ms, now_ms);
    }

    /// Whether a publisher is not to be held back by whoever has not shown that it drains.
    pub(crate) fn spares(&self, publisher: u64, now_ms: u64) -> bool {
        self.state.lock().1.spares(publisher, now_ms)
    }

    /// Whether the log may have a line, and how many before it were left out.
    pub(crate) fn take_line(&self, now_ms: u64) -> Option<u64> {
        self.lines.take(now_ms)
    }
}
