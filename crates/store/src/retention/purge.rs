//! A queue that an operator empties.

use std::sync::atomic::Ordering;

use store_state::inbox::{InboxMachine, RetentionLimit};
use tokio::time::{Instant, timeout_at};

use crate::retention::policy::{AT_ONCE, Trim};
use crate::retention::task::carry_out;
use crate::shard::handle::Shard;
use crate::shard::queues::Ungiven;

/// How far the emptying of a queue has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purge {
    /// Nothing is left of what waited when it began, but what the session was given.
    Complete,
    /// The time was over, no majority has answered, the disk is full, another node leads now, or the session has just come back.
    Incomplete,
}

/// Drops what waits for a client now and its session was not given, until a time, part by part. `None`: the shard does not serve;
/// `Some(None)`: it has no such client.
pub(crate) async fn purge(
    shard: &Shard<InboxMachine>,
    client: &str,
    until: Instant,
) -> Option<Option<Purge>> {
    let (mut from, mut end) = (0, None);
    loop {
        let (inbox, left) = match shard.ungiven(client)? {
            None => return Some(None),
            Some(Ungiven::Unknown) => return Some(Some(Purge::Incomplete)),
            Some(Ungiven::Sequences(inbox, left)) => (inbox, left),
        };
        // What comes from now on stays.
        let end = *end.get_or_insert(left.end);
        from = left.start.max(from);
        if from >= end {
            return Some(Some(Purge::Complete));
        }
        let sequences = from..end.min(from + AT_ONCE);
        from = sequences.end;
        let trim = Trim {
            inbox,
            sequences,
            limit: RetentionLimit::Purge,
        };
        if Instant::now() >= until || !is_dropped(shard, &trim, until).await {
            return Some(Some(Purge::Incomplete));
        }
    }
}

/// Drops messages, and waits until that is done, but not longer than until a time. A full disk refuses it, which also ends the wait.
async fn is_dropped(shard: &Shard<InboxMachine>, trim: &Trim, until: Instant) -> bool {
    let refused = || shard.stats.refused.load(Ordering::Relaxed);
    let before = refused();
    let op = trim.op::<InboxMachine>(shard.standing());
    let is_finished = timeout_at(until, carry_out(shard, op)).await;
    // Which request was refused is not known: it may have been another one, and asking again does no harm.
    is_finished == Ok(true) && refused() == before
}
