//! What nodes are configured with.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cluster::NodeId;

/// An option as one node runs with it, and the nodes where it is another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SettingRow {
    /// Its full name, such as `limits.session.queueMessages`.
    pub key: String,
    /// What the node runs with.
    #[serde(flatten)]
    pub setting: Setting,
    /// Whether SIGHUP applies a new value; otherwise it counts from the next start on.
    pub live: bool,
    /// Nodes that run with another value.
    pub differs: Vec<SettingElsewhere>,
}

/// The value of an option.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    /// YAML on one line. `…` stands for passwords and queries of URLs and, for viewers, for paths of files. `null`: it is unset.
    pub value: Option<String>,
    /// Who set it: `default`, `file`, `environment` or `argument`.
    pub origin: String,
    /// Where exactly: file and line, the variable, or the option of the command line. For viewers a file has no folder.
    pub place: Option<String>,
    /// The value that counts from the next start on, if it is another.
    pub at_restart: Option<String>,
}

/// The value of an option on another node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SettingElsewhere {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// What it runs with.
    #[serde(flatten)]
    pub setting: Setting,
}
