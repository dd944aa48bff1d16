//! The end of a session, while it is applied: what it leaves, and how far its queue has been looked through.
//!
//! A queue can hold very many messages, each of which is dropped and told. Each part takes some of them, so that
//! heartbeats and other shards have their turn in between.
//!
//! Invariants: the parts together do what one pass does. The session is gone with the first part, which takes its inbox out
//! of the machine, so nothing that is read in between and no checkpoint under way finds it; a checkpoint that has yet to hand
//! the inbox out gets it then, as it was. What others of its shared groups are to have becomes a legacy with the last part. No
//! other operation comes between the two, and no checkpoint begins there
//! ([`Machine::apply_part`](crate::Machine::apply_part)).

use mqtt_proto::QoS;
use mqtt_session::DropReason;

use super::inbox::{Inbox, is_shared};
use super::machine::{Context, InboxMachine};
use super::{InboxDrop, InboxOutlet};
use crate::TableError;

/// Queued messages that one part looks at: about a millisecond, if the tables need not be read. Tests have short queues, and
/// parts all the same.
pub(super) const AT_ONCE: usize = if cfg!(test) { 2 } else { 1_024 };

/// Their accounted bytes; the last message may exceed them.
const BYTES_AT_ONCE: usize = 1024 * 1024;

/// A session whose end was begun.
#[derive(Debug)]
pub(super) struct Ending {
    inbox: Box<Inbox>,
    /// The first sequence that has yet to be looked at.
    next: u64,
}

impl InboxMachine {
    /// Begins to end a session with all it has; [`InboxMachine::end_part`] goes on with it.
    pub(super) fn begin_end(&mut self, number: u64, outlet: &mut dyn InboxOutlet) {
        let Some(mut inbox) = self.inboxes.remove(number) else {
            return;
        };
        self.attached -= usize::from(inbox.is_attached());
        self.matching.take_over(&mut inbox, &mut self.filters);
        self.unroute(&inbox, outlet);
        self.stock.has_room(&mut inbox);
        self.stock.end(&mut inbox);
        self.owed.end(inbox.id());
        if self.naming.level.claims_once() && inbox.is_connected() {
            inbox.queue.mark_unknown_sent();
        }
        self.ending = Some(Ending { inbox, next: 0 });
    }

    /// Goes on with the end that was begun, if one was. What others of the session's shared groups are to have stays, as a
    /// legacy. False: some messages have yet to be looked at.
    pub(super) fn end_part(&mut self, context: &mut Context<'_>) -> Result<bool, TableError> {
        let Some(mut ending) = self.ending.take() else {
            return Ok(true);
        };
        let Inbox { client, queue, .. } = &mut *ending.inbox;
        let sent = queue.sent();
        let limits = (AT_ONCE, BYTES_AT_ONCE);
        let stock = &mut self.stock;
        let left = queue.retain_part(
            ending.next,
            limits,
            stock,
            context.table,
            |sequence, item| {
                // [MQTT-4.8.2-5] a QoS 2 message that may have reached this client goes to no other.
                let is_bound = item.qos == QoS::ExactlyOnce && sequence <= sent;
                let stays = item.group.is_some() && !is_bound;
                if !stays {
                    context.outlet.dropped(InboxDrop {
                        client,
                        message: &item.message,
                        reason: DropReason::SessionEnded,
                    });
                }
                stays
            },
        )?;
        if let Some(next) = left {
            self.ending = Some(Ending { next, ..ending });
            return Ok(false);
        }
        let Ending { inbox, .. } = ending;
        if inbox.queue.len() > 0 {
            self.leave(inbox.into_legacy(), context.outlet);
        }
        Ok(true)
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
