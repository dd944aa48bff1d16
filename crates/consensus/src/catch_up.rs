//! How far a replica is behind what its leader had committed when the two met after the replica's start.
//!
//! What the leader has committed since then does not count: under load a replica would never be there.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{LogId, next_index};
use crate::{Command, Group};

/// Where the leader was when it first sent something.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// The index behind what was committed; 0: no leader has said it.
    next: AtomicU64,
}

impl Met {
    /// A leader says how far it has committed. The first time counts.
    pub(crate) fn handle_leader(&self, committed: Option<LogId>) {
        if let Some(committed) = committed
            && self.next.load(Ordering::Relaxed) == 0
        {
            self.next
                .store(next_index(Some(committed)), Ordering::Relaxed);
        }
    }

    fn progress(&self, applied_next: u64) -> CatchUp {
        match self.next.load(Ordering::Relaxed) {
            0 => CatchUp::NotMet,
            next => match next.saturating_sub(applied_next) {
                0 => CatchUp::Done,
                entries => CatchUp::Behind { entries },
            },
        }
    }
}

/// How far a replica has caught up since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatchUp {
    /// No leader has said yet how far it has committed.
    NotMet,
    /// The replica lacks entries of those that were committed when it met its leader.
    Behind {
        /// So many.
        entries: u64,
    },
    /// It has applied them all; or it leads; or it is no voter.
    Done,
}

impl<C: Command> Group<C> {
    /// How far this replica has caught up with what its leader had committed when it first sent something after
    /// [`Group::start`]. A load and two short locks.
    #[must_use]
    pub fn catch_up(&self) -> CatchUp {
        let is_done = {
            let standing = self.watch();
            let standing = standing.borrow();
            standing.leads || !standing.members.has_voter(self.node)
        };
        match is_done {
            true => CatchUp::Done,
            false => self.met.progress(self.applied_mark().next_index()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::log_id;

    #[test]
    fn what_was_committed_when_the_leader_was_met_counts() {
        let id = |index| Some(log_id(1, index));
        let met = Met::default();
        assert_eq!(met.progress(7), CatchUp::NotMet);
        met.handle_leader(None);
        assert_eq!(met.progress(7), CatchUp::NotMet);
        met.handle_leader(id(9));
        assert_eq!(met.progress(7), CatchUp::Behind { entries: 3 });
        met.handle_leader(id(500));
        assert_eq!(met.progress(10), CatchUp::Done);
        assert_eq!(met.progress(11), CatchUp::Done);
    }
}
