//! What the broker asks of the store: the handle, its settings, and whom the store tells.
//!
//! Purpose: this is the top layer. Event loops hold a [`store::Store`]; the store calls a [`listener::Listener`].
//!
//! Invariant: only `listener.rs` and `error.rs` are used by the layers below.
//!
//! Deliberately absent: the requests and answers themselves, which are plain data in `store_state::api`.
//!
//! Read next: `store.rs`.

pub(crate) mod catching_up;
pub(crate) mod cluster;
pub(crate) mod control;
pub(crate) mod damaged;
pub(crate) mod error;
mod inbox;
pub(crate) mod inspect;
pub(crate) mod levels;
pub(crate) mod listener;
pub(crate) mod memory;
mod open;
pub(crate) mod options;
pub(crate) mod queues;
mod requests;
mod retain;
pub(crate) mod retained_rows;
mod session;
pub(crate) mod shard_info;
mod shard_set;
pub(crate) mod split;
pub(crate) mod splits;
pub(crate) mod stats;
pub(crate) mod store;
#[cfg(test)]
mod tests;
