//! A batch: what one log entry holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mqtt_session::{ClassId, DropReason, Qos0Inbox, QueueFull};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::level::Level;
use crate::slot::SlotRange;
use crate::wire;
use crate::written::Written;

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
    /// The level of the shard when it was proposed: what it is written as. Not written.
    #[serde(skip, default = "Level::newest")]
    pub level: Level,
    /// What it is written as.
    #[serde(skip)]
    pub written: Written,
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Unix time in ms.
    pub now_ms: u64,
    /// The limits in force.
    pub limits: Limits,
}

/// The limits in force when a batch was proposed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Of one inbox.
    pub queue: QueueLimits,
    /// Which QoS 0 messages are stored.
    #[serde(with = "wire::qos0_inbox")]
    pub qos0: Qos0Inbox,
    /// Retained messages of one shard at most.
    pub retained_messages: u64,
    /// Bytes of retained messages of one shard at most.
    pub retained_bytes: u64,
    /// The limits of queues whose clients are of a class. A batch has them behind everything else.
    #[serde(skip)]
    pub classes: ClassLimits,
}

/// The limits of the queues of each class of clients, in no order. Most nodes have no classes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassLimits(Option<Arc<[(ClassId, QueueLimits)]>>);

impl Serialize for ClassLimits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let all = self.0.iter().flat_map(|classes| classes.iter());
        let all: Vec<(u32, &QueueLimits)> = all.map(|(class, of)| (class.0, of)).collect();
        all.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ClassLimits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = Vec::<(u32, QueueLimits)>::deserialize(from)?;
        Ok(all
            .into_iter()
            .map(|(class, of)| (ClassId(class), of))
            .collect())
    }
}

impl FromIterator<(ClassId, QueueLimits)> for ClassLimits {
    fn from_iter<I: IntoIterator<Item = (ClassId, QueueLimits)>>(classes: I) -> Self {
        let classes: Vec<_> = classes.into_iter().collect();
        Self((!classes.is_empty()).then(|| classes.into()))
    }
}

impl ClassLimits {
    /// Of no classes.
    pub const NONE: Self = Self(None);

    /// Whether there are no classes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn get(&self, class: ClassId) -> Option<&QueueLimits> {
        let mut classes = self.0.iter().flat_map(|classes| classes.iter());
        let found = classes.find(|(known, _)| *known == class)?;
        Some(&found.1)
    }
}

/// The limits of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "wire::QueueLimits", into = "wire::QueueLimits")]
pub struct QueueLimits {
    /// Messages queued at most.
    pub messages: u32,
    /// Bytes queued at most.
    pub bytes: u64,
    /// What happens at these two limits, and if the queue is closed.
    pub full: QueueFull,
    /// The disk has too little space left for queues of this class: nothing is queued for a client that is away.
    pub is_closed: bool,
}

/// Messages that a closed queue has at most while its client is connected: what passes through it.
const PASSING: u32 = 1_000;

impl QueueLimits {
    /// Messages queued at most, and why a further one is not.
    pub(crate) fn most_messages(&self, is_connected: bool) -> (u32, DropReason) {
        let most = match (self.is_closed, is_connected) {
            (false, _) => self.messages,
            (true, true) => self.messages.min(PASSING),
            (true, false) => 0,
        };
        let reason = if most == self.messages {
            DropReason::QueueFullMessages
        } else {
            DropReason::DiskHighWater
        };
        (most, reason)
    }
}

/// What is left of a limit of a shard, however narrow its range has become: a 256th. Few slots may hold many topics, and
/// the large message that a topic had before a split is to be replaced after it.
const LEAST_SHARE: u128 = 256;

impl Limits {
    /// Closes the queues of these classes.
    #[must_use]
    pub fn closing(mut self, closed: &[ClassId]) -> Self {
        self.queue.is_closed = closed.iter().any(|class| class.is_default());
        let classes = self.classes.0.iter().flat_map(|classes| classes.iter());
        self.classes = classes
            .map(|&(class, of)| {
                let is_closed = closed.contains(&class);
                (class, QueueLimits { is_closed, ..of })
            })
            .collect();
        self
    }

    /// The limits as a log of this level can have them: without classes, seconds and closed queues, if it has none.
    #[must_use]
    pub fn lowered(self, level: Level) -> Self {
        if level >= Level::SPLITS {
            return self;
        }
        let full = match self.queue.full {
            QueueFull::Refuse { .. } => QueueFull::REFUSE,
            full => full,
        };
        let queue = QueueLimits {
            full,
            is_closed: false,
            ..self.queue
        };
        Self {
            queue,
            classes: ClassLimits::NONE,
            ..self
        }
    }

