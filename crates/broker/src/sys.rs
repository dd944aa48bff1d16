//! The `$SYS` topics, with the names that Mosquitto's users know.
//!
//! They are published as retained messages at a set interval. Load figures are moving averages of
//! counts per minute over 1, 5 and 15 minutes.

use std::sync::atomic::Ordering;

use mqtt_session::Timestamp;
use net::LoopStats;
use net_api::Counter;

use crate::node::Node;
use broker_core::{BrokerStats, sum};

use crate::net_stats::sum_net;

/// Moving averages are over this many minutes.
const MINUTES: [u32; 3] = [1, 5, 15];

/// What the loads are averaged of, and what they have been.
#[derive(Debug, Default)]
pub(crate) struct SysTopics {
    last_ms: u64,
    loads: [Load; 9],
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    total: u64,
    per_minute: [f64; 3],
}

impl SysTopics {
    /// All topics and their values now.
    pub(crate) fn topics(&mut self, node: &Node) -> Vec<(String, String)> {
        let mut topics = Vec::new();
        let mut say =
            |name: &str, value: String| topics.push((format!("$SYS/broker/{name}"), value));
        let broker = |pick: fn(&BrokerStats) -> &Counter| sum(&node.stats, pick);
        let net = |pick: fn(&LoopStats) -> &Counter| sum_net(&node.rim.net, pick);

        let connected = node.connected.load(Ordering::Relaxed) as u64;
        let sessions = node.sessions();
        let publishes_in = node
            .stats
            .iter()
            .flat_map(|s| &s.publishes_in)
            .map(Counter::get)
            .sum::<u64>();
        let publishes_out = broker(|s| &s.publishes_out);
        let dropped = node.drops.iter().map(|drops| drops.total()).sum::<u64>();
        let stored = node
            .opened_store()
            .map(|store| store.stats(Timestamp(node.cluster_now_ms())))
            .unwrap_or_default();
        let (retained, retained_bytes) = (stored.retained_messages, stored.retained_bytes);
        let bytes_in = net(|s| &s.bytes_in);
        let bytes_out = net(|s| &s.bytes_out);
        let packets_in = broker(|s| &s.packets_in);
        let packets_out = broker(|s| &s.packets_out);
        let connects = broker(|s| &s.connects);
        let sockets = net(|s| &s.accepted);

        say("version", format!("HeraldMQ {}", env!("CARGO_PKG_VERSION")));
        say(
            "uptime",
            format!("{} seconds", node.rim.clock.uptime_ms() / 1000),
        );
        for (name, value) in [
            ("clients/total", sessions),
            ("clients/connected", connected),
            ("clients/active", connected),
            ("clients/disconnected", sessions.saturating_sub(connected)),
            ("clients/inactive", sessions.saturating_sub(connected)),
            (
                "clients/maximum",
                node.connected_maximum.load(Ordering::Relaxed) as u64,
            ),
            ("messages/received", packets_in),
            ("messages/sent", packets_out),
            ("publish/messages/received", publishes_in),
            ("publish/messages/sent", publishes_out),
            ("publish/messages/dropped", dropped),
            ("publish/bytes/received", broker(|s| &s.publish_bytes_in)),
            ("bytes/received", bytes_in),
            ("bytes/sent", bytes_out),
            ("subscriptions/count", node.routes.subscriptions() as u64),
            (
                "shared_subscriptions/count",
                node.routes.shared_groups() as u64,
            ),
            ("retained messages/count", retained),
            ("store/messages/count", retained),
            ("store/messages/bytes", retained_bytes),
            ("heap/current", crate::memory::resident_bytes().unwrap_or(0)),
        ] {
            say(name, value.to_string());
        }

        let totals = [
            ("messages/received", packets_in),
            ("messages/sent", packets_out),
            ("publish/received", publishes_in),
            ("publish/sent", publishes_out),
            ("publish/dropped", dropped),
            ("bytes/received", bytes_in),
            ("bytes/sent", bytes_out),
            ("connections", connects),
            ("sockets", sockets),
        ];
        let now_ms = node.rim.clock.uptime_ms();
        let minutes = (now_ms - self.last_ms) as f64 / 60_000.0;
        self.last_ms = now_ms;
        for ((name, total), load) in totals.into_iter().zip(&mut self.loads) {
            load.update(total, minutes);
            for (span, value) in MINUTES.iter().zip(load.per_minute) {
                say(&format!("load/{name}/{span}min"), format!("{value:.2}"));
            }
        }
        topics
    }
}

impl Load {
    /// Exponentially weighted: what happened a span ago counts 1/e of what happens now.
    fn update(&mut self, total: u64, minutes: f64) {
        let new = total.saturating_sub(self.total) as f64;
        self.total = total;
        if minutes <= 0.0 {
            return;
        }
        for (span, average) in MINUTES.iter().zip(&mut self.per_minute) {
            let kept = (-minutes / f64::from(*span)).exp();
            *average = *average * kept + new / minutes * (1.0 - kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_load_is_its_own_average() {
        let mut load = Load::default();
        for n in 1..=2000 {
            load.update(n * 100, 1.0 / 6.0);
        }
        for average in load.per_minute {
            assert!((599.0..601.0).contains(&average), "{average}");
        }
    }
}
