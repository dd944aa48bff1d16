//! Questions to the store for replays.

use net_api::Key;

/// What the store was asked for a replay.
#[derive(Debug)]
pub(crate) enum Asked {
    /// To keep a page for a durable session.
    Keep(Key),
    /// Pages for a session, by the number of the question.
    Pages {
        key: Key,
        question: u64,
        filters: Box<[Box<str>]>,
    },
}
