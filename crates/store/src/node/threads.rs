//! The threads of a store: each starts some of the shards and serves them to the end.
//!
//! Invariant: all tasks of a shard live on one thread.

use std::sync::Arc;

use consensus::{Condition, Log};
use store_state::api::PerStore;
use tokio::sync::watch;

use crate::api::error::OpenError;
use crate::api::listener::Listener;
use crate::api::splits::Splits;
use crate::leadership::announce::announce_leadership;
use crate::node::alive::stay_alive;
use crate::node::disk::{stays_full, watch_log};
use crate::node::services::NodeServices;
use crate::node::shutdown::Stop;
use crate::node::starts::ThreadStarts;
use crate::scrub::shards::ScrubbedShards;
use crate::scrub::task::scrub;
use crate::splitting::task::split_by_itself;

/// What one of the threads does for the node as a whole.
pub(crate) struct NodeTasks {
    pub(crate) services: Arc<NodeServices>,
    pub(crate) splits: Arc<Splits>,
    pub(crate) scrubbed: PerStore<Arc<dyn ScrubbedShards>>,
}

/// What one thread of the store does.
pub(crate) struct Part {
    /// The shards that it is given. Those that are there when it begins serve before it is ready.
    pub(crate) given: ThreadStarts,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) log: Arc<Log>,
    pub(crate) node_tasks: Option<NodeTasks>,
    pub(crate) condition: watch::Receiver<Condition>,
    pub(crate) stopping: watch::Receiver<Stop>,
}

/// A thread of the store, from the start of its shards to their end.
pub(crate) fn run(part: Part, ready: impl FnOnce(Result<(), OpenError>)) {
    let log = Arc::clone(&part.log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .on_thread_park(move || log.write_idle())
        .max_blocking_threads(4)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "a thread of the store cannot start");
            return;
        }
    };
    runtime.block_on(part.serve(ready));
}

impl Part {
    /// Starts the shards, says that they are `ready`, and serves until the store ends.
    pub(crate) async fn serve(self, ready: impl FnOnce(Result<(), OpenError>)) {
        let Self {
            given: ThreadStarts { mut starts, load },
            listener,
            log: _,
            node_tasks,
            mut condition,
            mut stopping,
        } = self;
        tokio::spawn(load.measure(listener));
        let mut running = Vec::new();
        while let Ok(start) = starts.try_recv() {
            tokio::select! {
                () = stays_full(&mut condition) => {
                    return ready(Err(OpenError::full_disk()));
                }
                started = start() => running.extend(started),
            }
        }
        if let Some(NodeTasks {
            services,
            splits,
            scrubbed,
        }) = node_tasks
        {
            let listener = &services.listener;
            tokio::spawn(stay_alive(
                Arc::clone(&services.folder),
                Arc::clone(listener),
            ));
            tokio::spawn(watch_log(condition, Arc::clone(listener)));
            if !services.scrubbed.every.is_zero() {
                tokio::spawn(scrub(Arc::clone(&services), scrubbed));
            }
            tokio::spawn(split_by_itself(Arc::clone(&services), splits));
            if services.known_peers.network.is_some() {
                tokio::spawn(announce_leadership(services));
            }
        }
        ready(Ok(()));
        loop {
            tokio::select! {
                biased;
                // An error: the store itself is gone.
                _ = stopping.wait_for(|stop| *stop != Stop::No) => break,
                Some(start) = starts.recv() => running.extend(start().await),
            }
        }
        for shard in running {
            shard.finish().await;
        }
    }
}
