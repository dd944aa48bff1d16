//! What a shard has to know of its store: a trait that the state machines implement.
//!
//! Invariant: shards are generic over the store; no code outside of `kinds/` and `api/` distinguishes them, but for what
//! begins a store (`shard/begin.rs`).

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use mqtt_session::Timestamp;
use store_state::api::{Event, ShardNumber, StoreId};
use store_state::inbox::inspect::LeftPart;
use store_state::inbox::{InboxId, QueuePass, QueueView, Queued, RetentionLimit, SessionName};
use store_state::retain::{PageBudget, RetainedAt, RetainedEnd, RetainedView};
use store_state::{Batch, CorrelationId, Limits, Split, Table, TableError};
use topic_router::Cursor;

use crate::api::listener::Listener;
use crate::kinds::command::Command;
use crate::kinds::effects::Effects;
use crate::peers::message::{Forwarded, Message};
use crate::shard::retained::Page;

/// Names of clients, or of topics.
pub(crate) type Names<'a> = Box<dyn Iterator<Item = &'a str> + 'a>;

/// A store, by its machine.
pub(crate) trait Kind: Split + Sync {
    /// The store.
    const STORE: StoreId;
    /// Its name.
    const NAME: &'static str = Self::STORE.name();

    /// Whether a cluster has the store only from an entry of the session store on.
    const BEGINS_LATER: bool = false;

    /// Whether event loops open inbox cursors in its shards.
    const HAS_CURSORS: bool = false;

    /// Whether its shards have queues.
    const HAS_QUEUES: bool = false;

    /// Whether its shards have retained messages.
    const HAS_RETAINED: bool = false;

    /// Whether others go by what its shards tell of filters.
    const HAS_ROUTES: bool = false;

    /// Which shards there are has changed, or which slots one of them has.
    fn shards_changed(_listener: &dyn Listener) {}

    /// Another node leads a shard from now on, or none that is known.
    fn led(_listener: &dyn Listener, _shard: ShardNumber, _node: Option<u64>, _term: u64) {}

    /// All that a shard has to tell has been told.
    fn announced(_listener: &dyn Listener, _shard: ShardNumber) {}

    /// The log entry of a batch.
    fn command(batch: Arc<Batch<Self::Op>>) -> Command;

    /// Whether an inbox of this number is here.
    fn has_inbox(&self, _inbox: u64) -> bool {
        false
    }

    /// The batch of a log entry; `None`: it is another store's.
    fn batch(command: &Command) -> Option<&Batch<Self::Op>>;

    /// Bytes that an operation brings that concerns a slot, for the load of that slot. Messages that are put in a queue
    /// count there.
    fn bytes(_op: &Self::Op) -> u64 {
        0
    }

    /// The event that tells a reply.
    fn event(token: u64, reply: Self::Reply) -> Event;

    /// Reads a page of a queue: appends what is queued from `from` on, and returns the sequence to go on
    /// from and whether nothing is queued there.
    fn page(
        &mut self,
        _inbox: u64,
        from: u64,
        _items: u32,
        _bytes: usize,
        _table: &dyn Table,
        _out: &mut Vec<(u64, Queued)>,
    ) -> Result<(u64, bool), TableError> {
        Ok((from, true))
    }

    /// Goes on with a look at all queues that hold something, or begins one: `tell` gets those of so many inboxes. True:
    /// those were the last.
    fn look_at_queues(
        &mut self,
        _pass: &mut Option<QueuePass>,
        _inboxes: usize,
        _tell: &mut dyn FnMut(QueueView<'_>),
    ) -> bool {
        true
    }

    /// The operation by which messages leave a queue; `None`: it has no queues.
    fn trim(
        _session: SessionName,
        _sequences: Range<u64>,
        _limit: RetentionLimit,
    ) -> Option<Self::Op> {
        None
    }

    /// Looks for messages that a session which is away may leave to a group ([`LeftPart::find`]).
    fn left_part(
        &mut self,
        _of: (InboxId, &str),
        _from: u64,
        _limits: (usize, usize),
        _table: &dyn Table,
    ) -> Result<Option<LeftPart>, TableError> {
        Ok(None)
    }

    /// An operation that nobody waits for was refused: tells of messages that are lost by that.
    fn lost(_op: &Self::Op, _listener: &dyn Listener) {}

    /// What replicas have alike in the value of a row of the tables.
    fn agreed<'a>(_key: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(value)
    }

