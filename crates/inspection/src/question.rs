//! What a node asks another one.

use serde::{Deserialize, Serialize};

use crate::{ClientState, EventsQuestion, MessagesQuestion, NodeId, ShardName, UnixMs};

/// A question to a node. What it does not know it answers with [`Answer::NotKnown`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How it is.
    Health,
    /// What the shards hold that it leads.
    Shards,
    /// Its listeners.
    Listeners,
    /// A part of the list of clients.
    Clients(ClientsQuestion),
    /// What it knows of a client.
    Client {
        /// The client.
        client_id: String,
    },
    /// What waits for these clients, of those whose inbox shards it leads.
    Queues {
        /// The clients.
        client_ids: Vec<String>,
    },
    /// End a client.
    End {
        /// The client.
        client_id: String,
        /// Its session, too.
        session: bool,
    },
    /// Change a subscription of a client.
    ChangeSubscription(ChangeQuestion),
    /// The subscriptions of a client behind a filter.
    SubscriptionsOf {
        /// The client.
        client_id: String,
        /// The filter behind which the part begins.
        after: String,
        /// The most rows.
        limit: u16,
    },
    /// A part of the list of shared groups.
    SharedGroups {
        /// The filter behind which the part begins.
        after: String,
        /// The most rows.
        limit: u16,
    },
    /// Who here would get a message.
    Match {
        /// The topic name.
        topic: String,
        /// The QoS of the message.
        qos: u8,
        /// Who would publish it.
        publisher: Option<String>,
        /// The most rows.
        limit: u16,
    },
    /// Dropped messages, the latest first.
    Drops(DropsQuestion),
    /// How many messages it has dropped, by reason.
    DropTotals,
    /// What it is configured with, of the options whose names begin so.
    Settings {
        /// The beginning of the names.
        prefix: String,
    },
    /// Counts.
    Stats,
    /// What it has counted since then, or in the last hour.
    History {
        /// Only samples that ended later.
        since_ms: Option<UnixMs>,
    },
    /// What a shard has cost on it in the last hour.
    ShardHistory {
        /// Which shard.
        shard: ShardName,
        /// Only samples that ended later.
        since_ms: Option<UnixMs>,
    },
    /// What has happened on it.
    Events(EventsQuestion),
    /// Messages that wait or are kept, who is busy, and what goes on inside its process.
    Messages(MessagesQuestion),
    /// A session of somebody who has logged in there.
    ApiSession(SessionQuestion),
    /// Whether a client may do something.
    Acl(AclQuestion),
    /// A change of the node itself.
    Change(NodeCommand),
}

/// Which clients.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClientsQuestion {
    /// What their identifiers begin with.
    pub prefix: String,
    /// The identifier behind which the part begins.
    pub after: Option<String>,
    /// The most rows.
    pub limit: u16,
    /// Their user.
    #[serde(default)]
    pub user: Option<String>,
    /// The address of their connection, without the port.
    #[serde(default)]
    pub address: Option<String>,
    /// The node that they are connected to.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// Where in their life they are.
    #[serde(default)]
    pub state: Option<ClientState>,
    /// Whether their sessions outlive their connections.
    #[serde(default)]
    pub durable: Option<bool>,
    /// Only clients that were held within the last minute, those that were held longest first.
    #[serde(default)]
    pub longest_held: bool,
}

/// Which drops.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DropsQuestion {
    /// The most rows.
    pub limit: u16,
    /// Only those before this place.
    #[serde(default)]
    pub before: Option<String>,
    /// Why they were dropped.
    #[serde(default)]
    pub reason: Option<String>,
    /// Of which client.
    #[serde(default)]
    pub client: Option<String>,
    /// The topic filter that their topics match.
    #[serde(default)]
    pub topic: Option<String>,
    /// Not before, in ms of Unix time.
    #[serde(default)]
    pub since_ms: Option<u64>,
}

/// What is to become of one subscription of a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChangeQuestion {
    /// The client.
    pub client_id: String,
    /// Its session is known, with its user, by whose rules it is judged while it is away.
    pub knows_session: bool,
    /// The user of its session.
    pub user: Option<String>,
    /// What is to be done.
    pub change: AskedChange,
}

/// That it is made, or removed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskedChange {
    /// It is made.
    Subscribe(NewSubscription),
    /// It is removed.
    Unsubscribe {
        /// The topic filter as it was given at SUBSCRIBE.
        filter: String,
    },
}

impl AskedChange {
    /// The topic filter that it is about, as it is given at SUBSCRIBE.
    #[must_use]
    pub fn filter(&self) -> &str {
        match self {
            Self::Subscribe(new) => &new.filter,
            Self::Unsubscribe { filter } => filter,
        }
    }
}

/// A subscription that is to be made for a client, or to replace that with the same filter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewSubscription {
    /// The topic filter, with `$share/` and the group if it is to be a shared one.
    pub filter: String,
    /// The most that messages are delivered with: 0, 1 or 2.
    #[serde(default)]
    pub qos: u8,
    /// Leave out what the client publishes itself.
    #[serde(default)]
    pub no_local: bool,
    /// Keep RETAIN as it was published.
    #[serde(default)]
    pub retain_as_published: bool,
    /// Retained messages are sent: 0: now; 1: now, if the subscription is new; 2: not.
    #[serde(default)]
    pub retain_handling: u8,
    /// The subscription identifier of MQTT 5.0.
    #[serde(default)]
    pub identifier: Option<u32>,
}

/// What is asked about a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AclQuestion {
    /// The client. If it is connected, and neither user nor address is given, what came with its login counts too.
    pub client_id: String,
    /// `publish`, `retain`, `subscribe` or `receive`.
    pub action: String,
    /// The topic; for `subscribe` the topic filter.
    pub topic: String,
    /// The user that it has authenticated as; without it: the one of its session, or nobody.
    #[serde(default)]
    pub user: Option<String>,
    /// The address that it connects from.
    #[serde(default)]
    pub address: Option<String>,
}

/// What is asked of the node where a session began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionQuestion {
    /// Whether it goes on.
    Find {
        /// Which.
        hash: TokenHash,
        /// It is used now.
        is_use: bool,
    },
    /// Its end.
    End {
        /// Which.
        hash: TokenHash,
    },
}

/// What a session is found by: SHA-256 of its token in base64url.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenHash(pub String);

/// A change of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeCommand {
    /// Send its clients elsewhere and give up leading shards.
    Drain,
    /// Serve clients again.
    EndDrain,
    /// Leave the cluster for ever.
    Leave,
    /// Be taken out of the cluster for ever, by the others.
    Evict {
        /// Also if shards lose their majority by it.
        force: bool,
    },
}
