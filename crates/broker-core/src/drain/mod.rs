//! A node that is drained, or stops, or has more clients than its share: its clients are sent to other nodes.
//!
//! Wills are published as whenever the server closes a connection [MQTT-3.1.2-8]: those of sessions that stay
//! wait for their delay, and are not published if the client connects elsewhere in time.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use mqtt_proto::ReasonCode;
use net_api::Key;

use crate::clients::{Client, LoopIo, SendAway};
use crate::connect::own_clients;
use crate::rim::Rim;
use crate::turn::{Base, Drained, Turn};

/// For so long after the first, clients are not disconnected whose sessions would end while messages are queued or
/// in flight. Later, others still go before them.
const BUSY_MS: u64 = 5_000;

/// Clients that are sent to other nodes. Which are stands in [`Base`].
#[derive(Debug)]
pub(crate) struct Drain;

impl Drain {
    /// Disconnects clients, each for one permit: first those that lose nothing. A node that is drained lets nobody in any more, and
    /// disconnects after a while the others, too. `elsewhere`: host and port of another node's TCP listener.
    pub(crate) fn handle_send_away<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        (permits, why): (&AtomicUsize, SendAway),
        elsewhere: Option<&str>,
    ) {
        if let SendAway::Rebalance { before_us } = why {
            let policy = &turn.base.settings.limits.policy;
            turn.base.spread.handle_move(elsewhere, policy);
            // An outlet runs on the node that leads the shard of its inbox.
            let may_move = |client: &Client| {
                let is_outlet = own_clients::is_outlet(client.session.client_id());
                client.came_us < before_us && !client.is_busy() && !is_outlet
            };
            let mut keys = turn.clients.online();
            keys.retain(|key| turn.clients.get(*key).is_some_and(may_move));
            end_for_permits(turn.base, keys, permits);
            return;
        }
        let begins = permits.load(Ordering::Relaxed) > 0;
        let since_ms = turn
            .base
            .drained
            .as_ref()
            .and_then(|drained| drained.since_ms);
        let since_ms = since_ms.or(begins.then(|| turn.io.now_ms()));
        let is_late = since_ms.is_some_and(|since| turn.io.now_ms() >= since + BUSY_MS);
        let policy = &turn.base.settings.limits.policy;
        turn.base.drained = Some(Drained::new(policy, elsewhere, since_ms));
        if !begins {
            return;
        }
        let (busy, free): (Vec<_>, Vec<_>) = turn
            .clients
            .online()
            .into_iter()
            .partition(|key| turn.clients.get(*key).is_some_and(Client::is_busy));
        let busy = if is_late { busy } else { Vec::new() };
        end_for_permits(turn.base, free.into_iter().chain(busy), permits);
    }
}

fn end_for_permits<R: Rim>(
    base: &mut Base<R>,
    keys: impl IntoIterator<Item = Key>,
    permits: &AtomicUsize,
) {
    let take = |permits: usize| permits.checked_sub(1);
    for key in keys {
        let taken = permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            break;
        }
        base.end(key, ReasonCode::UseAnotherServer);
    }
}
