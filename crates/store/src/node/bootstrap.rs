//! How a shard comes up, what it consists of while it serves, and its end.
//!
//! Invariant: a shard's worker takes requests only when its replica is recovered, or when the node waits for a leader; the
//! controller outlives the worker, which hands its last requests over first.
//!
//! Read next: `placement/controller.rs` and `shard/worker.rs`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use store_state::CorrelationId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::node::services::NodeServices;
use crate::node::starts::{BoxedBootstrap, RunningShard};
use crate::placement::controller::ReplicaController;
use crate::retention::retained::task::RetainedWatch;
use crate::retention::task::watch_queues;
use crate::shard::handle::Shard;
use crate::shard::rebuild::rebuild;
use crate::shard::request::{OVERHEAD, work};
use crate::shard::routing::ShardRouting;
use crate::shard::shards::{MadeShard, Maker};
use crate::shard::work::Work;
use crate::shard::worker::ShardWorker;

/// How often deadlines of sessions and retained messages are looked at.
const DUE_LOOK: Duration = Duration::from_millis(100);

/// A shard before it serves.
struct ShardBootstrap<M: Kind> {
    shard: Arc<Shard<M>>,
    services: Arc<NodeServices>,
    invited: mpsc::Receiver<()>,
}

/// A shard that serves, with its tasks.
struct ServingShard<M: Kind> {
    shard: Arc<Shard<M>>,
    controller: JoinHandle<ReplicaController<M>>,
    tasks: Vec<JoinHandle<()>>,
}

/// How the shards of a store are made on this node.
pub(crate) fn maker<M: Kind>(services: &Arc<NodeServices>) -> Maker<M> {
    let services = Arc::clone(services);
    Box::new(move |shards, number| {
        let peers = services.known_peers.network.clone();
        let routing = ShardRouting::new(services.folder.node(), peers);
        let shard = Shard::new(number, shards, routing);
        let (invite, invited) = mpsc::channel(1);
        let (services, started) = (Arc::clone(&services), Arc::clone(&shard));
        let start = move || {
            M::shards_changed(&*services.listener);
            services.led_shards.add(Arc::clone(&started) as _);
            let start = ShardBootstrap {
                shard: started,
                services: Arc::clone(&services),
                invited,
            };
            let is_child = !start.shard.is_first();
            let shard = Arc::clone(&start.shard) as _;
            services.threads.start(shard, is_child, start.boxed());
        };
        MadeShard {
            shard,
            invite,
            start: Box::new(start),
        }
    })
}

impl<M: Kind> ShardBootstrap<M> {
    fn boxed(self) -> BoxedBootstrap {
        Box::new(move || Box::pin(self.run()))
    }

    /// Recovers the shard and starts its tasks. `None`: it is damaged, and refuses what it is asked.
    async fn run(self) -> Option<Box<dyn RunningShard>> {
        let Self {
            shard,
            services,
            invited,
        } = self;
        let is_alone = services.known_peers.network.is_none();
        let mut controller =
            ReplicaController::new(Arc::clone(&shard), Arc::clone(&services), invited);
        if let Err(error) = controller.begin().await {
            shard.tell_damage(&error);
            if is_alone {
                tokio::spawn(refuse(shard, Arc::clone(&services.listener)));
                return None;
            }
        }
        if !is_alone
            && !M::BEGINS_LATER
            && let Some(op) = services.node_up::<M>()
        {
            shard.give(work(CorrelationId::NONE, op, true), OVERHEAD);
        }
        let worker = ShardWorker::new(Arc::clone(&shard), &services);
        let mut tasks = vec![tokio::spawn(worker.run())];
        tasks.push(tokio::spawn(rebuild(Arc::clone(&shard))));
        if M::due().is_some() {
            let due = watch_deadlines(Arc::clone(&shard), Arc::clone(&services.listener));
            tasks.push(tokio::spawn(due));
        }
        if M::HAS_QUEUES {
            let held = Arc::clone(&services.held_queues);
            let watch = watch_queues(Arc::clone(&shard), held, Arc::clone(&services.listener));
            tasks.push(tokio::spawn(watch));
        }
        if M::HAS_RETAINED {
            let watch = RetainedWatch {
                shard: Arc::clone(&shard),
                held: Arc::clone(&services.held_retained),
                listener: Arc::clone(&services.listener),
            };
            tasks.push(tokio::spawn(watch.run()));
        }
        // One that was split off is, when its parent has applied the split.
        let is_here = shard.routing.group.borrow().is_some();
        if is_alone && is_here {
            served(&shard).await;
        }
        Some(Box::new(ServingShard {
            shard,
            controller: tokio::spawn(controller.run()),
            tasks,
        }))
    }
}

impl<M: Kind> RunningShard for ServingShard<M> {
    fn finish(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            // Ends by itself when the store is told to stop.
            let controller = self.controller.await;
            let (done, all_done) = oneshot::channel();
            self.shard.queue.put(Work::Stop(done), 0);
            // An error: the worker has ended, and with it its requests.
            let _ = all_done.await;
            for task in self.tasks {
                task.abort();
                let _ = task.await;
            }
            if let Ok(controller) = controller {
                controller.finish().await;
            }
        })
    }
}

/// Waits until the shard is served here.
async fn served<M: Kind>(shard: &Shard<M>) {
    let mut hint = shard.routing.hint.subscribe();
    let node = shard.routing.node;
    // An error: the shard is gone.
    let _ = hint.wait_for(|hint| hint.leader == node).await;
}

/// Proposes what a machine does by the passing of time, while this node leads.
async fn watch_deadlines<M: Kind>(shard: Arc<Shard<M>>, listener: Arc<dyn Listener>) {
    let mut look = tokio::time::interval(DUE_LOOK);
    loop {
        look.tick().await;
        if !shard.routing.is_here() {
            continue;
        }
        let deadline = shard.look(M::next_deadline).flatten();
        if deadline.is_some_and(|at| at <= listener.now_ms())
            && let Some(op) = M::due()
        {
            shard.give(work(CorrelationId::NONE, op, false), OVERHEAD);
        }
    }
}

/// Answers for a shard that does not serve.
async fn refuse<M: Kind>(shard: Arc<Shard<M>>, listener: Arc<dyn Listener>) {
    let mut taken = Vec::new();
    loop {
        shard.queue.take(usize::MAX, usize::MAX, &mut taken).await;
        shard.refuse_work(&*listener, taken.drain(..).map(|(_, work)| work));
    }
}
