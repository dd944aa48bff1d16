//! What several nodes have answered, put together.
//!
//! Invariant: a node may be of another version, or wrong: no number of one makes another overflow, and nothing panics.
//!
//! Deliberately absent: who has been asked, and who has not answered (`broker`).

mod clients;
mod groups;
mod matching;
mod orders;
mod slots;

pub use clients::{client, clients, longest_held};
pub use groups::{SharedGroup, group_members, shared_groups};
pub use matching::{Full, full, matching, weigh};
pub use orders::{busy_clients, busy_topics, failed_logins, queues};
pub use slots::uncovered;

/// A page of a list.
#[derive(Clone, PartialEq, Debug)]
pub struct Merged<T> {
    /// In the order of the list.
    pub items: Vec<T>,
    /// The key of the last one that was looked at, if more may follow.
    pub last: Option<String>,
    /// How many were looked at.
    pub scanned: u64,
}
