//! At rest all that was split is over: no request waits for several shards, no shard at a gate, and each replica has tables.

use mqtt_session::Timestamp;
use store::Store;

pub(super) fn check_at_rest(nodes: &[&Store]) -> Result<(), String> {
    for of_node in nodes {
        let node = of_node.node();
        for (store, stats) in of_node.stats(Timestamp(0)).stores.iter() {
            if stats.joined > 0 {
                return Err(format!(
                    "node {node}, {store:?}: {} requests or gates wait",
                    stats.joined
                ));
            }
        }
        let mut replicas = of_node.replicas().into_iter();
        if let Some(replica) = replicas.find(|replica| replica.is_seeding) {
            return Err(format!(
                "node {node}, {:?}/{}: a table is still to be made",
                replica.store, replica.shard
            ));
        }
    }
    Ok(())
}
