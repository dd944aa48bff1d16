//! Frames of a connection: which of them are handled now, and what packets ask for.

use authorization::Action as Right;
use mqtt_proto::{DecodeError, Packet, PacketId, PacketType, ReasonCode, peek_frame};
use mqtt_session::{Action, ApplicationMessage, Timestamp, Violation, class_of};
use net_api::{ConnectionId, Key, Next, Received, Spoken};
use store_state::api::Store as _;

use super::ClientLoop;
use crate::backpressure::held::Wait;
use crate::backpressure::held_time::{HeldReason, Until};
use crate::bridge;
use crate::clients::{
    Client, DONE, LoopIo, PRESSURE_RETRY_MS, STORE_RETRY_MS, Timer, dismiss, key_in, key_of,
};
use crate::connect::own_clients;
use crate::drops::Reason;
use crate::end::Ends;
use crate::excerpt::excerpt;
use crate::inbox::{Inboxes, Sequence};
use crate::node::Pressure;
use crate::rim::Rim;
use crate::share::Share;
use crate::subscribe::grant::Subscriptions;

/// Unsent control packets (acknowledgements, ping responses) of a client at which its connection is no
/// longer read: it sends requests, and does not read the answers.
///
/// Limit: unsent acknowledgements of a client | {:bytes} | the connection is not read
pub(crate) const CONTROL_LIMIT: usize = 64 * 1024;

impl<R: Rim> ClientLoop<R> {
    /// One frame of a client that has a session. `Err`: what the connection is closed for.
    pub(crate) fn handle_frame(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        frame: &[u8],
    ) -> Result<Next, Violated> {
        let now = Timestamp(io.now_ms());
        let session_key = self.base.session_key(key);
        let Some(client) = self.clients.get_mut(key) else {
            return Ok(Next::Close);
        };
        let policy = self.base.settings.policy_of(class_of(&client.session));
        // By reference: packets are large, and moving one copies it.
        let decoded = Packet::decode(frame, client.session.version());
        let packet = match &decoded {
            Ok(packet) => packet,
            Err(error) => return Err(Violated::by_decoding(*error)),
        };
        self.base.stats.packets_in.add(1);
        let action = match client
            .session
            .handle_packet(packet, session_key.to_bits(), policy, now)
        {
            Ok(action) => action,
            Err(violation) => return Err(Violated::by_handling(&violation)),
        };
        if let Packet::Publish(publish) = packet {
            if let Some(count) = self.base.stats.publishes_in.get(publish.qos as usize) {
                count.add(1);
            }
            self.base
                .stats
                .publish_bytes_in
                .add(publish.payload.len() as u64);
        }
        let mut next = Next::Read;
        match action {
            Action::None => {}
            Action::Publish {
                mut message,
                packet_id,
            } => {
                let time = &self.base.node.rim;
                message.expires_at = message
                    .expires_at
                    .map(|at| Timestamp(time.cluster_time_ms(at.0)));
                message.taken_up = self.traffic.handle_published(
                    client.session.client_id(),
                    &message.body,
                    now,
                    || time.now_us(),
                );
                let taken_up = message.taken_up;
                let done = self.publish_if_allowed(io, message, key, packet_id);
                if let (Some(packet_id), Some(reason), Some(client)) =
                    (packet_id, done, self.clients.get_mut(key))
                {
                    client.session.complete_publish(packet_id, reason, taken_up);
                }
            }
            Action::Subscribe(subscribe) => {
                let (parts, mut turn) = self.turn(io);
                let mut below = parts.below_subscriptions();
                next = Subscriptions::handle_subscribe(&mut turn, &mut below, key, &subscribe);
            }
            Action::Unsubscribe(unsubscribe) => {
                let (parts, mut turn) = self.turn(io);
                let mut below = parts.below_subscriptions();
                next = Subscriptions::handle_unsubscribe(&mut turn, &mut below, key, &unsubscribe);
            }
            Action::Receipt { sequence } => {
                Inboxes::handle_receipt(&mut self.base, &self.clients, key, Sequence(sequence));
            }
            Action::Release { packet_id } => {
                Inboxes::handle_release(&mut self.base, &mut self.clients, key, packet_id);
            }
            Action::Acknowledged => {
                let (parts, mut turn) = self.turn(io);
                parts.backpressure.handle_acknowledgement(&mut turn, key);
            }
            Action::Refused(dropped) => self.base.outcome.dropped.push(dropped),
            Action::Authenticate => {
                if let Packet::Auth(auth) = packet {
                    self.authenticate_again(io, key, auth)?;
                }
            }
            Action::Disconnect => {
                if let Packet::Disconnect(disconnect) = packet
                    && let Some(client) = self.clients.get(key)
                {
                    self.base.log_disconnected(io, client, disconnect.reason);
                }
                let (parts, mut turn) = self.turn(io);
                let below = (&mut parts.linger, &mut parts.backpressure);
                return Ok(Ends::handle_disconnect(&mut turn, below, key));
            }
        }
        self.base.report_dropped(&self.clients, io, key);
        if let Some(client) = self.clients.get_mut(key)
            && let Some(connection) = client.connection
            && client.session.wants_transmit()
        {
            io.touch(connection);
        }
        Ok(next)
    }

