//! The end of connections and of sessions.

use mqtt_proto::ReasonCode;
use mqtt_session::{Deadline, Delivery, Detached, DropReason, Dropped, Ended, Timestamp};
use net_api::{ConnectionId, Key, Next};
use store_state::session::SessionReply;

use crate::clients::{DONE, LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::excerpt::excerpt;
use crate::inbox::{Epoch, Inboxes};
use crate::linger::Linger;
use crate::pending::{Answer, Pending};
use crate::rim::Rim;
use crate::subscribe::grant::Subscriptions;
use crate::will::Wills;

/// When a keep alive seems to have passed only because the connection is not being read: look again.
const HELD_BACK_RETRY_MS: u64 = 1_000;

/// How long a client that has sent DISCONNECT waits for the record of it, in ms.
const LEAVING_MS: u64 = 5_000;

/// Bytes of a last transmission that come before a DISCONNECT.
const LAST_BUDGET: usize = 64 * 1024;

impl<R: Rim> ClientLoop<R> {
    /// Disconnects a client that has a session: a DISCONNECT with the reason (5.0), then the close.
    pub(crate) fn kick(&mut self, io: &mut impl LoopIo, key: Key, reason: ReasonCode) {
        let now = self.base.expiry_now(io);
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(connection) = client.connection else {
            return;
        };
        self.base.log_kicked(io, client, reason);
        let is_plain = self.base.is_plain(io, connection);
        let policy = self.base.last_policy(is_plain);
        client.session.disconnect(reason, policy);
        let mut bytes = Vec::new();
        // Whatever it asks for, this connection is closed after these bytes.
        let _ = client.session.poll_transmit(
            &mut bytes,
            LAST_BUDGET,
            &mut self.base.outcome,
            &self.base.settings.limits.policy,
            now,
        );
        // Answers that go with the last bytes are not counted as those of a connection that goes on.
        self.base.outcome.timed.clear();
        self.base.report_dropped(&self.clients, io, key);
        io.send_last(connection, bytes);
        self.detach(io, key);
    }

    /// A client has sent DISCONNECT. If the store knows it, the connection is closed in order when the end is
    /// recorded, as an acknowledgement would be sent: a client that sees it closed can rely on it that its will
    /// is discarded and that its session lasts as long as it has said.
    pub(crate) fn leave(&mut self, io: &mut impl LoopIo, key: Key) -> Next {
        let client = self.clients.get(key);
        let closes = client.filter(|client| client.stored.is_some());
        let closes = closes.and_then(|client| client.connection);
        self.detach_and_close(io, key, closes);
        match closes {
            // What still comes on it is not heard.
            Some(_) => Next::Read,
            None => Next::Close,
        }
    }

    /// The end of a connection is recorded, or cannot be; `closes`: the connection, if it is to be closed now.
    pub(crate) fn end_answered(
        io: &mut impl LoopIo,
        closes: Option<ConnectionId>,
        answer: &Answer,
    ) {
        match (closes, answer) {
            (None, _) => {}
            (Some(connection), Answer::Session(SessionReply::Done)) => {
                io.close_in_order(connection);
            }
            (Some(connection), _) => io.abort(connection),
        }
    }

    /// A client that has disconnected has waited long enough for the record of it. It is recorded when the store
    /// can, but the client does not hear so.
    pub(crate) fn end_leaving(&mut self, io: &mut impl LoopIo, id: Key) {
        if let Some(Pending::Disconnect { closes }) = self.base.pending.get_mut(id)
            && let Some(connection) = closes.take()
        {
            self.base.stats.disconnect_timeouts.add(1);
            io.abort(connection);
        }
    }

    /// A client's connection is gone, or given up. What of its session is to stay is in the store.
    pub(crate) fn detach(&mut self, io: &mut impl LoopIo, key: Key) {
        self.detach_and_close(io, key, None);
    }

    /// As [`Self::detach`]. `closes`: the connection, if it is to be closed when the store has recorded its end.
    fn detach_and_close(&mut self, io: &mut impl LoopIo, key: Key, closes: Option<ConnectionId>) {
        if self.abandon(io, key) {
            return;
        }
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(connection) = client.connection.take() else {
            return;
        };
        io.set_tag(connection, DONE);
        self.base.node.count_disconnected();
        let durable = client.session.is_durable();
        let keep_will = client.session.has_will();
        let is_kept = client.stored.as_ref().is_some_and(|of| of.has_inbox());
        let expiry_s = if is_kept {
            client.session.session_expiry()
        } else {
            0
        };
        let name = Box::<str>::from(client.session.client_id());
        let routes = Linger::route_key(&self.base, &self.clients, key).key();
        let (parts, mut turn) = self.turn(io);
        let lingers = parts.linger.lingers(turn.base, turn.clients, key);
        let left = Inboxes::handle_end_of_connection(&mut turn, key, lingers.is_some());
        let is_stored = left.is_some();
        let (mut epoch, mut held) = (Epoch(0), Vec::new());
        if let Some(left) = left {
            (epoch, held) = (left.epoch, left.held);
            let id = self.disconnect_stored(&name, epoch.0, expiry_s, keep_will);
            if closes.is_some()
                && let Some(Pending::Disconnect { closes: waits }) = self.base.pending.get_mut(id)
            {
                // No answer is worked off before this turn is over.
                *waits = closes;
                io.arm(io.now_ms() + LEAVING_MS, Timer::Leaving(id).to_bits());
            }
        }
        let now = Timestamp(io.now_ms());
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if lingers.is_none() {
            client.rare.take(|of| &mut of.replay);
        }
        let Detached { will, dropped, .. } = client.session.handle_connection_closed(now);
        self.base.outcome.dropped.extend(dropped);
        self.base.report_dropped(&self.clients, io, key);
        let (parts, mut turn) = self.turn(io);
        parts.backpressure.handle_end_of_connection(&mut turn, key);
        if let Some(span) = lingers {
            let (parts, mut turn) = self.turn(io);
            let linger = &mut parts.linger;
            linger.handle_end_of_connection(&mut turn, key, epoch, span);
            // They go where further ones go: to the inbox, behind what it has.
            for delivery in held {
                self.deliver_to(io, routes, delivery);
            }
        } else if durable {
            for Delivery { message, .. } in held {
                let reason = DropReason::OfflineQos0;
                let dropped = Dropped { message, reason };
                crate::clients::record(&self.base.drops, io.now_ms(), &name, &dropped);
            }
            let (_, mut turn) = self.turn(io);
            Subscriptions::remove_routes(&mut turn, key);
            self.forget_client(io, key);
        } else {
            self.end(io, key);
        }
        // Otherwise it is the store's to publish.
        if let Some(will) = will.filter(|_| !is_stored) {
            let (message, source) = Wills::handle_unrecorded(&self.base, &name, will);
            self.distribute(io, &message, source);
        }
    }

    /// A session ends with its connection: nothing of it remains.
    fn end(&mut self, io: &mut impl LoopIo, key: Key) {
        let session_key = self.base.session_key(key);
        let (_, mut turn) = self.turn(io);
        Subscriptions::remove_routes(&mut turn, key);
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Ended {
            redispatch,
            dropped,
            ..
        } = client.session.end(Timestamp(io.now_ms()));
        let client_id = Box::<str>::from(client.session.client_id());
        self.forget_client(io, key);
        for dropped in dropped {
            crate::clients::record(&self.base.drops, io.now_ms(), &client_id, &dropped);
        }
        self.redispatch(io, redispatch, Some(session_key));
    }

    /// A session's deadline may have come.
    pub(crate) fn session_deadline(&mut self, io: &mut impl LoopIo, key: Key) {
        let now = Timestamp(io.now_ms());
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if client.armed_ms > now.0 {
            // A timer from before; the one that counts is still to come.
            return;
        }
        client.armed_ms = 0;
        if client.connection.is_none() {
            // It only holds routes. What is due of a session without a connection, the store knows.
            return;
        }
        if client.session.poll_deadline().is_some_and(|at| at <= now) {
            let kept = client
                .rare
                .get()
                .hold
                .as_ref()
                .is_some_and(|hold| hold.has_kept());
            if client
                .connection
                .is_some_and(|connection| kept || io.is_held_back(connection))
            {
                client.armed_ms = now.0 + HELD_BACK_RETRY_MS;
                io.arm(client.armed_ms, Timer::Session(key).to_bits());
                return;
            }
            match client.session.handle_deadline(now) {
                Deadline::None => {}
                Deadline::KeepAliveTimeout => {
                    self.base.stats.keep_alive_timeouts.add(1);
                    if let Some(left_out) = self.base.node.lines.refusals.take(now.0) {
                        tracing::info!(
                            client_id = &*excerpt(client.session.client_id()),
                            left_out,
                            "the keep alive passed without a packet"
                        );
                    }
                    // [MQTT-3.1.2-22] [MQTT3-3.1.2-24]
                    self.base.end(key, ReasonCode::KeepAliveTimeout);
                }
                // Those of sessions without a connection, which only the store has.
                Deadline::WillDue(_) | Deadline::Expired { .. } => {}
            }
        }
        self.clients.arm_deadline(io, key);
    }
}
