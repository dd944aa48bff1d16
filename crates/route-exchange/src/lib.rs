//! How nodes tell each other who has to get which messages, and when all of them know.
//!
//! Purpose: each node is the only writer of its own routes. [`Exports`] holds them, numbers their changes
//! and makes of them a stream for each peer: a snapshot in pages, then changes. [`Imports`] holds what the
//! peers have told. Both are step functions: events, messages and the time in; messages out.
//!
//! ```text
//!  owner: Exports ── Batch ──► Imports: receiver
//!         Exports ◄── State ── Imports          (what has been applied; a beat now and then)
//! ```
//!
//! Invariants: a receiver that says it knows an owner's routes ([`Imports::knows`]) has every route whose
//! number the owner has called passed ([`Exports::passed`]); a receiver that cannot be sure says that it
//! does not know, and has to take the owner for one that wants everything.
//!
//! Why that holds: a receiver knows only after a complete snapshot of the present stream, and only for
//! [`Times::lease_ms`] after a beat that the owner has answered. The owner answers a beat behind all changes
//! before it, and waits for a receiver until it has answered none of its beats for [`Times::silence_ms`],
//! which is longer. No clocks are compared: a beat is a time of the receiver that comes back to it.
//!
//! Deliberately absent: clock, randomness, lock, thread, socket; matching of topics; who the peers are.

#![forbid(unsafe_code)]

mod exports;
mod imports;
mod message;
mod route;
#[cfg(test)]
mod tests;

pub use exports::{Exports, Receivers};
pub use imports::{Change, Imports, Unknown};
pub use message::{Batch, Malformed, Message, State};
pub use route::{Key, NodeId, ShardNumber, Value};

/// How long a peer is trusted, and waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// A receiver trusts routes for so many ms after a beat that their owner has answered.
    pub lease_ms: u64,
    /// An owner waits for a receiver until it has answered none of its beats for so many ms. Longer than the
    /// lease, by more than clocks differ in speed.
    pub silence_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            lease_ms: 1_500,
            silence_ms: 3_000,
        }
    }
}
