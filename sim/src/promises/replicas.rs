//! Replicas of a shard that have applied as much hold the same, and have the same rows in their tables.

use std::collections::BTreeMap;

use crate::world::World;

pub(super) fn check(world: &World) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for node in world.nodes.values() {
        let Some(life) = &node.life else {
            continue;
        };
        if let Some(differs) = life.store().levels.differences().first() {
            return Err(format!("node {}: {differs:?}", node.id));
        }
        for replica in life.store().replicas() {
            let place = (replica.store, replica.shard, replica.applied);
            let other = seen
                .entry(place)
                .or_insert_with(|| (node.id, replica.clone()));
            if other.1.descriptor != replica.descriptor {
                return Err(format!(
                    "replicas {place:?} differ: node {} has {:?}; node {} has {:?}",
                    other.0, other.1.descriptor, node.id, replica.descriptor
                ));
            }
            if other.1.content != replica.content {
                return Err(format!(
                    "replicas {place:?} differ: node {} has {}; node {} has {}",
                    other.0, other.1.content, node.id, replica.content
                ));
            }
        }
    }
    Ok(())
}
