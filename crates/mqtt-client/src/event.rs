//! What a client has to tell.

use mqtt_proto::{
    ConnAck, Disconnect, PacketId, PacketType, Publish, ReasonCode, SubAck, UnsubAck,
};

/// What came of a packet of the server. `M` is what the application knows a message by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a, M> {
    /// The server accepts the network connection.
    Connected(ConnAck<'a>),
    /// The server refuses it: it is over.
    Refused(ConnAck<'a>),
    /// The server ends the network connection (5.0).
    Disconnected(Disconnect<'a>),
    /// An application message.
    Message(Incoming<'a>),
    /// A message of QoS 2 that was received before and is not released: not to be handled again.
    Duplicate(Incoming<'a>),
    /// The server releases a message of QoS 2.
    Released {
        /// Of the message.
        packet_id: PacketId,
        /// PUBCOMP, if the application acknowledges.
        answer: Option<Answer>,
    },
    /// The server has a message of QoS 2, which is not acknowledged to the end yet.
    Received(M),
    /// The server has acknowledged a message to the end, or refused it.
    Acknowledged(Acknowledgement<'a, M>),
    /// The server had received a message of QoS 2 and has lost the session since: nothing more comes of it.
    Discarded(M),
    /// To [`Client::subscribe`](crate::Client::subscribe).
    Subscribed(SubAck<'a>),
    /// To [`Client::unsubscribe`](crate::Client::unsubscribe).
    Unsubscribed(UnsubAck<'a>),
    /// The server has answered PINGREQ.
    PingResp,
    /// An acknowledgement for which nothing waits.
    Stray {
        /// Its type.
        packet_type: PacketType,
        /// Its packet identifier.
        packet_id: PacketId,
    },
}

/// A message of the server, and how to acknowledge it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming<'a> {
    /// The packet.
    pub publish: Publish<'a>,
    /// PUBACK or PUBREC, if there is one and the application acknowledges.
    pub answer: Option<Answer>,
}

/// The end of a message that was published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledgement<'a, M> {
    /// The message.
    pub message: M,
    /// PUBACK, PUBREC (which then refuses it) or PUBCOMP.
    pub packet_type: PacketType,
    /// Success, or why not. PUBCOMP may say that the packet identifier is not found after PUBREL was sent again: the
    /// server has the message.
    pub reason: ReasonCode,
    /// For people to read.
    pub reason_string: Option<&'a str>,
}

/// An acknowledgement that the application gives by [`Client::answer`](crate::Client::answer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub(crate) kind: AnswerKind,
    pub(crate) packet_id: PacketId,
    /// Number of the network connection.
    pub(crate) connection: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnswerKind {
    /// By PUBACK.
    Acknowledge,
    /// By PUBREC.
    Receive,
    /// By PUBCOMP, with the reason code that belongs there.
    Complete(ReasonCode),
}

impl Answer {
    /// Of the packet that is acknowledged.
    #[must_use]
    pub const fn packet_id(self) -> PacketId {
        self.packet_id
    }

    /// PUBACK, PUBREC or PUBCOMP.
    #[must_use]
    pub const fn packet_type(self) -> PacketType {
        match self.kind {
            AnswerKind::Acknowledge => PacketType::PubAck,
            AnswerKind::Receive => PacketType::PubRec,
            AnswerKind::Complete(_) => PacketType::PubComp,
        }
    }
}
