//! What the process of an outlet and its node say to each other, in lines of JSON.

use serde::{Deserialize, Serialize};

use crate::definition::Definition;

/// From the node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// The first one: what the process is for.
    Begin {
        /// The outlet.
        definition: Box<Definition>,
        /// Whether it begins paused.
        is_paused: bool,
    },
    /// A pause begins or ends.
    Pause(bool),
    /// End in order.
    Stop,
}

/// What an outlet does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// The process begins, or waits for its next beginning.
    #[default]
    Starting,
    /// The target is being opened.
    Opening,
    /// Messages go to the target, or would if there were any.
    Running,
    /// An attempt has failed; the next one is waited for.
    Retrying,
    /// Somebody has paused it.
    Paused,
    /// Another process has the outlet.
    Fenced,
}

impl Doing {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Starting,
        Self::Opening,
        Self::Running,
        Self::Retrying,
        Self::Paused,
        Self::Fenced,
    ];

    /// As in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Opening => "opening",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Paused => "paused",
            Self::Fenced => "fenced",
        }
    }
}

/// From the process, each second and when it ends. Counts are since the start of the process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// What it does.
    pub doing: Doing,
    /// Number of the present attempt, from 1; 0: none is made.
    pub attempt: u32,
    /// Why the last attempt failed; `None`: it did not.
    pub last_error: Option<String>,
    /// Messages that the target has taken.
    pub delivered: u64,
    /// Messages that the target had already.
    pub left_out: u64,
    /// Attempts that failed.
    pub retries: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Dead letters that nobody subscribes to.
    pub unclaimed: u64,
    /// Messages that were refused and dropped, as there is no topic for dead letters.
    pub refused: u64,
    /// Messages that were dropped as they went in a circle of brokers; `delivered` counts them, too.
    pub looped: u64,
    /// Messages in the memory of the process.
    pub waiting_messages: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// The position of the last message that the target has taken.
    pub position: Option<String>,
    /// When it was taken, in Unix time in ms.
    pub delivered_at_ms: Option<u64>,
    /// Time that batches were with the target, in µs, and how many there were.
    pub delivering_us: u64,
    /// See above.
    pub batches: u64,
}
