//! The three stores, as far as their shards differ.

use std::sync::Arc;

use mqtt_session::Timestamp;
use store_state::inbox::{
    InboxDrop, InboxMachine, InboxOp, InboxOutlet, InboxReply, Item, Origin, Queued,
    StoredSubscription,
};
use store_state::retain::{PageBudget, RetainMachine, RetainOp, RetainReply};
use store_state::session::{SessionMachine, SessionOp, SessionOutlet, SessionReply, StoredWill};
use store_state::{Batch, Machine, Table, TableError, Ticket};

use crate::command::Command;
use crate::event::Event;
use crate::peers::{Forwarded, Message};
use crate::readers::Readers;
use crate::retained::{Page, Selection};
use crate::{Listener, ShardNumber};

/// A store, by its machine.
pub(crate) trait Kind: Machine + Sync {
    /// The store's name: its folder, and the beginning of its settings.
    const NAME: &'static str;
    /// Distinguishes its groups in the log from those of the others.
    const NUMBER: u64;

    /// Whether event loops read from it.
    const HAS_READERS: bool = false;

    /// Another node leads a shard from now on, or none that is known.
    fn led(_listener: &dyn Listener, _shard: ShardNumber, _node: Option<u64>, _term: u64) {}

    /// All that a shard has to tell has been told.
    fn announced(_listener: &dyn Listener, _shard: ShardNumber) {}

    /// The log entry of a batch.
    fn command(batch: Arc<Batch<Self::Op>>) -> Command;

    /// The batch of a log entry; `None`: it is another store's.
    fn batch(command: &Command) -> Option<&Batch<Self::Op>>;

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

    /// An operation that nobody waits for was refused: tells of messages that are lost by that.
    fn lost(_op: &Self::Op, _listener: &dyn Listener) {}

    /// Whether an operation tells of what has happened already, and would not come again if it were
    /// refused: then it waits for space on a full disk. `ticket`: of the request.
    fn must_wait(_op: &Self::Op, _ticket: Ticket) -> bool {
        false
    }

    /// Whether it must not happen any more when the others have taken this node for dead, because its client
    /// may have gone on at another one: a claim; a publication that its publisher has repeated and released.
    fn ends_with_its_node(_op: &Self::Op) -> bool {
        false
    }

    /// The operation, as it is said again by someone who does not know whether it was carried out.
    fn again(op: Self::Op) -> Self::Op {
        op
    }

    /// A page of retained messages.
    fn retained(
        &self,
        _selection: &Selection,
        _budget: &mut PageBudget,
        _now: Timestamp,
    ) -> Option<Page> {
        None
    }

    /// The highest incarnation of a node that the shard knows of; 0: none.
    fn incarnation(&self, _node: u64) -> u64 {
        0
    }

    /// The message that carries work of this kind to another node.
    fn message(forwarded: Forwarded<Self::Op>) -> Message;

    /// Whether nobody waits for it: it goes with other work, or after a moment.
    fn is_patient(_op: &Self::Op) -> bool {
        false
    }

    /// The client whose later operations [`Kind::merge`] may put into this one.
    fn merges(_op: &Self::Op) -> Option<&str> {
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

    /// Tells what is to be known at the start: routes, unfinished business.
    fn announce(&mut self, _outlet: &mut Self::Outlet) {}

    /// Calls `apply` with the outlet of this kind.
    fn with_outlet<R>(effects: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R;
}

/// Where the effects of a shard's operations go: to the listener at once, or with the next mail.
pub(crate) struct Effects {
    pub(crate) shard: ShardNumber,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) readers: Readers,
    /// For any loop.
    pub(crate) events: Vec<Event>,
    /// What is applied happens now. While the log is applied again, it has happened before.
    pub(crate) live: bool,
}

impl Kind for SessionMachine {
    const NAME: &'static str = "session";
    const NUMBER: u64 = 0;

    fn command(batch: Arc<Batch<SessionOp>>) -> Command {
        Command::Session(batch)
    }

    fn batch(command: &Command) -> Option<&Batch<SessionOp>> {
        match command {
            Command::Session(batch) => Some(batch),
            _ => None,
        }
    }

    fn event(token: u64, reply: SessionReply) -> Event {
        Event::Session { token, reply }
    }

