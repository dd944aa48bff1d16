//! Whose a request is: by a key, by the session of its cookie at whichever node that began, or by nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, Method, header};
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use super::authorize::{Caller, Rights, Who};
use super::sessions::{LoginSession, SessionToken, TokenHash};
use super::standing::PersonStanding;
use crate::backend::{Broker, SessionQuestion};
use crate::problem::{Kind, Problem};
use crate::trail::Trail;

/// The cookie of a session.
pub(crate) const COOKIE: &str = "hmq_session";

/// What a request that changes something shows beside the cookie.
const CSRF: &str = "x-csrf-token";

/// How long the answer of another node counts.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Answers that are remembered.
const MOST_REMEMBERED: usize = 1_024;

/// How long another node has for its answer.
const BUDGET: Duration = Duration::from_secs(1);

/// Questions to other nodes at once: strangers can show any token.
const QUESTIONS: usize = 8;

/// Decides whose requests are.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<State>);

#[derive(Debug)]
struct State {
    rights: Arc<Rights>,
    broker: Arc<dyn Broker>,
    trail: Arc<dyn Trail>,
    /// What other nodes have said of sessions. The roles in it count for nothing.
    remembered: Mutex<HashMap<TokenHash, Said>>,
    questions: Semaphore,
}

#[derive(Clone, Debug)]
struct Said {
    at: Instant,
    session: Option<LoginSession>,
    /// What this node knew of the person then: if it knows something else by now, the other node is asked again.
    standing: Option<PersonStanding>,
}

/// A session, and what its user may do here.
type Known = (LoginSession, PersonStanding);

impl Gate {
    pub(crate) fn new(rights: Arc<Rights>, broker: Arc<dyn Broker>, trail: Arc<dyn Trail>) -> Self {
        Self(Arc::new(State {
            rights,
            broker,
            trail,
            remembered: Mutex::default(),
            questions: Semaphore::new(QUESTIONS),
        }))
    }

    pub(crate) fn broker(&self) -> &Arc<dyn Broker> {
        &self.0.broker
    }

    pub(crate) fn trail(&self) -> &Arc<dyn Trail> {
        &self.0.trail
    }

    pub(crate) fn rights(&self) -> &Arc<Rights> {
        &self.0.rights
    }

    /// Whose a request is that is made now.
    pub(crate) async fn caller(
        &self,
        method: &Method,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, Problem> {
        let Some((session, standing)) = self.session(headers, true).await? else {
            return self.0.rights.caller(headers, peer);
        };
        if !method.is_safe() {
            let shown = headers.get(CSRF).map_or(&b""[..], |shown| shown.as_bytes());
            if !bool::from(shown.ct_eq(session.csrf_token.as_bytes())) {
                let why = "with a session, a request that is no GET needs the header `X-CSRF-Token` with the token of /api/v1/me";
                return Err(Problem::new(Kind::Csrf, why));
            }
        }
        Ok(of_session(session, standing, peer))
    }

    /// Whether a request that was made before could be made now.
    pub(crate) async fn check(
        &self,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, Problem> {
        match self.session(headers, false).await? {
            Some((session, standing)) => Ok(of_session(session, standing, peer)),
            None => self.0.rights.caller(headers, peer),
        }
    }

    /// Ends the session of a request, wherever it began.
    pub(crate) async fn end_session(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match token(headers) {
            Some(token) => self.end_session_of(token).await,
            None => Ok(()),
        }
    }

    async fn end_session_of(&self, token: SessionToken) -> Result<(), Problem> {
        self.0.rights.sessions().end(&token.hash);
        let question = SessionQuestion::End {
            hash: token.hash.clone(),
        };
        let asked = self.0.broker.login_session(token.node, question, BUDGET);
        asked.await?;
        self.remember(token.hash, None, Instant::now());
        Ok(())
    }

    /// A key that is shown counts more than a cookie.
    async fn session(&self, headers: &HeaderMap, is_use: bool) -> Result<Option<Known>, Problem> {
        let shows_key = headers.contains_key(header::AUTHORIZATION);
        match token(headers).filter(|_| !shows_key) {
            Some(token) => self.session_of(token, is_use).await,
            None => Ok(None),
        }
    }

    async fn session_of(
        &self,
        token: SessionToken,
        is_use: bool,
    ) -> Result<Option<Known>, Problem> {
        if let Some(session) = self.0.rights.session(&token.hash, is_use) {
            return Ok(self.known_here(session));
        }
        let now = Instant::now();
        let remembered = self.0.remembered.lock().get(&token.hash).cloned();
        if let Some(said) = remembered
            && now.duration_since(said.at) < REMEMBERED
        {
            let known = said.session.and_then(|session| self.known_here(session));
            if known.as_ref().map(|(_, standing)| *standing) == said.standing {
                return Ok(known);
            }
        }
        let Ok(_turn) = self.0.questions.try_acquire() else {
            let why =
                "this node already looks up as many sessions of other nodes as it does at once";
            return Err(Problem::new(Kind::TooManyRequests, why).with("limit", "logins"));
        };
        let question = SessionQuestion::Find {
            hash: token.hash.clone(),
            is_use,
        };
        let asked = self.0.broker.login_session(token.node, question, BUDGET);
        let said = asked.await?;
        self.remember(token.hash, said.clone(), now);
        Ok(said.and_then(|session| self.known_here(session)))
    }

    /// A session with the role that its user has at this node: a token names the node that is asked, and what a person may do here is
    /// this node's to say. `None`: there is no such user here.
    fn known_here(&self, session: LoginSession) -> Option<Known> {
        let standing = self.0.rights.person(&session.user)?;
        let role = standing.role;
        Some((LoginSession { role, ..session }, standing))
    }

    /// Remembers what another node has said, if there is a place.
    fn remember(&self, hash: TokenHash, session: Option<LoginSession>, now: Instant) {
        let person = session.as_ref();
        let standing = person.and_then(|session| self.0.rights.person(&session.user));
        let mut remembered = self.0.remembered.lock();
        if remembered.len() >= MOST_REMEMBERED {
            remembered.retain(|_, said| now.duration_since(said.at) < REMEMBERED);
        }
        if remembered.len() < MOST_REMEMBERED || remembered.contains_key(&hash) {
            let said = Said {
                at: now,
                session,
                standing,
            };
            remembered.insert(hash, said);
        }
    }
}

fn of_session(session: LoginSession, standing: PersonStanding, peer: Option<SocketAddr>) -> Caller {
    Caller {
        who: Who::User(session),
        role: standing.role,
        audits: standing.audits,
        must_change: standing.must_change,
        source: standing.source,
        peer,
    }
}

fn token(headers: &HeaderMap) -> Option<SessionToken> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let mut cookies = cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'));
    cookies.find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE)
            .then(|| SessionToken::parse(value))
            .flatten()
    })
}
