//! The session's state, its facts, and the dispatch of the client's packets.
//!
//! Invariant: at most 152 bytes plus what is in use. Parts that most sessions have no use for most of
//! the time sit behind a box that is freed when they are empty.

use mqtt_proto::{
    EncodeError, Packet, PacketId, ProtocolVersion, ReasonCode, Subscribe, Unsubscribe,
};

use crate::connect::auth;
use crate::declared::Declared;
use crate::durable::Durable;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::qos0_queue::Qos0Queue;
use crate::rare::Rare;
use crate::subscriptions::Subscriptions;
use crate::will::WillTarget;
use crate::{ApplicationMessage, ClassId, Dropped, Policy, Timestamp, Violation};

/// What CONNACK has announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) receive_maximum: u16,
    pub(crate) topic_alias_maximum: u16,
}

/// One client's session, and its network connection while there is one.
#[derive(Debug)]
pub struct Session {
    pub(crate) client_id: Box<str>,
    pub(crate) subscriptions: Subscriptions,
    /// Encoded packets other than PUBLISH that wait for transmission.
    pub(crate) control: Vec<u8>,
    /// QoS 0 deliveries that wait for transmission.
    pub(crate) qos0: Qos0Queue,
    /// QoS 1 and 2 deliveries, waiting and in flight.
    pub(crate) outbound: Option<Box<Outbound>>,
    /// QoS 1 and 2 messages from the client that are not finished.
    pub(crate) inbound: Option<Box<Inbound>>,
    pub(crate) rare: Rare,
    /// What a session that a store holds has beside; `None`: a transient one.
    pub(crate) durable: Option<Box<Durable>>,
    /// Online: when the last packet came. Offline: when the network connection was closed.
    pub(crate) since: Timestamp,
    /// Bytes of all deliveries held, waiting and in flight.
    pub(crate) queue_bytes: u64,
    /// Seconds.
    pub(crate) session_expiry: u32,
    /// Seconds; 0: none.
    pub(crate) keep_alive: u16,
    /// The client's Receive Maximum.
    pub(crate) client_receive_maximum: u16,
    /// The most QoS 1 and 2 deliveries in flight: the lesser of that and the policy's.
    pub(crate) window: u16,
    pub(crate) announced: Announced,
    /// The identifier of the next new outbound message.
    pub(crate) next_packet_id: PacketId,
    pub(crate) version: ProtocolVersion,
    pub(crate) online: bool,
    /// DISCONNECT was sent or received: no packet follows.
    pub(crate) closing: bool,
    /// Whose policy it is subject to.
    pub(crate) class: ClassId,
    pub(crate) declared: Declared,
}

