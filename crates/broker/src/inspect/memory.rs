//! What takes the memory of this process, row by row, so that the rows together are its resident memory.
//!
//! Purpose: each part says its own bytes when somebody asks: loops in slices, the store once for each shard, the kernel and the
//! allocator of the whole. What is in nobody's count is a row of its own.
//!
//! Invariant: nothing is counted or kept while nobody asks, and one count is under way at a time.
//!
//! Deliberately absent: memory of the kernel, such as that of sockets; what the names of routes of other nodes take in
//! `route-exchange`.

use std::fmt;
use std::sync::Arc;

use admin::api::{AllocatorBytes, Amount, MemoryKnown, MemoryProfile, MemoryRow};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use broker_core::inspect::{Held, Life, LoopMemory};
use host::{Process, ResidentParts};
use net::{CHUNK, CONNECTION_BYTES};
use store::{InMemory, StoreMemory};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::loops;
use crate::history::History;
use crate::node::Node;

/// Of a connected or absent client with a record in the session store, beside what its loop has: record, indices, deadline.
const SESSION_RECORD: usize = 330;

/// Of an inbox without what is queued, beside its topic filters: the inbox, its indices, its routes in its shard.
const INBOX: usize = 520;

/// Of a retained message, beside what is accounted for it: the entry of the index of topics, with free places. Measured: what
/// the allocator has given out grows by 58 bytes more than the 48 of the entry, from 5,000 to 20,000 messages.
const RETAINED_ENTRY: usize = 106;

/// Buffers that an event loop keeps: one to read and one to write.
const LOOP_BUFFERS: usize = 2 * CHUNK;

/// The memory of this process.
pub(super) struct OwnMemory {
    node: Arc<Node>,
    /// What people call the node.
    name: String,
    history: Arc<History>,
    /// Asks the memory allocator what it holds; `None`: it says nothing.
    allocator: fn() -> Option<AllocatorBytes>,
    /// One count at a time.
    counts: Arc<Semaphore>,
}

impl OwnMemory {
    /// That of a node with a name, which keeps this history.
    pub(super) fn new(
        node: Arc<Node>,
        name: String,
        history: Arc<History>,
        allocator: fn() -> Option<AllocatorBytes>,
    ) -> Self {
        Self {
            node,
            name,
            history,
            allocator,
            counts: Arc::new(Semaphore::new(1)),
        }
    }

    /// All rows.
    pub(super) async fn profile(self: Arc<Self>) -> Result<MemoryProfile, Problem> {
        let place = Arc::clone(&self.counts).try_acquire_owned();
        let place = place
            .map_err(|_| Problem::new(Kind::Conflict, "the memory is being counted already"))?;
        let node = &self.node;
        let mut clients = LoopMemory::default();
        for index in 0..node.stats.len() {
            let mut next = Some(0);
            while let Some(from) = next {
                let part = loops::memory(node, index, from).await;
                let part = part.map_err(|_| failed("an event loop does not answer"))?;
                next = part.next;
                add(&mut clients, &part);
            }
        }
        let asked = Arc::clone(&self);
        let whole = spawn_blocking(move || {
            // It counts to the end when nobody waits for it any more, and keeps its place as long.
            let _place = place;
            let parts = Process::own().resident_parts();
            let store = asked.node.opened_store();
            let store = store.map_or_else(StoreMemory::default, |store| store.memory.read());
            Ok::<_, std::io::Error>((parts?, store, (asked.allocator)()))
        });
        let (parts, store, allocator) = whole.await.map_err(failed)?.map_err(failed)?;
        let mut rows = Rows::default();
        of_clients(&mut rows, &clients);
        of_node(&mut rows, node, &self.history);
        of_store(&mut rows, &store);
        let sum = parts.sum();
        rows.end(&parts, allocator.as_ref());
        Ok(MemoryProfile {
            node: NodeId(node.store().node()),
            node_name: self.name.clone(),
            resident_bytes: Amount(sum as u64),
            allocator,
            structures: rows.0,
        })
    }
}

pub(super) fn failed(error: impl fmt::Display) -> Problem {
    let why = format!("the process could not be looked into: {error}");
    Problem::new(Kind::Internal, why)
}

fn add(sum: &mut LoopMemory, part: &LoopMemory) {
    for (sum, part) in sum.clients.iter_mut().zip(part.clients) {
        sum.add_all(part);
    }
    sum.free.add_all(part.free);
    sum.queued.add_all(part.queued);
    sum.identifiers.add_all(part.identifiers);
    sum.cache.add_all(part.cache);
}

#[derive(Default)]
struct Rows(Vec<MemoryRow>);

impl Rows {
    fn add(&mut self, structure: &str, count: Option<usize>, bytes: i64, how: MemoryKnown) {
        self.0.push(MemoryRow {
            structure: structure.to_owned(),
            count: count.map(|count| Amount(count as u64)),
            bytes,
            how,
        });
    }

    fn counted(&mut self, structure: &str, held: Held) {
        self.add(
            structure,
            Some(held.count),
            signed(held.bytes),
            MemoryKnown::Counted,
        );
    }

    fn estimated(&mut self, structure: &str, count: usize, bytes: usize) {
        self.add(
            structure,
            Some(count),
            signed(bytes),
            MemoryKnown::Estimated,
        );
    }