    /// Routes what a client publishes, if it may; the answer is that of [`Self::publish`]. A bridge's notification needs no
    /// rights, as it goes nowhere.
    pub(crate) fn publish_if_allowed(
        &mut self,
        io: &mut impl LoopIo,
        message: ApplicationMessage,
        from: Key,
        packet_id: Option<PacketId>,
    ) -> Option<ReasonCode> {
        if bridge::is_notification(message.body.topic_bytes()) {
            self.base.drop_inbound(
                &self.clients,
                io,
                from,
                &message,
                Reason::BridgeNotification,
            );
            return Some(ReasonCode::NoMatchingSubscribers);
        }
        // The topic is looked at as text only where something is restricted.
        let (parts, mut turn) = self.turn(io);
        let mut may = |action| {
            let rights = &mut parts.rights;
            !rights.is_restricted(&turn, from, action)
                || rights.decide(&mut turn, from, action, message.body.topic())
        };
        let denied = if !may(Right::Publish) {
            Right::Publish
        } else if message.retain && !may(Right::Retain) {
            Right::Retain
        } else {
            return self.publish(io, message, from, packet_id);
        };
        self.base
            .drop_inbound(&self.clients, io, from, &message, Reason::Denied(denied));
        let client = self.clients.get(from);
        let before_v5 = client.is_some_and(|client| !client.session.version().is_v5());
        if before_v5 && self.base.settings.authorization.disconnects_v3 {
            // [MQTT3-3.3.5-2] an acknowledgement as if it were accepted, or none and the end
            self.end_connection(io, from, ReasonCode::NotAuthorized);
        }
        Some(ReasonCode::NotAuthorized)
    }

