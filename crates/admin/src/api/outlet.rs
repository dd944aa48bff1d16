//! Outlets: what takes messages to other systems.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, At};
use crate::cluster::NodeId;

/// What an outlet does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
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
    /// It is at no node, as the inbox shard of its session has no leader, or at one that does not say what it does.
    Elsewhere,
}

/// Where the messages of an outlet or an inlet go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutletDirection {
    /// To another system: it is an outlet.
    Out,
    /// From another broker to this one: it is an inlet.
    In,
}

/// An outlet or an inlet of the configuration of the node that is asked. What is said of the target of an outlet counts for the node if it
/// is an inlet, but for `target` and `place`, which say where its messages come from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutletRow {
    /// Its name.
    pub name: String,
    /// Whether it is an outlet or an inlet.
    pub direction: OutletDirection,
    /// What it does.
    pub state: OutletState,
    /// Whether somebody has paused it; `null`: the node that runs it does not say.
    pub paused: Option<bool>,
    /// The node that runs it, which leads the inbox shard of its session, or of the client identifier of the inlet; `null`: the shard has no leader.
    pub node: Option<NodeId>,
    /// `file`, `http`, `mqtt`, `nats` or `postgres`.
    pub target: String,
    /// Where the target is: a path or a URL.
    pub place: String,
    /// Its topic filters.
    pub filters: Vec<String>,
    /// The topic of its dead letters; `null`: what the target refuses is dropped.
    pub dead_letter: Option<String>,
    /// Its figures; `null`: the node that runs it does not say.
    pub figures: Option<OutletFigures>,
}

/// The figures of an outlet. Counts are since the node that runs it started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutletFigures {
    /// Messages that wait in the queue of its session, those included that its process has; `null`: there is no session yet, or it
    /// is an inlet, whose messages wait at the other broker.
    pub lag_messages: Option<Amount>,
    /// Their bytes.
    pub lag_bytes: Option<Amount>,
    /// When the oldest one came, to a tenth of its age.
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
    /// Why the last attempt failed; `null`: it did not.
    pub last_error: Option<String>,
    /// For how many seconds attempts have failed; `null`: they have not.
    pub failing_s: Option<Amount>,
    /// The number of its process in the system.
    pub process: Option<u32>,
    /// Processes that were started.
    pub starts: Amount,
    /// How the last process ended that did so by itself; `null`: none has.
    pub last_end: Option<String>,
}

/// Messages that an outlet or an inlet has dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutletDrops {
    /// Dead letters that nobody subscribes to.
    pub dead_letter_unclaimed: Amount,
    /// Messages that the target or a rule refused, without a topic for dead letters.
    pub refused: Amount,
    /// Messages that went in a circle of brokers; `delivered` counts them, too.
    pub bridge_loop: Amount,
}
