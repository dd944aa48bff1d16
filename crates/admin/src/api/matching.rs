//! Who would get a message.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ClientState, KnownBy, Verdict};
use crate::cluster::NodeId;
use crate::page::Missing;

/// A message that is not published.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchRequest {
    /// The topic that it would be published to.
    pub topic: String,
    /// Its QoS.
    #[serde(default)]
    #[schema(value_type = u8)]
    pub qos: u8,
    /// Who would publish it: it does not get the message by subscriptions with No Local.
    #[serde(default)]
    pub publisher: Option<String>,
    /// The user that the publisher has authenticated as; without it: that of its connection or session, or nobody.
    #[serde(default)]
    pub publisher_user: Option<String>,
    /// Clients of which the answer is to say why they do not get it, at most 100.
    #[serde(default)]
    pub clients: Vec<String>,
    /// The most receivers that are listed, 1 to 500; counts go on.
    #[serde(default = "default_limit")]
    #[schema(value_type = u16)]
    pub limit: u16,
}

fn default_limit() -> u16 {
    crate::page::DEFAULT_LIMIT
}

/// Who would get a message now. A queue may drain, and a client go, before a real message comes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Match {
    /// The topic.
    pub topic: String,
    /// The QoS.
    #[schema(value_type = u8)]
    pub qos: u8,
    /// Who would publish, if the question said.
    pub publisher: Option<Publisher>,
    /// Who would get it, or have it dropped; one for each group that is shared.
    pub receivers: Vec<Receiver>,
    /// Of the clients asked about, those that do not get it, and why.
    pub not: Vec<NotReached>,
    /// Of all that were looked at.
    pub counts: MatchCounts,
    /// Whether all were looked at.
    pub counted_all: bool,
    /// What is not in this answer.
    pub partial: Vec<Missing>,
}

/// Who would publish.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Publisher {
    /// The client.
    pub client_id: String,
    /// The user that was judged by; `null`: none.
    pub user: Option<String>,
    /// By what the user is known; `null`: nobody could say whether it may.
    pub known_by: Option<KnownBy>,
    /// Whether it may; `null`: nobody could say.
    pub verdict: Option<Verdict>,
}

/// Who would get a message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Receiver {
    /// The client; `null` for a group.
    pub client_id: Option<String>,
    /// The shared group, of which one member gets the message.
    pub group: Option<String>,
    /// The filter that matches, the first if there are several.
    pub filter: String,
    /// The QoS that the message would have.
    #[schema(value_type = u8)]
    pub qos: u8,
    /// The node that the client is connected to.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
    /// Whether the client is connected.
    pub state: Option<ClientState>,
    /// What would happen.
    pub outcome: Outcome,
    /// Why it would be dropped.
    pub reason: Option<String>,
    /// The same for people.
    pub detail: Option<String>,
    /// What denies it to the client, if a rule does.
    pub rule: Option<Verdict>,
    /// Sessions of the group.
    pub members: Option<u64>,
}

/// What would happen to a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It would be sent.
    Delivered,
    /// It would wait for the client.
    Queued,
    /// It would not.
    Dropped,
    /// One member of the group would get it.
    OneOf,
}

/// Why a client does not get a message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NotReached {
    /// Which.
    pub client_id: String,
    /// `no_session`, `no_filter` or `no_local`.
    pub reason: String,
    /// The filter of the client that is closest to the topic.
    pub closest_filter: Option<String>,
    /// The same for people.
    pub detail: String,
}

/// How many would get a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MatchCounts {
    /// Connected clients.
    pub delivered: u64,
    /// Absent ones.
    pub queued: u64,
    /// Those that would not.
    pub dropped: u64,
    /// Shared groups.
    pub groups: u64,
}
