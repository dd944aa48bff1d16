//! Logins: what stands between a CONNECT and its session.
//!
//! A CONNECT that an authenticator has to judge stays unread while the chain is asked. The answer comes
//! as a loop message, the connection is resumed, and the same packet is offered again, now with its answer. In an
//! exchange of authentication (MQTT 5.0 §4.12) the CONNECT is kept while AUTH packets go to and fro.
//!
//! Invariants: nothing of a client is looked up or claimed before it is admitted; what an answer says
//! beyond "no" is in the log only. Who shows credentials is judged as an attempt of [`guard`], which is told the
//! verdict also if the connection is gone by then.

use authentication_api::{Credentials, Denial, Exchange, Identity, Secret, Step, Verdict};
use guard::{Attempt, NotNow, Shown};
use mqtt_proto::{Auth, Connect, Packet, ProtocolVersion, ReasonCode};
use mqtt_session::encode_challenge;
use net_api::{ConnectionId, Key};

use crate::clients::{LoopIo, LoopMessage, Timer};
use crate::connect::login_stage::{Admission, LoggedIn, Login, Progress, Stage};
use crate::connect::own_clients;
use crate::connect::refused::{Cause, Refused};
use crate::dispatch::{ClientLoop, Violated};
use crate::excerpt::excerpt;
use crate::rim::Rim;
use crate::stats::BrokerStats;

/// How soon a CONNECT that found too many logins under way is looked at again.
const RETRY_MS: u64 = 10;

/// How many of those that wait are looked at again at a time.
const RETRIED_AT_ONCE: usize = 64;

impl<R: Rim> ClientLoop<R> {
    /// Whether a CONNECT is let in, and as whom.
    pub(crate) fn login(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
        frame: &[u8],
        login: Login,
    ) -> Progress {
        let came_us = login.came_us;
        match login.stage {
            Stage::Admitted(admission) => Progress::Admitted(admission),
            Stage::Answered(verdict) => self.judged(connect, verdict),
            stage @ Stage::Asked => {
                self.logins.insert(connection, Login { came_us, stage });
                Progress::Waits
            }
            // [MQTT-3.1.0-2]
            Stage::Challenged { .. } => protocol_error(),
            Stage::New if own_clients::is_outlet(connect.client_id) => {
                Progress::Admitted(Some(own_clients::admission()))
            }
            Stage::New | Stage::Postponed => match connect.properties.authentication_method {
                Some(method) => {
                    let data = connect.properties.authentication_data.unwrap_or_default();
                    let rim = &self.base.node.rim;
                    let step = rim.begin_exchange(connect.client_id, method, data);
                    // [MQTT-4.12.0-1]
                    let Some(step) = step else {
                        return Progress::Refused(Refused {
                            code: ReasonCode::BadAuthenticationMethod,
                            cause: Cause::AuthenticationMethod,
                        });
                    };
                    if matches!(&step, Step::Denied(denial) if denial.is_guess()) {
                        // It named nobody.
                        let shown = Shown {
                            username: None,
                            password: None,
                        };
                        if let Ok(attempt) = self.begin_login(io, connection, shown) {
                            attempt.failed(io.now_ms());
                        }
                    }
                    self.step(io, (connection, came_us), method, frame.into(), step)
                }
                None if self.may_be_anonymous(io, connection, connect) => {
                    Progress::Admitted(certified(io, connection))
                }
                None if !self.base.node.rim.has_authenticators() => {
                    self.base.node.explain_anonymous_refusal();
                    if shows_credentials(connect) {
                        match self.begin_login(io, connection, shown_by(connect)) {
                            Ok(attempt) => attempt.failed(io.now_ms()),
                            Err(NotNow::Later) => {
                                let stage = Stage::Postponed;
                                return self.wait_for_login(
                                    io,
                                    connection,
                                    Login { came_us, stage },
                                );
                            }
                            Err(NotNow::Refused(refusal)) => {
                                return Progress::Refused(Refused::by_guard(refusal));
                            }
                        }
                    }
                    Progress::Refused(Refused {
                        code: ReasonCode::NotAuthorized,
                        cause: Cause::NoAuthenticators,
                    })
                }
                None => self.ask_chain(io, connection, came_us, connect),
            },
        }
    }

