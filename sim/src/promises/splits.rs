//! At rest all that was split is over: no request waits for several shards, no shard at a gate, and each replica has tables.

use mqtt_session::Timestamp;

use crate::world::World;

pub(super) fn check_at_rest(world: &World) -> Result<(), String> {
    for node in world.nodes.values() {
        let Some(life) = &node.life else {
            continue;
        };
        for (store, stats) in life.store().stats(Timestamp(0)).stores.iter() {
            if stats.joined > 0 {
                return Err(format!(
                    "node {}, {store:?}: {} requests or gates wait",
                    node.id, stats.joined
                ));
            }
        }
        let mut replicas = life.store().replicas().into_iter();
        if let Some(replica) = replicas.find(|replica| replica.is_seeding) {
            return Err(format!(
                "node {}, {:?}/{}: a table is still to be made",
                node.id, replica.store, replica.shard
            ));
        }
    }
    Ok(())
}
