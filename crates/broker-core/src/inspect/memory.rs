//! What the clients of a loop take of the memory.
//!
//! Invariant: one answer looks at [`MEMORY_SLICE`] places of the table at most, and walks through no subscription or message: each
//! session knows its own bytes.
//!
//! Deliberately absent: what the allocator adds by rounding up; the connections themselves (`net`).

use super::question::{Held, LoopMemory, MEMORY_SLICE};
use super::view::{View, life};
use crate::clients::Client;

/// An entry of a B-tree beside its text, nodes being two thirds full.
const IDENTIFIER: usize = 36;

/// Of the places of the table from this one on.
pub(super) fn memory(view: &View<'_>, from: u32) -> LoopMemory {
    let mut memory = LoopMemory::default();
    if from == 0 {
        let (count, bytes) = view.cache.held();
        memory.cache = Held { count, bytes };
    }
    let slots = view.clients.slots();
    let end = slots.min(from.saturating_add(MEMORY_SLICE));
    for slot in from..end {
        let client = view.clients.key_in(slot);
        let Some(client) = client.and_then(|key| view.clients.get(key)) else {
            memory.free.add(PLACE);
            continue;
        };
        if let Some(held) = memory.clients.get_mut(life(client) as usize) {
            held.add(PLACE + heap_bytes(client));
        }
        let session = &client.session;
        memory.queued.add_all(Held {
            count: session.queue_len() + session.in_flight(),
            bytes: usize::try_from(session.queue_bytes()).unwrap_or(usize::MAX),
        });
        memory
            .identifiers
            .add(IDENTIFIER + session.client_id().len());
    }
    memory.next = (end < slots).then_some(end);
    memory
}

/// A place of the table: the client and its generation.
const PLACE: usize = size_of::<Client>() + 8;

/// What a client has beside its place.
fn heap_bytes(client: &Client) -> usize {
    fn boxed<T>(part: Option<&T>) -> usize {
        part.map_or(0, size_of_val)
    }
    client.session.heap_bytes()
        + boxed(client.access.as_deref())
        + boxed(client.stored.as_deref())
        + boxed(client.login.as_deref())
        + client.rare.heap_bytes()
}
