//! What people ask of all nodes: asked of loops, shards and nodes, and put together.
//!
//! A question goes to each node (`gather.rs`), which answers for its own connections and the shards that it leads
//! (`here.rs`); the node that was asked merges what comes back in time and names who is missing. Work is bounded where it is
//! done: so many questions at once in a node, so many sessions in one look at a loop, so many rows in one look at a shard.
//!
//! What nodes send each other, and how answers of several are put together, is in `inspection`; `wire` is its border to the HTTP API.
//!
//! Deliberately absent: HTTP, rights, cursors (`admin`); what a loop shows of its clients (`broker-core/src/inspect`); what
//! people change of a cluster (`control.rs`).

mod alarms;
mod asked;
mod asked_profiles;
mod bans;
mod changes;
mod cpu_profile;
mod events;
mod failed_logins;
mod gather;
mod groups;
mod here;
mod kept_profile;
mod known;
mod login;
mod loops;
mod lost;
mod matching;
mod memory;
mod messages;
mod node;
mod outlet_rim;
mod outlets;
mod own_outlets;
mod own_profiles;
mod own_threads;
mod processes;
mod profiles;
mod publishing;
mod queues;
mod recent_threads;
mod retained;
mod rows;
mod rules;
mod state;
mod stores;
mod subscribing;
mod subscriptions;
mod top;
mod walks;
mod wire;

pub(crate) use changes::tell_changes;
pub(crate) use gather::Answering;
pub(crate) use node::record_history;
pub(crate) use outlet_rim::OutletRim;
pub use own_profiles::OwnProcess;
pub(crate) use processes::asking;
pub(crate) use state::{About, Inspect};
