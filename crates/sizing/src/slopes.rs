//! What one more of something takes, as measured.

use serde::{Deserialize, Serialize};

use crate::demand::Quality;

/// A slope for each QoS.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfQuality {
    /// QoS 0.
    pub qos0: f64,
    /// QoS 1.
    pub qos1: f64,
    /// QoS 2.
    pub qos2: f64,
}

impl OfQuality {
    /// The one of a QoS.
    #[must_use]
    pub fn of(&self, quality: Quality) -> f64 {
        match quality {
            Quality::AtMostOnce => self.qos0,
            Quality::AtLeastOnce => self.qos1,
            Quality::ExactlyOnce => self.qos2,
        }
    }
}

/// CPU for a message that shares work with others of its batch: a sync, a wake-up, a packet to another node.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batched {
    /// At [`Slopes::rate`] messages per second of a node.
    pub alone: f64,
    /// Where as many come as can.
    pub least: f64,
}

impl Batched {
    /// At so many messages per second of a node: what is shared is shared by more, and what is not stays. Below the rate at which
    /// it was measured it is no more than there.
    #[must_use]
    pub fn at(&self, per_s: f64, measured_per_s: f64) -> f64 {
        let shared = (self.alone - self.least).max(0.0);
        self.least + shared * measured_per_s / per_s.max(measured_per_s)
    }
}

/// Measured slopes. Times are CPU µs, sizes bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slopes {
    /// Where, when and how.
    pub measured: String,
    /// CPU for a message from a publisher, its acknowledgement too.
    pub publish_us: OfQuality,
    /// CPU for a message to a subscriber whose session is clean, its acknowledgement too.
    pub deliver_us: OfQuality,
    /// Messages per second of a node at which these were measured.
    pub rate: f64,
    /// CPU for a message to a persistent session, synced, one replica; instead of `deliver_us`.
    pub durable_us: Batched,
    /// CPU for each further replica of it.
    pub replica_us: Batched,
    /// CPU for a message that goes from one node to another, on both.
    pub crossing_us: Batched,
    /// CPU for a PINGREQ.
    pub ping_us: f64,
    /// CPU for a connection to be opened, with a SUBSCRIBE.
    pub connect_us: f64,
    /// The same with TLS.
    pub connect_tls_us: f64,
    /// Memory of the process for a connection with a subscription.
    pub connection_bytes: f64,
    /// The same with TLS.
    pub connection_tls_bytes: f64,
    /// Memory of the kernel for a connection.
    pub socket_bytes: f64,
    /// Memory for a persistent session with a subscription, for each replica.
    pub session_bytes: f64,
    /// Disk for the same.
    pub session_disk_bytes: f64,
    /// Disk for a message that waits, beside its payload, for each replica.
    pub queued_disk_bytes: f64,
    /// Memory for a retained message, beside its payload and topic, for each replica.
    pub retained_bytes: f64,
    /// Bytes written to the log for a durable message, beside its payload, for each replica.
    pub log_bytes: f64,
    /// Memory of a node that does nothing.
    pub node_bytes: f64,
    /// Disk of a node that holds nothing: its log.
    pub node_disk_bytes: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_shared_by_more() {
        let cost = Batched {
            alone: 103.0,
            least: 3.0,
        };
        for (per_s, expected) in [
            (0.0, 103.0),
            (4_000.0, 103.0),
            (8_000.0, 53.0),
            (400_000.0, 4.0),
        ] {
            assert_eq!(cost.at(per_s, 4_000.0), expected, "{per_s}");
        }
        // Noise of the measurement.
        let odd = Batched {
            alone: 1.0,
            least: 3.0,
        };
        assert_eq!(odd.at(9_000.0, 4_000.0), 3.0);
    }
}
