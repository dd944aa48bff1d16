//! The end of connections, and of the sessions that end with them.
//!
//! | call | when | costs |
//! |---|---|---|
//! | [`Ends::handle_kick`] | the broker disconnects a client that has joined | the last packets; as the next |
//! | [`Ends::handle_closed`] | its connection is gone, or given up | what its session has queued; a question to the session shard |
//! | [`Ends::handle_disconnect`] | a client that has joined has sent DISCONNECT | the same |
//! | [`Ends::handle_answer`] | once for each question, when the session shard has answered | nothing |
//! | [`Ends::handle_timer`] | a client that has sent DISCONNECT has waited | nothing |
//! | [`Ends::handle_deadline`] | a deadline of a session may have come | nothing, or a timer |
//! | [`Ends::record`] | the store knows a connection that is over, and may not be told otherwise | a question to the session shard |
//!
//! Invariants: a connection ends once, and its entry leaves the table or lingers then. A client that has sent DISCONNECT
//! sees its connection closed in order only if that is recorded, as an acknowledgement would be sent: it can rely on it
//! that its will is discarded and that its session lasts as long as it has said.
//!
//! Deliberately absent: connections that have not joined (`connect`), and what lasts longer than a connection (`linger`,
//! `inbox`, the store).

pub(crate) mod asked;
#[cfg(test)]
mod tests;

use mqtt_proto::ReasonCode;
use mqtt_session::{Deadline, Delivery, Detached, DropReason, Dropped, Ended, Timestamp};
use net_api::{ConnectionId, Key, Next};
use store_state::api::Store as _;
use store_state::session::{SessionOp, SessionReply, WillAtClose};

use self::asked::Disconnect;
use crate::backpressure::hold::Backpressure;
use crate::clients::{DONE, LoopIo, Timer, record};
use crate::excerpt::excerpt;
use crate::inbox::Inboxes;
use crate::linger::Linger;
use crate::pending::{Answer, Pending};
use crate::rim::Rim;
use crate::subscribe::grant::Subscriptions;
use crate::turn::{Base, Effect, Turn};
use crate::will::Wills;

/// When a keep alive seems to have passed only because the connection is not being read: look again.
const HELD_BACK_RETRY_MS: u64 = 1_000;

/// How long a client that has sent DISCONNECT waits for the record of it, in ms.
///
/// Limit: a connection whose client has sent DISCONNECT, until its end is recorded | {} | broken, not closed in
/// order; counted
const LEAVING_MS: u64 = 5_000;

/// Bytes of a last transmission that come before a DISCONNECT.
const LAST_BUDGET: usize = 64 * 1024;

/// The parts below.
type Below<'a> = (&'a mut Linger, &'a mut Backpressure);

/// The ends of connections. What is asked stands in [`Pending`].
#[derive(Debug)]
pub(crate) struct Ends;

