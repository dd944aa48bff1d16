//! What inboxes count by.

/// Which connection of a client it is; later ones have higher epochs. A session is known by that of its first connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch(pub(crate) u64);

/// A place in an inbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Sequence(pub(crate) u64);

/// An inbox, in its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InboxNumber(pub(crate) u64);