/// What the server has to do because of a packet.
#[derive(Debug)]
#[must_use = "the client waits for what the server does"]
pub enum Action<'a> {
    /// Nothing. There may be something to transmit.
    None,
    /// Route the message. If there is a packet identifier, call [`Session::complete_publish`] once
    /// when all is done, now or later.
    Publish {
        /// The message.
        message: ApplicationMessage,
        /// Its identifier, with QoS 1 and 2.
        packet_id: Option<PacketId>,
    },
    /// The client's message breaks a limit of the policy. It was answered; count the drop.
    Refused(Dropped),
    /// Try [`Session::check_filter`] and subscribe each filter, then call
    /// [`Session::complete_subscribe`].
    Subscribe(Subscribe<'a>),
    /// Unsubscribe each filter, then call [`Session::complete_unsubscribe`].
    Unsubscribe(Unsubscribe<'a>),
    /// The client acknowledged something: the window of outbound messages may have moved.
    Acknowledged,
    /// Durable sessions only: the client has received the QoS 2 message with this sequence number.
    /// Record it, then call [`Session::complete_receipt`].
    Receipt {
        /// The message.
        sequence: u64,
    },
    /// Durable sessions only: the client releases the identifier of its QoS 2 message. Forget it, then
    /// call [`Session::complete_release`].
    Release {
        /// The identifier, one that was received.
        packet_id: PacketId,
    },
    /// The client's AUTH, after a CONNECT that named an authentication method: go on with the exchange,
    /// or begin another ([`Session::send_auth`]).
    Authenticate,
    /// The client's DISCONNECT: close the network connection.
    Disconnect,
}

impl Session {
    /// One packet from the client. `key` becomes the publisher of its messages. Answers that need
    /// nobody else are queued for transmission.
    ///
    /// # Errors
    /// What the client did wrong. Then call [`Self::disconnect_for`] and close.
    pub fn handle_packet<'a>(
        &mut self,
        packet: &Packet<'a>,
        key: u64,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Action<'a>, Violation> {
        // [MQTT-3.14.4-1] the connection is over: what is still in the pipe is not processed.
        if !self.online || self.closing {
            return Ok(Action::None);
        }
        self.since = now;
        match packet {
            Packet::Publish(publish) => self.handle_publish(publish, key, policy, now),
            Packet::PubAck(ack) => self.handle_puback(ack),
            Packet::PubRec(ack) => self.handle_pubrec(ack),
            Packet::PubRel(ack) => self.handle_pubrel(ack),
            Packet::PubComp(ack) => self.handle_pubcomp(ack),
            Packet::Subscribe(subscribe) => self.handle_subscribe(subscribe, policy),
            Packet::Unsubscribe(unsubscribe) => Ok(self.handle_unsubscribe(unsubscribe)),
            Packet::PingReq => {
                // [MQTT-3.12.4-1] [MQTT3-3.12.4-1]
                self.push_control(|version, out| Packet::PingResp.encode(version, out));
                // A client that pings has nothing else to say: a good time to be small.
                self.release_spare();
                Ok(Action::None)
            }
            Packet::Disconnect(disconnect) => self.handle_disconnect(disconnect, policy),
            // [MQTT-3.1.0-2] [MQTT3-3.1.0-2]
            Packet::Connect(_) => Err(Violation::SecondConnect),
            Packet::Auth(_) if self.declared.enhanced() => Ok(Action::Authenticate),
            // [MQTT-4.12.0-7]
            Packet::Auth(_) => Err(Violation::UnexpectedAuth),
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                Err(Violation::ServerOnlyPacket(packet.packet_type()))
            }
        }
    }

    /// Queues a packet other than PUBLISH; says whether the client can take it. Completions may come
    /// late: after DISCONNECT nothing is queued [MQTT-3.14.4-1].
    pub(crate) fn push_control(
        &mut self,
        encode: impl FnOnce(ProtocolVersion, &mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> bool {
        if !self.online || self.closing {
            return false;
        }
        let start = self.control.len();
        let encoded = encode(self.version, &mut self.control);
        debug_assert_eq!(
            encoded,
            Ok(()),
            "the session makes packets that can be encoded"
        );
        // [MQTT-3.1.2-24] never larger than the client's Maximum Packet Size, then [MQTT-3.1.2-25]
        // as if it had been sent.
        if self.control.len() - start > self.rare.client_maximum_packet_size() as usize {
            self.control.truncate(start);
            return false;
        }
        true
    }

    /// Queues an AUTH for a client whose CONNECT named this authentication method: Continue
    /// authentication, or Success after it has authenticated again.
    pub fn send_auth(&mut self, reason: ReasonCode, method: &str, data: &[u8]) {
        self.push_control(|version, out| auth(reason, method, data).encode(version, out));
    }

    /// The client identifier, as given by the client or assigned by the server.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// The user name of the last CONNECT.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.rare.username()
    }

    /// The protocol version of the last CONNECT.
    #[must_use]
    pub fn version(&self) -> ProtocolVersion {
        self.version
    }

    /// Whether the last CONNECT said that the client is a bridge.
    #[must_use]
    pub fn is_bridge(&self) -> bool {
        self.declared.is_bridge()
    }

    /// Whether there is a network connection.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.online
    }

    /// Whether the session ends with its network connection.
    #[must_use]
    pub fn expires_at_close(&self) -> bool {
        self.session_expiry == 0
    }

    /// Whether nothing is queued or in flight, in either direction: if the session ended now, no message that it
    /// was given would be lost, and none of the client's would be without an acknowledgement.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let inbound = self.inbound.as_ref();
        self.queue_len() == 0 && self.in_flight() == 0 && inbound.is_none_or(|i| i.is_empty())
    }

    /// The session expiry interval in seconds; [`crate::NEVER_EXPIRES`]: none.
    #[must_use]
    pub fn session_expiry(&self) -> u32 {
        self.session_expiry
    }

    /// Whether a will message is owed if the network connection is lost. After
    /// [`Self::handle_connection_closed`]: whether one waits for its delay.
    #[must_use]
    pub fn has_will(&self) -> bool {
        self.rare.will().is_some()
    }

    /// The topic of the will message that is owed, and whether it is to be retained.
    #[must_use]
    pub fn will(&self) -> Option<(&str, bool)> {
        self.rare.will().map(|will| will.target())
    }

    /// The will message is not owed any more.
    pub fn discard_will(&mut self) {
        self.rare.take_will();
    }

    /// The keep alive in force, in seconds; 0: none.
    #[must_use]
    pub fn keep_alive(&self) -> u16 {
        self.keep_alive
    }

    /// Bytes of encoded packets other than PUBLISH that wait for transmission.
    #[must_use]
    pub fn control_len(&self) -> usize {
        self.control.len()
    }

    /// Bytes on the heap, without the shared messages ([`Self::queue_bytes`]).
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.client_id.len()
            + self.rare.heap_bytes()
            + self.subscriptions.heap_bytes()
            + self.control.capacity()
            + self.qos0.heap_bytes()
            + self
                .outbound
                .as_ref()
                .map_or(0, |outbound| outbound.heap_bytes())
            + self
                .inbound
                .as_ref()
                .map_or(0, |inbound| inbound.heap_bytes())
            + self
                .durable
                .as_ref()
                .map_or(0, |durable| durable.heap_bytes())
    }
}

/// The will message that is owed, without its payload.
#[must_use]
pub fn will_target(session: &Session) -> Option<WillTarget> {
    session.rare.will().map(|will| will.described())
}

/// The class of a session's client, as the server said when it opened the session.
#[must_use]
pub fn class_of(session: &Session) -> ClassId {
    session.class
}

/// The client's Maximum Packet Size in bytes; `None`: it takes any.
#[must_use]
pub fn maximum_packet_size(session: &Session) -> Option<u32> {
    let size = session.rare.client_maximum_packet_size();
    (size != u32::MAX).then_some(size)
}

/// The session ends with its network connection, whatever expiry the client has asked for.
pub fn end_with_connection(session: &mut Session) {
    session.session_expiry = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_stays_small() {
        // Each client has one, connected or lingering: docs/internals/budget.md.
        assert_eq!(size_of::<Session>(), 152);
        assert!(size_of::<crate::slot::Slot>() <= 32);
        assert!(size_of::<crate::Subscription>() <= 32);
        assert!(size_of::<crate::Delivery>() <= 32);
        assert!(size_of::<ApplicationMessage>() <= 72);
    }
}
