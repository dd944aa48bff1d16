//! What a look at the queues of a shard has found.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use mqtt_session::{ClassId, Timestamp};
use store_state::Retention;
use store_state::inbox::{InboxId, QueueView};

/// Queues that are remembered of each class in each of the three orders.
///
/// Limit: queues that are remembered by bytes, by messages and by age | {} of each class and shard | the others are
/// in no ranking
const LARGEST: usize = 128;

/// Queues whose messages are too old that are remembered; the next look finds the others.
const OVERDUE: usize = 1_024;

/// Bytes of a client identifier that are kept.
const SHOWN: usize = 256;

/// Sessions that lag that are remembered.
const LAGGING: usize = 1_024;

/// Sessions for which messages wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct WaitingSessions(pub u64);

/// Messages in queues, in flight ones included; one that several sessions have counts in each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct QueuedMessages(pub u64);

/// Accounted bytes of messages in queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct QueuedBytes(pub u64);

/// Queues of a class of clients in the shards that a node leads, or in one shard.
#[derive(Clone, Debug, Default)]
pub struct ClassQueues {
    /// The class.
    pub class: ClassId,
    /// Its sessions for which messages wait.
    pub sessions: WaitingSessions,
    /// The messages.
    pub messages: QueuedMessages,
    /// Their size.
    pub bytes: QueuedBytes,
    /// When the oldest one came, to a tenth of its age; `None`: not known.
    pub oldest: Option<Timestamp>,
    /// The queues with the most bytes, these first; 128 at most.
    pub largest: Vec<LargeQueue>,
    /// Those with the most messages.
    pub longest: Vec<LargeQueue>,
    /// Those whose oldest message is the oldest.
    pub oldest_first: Vec<LargeQueue>,
}

/// One of the largest queues.
#[derive(Clone, Debug)]
pub struct LargeQueue {
    /// The session: the first 256 bytes of its client identifier at most.
    pub client_id: Box<str>,
    /// Its class.
    pub class: ClassId,
    /// Messages that wait.
    pub messages: QueuedMessages,
    /// Their size.
    pub bytes: QueuedBytes,
    /// When the oldest one came, to a tenth of its age; `None`: not known.
    pub oldest: Option<Timestamp>,
    /// Messages per second that came and that went, since the look before; `None`: that did not list it.
    pub rates: Option<QueueRates>,
    pub(crate) inbox: InboxId,
    /// The sequences of those that may be dropped.
    pub(crate) droppable: Range<u64>,
}

/// What comes into a queue and leaves it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueueRates {
    /// Messages per second.
    pub in_per_s: f64,
    /// Messages per second, dropped ones included.
    pub out_per_s: f64,
}

/// A queue whose first messages are too old.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Overdue {
    pub(crate) inbox: InboxId,
    /// The sequences of those that are.
    pub(crate) sequences: Range<u64>,
}

/// A session that lags further behind than its class should.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lagging {
    pub(crate) inbox: InboxId,
    pub(crate) client_id: Box<str>,
    pub(crate) messages: QueuedMessages,
    pub(crate) age: Duration,
}

/// What a look has found so far.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) classes: Vec<ClassQueues>,
    pub(crate) overdue: Vec<Overdue>,
    pub(crate) lagging: Vec<Lagging>,
    /// There are more that lag.
    pub(crate) more_lag: bool,
}

impl Found {
    /// A queue that holds something. `given`: the first sequence that its session was not given, if that is connected and the
    /// shard knows. `now`: by the time of the cluster.
    pub(crate) fn add(
        &mut self,
        queue: &QueueView<'_>,
        given: Option<u64>,
        (rules, now): (&Retention, Timestamp),
    ) {
        let rule = rules.of(queue.class());
        let oldest = queue.oldest();
        let next = queue.next_sequence();
        let first = match queue.is_connected() {
            // What a connected session was given, it may have sent.
            true => given.unwrap_or(next).max(queue.first_unsent()),
            false => queue.first_unsent(),
        };
        let (inbox, messages) = (queue.id(), QueuedMessages(queue.messages().into()));
        if let Some(age) = rule.age_ms
            && self.overdue.len() < OVERDUE
            && let Some(before) = now.0.checked_sub(age.get())
            && let Some(below) = queue.came_by(Timestamp(before))
            && below > first
        {
            let sequences = first..below;
            self.overdue.push(Overdue { inbox, sequences });
        }
        let age = oldest.map_or(0, |oldest| now.0.saturating_sub(oldest.0));
        if rule.warn_ms.is_some_and(|most| age >= most.get()) {
            self.more_lag |= self.lagging.len() == LAGGING;
            if !self.more_lag {
                self.lagging.push(Lagging {
                    inbox,
                    client_id: beginning(queue.client()),
                    messages,
                    age: Duration::from_millis(age),
                });
            }
        }
        let class = self.class_mut(queue.class());
        let bytes = QueuedBytes(queue.bytes());
        class.sessions.0 += 1;
        class.messages.0 += messages.0;
        class.bytes.0 += bytes.0;
        class.oldest = earliest(class.oldest, oldest);
        class.keep((bytes, messages, oldest), || LargeQueue {
            client_id: beginning(queue.client()),
            class: queue.class(),
            messages,
            bytes,
            oldest,
            rates: None,
            inbox,
            droppable: first..next,
        });
    }

