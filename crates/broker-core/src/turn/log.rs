//! What the log and those who watch events are told of clients: who has come, who has gone and why, who was not let in.
//!
//! Invariant: lines are limited per second and node, each says how many before it were left out, and what
//! clients choose is cut. Events of clients that were let in are told without limit.

use std::fmt;

use guard::{Repeated, Source};
use mqtt_proto::{Connect, Packet, ProtocolVersion, ReasonCode};
use mqtt_session::Timestamp;
use net_api::{Closed, ConnectionId, Kind, Spoken};

use super::Base;
use crate::clients::{Client, LoopIo};
use crate::connect::refused::{Cause, Refused, RefusedLogin, Who};
use crate::events::{ClientEvent, Happened};
use crate::excerpt::excerpt;
use crate::rim::Rim;

impl Client {
    /// The user that it has authenticated as, or else the one that it named.
    pub(crate) fn user(&self) -> Option<&str> {
        let confirmed = self.login.as_ref().and_then(|login| login.username());
        confirmed.or(self.session.username())
    }

    /// Who it is, for those who look for the cause of a refusal.
    pub(crate) fn who(&self) -> Who<'_> {
        Who {
            client_id: Some(self.session.client_id()),
            user: self.user(),
        }
    }
}

impl<R: Rim> Base<R> {
    /// A client has a session and a connection.
    pub(crate) fn log_connected(&self, io: &impl LoopIo, client: &Client) {
        let peer = client.connection.and_then(|id| io.peer(id));
        self.node.rim.tell(&ClientEvent {
            what: Happened::Connected,
            client_id: client.session.client_id(),
            user: client.user(),
            peer: peer.as_ref().map(|peer| peer as _),
            reason: None,
        });
        let Some(left_out) = self.node.lines.connects.take(io.now_ms()) else {
            return;
        };
        tracing::info!(
            client_id = &*excerpt(client.session.client_id()),
            user = client.user().map(excerpt).as_deref(),
            peer = peer.map(tracing::field::display),
            version = version_name(client.session.version()),
            bridge = client.session.is_bridge().then_some(true),
            left_out,
            "a client is connected"
        );
    }

    /// A client has sent DISCONNECT.
    pub(crate) fn log_disconnected(&self, io: &impl LoopIo, client: &Client, reason: ReasonCode) {
        let reason = match reason {
            ReasonCode::Success => "DISCONNECT",
            reason => reason.name(),
        };
        self.log_gone(io, client, reason, None, "a client has disconnected");
    }

    /// A client's connection has ended without DISCONNECT.
    pub(crate) fn log_lost(&self, io: &impl LoopIo, client: &Client, cause: &Closed) {
        let error = cause.error().map(ToString::to_string);
        let reason = match cause {
            Closed::ByPeer => "the connection was closed without DISCONNECT",
            _ => "the connection broke",
        };
        let text = "the connection of a client has ended";
        self.log_gone(io, client, reason, error.as_deref(), text);
    }

    /// The broker disconnects a client.
    pub(crate) fn log_kicked(&self, io: &impl LoopIo, client: &Client, reason: ReasonCode) {
        self.log_gone(io, client, reason.name(), None, "a client is disconnected");
    }

    fn log_gone(
        &self,
        io: &impl LoopIo,
        client: &Client,
        reason: &'static str,
        error: Option<&str>,
        text: &'static str,
    ) {
        let peer = client.connection.and_then(|id| io.peer(id));
        let (now_ms, client_id) = (io.now_ms(), client.session.client_id());
        self.node.rim.tell(&ClientEvent {
            what: Happened::Disconnected,
            client_id,
            user: client.user(),
            peer: peer.as_ref().map(|peer| peer as _),
            reason: Some(reason),
        });
        let address = peer.map(|peer| peer.to_string());
        let registry = &self.node.registry;
        registry.depart(Timestamp(now_ms), client_id, reason, address);
        let Some(left_out) = self.node.lines.disconnects.take(io.now_ms()) else {
            return;
        };
        tracing::info!(
            client_id = &*excerpt(client_id),
            user = client.user().map(excerpt).as_deref(),
            peer = peer.map(tracing::field::display),
            version = version_name(client.session.version()),
            reason,
            error,
            left_out,
            "{text}"
        );
    }

