//! The inbox machine: its parts, and which operation goes where.

use std::collections::BTreeMap;

use mqtt_session::Timestamp;

use super::acknowledge;
use super::attach::Connection;
use super::calls::Calls;
use super::ending::UnderWay;
use super::fences::Fences;
use super::filters::Filters;
use super::inbox::{Inbox, is_shared};
use super::inboxes::Inboxes;
use super::matching::Matching;
use super::members::Members;
use super::name::Naming;
use super::origins::Origins;
use super::owed::OwedMessages;
use super::publishing::Publication;
use super::stock::Stock;
use super::survey;
use super::{Call, InboxOp, InboxOutlet, InboxReply, Queued, SessionName};
use crate::{
    Changes, Header, Level, Limits, LoadError, Machine, NameHash, SlotRange, Slots, Survey, Table,
    TableError,
};

/// The inboxes of one shard.
///
/// A message that finds one session here is stored with that session's queue; one that finds several is
/// stored once, and their queues refer to it.
#[derive(Debug)]
pub struct InboxMachine {
    pub(super) range: SlotRange,
    /// How clients are named, and the level of what is written and done with an entry.
    pub(super) naming: Naming,
    /// Each node's incarnation.
    pub(super) nodes: BTreeMap<u64, u64>,
    /// The number of the next inbox. None is used again.
    pub(super) next_inbox: u64,
    /// The number of the next body, from 1. None is used again.
    pub(super) next_body: u64,
    pub(super) inboxes: Inboxes,
    pub(super) matching: Matching,
    pub(super) filters: Filters,
    pub(super) members: Members,
    pub(super) origins: Origins,
    pub(super) fences: Fences,
    pub(super) owed: OwedMessages,
    pub(super) calls: Calls,
    pub(super) stock: Stock,
    /// Inboxes that are attached.
    pub(super) attached: usize,
    pub(super) under_way: UnderWay,
    /// The machine's own row as it was last handed out.
    pub(super) recorded: Vec<u8>,
}

/// What an operation is carried out with, beside the machine.
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    pub(super) limits: &'a Limits,
    pub(super) table: &'a dyn Table,
    pub(super) outlet: &'a mut dyn InboxOutlet,
}

/// What a shard holds, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxCounts {
    /// Inboxes.
    pub inboxes: usize,
    /// Those whose clients are connected.
    pub attached: usize,
    /// Legacies: what sessions that have ended, or are away, have left to shared groups, and others do not have yet.
    pub legacies: usize,
    /// Messages queued, in legacies too; one that several sessions have counts in each.
    pub messages: u64,
    /// Their accounted bytes.
    pub bytes: u64,
    /// Inboxes whose queues are full: a message was dropped for it since this replica has been loaded, and no room has
    /// been made since.
    pub full: usize,
    /// Bytes of the topic filters of all inboxes.
    pub filter_bytes: usize,
    /// Wills and messages of legacies whose publication is not recorded yet.
    pub origins: usize,
    /// Those whose publication is, and that are known for a while still.
    pub released_origins: usize,
    /// Calls of loops that are known to have been carried out, and may be made again.
    pub calls: usize,
    /// Publishers of which it is known which connections are over.
    pub fences: usize,
}

impl Machine for InboxMachine {
    type Op = InboxOp;
    type Reply = InboxReply;
    type Outlet = dyn InboxOutlet;

    fn load(slots: Slots, table: &dyn Table) -> Result<Self, LoadError> {
        Self::from_tables(slots, table)
    }

    fn raise(&mut self, level: Level) {
        assert!(
            self.under_way.is_nothing(),
            "a shard is raised between two operations"
        );
        let before = std::mem::replace(&mut self.naming.level, level);
        let naming = self.naming;
        self.stock.raise(level);
        if level.shortens_names() && !before.shortens_names() {
            self.inboxes.rename(naming);
            self.origins.rename_all(naming);
            self.fences.rename(naming);
        }
        let inboxes = &self.inboxes;
        let inbox_of = |number| inboxes.get(number).map(Inbox::id);
        self.owed.raise(naming, inbox_of);
    }

    fn lowered(&self, mut op: InboxOp, level: Level) -> Option<InboxOp> {
        if let InboxOp::Trim { limit, .. } = &op
            && !limit.is_of(level)
        {
            return None;
        }
        if level >= Level::SPLITS {
            return Some(op);
        }
        if let Some(session) = op.session_mut()
            && let SessionName::Inbox(id) = session
        {
            let inbox = self.inboxes.get(id.number.0);
            // Of a session that has ended: no client has this identifier.
            let client = inbox.map_or("\0", |inbox| &inbox.client);
            *session = client.into();
        }
        match op.without_class()? {
            // Replicas of that level would begin the session anew if its own connection said so again.
            InboxOp::Attach {
                client,
                epoch,
                node,
                node_incarnation,
                resume: false,
            } if self.inboxes.has_begun(&client, epoch) => Some(InboxOp::Attach {
                client,
                epoch,
                node,
                node_incarnation,
                resume: true,
            }),
            op => Some(op),
        }
    }

