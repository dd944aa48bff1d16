//! What a retain shard can be asked, and what it answers.

use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use serde::{Deserialize, Serialize};

use crate::inbox::Origin;
use crate::{NameHash, wire};

/// A request to a retain shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RetainOp {
    /// Keeps the message as the one of its topic, or removes that if the payload is empty
    /// [MQTT-3.3.1-5] [MQTT-3.3.1-6].
    Set {
        /// The message.
        #[serde(with = "wire::message")]
        message: Arc<ApplicationMessage>,
    },
    /// Removes messages that have expired by the time of the batch.
    Expire,
    /// As `Set`, of a will; said again it changes nothing.
    SetWill {
        /// The will.
        #[serde(with = "wire::message")]
        message: Arc<ApplicationMessage>,
        /// Makes it happen once.
        origin: Origin,
    },
    /// As `Set`, unless a later connection of the publisher has sent a retained message for a topic of the same slot
    /// within the last minute.
    SetFrom {
        /// The message.
        #[serde(with = "wire::message")]
        message: Arc<ApplicationMessage>,
        /// The publisher.
        publisher: PublisherHash,
        /// The connection that it came by.
        connection: ConnectionNumber,
    },
    /// Removes messages that are not kept any longer, each if it is still the one that was looked at. The first one, which
    /// may remove nothing, says from when messages count of which it is not known since when they are retained. Only logs of
    /// levels that [age retained messages](crate::Level::ages_retained) have it.
    Remove {
        /// The messages: few, since all of them are removed in one part.
        messages: Vec<RetainedAt>,
        /// Why.
        end: RetainedEnd,
    },
}

/// A retained message that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RetainedAt {
    /// Its topic.
    pub topic: Box<str>,
    /// When it was retained.
    pub since: RetainedSince,
}

/// The time of the batch that retained a message, Unix time in ms; 0: at a level that did not keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct RetainedSince(pub u64);

/// Why a retained message was removed, which no client has asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum RetainedEnd {
    /// Its Message Expiry Interval has passed.
    Expiry,
    /// It is older than its rule keeps messages.
    Age,
    /// Its rule has more messages than it may have.
    Messages,
    /// The messages of its rule have more bytes than they may have.
    Bytes,
}

impl RetainedEnd {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Expiry, Self::Age, Self::Messages, Self::Bytes];

    /// A word for it, in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Expiry => "expiry",
            Self::Age => "age",
            Self::Messages => "messages",
            Self::Bytes => "bytes",
        }
    }
}

/// Who is told what retain shards do beside their replies.
pub trait RetainOutlet {
    /// A message was removed, which no client has asked for.
    fn removed(&mut self, _end: RetainedEnd) {}
}

impl RetainOutlet for () {}

/// What retain shards know a publisher by: the hash of its client identifier, by the seed of the cluster. The identifier
/// itself may be a thousand times as long as the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PublisherHash(pub u64);

/// What the directory of clients gives a connection: later ones of the same client have higher numbers, on whichever
/// node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ConnectionNumber(pub u64);

/// Who has a message retained.
#[derive(Clone, Debug, Default)]
pub enum Writer<'a> {
    /// Nobody who could send it twice, or late.
    #[default]
    Anybody,
    /// The broker, a will: it is kept once.
    Will(Origin),
    /// A client. What it has sent by a later connection is not replaced.
    Client {
        /// Its client identifier.
        publisher: &'a str,
        /// Its connection.
        connection: ConnectionNumber,
    },
}

impl RetainOp {
    /// The request to retain a message. `hash`: of the cluster.
    #[must_use]
    pub fn set(message: Arc<ApplicationMessage>, writer: Writer<'_>, hash: NameHash) -> Self {
        match writer {
            Writer::Anybody => Self::Set { message },
            Writer::Will(origin) => Self::SetWill { message, origin },
            Writer::Client {
                publisher,
                connection,
            } => Self::SetFrom {
                message,
                publisher: PublisherHash(hash.of(publisher)),
                connection,
            },
        }
    }
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RetainReply {
    /// Done.
    Done,
    /// The shard has as many messages or bytes as it may; nothing was changed.
    Full,
    /// A later connection of the publisher has sent a retained message; nothing was changed.
    Fenced,
}
