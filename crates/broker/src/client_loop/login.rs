//! Logins: what stands between a CONNECT and its session.
//!
//! A CONNECT that an authenticator has to judge stays unread while the chain is asked. The answer comes
//! as mail, the connection is resumed, and the same packet is offered again, now with its answer. In an
//! exchange of authentication (MQTT 5.0 §4.12) the CONNECT is kept while AUTH packets go to and fro.
//!
//! Invariants: nothing of a client is looked up or claimed before it is admitted; what an answer says
//! beyond "no" is in the log only.

use authentication::{Credentials, Denial, Exchange, Identity, Secret, Step, Verdict};
use mqtt_proto::{Auth, Connect, Packet, ProtocolVersion, ReasonCode};
use mqtt_session::encode_challenge;
use net::{Clock, ConnectionId, Key};

use super::connect::is_loopback;
use super::guarded::ip_of;
use super::{ClientLoop, LoopIo, Mail, Timer, Violated};
use crate::stats::BrokerStats;

/// How soon a CONNECT that found too many logins under way is looked at again.
const RETRY_MS: u64 = 10;

/// Where a connection without a session stands.
#[derive(Debug)]
pub(super) enum Login {
    /// The chain is asked.
    Asked,
    /// It has answered.
    Answered(Verdict),
    /// A challenge was sent; an AUTH is to come.
    Challenged {
        exchange: Box<Exchange>,
        /// The CONNECT packet.
        connect: Box<[u8]>,
    },
    /// It is let in, and waits for its client identifier.
    Admitted(Box<Admission>),
}

impl Login {
    /// The CONNECT packet that AUTH packets go on with.
    pub(super) fn kept_connect(&self) -> Option<&[u8]> {
        match self {
            Self::Challenged { connect, .. } => Some(connect),
            _ => None,
        }
    }
}

/// A client that has authenticated and has no session yet.
#[derive(Debug)]
pub(crate) struct Admission {
    identity: Box<Identity>,
    /// The CONNECT packet, if AUTH packets came after it.
    pub(super) connect: Option<Box<[u8]>>,
    /// Authentication data for CONNACK.
    pub(super) data: Option<Box<[u8]>>,
}

/// What a connected client has authenticated as.
#[derive(Debug)]
pub(super) struct LoggedIn {
    username: Option<Box<str>>,
    /// When the client must be disconnected, in seconds since 1970-01-01 UTC.
    expires_at: Option<u64>,
    /// The authentication method of CONNECT.
    method: Option<Box<str>>,
    /// The client authenticates again.
    exchange: Option<Box<Exchange>>,
}

/// How far a CONNECT has come.
pub(super) enum Progress {
    /// It is let in; `None`: as a client that nothing is known of.
    Admitted(Option<Box<Admission>>),
    /// It is to be offered again when the connection is resumed.
    Waits,
    /// An AUTH was sent instead of an answer.
    Challenged,
    /// It is not let in.
    Refused(ReasonCode),
}

impl ClientLoop {
    /// Whether a CONNECT is let in, and as whom.
    pub(super) fn login(
        &mut self,
        io: &mut LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
        frame: &[u8],
        login: Option<Login>,
    ) -> Progress {
        match login {
            Some(Login::Admitted(admission)) => Progress::Admitted(Some(admission)),
            Some(Login::Answered(verdict)) => self.judged(io, connection, connect, verdict),
            Some(asked @ Login::Asked) => {
                self.logins.insert(connection, asked);
                Progress::Waits
            }
            // [MQTT-3.1.0-2]
            Some(Login::Challenged { .. }) => Progress::Refused(ReasonCode::ProtocolError),
            None => match connect.properties.authentication_method {
                Some(method) => {
                    let data = connect.properties.authentication_data.unwrap_or_default();
                    let step = self.node.authentication.begin_exchange(method, data);
                    // [MQTT-4.12.0-1]
                    let Some(step) = step else {
                        return Progress::Refused(ReasonCode::BadAuthenticationMethod);
                    };
                    self.step(io, connection, method, frame.into(), step)
                }
                None if self.may_be_anonymous(io, connection, connect) => {
                    Progress::Admitted(certified(io, connection))
                }
                None if self.node.authentication.is_empty() => {
                    self.node.explain_anonymous_refusal();
                    self.login_failed(io, connection, connect);
                    Progress::Refused(ReasonCode::NotAuthorized)
                }
                None => self.ask_chain(io, connection, connect),
            },
        }
    }

    /// Whether a client is let in without being asked who it is.
    fn may_be_anonymous(
        &self,
        io: &LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
    ) -> bool {
        let allowed = self.settings.allow_anonymous;
        if self.node.authentication.is_empty() {
            // A Unix domain socket has no address, and is this machine's.
            let local = || {
                io.peer(connection)
                    .is_some_and(|peer| peer.ip().is_none_or(is_loopback))
            };
            return allowed.unwrap_or_else(local);
        }
        allowed == Some(true) && connect.username.is_none() && connect.password.is_none()
    }

