//! What a group agrees on, and what it is for.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use crate::snapshot::NoTables;
use crate::{Mark, Tables};

/// What a group agrees on.
///
/// Cloning must be cheap (an `Arc` inside): the log's tail keeps a clone, and the state machine gets one,
/// so that what was proposed here is never decoded here. `Display` is for traces and should be short.
pub trait Command: Clone + Debug + Display + Send + Sync + 'static {
    /// Appends the bytes that [`Command::decode`] understands. Called by the log's thread.
    fn encode(&self, out: &mut Vec<u8>);

    /// The command that these bytes are.
    fn decode(bytes: &[u8]) -> Result<Self, CorruptCommand>;

    /// How many bytes [`Command::encode`] appends, within a hundred or so, of proposed commands and decoded
    /// ones alike. All limits in bytes count by it.
    fn encoded_len_hint(&self) -> usize;
}

/// Bytes that are no command, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CorruptCommand(pub String);

impl Display for CorruptCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a command: {}", self.0)
    }
}

impl std::error::Error for CorruptCommand {}

/// The replicated state of one group. Called by one task at a time, in the runtime of its group.
pub trait StateMachine<C>: Send + 'static {
    /// What its tables hold durably when the group starts; `None` when they are new.
    fn durable(&self) -> Option<Mark>;

    /// The tables, for snapshots. The default is for groups that stay alone: it has none.
    fn tables(&self) -> Arc<dyn Tables> {
        Arc::new(NoTables)
    }

    /// A committed command. They come in ascending order of `index`, each exactly once in a process's
    /// life, the first after [`StateMachine::durable`]; the log's own entries leave gaps, and so does a
    /// snapshot, which brings what it leaves out.
    ///
    /// The outcome must depend on nothing but the state and the command.
    ///
    /// A long command is applied in parts, so that heartbeats and all else of the runtime have their turn in
    /// between: `from` is 0 at first, then what the last part returned. `None`: the command is applied. No
    /// other command is applied between two parts of one.
    fn apply(&mut self, index: u64, command: &C, from: usize) -> Option<usize>;

    /// For the moment there are no more committed commands, or others of the runtime have their turn before
    /// the next one: send out what they produced. `applied` covers all of them; tables that are now written
    /// down reach to it.
    fn flush(&mut self, applied: &Mark);
}