    /// What is not divided into numbers of things.
    fn bytes(&mut self, structure: &str, bytes: usize) {
        self.add(structure, None, signed(bytes), MemoryKnown::Counted);
    }

    fn remainder(&mut self, structure: &str, bytes: i64) {
        self.add(structure, None, bytes, MemoryKnown::Remainder);
    }

    /// What the allocator and the kernel say of the whole, and what is in no row. So far all rows are of allocated memory.
    fn end(&mut self, parts: &ResidentParts, allocator: Option<&AllocatorBytes>) {
        let named: i64 = self.0.iter().map(|row| row.bytes).sum();
        let anonymous = signed(parts.anonymous);
        match allocator {
            Some(of) => {
                let [allocated, active, metadata, resident] =
                    [of.allocated, of.active, of.metadata, of.resident]
                        .map(|bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX));
                self.remainder("allocated_by_others", allocated - named);
                let counted = MemoryKnown::Counted;
                self.add(
                    "allocator_partly_used_pages",
                    None,
                    active - allocated,
                    counted,
                );
                self.add("allocator_metadata", None, metadata, counted);
                let unused = (resident - active - metadata).max(0);
                self.add("allocator_unused_pages", None, unused, counted);
                self.remainder("not_accounted_for", anonymous - active - metadata - unused);
            }
            None => self.remainder("not_accounted_for", anonymous - named),
        }
        self.add(
            "thread_stacks",
            Some(parts.stack_count),
            signed(parts.stacks),
            MemoryKnown::Estimated,
        );
        self.bytes("program_data", parts.data);
        self.bytes("program_files", parts.files);
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn of_clients(rows: &mut Rows, clients: &LoopMemory) {
    for (life, held) in Life::ALL.into_iter().zip(clients.clients) {
        let structure = match life {
            Life::Connecting => "clients_connecting",
            Life::Connected => "clients_connected",
            Life::Closing => "clients_closing",
            Life::Away => "clients_away",
        };
        rows.counted(structure, held);
    }
    rows.counted("client_places_free", clients.free);
    rows.counted("deliveries", clients.queued);
    let identifiers = clients.identifiers;
    rows.estimated("client_identifiers", identifiers.count, identifiers.bytes);
    rows.counted("match_cache", clients.cache);
}

fn of_node(rows: &mut Rows, node: &Node, history: &History) {
    let open: u64 = node.rim.net.iter().map(|stats| stats.open.get()).sum();
    let open = usize::try_from(open).unwrap_or(usize::MAX);
    rows.estimated("connections", open, open.saturating_mul(CONNECTION_BYTES));
    let loops = node.stats.len();
    rows.estimated("loop_buffers", loops, loops * LOOP_BUFFERS);
    rows.counted(
        "routes",
        Held {
            count: node.routes.subscriptions(),
            bytes: node.routes.bytes(),
        },
    );
    let links = node.rim.clustered();
    let links = links.map_or_else(Vec::new, |clustered| clustered.cluster().links());
    let queued: u64 = links.iter().map(|link| link.queued_bytes).sum();
    rows.counted(
        "link_queues",
        Held {
            count: links.len(),
            bytes: usize::try_from(queued).unwrap_or(usize::MAX),
        },
    );
    let of = |(count, bytes)| Held { count, bytes };
    rows.counted("history", of(history.held()));
    rows.counted("events", of(node.rim.events.held()));
}

fn of_store(rows: &mut Rows, store: &StoreMemory) {
    let held = |of: InMemory| Held {
        count: of.count,
        bytes: of.bytes,
    };
    let sessions = store.sessions * SESSION_RECORD;
    rows.estimated("session_records", store.sessions, sessions);
    let inboxes = store.inboxes * INBOX + store.filters.bytes;
    rows.estimated("inboxes", store.inboxes, inboxes);
    let retained = store.retained;
    rows.estimated(
        "retained_messages",
        retained.count,
        retained.bytes + retained.count * RETAINED_ENTRY,
    );
    rows.bytes("control_records", store.control.bytes);
    rows.bytes("unsaved_queues", store.unsaved_queues.bytes);
    rows.bytes("unsaved_sessions", store.unsaved_sessions.bytes);
    rows.counted("log_entries", held(store.log));
    rows.bytes("table_caches", store.cached.bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rows together are the resident memory, with the allocator's word and without.
    #[test]
    fn the_rows_are_the_resident_memory() {
        let parts = ResidentParts {
            files: 4_000,
            data: 300,
            stacks: 20,
            anonymous: 10_000,
            stack_count: 2,
        };
        let allocator = AllocatorBytes {
            allocated: Amount(5_000),
            active: Amount(6_000),
            metadata: Amount(500),
            resident: Amount(11_000),
            retained: Amount(70_000),
        };
        for allocator in [None, Some(allocator)] {
            let mut rows = Rows::default();
            rows.bytes("control_records", 4_500);
            rows.end(&parts, allocator.as_ref());
            let sum: i64 = rows.0.iter().map(|row| row.bytes).sum();
            let signed = |row: &&MemoryRow| row.structure == "not_accounted_for";
            let rest = rows.0.iter().find(signed).unwrap();
            // The allocator's resident pages are an upper bound.
            let expected = if allocator.is_some() { -1_000 } else { 5_500 };
            assert_eq!((sum, rest.bytes), (14_320, expected));
        }
    }
}
