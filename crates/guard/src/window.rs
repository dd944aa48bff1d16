//! Events counted from the first of them on, for the length of a window.

/// A window begins with an event and counts those that follow it; the first event behind it begins another.
/// So at most twice the limit passes in any interval as long as the window.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Window {
    began_ms: u64,
    events: u32,
}

impl Window {
    /// Counts an event, and says the how manieth of its window it is.
    pub(crate) fn count(&mut self, now_ms: u64, length_ms: u64) -> u32 {
        if now_ms.saturating_sub(self.began_ms) >= length_ms {
            self.began_ms = now_ms;
            self.events = 0;
        }
        self.events = self.events.saturating_add(1);
        self.events
    }
}
