//! A look at the queues of a shard.

use store_state::inbox::inspect::QueuePart;
use store_state::inbox::{InboxMachine, QueuePass, QueueView};

use crate::kinds::kind::Kind;
use crate::shard::handle::{Shard, State};

impl Shard<InboxMachine> {
    /// What waits for a client from a sequence on, as much as `limits` say: messages and bytes. `None`: the shard does not serve,
    /// or its tables cannot be read, which stops it.
    pub(crate) fn read_queue(
        &self,
        client: &str,
        from: u64,
        limits: (usize, usize),
    ) -> Option<Option<QueuePart>> {
        let mut state = self.state.write();
        let State { machine, table, .. } = state.as_mut()?;
        let read = store_state::inbox::inspect::queue(machine, client, from, limits, &**table);
        match read {
            Ok(part) => Some(part),
            Err(error) => {
                tracing::warn!(shard = self.number, %error, "a queue cannot be read");
                None
            }
        }
    }
}

/// Goes on with a look at queues ([`Kind::look_at_queues`]). `tell` also gets the first sequence that the session was not given,
/// if its cursor is open. `None`: the shard does not serve.
pub(crate) fn look_at_queues<M: Kind>(
    shard: &Shard<M>,
    pass: &mut Option<QueuePass>,
    inboxes: usize,
    mut tell: impl FnMut(QueueView<'_>, Option<u64>),
) -> Option<bool> {
    let mut state = shard.state.write();
    let State {
        machine, effects, ..
    } = state.as_mut()?;
    let mut tell = |queue: QueueView<'_>| {
        tell(queue, effects.cursors.next_of(queue.id().number.0));
    };
    Some(machine.look_at_queues(pass, inboxes, &mut tell))
}