    /// The frames among bytes that came.
    pub(crate) fn frames(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> Received {
        let mut consumed = 0;
        self.base.share = Share::default();
        loop {
            let tag = io.tag(connection);
            if tag == Some(DONE) {
                // Refused or kicked: whatever else came with the same bytes is not heard.
                return Received {
                    consumed: bytes.len(),
                    next: Next::Read,
                };
            }
            let rest = bytes.get(consumed..).unwrap_or_default();
            let key = tag.and_then(key_in);
            if key.is_none()
                && let Some(spoken) = rest.first().copied().and_then(Spoken::by)
                && spoken != Spoken::Mqtt
            {
                self.base.log_other_protocol(io, connection, spoken);
                dismiss(io, connection, Vec::new());
                return Received {
                    consumed: bytes.len(),
                    next: Next::Read,
                };
            }
            let client = key.and_then(|key| self.clients.get(key));
            if client.is_some_and(|client| client.waits || client.rare.get().joining.is_some()) {
                return Received {
                    consumed,
                    next: Next::Pause,
                };
            }
            let goes_on = client.is_some_and(Client::has_parts_left);
            let version = client.map(|client| client.session.version());
            let limit = match version {
                Some(_) => self.base.settings.limits.policy.maximum_packet_size,
                None => self.base.settings.maximum_connect_size,
            };
            let frame = match peek_frame(rest, version) {
                Ok(None) => {
                    return Received {
                        consumed,
                        next: Next::Read,
                    };
                }
                Ok(Some(frame)) => frame,
                Err(error) => {
                    self.close_violator(io, connection, &Violated::by_decoding(error));
                    return Received {
                        consumed: bytes.len(),
                        next: Next::Read,
                    };
                }
            };
            if frame.len() > limit as usize {
                // [MQTT-3.1.2-24] the limit that CONNACK announced; judged by what is announced, so
                // that nobody makes us wait for, or keep, what will be refused anyway
                let violated = Violated {
                    reason: ReasonCode::PacketTooLarge,
                    statement: Some("MQTT-3.2.2-15"),
                    what: format!(
                        "a packet of {} bytes is larger than the limit of {limit}",
                        frame.len()
                    ),
                };
                self.close_violator(io, connection, &violated);
                return Received {
                    consumed: bytes.len(),
                    next: Next::Read,
                };
            }
            let Some(whole) = rest.get(..frame.len()) else {
                return Received {
                    consumed,
                    next: Next::Read,
                };
            };
            let result = match key {
                None => {
                    io.charge(crate::share::CONNECT);
                    let mut next = self.connect(io, connection, frame.packet_type, whole);
                    if next.is_none() && self.base.has_effects() {
                        // What the client waits for is done now.
                        self.carry_out(io);
                        next = self.connect(io, connection, frame.packet_type, whole);
                    }
                    self.carry_out(io);
                    let Some(next) = next else {
                        return Received {
                            consumed,
                            next: Next::Pause,
                        };
                    };
                    if let Next::HandOver(_) = next {
                        return Received { consumed, next };
                    }
                    Ok(next)
                }
                Some(key) if goes_on => {
                    let (parts, mut turn) = self.turn(io);
                    let mut below = parts.below_subscriptions();
                    let of = frame.packet_type;
                    let next = Subscriptions::handle_rest(&mut turn, &mut below, key, of, whole);
                    Ok(next)
                }
                Some(key) => {
                    self.base.share.charge(crate::share::cost_to_client(&frame));
                    io.charge(crate::share::cost_to_loop(&frame));
                    match self.must_wait(io, connection, key, frame.packet_type, whole) {
                        Wait::No => {}
                        Wait::Kept => {
                            consumed += frame.len();
                            continue;
                        }
                        Wait::Pause => {
                            return Received {
                                consumed,
                                next: Next::Pause,
                            };
                        }
                    }
                    self.handle_frame(io, key, whole)
                }
            };
            self.carry_out(io);
            let has_filters = matches!(
                frame.packet_type,
                PacketType::Subscribe | PacketType::Unsubscribe
            );
            if !(has_filters
                && key
                    .and_then(|key| self.clients.get(key))
                    .is_some_and(Client::has_parts_left))
            {
                consumed += frame.len();
            }
            match result {
                Ok(Next::Read) if self.base.share.is_spent() || io.has_done_enough() => {
                    return Received {
                        consumed,
                        next: Next::Yield,
                    };
                }
                Ok(Next::Read) => {}
                Ok(next) => return Received { consumed, next },
                Err(violated) => {
                    self.close_violator(io, connection, &violated);
                    return Received {
                        consumed: bytes.len(),
                        next: Next::Read,
                    };
                }
            }
        }
    }

    /// Whether the next frame must wait although it has come: the publisher is held back, over its
    /// rate, or memory is scarce; or the client does not read what it is answered.
    pub(crate) fn must_wait(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        key: Key,
        packet: PacketType,
        frame: &[u8],
    ) -> Wait {
        let Some(client) = self.clients.get_mut(key) else {
            return Wait::No;
        };
        if client.session.control_len() > CONTROL_LIMIT {
            // Transmitting, which becomes possible when the client reads, resumes the connection.
            io.touch(connection);
            let (parts, mut turn) = self.turn(io);
            parts.backpressure.handle_wait(
                &mut turn,
                key,
                HeldReason::UnreadAnswers,
                Until::Resumed,
            );
            return Wait::Pause;
        }
        if let Some(hold) = client.rare.get_mut(|of| &mut of.hold)
            && hold.is_held()
        {
            return hold.wait(packet, frame);
        }
        if packet != PacketType::Publish {
            return Wait::No;
        }
        if self.base.node.pressure() != Pressure::None {
            self.base.stats.pressure_pauses.add(1);
            if self.unread.for_memory.is_empty() {
                io.arm(io.now_ms() + PRESSURE_RETRY_MS, Timer::Pressure.to_bits());
            }
            self.unread.for_memory.push(connection);
            let (parts, mut turn) = self.turn(io);
            parts
                .backpressure
                .handle_wait(&mut turn, key, HeldReason::Memory, Until::Resumed);
            return Wait::Pause;
        }
        if self.base.node.store().is_over_limit() {
            if self.unread.for_store.is_empty() {
                io.arm(io.now_ms() + STORE_RETRY_MS, Timer::Store.to_bits());
            }
            self.base.stats.store_pauses.add(1);
            self.unread.for_store.push(connection);
            let (parts, mut turn) = self.turn(io);
            parts
                .backpressure
                .handle_wait(&mut turn, key, HeldReason::Store, Until::Resumed);
            return Wait::Pause;
        }
        if client.crowds {
            client.crowds = self.forwarding.wait(io, &self.base.node, connection);
            if client.crowds {
                self.base.stats.peer_pauses.add(1);
                let (parts, mut turn) = self.turn(io);
                parts.backpressure.handle_wait(
                    &mut turn,
                    key,
                    HeldReason::OtherNodes,
                    Until::Resumed,
                );
                return Wait::Pause;
            }
        }
        let rate = self
            .base
            .settings
            .limits_of(class_of(&client.session))
            .publishes_per_s;
        if rate != 0 && !own_clients::is_outlet(client.session.client_id()) {
            let bucket = client.rare.make(|of| &mut of.publish_rate);
            if bucket.available(rate, io.now_ms()) == 0 {
                let until = bucket.resumes_at(rate, io.now_ms());
                self.base.stats.throttled_publishes.add(1);
                io.arm(until, Timer::Resume(connection).to_bits());
                let (parts, mut turn) = self.turn(io);
                let until = Until::Time(Timestamp(until));
                parts.backpressure.handle_wait(
                    &mut turn,
                    key,
                    HeldReason::PublishesPerSecond,
                    until,
                );
                return Wait::Pause;
            }
            bucket.take(1, rate, io.now_ms());
        }
        Wait::No
    }

    /// Closes a connection for what its client did.
    pub(crate) fn close_violator(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        violated: &Violated,
    ) {
        self.base.stats.violations.add(1);
        let peer = io.peer(connection).map(tracing::field::display);
        let Some(key) = key_of(io, connection) else {
            tracing::debug!(
                peer,
                reason = violated.what,
                statement = violated.statement,
                "closed before CONNECT"
            );
            dismiss(io, connection, Vec::new());
            return;
        };
        if let Some(client) = self.clients.get(key)
            && let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms())
        {
            tracing::info!(
                client_id = &*excerpt(client.session.client_id()),
                peer,
                reason = violated.what,
                statement = violated.statement,
                left_out,
                "a client broke the protocol and is disconnected"
            );
        }
        self.end_connection(io, key, violated.reason);
    }
}

/// What a connection is closed for.
pub(crate) struct Violated {
    pub(crate) reason: ReasonCode,
    pub(crate) statement: Option<&'static str>,
    pub(crate) what: String,
}

impl Violated {
    fn by_handling(violation: &Violation) -> Self {
        Self {
            reason: violation.reason_code(),
            statement: violation.statement(),
            what: violation.to_string(),
        }
    }

    pub(crate) fn by_decoding(error: DecodeError) -> Self {
        Self {
            reason: error.reason_code(),
            statement: error.statement(),
            what: error.to_string(),
        }
    }
}
