//! Control packets of MQTT 3.1, 3.1.1 and 5.0: bytes ↔ types.
//!
//! Purpose: decode a frame without copying (every packet type borrows from the frame), encode any
//! packet, and hold the bytes of an application message once for all its receivers
//! ([`MessageBody`]).
//!
//! Invariant: decoding never panics and never allocates in proportion to a length that a peer merely
//! announced. Whatever decodes, encodes to a frame that decodes to the same value.
//!
//! Deliberately absent: sockets, clocks, sessions, limits of policy (a topic may have 65,535 levels
//! here; who finds that too many says so elsewhere).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod basic;
mod codec;
mod error;
mod frame;
mod message_body;
mod packet;
mod packet_id_set;
mod properties;
mod reason;
mod topic;

pub use basic::{PacketId, ProtocolVersion, QoS};
pub use error::{DecodeError, EncodeError};
pub use frame::{Frame, MAX_REMAINING_LENGTH, PacketType, peek_frame};
pub use message_body::{DeliveryHeader, MessageBody};
pub use packet::{
    Auth, ConnAck, Connect, Disconnect, LastWill, Packet, PubAck, PubComp, PubRec, PubRel, Publish,
    ReasonCodes, RetainHandling, SubAck, Subscribe, SubscribeFilters, SubscribeFiltersIter,
    SubscriptionOptions, UnsubAck, Unsubscribe, UnsubscribeFilters, UnsubscribeFiltersIter,
};
pub use packet_id_set::PacketIdSet;
pub use properties::{
    AckProperties, AuthProperties, ConnAckProperties, ConnectProperties, DisconnectProperties,
    PublishProperties, SubscribeProperties, SubscriptionIds, UnsubscribeProperties, UserProperties,
    WillProperties,
};
pub use reason::{ConnectReturnCode, ReasonCode};
pub use topic::{
    FilterError, SharedKind, SubscriptionFilter, TopicError, filter_matches, validate_topic_filter,
    validate_topic_name,
};
