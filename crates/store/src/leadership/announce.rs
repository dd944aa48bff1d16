//! The node tells the others which shards it leads, and how fit it is to lead.
//!
//! Invariant: a change is announced at once, and everything once a second: an announcement that is lost with a connection is
//! made again.

use std::sync::Arc;
use std::time::Duration;

use store_state::api::{ShardNumber, StoreId};

use crate::leadership::incarnation::adopt_incarnation;
use crate::leadership::led_shards::LedShard;
use crate::node::disk::is_full;
use crate::node::services::NodeServices;
use crate::peers::message::{Lead, Message};
use crate::shard::load::ShardLoad;

/// How often the other nodes are told what this one leads, if nothing changes.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

/// Tells the other nodes which shards this one leads.
pub(crate) async fn announce_leadership(services: Arc<NodeServices>) {
    let known_peers = &services.known_peers;
    let peers = known_peers.network.as_ref();
    let peers = peers.expect("the task is started on nodes that have peers");
    let node = services.folder.node();
    let mut condition = services.log.watch();
    let mut each = tokio::time::interval(ANNOUNCE_INTERVAL);
    loop {
        tokio::select! {
            _ = each.tick() => {}
            () = known_peers.news() => {}
            // The log lives as long as the services.
            Ok(()) = condition.changed() => {}
        }
        let shards = services.led_shards.all();
        for lead in shards.iter().filter_map(|shard| shard.lead(node)) {
            // Nobody else says so of a shard that this node leads by now.
            if lead.incarnation > known_peers.incarnation() {
                adopt_incarnation(
                    lead.incarnation,
                    &services.folder,
                    known_peers,
                    &*services.listener,
                    &shards,
                );
            }
            known_peers.heard(node, lead);
        }
        let own_loads = loads(&shards);
        let loads = Message::Loads(own_loads.clone()).encode();
        known_peers.heard_loads(node, own_loads);
        let health = known_peers.own_health(is_full(&condition.borrow()));
        let health = Message::Health(health).encode();
        for to in known_peers.linked() {
            peers.send(to, health.clone());
            if peers.knows_loads(to) {
                peers.send(to, loads.clone());
            }
            let leads: Vec<Lead> = shards.iter().filter_map(|shard| shard.lead(to)).collect();
            if !leads.is_empty() {
                peers.send(to, Message::Leads(leads).encode());
            }
        }
    }
}

/// What to say of the loads of the shards that this node leads.
fn loads(shards: &[Arc<dyn LedShard>]) -> Vec<(StoreId, ShardNumber, ShardLoad)> {
    shards.iter().filter_map(|shard| shard.load()).collect()
}
