//! A node that is drained, or stops: its clients are sent to other nodes.
//!
//! Wills are published as whenever the server closes a connection [MQTT-3.1.2-8]: those of sessions that stay
//! wait for their delay, and are not published if the client connects elsewhere in time.

pub(crate) mod drained;

use std::sync::atomic::{AtomicUsize, Ordering};

use mqtt_proto::ReasonCode;
use mqtt_session::Policy;
use net_api::{ConnectionId, Key, Kind};

use crate::clients::{ClientLoop, LoopIo};
use crate::drain::drained::Drained;
use crate::rim::Rim;

/// For so long after the first, clients are not disconnected whose sessions would end while messages are queued or
/// in flight. Later, others still go before them.
const BUSY_MS: u64 = 5_000;

impl<R: Rim> ClientLoop<R> {
    /// Lets nobody in any more, and disconnects clients, each for one permit: first those that lose nothing, for a
    /// while only them. `elsewhere`: host and port of another node's TCP listener.
    pub(crate) fn send_away(
        &mut self,
        io: &mut impl LoopIo,
        permits: &AtomicUsize,
        elsewhere: Option<&str>,
    ) {
        let begins = permits.load(Ordering::Relaxed) > 0;
        let since_ms = self.drained.as_ref().and_then(|drained| drained.since_ms);
        let since_ms = since_ms.or(begins.then(|| io.now_ms()));
        let is_late = since_ms.is_some_and(|since| io.now_ms() >= since + BUSY_MS);
        let policy = &self.settings.limits.policy;
        self.drained = Some(Drained::new(policy, elsewhere, since_ms));
        if !begins {
            return;
        }
        let (busy, free): (Vec<_>, Vec<_>) = self
            .online()
            .into_iter()
            .partition(|key| self.is_busy(*key));
        let busy = if is_late { busy } else { Vec::new() };
        let take = |permits: usize| permits.checked_sub(1);
        for key in free.into_iter().chain(busy) {
            let taken = permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
            if taken.is_err() {
                break;
            }
            self.kick(io, key, ReasonCode::UseAnotherServer);
        }
    }

    /// Whether messages would be lost with a client's connection, or it would send some again.
    fn is_busy(&self, key: Key) -> bool {
        self.clients
            .get(key)
            .is_some_and(|client| client.session.expires_at_close() && !client.session.is_quiet())
    }

    /// Whether a connection has neither TLS nor WebSocket, and so another node's TCP listener is as good.
    pub(crate) fn is_plain(&self, io: &impl LoopIo, connection: ConnectionId) -> bool {
        let listener = io.listener(connection).map(usize::from);
        let kind = listener.and_then(|number| self.node.listener_kinds.get(number));
        kind == Some(&Kind::Tcp)
    }
}

/// The policy for the last packet on a connection.
pub(crate) fn last_policy<'a>(
    drained: Option<&'a Drained>,
    usual: &'a Policy,
    is_plain: bool,
) -> &'a Policy {
    let elsewhere = drained.and_then(|drained| drained.elsewhere.as_deref());
    elsewhere.filter(|_| is_plain).unwrap_or(usual)
}
