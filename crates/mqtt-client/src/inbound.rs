//! Packets of the server, and messages from it at each QoS.
//!
//! Invariant: a QoS 2 message counts as received from its PUBREC to its PUBREL, across network connections.

use mqtt_proto::{
    AckProperties, Frame, Packet, PacketId, PacketType, PubAck, PubComp, PubRec, PubRel, Publish,
    QoS, ReasonCode,
};

use crate::client::{ANSWERS_LIMIT, Phase};
use crate::event::AnswerKind;
use crate::{Acknowledgements, Answer, Client, Event, Incoming, ProtocolError, Violation};

impl<M: Clone> Client<M> {
    #[inline]
    pub(crate) fn handle_frame<'a>(
        &mut self,
        header: &Frame,
        frame: &'a [u8],
    ) -> Result<Option<Event<'a, M>>, ProtocolError> {
        let body = frame.get(header.header_len..).unwrap_or_default();
        // Apart from the others, because most packets are these, and copying one costs as much as decoding it.
        if header.packet_type == PacketType::Publish && self.phase != Phase::Connecting {
            let publish = Publish::decode(header.flags, body, self.version)?;
            return Ok(Some(self.handle_publish(publish)?));
        }
        self.handle_other(header, body)
    }

    fn handle_other<'a>(
        &mut self,
        header: &Frame,
        body: &'a [u8],
    ) -> Result<Option<Event<'a, M>>, ProtocolError> {
        let packet_type = header.packet_type;
        self.check_place(packet_type)?;
        Ok(match &Packet::decode_body(header, body, self.version) {
            Ok(Packet::PubAck(ack)) => Some(self.handle_puback(ack)),
            Ok(Packet::PubRec(ack)) => self.handle_pubrec(ack)?,
            Ok(Packet::PubRel(ack)) => Some(self.handle_pubrel(ack)?),
            Ok(Packet::PubComp(ack)) => Some(self.handle_pubcomp(ack)),
            Ok(Packet::ConnAck(ack)) => self.handle_connack(*ack)?,
            Ok(Packet::SubAck(ack)) => Some(self.handle_suback(*ack)?),
            Ok(Packet::UnsubAck(ack)) => Some(self.handle_unsuback(*ack)?),
            Ok(Packet::PingResp) => {
                self.ping_sent = None;
                Some(Event::PingResp)
            }
            Ok(Packet::Disconnect(disconnect)) => {
                self.give_up();
                Some(Event::Disconnected(*disconnect))
            }
            Ok(_) => return Err(Violation::ClientOnlyPacket(packet_type).into()),
            Err(error) => return Err((*error).into()),
        })
    }

    /// Whether a packet of this type may come now.
    #[inline]
    fn check_place(&self, packet_type: PacketType) -> Result<(), Violation> {
        match (self.phase, packet_type) {
            (_, PacketType::Auth) => Err(Violation::UnexpectedAuth),
            (Phase::Connecting, PacketType::ConnAck) => Ok(()),
            // [MQTT-3.2.0-1] [MQTT3-3.2.0-1] CONNACK comes first, [MQTT-3.2.0-2] and once.
            (Phase::Connecting, _) => Err(Violation::NotConnAck(packet_type)),
            (_, PacketType::ConnAck) => Err(Violation::SecondConnAck),
            (_, kind) if is_for_servers(kind) => Err(Violation::ClientOnlyPacket(kind)),
            (_, PacketType::Disconnect) if !self.version.is_v5() => {
                Err(Violation::ClientOnlyPacket(packet_type))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn handle_publish<'a>(&mut self, publish: Publish<'a>) -> Result<Event<'a, M>, Violation> {
        // [MQTT-3.1.2-27] no alias, because CONNECT allowed none.
        if publish.properties.topic_alias.is_some() {
            return Err(Violation::UnexpectedTopicAlias);
        }
        let Some(packet_id) = publish.packet_id else {
            let answer = None;
            return Ok(Event::Message(Incoming { publish, answer }));
        };
        let (kind, is_known) = if publish.qos == QoS::ExactlyOnce {
            (AnswerKind::Receive, self.received.contains(packet_id))
        } else {
            (AnswerKind::Acknowledge, false)
        };
        // [MQTT-3.3.4-9]
        if self.unanswered >= self.receive_maximum {
            return Err(Violation::ReceiveMaximumExceeded);
        }
        self.unanswered += 1;
        let answer = self.owe(kind, packet_id)?;
        let incoming = Incoming { publish, answer };
        // [MQTT-4.3.3-10] [MQTT3-4.3.3-2] until PUBREL it is the same message.
        Ok(if is_known {
            Event::Duplicate(incoming)
        } else {
            Event::Message(incoming)
        })
    }

    fn handle_pubrel<'a>(&mut self, ack: &PubRel<'_>) -> Result<Event<'a, M>, Violation> {
        let packet_id = ack.packet_id;
        // [MQTT-4.3.3-12] afterwards the identifier means a new message.
        let reason = if self.received.remove(packet_id) {
            ReasonCode::Success
        } else {
            ReasonCode::PacketIdentifierNotFound
        };
        let answer = self.owe(AnswerKind::Complete(reason), packet_id)?;
        Ok(Event::Released { packet_id, answer })
    }

    /// Gives an answer, or leaves that to the application.
    #[inline]
    fn owe(&mut self, kind: AnswerKind, packet_id: PacketId) -> Result<Option<Answer>, Violation> {
        self.check_answers()?;
        let connection = self.connection;
        let answer = Answer {
            kind,
            packet_id,
            connection,
        };
        Ok(match self.acknowledgements {
            Acknowledgements::Automatic => {
                // The application has it, also where PUBREC cannot be sent any more.
                if kind == AnswerKind::Receive {
                    self.received.insert(packet_id);
                }
                self.answer(answer);
                None
            }
            Acknowledgements::Manual => Some(answer),
        })
    }

    pub(crate) fn check_answers(&self) -> Result<(), Violation> {
        if self.out.len() < ANSWERS_LIMIT {
            Ok(())
        } else {
            Err(Violation::AnswersNotRead)
        }
    }
}

