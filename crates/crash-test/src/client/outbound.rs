//! What a client publishes, until it is acknowledged to the end (5.0 §4.3, §4.4).

use mqtt_proto::{
    AckProperties, Packet, PacketId, PubRel, Publish, PublishProperties, QoS, ReasonCode,
};

use super::{Client, FOREVER_S};
use crate::model::{Message, MessageIndex, Model};

/// A message that was published and is not acknowledged to the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unacknowledged {
    pub(super) message: MessageIndex,
    pub(super) packet_id: PacketId,
    /// PUBREC came: PUBREL is sent instead of PUBLISH.
    pub(super) is_received: bool,
}

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
        self.is_up() && self.outbox.len() < self.identity.window.min(self.server_receive_maximum)
    }

    /// Publishes a message. [`Client::has_room`] must be true.
    pub fn publish(&mut self, message: Message, model: &mut Model) -> MessageIndex {
        let index = model.add_message(message);
        let packet_id = self.take_id();
        let sent = Unacknowledged {
            message: index,
            packet_id,
            is_received: false,
        };
        self.outbox.push_back(sent);
        self.send(sent, false, model);
        index
    }

    /// Sends again (5.0 §4.4, §4.6) what is not acknowledged, in the same order.
    pub(super) fn send_again(&mut self, session_present: bool, model: &mut Model) {
        for sent in self.outbox.clone() {
            if sent.is_received {
                self.release(sent.packet_id);
            } else {
                self.send(sent, session_present, model);
            }
        }
    }

    fn send(&mut self, sent: Unacknowledged, dup: bool, model: &mut Model) {
        model.sent(sent.message);
        let message = &model.messages[sent.message];
        let payload = if message.clears {
            Vec::new()
        } else {
            payload(sent.message)
        };
        let is_v5 = self.identity.version.is_v5();
        self.put(&Packet::Publish(Publish {
            dup,
            qos: message.qos,
            retain: message.retain,
            topic: &message.topic,
            packet_id: Some(sent.packet_id),
            properties: PublishProperties {
                message_expiry_interval: is_v5.then_some(FOREVER_S),
                ..PublishProperties::default()
            },
            payload: &payload,
        }));
    }

    fn release(&mut self, packet_id: PacketId) {
        self.put(&Packet::PubRel(PubRel {
            packet_id,
            reason: ReasonCode::Success,
            properties: AckProperties::default(),
        }));
    }

    fn place(&self, packet_id: PacketId, qos: QoS, model: &Model) -> Option<usize> {
        self.outbox
            .iter()
            .position(|sent| sent.packet_id == packet_id && model.messages[sent.message].qos == qos)
    }

    pub(super) fn acknowledged(
        &mut self,
        packet_id: PacketId,
        reason: ReasonCode,
        model: &mut Model,
    ) {
        let place = self.place(packet_id, QoS::AtLeastOnce, model);
        if let Some(sent) = place.and_then(|place| self.outbox.remove(place)) {
            if reason.is_error() {
                model.refused(sent.message, reason);
            } else {
                model.acknowledged(sent.message);
            }
        }
    }

    pub(super) fn recorded(&mut self, packet_id: PacketId, reason: ReasonCode, model: &mut Model) {
        let Some(place) = self.place(packet_id, QoS::ExactlyOnce, model) else {
            return;
        };
        let sent = self.outbox[place];
        if reason.is_error() {
            self.outbox.remove(place);
            model.refused(sent.message, reason);
            return;
        }
        if !sent.is_received {
            self.outbox[place].is_received = true;
            model.acknowledged(sent.message);
        }
        self.release(packet_id);
    }

    pub(super) fn completed(&mut self, packet_id: PacketId, model: &mut Model) {
        if let Some(place) = self.place(packet_id, QoS::ExactlyOnce, model)
            && self.outbox[place].is_received
        {
            model.completed(self.outbox[place].message);
            self.outbox.remove(place);
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
