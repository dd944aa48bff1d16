//! What the node tells the process beside MQTT.

use serde::{Deserialize, Serialize};

use crate::transfer::Transfer;

/// From the node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// The first one: what the process is for.
    Begin {
        /// The outlet, or the inlet.
        transfer: Transfer,
        /// Whether it begins paused.
        is_paused: bool,
        /// What is known of rules that did not end.
        caution: Caution,
    },
    /// A pause begins or ends.
    Pause(bool),
    /// End in order.
    Stop,
}

/// What the node knows of processes before that have ended on a message.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Caution {
    /// The process tells before each evaluation for which message it is.
    pub is_careful: bool,
    /// Positions of messages that are refused without an evaluation.
    pub refuse: Vec<String>,
}