impl Ends {
    /// Disconnects a client that has a session: a DISCONNECT with the reason (5.0), then the close. Nothing happens to one
    /// without a connection: that has ended before.
    pub(crate) fn handle_kick<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: Below<'_>,
        key: Key,
        reason: ReasonCode,
    ) {
        let now = turn.base.expiry_now(turn.io);
        let client = turn.clients.get_mut(key);
        let Some((connection, client)) = client.and_then(|of| Some((of.connection?, of))) else {
            return;
        };
        let base = &mut *turn.base;
        base.log_kicked(turn.io, client, reason);
        let is_plain = base.is_plain(turn.io, connection);
        let policy = base.last_policy(is_plain);
        client.session.disconnect(reason, policy);
        let mut bytes = Vec::new();
        // Whatever it asks for, this connection is closed after these bytes.
        let _ = client.session.poll_transmit(
            &mut bytes,
            LAST_BUDGET,
            &mut base.outcome,
            &base.settings.limits.policy,
            now,
        );
        // Answers that go with the last bytes are not counted as those of a connection that goes on.
        base.outcome.timed.clear();
        base.report_dropped(turn.clients, turn.io, key);
        turn.io.send_last(connection, bytes);
        Self::detach(turn, below, key, None);
    }

    /// A client has sent DISCONNECT. If the store knows it, the connection is closed in order when the end is
    /// recorded.
    pub(crate) fn handle_disconnect<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: Below<'_>,
        key: Key,
    ) -> Next {
        let client = turn.clients.get(key);
        let closes = client.filter(|client| client.stored.is_some());
        let closes = closes.and_then(|client| client.connection);
        Self::detach(turn, below, key, closes);
        match closes {
            // What still comes on it is not heard.
            Some(_) => Next::Read,
            None => Next::Close,
        }
    }

    /// A client's connection is gone, or given up. What of its session is to stay is in the store.
    pub(crate) fn handle_closed<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: Below<'_>,
        key: Key,
    ) {
        Self::detach(turn, below, key, None);
    }

    /// The end of a connection is recorded, or cannot be.
    pub(crate) fn handle_answer(
        io: &mut impl LoopIo,
        Disconnect { closes }: Disconnect,
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
    pub(crate) fn handle_timer<R: Rim>(base: &mut Base<R>, io: &mut impl LoopIo, id: Key) {
        if let Some(Pending::Disconnect(asked)) = base.pending.get_mut(id)
            && let Some(connection) = asked.closes.take()
        {
            base.stats.disconnect_timeouts.add(1);
            io.abort(connection);
        }
    }

    /// A session's deadline may have come.
    pub(crate) fn handle_deadline<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) {
        let now = Timestamp(turn.io.now_ms());
        let client = turn.clients.get_mut(key);
        let Some(client) = client.filter(|client| client.armed_ms <= now.0) else {
            // A timer from before; the one that counts is still to come.
            return;
        };
        client.armed_ms = 0;
        let Some(connection) = client.connection else {
            // It only holds routes. What is due of a session without a connection, the store knows.
            return;
        };
        if client.session.poll_deadline().is_some_and(|at| at <= now) {
            let hold = client.rare.get().hold.as_ref();
            let has_kept = hold.is_some_and(|hold| hold.has_kept());
            if has_kept || turn.io.is_held_back(connection) {
                client.armed_ms = now.0 + HELD_BACK_RETRY_MS;
                let timer = Timer::Session(key).to_bits();
                return turn.io.arm(client.armed_ms, timer);
            }
            match client.session.handle_deadline(now) {
                Deadline::None => {}
                Deadline::KeepAliveTimeout => {
                    turn.base.stats.keep_alive_timeouts.add(1);
                    if let Some(left_out) = turn.base.node.lines.refusals.take(now.0) {
                        tracing::info!(
                            client_id = &*excerpt(client.session.client_id()),
                            left_out,
                            "the keep alive passed without a packet"
                        );
                    }
                    // [MQTT-3.1.2-22] [MQTT3-3.1.2-24]
                    turn.base.end(key, ReasonCode::KeepAliveTimeout);
                }
                // Those of sessions without a connection, which only the store has.
                Deadline::WillDue(_) | Deadline::Expired { .. } => {}
            }
        }
        turn.clients.arm_deadline(turn.io, key);
    }

    /// Tells the session store that a connection is over, and for how long its session goes on, in s. Gives back the number
    /// of the question.
    pub(crate) fn record<R: Rim>(
        base: &mut Base<R>,
        client_id: &str,
        epoch: u64,
        expiry: u32,
        will: WillAtClose,
    ) -> Key {
        let op = SessionOp::Disconnect {
            client: client_id.into(),
            epoch,
            expiry,
            will,
        };
        let ticket = base.ask(Pending::Disconnect(Disconnect { closes: None }));
        base.node.store().session(client_id, ticket, op);
        Key::from_bits(ticket.token)
    }

    /// The connection has ended of a client that has joined. `closes`: the connection, if it is to be closed when the store
    /// has recorded its end.
    fn detach<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        (linger, backpressure): Below<'_>,
        key: Key,
        closes: Option<ConnectionId>,
    ) {
        let client = turn.clients.get_mut(key);
        let Some((connection, client)) = client.and_then(|of| Some((of.connection.take()?, of)))
        else {
            // It has ended before.
            return;
        };
        assert!(
            client.rare.get().joining.is_none(),
            "the connection of a client that joins is given up, not ended"
        );
        turn.io.set_tag(connection, DONE);
        turn.base.node.count_disconnected();
        let durable = client.session.is_durable();
        let name = Box::<str>::from(client.session.client_id());
        let will = match client.session.has_will() {
            true => WillAtClose::Keep,
            false => WillAtClose::Discard,
        };
        let is_kept = client.stored.as_ref().is_some_and(|of| of.has_inbox());
        let expiry_s = match is_kept {
            true => client.session.session_expiry(),
            false => 0,
        };
        let routes = Linger::route_key(turn.base, turn.clients, key).key();
        let lingers = linger.lingers(turn.base, turn.clients, key);
        let left = Inboxes::handle_end_of_connection(turn, key, lingers.is_some());
        let epoch = left.as_ref().map(|left| left.epoch);
        let held = left.map_or_else(Vec::new, |left| left.held);
        if let Some(epoch) = epoch {
            let id = Self::record(turn.base, &name, epoch.0, expiry_s, will);
            if closes.is_some()
                && let Some(Pending::Disconnect(asked)) = turn.base.pending.get_mut(id)
            {
                // No answer is worked off before this turn is over.
                asked.closes = closes;
                let at_ms = turn.io.now_ms() + LEAVING_MS;
                turn.io.arm(at_ms, Timer::Leaving(id).to_bits());
            }
        }
        let now = Timestamp(turn.io.now_ms());
        let client = turn.clients.get_mut(key);
        let client = client.expect("its entry is there until this is over");
        if lingers.is_none() {
            client.rare.take(|of| &mut of.replay);
        }
        let Detached { will, dropped, .. } = client.session.handle_connection_closed(now);
        turn.base.outcome.dropped.extend(dropped);
        turn.base.report_dropped(turn.clients, turn.io, key);
        backpressure.handle_end_of_connection(turn, key);
        if let Some(span) = lingers {
            let epoch = epoch.expect("only who has an inbox lingers");
            linger.handle_end_of_connection(turn, key, epoch, span);
            // They go where further ones go: to the inbox, behind what it has.
            for delivery in held {
                let delivery = Box::new(delivery);
                turn.base.add(Effect::DeliverTo(routes, delivery));
            }
        } else if durable {
            for Delivery { message, .. } in held {
                let reason = DropReason::OfflineQos0;
                let dropped = Dropped { message, reason };
                record(&turn.base.drops, now.0, &name, &dropped);
            }
            Subscriptions::remove_routes(turn, key);
            turn.base.add(Effect::Forget(key));
        } else {
            Self::end_session(turn, key);
        }
        // Otherwise it is the store's to publish.
        if let Some(will) = will.filter(|_| epoch.is_none()) {
            let (message, source) = Wills::handle_unrecorded(turn.base, &name, will);
            let source = Box::new(source);
            turn.base.add(Effect::Distribute(message, source));
        }
    }

    /// A session ends with its connection: nothing of it remains.
    fn end_session<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) {
        let session_key = turn.base.session_key(key);
        Subscriptions::remove_routes(turn, key);
        let client = turn.clients.get_mut(key);
        let client = client.expect("its entry is there until this is over");
        let now = Timestamp(turn.io.now_ms());
        let Ended {
            redispatch,
            dropped,
            ..
        } = client.session.end(now);
        for dropped in dropped {
            let client_id = client.session.client_id();
            record(&turn.base.drops, now.0, client_id, &dropped);
        }
        turn.base.add(Effect::Forget(key));
        if !redispatch.is_empty() {
            turn.base.add(Effect::Redispatch {
                deliveries: redispatch,
                except: Some(session_key),
            });
        }
    }
}
