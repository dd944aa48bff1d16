//! How a connected session reads the queue of its inbox.

use serde::{Deserialize, Serialize};

/// What a reader asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Read {
    /// Give me what is queued.
    Open {
        /// The event loop.
        loop_index: u16,
        /// What the loop knows the session by.
        home: u64,
        /// The inbox.
        inbox: u64,
        /// The epoch of the connection.
        epoch: u64,
        /// The first sequence to give.
        from: u64,
        /// Messages that the session can take.
        credit: u32,
    },
    /// I can take more.
    Credit {
        /// The inbox.
        inbox: u64,
        /// The epoch of the connection.
        epoch: u64,
        /// How many more messages.
        more: u32,
    },
    /// Give me nothing more.
    Close {
        /// The inbox.
        inbox: u64,
        /// The epoch of the connection.
        epoch: u64,
    },
}
