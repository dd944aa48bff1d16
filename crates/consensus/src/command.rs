//! What a group agrees on.

use std::fmt::{self, Debug, Display};

use bytes::Bytes;

/// What a group agrees on.
///
/// Cloning must be cheap (an `Arc` inside): the log's tail keeps a clone, and the state machine gets one,
/// so that what was proposed here is never decoded here. `Display` is for traces and should be short.
pub trait Command: Clone + Debug + Display + Send + Sync + 'static {
    /// The bytes that [`Command::decode`] understands. Called by the log's thread, and for each other member by what sends
    /// to it, perhaps at once: a long command should keep them, and those that it was decoded from.
    fn encoded(&self) -> Bytes;

    /// The command that these bytes are.
    fn decode(bytes: &Bytes) -> Result<Self, CorruptCommand>;

    /// How many bytes [`Command::encoded`] has at most, give or take a hundred or so, of proposed commands and decoded
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
