//! Connections come and go; sessions begin and end.

use std::collections::BTreeMap;

use mqtt_session::{ClassId, Timestamp};

use super::ending::Ending;
use super::inbox::{Inbox, is_shared};
use super::machine::{Context, InboxMachine};
use super::tables::INBOX;
use super::{Attached, InboxOp, InboxOutlet, InboxReply, SessionName};
use crate::{TableError, row};

/// Inboxes that one part of an operation detaches at most: well under a millisecond, unless they have very many
/// filters.
const AT_ONCE: usize = 256;

/// Whether a process of a node, by its incarnation, is the latest one known.
pub(super) fn runs(nodes: &BTreeMap<u64, u64>, (node, incarnation): (u64, u64)) -> bool {
    nodes.get(&node).is_none_or(|&latest| incarnation >= latest)
}

/// What the session store has given a connection.
#[derive(Clone, Copy)]
struct Epoch(u64);

/// A connection that a session is attached for.
pub(super) struct Connection<'a> {
    client: &'a str,
    /// The node that the client is connected to, and the node's incarnation.
    place: (u64, u64),
    class: ClassId,
    epoch: Epoch,
    resume: bool,
    /// The epoch of a connection since which the node knows the subscriptions, and whether it knows what they owe, if no
    /// other came after it.
    last: Option<(u64, bool)>,
}

impl<'a> Connection<'a> {
    /// `None`: the operation does not attach.
    pub(super) fn of(op: &'a InboxOp) -> Option<Self> {
        Some(match op {
            InboxOp::Attach {
                client,
                epoch,
                node,
                node_incarnation,
                resume,
            } => Self {
                client,
                place: (*node, *node_incarnation),
                class: ClassId::DEFAULT,
                epoch: Epoch(*epoch),
                resume: *resume,
                last: None,
            },
            InboxOp::AttachAgain {
                client,
                epoch,
                node,
                node_incarnation,
                last,
                knows_owed,
            } => Self {
                client,
                place: (*node, *node_incarnation),
                class: ClassId::DEFAULT,
                epoch: Epoch(*epoch),
                resume: true,
                last: Some((*last, *knows_owed)),
            },
            InboxOp::AttachAs {
                client,
                epoch,
                node,
                node_incarnation,
                resume,
                last,
                class,
            } => Self {
                client,
                place: (*node, *node_incarnation),
                class: *class,
                epoch: Epoch(*epoch),
                resume: *resume,
                last: *last,
            },
            _ => return None,
        })
    }
}

impl InboxMachine {
    /// Attaches a session, or goes on to end the one before it, which the client does not resume. `None`: that one has
    /// messages left, and the new one is not begun.
    pub(super) fn attach(
        &mut self,
        connection: &Connection<'_>,
        context: &mut Context<'_>,
    ) -> Result<Option<InboxReply>, TableError> {
        let &Connection {
            client,
            place,
            class,
            epoch: Epoch(epoch),
            resume,
            last,
        } = connection;
        let owes = |number| self.owed.has(number);
        let owes = self.inboxes.number_of(client).is_some_and(owes);
        let last = last.filter(|(_, knows_owed)| *knows_owed || !owes);
        let last = last.map(|(epoch, _)| epoch);
        let mut found = self.inboxes.number_of(client);
        let of = found.and_then(|number| self.inboxes.get(number));
        if of.is_some_and(|inbox| epoch < inbox.epoch) {
            return Ok(Some(InboxReply::Stale));
        }
        // The node says again what it has had no answer to: the client may have the first one, and this inbox, by now.
        let has_begun_it = of.is_some_and(|inbox| inbox.incarnation == epoch);
        let keeps_it = has_begun_it && self.naming.level.claims_once();
        if let Some(number) = found.filter(|_| !resume && !keeps_it) {
            self.begin_end(number, context.outlet);
            found = None;
        }
        if !self.end_part(context)? {
            return Ok(None);
        }
        let name = self.naming.name_of(client);
        let number = found.unwrap_or_else(|| self.begin(client, &name, epoch));
        // A connection of a process that is known to be gone is none.
        let place = Some(place).filter(|&place| runs(&self.nodes, place));
        let mut is_known = false;
        if let Some(inbox) = self.inboxes.get_mut(number) {
            self.stock.touch(inbox);
            is_known = inbox.lingers && last == Some(inbox.epoch) && place == inbox.attached;
            inbox.epoch = epoch;
            inbox.class = class;
            self.stock.note_length(inbox);
            if inbox.is_connected() {
                inbox.queue.mark_unknown_sent();
            }
        }
        if !is_known && place.is_some() {
            context.outlet.awaited(number, true);
        }
        self.show_attached(number, place, context.now, context.outlet);
        let Some(inbox) = self.inboxes.get_mut(number) else {
            return Ok(Some(InboxReply::Stale));
        };
        let (subscriptions, owed) = if is_known {
            (Vec::new(), Vec::new())
        } else {
            (inbox.subscriptions.clone(), self.owed.of(number))
        };
        let attached = Box::new(Attached {
            present: found.is_some() && !has_begun_it,
            inbox: number,
            incarnation: inbox.incarnation,
            subscriptions,
            received: self.origins.received(&name, inbox.incarnation),
            first: inbox.queue.lowest(&self.stock, context.table)?,
            sent: inbox.queue.sent() + 1,
            owed,
        });
        Ok(Some(if is_known {
            InboxReply::AttachedAgain(attached)
        } else {
            InboxReply::Attached(attached)
        }))
    }

