//! A loop as the service of its connections: what they bring, timers, messages of loops.

use std::sync::Arc;

use mqtt_proto::{PacketType, peek_frame};
use mqtt_session::{Timestamp, class_of};
use net_api::{
    Arrival, Behind, Closed, ConnectionId, Connections, PeerAddress, Received, Service, Transmit,
};
use store_state::api::Store as _;

use super::ClientLoop;
use super::frames::CONTROL_LIMIT;
use crate::backpressure::held_time::{HeldReason, Until};
use crate::clients::{
    BetweenLoops, FromLoop, LoopIo, LoopMessage, PRESSURE_RETRY_MS, STORE_RETRY_MS, Timer,
    Together, key_of,
};
use crate::connect::refused::{Cause, RefusedLogin};
use crate::drain::Drain;
use crate::end::Ends;
use crate::inbox::Inboxes;
use crate::inspect::answer as inspect;
use crate::inspect::view::View;
use crate::node::Pressure;
use crate::peers::PeerEvent;
use crate::pending::Answer;
use crate::publish::on_behalf as publish_on_behalf;
use crate::publish::retained_order::ToOwner;
use crate::reopening::LeaderChange;
use crate::rim::Rim;
use crate::stats::ClosedBeforeConnect;
use crate::subscribe::on_behalf;
use crate::traffic::{Amount, Bytes, Messages};
use crate::will::Wills;

impl<R: Rim> Service for ClientLoop<R> {
    type Mail = LoopMessage;

    fn accept_budget(&mut self, io: &mut impl Connections<LoopMessage>) -> usize {
        if self.base.closing {
            return 0;
        }
        let available = self
            .base
            .node
            .connection_rate
            .lock()
            .available(self.base.settings.connections_per_s, io.now_ms());
        usize::try_from(available).unwrap_or(usize::MAX)
    }

    fn admits(
        &mut self,
        io: &mut impl Connections<LoopMessage>,
        listener: u16,
        peer: PeerAddress,
    ) -> bool {
        let admitted = self.base.node.rim.trusts(listener, peer);
        if admitted {
            return true;
        }
        let node = &self.base.node;
        let kind = node.listener_kinds.get(usize::from(listener));
        node.rim.tell_refused(&RefusedLogin {
            client_id: None,
            user: None,
            peer: Some(peer),
            listener: kind.copied(),
            cause: Cause::NotTrusted,
            detail: None,
        });
        if let Some(left_out) = node.lines.refusals.take(io.now_ms()) {
            tracing::info!(%peer, left_out, "closed: only trusted peers may connect to this listener");
        }
        false
    }

    fn arrived(
        &mut self,
        io: &mut impl Connections<LoopMessage>,
        connection: ConnectionId,
        peer: PeerAddress,
        how: Arrival,
    ) {
        if how == Arrival::Accepted {
            if self.base.settings.connections_per_s != 0 {
                self.base.node.connection_rate.lock().take(
                    1,
                    self.base.settings.connections_per_s,
                    io.now_ms(),
                );
            }
            // Whom a proxy connects for is known when its header has come.
            let is_let_in =
                self.base.is_proxied(io, connection) || self.is_let_in(io, connection, peer);
            if self.base.closing || !is_let_in {
                io.close(connection);
                return;
            }
        }
        io.set_tag(connection, 0);
        self.await_connect(io, connection);
        io.arm(
            io.now_ms() + self.base.settings.connect_timeout_ms,
            Timer::Connect(connection).to_bits(),
        );
    }

