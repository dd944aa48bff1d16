//! The nodes of a cluster: who they are, which of them can be reached, and links that carry bytes to them.
//!
//! Purpose: a [`Cluster`] forms a cluster or joins one, keeps a list of its [`Members`], and has three
//! connections to each of them, one for each [`Channel`], dialled by the side that sends.
//!
//! Invariants: bytes arrive in the order in which they were sent, for each sender and channel. What was sent
//! on a connection that is lost may be lost; both sides are told. Nothing is sent twice. A node of another
//! cluster, or one that was evicted, or one without the secret, or one of an older program than is required, is never
//! heard. Every queue is bounded.
//!
//! Deliberately absent: what the bytes mean; resending; anything that needs a majority.
//!
//! Two things watch the members: gossip (chitchat, over UDP) says who exists and where; the links say within
//! seconds who can be reached.
//!
//! The layers, each of which imports only those above it:
//!
//! - `options`; `members`, `folder` and `protocol`: types and protocol, without connections
//! - `state`: what the tasks of the cluster's thread share
//! - `links`: connections to other nodes and from them
//! - `membership`: the way into the cluster, the confirmation of the data folder, gossip
//! - `cluster`: all of these, as one thread
//!
//! Where to read next: `cluster.rs`, then `protocol/handshake.rs` and `links/link.rs`.

#![forbid(unsafe_code)]

mod cluster;
mod folder;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod links;
mod members;
mod membership;
mod options;
mod own_address;
mod protocol;
mod state;
#[cfg(test)]
mod tests;

pub use cluster::Cluster;
pub use folder::FILES;
pub use folder::record::{RECORD, RecordError, evict_others};
pub use folder::stamps::go_on_alone;
pub use members::list::{INFO_LIMIT, Member, Members, Spoken, State};
pub use members::reach::Reach;
pub use membership::error::{EvictError, InfoError, StartError, VersionError};
pub use options::{Options, Secret, Security, Timings, TlsFiles, Versions};
pub use own_address::own_address;
pub use protocol::channel::{Channel, Source};
pub use protocol::refusal::ShutOut;
pub use state::calls::Unreachable;
pub use state::handler::{Handler, Reply, WELCOME_LIMIT};
pub use state::stats::LinkReading;