    fn must_wait(op: &SessionOp, _: Ticket) -> bool {
        match op {
            SessionOp::Disconnect { .. }
            | SessionOp::Fired { .. }
            | SessionOp::Gone { .. }
            | SessionOp::WillDue { .. }
            | SessionOp::DiscardWill { .. }
            | SessionOp::FireAgain { .. } => true,
            SessionOp::NodeUp { .. }
            | SessionOp::Claim(_)
            | SessionOp::ClaimAgain(_)
            | SessionOp::ClaimBy(_)
            | SessionOp::ClaimByAgain(_)
            | SessionOp::ClaimHolding(_)
            | SessionOp::ClaimHoldingAgain(_)
            | SessionOp::Due => false,
        }
    }

    fn ends_with_its_node(op: &SessionOp) -> bool {
        op.claimed().is_some()
    }

    fn again(op: SessionOp) -> SessionOp {
        op.again()
    }

    fn incarnation(&self, node: u64) -> u64 {
        self.incarnation_of(node)
    }

    fn message(forwarded: Forwarded<SessionOp>) -> Message {
        Message::Session(forwarded)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.next_deadline()
    }

    fn due() -> Option<SessionOp> {
        Some(SessionOp::Due)
    }

    fn node_up(node: u64, incarnation: u64, last_alive_ms: u64) -> Option<SessionOp> {
        Some(SessionOp::NodeUp {
            node,
            incarnation,
            last_alive_ms,
        })
    }

    fn announce(&mut self, outlet: &mut Self::Outlet) {
        self.outstanding(outlet);
    }

    fn with_outlet<R>(effects: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R {
        apply(effects)
    }
}

impl SessionOutlet for Effects {
    fn fire(&mut self, client: &str, epoch: u64, will: &StoredWill) {
        if !self.live {
            return;
        }
        self.events.push(Event::Fire {
            client: client.into(),
            epoch,
            will: will.clone(),
        });
    }

    fn ended(&mut self, client: &str, epoch: u64) {
        if !self.live {
            return;
        }
        self.events.push(Event::Ended {
            client: client.into(),
            epoch,
        });
    }

    fn known(&mut self, _: &str, _: bool) {}
}

impl Kind for InboxMachine {
    const NAME: &'static str = "inbox";
    const NUMBER: u64 = 1;
    const HAS_READERS: bool = true;

    fn led(listener: &dyn Listener, shard: ShardNumber, node: Option<u64>, term: u64) {
        listener.inbox_leader(shard, node, term);
    }

    fn announced(listener: &dyn Listener, shard: ShardNumber) {
        listener.inbox_announced(shard);
    }

    fn command(batch: Arc<Batch<InboxOp>>) -> Command {
        Command::Inbox(batch)
    }

    fn batch(command: &Command) -> Option<&Batch<InboxOp>> {
        match command {
            Command::Inbox(batch) => Some(batch),
            _ => None,
        }
    }

    fn event(token: u64, reply: InboxReply) -> Event {
        Event::Inbox { token, reply }
    }

    fn page(
        &mut self,
        inbox: u64,
        from: u64,
        items: u32,
        bytes: usize,
        table: &dyn Table,
        out: &mut Vec<(u64, Queued)>,
    ) -> Result<(u64, bool), TableError> {
        let next = self.page(inbox, from, items as usize, bytes, table, out)?;
        Ok((
            next,
            self.next_sequence(inbox).is_none_or(|end| next >= end),
        ))
    }

    fn ends_with_its_node(op: &InboxOp) -> bool {
        match op {
            InboxOp::Publish { origin, .. } | InboxOp::Deliver { origin, .. } => {
                origin.as_ref().is_some_and(|origin| !origin.is_of_broker())
            }
            InboxOp::PublishFenced { .. } | InboxOp::DeliverFenced { .. } => true,
            _ => false,
        }
    }

    fn must_wait(op: &InboxOp, ticket: Ticket) -> bool {
        match op {
            InboxOp::Acknowledge { .. }
            | InboxOp::Detach { .. }
            | InboxOp::Linger { .. }
            | InboxOp::Forget { .. }
            | InboxOp::HandOver { .. }
            | InboxOp::Remove { .. } => true,
            // A client whose PUBREL is refused sends it again.
            InboxOp::Release { .. } | InboxOp::ReleaseFenced { .. } => ticket == Ticket::NONE,
            InboxOp::Publish { origin, .. } | InboxOp::Deliver { origin, .. } => {
                origin.as_ref().is_some_and(Origin::is_of_broker)
            }
            InboxOp::NodeUp { .. }
            | InboxOp::PublishOnce { .. }
            | InboxOp::DeliverOnce { .. }
            | InboxOp::PublishFenced { .. }
            | InboxOp::DeliverFenced { .. }
            | InboxOp::Replay { .. }
            | InboxOp::Attach { .. }
            | InboxOp::AttachAgain { .. }
            | InboxOp::DeliverLate { .. }
            | InboxOp::Subscribe { .. }
            | InboxOp::Unsubscribe { .. }
            | InboxOp::Receipt { .. } => false,
        }
    }

