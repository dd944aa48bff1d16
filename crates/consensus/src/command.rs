//! What a group agrees on, and what it is for.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use futures_util::future::BoxFuture;

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

/// What a state machine has done with a command.
pub enum Applied {
    /// All of it is applied.
    Done,
    /// A part is applied. [`StateMachine::apply`] is called again with this number, after others of the runtime had
    /// their turn.
    GoOn(usize),
    /// This call has changed nothing. [`StateMachine::apply`] is called again with the same arguments when the future
    /// resolves. Meanwhile the group agrees on further commands and applies none: something of this node that will
    /// come to its end in any case should be waited for, such as a write of the tables.
    Wait(BoxFuture<'static, ()>),
}

impl Debug for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("Done"),
            Self::GoOn(next) => write!(f, "GoOn({next})"),
            Self::Wait(_) => f.write_str("Wait"),
        }
    }
}

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
    /// The outcome must depend on nothing but the state, the command, and `before`: the position of the state before
    /// the command and the group's members there, which are the same on each replica, also when a start applies old
    /// commands again.
    ///
    /// A long command is applied in parts, so that heartbeats and all else of the runtime have their turn in
    /// between: `from` is 0 at first, then what the last part gave as [`Applied::GoOn`]. No other command is
    /// applied between two parts of one.
    fn apply(&mut self, index: u64, before: &Mark, command: &C, from: usize) -> Applied;

    /// For the moment there are no more committed commands, or others of the runtime have their turn before
    /// the next one, or the next one waits: send out what they produced. `applied` covers all of them; tables that are now written
    /// down reach to it.
    fn flush(&mut self, applied: &Mark);
}
