//! InboxCursors are not told to come again, and again, by a node that cannot serve them.

use crate::history::{History, REOPENED};

/// The time in which they may be told so often, in ms.
const TIME: u64 = 1_000;

pub(super) fn check(history: &History) -> Result<(), String> {
    for ((node, shard), times) in &history.reopened {
        let (Some(first), Some(last)) = (times.front(), times.back()) else {
            continue;
        };
        if times.len() == REOPENED && last - first < TIME {
            return Err(format!(
                "readers of shard {shard} at node {node} come again at {times:?}"
            ));
        }
    }
    Ok(())
}
