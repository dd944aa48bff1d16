//! What clients are done with, and what they do not get because it is not kept any longer.

use std::ops::Range;

use mqtt_proto::QoS;

use super::legacy::Leaving;
use super::machine::{Context, InboxMachine};
use super::queue::trim::{first_unsent, take};
use super::{InboxDrop, InboxReply, Item, RetentionLimit, SessionName};
use crate::{Table, TableError};

impl InboxMachine {
    pub(super) fn acknowledge(
        &mut self,
        session: &SessionName,
        epoch: u64,
        sent: u64,
        done: &[u64],
        table: &dyn Table,
    ) -> Result<InboxReply, TableError> {
        let Some(inbox) = self.inboxes.current(session, epoch) else {
            return Ok(InboxReply::Stale);
        };
        self.stock.touch(inbox);
        if !done.is_empty() {
            self.stock.has_room(inbox);
        }
        inbox.queue.mark_sent(sent);
        for &sequence in done {
            if !inbox.queue.take(sequence, &mut self.stock, table)? {
                inbox.queue.complete(sequence);
            }
        }
        Ok(InboxReply::Done)
    }

    /// From now on PUBREL is owed instead of the message.
    pub(super) fn receipt(
        &mut self,
        session: &SessionName,
        epoch: u64,
        sequence: u64,
        table: &dyn Table,
    ) -> Result<InboxReply, TableError> {
        let Some(inbox) = self.inboxes.current(session, epoch) else {
            return Ok(InboxReply::Stale);
        };
        if inbox.queue.is_released(sequence) {
            return Ok(InboxReply::Done);
        }
        self.stock.touch(inbox);
        if !inbox.queue.take(sequence, &mut self.stock, table)? {
            return Ok(InboxReply::Stale);
        }
        self.stock.has_room(inbox);
        inbox.queue.release(sequence);
        Ok(InboxReply::Done)
    }
}

/// Drops what is queued under these sequences, as far as it cannot have been sent; or leaves it to a group.
pub(super) fn trim(
    machine: &mut InboxMachine,
    session: &SessionName,
    sequences: Range<u64>,
    limit: &RetentionLimit,
    context: &mut Context<'_>,
) -> Result<InboxReply, TableError> {
    let reason = match limit {
        RetentionLimit::Away { epoch, group } => {
            let leaving = Leaving {
                session: (session, *epoch),
                group,
                sequences,
            };
            return leaving.carry_out(machine, context);
        }
        RetentionLimit::Age | RetentionLimit::Bytes | RetentionLimit::Purge => limit.reason(),
    };
    let Some(inbox) = machine.inboxes.named(session) else {
        return Ok(InboxReply::Stale);
    };
    let before = inbox.queue.len();
    let unsent = sequences.start.max(first_unsent(&inbox.queue))..sequences.end;
    if before == 0 || unsent.is_empty() {
        return Ok(InboxReply::Done);
    }
    machine.stock.touch(inbox);
    // An identifier that a client holds is used again so many sequences later: a message that had it then would be lost.
    let held_below = match inbox.is_connected() {
        true => inbox.queue.sent() + u64::from(u16::MAX),
        false => 0,
    };
    let is_held = |sequence, item: &Item| sequence < held_below && item.qos == QoS::ExactlyOnce;
    let (client, outlet) = (&inbox.client, &mut *context.outlet);
    let (stock, table) = (&mut machine.stock, context.table);
    take(
        &mut inbox.queue,
        unsent,
        stock,
        table,
        is_held,
        |_, item| {
            if let Some(reason) = reason {
                outlet.dropped(InboxDrop {
                    client,
                    message: &item.message,
                    reason,
                });
            }
        },
    )?;
    if inbox.queue.len() < before {
        machine.stock.has_room(inbox);
    }
    Ok(InboxReply::Done)
}
