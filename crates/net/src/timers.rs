//! Deadlines of one event loop.
//!
//! Invariant: an armed deadline is reported at or after its time, at most once per arming. Deliberately
//! absent: cancellation. Who is woken looks at its own state and arms again if the time has not come;
//! so a keep-alive that is put off by every packet costs nothing per packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Armed deadlines, soonest first. 16 bytes each.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    heap: BinaryHeap<Reverse<(u64, K)>>,
}

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
        }
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Arms a deadline (ms of the loop's clock).
    pub(crate) fn arm(&mut self, at_ms: u64, key: K) {
        self.heap.push(Reverse((at_ms, key)));
    }

    /// The soonest deadline.
    #[must_use]
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes one deadline that has come.
    pub(crate) fn pop_due(&mut self, now_ms: u64) -> Option<K> {
        if self.next()? > now_ms {
            return None;
        }
        let Reverse((_, key)) = self.heap.pop()?;
        // A heap that was large once (a wave of short-lived connections) gives its memory back.
        if self.heap.capacity() > 1024 && self.heap.len() < self.heap.capacity() / 4 {
            self.heap.shrink_to(self.heap.capacity() / 2);
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_not_early() {
        let mut timers = Timers::default();
        timers.arm(30, 3);
        timers.arm(10, 1);
        timers.arm(20, 2);
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(20), Some(1));
        assert_eq!(timers.pop_due(20), Some(2));
        assert_eq!(timers.pop_due(20), None);
    }
}
