//! A look at the queues of a shard.

use store_state::inbox::{QueuePass, QueueView};

use crate::kinds::kind::Kind;
use crate::shard::handle::{Shard, State};

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