    fn received(
        &mut self,
        io: &mut impl Connections<LoopMessage>,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> Received {
        self.base.expect_no_effects();
        let received = self.frames(io, connection, bytes);
        // A connection that was closed for what its client did.
        self.carry_out(io);
        if let Some(key) = key_of(io, connection) {
            Inboxes::handle_acknowledged(&mut self.base, &mut self.clients, key);
        }
        received
    }

    fn throttled(
        &mut self,
        io: &mut impl Connections<LoopMessage>,
        connection: ConnectionId,
        until_ms: u64,
    ) {
        if let Some(key) = key_of(io, connection) {
            let (parts, mut turn) = self.turn(io);
            let until = Until::Time(Timestamp(until_ms));
            parts
                .backpressure
                .handle_wait(&mut turn, key, HeldReason::BytesPerSecond, until);
        }
    }

    fn transmit(
        &mut self,
        io: &mut impl Connections<LoopMessage>,
        connection: ConnectionId,
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Transmit {
        self.base.expect_no_effects();
        let now = self.base.expiry_now(io);
        let Some(key) = key_of(io, connection) else {
            return Transmit::Idle;
        };
        let (parts, mut turn) = self.turn(io);
        parts
            .rejudge
            .handle_transmit(&mut turn, &mut parts.rights, key);
        let Some(client) = self
            .clients
            .get_mut(key)
            .filter(|c| c.rare.get().joining.is_none())
        else {
            return Transmit::Idle;
        };
        let congested = client.session.control_len() > CONTROL_LIMIT;
        let mut result = client.session.poll_transmit(
            out,
            budget,
            &mut self.base.outcome,
            self.base.settings.policy_of(class_of(&client.session)),
            now,
        );
        let (packets, publishes) = count_packets(out);
        self.base.stats.packets_out.add(packets);
        self.base.stats.publishes_out.add(publishes);
        let waits = std::mem::take(&mut self.base.outcome.waits_for_identifier);
        self.base.stats.identifier_waits.add(waits.into());
        let (client_id, at) = (client.session.client_id(), Timestamp(io.now_ms()));
        let amount = Amount {
            messages: Messages(publishes),
            bytes: Bytes(out.len() as u64),
        };
        self.traffic.handle_sent(client_id, amount, at);
        if !self.base.outcome.timed.is_empty() {
            let (timed, now_us) = (&self.base.outcome.timed, self.base.node.rim.now_us());
            let latency = &self.base.stats.latency;
            let delays = latency.handle_written(timed, client.came_us, now_us);
            self.traffic.handle_delays(client_id, delays, at);
            self.base.outcome.timed.clear();
        }
        let replays = client.rare.get().replay.is_some();
        if congested {
            let (parts, mut turn) = self.turn(io);
            parts.backpressure.resume(&mut turn, [connection]);
        }
        if result == mqtt_session::Transmit::Idle && replays {
            let (parts, mut turn) = self.turn(io);
            let goes_on = parts
                .replays
                .handle_page_due(&mut turn, &mut parts.rights, key);
            if goes_on {
                result = mqtt_session::Transmit::More;
            }
        }
        self.base.report_dropped(&self.clients, io, key);
        Inboxes::handle_acknowledged(&mut self.base, &mut self.clients, key);
        let (parts, mut turn) = self.turn(io);
        parts.backpressure.handle_drained(&mut turn, key);
        self.clients.show_room(key);
        self.carry_out(io);
        match result {
            mqtt_session::Transmit::Idle => Transmit::Idle,
            mqtt_session::Transmit::More => Transmit::More,
            mqtt_session::Transmit::Close => {
                let (parts, mut turn) = self.turn(io);
                let below = (&mut parts.linger, &mut parts.backpressure);
                Ends::handle_closed(&mut turn, below, key);
                self.carry_out(io);
                Transmit::Close
            }
        }
    }

    fn closed(
        &mut self,
        io: &mut impl Connections<LoopMessage>,
        connection: ConnectionId,
        cause: Closed,
    ) {
        self.base.expect_no_effects();
        if let Some(key) = key_of(io, connection) {
            if let Some(client) = self.clients.get(key) {
                self.base.log_lost(io, client, &cause);
            }
            if !self.abandon(io, key) {
                self.handle_kept(io, key, true);
                let (parts, mut turn) = self.turn(io);
                let below = (&mut parts.linger, &mut parts.backpressure);
                Ends::handle_closed(&mut turn, below, key);
            }
        } else {
            let source = self.base.source_of(io, connection);
            self.base
                .log_failed_handshake(io, connection, source, &cause);
            self.logins.remove(&connection);
        }
        self.carry_out(io);
    }

    fn accompanied(
        &mut self,
        _: &mut impl Connections<LoopMessage>,
        connection: ConnectionId,
        mail: LoopMessage,
    ) {
        if let LoopMessage::Loop(FromLoop(BetweenLoops::Entering(login))) = mail {
            self.logins.insert(connection, login);
        }
    }

    fn timer(&mut self, io: &mut impl Connections<LoopMessage>, timer: u64) {
        self.base.expect_no_effects();
        match Timer::from_bits(timer) {
            Some(Timer::Session(key)) => {
                let (_, mut turn) = self.turn(io);
                Ends::handle_deadline(&mut turn, key);
            }
            Some(Timer::Connect(connection)) if io.tag(connection) == Some(0) => {
                tracing::debug!(
                    peer = io.peer(connection).map(tracing::field::display),
                    "no CONNECT in time"
                );
                self.base
                    .stats
                    .count_closed_before_connect(ClosedBeforeConnect::Timeout);
                self.logins.remove(&connection);
                io.close(connection);
            }
            Some(Timer::Resume(connection)) => io.resume(connection),
            Some(Timer::Hold(key)) => {
                let (parts, mut turn) = self.turn(io);
                parts.backpressure.handle_hold_timer(&mut turn, key);
            }
            Some(Timer::Throttled(key)) => {
                let (parts, mut turn) = self.turn(io);
                parts.backpressure.handle_throttle_timer(&mut turn, key);
            }
            Some(Timer::Pressure) => {
                if self.base.node.pressure() == Pressure::None {
                    let waiting = std::mem::take(&mut self.unread.for_memory);
                    let (parts, mut turn) = self.turn(io);
                    parts.backpressure.resume(&mut turn, waiting);
                } else {
                    io.arm(io.now_ms() + PRESSURE_RETRY_MS, Timer::Pressure.to_bits());
                }
            }
            Some(Timer::Store) => {
                if self.base.node.store().is_over_limit() {
                    io.arm(io.now_ms() + STORE_RETRY_MS, Timer::Store.to_bits());
                } else {
                    let waiting = std::mem::take(&mut self.unread.for_store);
                    let (parts, mut turn) = self.turn(io);
                    parts.backpressure.resume(&mut turn, waiting);
                }
            }
            Some(Timer::Peers) => {
                let waiting = self.forwarding.take_waiting(io, &self.base.node);
                let (parts, mut turn) = self.turn(io);
                parts.backpressure.resume(&mut turn, waiting);
            }
            Some(Timer::Login) => self.log_in_later(io),
            Some(Timer::LoginExpiry) => self.end_logins(io),
            Some(Timer::Recheck) => {
                let (parts, turn) = self.turn(io);
                parts.rejudge.handle_recheck_timer(turn.base, turn.io);
            }
            Some(Timer::Rules) => {
                let (parts, mut turn) = self.turn(io);
                let (rejudge, mut below) = parts.rejudge();
                rejudge.handle_timer(&mut turn, &mut below);
            }
            Some(Timer::Bans) => self.go_on_checking_bans(io),
            Some(Timer::Legacies) => self.parts.legacies.handle_timer(&mut self.base),
            Some(Timer::Wills) => self.parts.wills.handle_timer(&mut self.base),
            Some(Timer::Superseded) => self.close_superseded(io),
            Some(Timer::Sys) => self.publish_sys(io),
            Some(Timer::Replay(key)) => {
                let (parts, mut turn) = self.turn(io);
                parts.replays.handle_timer(&mut turn, key);
            }
            Some(Timer::Deliveries) => self.go_on_delivering(io),
            Some(Timer::Members) => self.look_for_members(io),
            Some(Timer::TakeOver(id)) => self.end_take_over(io, id),
            Some(Timer::Leaving(id)) => Ends::handle_timer(&mut self.base, io, id),
            Some(Timer::Linger(key)) => {
                let (parts, mut turn) = self.turn(io);
                parts.linger.handle_timer(&mut turn, key);
            }
            Some(Timer::Leaders) => {
                let (parts, mut turn) = self.turn(io);
                parts.reopening.handle_timer(&mut turn);
            }
            Some(Timer::Connect(_)) | None => {}
        }
        self.carry_out(io);
    }

    fn mail(&mut self, io: &mut impl Connections<LoopMessage>, mail: LoopMessage) {
        self.base.expect_no_effects();
        match mail {
            LoopMessage::Loop(FromLoop(mail)) => self.loop_message(io, mail),
            LoopMessage::Verdict(connection, verdict) => {
                self.login_answered(io, connection, verdict)
            }
            LoopMessage::Store(events) => self.store_events(io, events),
            LoopMessage::Peer(event) => self.peer_event(io, event),
            LoopMessage::Inspect(inspection) => {
                let rim = &self.base.node.rim;
                let view = View {
                    is_proxied: &|listener| rim.is_proxied(listener),
                    index: self.base.index,
                    clients: &self.clients,
                    settings: &self.base.settings,
                    listener_kinds: &self.base.node.listener_kinds,
                    held: self.parts.backpressure.held_times(),
                    cache: &self.cache,
                };
                inspect::answer(&view, &mut self.traffic, io, inspection);
            }
            LoopMessage::End(end) => inspect::end(self, io, end),
            LoopMessage::ChangeSubscription(asked) => {
                let (parts, mut turn) = self.turn(io);
                on_behalf::change(&mut turn, &mut parts.below_subscriptions(), asked);
            }
            LoopMessage::Publish(asked) => publish_on_behalf::publish(self, io, asked),
            LoopMessage::Bans => self.check_bans(io),
            LoopMessage::Reload(settings, done) => {
                io.set_limits(
                    settings.limits.rates,
                    settings.group_rates(),
                    settings.handshake_timeout_ms,
                );
                self.base.settings = settings;
                for key in self.clients.keys() {
                    if let Some(client) = self.clients.get(key)
                        && let Some(connection) = client.connection
                    {
                        let settings = &self.base.settings;
                        let session = &client.session;
                        let group = settings.rate_group(session.client_id(), class_of(session));
                        io.set_rate_group(connection, group);
                    }
                }
                let (parts, mut turn) = self.turn(io);
                let rights = &mut parts.rights;
                parts.rejudge.handle_rules_changed(&mut turn, rights);
                self.start_sys(io);
                drop(done);
            }
            LoopMessage::SendAway {
                why,
                permits,
                elsewhere,
                done,
            } => {
                let (_, mut turn) = self.turn(io);
                let elsewhere = elsewhere.as_deref();
                Drain::handle_send_away(&mut turn, (&permits, why), elsewhere);
                drop(done);
            }
            LoopMessage::Spread(advice) => {
                let policy = &self.base.settings.limits.policy;
                self.base.spread.handle_advice(advice.as_deref(), policy);
            }
            LoopMessage::EndDrain(done) => {
                self.base.drained = None;
                drop(done);
            }
            LoopMessage::LetNobodyIn(done) => {
                self.base.closing = true;
                drop(done);
            }
            LoopMessage::PublishWills(done) => {
                Wills::handle_shutdown(&mut self.base, &self.clients, &done);
                drop(done);
            }
            LoopMessage::Disconnect(done) => {
                self.disconnect_all(io);
                drop(done);
            }
        }
        self.carry_out(io);
    }
}

impl<R: Rim> ClientLoop<R> {
    fn peer_event(&mut self, io: &mut impl LoopIo, event: PeerEvent) {
        match event {
            PeerEvent::Publications {
                from,
                messages,
                bytes,
            } => self.receive_from_peer(io, from, messages, bytes),
            PeerEvent::Undelivered { gone, copies } => self.give_to_others(io, gone, copies),
            PeerEvent::RoutesKnown(token) => self.answered(io, token, Answer::Passed),
            PeerEvent::CutOff => self.cut_off(io),
            PeerEvent::Registered(answers) => self.registered(io, answers),
            PeerEvent::RegisterAgain(shards) => {
                let changes = shards.iter().map(|shard| LeaderChange::OfSessions(*shard));
                let (parts, mut turn) = self.turn(io);
                parts.reopening.handle_leaders(&mut turn, changes);
            }
            PeerEvent::CloseOlder(asker, older) => self.close_older(io, asker, older, false),
            PeerEvent::ClosedElsewhere(token, told) => self.closed_elsewhere(io, token, told),
            PeerEvent::HoldFor(node, publisher) => {
                let (parts, mut turn) = self.turn(io);
                parts
                    .backpressure
                    .handle_remote_hold(&mut turn, node, publisher);
            }
            PeerEvent::ReleaseFor(node, publisher) => {
                let (parts, mut turn) = self.turn(io);
                parts
                    .backpressure
                    .handle_remote_release(&mut turn, node, publisher);
            }
            PeerEvent::HoldsLost(node) => {
                let (parts, mut turn) = self.turn(io);
                parts.backpressure.handle_lost_link(&mut turn, node);
            }
        }
    }

    /// What another loop has sent, or this one to itself.
    pub(crate) fn loop_message(&mut self, io: &mut impl LoopIo, message: BetweenLoops) {
        match message {
            BetweenLoops::Deliver(Together {
                first,
                others,
                set,
                range,
                retaining,
            }) => {
                self.deliver_range(io, first, &set, range.clone());
                for message in others {
                    self.deliver_range(io, message, &set, range.clone());
                }
                // Until here a session of this loop could be given an older message than it has.
                drop(retaining);
            }
            BetweenLoops::ToOwner(publication) => {
                let ToOwner {
                    owned,
                    from,
                    message,
                    set,
                    delivers,
                    of_broker,
                    asks,
                    _retaining,
                } = *publication;
                if delivers {
                    self.deliver_to_sessions(io, Arc::clone(&message), &set, of_broker.as_ref());
                }
                asks.ask(self.base.node.store(), &mut self.calls, &message);
                io.send(Behind(from), BetweenLoops::Handled(owned).into());
            }
            BetweenLoops::Handled(owned) => self.deliveries.elsewhere.handle_handled(owned),
            BetweenLoops::DeliverTo(session, delivery) => {
                self.deliver_to(io, session.key(), delivery)
            }
            BetweenLoops::Hold(publisher, holder) => {
                let reason = match holder {
                    Some(_) => HeldReason::SubscriberQueue,
                    None => HeldReason::ManyReceivers,
                };
                let (parts, mut turn) = self.turn(io);
                parts
                    .backpressure
                    .handle_held(&mut turn, publisher.key(), reason, holder);
            }
            BetweenLoops::LookedUp(user, verdict) => {
                let (parts, mut turn) = self.turn(io);
                let rights = &mut parts.rights;
                parts
                    .rejudge
                    .handle_looked_up(&mut turn, rights, &user, &verdict);
            }
            BetweenLoops::Offer(offer) => self.pass_on(io, *offer),
            BetweenLoops::Release(publisher) => {
                let (parts, mut turn) = self.turn(io);
                parts
                    .backpressure
                    .handle_released(&mut turn, publisher.key());
            }
            // Comes with its connection only.
            BetweenLoops::Entering(_) => {}
            BetweenLoops::FlushPeers => self.flush_peers(io),
        }
    }
}

/// Whole packets, and how many of them are PUBLISH.
pub(crate) fn count_packets(mut bytes: &[u8]) -> (u64, u64) {
    let (mut packets, mut publishes) = (0, 0);
    while let Ok(Some(frame)) = peek_frame(bytes, None) {
        packets += 1;
        publishes += u64::from(frame.packet_type == PacketType::Publish);
        bytes = bytes.get(frame.len()..).unwrap_or_default();
    }
    (packets, publishes)
}
