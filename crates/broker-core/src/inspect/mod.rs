//! What people ask of the clients of a loop: read between its other work, and answered by plain data.
//!
//! Invariant: nothing here changes a session but [`answer::end`], which does what the broker does to a banned client. One
//! inspection looks at a bounded number of sessions, and charges the loop's turn for it.

pub(crate) mod answer;
mod memory;
mod question;
pub(crate) mod view;

pub use question::{
    Answer, ClientDetail, ClientSummary, ConnectionDetail, End, Ended, Held, INSPECTED, Inspection,
    Life, LoopMemory, MEMORY_SLICE, MatchingSession, Question, SUBSCRIPTIONS, SubscriptionDetail,
};
