//! What a client receives, with the state that QoS 2 asks of a receiver (5.0 §4.3.3).

use mqtt_client::{Answer, Incoming};
use mqtt_proto::{PacketId, PacketType, QoS};

use super::outbound::message_of;
use super::{Answers, Client};
use crate::model::{At, Model, Receipt};

impl Client {
    pub(super) fn receive(
        &mut self,
        incoming: &Incoming<'_>,
        model: &mut Model,
    ) -> Result<(), String> {
        let packet = &incoming.publish;
        let message = message_of(packet.payload)
            .filter(|message| *message < model.messages.len())
            .ok_or_else(|| format!("a foreign message of topic {}", packet.topic))?;
        if model.messages[message].topic != packet.topic {
            return Err(format!(
                "message {message} came with topic {}",
                packet.topic
            ));
        }
        let packet_id = packet.packet_id.ok_or("a message of QoS 0")?;
        let pending = match packet.qos {
            QoS::ExactlyOnce => self.received.get(&packet_id.get()).copied(),
            _ => None,
        };
        model.received(
            self.index,
            Receipt {
                message,
                connection: model.clients[self.index].connections,
                packet_id: packet_id.get(),
                qos: packet.qos,
                dup: packet.dup,
                pending,
                at: At::default(),
                answered: None,
                released: None,
            },
        );
        if packet.qos == QoS::ExactlyOnce {
            self.received.entry(packet_id.get()).or_insert(message);
        }
        self.answer(incoming.answer, model);
        Ok(())
    }

    pub(super) fn released(
        &mut self,
        packet_id: PacketId,
        answer: Option<Answer>,
        model: &mut Model,
    ) {
        model.released(self.index, packet_id.get());
        self.received.remove(&packet_id.get());
        self.answer(answer, model);
    }

    fn answer(&mut self, answer: Option<Answer>, model: &mut Model) {
        let Some(answer) = answer else { return };
        match self.behaviour.answers {
            Answers::AtOnce => self.send_answer(answer, model),
            Answers::Late => self.held.push_back(answer),
            Answers::Never => {}
        }
    }

    pub(super) fn release_answers(&mut self, model: &mut Model) {
        while let Some(answer) = self.held.pop_front() {
            self.send_answer(answer, model);
        }
    }

    fn send_answer(&mut self, answer: Answer, model: &mut Model) {
        if self.mqtt.answer(answer) && answer.packet_type() != PacketType::PubComp {
            model.answered(self.index, answer.packet_id().get());
        }
    }
}
