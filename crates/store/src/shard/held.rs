//! How much the leader of a shard holds back for a while.

use crate::kinds::kind::Kind;
use crate::shard::handle::Shard;

/// What the leader of a shard holds back for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Answers, until older wills are published.
    pub(crate) answers: usize,
    /// Attached inboxes, until their cursors are open.
    pub(crate) awaited: usize,
    /// Filters that are told of when the cursors of their inboxes are open.
    pub(crate) filters: usize,
}

/// What the leader of a shard holds back; nothing: there is no replica here.
pub(crate) fn held<M: Kind>(shard: &Shard<M>) -> Held {
    let state = shard.state.read();
    state.as_ref().map_or_else(Held::default, |state| Held {
        answers: state.unsettled.len(),
        awaited: state.effects.cursors.awaited_inboxes(),
        filters: state.effects.cursors.held_filters(),
    })
}
