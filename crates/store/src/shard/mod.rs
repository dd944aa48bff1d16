//! One shard: its machine, and the tasks around it.
//!
//! The *worker* (`worker.rs`) takes requests from the queue (`queue.rs`). If this node leads the shard, the *proposer*
//! (`proposer.rs`) makes batches of them; if another node leads, the worker sends them there (`forward.rs`, `outstanding.rs`).
//! Consensus hands committed batches to the replica (`apply.rs`), which applies them and, if it leads, sends replies and pages to
//! the event loops (`replies.rs`, `cursors.rs`). The *checkpointer* (`checkpoint.rs`) writes net changes to the tables, so that
//! the log can be purged. Now and then the tables of the replicas are compared (`comparison.rs`). All run on one thread.
//!
//! Invariants: a reply leaves only after its batch is committed and synced; pages and replies leave in the order of the batches;
//! no lock of a shard is held while an event loop is given mail.
//!
//! Deliberately absent: which nodes hold replicas and which of them leads (`placement`, `leadership`).
//!
//! Read next: `handle.rs`, then `worker.rs`.

pub(crate) mod apply;
pub(crate) mod begin;
pub(crate) mod checkpoint;
mod collected;
pub(crate) mod comparison;
pub(crate) mod counters;
pub(crate) mod cursors;
pub(crate) mod damage;
pub(crate) mod deferred;
pub(crate) mod fault;
mod forward;
pub(crate) mod handle;
mod in_flight;
pub(crate) mod joins;
pub(crate) mod load;
pub(crate) mod outbox;
pub(crate) mod outstanding;
pub(crate) mod proposer;
pub(crate) mod queue;
pub(crate) mod queues;
mod raise;
pub(crate) mod rebuild;
pub(crate) mod recovery;
mod refuse;
mod replies;
pub(crate) mod request;
pub(crate) mod retained;
pub(crate) mod routing;
mod sampled_time;
mod scrubbed;
pub(crate) mod shards;
pub(crate) mod split;
mod unsettled;
pub(crate) mod work;
pub(crate) mod worker;
