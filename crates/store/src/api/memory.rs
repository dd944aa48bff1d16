//! What a store takes of the memory, for those who look into the process.
//!
//! Invariant: a reading takes the shared lock of each shard once, and only reads what is counted already.
//!
//! Deliberately absent: what the allocator adds; what the log's files take of the page cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store_state::api::PerStore;
use store_state::control::ControlMachine;
use store_state::inbox::InboxMachine;
use store_state::retain::RetainMachine;
use store_state::session::SessionMachine;

use crate::api::shard_set::ShardSet;
use crate::kinds::kind::Kind;
use crate::storage::tables::Tables;

/// What takes part in the memory of a store.
pub struct MemoryOfStore {
    pub(super) session: Arc<ShardSet<SessionMachine>>,
    pub(super) inbox: Arc<ShardSet<InboxMachine>>,
    pub(super) retain: Arc<ShardSet<RetainMachine>>,
    pub(super) control: Arc<ShardSet<ControlMachine>>,
    pub(super) tables: PerStore<Arc<Tables>>,
}

/// A number of things, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InMemory {
    /// How many.
    pub count: usize,
    /// Bytes of all of them, about.
    pub bytes: usize,
}

/// What the replicas of a node hold, those of shards that other nodes lead included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreMemory {
    /// Shards.
    pub shards: usize,
    /// Records of sessions.
    pub sessions: usize,
    /// Inboxes.
    pub inboxes: usize,
    /// Topic filters of the inboxes; how many is not known.
    pub filters: InMemory,
    /// Retained messages, with 128 bytes for each beside topic and payload.
    pub retained: InMemory,
    /// Users, groups, rules and other records of the control store; how many is not known.
    pub control: InMemory,
    /// Of the inbox store, what no checkpoint has written yet: queued messages and rows of inboxes; how many is not known.
    pub unsaved_queues: InMemory,
    /// The same of the session store.
    pub unsaved_sessions: InMemory,
    /// Entries of the logs that are kept in memory.
    pub log: InMemory,
    /// Blocks of the tables that were read; how many is not known.
    pub cached: InMemory,
}

impl MemoryOfStore {
    /// As of now.
    #[must_use]
    pub fn read(&self) -> StoreMemory {
        let bytes = |bytes| InMemory { count: 0, bytes };
        let retained = |look: fn(&RetainMachine) -> u64| self.retain.sum_kept(look) as usize;
        let (session, inbox) = (parts(&self.session), parts(&self.inbox));
        let (retain, control) = (parts(&self.retain), parts(&self.control));
        let mut log = InMemory::default();
        for part in [&session, &inbox, &retain, &control] {
            log.count += part.log.count;
            log.bytes += part.log.bytes;
        }
        let cached = self.tables.iter();
        let cached: u64 = cached.map(|(_, tables)| tables.cached_bytes()).sum();
        StoreMemory {
            shards: session.shards + inbox.shards + retain.shards + control.shards,
            sessions: self.session.sum_kept(|machine| machine.counts().records),
            inboxes: self.inbox.sum_kept(|machine| machine.counts().inboxes),
            filters: bytes(self.inbox.sum_kept(|machine| machine.counts().filter_bytes)),
            retained: InMemory {
                count: retained(|machine| machine.size().0),
                bytes: retained(|machine| machine.size().1),
            },
            control: bytes(self.control.sum_kept(ControlMachine::bytes)),
            unsaved_queues: bytes(inbox.unsaved),
            unsaved_sessions: bytes(session.unsaved),
            log,
            cached: bytes(cached as usize),
        }
    }
}

/// What shards of all kinds hold.
struct Parts {
    shards: usize,
    unsaved: usize,
    log: InMemory,
}

fn parts<M: Kind>(shards: &ShardSet<M>) -> Parts {
    let mut parts = Parts {
        shards: 0,
        unsaved: 0,
        log: InMemory::default(),
    };
    for shard in shards.shards.load().iter() {
        parts.shards += 1;
        parts.unsaved += shard.stats.unsaved_bytes.load(Ordering::Relaxed);
        if let Some(group) = &*shard.routing.group.borrow() {
            let (entries, bytes) = group.in_memory();
            parts.log.count += entries;
            parts.log.bytes += bytes;
        }
    }
    parts
}
