//! What a group agrees for: the state that commands change.

use std::fmt::{self, Debug};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::mark::Mark;
use crate::snapshot::{NoTables, Tables};

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
