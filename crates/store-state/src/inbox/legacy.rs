//! What sessions that have ended leave to the shared groups that they were in.
//!
//! A legacy is the queue of such a session: messages that it had been chosen for, that its client cannot
//! have received, and that others of the group are to have. It stays until somebody says that they do.
//!
//! Deliberately absent: who gets them; and the client, whose next session has nothing to do with it.

use super::inbox::Inbox;
use super::machine::{Context, InboxMachine};
use super::{ClientName, InboxOutlet, InboxReply, Queued};
use crate::TableError;

/// Messages that are told at once, and their accounted bytes.
const PAGE: (usize, usize) = (128, 256 * 1024);

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

    /// Tells of all legacies, as [`InboxOutlet::left_behind`] would have; in the order of their numbers.
    pub fn for_each_legacy(&self, outlet: &mut dyn InboxOutlet) {
        for legacy in self.inboxes.legacies.values() {
            outlet.left_behind(&legacy.client, legacy.number);
        }
    }
}
