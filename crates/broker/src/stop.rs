//! What a node of a cluster does between the signal that ends it and its end: it sends its clients to other nodes at a pace, and
//! waits while its end would cost shards their majority. A second signal ends the process at any time.
//!
//! Deliberately absent: the end itself (`Broker::shutdown`), and draining for maintenance (`drain.rs`).

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use admin::cluster::ClusterStatus;
use cluster::State;
use config::Config;

use crate::clustered::Clustered;
use crate::drain::{await_other_leaders, send_away, successors};
use crate::ending::{About, costs};
use crate::eviction::Names;
use crate::node::Node;
use crate::pace::{Pace, PerSecond, STEP};

/// How long clients stay for shards to be led elsewhere.
const LEAD: Duration = Duration::from_secs(3);

/// How long other nodes take to hear that this one ends, if they do.
const HEARD: Duration = Duration::from_millis(500);

/// How often is said what is waited for.
const SAY: Duration = Duration::from_secs(5);

/// How a node stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopPlan {
    /// `stop.drainSeconds`.
    drain: Duration,
    /// `stop.majoritySeconds`.
    majority: Duration,
    /// `clusterConfig.drainClientsPerSecond`.
    at_least: PerSecond,
}

impl StopPlan {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            drain: config.stop.drain.unwrap_or(Duration::ZERO),
            majority: config.stop.majority.unwrap_or(Duration::ZERO),
            at_least: PerSecond(config.cluster_config.drain_clients_per_second.get().into()),
        }
    }

    /// Returns when the node can end. Blocks for at most the time that is configured, and some seconds.
    pub(crate) fn prepare(
        &self,
        node: &Node,
        clustered: &Clustered,
        status: impl Fn() -> ClusterStatus,
    ) {
        // It has left, and the others have forgotten it.
        if clustered.is_forgotten() {
            return;
        }
        if self.drain > Duration::ZERO {
            self.drain(node, clustered);
        }
        if self.majority > Duration::ZERO {
            self.await_majority(clustered, status);
        }
    }

    /// Sends all clients elsewhere, within the time that is given for it.
    fn drain(&self, node: &Node, clustered: &Clustered) {
        let begun = Instant::now();
        let connected = || node.connected.load(Ordering::Relaxed);
        let clients = connected();
        if clients == 0 || successors(clustered).is_empty() {
            return;
        }
        clustered.cluster().set_state(State::Draining);
        send_away(node, clustered, 0);
        await_other_leaders(node, clustered, LEAD.min(self.drain), || false);
        let left = self.drain.saturating_sub(begun.elapsed());
        let rate = rate(connected(), left).max(self.at_least);
        tracing::info!(
            clients,
            per_second = rate.0,
            "clients are sent to other nodes"
        );
        let mut pace = Pace::new(rate);
        while connected() > 0 && begun.elapsed() < self.drain && !successors(clustered).is_empty() {
            send_away(node, clustered, pace.step());
            sleep(STEP);
        }
    }

    /// Waits while a voter is down that may come back, and shards would have no majority without this node.
    fn await_majority(&self, clustered: &Clustered, status: impl Fn() -> ClusterStatus) {
        let begun = Instant::now();
        let mut said: Option<Instant> = None;
        let mut about = About::All;
        loop {
            let costs = costs(&status(), about);
            let limit = self.majority.saturating_sub(begun.elapsed());
            if costs.is_empty() {
                if about == About::Lower || successors(clustered).is_empty() {
                    return;
                }
                // Another one may do the same at this moment: then the one with the lower identifier ends first.
                clustered.cluster().set_state(State::Stopping);
                about = About::Lower;
                sleep(HEARD.min(limit));
                continue;
            }
            let shards = Names(&costs);
            if limit.is_zero() {
                tracing::warn!(
                    %shards,
                    "this node stops now: stop.majoritySeconds have passed, and these shards have no majority of their voters \
                     without it"
                );
                return;
            }
            if said.is_none_or(|said| said.elapsed() >= SAY) {
                said = Some(Instant::now());
                tracing::warn!(
                    %shards,
                    seconds = limit.as_secs(),
                    "waits before it stops: these shards would have no majority of their voters without this node, and a \
                     node that is down may come back. A second signal ends this one at once"
                );
            }
            // The others hear that this node is about to end: when all are, none waits for the others.
            clustered.cluster().set_state(State::Draining);
            about = About::All;
            sleep(STEP);
        }
    }
}

/// Clients a second, so that all are sent away within a time.
fn rate(clients: usize, time: Duration) -> PerSecond {
    let per_second = clients as f64 / time.as_secs_f64().max(1.0);
    // More than there can be clients is as fast as it can be.
    PerSecond(per_second.ceil().min(f64::from(u32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clients_go_within_the_time() {
        for (clients, seconds, expected) in [
            (0, 60, 0),
            (100, 60, 2),
            (1_000_000, 60, 16_667),
            (100, 0, 100),
        ] {
            let time = Duration::from_secs(seconds);
            assert_eq!(rate(clients, time), PerSecond(expected));
        }
    }
}