    fn incarnation(&self, node: u64) -> u64 {
        self.incarnation_of(node)
    }

    fn message(forwarded: Forwarded<InboxOp>) -> Message {
        Message::Inbox(forwarded)
    }

    fn is_patient(op: &InboxOp) -> bool {
        match op {
            InboxOp::Acknowledge { .. } => true,
            InboxOp::Replay { items, .. } => items.is_empty(),
            _ => false,
        }
    }

    fn merges(op: &InboxOp) -> Option<&str> {
        match op {
            InboxOp::Acknowledge { client, .. } => Some(client),
            _ => None,
        }
    }

    fn merge(waiting: &mut InboxOp, op: InboxOp) -> Result<(), InboxOp> {
        match (waiting, op) {
            (
                InboxOp::Acknowledge {
                    epoch, sent, done, ..
                },
                InboxOp::Acknowledge {
                    epoch: same,
                    sent: later,
                    done: more,
                    ..
                },
            ) if *epoch == same => {
                *sent = later.max(*sent);
                done.0.extend(more.0);
                Ok(())
            }
            (_, op) => Err(op),
        }
    }

    fn lost(op: &InboxOp, listener: &dyn Listener) {
        match op {
            InboxOp::Publish { message, .. }
            | InboxOp::PublishOnce { message, .. }
            | InboxOp::PublishFenced { message, .. } => {
                listener.lost("", message);
            }
            InboxOp::Deliver { client, items, .. }
            | InboxOp::DeliverOnce { client, items, .. }
            | InboxOp::DeliverFenced { client, items, .. } => {
                for item in items {
                    listener.lost(client, &item.message);
                }
            }
            _ => {}
        }
    }

    fn node_up(node: u64, incarnation: u64, _: u64) -> Option<InboxOp> {
        Some(InboxOp::NodeUp { node, incarnation })
    }

    fn announce(&mut self, outlet: &mut Self::Outlet) {
        self.for_each_filter(outlet);
        self.for_each_member(outlet);
        self.for_each_legacy(outlet);
    }

    fn with_outlet<R>(effects: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R {
        apply(effects)
    }
}

impl InboxOutlet for Effects {
    fn queued(&mut self, inbox: u64, sequence: u64, item: &Item) {
        self.readers.queued(inbox, sequence, item);
    }

    fn dropped(&mut self, drop: InboxDrop<'_>) {
        if self.live {
            self.listener.dropped(&drop);
        }
    }

    fn filter(&mut self, filter: &str, any: bool, detached: bool) {
        if self.live {
            self.listener.filter(self.shard, filter, any, detached);
        }
    }

    fn member(&mut self, client: &str, filter: &str, subscription: Option<&StoredSubscription>) {
        if self.live {
            self.listener
                .member(self.shard, client, filter, subscription);
        }
    }

    fn left_behind(&mut self, client: &str, inbox: u64) {
        if !self.live {
            return;
        }
        self.events.push(Event::LeftBehind {
            client: client.into(),
            inbox,
        });
    }
}

impl Kind for RetainMachine {
    const NAME: &'static str = "retain";
    const NUMBER: u64 = 2;

    fn command(batch: Arc<Batch<RetainOp>>) -> Command {
        Command::Retain(batch)
    }

    fn batch(command: &Command) -> Option<&Batch<RetainOp>> {
        match command {
            Command::Retain(batch) => Some(batch),
            _ => None,
        }
    }

    fn event(token: u64, reply: RetainReply) -> Event {
        Event::Retain { token, reply }
    }

    fn retained(
        &self,
        selection: &Selection,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> Option<Page> {
        let cursor = selection.place.cursor();
        Some(self.page(&selection.filter, cursor.as_ref(), budget, now))
    }

    fn message(forwarded: Forwarded<RetainOp>) -> Message {
        Message::Retain(forwarded)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.next_deadline()
    }

    fn due() -> Option<RetainOp> {
        Some(RetainOp::Expire)
    }

    fn with_outlet<R>(_: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R {
        apply(&mut ())
    }
}
