//! How much of the log stays behind a checkpoint, for members that do not have it yet.
//!
//! openraft purges behind the last checkpoint that it is told of, so checkpoints are told late: when all
//! members have what the tables hold, or when too much of the log would stay.

use std::collections::VecDeque;

use crate::mark::Mark;

/// Checkpoints that are kept back, at most: those between are left out.
const STEPS: u64 = 16;

/// Checkpoints that openraft was not yet told of.
pub(crate) struct KeptBack {
    /// Ascending, each with the bytes that had been appended by then.
    checkpoints: VecDeque<(Mark, u64)>,
    max_bytes: u64,
}

impl KeptBack {
    /// `max_bytes`: of the log behind a checkpoint.
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self {
            checkpoints: VecDeque::new(),
            max_bytes,
        }
    }

    /// A checkpoint was written when this many bytes had been appended.
    pub(crate) fn add(&mut self, mark: Mark, appended: u64) {
        let step = self.max_bytes / STEPS;
        if let [.., (_, before), _] = self.checkpoints.make_contiguous()
            && appended - *before < step
        {
            self.checkpoints.pop_back();
        }
        self.checkpoints.push_back((mark, appended));
    }

    /// The last checkpoint behind which the log may be purged: all before `wanted_from` is not wanted, and
    /// `appended` bytes have been appended.
    pub(crate) fn release(&mut self, wanted_from: u64, appended: u64) -> Option<Mark> {
        let mut released = None;
        while let Some((mark, bytes)) = self.checkpoints.front()
            && (mark.next_index() <= wanted_from || appended - bytes >= self.max_bytes)
        {
            released = self.checkpoints.pop_front();
        }
        released.map(|(mark, _)| mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::log_id;

    fn mark(index: u64) -> Mark {
        Mark {
            log_id: Some(log_id(1, index)),
            ..Mark::default()
        }
    }

    #[test]
    fn what_all_members_have_is_released() {
        let mut kept = KeptBack::new(1_600);
        kept.add(mark(9), 100);
        kept.add(mark(19), 200);
        assert_eq!(kept.release(9, 200), None);
        assert_eq!(kept.release(19, 200), Some(mark(9)));
        assert_eq!(kept.release(19, 200), None);
        assert_eq!(kept.release(30, 200), Some(mark(19)));
    }

    #[test]
    fn what_would_be_too_much_is_released_though_it_is_wanted() {
        let mut kept = KeptBack::new(1_600);
        for number in 1..=20 {
            kept.add(mark(number * 10), number * 100);
        }
        assert_eq!(kept.release(0, 2_000), Some(mark(40)));
    }

    #[test]
    fn few_checkpoints_are_kept_back_however_many_there_are() {
        let mut kept = KeptBack::new(1_600);
        for number in 1..=1_000 {
            kept.add(mark(number), number);
        }
        assert!(kept.checkpoints.len() < 20, "{}", kept.checkpoints.len());
        assert_eq!(kept.release(1_001, 1_000), Some(mark(1_000)));
    }
}
