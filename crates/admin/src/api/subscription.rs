//! Subscriptions and shared groups.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
}
