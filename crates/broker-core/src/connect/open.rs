//! From CONNECT to a session.

use mqtt_proto::{
    ConnAck, ConnAckProperties, Connect, DecodeError, Disconnect, DisconnectProperties, LastWill,
    Packet, PacketType, ProtocolVersion, ReasonCode,
};
use mqtt_session::{Accepted, Session, Timestamp, check_connect, encode_refusal};
use net_api::{ConnectionId, Key, Next};
use store_state::api::Store as _;

use crate::bridge;
use crate::classes::{Candidate, class_of_login};
use crate::clients::{BetweenLoops, Client, HAS_SESSION, LoopIo, dismiss};
use crate::connect::joining::{Joining, Waiter};
use crate::connect::login_stage::{Admission, Login, Progress, Stage};
use crate::connect::own_clients;
use crate::connect::refused::{Cause, Refused, Who};
use crate::connect::registry::Claim;
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::excerpt::excerpt;
use crate::linger::Linger;
use crate::node::Pressure;
use crate::rim::Rim;

/// A client that is let in.
struct Entry<'a> {
    connection: ConnectionId,
    connect: &'a Connect<'a>,
    /// Its will, if that is a bridge's notification: `connect` has none then.
    notification: Option<LastWill<'a>>,
    /// The CONNECT as it came.
    frame: &'a [u8],
    /// When it came, in µs of the node's clock.
    came_us: u64,
    /// The server chose its client identifier.
    assigned: bool,
    /// What it has authenticated as; taken when it has a place in this loop.
    admission: &'a mut Option<Box<Admission>>,
}

impl Entry<'_> {
    /// The user that authentication has confirmed the client to be.
    fn user(&self) -> Option<&str> {
        let admission = self.admission.as_ref()?;
        admission.identity().username.as_deref()
    }
}

