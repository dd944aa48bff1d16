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

use route_exchange::{Change, Exports, Imports, Key, ShardNumber, Value};
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
    let exports = node.routes().exports().map(|exports| exports.lock());
    not_covered(&before, all, &inbound.imports, exports.as_deref(), now_ms)
}

/// The same: `before` are those that were routed to until now; none: there was no store.
fn not_covered(
    before: &ShardRefs,
    all: &ShardRefs,
    imports: &Imports,
    exports: Option<&Exports>,
    now_ms: u64,
) -> ShardRefs {
    // Mostly there is nothing new.
    if before == all || before.is_empty() || !imports.knows_all(now_ms) {
        return all.clone();
    }
    let led = |shard| exports?.led(shard);
    let own_range = |shard| exports?.range(shard);
    let is_covered = |child: ShardNumber| {
        let is_led = imports.is_led(child) || led(child).is_some();
        let parent = before.of_slot(Slot(child)).filter(|_| !is_led);
        parent.is_some_and(|parent| {
            let parent = parent.number;
            let own = led(parent).map(|(term, _)| (term, own_range(parent)));
            let told = imports.range(parent).into_iter().chain(own);
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
        for shard in all.split().filter(|shard| led(shard.number)) {
            let covers = !routed.has(shard);
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
    let split = all.and_then(|all| all.split().find(|split| split.number == shard));
    if let Some(split) = split {
        exports.narrow(shard, split.last, false);
    }
}

#[cfg(test)]
mod tests {
    use route_exchange::{NodeId, Times};
    use store_state::api::ShardRef;

    use super::*;

    const PARENT: ShardNumber = 0;
    const CHILD: ShardNumber = 300;
    /// Leads the parent.
    const ONE: NodeId = 7;
    /// Leads the child.
    const OTHER: NodeId = 8;

    fn shards(refs: &[(ShardNumber, u16)]) -> ShardRefs {
        let to_ref = |&(number, last)| ShardRef { number, last };
        refs.iter().map(to_ref).collect()
    }

    /// A node that hears two others, which lead the parent and, later, the child.
    struct World {
        imports: Imports,
        others: Vec<(NodeId, Exports)>,
        routed: ShardRefs,
    }

    impl World {
        /// The parent's leader has told all, and was not split.
        fn new() -> Self {
            let times = Times::default();
            let mut world = Self {
                imports: Imports::new(times),
                others: [ONE, OTHER]
                    .map(|node| (node, Exports::new(1, times)))
                    .into(),
                routed: shards(&[(PARENT, u16::MAX)]),
            };
            for (node, exports) in &mut world.others {
                exports.add_peer(1, 0);
                exports.connected(1);
                world.imports.add_peer(*node);
            }
            world.led(ONE, PARENT, 1);
            world.hear();
            assert!(world.imports.knows_all(0));
            world
        }

        fn of(&mut self, node: NodeId) -> &mut Exports {
            let mut others = self.others.iter_mut();
            let found = others.find(|(other, _)| *other == node);
            &mut found.expect("one of the two").1
        }

        fn led(&mut self, by: NodeId, shard: ShardNumber, term: u64) {
            self.of(by).lead(shard, term);
            self.of(by).complete(shard);
        }

        /// All that the others have to tell arrives.
        fn hear(&mut self) {
            for (node, exports) in &mut self.others {
                for _ in 0..3 {
                    let state = self.imports.state(*node, Some(0));
                    exports.handle_state(1, &state).unwrap();
                    while let Some(batch) = exports.poll(1, 0) {
                        self.imports.apply(*node, batch).unwrap();
                    }
                }
            }
        }

        /// The numbers of the shards that are routed to, when the store knows of the child.
        fn routes(&mut self) -> Vec<ShardNumber> {
            let all = shards(&[(PARENT, CHILD - 1), (CHILD, u16::MAX)]);
            self.routed = not_covered(&self.routed, &all, &self.imports, None, 0);
            self.routed.iter().map(|shard| shard.number).collect()
        }
    }

    #[test]
    fn a_child_counts_to_its_parent_until_somebody_leads_it() {
        let mut world = World::new();
        assert_eq!(world.routes(), [PARENT], "the store has heard of it first");
        assert_eq!(world.routed, shards(&[(PARENT, u16::MAX)]));
        world.of(ONE).narrow(PARENT, CHILD - 1, true);
        world.hear();
        assert_eq!(world.routes(), [PARENT]);
        // It has told nothing yet.
        world.of(OTHER).lead(CHILD, 1);
        world.hear();
        assert_eq!(world.routes(), [PARENT, CHILD]);
        // It does not count to its parent again.
        world.of(OTHER).resign(CHILD);
        world.hear();
        assert_eq!(world.routes(), [PARENT, CHILD]);
    }

    #[test]
    fn a_child_is_one_of_which_nothing_is_known_when_its_parent_tells_less() {
        let mut world = World::new();
        world.of(ONE).narrow(PARENT, CHILD - 1, true);
        world.hear();
        assert_eq!(world.routes(), [PARENT]);
        world.of(ONE).narrow(PARENT, CHILD - 1, false);
        world.hear();
        assert_eq!(world.routes(), [PARENT, CHILD]);
    }

    #[test]
    fn another_leader_of_the_parent_covers_nothing() {
        let mut world = World::new();
        world.of(ONE).narrow(PARENT, CHILD - 1, true);
        world.hear();
        world.led(OTHER, PARENT, 2);
        world.of(OTHER).narrow(PARENT, CHILD - 1, false);
        world.hear();
        assert_eq!(world.routes(), [PARENT, CHILD]);
    }

    /// The child may have been led, and its first sessions may have subscribed, while this node heard of nothing.
    #[test]
    fn who_begins_to_hear_after_the_split_does_not_go_by_the_parent() {
        let mut world = World::new();
        world.of(ONE).narrow(PARENT, CHILD - 1, true);
        world.imports.lost(ONE);
        world.of(ONE).connected(1);
        world.hear();
        assert!(world.imports.knows_all(0));
        assert_eq!(world.routes(), [PARENT, CHILD]);
    }

    #[test]
    fn who_does_not_hear_all_nodes_does_not_go_by_the_parent() {
        let mut world = World::new();
        world.of(ONE).narrow(PARENT, CHILD - 1, true);
        world.hear();
        world.imports.lost(OTHER);
        assert_eq!(world.routes(), [PARENT, CHILD]);
    }
}