    /// A session begins: an empty inbox. What the client published in earlier ones is forgotten.
    fn begin(&mut self, client: &str, name: &str, epoch: u64) -> u64 {
        let number = self.next_inbox;
        self.next_inbox = self.naming.level.inbox_after(number);
        self.origins.begin(name, epoch);
        let slot = self.naming.hash.slot_of(client);
        let stored = self.stock.revive(&row::key(INBOX, slot, client));
        self.inboxes
            .insert(Inbox::new(client, slot, number, epoch, stored));
        number
    }

    pub(super) fn detach(
        &mut self,
        session: &SessionName,
        epoch: u64,
        sent: u64,
        context: &mut Context<'_>,
    ) -> InboxReply {
        let Some(inbox) = self.inboxes.current(session, epoch) else {
            return InboxReply::Stale;
        };
        self.stock.touch(inbox);
        inbox.queue.mark_sent(sent);
        let number = inbox.number;
        self.show_attached(number, None, context.now, context.outlet);
        InboxReply::Done
    }

    /// The client is gone, and its node gets what comes for it for a while still.
    pub(super) fn linger(&mut self, session: &SessionName, epoch: u64, sent: u64) -> InboxReply {
        let Some(inbox) = self.inboxes.current(session, epoch) else {
            return InboxReply::Stale;
        };
        if inbox.is_attached() {
            self.stock.touch(inbox);
            inbox.queue.mark_sent(sent);
            inbox.lingers = true;
        }
        InboxReply::Done
    }

    /// Ends a session, or goes on with it. `None`: some of its messages are left.
    pub(super) fn remove(
        &mut self,
        session: &SessionName,
        epoch: u64,
        context: &mut Context<'_>,
    ) -> Result<Option<InboxReply>, TableError> {
        if self.under_way.ending.is_none() {
            let Some(inbox) = self.inboxes.current(session, epoch) else {
                return Ok(Some(InboxReply::Stale));
            };
            let number = inbox.number;
            self.begin_end(number, context.outlet);
        }
        let is_done = self.end_part(context)?;
        Ok(is_done.then_some(InboxReply::Done))
    }

    /// Begins to end a session with all it has; [`InboxMachine::end_part`] goes on with it.
    fn begin_end(&mut self, number: u64, outlet: &mut dyn InboxOutlet) {
        let Some(mut inbox) = self.inboxes.remove(number) else {
            return;
        };
        self.attached -= usize::from(inbox.is_attached());
        self.matching.take_over(&mut inbox, &mut self.filters);
        for subscription in &inbox.subscriptions {
            let filter = &*subscription.filter;
            self.stock.filter_bytes -= filter.len();
            if is_shared(filter) {
                self.members.remove(inbox.number);
                outlet.member(&inbox.client, filter, None);
            } else {
                self.matching.unsubscribe(inbox.number, filter);
                self.filters.remove(filter, !inbox.is_attached(), outlet);
            }
        }
        self.stock.has_room(&mut inbox);
        self.stock.end(&mut inbox);
        self.owed.end(inbox.id());
        if self.naming.level.claims_once() && inbox.is_connected() {
            inbox.queue.mark_unknown_sent();
        }
        outlet.awaited(number, false);
        self.under_way.ending = Some(Ending::of(inbox));
    }

