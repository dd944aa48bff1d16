//! The store does not ask a broker again and again to open the inboxes of a shard that cannot be served.

use crate::history::{History, REOPENED};

/// The time in which it may ask so often, in ms.
const TIME: u64 = 1_000;

pub(super) fn check(history: &History) -> Result<(), String> {
    for ((node, shard), times) in &history.reopened {
        let (Some(first), Some(last)) = (times.front(), times.back()) else {
            continue;
        };
        if times.len() == REOPENED && last - first < TIME {
            return Err(format!(
                "node {node} is to open the inboxes of shard {shard} again at {times:?}"
            ));
        }
    }
    Ok(())
}
