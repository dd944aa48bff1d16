//! What clients are done with.

use super::machine::InboxMachine;
use super::{InboxReply, SessionName};
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
