//! Where the messages of an inlet come from.

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use outlet::{InletDrop, Item};

/// What a message is acknowledged by: a number within its connection, ascending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Token(pub u64);

impl Token {
    /// This one, for a message; what is left is the one for the next message.
    #[must_use]
    pub fn advance(&mut self) -> Self {
        let token = *self;
        self.0 += 1;
        token
    }
}

/// What has come from a source.
#[derive(Debug)]
pub enum Arrival {
    /// A message, as it is there, with its User Properties; without a position. `None`: it is not acknowledged, and does not come again.
    Message(Box<Item>, Option<Token>),
    /// A message that is not published here.
    Dropped(InletDrop, Option<Token>),
    /// The source has accepted what the inlet wants of it.
    Ready,
}

/// Another system that an inlet takes messages from.
pub trait Source: Debug + Send {
    /// What tells the system from others, such as host and port. Marks of messages that went in a circle are made of it.
    fn address(&self) -> &str;

    /// Connects, and asks for messages. Ends in time, and may be dropped at any time.
    ///
    /// # Errors
    /// Why there is no connection.
    fn open(&self) -> BoxFuture<'static, Result<Box<dyn Intake>, String>>;

    /// Connects without disturbing an inlet that runs, and says in words what is there. Ends in time.
    ///
    /// # Errors
    /// Why it cannot be reached, or has no messages for the inlet.
    fn probe(&self) -> BoxFuture<'static, Result<String, String>>;
}

/// A connection to a source. What is not acknowledged on it comes again on another one.
pub trait Intake: Send {
    /// Waits until something has come, and gives it in its order; perhaps nothing, after something else was done. Sends
    /// acknowledgements, and keeps the connection alive. `reads`: whether there is room for messages; without, few come.
    /// May be dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// The connection is over, and why.
    fn next(&mut self, reads: bool) -> BoxFuture<'_, Result<Vec<Arrival>, String>>;

    /// Has a message acknowledged, by [`Self::next`] or [`Self::close`]. Those of a connection come in the order of their tokens.
    fn acknowledge(&mut self, token: Token);

    /// Sends what waits, and takes leave. The caller limits its time.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}