    fn slot(op: &InboxOp, hash: NameHash) -> Option<u16> {
        match op {
            InboxOp::Attach { client, .. }
            | InboxOp::AttachAgain { client, .. }
            | InboxOp::AttachAs { client, .. } => Some(hash.slot_of(client)),
            InboxOp::HandOver { client, .. } => Some(client.slot(hash)),
            _ => op.session().map(|session| session.slot(hash)),
        }
    }

    fn apply_part(
        &mut self,
        header: &Header,
        op: &InboxOp,
        table: &dyn Table,
        outlet: &mut Self::Outlet,
    ) -> Result<Option<InboxReply>, TableError> {
        self.origins.pass_time(header.now_ms);
        self.fences.pass_time(header.now_ms);
        if let InboxOp::NodeUp { node, incarnation } = op {
            let now = Timestamp(header.now_ms);
            let is_done = self.node_up(*node, *incarnation, now, outlet);
            return Ok(is_done.then_some(InboxReply::Done));
        }
        let mut context = Context {
            now: Timestamp(header.now_ms),
            limits: &header.limits,
            table,
            outlet,
        };
        if let Some(publication) = Publication::of(op) {
            return self.publish(&publication, &mut context);
        }
        if let Some(connection) = Connection::of(op) {
            return self.attach(&connection, &mut context);
        }
        if let InboxOp::Remove { session, epoch } = op {
            return self.remove(session, *epoch, &mut context);
        }
        self.carry_out(op, &mut context).map(Some)
    }

    fn unsaved_bytes(&self) -> usize {
        self.stock.unsaved_bytes()
            + self.origins.unsaved_bytes()
            + self.fences.unsaved_bytes()
            + self.owed.unsaved_bytes()
    }

    fn collect_part(&mut self, rows: usize, changes: &mut Changes) -> bool {
        self.collect_changes(rows, changes)
    }

    fn saved_part(&mut self, rows: usize) -> bool {
        self.origins.saved();
        self.fences.saved();
        self.owed.saved();
        self.stock.saved_part(rows, &mut self.inboxes)
    }

    fn survey(slots: Slots, table: &dyn Table) -> Survey {
        survey::survey(slots, table)
    }
}

impl InboxMachine {
    fn carry_out(
        &mut self,
        op: &InboxOp,
        context: &mut Context<'_>,
    ) -> Result<InboxReply, TableError> {
        match op {
            // In parts.
            InboxOp::NodeUp { .. }
            | InboxOp::Attach { .. }
            | InboxOp::AttachAgain { .. }
            | InboxOp::AttachAs { .. }
            | InboxOp::Remove { .. }
            | InboxOp::Publish { .. }
            | InboxOp::PublishOnce { .. }
            | InboxOp::PublishFenced { .. } => {}
            InboxOp::Detach {
                session,
                epoch,
                sent,
            } => return Ok(self.detach(session, *epoch, *sent, context)),
            InboxOp::Subscribe {
                session,
                epoch,
                subscriptions,
            } => return Ok(self.subscribe(session, *epoch, subscriptions, context.outlet)),
            InboxOp::Unsubscribe {
                session,
                epoch,
                filters,
            } => return Ok(self.unsubscribe(session, *epoch, filters, context.outlet)),
            InboxOp::Deliver {
                session,
                items,
                origin,
            } => return self.deliver(session, items, origin.as_ref(), context),
            InboxOp::Acknowledge {
                session,
                epoch,
                sent,
                done,
            } => return self.acknowledge(session, *epoch, *sent, &done.0, context.table),
            InboxOp::Receipt {
                session,
                epoch,
                sequence,
            } => return self.receipt(session, *epoch, *sequence, context.table),
            InboxOp::Release { origin } => self.origins.release(origin, context.now.0),
            InboxOp::Forget {
                client,
                incarnation,
            } => self.origins.forget(client, *incarnation, context.now.0),
            InboxOp::Replay {
                session,
                epoch,
                items,
                progress,
            } => return self.replay(session, *epoch, items, progress, context),
            InboxOp::HandOver {
                client,
                inbox,
                done,
            } => return self.hand_over(client, *inbox, &done.0, context),
            InboxOp::DeliverOnce {
                call,
                session,
                items,
            } => {
                return self.once(call, |machine| {
                    machine.deliver(session, items, None, context)
                });
            }
            InboxOp::Linger {
                session,
                epoch,
                sent,
            } => return Ok(self.linger(session, *epoch, *sent)),
            InboxOp::DeliverLate {
                session,
                epoch,
                detached,
                item,
            } => return self.deliver_late(session, *epoch, *detached, item, context),
            InboxOp::Trim {
                session,
                from,
                below,
                limit,
            } => return acknowledge::trim(self, session, *from..*below, limit, context),
            InboxOp::DeliverFenced { origin, epoch, .. }
                if self.fences.is_over(&origin.client, *epoch) =>
            {
                return Ok(InboxReply::Fenced);
            }
            InboxOp::DeliverFenced {
                session,
                items,
                origin,
                ..
            } => return self.deliver(session, items, Some(origin), context),
            InboxOp::ReleaseFenced { origin, epoch } => {
                if !self.fences.raise(&origin.client, *epoch, context.now.0) {
                    return Ok(InboxReply::Fenced);
                }
                self.origins.release(origin, context.now.0);
            }
        }
        Ok(InboxReply::Done)
    }

