//! What a look at the retained messages of a shard tells of each.

use super::{RetainedAt, RetainedSince};

/// A number of messages, or of bytes accounted for them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RetainedAmount(pub u64);

impl RetainedAmount {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left of it without the other one.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

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
    pub bytes: RetainedAmount,
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