    fn ask_chain(
        &mut self,
        io: &mut LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
    ) -> Progress {
        if self.node.authentication.is_crowded() {
            if self.waiting_for_login.is_empty() {
                io.arm(io.now_ms() + RETRY_MS, Timer::Login.to_bits());
            }
            self.waiting_for_login.push(connection);
            return Progress::Waits;
        }
        let credentials = Credentials {
            client_id: connect.client_id.into(),
            username: connect.username.map(Box::from),
            password: connect.password.map(Secret::new),
            address: ip_of(io, connection).map(|ip| ip.to_canonical()),
            certificate_name: io.certificate_name(connection).map(Box::from),
        };
        let (loops, index) = (self.node.loops().clone(), self.index);
        self.logins.insert(connection, Login::Asked);
        self.node
            .authentication
            .authenticate(credentials, move |verdict| {
                loops.send(index, Mail::Verdict(connection, verdict));
            });
        Progress::Waits
    }

    /// The chain has answered.
    pub(super) fn login_answered(
        &mut self,
        io: &mut LoopIo,
        connection: ConnectionId,
        verdict: Verdict,
    ) {
        if let Some(login) = self.logins.get_mut(&connection) {
            *login = Login::Answered(verdict);
            io.resume(connection);
        }
    }

    /// The logins under way may be fewer.
    pub(super) fn log_in_later(&mut self, io: &mut LoopIo) {
        if self.node.authentication.is_crowded() {
            io.arm(io.now_ms() + RETRY_MS, Timer::Login.to_bits());
            return;
        }
        for connection in std::mem::take(&mut self.waiting_for_login) {
            io.resume(connection);
        }
    }

    fn judged(
        &self,
        io: &LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
        verdict: Verdict,
    ) -> Progress {
        match verdict {
            // An answer that an authenticator remembers may be older than its end.
            Verdict::Allow(identity) if has_ended(&identity) => {
                count_denial(&self.stats, Denial::Credentials);
                Progress::Refused(ReasonCode::NotAuthorized)
            }
            Verdict::Allow(identity) => {
                self.login_succeeded(io, connection, connect.username);
                Progress::Admitted(Some(Box::new(Admission {
                    identity,
                    connect: None,
                    data: None,
                })))
            }
            Verdict::Deny(denial) => {
                count_denial(&self.stats, denial);
                if denial == Denial::Credentials {
                    self.login_failed(io, connection, connect);
                }
                // Nothing says whether the user exists or an authenticator failed.
                let named = connect.username.is_some() || connect.password.is_some();
                Progress::Refused(if named {
                    ReasonCode::BadUserNameOrPassword
                } else {
                    ReasonCode::NotAuthorized
                })
            }
        }
    }

    /// Counts a success, and forgets failures before it.
    fn login_succeeded(&self, io: &LoopIo, connection: ConnectionId, username: Option<&str>) {
        self.stats.logins.add(1);
        let guard = &self.node.guard;
        guard.login_succeeded(ip_of(io, connection), username);
    }

    /// Counts a failure against the client's address, and its user there.
    fn login_failed(&self, io: &LoopIo, connection: ConnectionId, connect: &Connect<'_>) {
        // Who shows nothing guesses nothing.
        if connect.username.is_some() || connect.password.is_some() {
            let guard = &self.node.guard;
            guard.login_failed(ip_of(io, connection), connect.username, io.now_ms());
        }
    }

    /// Goes on with an exchange of authentication.
    fn step(
        &mut self,
        io: &mut LoopIo,
        connection: ConnectionId,
        method: &str,
        connect: Box<[u8]>,
        step: Step,
    ) -> Progress {
        match step {
            Step::Challenge(data, exchange) => {
                let mut bytes = Vec::new();
                encode_challenge(method, &data, &mut bytes);
                io.send_bytes(connection, &bytes);
                let login = Login::Challenged { exchange, connect };
                self.logins.insert(connection, login);
                Progress::Challenged
            }
            Step::Done(identity, data) => {
                self.login_succeeded(io, connection, identity.username.as_deref());
                Progress::Admitted(Some(Box::new(Admission {
                    identity,
                    connect: Some(connect),
                    data: Some(data.into()),
                })))
            }
            Step::Denied(denial) => {
                count_denial(&self.stats, denial);
                if denial == Denial::Credentials {
                    let guard = &self.node.guard;
                    guard.login_failed(ip_of(io, connection), None, io.now_ms());
                }
                // [MQTT-4.12.0-4]
                Progress::Refused(ReasonCode::NotAuthorized)
            }
        }
    }

