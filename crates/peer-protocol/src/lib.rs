//! Every message between nodes: one type, its version, its limits, its bytes.
//!
//! [`PeerMessage`]: what a link carries one way. [`PeerRequest`]: what is answered. [`FORMATS`]: the one table of
//! their kinds, with the tag, the limit and the first version of each. [`Violation`]: what can be wrong with bytes.
//! `publication.rs`: messages of clients. `ban.rs`: bans. `control.rs`: barriers, copies, holds. `takeover.rs`, `directory.rs`: client
//! identifiers that another node has. `request.rs`: clocks, and what people ask of a cluster. `replica.rs`: requests
//! to Raft replicas. `welcome.rs`: what a node that joins is told. `publisher.rs`: how nodes name each other's
//! sessions. docs/decisions/0016-peer-protocol.md says how a version is made.
//!
//! Invariants: bytes of a peer never panic, and take memory in proportion to their length. What is encoded is
//! decoded to the same value. Bytes of a version never change: `tests/golden` keeps them.
//!
//! Deliberately absent: who sends what, and when (`broker-core`); connections, and how two nodes agree on a version
//! (`cluster`); the encoding of what stores say to each other behind its tag (`store`).

#![forbid(unsafe_code)]

mod ban;
mod control;
mod directory;
mod kind;
mod message;
mod publication;
mod publisher;
mod replica;
mod request;
mod takeover;
mod violation;
mod welcome;

pub use ban::{BanChange, BanSubject, Banned, Bans, FailedLogins};
pub use control::{Control, SETTLED_AT_ONCE};
pub use directory::{DirectoryMessage, Registered, Registration, in_parts};
pub use kind::{
    CONTROL_SINCE, Carriage, FORMATS, Format, INSPECTION_SINCE, Kind, LEVELS_SINCE, LOADS_SINCE,
    PURGES_SINCE, RETIRED_TAGS, SESSION_NAMES_SINCE, SPLITS_SINCE, VERSIONS,
};
pub use message::{Encode, PeerMessage};
pub use publication::{
    FULL_BYTES, ForGroup, Forwarded, LARGEST, Publications, PublicationsFrame, Whom,
};
pub use publisher::{Foreign, HASH_BITS, Slot, found_by, hash_in, place_of, with_hash};
pub use replica::ReplicaRequest;
pub use request::{ClockReading, NodeAnswer, NodeRequest, PeerRequest, Refusal};
pub use takeover::{Asker, Older, Takeover};
pub use violation::Violation;
pub use welcome::{Welcome, WelcomeError};