    /// Whether an operation records what has happened already and nobody would retry it: on a full disk it is deferred, not
    /// refused. `correlation_id`: of the request.
    fn must_wait(_op: &Self::Op, _ticket: CorrelationId) -> bool {
        false
    }

    /// Whether an operation is refused when the others have taken this node for dead, because its client may have gone on at
    /// another node: a claim; a publication that its publisher has repeated and released.
    fn is_fenced(_op: &Self::Op) -> bool {
        false
    }

    /// Whether an operation is refused, and not retried, by a node that does not know whether it was applied: applied twice it
    /// would give a message of QoS 0 twice.
    fn is_at_most_once(_op: &Self::Op) -> bool {
        false
    }

    /// The operation as it is retried by a node that does not know whether it was applied.
    fn retried(op: Self::Op) -> Self::Op {
        op
    }

    /// A page of the retained messages that a filter selects, from a cursor on; `None`: it keeps none.
    fn retained(
        &self,
        _filter: &str,
        _cursor: Option<&Cursor>,
        _budget: &mut PageBudget,
        _now: Timestamp,
    ) -> Option<Page> {
        None
    }

    /// Goes on with a look at all retained messages, or begins one (`after`: `None`): `tell` gets each that is read, until it
    /// breaks or `work` is used up. Says where to go on; `None`: those were the last.
    fn look_at_retained(
        &self,
        _after: Option<&Cursor>,
        _work: &mut usize,
        _tell: &mut dyn FnMut(RetainedView<'_>) -> ControlFlow<()>,
    ) -> Option<Cursor> {
        None
    }

    /// The operation by which retained messages end; `None`: it has none.
    fn remove_retained(_messages: Vec<RetainedAt>, _end: RetainedEnd) -> Option<Self::Op> {
        None
    }

    /// The clients, or topics, that it knows; in no order.
    fn names(&self) -> Names<'_>;

    /// The highest incarnation of a node that the shard knows of; 0: none.
    fn incarnation(&self, _node: u64) -> u64 {
        0
    }

    /// The message that carries work of this kind to another node.
    fn message(forwarded: Forwarded<Self::Op>) -> Message;

    /// The limits to propose a batch with, of those that are set: what exceeds them already may be left alone.
    fn leave_alone(&self, limits: Limits) -> Limits {
        limits
    }

    /// Whether the answer to an operation that was applied is held until others about the same name are.
    fn is_unsettled(&self, _op: &Self::Op) -> bool {
        false
    }

    /// The name that [`Kind::is_unsettled`] goes by; `None`: of no operation that could settle an answer, or be held.
    fn settles(_op: &Self::Op) -> Option<&str> {
        None
    }

    /// Whether nobody waits for it: it goes with other work, or after a moment.
    fn is_patient(_op: &Self::Op) -> bool {
        false
    }

    /// The session whose later operations [`Kind::merge`] may put into this one.
    fn merges(_op: &Self::Op) -> Option<&SessionName> {
        None
    }

    /// Puts a later operation into one that waits; gives it back if they are not about the same.
    fn merge(_waiting: &mut Self::Op, op: Self::Op) -> Result<(), Self::Op> {
        Err(op)
    }

    /// The time of the next deadline that [`Kind::due`] is for, Unix time in ms.
    fn next_deadline(&self) -> Option<u64> {
        None
    }

    /// The operation to propose when a deadline has come.
    fn due() -> Option<Self::Op> {
        None
    }

    /// The operation to propose when the node starts.
    fn node_up(_node: u64, _incarnation: u64, _last_alive_ms: u64) -> Option<Self::Op> {
        None
    }

    /// The machine was made of tables: at a start, or because they were replaced. Called with the lock of the shard held.
    fn loaded(&self, _listener: &dyn Listener) {}

    /// Tells what is to be known at the start: routes, unfinished business.
    fn announce(&mut self, _outlet: &mut Self::Outlet) {}

    /// Calls `apply` with the outlet of this kind.
    fn with_outlet<R>(effects: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R;
}