    /// An AUTH before there is a session.
    pub(super) fn challenge_answered(
        &mut self,
        io: &mut LoopIo,
        connection: ConnectionId,
        frame: &[u8],
        login: Option<Login>,
    ) -> Progress {
        let (exchange, connect) = match login {
            Some(Login::Challenged { exchange, connect }) => (exchange, connect),
            Some(Login::Admitted(admission)) => return Progress::Admitted(Some(admission)),
            _ => return Progress::Refused(ReasonCode::ProtocolError),
        };
        let auth = match Packet::decode(frame, ProtocolVersion::V5) {
            Ok(Packet::Auth(auth)) => auth,
            Ok(_) => return Progress::Refused(ReasonCode::ProtocolError),
            Err(error) => return Progress::Refused(error.reason_code()),
        };
        let method = method_of(&connect);
        // [MQTT-4.12.0-3] [MQTT-4.12.0-5]
        if auth.reason != ReasonCode::ContinueAuthentication
            || auth.properties.authentication_method != method.as_deref()
        {
            return Progress::Refused(ReasonCode::ProtocolError);
        }
        let step = exchange.answer(auth.properties.authentication_data.unwrap_or_default());
        self.step(io, connection, &method.unwrap_or_default(), connect, step)
    }

    /// A client that was let in has its place in the loop.
    pub(super) fn logged_in(
        &mut self,
        io: &mut LoopIo,
        key: Key,
        method: Option<&str>,
        identity: Identity,
    ) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let before = client.login.replace(Box::new(LoggedIn {
            username: identity.username.clone(),
            expires_at: identity.expires_at,
            method: method.map(Box::from),
            exchange: None,
        }));
        let before = before.and_then(|login| login.expires_at);
        self.watch_expiry(io, key, before, identity.expires_at);
        self.grant(io, key, identity);
    }

    /// An AUTH of a client that is connected: it authenticates again.
    pub(super) fn authenticate_again(
        &mut self,
        io: &mut LoopIo,
        key: Key,
        auth: &Auth<'_>,
    ) -> Result<(), Violated> {
        let violated = |statement, what: &str| Violated {
            reason: ReasonCode::ProtocolError,
            statement,
            what: what.to_owned(),
        };
        let Some(client) = self.clients.get_mut(key) else {
            return Ok(());
        };
        let Some(login) = client.login.as_mut() else {
            return Err(violated(
                None,
                "AUTH by a client that has not authenticated",
            ));
        };
        let Some(method) = login
            .method
            .as_deref()
            .filter(|method| auth.properties.authentication_method == Some(*method))
        else {
            return Err(violated(
                Some("MQTT-4.12.1-1"),
                "AUTH with another authentication method than CONNECT",
            ));
        };
        let data = auth.properties.authentication_data.unwrap_or_default();
        let step = match (auth.reason, login.exchange.take()) {
            (ReasonCode::Reauthenticate, None) => {
                self.node.authentication.begin_exchange(method, data)
            }
            // [MQTT-4.12.0-3]
            (ReasonCode::ContinueAuthentication, Some(exchange)) => Some(exchange.answer(data)),
            _ => return Err(violated(None, "AUTH out of order")),
        };
        match step {
            Some(Step::Challenge(data, exchange)) => {
                let reason = ReasonCode::ContinueAuthentication;
                client.session.send_auth(reason, method, &data);
                login.exchange = Some(exchange);
            }
            // Its session, its will and its subscriptions are those of the user it was.
            Some(Step::Done(identity, data)) if identity.username == login.username => {
                client.session.send_auth(ReasonCode::Success, method, &data);
                self.stats.logins.add(1);
                let method = Box::<str>::from(method);
                self.logged_in(io, key, Some(&method), *identity);
            }
            denied => {
                if let Some(Step::Denied(denial)) = denied {
                    count_denial(&self.stats, denial);
                }
                tracing::info!(
                    client_id = client.session.client_id(),
                    "a client failed to authenticate again and is disconnected"
                );
                // [MQTT-4.12.1-2]
                self.kick(io, key, ReasonCode::NotAuthorized);
            }
        }
        Ok(())
    }
}

impl LoggedIn {
    /// When the client must be disconnected, in seconds since 1970-01-01 UTC.
    pub(super) fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }

    /// The user that the client is.
    pub(super) fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }
}

impl Admission {
    /// Who the client is.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Who the client is.
    pub(super) fn into_identity(self) -> Identity {
        *self.identity
    }
}

fn has_ended(identity: &Identity) -> bool {
    identity
        .expires_at
        .is_some_and(|at| at <= Clock::system_s())
}

fn count_denial(stats: &BrokerStats, denial: Denial) {
    match denial {
        Denial::Credentials => stats.logins_denied.add(1),
        Denial::Unavailable => stats.logins_failed.add(1),
    }
}

/// The user that a verified certificate names, of a client that nobody is asked about. What it says itself in
/// CONNECT is not confirmed.
fn certified(io: &LoopIo, connection: ConnectionId) -> Option<Box<Admission>> {
    let name = io.certificate_name(connection)?;
    Some(Box::new(Admission {
        identity: Box::new(Identity {
            username: Some(name.into()),
            ..Identity::default()
        }),
        connect: None,
        data: None,
    }))
}

/// The authentication method of a CONNECT packet.
fn method_of(connect: &[u8]) -> Option<Box<str>> {
    match Packet::decode(connect, ProtocolVersion::V5) {
        Ok(Packet::Connect(connect)) => connect.properties.authentication_method.map(Box::from),
        _ => None,
    }
}
