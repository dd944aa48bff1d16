//! Subscriptions and shared groups.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ClientState;
use crate::cluster::NodeId;

/// A subscription.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionRow {
    /// The topic filter, without what makes it a shared one.
    pub filter: String,
    /// The same as it was given at SUBSCRIBE.
    pub given_filter: String,
    /// Whose it is.
    pub client_id: String,
    /// The name of the shared group, empty for `$queue/`; `null`: it is not shared.
    pub shared: Option<String>,
    /// The granted QoS.
    #[schema(value_type = u8)]
    pub qos: u8,
    /// Whether what the client publishes itself is left out.
    pub no_local: bool,
    /// Whether RETAIN is kept as it was published.
    pub retain_as_published: bool,
    /// The subscription identifier of MQTT 5.0.
    #[schema(value_type = Option<u32>)]
    pub identifier: Option<u32>,
    /// The node that the client is connected to; `null`: it is away, or not known.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
}

/// A subscription that is to be made for a client, or to replace that with the same filter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSubscription {
    /// The topic filter, with `$share/` and the group if it is to be a shared one.
    pub filter: String,
    /// The most that messages are delivered with: 0, 1 or 2.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 2)]
    pub qos: u8,
    /// Leave out what the client publishes itself.
    #[serde(default)]
    pub no_local: bool,
    /// Keep RETAIN as it was published.
    #[serde(default)]
    pub retain_as_published: bool,
    /// Retained messages are sent: 0: now; 1: now, if the subscription is new; 2: not.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 2)]
    pub retain_handling: u8,
    /// The subscription identifier of MQTT 5.0.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 268_435_455)]
    pub identifier: Option<u32>,
}

/// What became of a subscription that was made or removed for a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionChanged {
    /// Whose it is.
    pub client_id: String,
    /// The filter as it was given.
    pub given_filter: String,
    /// The granted QoS; `null`: it was removed.
    #[schema(value_type = Option<u8>)]
    pub qos: Option<u8>,
    /// `connected`, or `away`: then retained messages come when the client connects again.
    pub state: ClientState,
    /// The node that the client is connected to.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
}

/// A shared group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SharedGroupRow {
    /// The subscription that makes sessions members, as it is given at SUBSCRIBE.
    pub given_filter: String,
    /// Its name.
    pub group: String,
    /// Its topic filter.
    pub filter: String,
    /// How many sessions are in it.
    pub members: u64,
    /// How many of them are connected.
    pub online: u64,
    /// Messages that its members have not acknowledged: they wait in the members' queues or are in flight. Those that a member has by other
    /// subscriptions are among them. `null`: the groups of the page have more members than a node looks at, or a node runs a
    /// version that does not count them.
    #[serde(default)]
    pub lag: Option<u64>,
}

/// A member of a shared group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GroupMember {
    /// The client identifier.
    pub client_id: String,
    /// Whether its session outlives its connection.
    pub durable: bool,
    /// Where in its life it is; `null`: no node that has answered knows it.
    pub state: Option<ClientState>,
    /// The node that the client is connected to; `null`: it is away, or not known.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
    /// Messages that the client has not acknowledged, by all its subscriptions: they wait in its queue or are in flight. `null`: no node that
    /// has answered knows it.
    pub waiting: Option<u64>,
    /// Those of them that are in flight; `null`: the client is away, or its node has not answered.
    pub in_flight: Option<u64>,
}
