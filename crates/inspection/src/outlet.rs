//! What a node says of the outlets that are at it.

use serde::{Deserialize, Serialize};

use crate::{Amount, At};

/// What an outlet does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutletState {
    /// Its process begins, or waits for its next beginning.
    Starting,
    /// The target is being opened.
    Opening,
    /// Messages go to the target as they come.
    Running,
    /// An attempt has failed; the next one is waited for.
    Retrying,
    /// Somebody has paused it.
    Paused,
    /// Another process has it.
    Fenced,
    /// It is at another node, or does something that this version has no name for.
    #[serde(other)]
    Elsewhere,
}

/// An outlet that is at the node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutletHere {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: OutletState,
    /// Whether somebody has paused it.
    pub is_paused: bool,
    /// Its figures.
    pub figures: OutletFigures,
}

/// The figures of an outlet. Counts are since the node started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutletFigures {
    /// Messages that wait in the queue of its session; `None`: there is no session yet.
    pub lag_messages: Option<Amount>,
    /// Their bytes.
    pub lag_bytes: Option<Amount>,
    /// When the oldest one came.
    pub oldest_at: Option<At>,
    /// Messages that the target has taken.
    pub delivered: Amount,
    /// Messages that the target had already.
    pub left_out: Amount,
    /// Attempts that failed.
    pub retries: Amount,
    /// Messages that became dead letters.
    pub dead: Amount,
    /// Messages that the rules did not let go on.
    pub filtered: Amount,
    /// Messages that were dropped, by reasons.
    pub dropped: OutletDrops,
    /// Messages in the memory of its process.
    pub waiting_messages: Amount,
    /// Number of the present attempt, from 1; 0: none is made.
    pub attempt: Amount,
    /// The position of the last message that the target has taken.
    pub position: Option<String>,
    /// When that was.
    pub delivered_at: Option<At>,
    /// How long a batch was with the target, on average, in ms.
    pub batch_ms: Option<f64>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// For how many seconds attempts have failed.
    pub failing_s: Option<Amount>,
    /// The number of its process in the system.
    pub process: Option<u32>,
    /// Processes that were started.
    pub starts: Amount,
    /// How the last process ended that did so by itself.
    pub last_end: Option<String>,
}

/// Messages that an outlet or an inlet has dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutletDrops {
    /// Dead letters that nobody subscribes to.
    pub dead_letter_unclaimed: Amount,
    /// Messages that the target or a rule refused, without a topic for dead letters.
    pub refused: Amount,
    /// Messages that went in a circle of brokers.
    pub bridge_loop: Amount,
}
