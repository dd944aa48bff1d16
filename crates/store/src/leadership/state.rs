//! Who leads a shard, as values.
//!
//! Invariant: leadership epochs of a shard only grow; a request for an older epoch is not accepted.

use serde::{Deserialize, Serialize};

/// An unbroken time in which a node serves a shard; later ones are greater. A leader forgets the requests of an earlier epoch,
/// and their senders retry them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LeadershipEpoch {
    /// The Raft term that it leads in.
    pub(crate) term: u64,
    /// Counts how often the node has begun to serve: more than once in a term, if a majority was silent meanwhile.
    pub(crate) attempt: u64,
}

/// Which node leads a shard, as far as this one knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LeaderHint {
    /// The node; 0: nobody is known to.
    pub(crate) leader: u64,
    pub(crate) leadership_epoch: LeadershipEpoch,
    /// Whether the leader can be sent something.
    pub(crate) is_reachable: bool,
    /// Changes when what was sent to the leader, or by it, may be lost.
    pub(crate) link_generation: u64,
}

/// What the replica of this node is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Leadership {
    /// To serve: it leads, and a majority hears it.
    pub(crate) leads: bool,
    /// The term that it leads in.
    pub(crate) term: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_term_is_a_later_epoch_whatever_the_attempts() {
        let epoch = |term, attempt| LeadershipEpoch { term, attempt };
        assert!(epoch(3, 1) > epoch(2, 9));
        assert!(epoch(3, 2) > epoch(3, 1));
        assert!(epoch(0, 1) > LeadershipEpoch::default());
    }
}
