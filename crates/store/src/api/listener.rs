//! Who is told what the store brings about.
//!
//! Invariant: the shards' threads call the listener without holding a lock of a shard, unless a method says otherwise.
//!
//! Deliberately absent: answers to single requests have no method of their own; they come as events.
//!
//! Lower layers know this file of `api/` and `error.rs`, and no other one.

use std::sync::Arc;
use std::time::Duration;

use control::{Changed, Records, Revision};
use mqtt_session::ApplicationMessage;
use rustix::time::{ClockId, clock_gettime};
use store_state::api::{Event, ShardNumber};
use store_state::inbox::{InboxDrop, StoredSubscription};
use store_state::retain::RetainedEnd;
use store_state::{Limits, Retention};

/// Who is told what the store brings about. Called by the shards' threads.
pub trait Listener: Send + Sync + 'static {
    /// Events for an event loop.
    fn mail(&self, loop_index: usize, events: Vec<Event>);

    /// How many event loops there are.
    fn loops(&self) -> usize;

    /// Whether any session of an inbox shard subscribes to a filter, and whether any such is detached.
    fn filter(&self, shard: ShardNumber, filter: &str, any: bool, detached: bool);

    /// A session has joined a shared group, or left it (`None`).
    fn member(
        &self,
        shard: ShardNumber,
        client: &str,
        filter: &str,
        subscription: Option<&StoredSubscription>,
    );

    /// A node leads an inbox shard from now on, in this Raft term; `None`: this one leads it no more. If it
    /// is this node, all that the shard has to tell of filters and members follows.
    fn inbox_leader(&self, _shard: ShardNumber, _node: Option<u64>, _term: u64) {}

    /// All that an inbox shard had to tell when this node began to lead it has been told.
    fn inbox_announced(&self, _shard: ShardNumber) {}

    /// Which inbox shards there are has changed, or which slots one of them has. One that is new has told nothing yet: what
    /// its sessions subscribe to is among what is known of the shard that it was split off, until
    /// [`Store::narrow_inbox_shard`](store_state::api::Store::narrow_inbox_shard) is called. May be called for no change.
    fn inbox_shards_changed(&self) {}

    /// A message was given to a durable session whose client is connected, and whose queue is three quarters full.
    fn filling(&self, _client: &str, _message: &ApplicationMessage) {}

    /// A message was dropped.
    fn dropped(&self, drop: &InboxDrop<'_>);

    /// A message that nobody waits for was not stored; `client`: the session it was for, if it was for
    /// one.
    fn lost(&self, client: &str, message: &ApplicationMessage);

    /// A retained message was removed, which no client has asked for. Called with the lock of the shard held, by its leader only.
    fn retained_ended(&self, _end: RetainedEnd) {}

    /// The replica of the control store here was made of tables, and has these records. Called with the lock of the shard held.
    fn control_loaded(&self, _records: Records) {}

    /// The replica of the control store here has applied a change. Called with the lock of the shard held, in order.
    fn control_changed(&self, _changed: &Changed) {}

    /// There is a control store, as another node says.
    fn control_begun(&self) {}

    /// With all changes up to this one, this node has whatever was changed before its process began. May be called more than once.
    fn control_confirmed(&self, _revision: Revision) {}

    /// The answer to what a thread has asked the control store that is no event loop.
    fn control_answered(&self, _answer: Event) {}

    /// The store cannot go on: nothing may be acknowledged any more, and the process is to end.
    fn failed(&self, what: &str);

    /// Unix time in ms, by which messages expire and sessions end. On the nodes of a cluster about the same, and it may
    /// be set back.
    fn now_ms(&self) -> u64;

    /// Unix time in ms by a clock of this process that is never set: the one of
    /// [`Member::last_heard_ms`](crate::Member::last_heard_ms).
    fn clock_ms(&self) -> u64 {
        self.now_ms()
    }

    /// CPU time that the calling thread has used, by which the load of shards is counted. A system call.
    fn thread_cpu(&self) -> Duration {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        // A thread has used none or some.
        Duration::new(
            used.tv_sec.unsigned_abs(),
            used.tv_nsec.unsigned_abs() as u32,
        )
    }

    /// How long the calling thread has waited for a core while it could have run. Three system calls; zero where the system does
    /// not say.
    fn thread_wait(&self) -> Duration {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanoseconds = told.split(' ').nth(1).and_then(|wait| wait.parse().ok());
        Duration::from_nanos(nanoseconds.unwrap_or(0))
    }

    /// CPU time that the process has used. A system call.
    fn process_cpu(&self) -> Duration {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        // A process has used none or some.
        Duration::new(
            used.tv_sec.unsigned_abs(),
            used.tv_nsec.unsigned_abs() as u32,
        )
    }

    /// The limits in force.
    fn limits(&self) -> Limits;

    /// Whether a shared group, by its subscription as in SUBSCRIBE, has a member that is connected and has room in its window, as
    /// far as this node knows: then it gets what waits with members that are away for too long.
    fn has_room_in_group(&self, _group: &str) -> bool {
        false
    }

    /// How long messages are kept in queues, and how many bytes; and how long those of shared groups stay with members that are
    /// away.
    fn retention(&self) -> Arc<Retention> {
        Arc::default()
    }
}
