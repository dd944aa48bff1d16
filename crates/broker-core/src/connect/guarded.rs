//! Who is not let in, and who may not stay: what the guard says, carried out.

use guard::Refusal;
use mqtt_proto::{Connect, ReasonCode};
use net_api::{ConnectionId, Key, PeerAddress};

use crate::clients::{LoopIo, Timer};
use crate::connect::own_clients;
use crate::connect::refused::{Cause, Refused, Who};
use crate::dispatch::ClientLoop;
use crate::excerpt::excerpt;
use crate::rim::Rim;

/// Clients that are looked at in one turn after a ban was added.
const CHECKED_PER_TURN: usize = 4_096;

impl<R: Rim> ClientLoop<R> {
    /// Whether a CONNECT is looked at that has just come.
    pub(crate) fn pass_guard(
        &self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
    ) -> Result<(), Refused> {
        if self.base.is_proxied(io, connection)
            && let Some(peer) = io.peer(connection)
        {
            self.base
                .admit_connection(io, connection, peer)
                .map_err(|of| Refused {
                    code: ReasonCode::ConnectionRateExceeded,
                    cause: Cause::Guard(of),
                })?;
        }
        let source = self.base.source_of(io, connection);
        self.base
            .node
            .guard
            .admit_login(source, connect.username, connect.client_id, io.now_ms())
            .map_err(Refused::by_guard)
    }

    /// Whether a connection may be kept, by where it comes from.
    pub(crate) fn is_let_in(
        &self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        peer: PeerAddress,
    ) -> bool {
        let Err(refusal) = self.base.admit_connection(io, connection, peer) else {
            return true;
        };
        let refused = Refused::by_guard(refusal);
        let who = Who::default();
        self.base.tell_refused(io, connection, who, refused.cause);
        if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
            let reason = refused.reason();
            tracing::info!(%peer, reason, left_out, "a connection is refused");
        }
        false
    }

    /// Whether a client whose CONNECT has succeeded may stay; if not, it is disconnected. It has connected
    /// too often, or was banned meanwhile.
    pub(crate) fn may_stay(&mut self, io: &mut impl LoopIo, key: Key) -> bool {
        let Some(client) = self.clients.get(key) else {
            return false;
        };
        let source = client.connection.and_then(|id| self.base.source_of(io, id));
        let client_id = client.session.client_id();
        if own_clients::is_outlet(client_id) {
            return true;
        }
        let tell = |refusal| {
            if let Some(connection) = client.connection {
                let who = client.who();
                self.base
                    .tell_refused(io, connection, who, Cause::Guard(refusal));
            }
        };
        if self.is_banned(io, key) {
            tell(Refusal::Banned);
            self.base.end(key, ReasonCode::AdministrativeAction);
            return false;
        }
        if self
            .base
            .node
            .guard
            .connected(source, client_id, io.now_ms())
            .is_err()
        {
            tell(Refusal::Flapping);
            if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
                let client_id = excerpt(client_id);
                tracing::info!(
                    client_id = &*client_id,
                    left_out,
                    "a client connects too often and is banned"
                );
            }
            self.base.end(key, ReasonCode::AdministrativeAction);
            return false;
        }
        true
    }

    /// Bans were added: all clients are looked at, a part of them in each turn.
    pub(crate) fn check_bans(&mut self, io: &mut impl LoopIo) {
        if self.unchecked.is_empty() {
            io.arm(io.now_ms(), Timer::Bans.to_bits());
        }
        self.unchecked = self.clients.online();
    }

    pub(crate) fn go_on_checking_bans(&mut self, io: &mut impl LoopIo) {
        let rest = self.unchecked.len().saturating_sub(CHECKED_PER_TURN);
        for key in self.unchecked.split_off(rest) {
            if self.is_banned(io, key) {
                if let Some(client) = self.clients.get(key)
                    && let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms())
                {
                    let client_id = excerpt(client.session.client_id());
                    tracing::info!(
                        client_id = &*client_id,
                        left_out,
                        "a client is banned and disconnected"
                    );
                }
                self.base.end(key, ReasonCode::AdministrativeAction);
            }
        }
        if !self.unchecked.is_empty() {
            io.arm(io.now_ms(), Timer::Bans.to_bits());
        }
    }

    fn is_banned(&self, io: &impl LoopIo, key: Key) -> bool {
        self.clients.get(key).is_some_and(|client| {
            let ip = client.connection.and_then(|id| io.peer(id)?.ip());
            let session = &client.session;
            // What it has confirmed, or else what it says.
            let confirmed = client.login.as_ref().and_then(|login| login.username());
            let (username, client_id) = (confirmed.or(session.username()), session.client_id());
            let guard = &self.base.node.guard;
            !own_clients::is_outlet(client_id)
                && guard.is_banned(ip, username, client_id, io.now_ms())
        })
    }
}
