//! A look at the queues of a shard.

use std::ops::Range;

use store_state::inbox::{InboxId, InboxMachine, QueuePass, QueueView};
use store_state::{Table, TableError};

use crate::kinds::kind::Kind;
use crate::shard::handle::{Shard, State};

/// What a session was not given of its queue.
#[derive(Debug)]
pub(crate) enum Ungiven {
    /// The session has a connection that has not asked for its queue yet.
    Unknown,
    /// What has these sequences.
    Sequences(InboxId, Range<u64>),
}

impl Shard<InboxMachine> {
    /// What waits for a client and its session was not given, and cannot have been sent. `None`: the shard does not serve.
    pub(crate) fn ungiven(&self, client: &str) -> Option<Option<Ungiven>> {
        let state = self.state.read();
        let state = state.as_ref()?;
        let Some(unsent) = store_state::inbox::inspect::unsent(&state.machine, client) else {
            return Some(None);
        };
        let cursors = &state.effects.cursors;
        let given = match unsent.is_connected {
            true => cursors.next_of(unsent.inbox.number.0),
            false => Some(0),
        };
        Some(Some(match given {
            None => Ungiven::Unknown,
            Some(given) => {
                let Range { start, end } = unsent.sequences;
                Ungiven::Sequences(unsent.inbox, start.max(given)..end)
            }
        }))
    }
}

impl<M: Kind> Shard<M> {
    /// Reads the tables by the machine. `None`: the shard does not serve, or its tables cannot be read.
    pub(crate) fn read_tables_by<R>(
        &self,
        read: impl FnOnce(&mut M, &dyn Table) -> Result<R, TableError>,
    ) -> Option<R> {
        let mut state = self.state.write();
        let State { machine, table, .. } = state.as_mut()?;
        match read(machine, &**table) {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::warn!(shard = self.number, %error, "the tables of a shard cannot be read");
                None
            }
        }
    }
}

/// Goes on with a look at queues ([`Kind::look_at_queues`]). `tell` also gets the first sequence that the session was not given,
/// if its cursor is open. `settles`: when all were looked at, cursors that were opened before the look before this one are settled.
/// `None`: the shard does not serve.
pub(crate) fn look_at_queues<M: Kind>(
    shard: &Shard<M>,
    pass: &mut Option<QueuePass>,
    (inboxes, settles): (usize, bool),
    mut tell: impl FnMut(QueueView<'_>, Option<u64>),
) -> Option<bool> {
    let mut state = shard.state.write();
    let State {
        machine, effects, ..
    } = state.as_mut()?;
    let mut tell = |queue: QueueView<'_>| {
        tell(queue, effects.cursors.next_of(queue.id().number.0));
    };
    let is_over = machine.look_at_queues(pass, inboxes, &mut tell);
    if is_over && settles {
        effects.cursors.handle_look();
        effects.tell_settled();
    }
    Some(is_over)
}
