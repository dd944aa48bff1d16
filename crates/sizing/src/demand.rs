//! What is asked of a cluster.

/// QoS of publishing and of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quality {
    /// QoS 0.
    AtMostOnce,
    /// QoS 1.
    AtLeastOnce,
    /// QoS 2.
    ExactlyOnce,
}

/// A load in its steady state.
#[derive(Clone, PartialEq, Debug)]
pub struct Demand {
    /// Clients that are connected at the same time.
    pub connections: f64,
    /// Whether these use TLS.
    pub tls: bool,
    /// Connections that are opened per second.
    pub connects_per_s: f64,
    /// Seconds between a silent client's PINGREQs.
    pub keep_alive_s: f64,
    /// Persistent sessions, connected or not.
    pub sessions: f64,
    /// Messages per second from all publishers.
    pub publishes_per_s: f64,
    /// Messages per second to all subscribers.
    pub deliveries_per_s: f64,
    /// Of these, to persistent sessions at QoS 1 or 2: they are synced before they are acknowledged.
    pub durable_per_s: f64,
    /// Of messages and subscriptions.
    pub quality: Quality,
    /// Bytes of a payload.
    pub payload_bytes: f64,
    /// Bytes of a topic name.
    pub topic_bytes: f64,
    /// Messages that wait for sessions that are not connected.
    pub queued: f64,
    /// Retained messages.
    pub retained: f64,
    /// Voting replicas of each shard.
    pub voters: f64,
    /// Nodes that may be down while the others carry all of it.
    pub may_fail: f64,
}

impl Default for Demand {
    /// Nobody.
    fn default() -> Self {
        Self {
            connections: 0.0,
            tls: false,
            connects_per_s: 0.0,
            keep_alive_s: 60.0,
            sessions: 0.0,
            publishes_per_s: 0.0,
            deliveries_per_s: 0.0,
            durable_per_s: 0.0,
            quality: Quality::AtMostOnce,
            payload_bytes: 256.0,
            topic_bytes: 32.0,
            queued: 0.0,
            retained: 0.0,
            voters: 1.0,
            may_fail: 0.0,
        }
    }
}

impl Demand {
    /// Receivers of a message, on average.
    #[must_use]
    pub fn fan_out(&self) -> f64 {
        if self.publishes_per_s > 0.0 {
            self.deliveries_per_s / self.publishes_per_s
        } else {
            0.0
        }
    }

    /// Messages per second that go from one node to another of so many: to each node that has receivers once.
    #[must_use]
    pub fn crossing_per_s(&self, nodes: f64) -> f64 {
        let of_each = (self.fan_out() * (nodes - 1.0) / nodes).min(nodes - 1.0);
        self.publishes_per_s * of_each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_crosses_once_for_each_node_that_has_receivers() {
        let of = |deliveries_per_s, nodes| {
            let demand = Demand {
                publishes_per_s: 100.0,
                deliveries_per_s,
                ..Demand::default()
            };
            demand.crossing_per_s(nodes)
        };
        assert_eq!(of(100.0, 1.0), 0.0);
        assert_eq!(of(100.0, 4.0), 75.0);
        // 1,000 receivers each are on all nodes.
        assert_eq!(of(100_000.0, 4.0), 300.0);
        assert_eq!(Demand::default().crossing_per_s(3.0), 0.0);
    }
}