impl<M> Client<M> {
    /// Acknowledges what has arrived. `false`: the answer is not sent, because its network connection is over or
    /// DISCONNECT is sent.
    #[inline]
    pub fn answer(&mut self, answer: Answer) -> bool {
        if self.phase != Phase::Connected || answer.connection != self.connection {
            return false;
        }
        let packet_id = answer.packet_id;
        let (reason, properties) = (ReasonCode::Success, AckProperties::default());
        self.is_busy = true;
        let pushed = match answer.kind {
            // [MQTT-4.3.2-4] [MQTT3-4.3.2-2]
            AnswerKind::Acknowledge => self.push(|version, out| {
                let packet = PubAck {
                    packet_id,
                    reason,
                    properties,
                };
                packet.encode(version, out)
            }),
            AnswerKind::Receive => {
                self.received.insert(packet_id);
                self.push(|version, out| {
                    let packet = PubRec {
                        packet_id,
                        reason,
                        properties,
                    };
                    packet.encode(version, out)
                })
            }
            // [MQTT-4.3.3-11] [MQTT3-4.3.3-2]
            AnswerKind::Complete(reason) => self.push(|version, out| {
                let packet = PubComp {
                    packet_id,
                    reason,
                    properties,
                };
                packet.encode(version, out)
            }),
        };
        if answer.kind != AnswerKind::Receive {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        pushed.is_ok()
    }
}

/// Whether only clients send packets of this type.
const fn is_for_servers(packet_type: PacketType) -> bool {
    matches!(
        packet_type,
        PacketType::Connect | PacketType::Subscribe | PacketType::Unsubscribe | PacketType::PingReq
    )
}
