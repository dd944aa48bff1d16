//! The shards of a store cover each slot once, whatever was split; at rest, all nodes know them as their replicas do.

use std::collections::BTreeMap;

use store::{Replica, Store};
use store_state::SlotRange;
use store_state::api::{Slot, StoreId};

/// The shards that are split off a shard begin behind its range: replicas that have applied different amounts disagree only
/// about where ranges end.
pub(super) fn check(stores: &[&Store]) -> Result<(), String> {
    let mut latest: BTreeMap<(StoreId, u16), Replica> = BTreeMap::new();
    for replica in stores.iter().flat_map(|store| store.replicas()) {
        let place = (replica.store, replica.shard);
        let version = replica.descriptor.version;
        let known = latest.get(&place);
        if known.is_none_or(|known| known.descriptor.version < version) {
            latest.insert(place, replica);
        }
    }
    for ((store, shard), replica) in &latest {
        let last = replica.descriptor.range.last;
        for birth in &replica.descriptor.births {
            if birth.child.0 <= last {
                return Err(format!(
                    "{store:?}/{shard} has given slots away and keeps them: {:?}",
                    replica.descriptor
                ));
            }
            let child = latest.get(&(*store, birth.child.0));
            if let Some(child) = child
                && child.descriptor.range.first != birth.child.0
            {
                return Err(format!(
                    "{store:?}/{} has other slots than its parent gave it: {:?}",
                    birth.child.0, child.descriptor
                ));
            }
        }
    }
    Ok(())
}

/// Each slot has one shard, and nodes without a replica of it know its range.
pub(super) fn check_at_rest(stores: &[&Store]) -> Result<(), String> {
    let mut ranges: BTreeMap<(StoreId, u16), SlotRange> = BTreeMap::new();
    for replica in stores.iter().flat_map(|store| store.replicas()) {
        let range = replica.descriptor.range;
        let place = (replica.store, replica.shard);
        if *ranges.entry(place).or_insert(range) != range {
            return Err(format!("{place:?} has other slots elsewhere: {range:?}"));
        }
    }
    for store in [StoreId::Session, StoreId::Inbox, StoreId::Retain] {
        let of_store = ranges.iter().filter(|((of, _), _)| *of == store);
        let mut of_store: Vec<SlotRange> = of_store.map(|(_, range)| *range).collect();
        of_store.sort_by_key(|range| range.first);
        let mut next = Some(0);
        for range in &of_store {
            if next != Some(range.first) {
                return Err(format!(
                    "{store:?} does not cover each slot once: {of_store:?}"
                ));
            }
            next = range.last.checked_add(1);
        }
        if next.is_some() {
            return Err(format!("{store:?} does not cover all slots: {of_store:?}"));
        }
    }
    for of_node in stores {
        for shard in of_node.shards() {
            let known = (shard.first, shard.last);
            let range = ranges.get(&(shard.store, shard.shard));
            if range.map(|range| (Slot(range.first), Slot(range.last))) != Some(known) {
                let node = of_node.node();
                return Err(format!("node {node} takes {shard:?} for {range:?}"));
            }
        }
    }
    Ok(())
}
