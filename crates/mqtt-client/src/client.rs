//! The client's state, its facts, and bytes to send.
//!
//! Invariant: `in_flight` stands in the order of publishing, and identifiers are given in turn, so that an identifier's
//! place is found by its distance from the oldest one.

use std::collections::VecDeque;
use std::time::Duration;

use mqtt_proto::{EncodeError, Packet, PacketId, PacketIdSet, ProtocolVersion, QoS};

use crate::CommandError;
use crate::outbound::InFlight;
use crate::request::Request;

/// Bytes that wait to be sent, at which there is no room for another message.
pub const TRANSMIT_LIMIT: usize = 256 * 1024;

/// Bytes that wait to be sent, at which the client gives the network connection up: a server that keeps to the Receive
/// Maximum is not owed as many acknowledgements.
pub const ANSWERS_LIMIT: usize = 1024 * 1024;

/// Who acknowledges messages that arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledgements {
    /// The client, before it gives them to the application.
    Automatic,
    /// The application, by [`Client::answer`]; it keeps the order of the messages [MQTT-4.6.0-2] [MQTT-4.6.0-3].
    Manual,
}

/// How far the network connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// There is none.
    Offline,
    /// CONNECT is sent.
    Connecting,
    /// CONNACK came.
    Connected,
    /// DISCONNECT is sent.
    Leaving,
    /// The same, and the session ends with the network connection.
    EndingSession,
}

/// What CONNACK says that the server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLimits {
    /// The most messages of QoS 1 and 2 that are in flight.
    pub receive_maximum: u16,
    /// The largest packet in bytes; `u32::MAX`: no limit.
    pub maximum_packet_size: u32,
    /// The highest QoS of a message.
    pub maximum_qos: QoS,
    /// Whether it keeps retained messages.
    pub retain_available: bool,
}

impl ServerLimits {
    /// Of a server that says nothing.
    pub(crate) const NONE: Self = Self {
        receive_maximum: u16::MAX,
        maximum_packet_size: u32::MAX,
        maximum_qos: QoS::ExactlyOnce,
        retain_available: true,
    };
}

/// A client: its session, and its network connection while there is one.
#[derive(Clone, Debug)]
pub struct Client<M> {
    pub(crate) phase: Phase,
    pub(crate) acknowledgements: Acknowledgements,
    pub(crate) version: ProtocolVersion,
    pub(crate) clean_start: bool,
    pub(crate) session_present: bool,
    /// Has published or acknowledged since the last PINGREQ: it will soon need its buffers again.
    pub(crate) is_busy: bool,
    /// Messages that a lost session had received are still to be told of.
    pub(crate) is_discarding: bool,
    /// Zero: none.
    pub(crate) keep_alive: Duration,
    /// When bytes were last sent.
    pub(crate) last_sent: Duration,
    /// When the PINGREQ was sent that has no answer yet.
    pub(crate) ping_sent: Option<Duration>,
    pub(crate) server: ServerLimits,
    /// Largest packet that the server may send, in bytes.
    pub(crate) maximum_packet_size: u32,
    /// The client's own, by its CONNECT.
    pub(crate) receive_maximum: u16,
    /// Messages that count against it on this network connection.
    pub(crate) unanswered: u16,
    /// Number of the network connection.
    pub(crate) connection: u32,
    /// The start of a packet whose end has not arrived; mostly empty.
    pub(crate) partial: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) in_flight: VecDeque<InFlight<M>>,
    /// How many of these, from the front, were sent on this network connection.
    pub(crate) sent: usize,
    pub(crate) next_id: PacketId,
    /// SUBSCRIBE and UNSUBSCRIBE packets that wait for their answers.
    pub(crate) requests: Vec<Request>,
    /// Identifiers of QoS 2 messages that were answered by PUBREC and are not released.
    pub(crate) received: PacketIdSet,
}

impl<M> Client<M> {
    /// A client without a session.
    #[must_use]
    pub const fn new(acknowledgements: Acknowledgements) -> Self {
        Self {
            phase: Phase::Offline,
            acknowledgements,
            version: ProtocolVersion::V5,
            clean_start: true,
            session_present: false,
            is_busy: false,
            is_discarding: false,
            keep_alive: Duration::ZERO,
            last_sent: Duration::ZERO,
            ping_sent: None,
            server: ServerLimits::NONE,
            maximum_packet_size: u32::MAX,
            receive_maximum: u16::MAX,
            unanswered: 0,
            connection: 0,
            partial: Vec::new(),
            out: Vec::new(),
            in_flight: VecDeque::new(),
            sent: 0,
            next_id: PacketId::FIRST,
            requests: Vec::new(),
            received: PacketIdSet::new(),
        }
    }