    /// A client is not let in, for those who look for the cause.
    pub(crate) fn tell_refused(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        who: Who<'_>,
        cause: Cause,
    ) {
        let code = match cause {
            Cause::Protocol(code) | Cause::NotServed(code) => Some(code.name()),
            _ => None,
        };
        let detail = code.as_ref().map(|name| name as _);
        self.tell_refused_with(io, connection, who, (cause, detail));
    }

    /// As [`Self::tell_refused`], with what exactly is wrong.
    pub(crate) fn tell_refused_with(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        who: Who<'_>,
        (cause, detail): (Cause, Option<&dyn fmt::Display>),
    ) {
        self.node.rim.tell_refused(&RefusedLogin {
            client_id: who.client_id,
            user: who.user,
            peer: io.peer(connection),
            listener: self.kind_of(io, connection),
            cause,
            detail,
        });
    }

    /// A line of a client that is not let in.
    pub(crate) fn log_refused(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
        refused: Refused,
    ) {
        let Some(left_out) = self.node.lines.refusals.take(io.now_ms()) else {
            return;
        };
        let peer = io.peer(connection);
        self.node.rim.tell(&ClientEvent {
            what: Happened::Refused,
            client_id: connect.client_id,
            user: connect.username,
            peer: peer.as_ref().map(|peer| peer as _),
            reason: Some(refused.reason()),
        });
        tracing::info!(
            client_id = &*excerpt(connect.client_id),
            user = connect.username.map(excerpt).as_deref(),
            peer = peer.map(tracing::field::display),
            version = version_name(connect.version),
            reason = refused.reason(),
            cause = refused.cause.as_str(),
            left_out,
            "a client is refused"
        );
    }

    /// A client does not answer a challenge as it should. `kept`: its CONNECT packet.
    pub(crate) fn log_failed_challenge(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        kept: Option<&[u8]>,
        refused: Refused,
    ) {
        let packet = kept.map(|frame| Packet::decode(frame, ProtocolVersion::V5));
        if let Some(Ok(Packet::Connect(connect))) = packet {
            self.log_refused(io, connection, &connect, refused);
        }
    }

    /// The layers of a connection let nothing of MQTT through.
    pub(crate) fn log_failed_handshake(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        source: Option<Source>,
        cause: &Closed,
    ) {
        if let Closed::Transport(error) = cause {
            let why = (Cause::Handshake, Some(error as _));
            self.tell_refused_with(io, connection, Who::default(), why);
        }
        // Devices try again and again: one line tells the cause.
        let lines = &self.node.lines;
        let of_address = |source| lines.handshakes.take(source, io.now_ms());
        if let Closed::Transport(error) = cause
            && let Some(Repeated(repeated)) = source.map_or(Some(Repeated(0)), of_address)
            && let Some(left_out) = lines.refusals.take(io.now_ms())
        {
            tracing::info!(
                peer = io.peer(connection).map(tracing::field::display),
                listener = self.kind_of(io, connection).map(Kind::name),
                %error,
                repeated,
                left_out,
                "a connection is given up before CONNECT"
            );
        }
    }

    /// A connection to a listener for MQTT without TLS or WebSocket begins with something else.
    pub(crate) fn log_other_protocol(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        spoken: Spoken,
    ) {
        let error = format_args!("the peer speaks {spoken} where plain MQTT is spoken");
        let why = (Cause::Handshake, Some(&error as _));
        self.tell_refused_with(io, connection, Who::default(), why);
        if let Some(left_out) = self.node.lines.refusals.take(io.now_ms()) {
            tracing::info!(
                peer = io.peer(connection).map(tracing::field::display),
                listener = self.kind_of(io, connection).map(Kind::name),
                %error,
                left_out,
                "a connection is given up before CONNECT"
            );
        }
    }
}

/// As people write it.
pub(crate) fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::V3_1 => "3.1",
        ProtocolVersion::V3_1_1 => "3.1.1",
        ProtocolVersion::V5 => "5.0",
    }
}
