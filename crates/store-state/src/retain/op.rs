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
}

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