    /// The limits of a queue whose client is of a class. One that is not known has those of the default class.
    #[must_use]
    pub fn of(&self, class: ClassId) -> QueueLimits {
        let own = Some(class).filter(|class| !class.is_default());
        let own = own.and_then(|class| self.classes.get(class));
        own.copied().unwrap_or(self.queue)
    }

    /// The limits with what a queue of a class holds left alone, if it holds more than it may and drops its oldest messages.
    #[must_use]
    pub fn leaving(mut self, class: ClassId, messages: u32, bytes: u64) -> Self {
        let of = self.of(class);
        let drops_oldest = of.full == QueueFull::DropOldest && of.messages > 0;
        if !drops_oldest || (messages <= of.messages && bytes <= of.bytes) {
            return self;
        }
        let left = QueueLimits {
            messages: of.messages.max(messages),
            bytes: of.bytes.max(bytes),
            ..of
        };
        if class.is_default() || self.classes.get(class).is_none() {
            self.queue = left;
            return self;
        }
        let classes = self.classes.0.iter().flat_map(|classes| classes.iter());
        self.classes = classes
            .map(|&(known, of)| (known, if known == class { left } else { of }))
            .collect();
        self
    }

    /// The limits of a shard that has `part` of the slots that the shards of `whole` share: of what a shard may keep, the
    /// share of its slots, rounded up, and a 256th at least. The shard that has all of them has the limits as they are.
    #[must_use]
    pub fn share(self, part: SlotRange, whole: SlotRange) -> Self {
        let slots = |range: SlotRange| u128::from(range.last.saturating_sub(range.first)) + 1;
        let (part, whole) = (slots(part), slots(whole));
        let share = |limit: u64| {
            let limit = u128::from(limit);
            let of_slots = (limit * part).div_ceil(whole);
            let share = of_slots.max(limit.div_ceil(LEAST_SHARE)).min(limit);
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Self {
            retained_messages: share(self.retained_messages),
            retained_bytes: share(self.retained_bytes),
            ..self
        }
    }
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
    /// The node that sent the request here; 0: this one; [`u64::MAX`], which no node has: the leader itself.
    pub peer: u64,
    /// The event loop, from 1; 0: nobody waits.
    pub loop_number: u16,
    /// What the loop knows the request by.
    pub token: u64,
}

impl CorrelationId {
    /// The loop number of what the store itself waits for.
    pub const STORE: u16 = u16::MAX;

    /// The loop number of what threads that are no loops wait for.
    pub const THREADS: u16 = u16::MAX - 1;

    /// The token of what a node asks the control store when its replica begins to serve; no thread has it.
    pub const NODE_UP: u64 = u64::MAX;

    /// For what a leader says itself: nobody waits for it, and when the leadership ends nobody says it again.
    pub const LEADER: Self = Self {
        peer: u64::MAX,
        loop_number: 0,
        token: 0,
    };

    /// For requests that nobody waits for.
    pub const NONE: Self = Self {
        peer: 0,
        loop_number: 0,
        token: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_slots_has_its_share_of_what_may_be_retained() {
        let limits = |messages, bytes| Limits {
            queue: QueueLimits {
                messages: 7,
                bytes: 8,
                full: QueueFull::REFUSE,
                is_closed: false,
            },
            qos0: Qos0Inbox::Never,
            retained_messages: messages,
            retained_bytes: bytes,
            classes: ClassLimits::default(),
        };
        let slots = |first, last| SlotRange { first, last };
        let all = SlotRange::ALL;
        for (messages, bytes) in [(1, 1), (1_000_000, 1 << 30), (u64::MAX, u64::MAX)] {
            let limits = limits(messages, bytes);
            assert_eq!(limits.clone().share(all, all), limits);
            let base = slots(16_384, 32_767);
            assert_eq!(limits.clone().share(base, base), limits);
        }
        let share = |part, whole| limits(1_000, 1 << 20).share(part, whole);
        assert_eq!(share(slots(0, 32_767), all), limits(500, 1 << 19));
        assert_eq!(
            share(slots(16_384, 20_479), slots(16_384, 32_767)),
            limits(250, 1 << 18)
        );
        // Rounded up, and never nothing.
        assert_eq!(share(slots(0, 9_999), all), limits(153, 160_000));
        assert_eq!(share(slots(5, 5), all), limits(4, 1 << 12));
        assert_eq!(limits(1, 3).share(slots(9, 9), all), limits(1, 1));
        // The halves have no less than the whole.
        for at in [1, 2, 333, 20_000, 65_535] {
            let of = [slots(0, at - 1), slots(at, u16::MAX)].map(|half| share(half, all));
            let sum = of[0].retained_messages + of[1].retained_messages;
            assert!((1_000..1_006).contains(&sum), "{sum} at {at}");
        }
    }
}