    fn once(
        &mut self,
        call: &Call,
        carry_out: impl FnOnce(&mut Self) -> Result<InboxReply, TableError>,
    ) -> Result<InboxReply, TableError> {
        if let Some(answer) = self.calls.begin(call) {
            return Ok(answer);
        }
        let reply = carry_out(self)?;
        self.calls.done(call, &reply);
        Ok(reply)
    }

    /// A page of an inbox's queue, appended to `out` in ascending order of sequences: from `from` on,
    /// until it has `max_items`, or `max_bytes` (accounted; the last message may exceed them). Returns
    /// the sequence to ask for next: `from` itself if there is no such inbox. Whoever reads is no part
    /// of what replicas agree on.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn page(
        &mut self,
        inbox: u64,
        from: u64,
        max_items: usize,
        max_bytes: usize,
        table: &dyn Table,
        out: &mut Vec<(u64, Queued)>,
    ) -> Result<u64, TableError> {
        let Some(inbox) = self.inboxes.get_mut(inbox) else {
            return Ok(from);
        };
        let limits = (max_items, max_bytes);
        let attached = inbox.is_attached();
        inbox
            .queue
            .page(from, limits, attached, &self.stock, table, out)
    }

    /// Messages queued in an inbox, in flight ones included, released ones not; 0 if there is none.
    pub fn queue_len(&self, inbox: u64) -> u32 {
        self.inboxes.get(inbox).map_or(0, |inbox| inbox.queue.len())
    }

    /// The next sequence that an inbox will give; `None`: there is no such inbox.
    pub fn next_sequence(&self, inbox: u64) -> Option<u64> {
        self.inboxes.get(inbox).map(|inbox| inbox.queue.next())
    }

    /// The lowest sequence that an inbox has queued or released, or the next one to be given. `None`:
    /// there is no such inbox.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn first(&mut self, inbox: u64, table: &dyn Table) -> Result<Option<u64>, TableError> {
        match self.inboxes.get_mut(inbox) {
            Some(inbox) => inbox.queue.lowest(&self.stock, table).map(Some),
            None => Ok(None),
        }
    }

    /// The highest incarnation of a node that is known; 0: none.
    pub fn incarnation_of(&self, node: u64) -> u64 {
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    /// What the shard holds.
    pub fn counts(&self) -> InboxCounts {
        let (origins, released_origins) = self.origins.of_broker();
        InboxCounts {
            origins,
            released_origins,
            calls: self.calls.len(),
            fences: self.fences.len(),
            inboxes: self.inboxes.len(),
            attached: self.attached,
            legacies: self.inboxes.legacies.len(),
            messages: self.stock.messages,
            bytes: self.stock.bytes,
            full: self.stock.full,
            filter_bytes: self.stock.filter_bytes,
        }
    }

    /// Tells of all filters and of all members of shared groups, as [`InboxOutlet::filter`] and [`InboxOutlet::member`] would
    /// have; in no order.
    pub fn tell_routes(&self, outlet: &mut dyn InboxOutlet) {
        self.filters.tell(outlet);
        let inboxes = self.members.inboxes();
        for inbox in inboxes.filter_map(|number| self.inboxes.get(number)) {
            for subscription in &inbox.subscriptions {
                if is_shared(&subscription.filter) {
                    outlet.member(&inbox.client, &subscription.filter, Some(subscription));
                }
            }
        }
    }
}

/// The clients whose inboxes a machine has; in no order.
pub fn clients(machine: &InboxMachine) -> impl Iterator<Item = &str> {
    machine.inboxes.iter().map(|inbox| &*inbox.client)
}
