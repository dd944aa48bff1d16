//! What people look up in the shards that this node leads.
//!
//! Invariant: a shard is read under its shared lock, so many rows at a time; the lock is given up in between.

use std::fmt;
use std::sync::Arc;

use consensus::Log;
use histogram::{Histogram, Snapshot};
use mqtt_session::{ApplicationMessage, Timestamp};
use store_state::SlotRange;
use store_state::api::StoreId;
use store_state::control::ControlMachine;
use store_state::inbox::inspect::{self, InboxSummary, QueuePart, WouldQueue};
use store_state::inbox::{InboxCounts, InboxMachine, StoredSubscription};
use store_state::retain::{PageBudget, RetainMachine};
use store_state::session::SessionMachine;
use store_state::session::inspect::SessionSummary;
use tokio::time::Instant;
use topic_router::Cursor;

use crate::api::retained_rows::{self, RetainedFound, RetainedLevel, RetainedRows, TOPICS, levels};
use crate::api::shard_set::ShardSet;
use crate::api::store::Store;
use crate::retention::purge::{Purge, purge};

/// Rows of a shard that are read under one lock.
const ROWS: usize = 512;

/// Messages of a queue, and bytes of them, that are read under one lock.
///
/// Limit: messages of a queue that are read for people under the lock of the shard | {QUEUED.0} or {QUEUED.1:bytes} |
/// the next look goes on
const QUEUED: (usize, usize) = (64, 256 * 1024);

/// What a look-up of one client finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look<T> {
    /// Another node leads the shard, or none does.
    Elsewhere,
    /// The shard does not have it.
    Absent,
    /// The shard has it.
    Found(T),
}

impl<T> Look<T> {
    /// What was found.
    #[must_use]
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Elsewhere | Self::Absent => None,
        }
    }

    /// Whether the shard is led here.
    #[must_use]
    pub fn is_here(&self) -> bool {
        !matches!(self, Self::Elsewhere)
    }

    fn of(looked: Option<Option<T>>) -> Self {
        match looked {
            None => Self::Elsewhere,
            Some(None) => Self::Absent,
            Some(Some(found)) => Self::Found(found),
        }
    }
}

/// A page of records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionPage {
    /// In the order of the bytes of client identifiers.
    pub rows: Vec<SessionSummary>,
    /// The slots that they speak for.
    pub covered: Vec<SlotRange>,
}

/// What a shard holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: u16,
    /// Records, inboxes, or retained messages.
    pub entries: u64,
    /// Messages in them.
    pub messages: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
}

/// Looks things up in the shards that this node leads.
#[derive(Clone, Copy)]
pub struct Inspection<'a> {
    session: &'a ShardSet<SessionMachine>,
    inbox: &'a ShardSet<InboxMachine>,
    retain: &'a ShardSet<RetainMachine>,
    control: &'a ShardSet<ControlMachine>,
    log: &'a Log,
    apply_times: &'a Histogram,
}

impl Store {
    /// Looks things up in the shards that this node leads.
    #[must_use]
    pub fn inspect(&self) -> Inspection<'_> {
        Inspection {
            session: &self.session,
            inbox: &self.inbox,
            retain: &self.retain,
            control: &self.control,
            log: &self.log,
            apply_times: &self.apply_times,
        }
    }
}

impl fmt::Debug for Inspection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspection")
    }
}

