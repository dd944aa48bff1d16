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
    /// CPU for a message to a persistent session, synced, one replica; instead of `deliver_us`.
    pub durable_us: f64,
    /// CPU for each further replica of it.
    pub replica_us: f64,
    /// CPU for a message that goes from one node to another, on both.
    pub crossing_us: f64,
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
