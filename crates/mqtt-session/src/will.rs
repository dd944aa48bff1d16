//! The will message: kept from CONNECT until it is due or discarded.
//!
//! It is due when the network connection has closed and its delay has passed or the session has
//! ended, whichever comes first [MQTT-3.1.2-8]. A DISCONNECT with reason 0x00 discards it
//! [MQTT-3.14.4-3], and so does the client's return within the delay [MQTT-3.1.3-9].

use mqtt_proto::{LastWill, MessageBody, QoS};

use crate::{ApplicationMessage, Timestamp};

/// A will message with what the session needs to publish it.
#[derive(Debug)]
pub(crate) struct Will {
    body: MessageBody,
    qos: QoS,
    retain: bool,
    message_expiry_interval: Option<u32>,
    /// Seconds from the closing of the network connection.
    pub(crate) delay: u32,
}

/// A will message without its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WillTarget {
    /// Where it is published.
    pub topic: String,
    /// Its QoS.
    pub qos: QoS,
    /// Whether it is to be retained.
    pub retain: bool,
    /// Seconds from the closing of the network connection.
    pub delay_s: u32,
}

impl Will {
    pub(crate) fn new(will: &LastWill<'_>) -> Box<Self> {
        Box::new(Self {
            body: MessageBody::from_will(will),
            qos: will.qos,
            retain: will.retain,
            message_expiry_interval: will.properties.message_expiry_interval,
            delay: will.properties.will_delay_interval.unwrap_or(0),
        })
    }

    /// The topic, and whether the message is to be retained.
    pub(crate) fn target(&self) -> (&str, bool) {
        (self.body.topic(), self.retain)
    }

    pub(crate) fn described(&self) -> WillTarget {
        WillTarget {
            topic: self.body.topic().to_owned(),
            qos: self.qos,
            retain: self.retain,
            delay_s: self.delay,
        }
    }

    /// The message to publish. The life of the message begins now. Its publisher is left open: the
    /// server knows the session's key.
    pub(crate) fn publish(self, now: Timestamp) -> ApplicationMessage {
        ApplicationMessage {
            body: self.body,
            qos: self.qos,
            // [MQTT-3.1.2-14] [MQTT-3.1.2-15]
            retain: self.retain,
            publisher: 0,
            publisher_hash: 0,
            expires_at: self.message_expiry_interval.map(|secs| now.add_secs(secs)),
            taken_up: None,
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.body.heap_len()
    }
}
