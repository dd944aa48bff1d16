//! After SUBACK, each node that runs sends messages of that filter to the session's shard.

use crate::world::World;

pub(super) fn check(world: &World) -> Result<(), String> {
    for (client, filters) in &world.history.subscribed {
        for filter in filters.keys() {
            let topic = filter.replace(['+', '#'], "0");
            for node in world.nodes.values() {
                let Some(life) = &node.life else {
                    continue;
                };
                let shard = life.store.inbox_shard(&format!("client-{client}"));
                let shards = life.with_routes(|routes, now| routes.matching(&topic, now));
                if !shards.contains(&shard) {
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