    /// Whether a client is let in without being asked who it is.
    fn may_be_anonymous(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
    ) -> bool {
        let allowed = self.base.settings.allow_anonymous;
        if !self.base.node.rim.has_authenticators() {
            return allowed.unwrap_or_else(|| self.base.is_local(io, connection));
        }
        allowed == Some(true) && connect.username.is_none() && connect.password.is_none()
    }

    fn ask_chain(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        came_us: u64,
        connect: &Connect<'_>,
    ) -> Progress {
        let postponed = Login {
            came_us,
            stage: Stage::Postponed,
        };
        if self.base.node.rim.has_too_many_logins() {
            return self.wait_for_login(io, connection, postponed);
        }
        // Who shows nothing guesses nothing.
        let attempt = match shows_credentials(connect)
            .then(|| self.begin_login(io, connection, shown_by(connect)))
            .transpose()
        {
            Ok(attempt) => attempt,
            Err(NotNow::Later) => return self.wait_for_login(io, connection, postponed),
            Err(NotNow::Refused(refusal)) => {
                return Progress::Refused(Refused::by_guard(refusal));
            }
        };
        let credentials = Credentials {
            client_id: connect.client_id.into(),
            username: connect.username.map(Box::from),
            password: connect.password.map(Secret::new),
            address: self
                .base
                .judged_address(io, connection)
                .map(|ip| ip.to_canonical()),
            certificate_name: io.handshakes(connection).certificate_name.map(Box::from),
        };
        let stage = Stage::Asked;
        self.logins.insert(connection, Login { came_us, stage });
        self.base
            .node
            .rim
            .authenticate(self.base.index, credentials, move |verdict, now_ms| {
                if let Some(attempt) = attempt {
                    settle(attempt, &verdict, now_ms);
                }
                LoopMessage::Verdict(connection, verdict)
            });
        Progress::Waits
    }

    /// Begins to judge credentials.
    fn begin_login(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        shown: Shown<'_>,
    ) -> Result<Attempt, NotNow> {
        let source = self.base.source_of(io, connection);
        let guard = &self.base.node.guard;
        guard.begin_login(source, shown, io.now_ms())
    }

    /// A packet is offered again when others have been judged. `login`: how far it has come.
    fn wait_for_login(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        login: Login,
    ) -> Progress {
        self.logins.insert(connection, login);
        if self.waiting_for_login.is_empty() {
            io.arm(io.now_ms() + RETRY_MS, Timer::Login.to_bits());
        }
        self.waiting_for_login.push_back(connection);
        Progress::Waits
    }

    /// The chain has answered.
    pub(crate) fn login_answered(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        verdict: Verdict,
    ) {
        if let Some(login) = self.logins.get_mut(&connection) {
            login.stage = Stage::Answered(verdict);
            io.resume(connection);
        }
    }

    /// The logins under way may be fewer.
    pub(crate) fn log_in_later(&mut self, io: &mut impl LoopIo) {
        let waiting = self.waiting_for_login.len();
        let retried = match self.base.node.rim.has_too_many_logins() {
            true => 0,
            false => waiting.min(RETRIED_AT_ONCE),
        };
        for connection in self.waiting_for_login.drain(..retried) {
            io.resume(connection);
        }
        if retried < waiting {
            io.arm(io.now_ms() + RETRY_MS, Timer::Login.to_bits());
        }
    }

    fn judged(&self, connect: &Connect<'_>, verdict: Verdict) -> Progress {
        match verdict {
            // An answer that an authenticator remembers may be older than its end.
            Verdict::Allow(identity) if has_ended(&identity, self.base.node.rim.system_s()) => {
                count_denial(&self.base.stats, Denial::Ended);
                Progress::Refused(Refused {
                    code: ReasonCode::NotAuthorized,
                    cause: Cause::Denied(Denial::Ended),
                })
            }
            Verdict::Allow(identity) => {
                self.base.stats.logins.add(1);
                Progress::Admitted(Some(Box::new(Admission {
                    identity,
                    connect: None,
                    data: None,
                })))
            }
            Verdict::Deny(denial) => {
                count_denial(&self.base.stats, denial);
                // Nothing says whether the user exists or an authenticator failed.
                let code = match shows_credentials(connect) {
                    true => ReasonCode::BadUserNameOrPassword,
                    false => ReasonCode::NotAuthorized,
                };
                let cause = match denial {
                    Denial::UnknownUser if !shows_credentials(connect) => Cause::NoCredentials,
                    denial => Cause::Denied(denial),
                };
                Progress::Refused(Refused { code, cause })
            }
        }
    }

