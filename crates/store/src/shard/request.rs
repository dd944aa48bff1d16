//! A request as a shard is given it, and its weight.

use serde::Serialize;
use store_state::{
    Batch, CorrelationId, Header, Level, ProposedHere, Request, Requeued, RoutedUntil, Written,
};

use crate::api::listener::Listener;
use crate::peers::wire_size::written_len;
use crate::shard::work::Work;

/// What a request takes in memory beside its own bytes, about.
pub(crate) const OVERHEAD: usize = 128;

/// What a request weighs while it waits and in a batch.
pub(crate) fn weigh<O: Serialize>(op: &O) -> usize {
    OVERHEAD + written_len(op)
}

/// A request as it is given to a shard.
pub(crate) fn work<O>(correlation_id: CorrelationId, op: O, must_wait: bool) -> Work<O> {
    let request = Request {
        until: RoutedUntil::FIRST,
        correlation_id,
        op,
    };
    Work::Propose { request, must_wait }
}

/// A batch of one request that nobody waits for.
pub(crate) fn single<O>(op: O, listener: &dyn Listener, level: Level) -> Batch<O> {
    Batch {
        header: Header {
            now_ms: listener.now_ms(),
            limits: listener.limits().lowered(level),
        },
        requests: vec![Request {
            until: RoutedUntil::FIRST,
            correlation_id: CorrelationId::NONE,
            op,
        }],
        bytes: OVERHEAD,
        requeued: Requeued::default(),
        proposed_here: ProposedHere::default(),
        level,
        written: Written::default(),
    }
}