    /// Goes on with the end that was begun, if one was. What others of the session's shared groups are to have stays, as a
    /// legacy. False: some messages have yet to be looked at.
    fn end_part(&mut self, context: &mut Context<'_>) -> Result<bool, TableError> {
        let Some(mut ending) = self.under_way.ending.take() else {
            return Ok(true);
        };
        if !ending.go_on(&mut self.stock, context.table, context.outlet)? {
            self.under_way.ending = Some(ending);
            return Ok(false);
        }
        let inbox = ending.into_inbox();
        if inbox.queue.len() > 0 {
            self.leave(inbox.into_legacy(), context.outlet);
        }
        Ok(true)
    }

    /// One pass over all inboxes, and then part after part of those that are to be detached; false: some are
    /// left. Rows are written of those only that have something queued, for it is
    /// not known how much of that was sent; of the others, when they are loaded, the nodes' incarnations
    /// say that they are detached.
    pub(super) fn node_up(
        &mut self,
        node: u64,
        incarnation: u64,
        now: Timestamp,
        outlet: &mut dyn InboxOutlet,
    ) -> bool {
        let mut left = match self.under_way.left.take() {
            Some(left) => left,
            None => {
                let latest = self.nodes.entry(node).or_default();
                if incarnation <= *latest {
                    return true;
                }
                *latest = incarnation;
                self.left_by(node, incarnation)
            }
        };
        for number in left.by_ref().take(AT_ONCE) {
            if let Some(inbox) = self.inboxes.get_mut(number)
                && inbox.queue.len() > 0
                && !inbox.lingers
            {
                self.stock.touch(inbox);
                inbox.queue.mark_unknown_sent();
            }
            self.show_attached(number, None, now, outlet);
        }
        let is_done = left.len() == 0;
        if !is_done {
            self.under_way.left = Some(left);
        }
        is_done
    }

    /// The inboxes that are attached to a process of a node before this one, in the order of their numbers.
    fn left_by(&self, node: u64, incarnation: u64) -> std::vec::IntoIter<u64> {
        let is_gone = |&(of, started): &(u64, u64)| of == node && started < incarnation;
        let mut left: Vec<u64> = self
            .inboxes
            .iter()
            .filter(|inbox| inbox.attached.as_ref().is_some_and(is_gone))
            .map(|inbox| inbox.number)
            .collect();
        left.sort_unstable();
        left.into_iter()
    }

    /// Sets where an inbox is attached, and tells of filters whose answers change.
    fn show_attached(
        &mut self,
        number: u64,
        place: Option<(u64, u64)>,
        now: Timestamp,
        outlet: &mut dyn InboxOutlet,
    ) {
        let Some(inbox) = self.inboxes.get_mut(number) else {
            return;
        };
        self.stock.settle(inbox);
        inbox.queue.rest();
        inbox.lingers = false;
        if place.is_some() {
            inbox.away_since = Timestamp(0);
        }
        if inbox.is_attached() != place.is_some() {
            self.matching.take_over(inbox, &mut self.filters);
        }
        let before = std::mem::replace(&mut inbox.attached, place);
        if place.is_none() {
            outlet.awaited(number, false);
        }
        match (before.is_some(), place.is_some()) {
            (false, true) => {
                self.attached += 1;
                self.members.came_back(number);
                for filter in inbox.own_filters() {
                    self.filters.attach(filter, outlet);
                }
            }
            (true, false) => {
                self.attached -= 1;
                self.members.went_away(number, now);
                for filter in inbox.own_filters() {
                    self.filters.detach(filter, outlet);
                }
            }
            (true, true) | (false, false) => {}
        }
    }
}
