//! Which node serves a shard, and how the nodes know.
//!
//! Purpose: `state.rs` names leaders and their epochs; `watch.rs` decides whether this node may serve; `announce.rs` tells the
//! other nodes; `health.rs` says which nodes are fit to lead; `first_election.rs` has a shard led that was just split off.
//!
//! Deliberately absent: later elections, which are Raft's (`consensus`); the choice of a better leader (`placement`).

pub(crate) mod announce;
pub(crate) mod first_election;
pub(crate) mod health;
pub(crate) mod incarnation;
pub(crate) mod led_shard;
pub(crate) mod led_shards;
pub(crate) mod state;
pub(crate) mod watch;
