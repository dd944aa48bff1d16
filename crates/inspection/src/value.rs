//! What questions and answers are made of: nodes, stores, states of clients, moments and large numbers.

use std::fmt;
use std::num::ParseIntError;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A node's identifier; in JSON 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(pub u64);

impl TryFrom<String> for NodeId {
    type Error = ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

impl From<NodeId> for String {
    fn from(node: NodeId) -> Self {
        node.to_string()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One of the three stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreName {
    /// Who owns each client identifier.
    Session,
    /// Queues and subscriptions of durable sessions.
    Inbox,
    /// Retained messages.
    Retain,
    /// Users, groups and rules that change while the cluster runs. Nodes name it that run a version which has it.
    Control,
}

/// Where a client is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientState {
    /// Its CONNECT is not answered.
    Connecting,
    /// It is connected.
    Connected,
    /// Its connection ends.
    Closing,
    /// It has a session, and no connection.
    Away,
}

/// A moment: RFC 3339 in UTC with milliseconds. What a peer sends is taken as it is, and is not checked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct At(pub String);

impl At {
    /// Of ms of Unix time.
    #[must_use]
    pub fn unix_ms(ms: u64) -> Self {
        // The last moment that RFC 3339 can say.
        const LAST_MS: u64 = 253_402_300_799_999;
        let time = UNIX_EPOCH + Duration::from_millis(ms.min(LAST_MS));
        Self(humantime::format_rfc3339_millis(time).to_string())
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number that can exceed 2^53, as decimal text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BigNumber(pub String);

impl From<u64> for BigNumber {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

/// A number of what its field names, below 2^53.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub u64);

/// A moment, in ms of Unix time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

/// The most rows of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Limit(pub u16);

/// A place in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

/// A shard of one of the stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardName {
    /// The store.
    pub store: StoreName,
    /// The number of the shard in it.
    pub shard: u64,
}
