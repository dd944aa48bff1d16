//! P3: after SUBACK, each node that runs gives messages that match the subscription to the session's inbox shard. A node
//! whose copy of the shard's routes may be stale gives it every message.

use crate::clients::GROUP;
use crate::world::World;

pub(super) fn check(world: &World) -> Result<(), String> {
    for (client, filters) in &world.history.subscribed {
        // A shared group asks its members; that one of them gets the message is `p01_acknowledged_is_kept.rs`.
        for filter in filters.keys().filter(|filter| *filter != GROUP) {
            let topic = filter.replace(['+', '#'], "0");
            for node in world.nodes.values() {
                let Some(life) = &node.life else {
                    continue;
                };
                if !life.routes_to(world.clients.name(*client), &topic) {
                    return Err(format!(
                        "node {} does not know that client {client} subscribes to {filter}",
                        node.id
                    ));
                }
            }
        }
    }
    Ok(())
}