impl Inspection<'_> {
    /// Inboxes whose queues are full, of the shards that this node leads.
    #[must_use]
    pub fn full_queues(&self) -> usize {
        self.inbox.sum(|machine| machine.counts().full)
    }

    /// How long calls of `fdatasync` for the log took since the start.
    #[must_use]
    pub fn sync_times(&self) -> Snapshot {
        self.log.sync_times()
    }

    /// How long it took to apply batches of requests to shards, or parts of batches, since the start. A shard does nothing
    /// else meanwhile.
    #[must_use]
    pub fn apply_times(&self) -> Snapshot {
        let mut times = Snapshot::default();
        self.apply_times.add_to(&mut times);
        times
    }

    /// The record of a client.
    #[must_use]
    pub fn session(&self, client: &str) -> Look<SessionSummary> {
        let set = self.session;
        let shard = set.get(set.of(client));
        let shard = shard.filter(|shard| shard.routing.is_here());
        Look::of(shard.and_then(|shard| {
            shard.look(|machine| store_state::session::inspect::summary(machine, client))
        }))
    }

    /// The first `limit` records, in the order of the bytes of client identifiers, behind `after` whose identifiers begin
    /// with `prefix`. In proportion to `limit` and the number of shards.
    #[must_use]
    pub fn sessions(&self, after: Option<&str>, prefix: &str, limit: usize) -> SessionPage {
        let limit = limit.min(ROWS);
        let mut page = SessionPage::default();
        for shard in self.session.shards.load().iter() {
            if !shard.routing.is_here() {
                continue;
            }
            let read = shard.look_within(|machine, range| {
                let rows = store_state::session::inspect::page(machine, after, prefix, limit);
                (rows, range)
            });
            if let Some((rows, range)) = read {
                page.rows.extend(rows);
                page.covered.push(range);
            }
        }
        page.rows
            .sort_unstable_by(|one, other| one.client.cmp(&other.client));
        // While a shard is split, both halves may have a client for a moment.
        page.rows.dedup_by(|one, other| one.client == other.client);
        page.rows.truncate(limit);
        page
    }

    /// The inbox of a client, and the number of its shard.
    #[must_use]
    pub fn inbox(&self, client: &str) -> (u16, Look<InboxSummary>) {
        let set = self.inbox;
        let number = set.of(client);
        let shard = set.get(number);
        let shard = shard.filter(|shard| shard.routing.is_here());
        let looked =
            shard.and_then(|shard| shard.look(|machine| inspect::summary(machine, client)));
        (number, Look::of(looked))
    }

    /// What waits for a client from a sequence on, as many messages as are read under one lock.
    #[must_use]
    pub fn queue(&self, client: &str, from: u64) -> Look<QueuePart> {
        let set = self.inbox;
        let shard = set.get(set.of(client));
        let shard = shard.filter(|shard| shard.routing.is_here());
        Look::of(shard.and_then(|shard| {
            shard.read_tables_by(|machine, table| {
                inspect::queue(machine, client, from, QUEUED, table)
            })
        }))
    }

    /// Drops what waits for a client now and cannot have been sent, until a time. Each part is an operation of the log: others do
    /// not wait for the whole. What is dropped by then is synced on a majority.
    pub async fn purge_queue(&self, client: &str, until: Instant) -> Look<Purge> {
        let set = self.inbox;
        let shard = set.get(set.of(client));
        let shard = shard.filter(|shard| shard.routing.is_here());
        match shard {
            None => Look::Elsewhere,
            Some(shard) => Look::of(purge(&shard, client, until).await),
        }
    }

    /// The first `limit` subscriptions of a durable session behind a filter, as it was given; empty: from the first on.
    #[must_use]
    pub fn subscriptions(
        &self,
        client: &str,
        after: &str,
        limit: usize,
    ) -> Look<Vec<StoredSubscription>> {
        let set = self.inbox;
        let limit = limit.min(ROWS);
        let shard = set.get(set.of(client));
        let shard = shard.filter(|shard| shard.routing.is_here());
        Look::of(shard.and_then(|shard| {
            shard.look(|machine| inspect::subscriptions(machine, client, after, limit))
        }))
    }

    /// The subscription of a durable session with a filter as it was given, if it has one.
    #[must_use]
    pub fn subscription(&self, client: &str, filter: &str) -> Look<StoredSubscription> {
        let set = self.inbox;
        let shard = set.get(set.of(client));
        let shard = shard.filter(|shard| shard.routing.is_here());
        Look::of(shard.and_then(|shard| {
            shard.look(|machine| inspect::subscription(machine, client, filter).cloned())
        }))
    }

    /// Who without a connection would get a message of a topic: `limit` of them, of at most `looked_at` sessions that match in
    /// each shard.
    #[must_use]
    pub fn would_queue(&self, topic: &str, limit: usize, looked_at: usize) -> WouldQueue {
        let mut all = WouldQueue {
            counted_all: true,
            ..WouldQueue::default()
        };
        for shard in self.inbox.shards.load().iter() {
            if !shard.routing.is_here() {
                continue;
            }
            let left = limit.saturating_sub(all.first.len());
            let found = shard.look(|machine| inspect::would_queue(machine, topic, left, looked_at));
            if let Some(found) = found {
                all.first.extend(found.first);
                all.count += found.count;
                all.counted_all &= found.counted_all;
            }
        }
        all
    }

    /// The first `limit` retained messages behind `after` whose topics match a filter, and since when they are, if that is known. There may be fewer, or none, and yet
    /// `next`: a shard looks at a bounded number of topics.
    #[must_use]
    pub fn retained(
        &self,
        filter: &str,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> RetainedRows<RetainedFound> {
        let limit = limit.min(ROWS);
        let found = self.of_retain_shards(|machine| {
            let budget = PageBudget {
                messages: limit,
                bytes: usize::MAX,
                work: TOPICS,
            };
            retained_rows::found(machine, filter, after, budget, now)
        });
        found.merged(limit)
    }

    /// The retained message of a topic.
    #[must_use]
    pub fn retained_message(&self, topic: &str, now: Timestamp) -> Look<Arc<ApplicationMessage>> {
        let set = self.retain;
        let shard = set.get(set.of(topic));
        let shard = shard.filter(|shard| shard.routing.is_here());
        Look::of(shard.and_then(|shard| shard.look(|machine| machine.get(topic, now).cloned())))
    }

    /// The first `limit` levels directly below a topic, or the first levels of all topics but those that begin with `$`.
    #[must_use]
    pub fn retained_levels(
        &self,
        below: Option<&str>,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> RetainedRows<RetainedLevel> {
        let limit = limit.min(ROWS);
        let found =
            self.of_retain_shards(|machine| levels(machine, below, after, limit, (now, TOPICS)));
        found.merged(limit)
    }

    fn of_retain_shards<T>(
        &self,
        read: impl Fn(&RetainMachine) -> (Vec<T>, Option<Cursor>),
    ) -> RetainedRows<T> {
        let mut all = RetainedRows {
            rows: Vec::new(),
            next: None,
            covered: Vec::new(),
        };
        for shard in self.retain.shards.load().iter() {
            if !shard.routing.is_here() {
                continue;
            }
            let found = shard.look_within(|machine, range| (read(machine), range));
            if let Some(((rows, next), range)) = found {
                all.rows.extend(rows);
                all.next = all.next.into_iter().chain(next).min();
                all.covered.push(range);
            }
        }
        all
    }

    /// What each shard holds that this node leads.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        let mut holdings = Vec::new();
        for shard in self.session.shards.load().iter() {
            let entries = shard.look(|machine| machine.counts().records as u64);
            if let (true, Some(entries)) = (shard.routing.is_here(), entries) {
                holdings.push(Holding {
                    store: StoreId::Session,
                    shard: shard.number,
                    entries,
                    messages: None,
                    bytes: None,
                });
            }
        }
        for shard in self.inbox.shards.load().iter() {
            let counts: Option<InboxCounts> = shard.look(|machine| machine.counts());
            if let (true, Some(counts)) = (shard.routing.is_here(), counts) {
                holdings.push(Holding {
                    store: StoreId::Inbox,
                    shard: shard.number,
                    entries: counts.inboxes as u64,
                    messages: Some(counts.messages),
                    bytes: Some(counts.bytes),
                });
            }
        }
        for shard in self.retain.shards.load().iter() {
            let size = shard.look(|machine| machine.size());
            if let (true, Some((messages, bytes))) = (shard.routing.is_here(), size) {
                holdings.push(Holding {
                    store: StoreId::Retain,
                    shard: shard.number,
                    entries: messages,
                    messages: Some(messages),
                    bytes: Some(bytes),
                });
            }
        }
        for shard in self.control.shards.load().iter() {
            let size = shard.look(|machine| (machine.user_count(), machine.bytes()));
            if let (true, Some((users, bytes))) = (shard.routing.is_here(), size) {
                holdings.push(Holding {
                    store: StoreId::Control,
                    shard: shard.number,
                    entries: users as u64,
                    messages: None,
                    bytes: Some(bytes as u64),
                });
            }
        }
        holdings
    }
}
