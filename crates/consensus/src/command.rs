//! What a group agrees on.

use std::fmt::{self, Debug, Display};
use std::ops::Deref;

use bytes::Bytes;

/// What a group agrees on.
///
/// Cloning must be cheap (an `Arc` inside): the log's tail keeps a clone, and the state machine gets one,
/// so that what was proposed here is never decoded here. `Display` is for traces and should be short.
pub trait Command: Clone + Debug + Display + Send + Sync + 'static {
    /// The bytes that [`Command::decode`] understands. Called by the log's thread, and for each other member by what sends
    /// to it, perhaps at once: a long command should keep them, and those that it was decoded from.
    fn encoded(&self) -> Encoded;

    /// The command that these bytes are.
    fn decode(bytes: &Bytes) -> Result<Self, CorruptCommand>;

    /// How many bytes [`Command::encoded`] has at most, give or take a hundred or so, of proposed commands and decoded
    /// ones alike. All limits in bytes count by it.
    fn encoded_len_hint(&self) -> usize;
}

/// A command as bytes.
#[derive(Clone, Debug)]
pub enum Encoded {
    /// Made for this call.
    Own(Vec<u8>),
    /// Those that the command keeps.
    Shared(Bytes),
}

impl Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl From<Bytes> for Encoded {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}

impl From<Vec<u8>> for Encoded {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(bytes)
    }
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