impl<R: Rim> ClientLoop<R> {
    /// A packet of a connection that has no session: CONNECT, or an AUTH that goes on with it. `None`: it
    /// is to be offered again, when the connection is resumed.
    pub(crate) fn connect(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        packet_type: PacketType,
        frame: &[u8],
    ) -> Option<Next> {
        let known = self.logins.remove(&connection);
        let is_first = known.is_none();
        let login = known.unwrap_or_else(|| Login {
            came_us: self.base.node.rim.now_us(),
            stage: Stage::New,
        });
        let came_us = login.came_us;
        let peer = io.peer(connection).map(tracing::field::display);
        match packet_type {
            PacketType::Connect => {}
            PacketType::Auth if !is_first => {
                let kept = login.kept_connect().map(Box::from);
                let progress = self.challenge_answered(io, connection, frame, login);
                if let Progress::Refused(refused) = progress {
                    self.base
                        .log_failed_challenge(io, connection, kept.as_deref(), refused);
                }
                let kept = kept
                    .as_deref()
                    .map(|frame| Packet::decode(frame, ProtocolVersion::V5));
                let who = match &kept {
                    Some(Ok(Packet::Connect(connect))) => Who::of(connect),
                    _ => Who::default(),
                };
                let version = ProtocolVersion::V5;
                return self.proceed(io, (connection, came_us), (version, who), frame, progress);
            }
            _ => {
                // [MQTT-3.1.0-1] [MQTT3-3.1.0-1] the first packet must be CONNECT
                tracing::debug!(peer, ?packet_type, "the first packet is no CONNECT");
                dismiss(io, connection, Vec::new());
                return Some(Next::Read);
            }
        }
        let connect = match Packet::decode(frame, ProtocolVersion::V5) {
            Ok(Packet::Connect(connect)) => connect,
            Ok(_) => return Some(Next::Close),
            Err(error) => {
                if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
                    let statement = error.statement();
                    tracing::info!(peer, %error, statement, left_out, "a CONNECT cannot be read");
                }
                let answer = answer_to(frame, error);
                let cause = Cause::Protocol(error.reason_code());
                self.base
                    .refuse(io, connection, answer, (Who::default(), cause));
                return Some(Next::Read);
            }
        };
        let progress = match self.admit(io, connection, &connect, is_first) {
            Ok(()) => self.login(io, connection, &connect, frame, login),
            Err(refused) => Progress::Refused(refused),
        };
        if let Progress::Refused(refused) = progress {
            self.base.log_refused(io, connection, &connect, refused);
        }
        let as_whom = (connect.version, Who::of(&connect));
        self.proceed(io, (connection, came_us), as_whom, frame, progress)
    }

    /// Does what a login has come to.
    fn proceed(
        &mut self,
        io: &mut impl LoopIo,
        (connection, came_us): (ConnectionId, u64),
        (version, who): (ProtocolVersion, Who<'_>),
        frame: &[u8],
        progress: Progress,
    ) -> Option<Next> {
        match progress {
            Progress::Admitted(mut admission) => {
                let kept = admission.as_mut().and_then(|a| a.connect.take());
                let next = self.enter(
                    io,
                    (connection, came_us),
                    kept.as_deref().unwrap_or(frame),
                    &mut admission,
                );
                if let Some(admission) = &mut admission {
                    admission.connect = kept;
                }
                let stage = Stage::Admitted(admission);
                match next {
                    Some(Next::HandOver(_)) => {
                        io.accompany(BetweenLoops::Entering(Login { came_us, stage }).into());
                    }
                    None => {
                        self.logins.insert(connection, Login { came_us, stage });
                    }
                    Some(_) => {}
                }
                next
            }
            Progress::Waits => None,
            Progress::Challenged => Some(Next::Read),
            Progress::Refused(Refused { code, cause }) => {
                let answer = Some((version, code));
                self.base.refuse(io, connection, answer, (who, cause));
                Some(Next::Read)
            }
        }
    }

    /// A client that is let in is given its client identifier. `admission` is taken when it has a place in
    /// this loop.
    fn enter(
        &mut self,
        io: &mut impl LoopIo,
        (connection, came_us): (ConnectionId, u64),
        frame: &[u8],
        admission: &mut Option<Box<Admission>>,
    ) -> Option<Next> {
        let Ok(Packet::Connect(connect)) = Packet::decode(frame, ProtocolVersion::V5) else {
            return Some(Next::Close);
        };
        let (connect, notification) = bridge::take_notification(&connect);
        let assigned = connect.client_id.is_empty();
        let client_id = if assigned {
            self.new_client_id(io)
        } else {
            connect.client_id.into()
        };
        let (parts, turn) = self.turn(io);
        let may_leave_will = parts.rights.may_leave_will(
            &turn,
            connection,
            &connect,
            &client_id,
            admission.as_deref(),
        );
        if !may_leave_will {
            let refused = Refused {
                code: ReasonCode::NotAuthorized,
                cause: Cause::WillNotAllowed,
            };
            self.base.log_refused(io, connection, &connect, refused);
            let answer = Some((connect.version, refused.code));
            let why = (Who::of(&connect), refused.cause);
            self.base.refuse(io, connection, answer, why);
            return Some(Next::Read);
        }
        let mut entry = Entry {
            connection,
            connect: &connect,
            notification,
            frame,
            came_us,
            assigned,
            admission,
        };
        let key = self.clients.next_key();
        let session_key = self.base.session_key(key);
        match self.base.node.registry.claim(&client_id, session_key) {
            Claim::Taken(home) if home.loop_index() != self.base.index => {
                Some(Next::HandOver(home.loop_index()))
            }
            Claim::Taken(home) => self.take_over(io, &mut entry, client_id, home.key()),
            Claim::New => {
                let full = self.base.settings.sessions != 0
                    && self.base.node.sessions() >= self.base.settings.sessions as u64
                    && !self.base.node.store().knows(&client_id);
                if full || !self.base.node.has_room(self.base.settings.connections) {
                    self.base.node.registry.release(&client_id, session_key);
                    let cause = match full {
                        true => Cause::NodeSessions,
                        false => Cause::NodeConnections,
                    };
                    let code = self.base.full();
                    self.base
                        .log_refused(io, connection, &connect, Refused { code, cause });
                    let answer = Some((connect.version, code));
                    let why = (Who::of(&connect), cause);
                    self.base.refuse(io, connection, answer, why);
                    return Some(Next::Read);
                }
                let stored = self.concerns_store(&connect, &client_id);
                Some(self.begin(io, &mut entry, client_id, stored))
            }
        }
    }

    /// Whether a CONNECT is looked at. `is_first`: it has not been offered before.
    fn admit(
        &self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
        is_first: bool,
    ) -> Result<(), Refused> {
        let refused = |code, cause| Err(Refused { code, cause });
        if let Err(code) = check_connect(connect, &self.base.settings.limits.policy) {
            return refused(code, Cause::NotServed(code));
        }
        own_clients::judge(self.base.kind_of(io, connection), connect.client_id)?;
        let is_strangers_first = is_first && !own_clients::is_outlet(connect.client_id);
        if self.base.closing {
            return refused(ReasonCode::ServerShuttingDown, Cause::ShuttingDown);
        }
        if self.base.drained.is_some() {
            return refused(ReasonCode::UseAnotherServer, Cause::Draining);
        }
        if is_strangers_first {
            let is_plain = || self.base.is_plain(io, connection);
            if let Some(code) = self.base.spread.judge(connect.version, is_plain) {
                return refused(code, Cause::SentOn);
            }
        }
        if self.base.node.pressure() == Pressure::Refuse {
            return refused(self.base.full(), Cause::Memory);
        }
        if is_strangers_first {
            self.pass_guard(io, connection, connect)?;
        }
        Ok(())
    }

    /// A client that has the identifier to itself in this node. `stored`: the store has a say in it.
    fn begin(
        &mut self,
        io: &mut impl LoopIo,
        entry: &mut Entry<'_>,
        client_id: Box<str>,
        stored: bool,
    ) -> Next {
        let admission = entry.admission.take();
        let data = admission
            .as_ref()
            .and_then(|admission| admission.data.as_deref());
        let identity = admission.as_ref().map(|admission| admission.identity());
        let candidate = Candidate {
            user: identity.and_then(|identity| identity.username.as_deref()),
            client_id: &client_id,
            certificate: io.handshakes(entry.connection).certificate_name,
            listener: self.base.kind_of(io, entry.connection),
        };
        let named = identity.and_then(|identity| identity.class.as_deref());
        let class = class_of_login(&self.base.settings, named, &candidate, || {
            self.base.node.lines.refusals.take(io.now_ms())
        });
        let group = self.base.settings.rate_group(&client_id, class);
        io.set_rate_group(entry.connection, group);
        let accepted = Accepted {
            assigned: entry.assigned,
            authentication_data: data,
            class,
            ..Accepted::default()
        };
        let now = Timestamp(io.now_ms());
        if let Some(will) = &entry.notification {
            let (topic, length) = (will.topic, will.payload.len());
            let reason = Reason::BridgeNotification;
            self.base
                .drops
                .record(io.now_ms(), &client_id, topic, reason, will.qos, length);
        }
        let policy = self.base.settings.policy_of(class);
        let session = Session::open(entry.connect, client_id.clone(), accepted, policy, now);
        // A session that others have a say in stands in until they have answered; nothing of it is ever
        // sent.
        // Nobody else has an identifier that this node made up.
        let is_registered = self.base.node.peers().is_some() && (stored || !entry.assigned);
        let waits = stored || is_registered;
        let joining = waits.then(|| Box::new(Joining::new(entry.frame, accepted, stored)));
        let key = self.add_client(session, entry.connection, entry.came_us, joining);
        io.set_tag(entry.connection, HAS_SESSION | key.to_bits());
        if let Some(admission) = admission {
            let method = entry.connect.properties.authentication_method;
            self.logged_in(io, key, method, admission.into_identity());
        }
        if is_registered {
            self.register(io, key);
        } else if stored {
            self.join(key, entry.connect, &client_id);
        }
        if waits {
            return Next::Pause;
        }
        self.count_session(key);
        self.has_joined(io, key);
        Next::Read
    }

    /// Gives a session its place in the loop.
    pub(crate) fn add_client(
        &mut self,
        session: Session,
        connection: ConnectionId,
        came_us: u64,
        joining: Option<Box<Joining>>,
    ) -> Key {
        self.base.node.count_connected();
        let mut client = Client::new(session, connection);
        client.came_us = came_us;
        client.rare.set(|of| &mut of.joining, joining);
        self.parts.rejudge.handle_joining(&mut client);
        self.clients.insert(client)
    }

    /// Takes a client out of the loop; its identifier is free.
    pub(crate) fn forget_client(&mut self, io: &mut impl LoopIo, key: Key) {
        if self.clients.get(key).is_some_and(|client| client.counted) {
            self.unregister(io, key);
        }
        let (parts, mut turn) = self.turn(io);
        parts.linger.handle_gone(&mut turn, key);
        let session_key = self.base.session_key(key);
        let expires_at = self
            .clients
            .get(key)
            .and_then(|client| client.login.as_ref()?.expires_at());
        self.expiries.replace(key, expires_at, None);
        self.parts.rejudge.handle_gone(key);
        if let Some(client) = self.clients.remove(key) {
            if client.counted {
                self.base.stats.sessions.sub(1);
            }
            let filters = client.session.filters().0;
            self.base.stats.subscription_bytes.sub(filters);
            let goes_on = client.session.is_durable();
            let now = Timestamp(io.now_ms());
            self.base.node.quotas.handle_gone(
                client.confirmed_user(),
                &client.session,
                goes_on,
                now,
            );
            self.base
                .node
                .registry
                .release(client.session.client_id(), session_key);
        }
    }

    /// Counts a session that the store does not count.
    pub(crate) fn count_session(&mut self, key: Key) {
        if let Some(client) = self.clients.get_mut(key) {
            client.counted = true;
            self.base.stats.sessions.add(1);
        }
    }

    /// A client identifier that is connected to this loop, or about to be: the connection whose CONNECT came
    /// earlier is closed, unless it is another user's, and the later one begins anew. What the session is to keep,
    /// the store keeps. A client that is about to be connected gets its CONNACK first.
    fn take_over(
        &mut self,
        io: &mut impl LoopIo,
        entry: &mut Entry<'_>,
        client_id: Box<str>,
        key: Key,
    ) -> Option<Next> {
        if Linger::is_lingering(&self.clients, key) {
            return self.follow(io, entry, client_id, key);
        }
        if let Some(client) = self.clients.get(key) {
            let user = entry.user();
            let holder = client.login.as_ref().and_then(|login| login.username());
            if entry.came_us < client.came_us && self.base.settings.may_take(user, holder) {
                let takeover_answer = self.takeover_answer(entry.connect, &client_id);
                self.give_up(io, &client_id, entry.connection, takeover_answer);
                return Some(Next::Read);
            }
            if client.rare.get().joining.is_some() {
                return self.wait_for_joining(io, entry, &client_id, key);
            }
            if !self.base.settings.may_take(holder, user) {
                self.report_another_user(io, &client_id, user);
                let answer = Some((entry.connect.version, ReasonCode::NotAuthorized));
                let why = (Who::of(entry.connect), Cause::SessionOfAnotherUser);
                self.base.refuse(io, entry.connection, answer, why);
                return Some(Next::Read);
            }
            // [MQTT-3.1.4-3] [MQTT3-3.1.4-2] the older connection ends with 0x8E
            self.count_takeover(io, &client_id);
            // [MQTT-3.1.2-4] [MQTT3-3.1.2-6] a clean start discards the session, which the store does
            self.base.end(key, ReasonCode::SessionTakenOver);
            // The CONNECT is looked at anew when that is done: then the identifier is free, or leads to the routes that
            // the session has left.
            return None;
        }
        debug_assert!(false, "the home of an identifier has an entry");
        let session_key = self.base.session_key(key);
        self.base.node.registry.release(&client_id, session_key);
        let answer = Some((entry.connect.version, ReasonCode::ServerBusy));
        let why = (Who::of(entry.connect), Cause::TakeOver);
        self.base.refuse(io, entry.connection, answer, why);
        Some(Next::Read)
    }

    /// A CONNECT waits until that of the client's connection is answered. Of those that wait and may take each other
    /// over, only the one that came last goes on; so there is at most one of each user.
    fn wait_for_joining(
        &mut self,
        io: &mut impl LoopIo,
        entry: &Entry<'_>,
        client_id: &str,
        key: Key,
    ) -> Option<Next> {
        let user = entry.user();
        let joining = self
            .clients
            .get_mut(key)?
            .rare
            .get_mut(|of| &mut of.joining)?;
        let waiters = std::mem::take(&mut joining.waiters);
        self.base.stats.connects_waiting.sub(waiters.len() as u64);
        let mut superseded = Vec::new();
        let mut is_superseded = false;
        let mut still = Vec::new();
        for waiter in waiters {
            // Without a login, its connection is gone.
            let Some(login) = self.logins.get(&waiter.connection) else {
                continue;
            };
            let is_later = login.came_us > entry.came_us;
            if !is_later && self.base.settings.may_take(login.user(), user) {
                superseded.push(waiter);
                continue;
            }
            is_superseded |= is_later && self.base.settings.may_take(user, login.user());
            still.push(waiter);
        }
        let own = Waiter {
            connection: entry.connection,
            takeover_answer: self.takeover_answer(entry.connect, client_id).into(),
        };
        if is_superseded {
            superseded.push(own);
        } else {
            still.push(own);
        }
        self.base.stats.connects_waiting.add(still.len() as u64);
        if let Some(joining) = self
            .clients
            .get_mut(key)
            .and_then(|c| c.rare.get_mut(|of| &mut of.joining))
        {
            joining.waiters = still;
        }
        for waiter in superseded {
            self.give_up(
                io,
                client_id,
                waiter.connection,
                waiter.takeover_answer.into(),
            );
        }
        is_superseded.then_some(Next::Read)
    }

    /// A connection without a session is closed: a later one of the client has connected, or is about to.
    fn give_up(
        &mut self,
        io: &mut impl LoopIo,
        client_id: &str,
        connection: ConnectionId,
        takeover_answer: Vec<u8>,
    ) {
        self.count_takeover(io, client_id);
        self.logins.remove(&connection);
        dismiss(io, connection, takeover_answer);
    }

    /// What a connection is sent that is taken over before it has its place. A node that is alone answers as if the
    /// client had been connected for a moment. One of a cluster refuses it: the client may be connected to another node
    /// at that time, and whether it has a session is not known here for certain. Nothing, if an authentication exchange
    /// would have to end first.
    fn takeover_answer(&self, connect: &Connect<'_>, client_id: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let version = connect.version;
        if connect.properties.authentication_method.is_some() {
            return out;
        }
        if self.base.node.peers().is_some() {
            let policy = &self.base.settings.limits.policy;
            encode_refusal(version, ReasonCode::ServerUnavailable, policy, &mut out);
            return out;
        }
        let can_say = version != ProtocolVersion::V3_1;
        let accepted = Packet::ConnAck(ConnAck {
            session_present: can_say
                && !connect.clean_start
                && self.base.node.store().knows(client_id),
            reason: ReasonCode::Success,
            properties: ConnAckProperties::default(),
        });
        let mut encoded = accepted.encode(version, &mut out);
        if version.is_v5() {
            // [MQTT-3.1.4-3]
            let taken_over = Packet::Disconnect(Disconnect {
                reason: ReasonCode::SessionTakenOver,
                properties: DisconnectProperties::default(),
            });
            encoded = encoded.and_then(|()| taken_over.encode(version, &mut out));
        }
        debug_assert_eq!(encoded, Ok(()), "nothing in them can be too long");
        out
    }

    fn count_takeover(&self, io: &impl LoopIo, client_id: &str) {
        self.base.stats.takeovers.add(1);
        if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
            tracing::info!(
                client_id = &*excerpt(client_id),
                left_out,
                "a new connection takes the session over"
            );
        }
    }

    /// A client whose last connection left its routes to an entry is connected again.
    fn follow(
        &mut self,
        io: &mut impl LoopIo,
        entry: &mut Entry<'_>,
        client_id: Box<str>,
        holder: Key,
    ) -> Option<Next> {
        if !self.base.node.has_room(self.base.settings.connections) {
            let answer = Some((entry.connect.version, self.base.full()));
            let why = (Who::of(entry.connect), Cause::NodeConnections);
            self.base.refuse(io, entry.connection, answer, why);
            return Some(Next::Read);
        }
        let key = self.clients.next_key();
        let (from, to) = (self.base.session_key(holder), self.base.session_key(key));
        self.base.node.registry.hand_on(&client_id, from, to);
        let next = self.begin(io, entry, client_id, true);
        Linger::handle_successor(&mut self.clients, holder, key);
        Some(next)
    }

    /// An identifier for a client that asked for one: unique in this node and hard to guess.
    fn new_client_id(&self, io: &impl LoopIo) -> Box<str> {
        use std::hash::BuildHasher;
        loop {
            // RandomState is keyed from the system's randomness at each start.
            let high = self.identifiers.hash_one((
                self.base.index,
                io.now_ms(),
                self.base.stats.connects.get(),
            ));
            let low = self
                .identifiers
                .hash_one((high, self.base.stats.packets_in.get()));
            let id = format!("auto-{high:016x}{low:016x}");
            if self.base.node.registry.find(&id).is_none() {
                return id.into();
            }
        }
    }
}

