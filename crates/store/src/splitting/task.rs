//! Each second a node looks at its shards, and splits one if the splitter says so.

use std::sync::Arc;
use std::time::Duration;

use store_state::api::{PerStore, Slot};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::api::splits::Splits;
use crate::leadership::led_shards::LedShard;
use crate::node::services::NodeServices;
use crate::peers::member::{Role, ShardId};
use crate::splitting::policy::{Candidate, NodeView, Why};
use crate::splitting::splitter::{Outcome, SplitOrder};

/// How often.
const LOOK: Duration = Duration::from_secs(1);

/// Of those who have a hot slot, so many are named.
const NAMES_MOST: usize = 3;

/// Splits shards of the node as the splitter says.
pub(crate) async fn split_by_itself(services: Arc<NodeServices>, splits: Arc<Splits>) {
    let mut each = interval(LOOK);
    each.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut process = ProcessMeter::new(&services);
    loop {
        each.tick().await;
        let (shards, view) = look(&services, process.share(&services));
        let candidates: Vec<Candidate> = shards.iter().map(|(_, shard)| *shard).collect();
        let effects = splits
            .splitter
            .lock()
            .handle_second(&candidates, &view, Instant::now());
        for (id, slot) in effects.to_name {
            name_hot_slot(&shards, &splits, id, slot);
        }
        if let Some(order) = effects.split {
            let splits = Arc::clone(&splits);
            tokio::spawn(async move { split(&splits, order).await });
        }
    }
}

async fn split(splits: &Splits, order: SplitOrder) {
    let SplitOrder {
        id: (store, shard),
        at: Slot(at),
        ref why,
    } = order;
    tracing::info!(
        store = store.name(),
        shard,
        at,
        why = why.as_ref().map(Why::as_str),
        "a busy shard is split automatically"
    );
    let outcome = splits.split(store, shard, at).await;
    let outcome = match outcome {
        Ok(()) => Outcome::Done,
        Err(error) => {
            tracing::info!(store = store.name(), shard, at, %error, "a busy shard was not split");
            Outcome::Refused
        }
    };
    let mut splitter = splits.splitter.lock();
    splitter.handle_outcome(&order, outcome, Instant::now());
}

type Led = (Arc<dyn LedShard>, Candidate);

fn name_hot_slot(shards: &[Led], splits: &Splits, id: ShardId, slot: Slot) {
    let Some((shard, _)) = shards.iter().find(|(_, shard)| shard.id == id) else {
        return debug_assert!(false, "a slot is hot of a shard that was looked at");
    };
    let names = shard.names(slot, NAMES_MOST);
    tracing::warn!(
        store = id.0.name(),
        shard = id.1,
        slot = slot.0,
        names = ?names,
        "one slot has most of the load of a busy shard, which a split cannot divide"
    );
    splits.splitter.lock().handle_names(id, names);
}

/// The shards that the node leads, and what it knows of itself and of others.
fn look(services: &NodeServices, process_cpu: f64) -> (Vec<Led>, NodeView) {
    let loads = services.threads.loads();
    let mut led = Vec::new();
    let mut replicas = PerStore::all(0);
    for (thread, load) in loads.iter().enumerate() {
        for shard in load.all() {
            if let Some(store) = shard.replica() {
                replicas[store] += 1;
            }
            if let Some((id, busyness)) = shard.candidate() {
                let candidate = Candidate {
                    id,
                    thread,
                    busyness,
                };
                led.push((shard, candidate));
            }
        }
    }
    let of_shards = led.iter().filter_map(|(shard, _)| shard.load());
    let led_here = of_shards.map(|(.., load)| load.cpu()).sum();
    let peers = &services.known_peers;
    let members = peers.members.borrow().clone();
    let own = services.folder.node();
    let others = || members.iter().filter(|member| member.node != own);
    let can_lead = others().filter(|other| other.role == Role::Serves && peers.is_up(other.node));
    let view = NodeView {
        threads: loads.iter().map(|load| load.busy()).collect(),
        led_here,
        led_elsewhere: can_lead
            .map(|other| peers.load_of_node(other.node))
            .collect(),
        replicas,
        process_cpu,
        has_all_members: others().all(|other| peers.is_up(other.node)),
    };
    (led, view)
}

/// What the process uses of the machine, from one look to the next.
struct ProcessMeter {
    at: Instant,
    cpu: Duration,
    cores: f64,
}

impl ProcessMeter {
    fn new(services: &NodeServices) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            at: Instant::now(),
            cpu: services.listener.process_cpu(),
            cores: cores as f64,
        }
    }

    /// From 0 to 1, since the last time.
    fn share(&mut self, services: &NodeServices) -> f64 {
        let (now, cpu) = (Instant::now(), services.listener.process_cpu());
        let time = now.duration_since(std::mem::replace(&mut self.at, now));
        let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        let share = used.as_secs_f64() / time.as_secs_f64() / self.cores;
        // In no time nothing was used.
        if share.is_finite() { share } else { 0.0 }
    }
}