    /// Whether the server has accepted the network connection, and DISCONNECT is not sent.
    #[must_use]
    #[inline]
    pub fn is_connected(&self) -> bool {
        self.phase == Phase::Connected
    }

    /// Whether DISCONNECT is sent.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving | Phase::EndingSession)
    }

    /// The protocol version of the last CONNECT.
    #[must_use]
    pub fn version(&self) -> ProtocolVersion {
        self.version
    }

    /// What the server takes, by its last CONNACK.
    #[must_use]
    pub fn server_limits(&self) -> ServerLimits {
        self.server
    }

    /// The keep alive in force, the server's if it has set one; zero: none.
    #[must_use]
    pub fn keep_alive(&self) -> Duration {
        self.keep_alive
    }

    /// Messages that were published at QoS 1 and 2 and are not acknowledged to the end.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// These messages, in the order of publishing.
    pub fn messages_in_flight(&self) -> impl Iterator<Item = &M> {
        self.in_flight.iter().map(|sent| &sent.message)
    }

    /// The packet identifiers of messages of QoS 2 whose PUBREC is sent and whose PUBREL has not come, ascending.
    pub fn awaiting_release(&self) -> impl Iterator<Item = PacketId> {
        self.received.iter()
    }

    /// Bytes to send, mostly none. The application sends some of them, and reports these by
    /// [`Self::handle_transmitted`].
    #[must_use]
    #[inline]
    pub fn poll_transmit(&self) -> &[u8] {
        &self.out
    }

    /// The first `count` bytes of [`Self::poll_transmit`] were sent. `now` counts from any fixed point.
    #[inline]
    pub fn handle_transmitted(&mut self, count: usize, now: Duration) {
        if count == 0 {
            return;
        }
        self.last_sent = now;
        if count < self.out.len() {
            self.out.drain(..count);
        } else {
            self.out.clear();
            if !self.is_busy {
                self.out = Vec::new();
            }
        }
    }

    /// Frees what an idle client does not need.
    pub(crate) fn release_spare(&mut self) {
        self.is_busy = false;
        if self.in_flight.is_empty() {
            self.in_flight = VecDeque::new();
        }
        if self.requests.is_empty() {
            self.requests = Vec::new();
        }
        self.received.shrink_to_fit();
    }

    /// Ends the network connection on this side: nothing is sent or received any more.
    pub(crate) fn give_up(&mut self) {
        if self.phase == Phase::EndingSession {
            self.received = PacketIdSet::new();
        }
        self.phase = Phase::Offline;
        self.out = Vec::new();
        self.partial = Vec::new();
    }

    /// Appends a packet to what is sent.
    #[inline]
    pub(crate) fn push(
        &mut self,
        encode: impl FnOnce(ProtocolVersion, &mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> Result<(), CommandError> {
        let start = self.out.len();
        let encoded = encode(self.version, &mut self.out);
        let bytes = self.out.len() - start;
        // [MQTT-3.2.2-15] never larger than the server's Maximum Packet Size.
        if encoded.is_ok() && bytes <= self.server.maximum_packet_size as usize {
            return Ok(());
        }
        self.take_back(start);
        encoded?;
        Err(CommandError::PacketTooLarge {
            bytes,
            maximum: self.server.maximum_packet_size,
        })
    }

    /// Removes the last packet that was appended.
    #[cold]
    fn take_back(&mut self, start: usize) {
        self.out.truncate(start);
        if start == 0 {
            self.out = Vec::new();
        }
    }

    /// Sends PINGREQ, whose answer is not waited for.
    ///
    /// # Errors
    /// The client is not connected.
    pub fn ping(&mut self) -> Result<(), CommandError> {
        self.check_connected()?;
        self.push(|version, out| Packet::PingReq.encode(version, out))?;
        self.release_spare();
        Ok(())
    }

    pub(crate) fn check_connected(&self) -> Result<(), CommandError> {
        if self.phase == Phase::Connected {
            Ok(())
        } else {
            Err(CommandError::NotConnected)
        }
    }

    /// The identifier that the next packet takes; `None`: none is free.
    #[inline]
    pub(crate) fn free_id(&self) -> Option<PacketId> {
        let mut id = self.next_id;
        // [MQTT-2.2.1-3] [MQTT3-2.3.1-2] one that is not in use. There are fewer requests than identifiers.
        while self.requests.iter().any(|request| request.packet_id == id) {
            id = id.next();
        }
        // Identifiers are given in turn, so that this one is in use only if the oldest message has it.
        let oldest = self.in_flight.front().map(|sent| sent.packet_id);
        (oldest != Some(id)).then_some(id)
    }
}