/// The highest protocol level of MQTT that could be a later version's. The levels above it have the bit that marks bridges.
const LATEST_LEVEL: u8 = 0x7F;

/// How to answer a CONNECT that could not be read. Only 5.0 knows codes for that
/// [MQTT-3.1.4-1] [MQTT3-3.1.4-1] [MQTT3-3.2.2-6]. A level that is not served is refused in the form of 5.0 if its version
/// is later than that [MQTT-3.1.2-2], and else in the form of 3.1.1, which clients of all earlier versions understand
/// [MQTT3-3.1.2-2].
fn answer_to(frame: &[u8], error: DecodeError) -> Option<(ProtocolVersion, ReasonCode)> {
    let reason = error.reason_code();
    let header = mqtt_proto::peek_frame(frame, None).ok()??.header_len;
    let body = frame.get(header..)?;
    let newest = ProtocolVersion::V5 as u8;
    if let DecodeError::UnsupportedProtocolLevel(level) = error {
        let is_later = level > newest && level <= LATEST_LEVEL && body.starts_with(b"\0\x04MQTT");
        let version = if is_later {
            ProtocolVersion::V5
        } else {
            ProtocolVersion::V3_1_1
        };
        return Some((version, reason));
    }
    body.starts_with(b"\0\x04MQTT\x05")
        .then_some((ProtocolVersion::V5, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_connect_of_5_0_is_answered() {
        let broken = DecodeError::NotUtf8;
        assert_eq!(
            answer_to(b"\x10\x0a\0\x04MQTT\x05xyz", broken),
            Some((ProtocolVersion::V5, ReasonCode::MalformedPacket))
        );
        assert_eq!(answer_to(b"\x10\x0a\0\x04MQTT\x04xyz", broken), None);
        assert_eq!(answer_to(b"\x10\x0a\0\x04HTTP\x05xyz", broken), None);
        assert_eq!(answer_to(b"\x10", broken), None);
    }

    /// [MQTT-3.1.2-2] [MQTT3-3.1.2-2]
    #[test]
    fn a_later_version_is_refused_in_the_form_of_5_0_and_others_in_that_of_3_1_1() {
        let check = |name: &[u8], level: u8, version| {
            let frame = [&[0x10, 9, 0, name.len() as u8], name, &[level], b"xyz"].concat();
            let reason = ReasonCode::UnsupportedProtocolVersion;
            let error = DecodeError::UnsupportedProtocolLevel(level);
            let expected = Some((version, reason));
            assert_eq!(answer_to(&frame, error), expected, "{name:?} {level}");
        };
        for level in 6..=127 {
            check(b"MQTT", level, ProtocolVersion::V5);
        }
        for level in [0, 1, 2, 3, 128, 129, 255] {
            check(b"MQTT", level, ProtocolVersion::V3_1_1);
        }
        for level in [0, 2, 4, 5, 6, 255] {
            check(b"MQIsdp", level, ProtocolVersion::V3_1_1);
        }
    }
}