    /// Goes on with an exchange of authentication.
    fn step(
        &mut self,
        io: &mut impl LoopIo,
        (connection, came_us): (ConnectionId, u64),
        method: &str,
        connect: Box<[u8]>,
        step: Step,
    ) -> Progress {
        match step {
            Step::Challenge(data, exchange) => {
                let mut bytes = Vec::new();
                encode_challenge(method, &data, &mut bytes);
                io.send_bytes(connection, &bytes);
                let stage = Stage::Challenged { exchange, connect };
                self.logins.insert(connection, Login { came_us, stage });
                Progress::Challenged
            }
            Step::Done(identity, data) => {
                self.base.stats.logins.add(1);
                Progress::Admitted(Some(Box::new(Admission {
                    identity,
                    connect: Some(connect),
                    data: Some(data.into()),
                })))
            }
            Step::Denied(denial) => {
                count_denial(&self.base.stats, denial);
                // [MQTT-4.12.0-4]
                Progress::Refused(Refused {
                    code: ReasonCode::NotAuthorized,
                    cause: Cause::Denied(denial),
                })
            }
        }
    }

    /// An AUTH before there is a session.
    pub(crate) fn challenge_answered(
        &mut self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        frame: &[u8],
        login: Login,
    ) -> Progress {
        let came_us = login.came_us;
        let (exchange, connect) = match login.stage {
            Stage::Challenged { exchange, connect } => (exchange, connect),
            Stage::Admitted(admission) => return Progress::Admitted(admission),
            _ => return protocol_error(),
        };
        let auth = match Packet::decode(frame, ProtocolVersion::V5) {
            Ok(Packet::Auth(auth)) => auth,
            Ok(_) => return protocol_error(),
            Err(error) => {
                return Progress::Refused(Refused::by_protocol(error.reason_code()));
            }
        };
        let method = method_of(&connect);
        // [MQTT-4.12.0-3] [MQTT-4.12.0-5]
        if auth.reason != ReasonCode::ContinueAuthentication
            || auth.properties.authentication_method != method.as_deref()
        {
            return protocol_error();
        }
        // Only who answers guesses; so exchanges may be begun at any time, and count here.
        let attempt = match self.begin_login(io, connection, proven_by(exchange.as_ref())) {
            Ok(attempt) => attempt,
            Err(NotNow::Later) => {
                let stage = Stage::Challenged { exchange, connect };
                return self.wait_for_login(io, connection, Login { came_us, stage });
            }
            Err(NotNow::Refused(refusal)) => {
                return Progress::Refused(Refused::by_guard(refusal));
            }
        };
        let step = exchange.answer(auth.properties.authentication_data.unwrap_or_default());
        settle_step(attempt, &step, io.now_ms());
        let method = method.unwrap_or_default();
        self.step(io, (connection, came_us), &method, connect, step)
    }

