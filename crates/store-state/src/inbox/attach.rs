//! Connections come and go; sessions begin and end.

use std::collections::BTreeMap;

use mqtt_session::{ClassId, DropReason, Timestamp};

use super::inbox::{Inbox, is_shared};
use super::machine::{Context, InboxMachine};
use super::tables::INBOX;
use super::{Attached, InboxDrop, InboxOutlet, InboxReply, SessionName};
use crate::{TableError, row};

/// Inboxes that one part of an operation detaches at most: well under a millisecond, unless they have very many
/// filters.
const AT_ONCE: usize = 256;

/// Whether a process of a node, by its incarnation, is the latest one known.
pub(super) fn runs(nodes: &BTreeMap<u64, u64>, (node, incarnation): (u64, u64)) -> bool {
    nodes.get(&node).is_none_or(|&latest| incarnation >= latest)
}

/// A connection that a session is attached for.
pub(super) struct Connection<'a> {
    pub(super) client: &'a str,
    /// The node that the client is connected to, and the node's incarnation.
    pub(super) place: (u64, u64),
    pub(super) class: ClassId,
}

impl InboxMachine {
    /// `last`: the epoch of a connection since which the node knows the subscriptions, and whether it knows what they owe,
    /// if no other came after it.
    pub(super) fn attach(
        &mut self,
        connection: &Connection<'_>,
        epoch: u64,
        resume: bool,
        last: Option<(u64, bool)>,
        context: &mut Context<'_>,
    ) -> Result<InboxReply, TableError> {
        let &Connection {
            client,
            place,
            class,
        } = connection;
        let owes = |number| self.owed.has(number);
        let owes = self.inboxes.number_of(client).is_some_and(owes);
        let last = last.filter(|(_, knows_owed)| *knows_owed || !owes);
        let last = last.map(|(epoch, _)| epoch);
        let mut found = self.inboxes.number_of(client);
        let of = found.and_then(|number| self.inboxes.get(number));
        if of.is_some_and(|inbox| epoch < inbox.epoch) {
            return Ok(InboxReply::Stale);
        }
        // The node says again what it has had no answer to: the client may have the first one, and this inbox, by now.
        let has_begun_it = of.is_some_and(|inbox| inbox.incarnation == epoch);
        let keeps_it = has_begun_it && self.naming.level.claims_once();
        if let Some(number) = found.filter(|_| !resume && !keeps_it) {
            self.discard(number, context)?;
            found = None;
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
        self.show_attached(number, place, context.outlet);
        let Some(inbox) = self.inboxes.get_mut(number) else {
            return Ok(InboxReply::Stale);
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
        Ok(if is_known {
            InboxReply::AttachedAgain(attached)
        } else {
            InboxReply::Attached(attached)
        })
    }

    /// A session begins: an empty inbox. What the client published in earlier ones is forgotten.
    fn begin(&mut self, client: &str, name: &str, epoch: u64) -> u64 {
        let number = self.next_inbox;
        self.next_inbox += if self.naming.level.is_trial() { 2 } else { 1 };
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
        outlet: &mut dyn InboxOutlet,
    ) -> InboxReply {
        let Some(inbox) = self.inboxes.current(session, epoch) else {
            return InboxReply::Stale;
        };
        self.stock.touch(inbox);
        inbox.queue.mark_sent(sent);
        let number = inbox.number;
        self.show_attached(number, None, outlet);
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

    pub(super) fn remove(
        &mut self,
        session: &SessionName,
        epoch: u64,
        context: &mut Context<'_>,
    ) -> Result<InboxReply, TableError> {
        let Some(number) = self
            .inboxes
            .current(session, epoch)
            .map(|inbox| inbox.number)
        else {
            return Ok(InboxReply::Stale);
        };
        self.discard(number, context)?;
        Ok(InboxReply::Done)
    }

    /// One pass over all inboxes, and then part after part of those that are to be detached; false: some are
    /// left. Rows are written of those only that have something queued, for it is
    /// not known how much of that was sent; of the others, when they are loaded, the nodes' incarnations
    /// say that they are detached.
    pub(super) fn node_up(
        &mut self,
        node: u64,
        incarnation: u64,
        outlet: &mut dyn InboxOutlet,
    ) -> bool {
        let mut left = match self.left.take() {
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
            self.show_attached(number, None, outlet);
        }
        let is_done = left.len() == 0;
        if !is_done {
            self.left = Some(left);
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
                for filter in inbox.own_filters() {
                    self.filters.attach(filter, outlet);
                }
            }
            (true, false) => {
                self.attached -= 1;
                for filter in inbox.own_filters() {
                    self.filters.detach(filter, outlet);
                }
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Ends a session with all it has. What others of its shared groups are to have stays, as a legacy.
    fn discard(&mut self, number: u64, context: &mut Context<'_>) -> Result<(), TableError> {
        let Some(mut inbox) = self.inboxes.remove(number) else {
            return Ok(());
        };
        self.attached -= usize::from(inbox.is_attached());
        self.matching.take_over(&mut inbox, &mut self.filters);
        self.unroute(&inbox, context.outlet);
        self.stock.has_room(&mut inbox);
        self.stock.end(&mut inbox);
        self.owed.end(inbox.id());
        if self.naming.level.claims_once() && inbox.is_connected() {
            inbox.queue.mark_unknown_sent();
        }
        let Inbox { client, queue, .. } = &mut *inbox;
        let sent = queue.sent();
        queue.retain(&mut self.stock, context.table, |sequence, item| {
            // [MQTT-4.8.2-5] a QoS 2 message that may have reached this client goes to no other.
            let is_bound = item.qos == mqtt_proto::QoS::ExactlyOnce && sequence <= sent;
            let stays = item.group.is_some() && !is_bound;
            if !stays {
                context.outlet.dropped(InboxDrop {
                    client,
                    message: &item.message,
                    reason: DropReason::SessionEnded,
                });
            }
            stays
        })?;
        if inbox.queue.len() > 0 {
            self.leave(inbox.into_legacy(), context.outlet);
        }
        Ok(())
    }

    /// Takes back the subscriptions of a session that ends.
    fn unroute(&mut self, inbox: &Inbox, outlet: &mut dyn InboxOutlet) {
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
    }
}
