//! Retained messages that were removed and that no client has removed, by why they were.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use store_state::retain::RetainedEnd;

use crate::purging::Purges;

/// What is removed that no client has asked for.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    /// Queues that operators empty.
    pub(crate) purges: Purges,
    /// Retained messages.
    pub(crate) retained: RetainedEnds,
}

/// Counts since the node has begun, of shards that it led then.
#[derive(Debug, Default)]
pub(crate) struct RetainedEnds([AtomicU64; RetainedEnd::ALL.len()]);

impl RetainedEnds {
    /// One more.
    pub(crate) fn count(&self, end: RetainedEnd) {
        if let Some(of) = self.0.get(end as usize) {
            of.fetch_add(1, Relaxed);
        }
    }

    /// All counts.
    pub(crate) fn counts(&self) -> [(RetainedEnd, u64); RetainedEnd::ALL.len()] {
        let counts = RetainedEnd::ALL.into_iter().zip(&self.0);
        let mut counts = counts.map(|(end, count)| (end, count.load(Relaxed)));
        array::from_fn(|_| counts.next().expect("each end has a count"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_counted_by_itself() {
        let ends = RetainedEnds::default();
        for (times, end) in RetainedEnd::ALL.into_iter().enumerate() {
            (0..=times).for_each(|_| ends.count(end));
        }
        let expected = [
            (RetainedEnd::Expiry, 1),
            (RetainedEnd::Age, 2),
            (RetainedEnd::Messages, 3),
            (RetainedEnd::Bytes, 4),
        ];
        assert_eq!(ends.counts(), expected);
    }
}
