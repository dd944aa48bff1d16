//! One inbox: whose it is, who is attached, its subscriptions and its queue.

use mqtt_proto::SubscriptionFilter;
use mqtt_session::{ClassId, Timestamp};

use super::StoredSubscription;
use super::name::InboxId;
use super::queue::Queue;
use super::queue::ages::Ages;
use super::tables::{INBOX, InboxRow, LEGACY, Rest};
use crate::{Changes, Level, row};

/// Which router has the subscriptions of an inbox: the one of the shard, or one from before a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Generation(pub(super) u32);

#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) client: Box<str>,
    pub(super) number: u64,
    /// The epoch that the session began with.
    pub(super) incarnation: u64,
    /// The highest epoch that was attached.
    pub(super) epoch: u64,
    /// The node that the client is connected to, and its incarnation.
    pub(super) attached: Option<(u64, u64)>,
    /// It is attached, and the client is not connected any more.
    pub(super) lingers: bool,
    /// Sorted by filter.
    pub(super) subscriptions: Vec<StoredSubscription>,
    pub(super) queue: Queue,
    /// The round of the stock that its row is to be written in; 0: none.
    pub(super) round: u32,
    /// The router that has its subscriptions.
    pub(super) generation: Generation,
    /// Its row is in the tables, or is being written.
    pub(super) stored: bool,
    /// Since when messages have come while the client was not connected, as far as a batch has asked for it by
    /// [`mqtt_session::QueueFull::Refuse`]; the beginning of time: not known.
    pub(super) away_since: Timestamp,
    /// A message was dropped because the queue is full, and it has been full since. Not written.
    pub(super) is_full: bool,
    /// The stock has it in its list of inboxes whose queues may hold something. Not written.
    pub(super) is_listed: bool,
    /// Its session has ended, and what is queued is for others: it is a legacy.
    pub(super) is_legacy: bool,
    /// Of its client, as of the last connection.
    pub(super) class: ClassId,
}

impl Inbox {
    pub(super) fn new(client: &str, slot: u16, number: u64, epoch: u64, stored: bool) -> Self {
        Self {
            client: client.into(),
            number,
            incarnation: epoch,
            epoch,
            attached: None,
            lingers: false,
            subscriptions: Vec::new(),
            queue: Queue::new(slot, number, 1),
            round: 0,
            generation: Generation::default(),
            stored,
            away_since: Timestamp(0),
            is_full: false,
            is_listed: false,
            is_legacy: false,
            class: ClassId::DEFAULT,
        }
    }

    pub(super) fn load(client: &str, slot: u16, mut row: InboxRow) -> Self {
        Self {
            client: client.into(),
            number: row.number,
            incarnation: row.incarnation,
            epoch: row.epoch,
            attached: row.attached,
            lingers: row.rest.lingers,
            away_since: row.rest.away_since,
            is_full: false,
            is_listed: false,
            queue: Queue::load(slot, &mut row),
            subscriptions: row.subscriptions,
            round: 0,
            generation: Generation::default(),
            stored: true,
            is_legacy: false,
            class: row.rest.class,
        }
    }

    /// What is left when the session has ended: the queue.
    pub(super) fn into_legacy(mut self: Box<Self>) -> Box<Self> {
        self.is_legacy = true;
        self.stored = false;
        self.attached = None;
        self.lingers = false;
        self.away_since = Timestamp(0);
        self.subscriptions = Vec::new();
        self.queue.owe_nothing();
        self
    }

    pub(super) fn load_legacy(client: &str, slot: u16, row: InboxRow) -> Self {
        Self {
            is_legacy: true,
            ..Self::load(client, slot, row)
        }
    }

    pub(super) fn id(&self) -> InboxId {
        InboxId::new(self.queue.slot(), self.number)
    }

    pub(super) fn is_attached(&self) -> bool {
        self.attached.is_some()
    }

    /// Whether the client is connected, as far as is known.
    pub(super) fn is_connected(&self) -> bool {
        self.is_attached() && !self.lingers
    }

    /// The subscriptions that are not shared.
    pub(super) fn own_subscriptions(&self) -> impl Iterator<Item = &StoredSubscription> {
        self.subscriptions
            .iter()
            .filter(|subscription| !is_shared(&subscription.filter))
    }

    /// The filters of these.
    pub(super) fn own_filters(&self) -> impl Iterator<Item = &str> {
        self.own_subscriptions()
            .map(|subscription| &*subscription.filter)
    }

    /// The key of its row.
    pub(super) fn key(&self) -> Vec<u8> {
        if self.is_legacy {
            row::numbered_key(LEGACY, self.queue.slot(), &self.client, self.number)
        } else {
            row::key(INBOX, self.queue.slot(), &self.client)
        }
    }

    fn rest(&self, level: Level) -> Rest {
        if !level.has_classes() {
            return Rest {
                lingers: self.lingers,
                ..Rest::default()
            };
        }
        let marks = self.queue.ages().map(Ages::to_write);
        Rest {
            lingers: self.lingers,
            away_since: self.away_since,
            class: self.class,
            marks: marks.unwrap_or_default(),
        }
    }

    /// Hands out the inbox's row and those of its queue.
    pub(super) fn collect(&mut self, changes: &mut Changes, level: Level) {
        let rest = self.rest(level);
        let row = InboxRow {
            number: self.number,
            incarnation: self.incarnation,
            epoch: self.epoch,
            attached: self.attached,
            subscriptions: &self.subscriptions[..],
            next: self.queue.next(),
            head: self.queue.head(),
            alive: self.queue.len(),
            bytes: self.queue.bytes(),
            sent: self.queue.sent(),
            released: self.queue.released(),
            rest,
        };
        changes.put(self.key(), row::encode(&row));
        self.queue.collect(changes);
        self.round = 0;
        self.stored = true;
    }
}

/// Whether a filter, as a client writes it, is of a shared subscription.
pub(super) fn is_shared(filter: &str) -> bool {
    filter.starts_with('$')
        && SubscriptionFilter::parse(filter).is_ok_and(|filter| filter.shared.is_some())
}
