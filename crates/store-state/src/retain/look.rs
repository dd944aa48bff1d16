//! What a look at the retained messages of a shard tells of each.

use super::{RetainedAt, RetainedSince};

/// A retained message that is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetainedView<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// When it was retained, as it is kept.
    pub since: RetainedSince,
    /// The time from which its age counts: that, or else the one of the first [`RetainOp::Remove`](super::RetainOp::Remove) of
    /// the shard; `None`: there was none.
    pub counts_from: Option<RetainedSince>,
    /// Bytes accounted for it.
    pub bytes: u64,
}

impl RetainedView<'_> {
    /// What [`RetainOp::Remove`](super::RetainOp::Remove) removes it by.
    #[must_use]
    pub fn to_removal(&self) -> RetainedAt {
        RetainedAt {
            topic: self.topic.into(),
            since: self.since,
        }
    }
}
