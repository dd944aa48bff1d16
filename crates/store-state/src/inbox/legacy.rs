//! What sessions that have ended, or are away, leave to the shared groups that they are in.
//!
//! A legacy is a queue: messages that such a session had been chosen for, that its client cannot have received, and that others
//! of the group are to have. It stays until somebody says that they do. An ended session leaves its own queue under the number
//! of its inbox. One that is away leaves part after part of what it has of a group, each under a number of its own, and keeps
//! its inbox.
//!
//! Invariants: the number of a legacy is that of no inbox and of no other legacy. Sequences of a part ascend, and are not above
//! those that its messages had: so the legacies of one session stand in the order of their last sequences, those of its end last.
//!
//! Deliberately absent: who gets them, and when something is left ([`RetentionLimit::Away`](super::RetentionLimit::Away) says
//! that); and the client, whose next session has nothing to do with it.

use std::ops::Range;

use mqtt_proto::QoS;

use super::inbox::Inbox;
use super::machine::{Context, InboxMachine};
use super::queue::Queue;
use super::queue::trim::take;
use super::{ClientName, InboxOutlet, InboxReply, Item, Queued, SessionName};
use crate::TableError;

/// Messages that are told at once, and their accounted bytes.
const PAGE: (usize, usize) = (128, 256 * 1024);

/// A member of a group that is away, and what it leaves to the group.
pub(super) struct Leaving<'a> {
    /// And the epoch of its last connection.
    pub(super) session: (&'a SessionName, u64),
    /// The subscription, as in SUBSCRIBE.
    pub(super) group: &'a str,
    pub(super) sequences: Range<u64>,
}

impl Leaving<'_> {
    /// Moves its messages of the group into a legacy.
    pub(super) fn carry_out(
        self,
        machine: &mut InboxMachine,
        context: &mut Context<'_>,
    ) -> Result<InboxReply, TableError> {
        let Self { group, .. } = self;
        let (session, epoch) = self.session;
        let is_away = |inbox: &&mut Inbox| inbox.epoch == epoch && !inbox.is_attached();
        let inbox = machine.inboxes.named(session).filter(is_away);
        let Some(inbox) = inbox else {
            return Ok(InboxReply::Stale);
        };
        machine.stock.touch(inbox);
        let stays = |_, item: &Item| !is_left(item, group);
        let (mut first, mut items) = (None, Vec::new());
        let (queue, stock, table) = (&mut inbox.queue, &mut machine.stock, context.table);
        take(queue, self.sequences, stock, table, stays, |of, item| {
            first.get_or_insert(of);
            items.push(item);
        })?;
        let Some(first) = first else {
            return Ok(InboxReply::Done);
        };
        machine.stock.has_room(inbox);
        let (slot, number) = (inbox.queue.slot(), machine.next_inbox);
        let mut legacy = Inbox {
            incarnation: inbox.incarnation,
            is_legacy: true,
            class: inbox.class,
            queue: Queue::new(slot, number, first),
            ..Inbox::new(&inbox.client, slot, number, epoch, false)
        };
        for item in items {
            legacy.queue.push(item, 0, context.now, &mut machine.stock);
        }
        machine.next_inbox = machine.naming.level.inbox_after(number);
        machine.leave(Box::new(legacy), context.outlet);
        Ok(InboxReply::Done)
    }
}

impl InboxMachine {
    pub(super) fn leave(&mut self, mut legacy: Box<Inbox>, outlet: &mut dyn InboxOutlet) {
        self.stock.touch(&mut legacy);
        outlet.left_behind(&legacy.client, legacy.number);
        self.inboxes.legacies.insert(legacy.number, legacy);
    }

    /// Lets go of what others have, and says what they are to have next.
    pub(super) fn hand_over(
        &mut self,
        client: &ClientName,
        number: u64,
        done: &[u64],
        context: &Context<'_>,
    ) -> Result<InboxReply, TableError> {
        let naming = self.naming;
        let legacy = self.inboxes.legacies.get_mut(&number);
        let is_of = |legacy: &&mut Box<Inbox>| {
            [&*legacy.client, &*naming.name_of(&legacy.client)].contains(&client.as_str())
        };
        let Some(legacy) = legacy.filter(is_of) else {
            return Ok(InboxReply::LeftBehind(Vec::new()));
        };
        if !done.is_empty() {
            self.stock.touch(legacy);
        }
        for &sequence in done {
            legacy
                .queue
                .take(sequence, &mut self.stock, context.table)?;
        }
        if legacy.queue.len() == 0 {
            self.stock.end(legacy);
            self.inboxes.legacies.remove(&number);
            return Ok(InboxReply::LeftBehind(Vec::new()));
        }
        let mut page = Vec::new();
        legacy
            .queue
            .page(0, PAGE, false, &self.stock, context.table, &mut page)?;
        let items = page
            .into_iter()
            .filter_map(|(sequence, queued)| match queued {
                Queued::Message(item) => Some((sequence, item)),
                Queued::Released => None,
            });
        Ok(InboxReply::LeftBehind(items.collect()))
    }

    /// Tells of all legacies, as [`InboxOutlet::left_behind`] would have; those of a client in the order of its sessions, and
    /// those of a session in the order of their messages.
    pub fn for_each_legacy(&self, outlet: &mut dyn InboxOutlet) {
        let mut legacies: Vec<&Inbox> = self.inboxes.legacies.values().map(|of| &**of).collect();
        legacies.sort_by_key(|of| (of.incarnation, of.queue.next(), of.number));
        for legacy in legacies {
            outlet.left_behind(&legacy.client, legacy.number);
        }
    }
}

/// Whether a queued message of a session that is away may go to others of a group. One of QoS 2 stays: a handover that is begun
/// anew, after its leader was lost, may choose another member.
pub(super) fn is_left(item: &Item, group: &str) -> bool {
    item.group.as_deref() == Some(group) && item.qos != QoS::ExactlyOnce
}