    /// A client that was let in has its place in the loop.
    pub(crate) fn logged_in(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        method: Option<&str>,
        identity: Identity,
    ) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let before = client.login.replace(Box::new(LoggedIn {
            username: identity.username.clone(),
            source: identity.source,
            expires_at: identity.expires_at,
            method: method.map(Box::from),
            exchange: None,
        }));
        let before = before.and_then(|login| login.expires_at);
        if self.expiries.replace(key, before, identity.expires_at) {
            // Not now: whoever logs a client in goes on with it.
            io.arm(io.now_ms(), Timer::LoginExpiry.to_bits());
        }
        let (parts, mut turn) = self.turn(io);
        let database = identity.database.clone();
        parts
            .rejudge
            .handle_login(turn.base, turn.io, key, database);
        parts.rights.grant(&mut turn, key, identity);
    }

    /// An AUTH of a client that is connected: it authenticates again.
    pub(crate) fn authenticate_again(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        auth: &Auth<'_>,
    ) -> Result<(), Violated> {
        let violated = |statement, what: &str| Violated {
            reason: ReasonCode::ProtocolError,
            statement,
            what: what.to_owned(),
        };
        let source = self
            .clients
            .get(key)
            .and_then(|client| self.base.source_of(io, client.connection?));
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
        // [MQTT-4.12.1-2]
        let mut refusal = ReasonCode::NotAuthorized;
        // With another user than before.
        let mut cause = Cause::SessionOfAnotherUser;
        let step = match (auth.reason, login.exchange.take()) {
            (ReasonCode::Reauthenticate, None) => {
                let client_id = client.session.client_id();
                self.base.node.rim.begin_exchange(client_id, method, data)
            }
            // [MQTT-4.12.0-3]
            (ReasonCode::ContinueAuthentication, Some(exchange)) => {
                let guard = &self.base.node.guard;
                match guard.begin_login(source, proven_by(exchange.as_ref()), io.now_ms()) {
                    Ok(attempt) => {
                        let step = exchange.answer(data);
                        settle_step(attempt, &step, io.now_ms());
                        Some(step)
                    }
                    // It has a session to lose: it is not made to wait, but told that its answer was not looked at.
                    Err(_) => {
                        refusal = ReasonCode::QuotaExceeded;
                        cause = Cause::Guard(guard::Refusal::FailedLogins);
                        None
                    }
                }
            }
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
                self.base.stats.logins.add(1);
                let method = Box::<str>::from(method);
                self.logged_in(io, key, Some(&method), *identity);
            }
            denied => {
                if let Some(Step::Denied(denial)) = denied {
                    count_denial(&self.base.stats, denial);
                    cause = Cause::Denied(denial);
                }
                if let Some(connection) = client.connection {
                    let who = client.who();
                    self.base.tell_refused(io, connection, who, cause);
                }
                if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
                    tracing::info!(
                        client_id = &*excerpt(client.session.client_id()),
                        left_out,
                        "a client failed to authenticate again and is disconnected"
                    );
                }
                self.base.end(key, refusal);
            }
        }
        Ok(())
    }
}

fn has_ended(identity: &Identity, system_s: u64) -> bool {
    identity.expires_at.is_some_and(|at| at <= system_s)
}

/// Whether a CONNECT shows something that could be guessed.
fn shows_credentials(connect: &Connect<'_>) -> bool {
    connect.username.is_some() || connect.password.is_some()
}

/// What a CONNECT shows that could be guessed.
fn shown_by<'a>(connect: &Connect<'a>) -> Shown<'a> {
    Shown {
        username: connect.username,
        password: Some(connect.password.unwrap_or_default()),
    }
}

/// What an exchange shows: a proof, which is another one each time.
fn proven_by(exchange: &dyn Exchange) -> Shown<'_> {
    Shown {
        username: Some(exchange.username()),
        password: None,
    }
}

/// Tells the guard what an attempt has come to.
fn settle(attempt: Attempt, verdict: &Verdict, now_ms: u64) {
    match verdict {
        Verdict::Allow(_) => attempt.succeeded(),
        Verdict::Deny(denial) => settle_denied(attempt, *denial, now_ms),
    }
}

/// As [`settle`], of an answer to a challenge.
fn settle_step(attempt: Attempt, step: &Step, now_ms: u64) {
    match step {
        Step::Done(..) => attempt.succeeded(),
        Step::Denied(denial) => settle_denied(attempt, *denial, now_ms),
        Step::Challenge(..) => {}
    }
}

fn settle_denied(attempt: Attempt, denial: Denial, now_ms: u64) {
    if denial.is_guess() {
        attempt.failed(now_ms);
    } else if denial != Denial::Unavailable {
        attempt.ended(now_ms);
    }
}

fn protocol_error() -> Progress {
    Progress::Refused(Refused::by_protocol(ReasonCode::ProtocolError))
}

fn count_denial(stats: &BrokerStats, denial: Denial) {
    match denial {
        Denial::Unavailable => stats.logins_failed.add(1),
        _ => stats.logins_denied.add(1),
    }
}

/// The user that a verified certificate names, of a client that nobody is asked about. What it says itself in
/// CONNECT is not confirmed.
fn certified(io: &impl LoopIo, connection: ConnectionId) -> Option<Box<Admission>> {
    let name = io.handshakes(connection).certificate_name?;
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
