//! What a client publishes, and publishes again.

use mqtt_client::Acknowledgement;
use mqtt_proto::{PacketType, Publish, PublishProperties, QoS};

use super::{Client, FOREVER_S};
use crate::model::{Message, MessageIndex, Model};

/// A payload that says which message it is; its length varies with the number.
pub(super) fn payload(message: MessageIndex) -> Vec<u8> {
    let mut payload = format!("{message} ").into_bytes();
    payload.resize(payload.len() + message * 37 % 300, b'.');
    payload
}

/// The message that a payload is of.
#[must_use]
pub fn message_of(payload: &[u8]) -> Option<MessageIndex> {
    let text = std::str::from_utf8(payload).ok()?;
    text.split(' ').next()?.parse().ok()
}

impl Client {
    /// Whether it may publish another message now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.mqtt.in_flight() < self.identity.window && self.mqtt.has_room(QoS::AtLeastOnce)
    }

    /// Publishes a message. [`Client::has_room`] must be true.
    pub fn publish(&mut self, message: Message, model: &mut Model) -> MessageIndex {
        let index = model.add_message(message);
        model.sent(index);
        self.with_packet(index, model, |mqtt, packet| {
            mqtt.publish(packet, index)
                .expect("there is room for a message that can be written");
        });
        index
    }

    /// Sends again (5.0 §4.4, §4.6) what is not acknowledged, as far as the server takes it.
    pub(super) fn send_again(&mut self, model: &mut Model) {
        while let Some(&message) = self.mqtt.poll_resend() {
            model.sent(message);
            self.with_packet(message, model, |mqtt, packet| {
                mqtt.resend(packet)
                    .expect("the server took the message before");
            });
        }
    }

    fn with_packet(
        &mut self,
        index: MessageIndex,
        model: &Model,
        act: impl FnOnce(&mut mqtt_client::Client<MessageIndex>, Publish<'_>),
    ) {
        let message = &model.messages[index];
        let payload = if message.clears {
            Vec::new()
        } else {
            payload(index)
        };
        let is_v5 = self.identity.version.is_v5();
        let packet = Publish {
            dup: false,
            qos: message.qos,
            retain: message.retain,
            topic: &message.topic,
            packet_id: None,
            properties: PublishProperties {
                message_expiry_interval: is_v5.then_some(FOREVER_S),
                ..PublishProperties::default()
            },
            payload: &payload,
        };
        act(&mut self.mqtt, packet);
    }

    /// A message is acknowledged to the end, or refused.
    pub(super) fn acknowledged(ack: &Acknowledgement<'_, MessageIndex>, model: &mut Model) {
        if ack.packet_type == PacketType::PubComp {
            model.completed(ack.message);
        } else if ack.reason.is_error() {
            model.refused(ack.message, ack.reason);
        } else {
            model.acknowledged(ack.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_says_which_message_it_is() {
        for message in [0, 7, 12_345] {
            assert_eq!(message_of(&payload(message)), Some(message));
        }
        assert_eq!(message_of(b"x"), None);
    }
}
