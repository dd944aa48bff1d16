//! An application message, and one delivery of it to one session.
//!
//! Invariant: the bytes of a message exist once, whatever the number of sessions that queue it; a
//! session holds references. Deliberately absent: who the receivers are.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS};

use crate::Timestamp;

/// An application message as the server holds it, shared by all receivers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApplicationMessage {
    /// Topic name, forwarded properties and payload.
    pub body: MessageBody,
    /// The QoS it was published with.
    pub qos: QoS,
    /// Whether it was published with RETAIN 1.
    pub retain: bool,
    /// The publishing session's key, for No Local and for holding back its publisher; 0: the server
    /// itself. Opaque here.
    pub publisher: u64,
    /// 32 bits of a hash of the publisher's client identifier, for shared groups that keep one
    /// publisher's messages with one member; 0: of nobody, or not known any more. Opaque here.
    pub publisher_hash: u32,
    /// The end of its Message Expiry Interval. [`Session::handle_packet`](crate::Session::handle_packet) counts from the
    /// time that it is given; whoever lets messages expire by another clock, such as that of a cluster, converts it, and
    /// gives `deliver` and `poll_transmit` the time of that one.
    pub expires_at: Option<Timestamp>,
    /// When the server took up its PUBLISH, if it is measured how long it takes from there. Known to the process that
    /// took it up only.
    pub taken_up: Option<TakenUp>,
}

/// When the server took up a PUBLISH: µs of a clock that is not set back, never 0. Opaque here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TakenUp(pub NonZeroU64);

impl ApplicationMessage {
    /// Whether the Message Expiry Interval has passed.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// The Message Expiry Interval to forward: what is left of it in seconds, to the nearest, and at least 1, because
    /// what has not expired never says 0. Clocks of nodes that differ by some milliseconds make it no longer than it was.
    pub(crate) fn remaining_expiry(&self, now: Timestamp) -> Option<u32> {
        let left_ms = self.expires_at?.saturating_since(now);
        let nearest = left_ms.saturating_add(500) / 1_000;
        let left = nearest.max(u64::from(left_ms > 0));
        Some(u32::try_from(left).unwrap_or(u32::MAX))
    }
}

/// The Subscription Identifiers that go with one delivery.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SubscriptionIdSet {
    /// No matching subscription has one.
    #[default]
    None,
    /// One.
    One(u32),
    /// Two or more. A thin pointer: a delivery stays within 32 bytes.
    Many(Arc<Vec<u32>>),
}

impl SubscriptionIdSet {
    /// The identifiers in the order they were added.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }

    /// Adds an identifier.
    pub fn push(&mut self, id: u32) {
        match self {
            Self::None => *self = Self::One(id),
            Self::One(first) => *self = Self::Many(Arc::new(vec![*first, id])),
            Self::Many(ids) => Arc::make_mut(ids).push(id),
        }
    }
}

impl FromIterator<u32> for SubscriptionIdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut set = Self::None;
        ids.into_iter().for_each(|id| set.push(id));
        set
    }
}

/// One message for one session.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message.
    pub message: Arc<ApplicationMessage>,
    /// The QoS to deliver with: the lesser of the published and the granted one.
    pub qos: QoS,
    /// The RETAIN flag on the wire.
    pub retain: bool,
    /// Identifiers of the subscriptions that matched.
    pub subscription_ids: SubscriptionIdSet,
    /// The shared group that chose this session.
    pub group: Option<NonZeroU32>,
}

impl Delivery {
    pub(crate) fn dropped(self, reason: DropReason) -> Delivered {
        let message = self.message;
        Delivered::Dropped(Dropped { message, reason })
    }

    /// Bytes accounted for one waiting or in-flight delivery: the reference and what it refers to.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (size_of::<Self>() + size_of::<ApplicationMessage>() + self.message.body.heap_len()) as u64
    }
}

/// A message that will not reach this client, with the reason.
#[derive(Clone, Debug)]
pub struct Dropped {
    /// The message.
    pub message: Arc<ApplicationMessage>,
    /// Why.
    pub reason: DropReason,
}

/// Why a message was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// The session's queue had as many messages as it may.
    QueueFullMessages,
    /// The session's queue had as many bytes as it may.
    QueueFullBytes,
    /// The Message Expiry Interval passed before delivery began.
    Expired,
    /// The packet is larger than the client's Maximum Packet Size.
    PacketTooLarge,
    /// QoS 0 for a client that is offline or went offline, and nobody stores it.
    OfflineQos0,
    /// The session ended before the client acknowledged it.
    SessionEnded,
    /// Inbound: the topic name is longer or deeper than the policy allows.
    TopicLimit,
    /// Inbound: the payload is not the UTF-8 that its Payload Format Indicator promises.
    PayloadFormatInvalid,
    /// It was queued for longer than messages of the session's class are kept.
    RetentionAge,
    /// The queues of the session's class, or all queues of the node, had more bytes than they may.
    RetentionBytes,
    /// The disk had less space left than queues of the session's class leave free.
    DiskHighWater,
    /// An operator has emptied the queue that it waited in.
    Purged,
}

impl DropReason {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 12] = [
        Self::QueueFullMessages,
        Self::QueueFullBytes,
        Self::Expired,
        Self::PacketTooLarge,
        Self::OfflineQos0,
        Self::SessionEnded,
        Self::TopicLimit,
        Self::PayloadFormatInvalid,
        Self::RetentionAge,
        Self::RetentionBytes,
        Self::DiskHighWater,
        Self::Purged,
    ];

    /// The reason's name in metrics and in the list of recent drops.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFullMessages => "queue_full_messages",
            Self::QueueFullBytes => "queue_full_bytes",
            Self::Expired => "expired",
            Self::PacketTooLarge => "packet_too_large",
            Self::OfflineQos0 => "offline_qos0",
            Self::SessionEnded => "session_ended",
            Self::TopicLimit => "topic_limit",
            Self::PayloadFormatInvalid => "payload_format_invalid",
            Self::RetentionAge => "retention_age",
            Self::RetentionBytes => "retention_bytes",
            Self::DiskHighWater => "disk_high_water",
            Self::Purged => "purged",
        }
    }
}

/// What became of a delivery that was handed to a session.
#[derive(Clone, Debug)]
#[must_use = "a drop that nobody counts is a silent one"]
pub enum Delivered {
    /// It waits for transmission.
    Queued,
    /// It waits for transmission; these older ones made room (oldest first).
    QueuedDropping(Vec<Dropped>),
    /// It was dropped.
    Dropped(Dropped),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_an_expiry_interval_is_no_longer_than_it_was() {
        let message = ApplicationMessage {
            body: MessageBody::new("t", b""),
            qos: QoS::AtMostOnce,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: Some(Timestamp(60_000)),
            taken_up: None,
        };
        for (now, left) in [
            (0, 60),
            (499, 60),
            (501, 59),
            (59_000, 1),
            (59_999, 1),
            (60_000, 0),
        ] {
            assert_eq!(
                message.remaining_expiry(Timestamp(now)),
                Some(left),
                "{now}"
            );
        }
        // At a node whose clock is a little behind.
        let behind = ApplicationMessage {
            expires_at: Some(Timestamp(60_499)),
            ..message
        };
        assert_eq!(behind.remaining_expiry(Timestamp(0)), Some(60));
    }
}
