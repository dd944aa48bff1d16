//! Inbox shards that are split: since when what a shard tells goes for itself alone, and what was split off is asked for.
//!
//! ```text
//! leader of the parent   splits ─► Range { last, covers } ─────────► the child is led ─► Range { last } ─► fewer filters
//! another node                     └► child known, parent covers it     └► child asked for everything until its leader has told all
//! ```
//!
//! A child has no leader at first, and no routes of its own. Until its first leader speaks, it can want nothing that its
//! parent did not want, so who had all routes of the parent goes by these: a publication that matches is routed to the
//! parent as it was, and the store asks both. Once somebody leads the child, sessions may have subscribed there: then it is
//! a shard like others, of which nothing is known until its leader has told all.
//!
//! Invariants: a parent tells of fewer filters only after it has told that it does not cover the child; who does not know
//! all peers, or has begun to hear of the parent after the split, takes the child for one of which nothing is known.

use route_exchange::{Change, Exports, Key, ShardNumber, Value};
use store_state::api::{ShardRefs, Slot, Store};

use super::{Inbound, Links, Peers, ThisNode};

/// Which inbox shards there are has changed, or which slots one of them has.
pub(crate) fn shards_changed<L: Links>(peers: &Peers<L>, node: &impl ThisNode) {
    peers.refresh(node, &mut peers.inbound.lock(), node.now_ms());
    peers.tell_routes(node);
}

/// Shards that these changes speak of are known to the store before anything is routed by them. With no lock held.
pub(super) fn learn(node: &impl ThisNode, routes: &[Change]) {
    // A node whose store is not open yet routes nothing.
    if let Some(store) = node.opened_store() {
        let firsts = routes.iter().filter_map(|(key, value)| match (key, value) {
            (Key::Range(_), Some(Value::Range { last, .. })) => last.checked_add(1),
            (Key::Lead(shard), Some(_)) => Some(*shard),
            _ => None,
        });
        for first in firsts {
            if !store.inbox_shards().has_number(first) {
                store.learn_inbox_shard(Slot(first));
            }
        }
    }
}

/// Those of the inbox shards that are routed to: each, but for those that another one covers.
pub(super) fn routed(
    node: &impl ThisNode,
    inbound: &Inbound,
    all: &ShardRefs,
    now_ms: u64,
) -> ShardRefs {
    let before = node.routes().known_shards();
    if before.is_empty() || !inbound.imports.knows_all(now_ms) {
        return all.clone();
    }
    let exports = node.routes().exports().map(|exports| exports.lock());
    let led = |shard| exports.as_ref()?.led(shard);
    let own_range = |shard| exports.as_ref()?.range(shard);
    let is_covered = |child: ShardNumber| {
        let is_led = inbound.imports.is_led(child) || led(child).is_some();
        let parent = before.of_slot(Slot(child)).filter(|_| !is_led);
        parent.is_some_and(|parent| {
            let parent = parent.number;
            let own = led(parent).map(|(term, _)| (term, own_range(parent)));
            let told = inbound.imports.range(parent).into_iter().chain(own);
            match told.max_by_key(|(term, _)| *term) {
                Some((_, Some((last, covers)))) => covers || last >= child,
                // Its leader has not heard of the split, or there is none, so that it may want anything.
                Some((_, None)) | None => true,
            }
        })
    };
    all.only(|shard| before.has_number(shard) || !is_covered(shard))
}

/// Tells peers what the inbox shards that this node leads have left, and tells the shards when nobody else goes by what they
/// say of other slots.
pub(super) fn narrow(node: &impl ThisNode, all: &ShardRefs, routed: &ShardRefs) {
    if let (Some(store), Some(exports)) = (node.opened_store(), node.routes().exports()) {
        let led = |shard: ShardNumber| exports.lock().led(shard).is_some();
        let is_split = |shard: ShardNumber| all.child_of(shard).is_some();
        for shard in all.iter().filter(|s| is_split(s.number) && led(s.number)) {
            let covers = !routed.has(*shard);
            let changes = exports.lock().narrow(shard.number, shard.last, covers);
            if covers {
                continue;
            }
            if changes {
                let is_kept = |client: &str| store.inbox_slot(client).0 <= shard.last;
                node.routes().forget_moved(shard.number, is_kept);
            }
            store.narrow_inbox_shard(shard.number);
        }
    }
}

/// This node leads a shard from now on, and tells what that has.
pub(super) fn narrow_led(node: &impl ThisNode, exports: &mut Exports, shard: ShardNumber) {
    let all = node.opened_store().map(Store::inbox_shards);
    let split = all.filter(|all| all.child_of(shard).is_some());
    let last = split.and_then(|all| all.of_number(shard));
    if let Some(last) = last {
        exports.narrow(shard, last.last, false);
    }
}