    fn class_mut(&mut self, class: ClassId) -> &mut ClassQueues {
        class_mut(&mut self.classes, class)
    }

    /// Compares what it has found with what was found so many seconds before.
    pub(crate) fn rate(&mut self, before: &[ClassQueues], elapsed_s: f64) {
        let queues = before.iter().flat_map(ClassQueues::all);
        let by_inbox: BTreeMap<u64, &LargeQueue> =
            queues.map(|queue| (queue.inbox.number.0, queue)).collect();
        for queue in self.classes.iter_mut().flat_map(ClassQueues::all_mut) {
            let known = by_inbox.get(&queue.inbox.number.0);
            queue.rates = known.filter(|_| elapsed_s > 0.0).map(|known| {
                let came = queue.droppable.end.saturating_sub(known.droppable.end);
                let went = (known.messages.0 + came).saturating_sub(queue.messages.0);
                QueueRates {
                    in_per_s: came as f64 / elapsed_s,
                    out_per_s: went as f64 / elapsed_s,
                }
            });
        }
    }
}

impl ClassQueues {
    /// Puts a queue among the first, if it is one.
    fn keep(
        &mut self,
        (bytes, messages, oldest): (QueuedBytes, QueuedMessages, Option<Timestamp>),
        queue: impl Fn() -> LargeQueue,
    ) {
        let place = self.largest.partition_point(|of| of.bytes >= bytes);
        keep(&mut self.largest, place, &queue);
        let place = self.longest.partition_point(|of| of.messages >= messages);
        keep(&mut self.longest, place, &queue);
        if let Some(oldest) = oldest {
            let is_before = |of: &LargeQueue| of.oldest.is_some_and(|of| of <= oldest);
            let place = self.oldest_first.partition_point(is_before);
            keep(&mut self.oldest_first, place, &queue);
        }
    }

    fn all(&self) -> impl Iterator<Item = &LargeQueue> {
        let others = self.longest.iter().chain(&self.oldest_first);
        self.largest.iter().chain(others)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut LargeQueue> {
        let others = self.longest.iter_mut().chain(&mut self.oldest_first);
        self.largest.iter_mut().chain(others)
    }

    fn add(&mut self, other: &Self) {
        self.sessions.0 += other.sessions.0;
        self.messages.0 += other.messages.0;
        self.bytes.0 += other.bytes.0;
        self.oldest = earliest(self.oldest, other.oldest);
        for queue in &other.largest {
            let place = self.largest.partition_point(|of| of.bytes >= queue.bytes);
            keep(&mut self.largest, place, || queue.clone());
        }
        for queue in &other.longest {
            let place = self
                .longest
                .partition_point(|of| of.messages >= queue.messages);
            keep(&mut self.longest, place, || queue.clone());
        }
        for queue in &other.oldest_first {
            let place = self
                .oldest_first
                .partition_point(|of| of.oldest <= queue.oldest);
            keep(&mut self.oldest_first, place, || queue.clone());
        }
    }
}

/// Puts a queue at its place among the first ones.
fn keep(queues: &mut Vec<LargeQueue>, place: usize, queue: impl FnOnce() -> LargeQueue) {
    if place < LARGEST {
        queues.truncate(LARGEST - 1);
        queues.insert(place, queue());
    }
}

/// Adds up what several shards hold, by class.
pub(crate) fn sum<'a>(shards: impl Iterator<Item = &'a ClassQueues>) -> Vec<ClassQueues> {
    let mut classes = Vec::new();
    for of in shards {
        class_mut(&mut classes, of.class).add(of);
    }
    classes
}

fn class_mut(classes: &mut Vec<ClassQueues>, class: ClassId) -> &mut ClassQueues {
    let place = classes.iter().position(|of| of.class == class);
    let place = place.unwrap_or_else(|| {
        classes.push(ClassQueues {
            class,
            ..ClassQueues::default()
        });
        classes.len() - 1
    });
    &mut classes[place]
}

/// What is kept of a client identifier: clients choose how long these are.
fn beginning(client: &str) -> Box<str> {
    let end = client.floor_char_boundary(SHOWN);
    client.get(..end).unwrap_or_default().into()
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
