//! Who is not let in, and who may not stay: what the guard says, carried out.

use guard::Source;
use mqtt_proto::{Connect, ReasonCode};
use net_api::{ConnectionId, Key, PeerAddress};

use crate::clients::{LoopIo, Timer};
use crate::connect::login_stage::refusal_code;
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
    ) -> Result<(), ReasonCode> {
        if self.base.is_proxied(io, connection)
            && let Some(peer) = io.peer(connection)
            && !self.is_let_in(io, connection, peer)
        {
            return Err(ReasonCode::ConnectionRateExceeded);
        }
        let source = self.base.source_of(io, connection);
        self.base
            .node
            .guard
            .admit_login(source, connect.username, connect.client_id, io.now_ms())
            .map_err(refusal_code)
    }

    /// Whether a connection may be kept, by where it comes from.
    pub(crate) fn is_let_in(
        &self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        peer: PeerAddress,
    ) -> bool {
        let now_ms = io.now_ms();
        // A Unix domain socket has no address.
        let Some(ip) = peer.ip() else {
            return true;
        };
        let is_proxied = self.base.is_proxied(io, connection);
        let source = Source { ip, is_proxied };
        match self.base.node.guard.admit_connection(source, now_ms) {
            Ok(ticket) => {
                if let Some(ticket) = ticket {
                    io.attach(connection, Box::new(ticket));
                }
                true
            }
            Err(refusal) => {
                if let Some(left_out) = self.base.node.lines.refusals.take(now_ms) {
                    let reason = refusal.as_str();
                    tracing::info!(%peer, reason, left_out, "a connection is refused");
                }
                false
            }
        }
    }

    /// Whether a client whose CONNECT has succeeded may stay; if not, it is disconnected. It has connected
    /// too often, or was banned meanwhile.
    pub(crate) fn may_stay(&mut self, io: &mut impl LoopIo, key: Key) -> bool {
        let Some(client) = self.clients.get(key) else {
            return false;
        };
        let source = client.connection.and_then(|id| self.base.source_of(io, id));
        let client_id = client.session.client_id();
        if self.is_banned(io, key) {
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
            self.base
                .node
                .guard
                .is_banned(ip, username, client_id, io.now_ms())
        })
    }
}
