//! The nodes of a cluster: who they are, which of them can be reached, and links that carry bytes to them.
//!
//! Purpose: a [`Cluster`] forms a cluster or joins one, keeps a list of its [`Members`], and has three
//! connections to each of them, one for each [`Channel`], dialled by the side that sends.
//!
//! Invariants: bytes arrive in the order in which they were sent, for each sender and channel. What was sent
//! on a connection that is lost may be lost; both sides are told. Nothing is sent twice. A node of another
//! cluster, or one that was evicted, or one without the secret, is never heard. Every queue is bounded.
//!
//! Deliberately absent: what the bytes mean; resending; anything that needs a majority.
//!
//! Two things watch the members: gossip (chitchat, over UDP) says who exists and where; the links say within
//! seconds who can be reached. Where to read next: `cluster.rs`, then `handshake.rs` and `link.rs`.

#![forbid(unsafe_code)]

mod backoff;
mod calls;
mod cluster;
mod complaints;
mod confirm;
mod connect;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gossip;
mod handler;
mod handshake;
mod join;
mod link;
mod listen;
mod members;
mod membership;
mod options;
mod outbox;
mod own_address;
mod peer;
mod reach;
mod record;
mod shared;
mod stamps;
mod stats;
mod strangers;
#[cfg(test)]
mod tests;
mod writer;

pub use calls::Unreachable;
pub use cluster::{Cluster, EvictError, InfoError, StartError};
pub use handler::{Channel, Handler, Reply, ShutOut, Source};
pub use members::{Member, Members, State};
pub use options::{Options, Secret, Security, Timings, TlsFiles, Versions};
pub use own_address::own_address;
pub use reach::Reach;
pub use record::{RECORD, RecordError};
pub use stamps::go_on_alone;
pub use stats::LinkReading;
