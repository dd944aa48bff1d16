//! What the inbox shards are asked for legacies.

use crate::inbox::Sequence;

/// A page of a legacy, among all of a loop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct PageNumber(pub(super) u64);

/// A question that is not answered.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A legacy's shard, for what others are to have next.
    Page(PageNumber),
    /// The inbox of a member, to take a message of a page.
    Target(PageNumber, Sequence),
}
