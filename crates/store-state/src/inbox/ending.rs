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

use super::inbox::Inbox;
use super::publishing::Publishing;
use super::stock::Stock;
use super::{InboxDrop, InboxOutlet};
use crate::{Table, TableError};

/// Queued messages that one part looks at: about a millisecond, if the tables need not be read. Tests have short queues, and
/// parts all the same.
///
/// Limit: queued messages that one part of the end of a session drops, or leaves to a shared group | {} or
/// {BYTES_AT_ONCE} | the next part follows
pub(super) const AT_ONCE: usize = if cfg!(test) { 2 } else { 1_024 };

/// Their accounted bytes; the last message may exceed them.
const BYTES_AT_ONCE: usize = 1024 * 1024;

/// A session whose end was begun.
#[derive(Debug)]
pub(super) struct Ending {
    inbox: Box<Inbox>,
    next: Next,
}

/// The first sequence that has yet to be looked at.
#[derive(Clone, Copy, Debug)]
struct Next(u64);

impl Ending {
    /// Of an inbox that is no longer among the others.
    pub(super) fn of(inbox: Box<Inbox>) -> Self {
        Self {
            inbox,
            next: Next(0),
        }
    }

    /// Goes on. False: some messages have yet to be looked at.
    pub(super) fn go_on(
        &mut self,
        stock: &mut Stock,
        table: &dyn Table,
        outlet: &mut dyn InboxOutlet,
    ) -> Result<bool, TableError> {
        let Inbox { client, queue, .. } = &mut *self.inbox;
        let sent = queue.sent();
        let limits = (AT_ONCE, BYTES_AT_ONCE);
        let left = queue.retain_part(self.next.0, limits, stock, table, |sequence, item| {
            // [MQTT-4.8.2-5] a QoS 2 message that may have reached this client goes to no other.
            let is_bound = item.qos == QoS::ExactlyOnce && sequence <= sent;
            let stays = item.group.is_some() && !is_bound;
            if !stays {
                outlet.dropped(InboxDrop {
                    client,
                    message: &item.message,
                    reason: DropReason::SessionEnded,
                });
            }
            stays
        })?;
        if let Some(next) = left {
            self.next = Next(next);
        }
        Ok(left.is_none())
    }

    /// What is left of the inbox.
    pub(super) fn into_inbox(self) -> Box<Inbox> {
        self.inbox
    }
}

/// The operation that is under way, if one is that is carried out in parts.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// While [`InboxOp::NodeUp`](super::InboxOp::NodeUp) is not done: inboxes that it has yet to detach.
    pub(super) left: Option<std::vec::IntoIter<u64>>,
    /// While a publication is not done: how far it is.
    pub(super) publishing: Option<Publishing>,
    /// While a session has not ended: how far that is.
    pub(super) ending: Option<Ending>,
}

impl UnderWay {
    pub(super) fn is_nothing(&self) -> bool {
        self.left.is_none() && self.publishing.is_none() && self.ending.is_none()
    }
}
