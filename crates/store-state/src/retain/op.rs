//! What a retain shard can be asked, and what it answers.

use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use serde::{Deserialize, Serialize};

use crate::inbox::Origin;
use crate::wire;

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
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RetainReply {
    /// Done.
    Done,
    /// The shard has as many messages or bytes as it may; nothing was changed.
    Full,
}
