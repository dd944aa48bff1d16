//! A batch: what one log entry holds.

use std::sync::atomic::{AtomicBool, Ordering};

use mqtt_session::{Qos0Inbox, QueueFull};
use serde::{Deserialize, Serialize};

use crate::wire;

/// Operations that are agreed on, synced and applied together, in their order.
#[derive(Debug, Serialize, Deserialize)]
pub struct Batch<O> {
    /// What holds for all of them.
    pub header: Header,
    /// The operations.
    pub requests: Vec<Request<O>>,
    /// About how many bytes they are, for limits on memory. Not written.
    #[serde(skip)]
    pub bytes: usize,
    /// The proposer has put its requests back into the queue. Not written.
    #[serde(skip)]
    pub requeued: Requeued,
    /// This process has proposed it, and sends on what belongs to other shards by now. Not written.
    #[serde(skip)]
    pub proposed_here: ProposedHere,
}

/// Set when the proposer of a batch has put its requests back into the queue. The batch may be applied all the same,
/// but nobody waits for its replies any more.
#[derive(Debug, Default)]
pub struct Requeued(AtomicBool);

impl Requeued {
    /// Marks the batch.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the batch is marked.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What holds for all operations of a batch. The proposer says it, so that replicas need no clock and
/// no settings of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Unix time in ms.
    pub now_ms: u64,
    /// The limits in force.
    pub limits: Limits,
}

/// The limits in force when a batch was proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Messages queued in one inbox at most.
    pub queue_messages: u32,
    /// Bytes queued in one inbox at most.
    pub queue_bytes: u64,
    /// What happens at these two limits.
    #[serde(with = "wire::queue_full")]
    pub queue_full: QueueFull,
    /// Which QoS 0 messages are stored.
    #[serde(with = "wire::qos0_inbox")]
    pub qos0: Qos0Inbox,
    /// Retained messages of one shard at most.
    pub retained_messages: u64,
    /// Bytes of retained messages of one shard at most.
    pub retained_bytes: u64,
}

/// One operation and who waits for its reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request<O> {
    /// Which slots the sender took the shard to have.
    pub until: RoutedUntil,
    /// Known only in the process that proposed it.
    #[serde(skip)]
    pub correlation_id: CorrelationId,
    /// What to do.
    pub op: O,
}

/// The last slot that a shard had as far as whoever routed a request to it knew. Its first slot never changes.
///
/// A shard carries a request out for the slots that it has, and answers which these are, if it was taken to have more: the
/// request is then for the shards that have the others as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoutedUntil(u64);

impl RoutedUntil {
    /// The last slot that the shard had when the store began.
    pub const FIRST: Self = Self(1);

    /// A slot.
    #[must_use]
    pub fn slot(last: u16) -> Self {
        Self(u64::from(last) + 2)
    }

    /// The slot. `first`: the last one that the shard had when the store began.
    #[must_use]
    pub fn last(self, first: u16) -> u16 {
        match self.0.checked_sub(2) {
            Some(last) => u16::try_from(last).unwrap_or(u16::MAX),
            None => first,
        }
    }
}

/// Whether the process that applies a batch has proposed it. Not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProposedHere(pub bool);

/// Who waits for a reply: an event loop and its own number for the request. Opaque here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct CorrelationId {
    /// The node that sent the request here; 0: this one.
    pub peer: u64,
    /// The event loop, from 1; 0: nobody waits.
    pub loop_number: u16,
    /// What the loop knows the request by.
    pub token: u64,
}

impl CorrelationId {
    /// The loop number of what the store itself waits for.
    pub const STORE: u16 = u16::MAX;

    /// For requests that nobody waits for.
    pub const NONE: Self = Self {
        peer: 0,
        loop_number: 0,
        token: 0,
    };
}
