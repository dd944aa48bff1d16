//! `/login`, `/me`, `/logout`: sessions of people who use a browser, and the first administrator.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRef, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use control::{By, Change, Expect, Means, Person, Put, Reason, Refused, Revision};
use zeroize::Zeroizing;

use super::access::{self, hashed, long_enough};
use super::input::Body;
use crate::access::Access;
use crate::api::{Credentials, FirstAdministrator, LoginMethods, Me, OwnPassword};
use crate::api_state::{Api, LoginTurn};
use crate::backend::{Broker, LoginAttempt};
use crate::connection::Connection;
use crate::problem::{Kind, Problem};
use crate::rights::{COOKIE, Caller, Gate, PersonStanding, Role, Source, Who, address};
use crate::serve::Peer;

/// Begins a session: the cookie `hmq_session` stands for the user in later requests, at each node of the cluster, for 30 min
/// without a request and 12 h at most. A session that the request had ends.
#[utoipa::path(post, path = "/api/v1/login", operation_id = "log_in", tag = "login", request_body = Credentials, responses((status = 200, description = "The user and the role; the cookie is set", body = Me)))]
pub(super) async fn login(
    turn: LoginTurn,
    place: Place,
    Body(credentials): Body<Credentials>,
) -> Result<Response, Problem> {
    let Credentials { user, password } = credentials;
    // As of before the check: a session does not outlive a password that is changed meanwhile.
    let standing = place.gate.rights().person(&user);
    let attempt = LoginAttempt {
        user: user.clone(),
        password: password.into(),
        peer: place.peer,
    };
    let logging_in = place.broker.log_in(attempt);
    // Whoever leaves before the answer has failed nevertheless, and keeps the place until his password is checked.
    let checked = tokio::spawn(async move {
        let checked = logging_in.await;
        drop(turn);
        checked
    });
    checked.await.map_err(|error| {
        tracing::error!(%error, "a login was not checked");
        Problem::new(Kind::Internal, "the login could not be checked")
    })??;
    let standing = standing.ok_or_else(|| {
        let why = "the person was added at this moment: log in again";
        Problem::new(Kind::LoginFailed, why)
    })?;
    place.begin(&user, standing).await
}

/// Where somebody logs in, and how the request has come.
pub(super) struct Place {
    broker: Arc<dyn Broker>,
    access: Arc<dyn Access>,
    gate: Gate,
    peer: Option<SocketAddr>,
    is_secure: bool,
    headers: HeaderMap,
}

impl FromRequestParts<Api> for Place {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        let gate = parts.extensions.get::<Gate>().cloned();
        let connection = parts.extensions.get::<Connection>();
        // Behind a proxy that speaks HTTPS the cookie is for HTTPS as well.
        let is_secure = connection.is_some_and(Connection::is_secure)
            || parts
                .headers
                .get("x-forwarded-proto")
                .is_some_and(|proto| proto == "https");
        Ok(Self {
            broker: FromRef::from_ref(api),
            access: api.access(),
            gate: gate.expect("the gate is beside each path of logins"),
            peer: parts.extensions.get::<Peer>().map(|peer| peer.0),
            is_secure,
            headers: parts.headers.clone(),
        })
    }
}

impl Place {
    /// Begins a session, and ends the one that the request had.
    async fn begin(&self, user: &str, standing: PersonStanding) -> Result<Response, Problem> {
        let Self { gate, broker, .. } = self;
        gate.end_session(&self.headers)
            .await
            .unwrap_or_else(|problem| {
                tracing::debug!(%problem, "the session before a login is not ended, and ends by itself");
            });
        let node = broker.cluster().node;
        let sessions = gate.rights().sessions();
        let begun = sessions.begin(node, user, standing, Instant::now());
        let cookie = cookie(&begun.token, self.is_secure);
        let me = me(&Caller {
            who: Who::User(begun.session),
            role: standing.role,
            audits: standing.audits,
            must_change: standing.must_change,
            source: standing.source,
            peer: None,
        });
        Ok(([(header::SET_COOKIE, cookie)], Json(me)).into_response())
    }
}

/// Whose the request is and what it may do.
#[utoipa::path(get, path = "/api/v1/me", operation_id = "get_me", tag = "login", responses((status = 200, description = "The user or the key, and the role", body = Me)))]
pub(super) async fn who(Extension(caller): Extension<Caller>) -> Json<Me> {
    Json(me(&caller))
}

/// Ends the session of the request.
#[utoipa::path(post, path = "/api/v1/logout", operation_id = "log_out", tag = "login", responses((status = 204, description = "Without a session")))]
pub(super) async fn logout(
    Extension(gate): Extension<Gate>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    gate.end_session(&headers).await?;
    let gone = HeaderValue::from_static("hmq_session=; Max-Age=0; HttpOnly; SameSite=Strict");
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, gone)]).into_response())
}

/// For the folder that the API stands in, also behind a proxy with a prefix: browsers keep a cookie for the folder of the path that sets it, so such
/// a path has no folder below `/api/v1`.
fn cookie(token: &str, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={token}; HttpOnly; SameSite=Strict{secure}");
    let mut cookie = HeaderValue::try_from(text).expect("a token is letters, digits, - and _");
    cookie.set_sensitive(true);
    cookie
}

/// How somebody can come in at this node.
#[utoipa::path(get, path = "/api/v1/login/methods", operation_id = "get_login_methods", tag = "login", responses((status = 200, description = "How", body = LoginMethods)))]
pub(super) async fn methods(
    State(access): State<Arc<dyn Access>>,
    Extension(gate): Extension<Gate>,
) -> Json<LoginMethods> {
    let rights = gate.rights();
    Json(LoginMethods {
        password: rights.people().is_some() || !access.view().people().is_empty(),
        first: rights.is_first(),
    })
}

/// Makes the first administrator of a cluster where nobody can change anything yet, and begins a session. The code is in the log of the asked node
/// since its start, and good for nothing afterwards.
#[utoipa::path(post, path = "/api/v1/login-first", operation_id = "make_first_administrator", tag = "login", request_body = FirstAdministrator, responses((status = 200, description = "The user and the role; the session is the cookie `hmq_session`", body = Me)))]
pub(super) async fn first(
    _turn: LoginTurn,
    place: Place,
    Body(asked): Body<FirstAdministrator>,
) -> Result<Response, Problem> {
    let FirstAdministrator {
        code,
        user,
        password,
    } = asked;
    let (code, password) = (Zeroizing::new(code), Zeroizing::new(password));
    let Place {
        access, gate, peer, ..
    } = &place;
    let peer = *peer;
    if !gate.rights().is_first_code(&code) {
        let why = match gate.rights().is_first() {
            true => "this is not the code that the log of this node shows",
            false => {
                "somebody can change everything already, or this node does not know yet: the code is good for nothing"
            }
        };
        // Strangers may try as often as they like.
        tracing::debug!(
            peer = peer.map(tracing::field::display),
            "a code for the first administrator was refused"
        );
        return Err(Problem::new(Kind::LoginFailed, why));
    }
    long_enough("password", &password)?;
    let hash = hashed(&**access, password).await?;
    let person = Person {
        role: control::Role::Administrator,
        audits: true,
        enabled: true,
        hash: Some(hash),
        must_change: false,
        note: "".into(),
        logins_since: Revision(0),
    };
    let by = By {
        means: Means::FirstCode,
        name: user.as_str().into(),
        address: peer.map(address),
        node: access.node(),
    };
    let change = Change {
        expect: Expect::New,
        put: Put::Person(user.as_str().into(), Some(Box::new(person))),
    };
    change
        .check()
        .map_err(|invalid| refused(&Reason::Invalid(invalid)))?;
    let made = access.change(by, vec![change]).await;
    made.map_err(|error| access::failed_change(error, |Refused { why, .. }| refused(&why)))?;
    let standing = gate.rights().person(&user).ok_or_else(|| {
        let why = "the first administrator is made, and this node does not have it yet: log in in a moment";
        Problem::new(Kind::NotReady, why)
    })?;
    tracing::info!(
        user = user.as_str(),
        peer = peer.map(tracing::field::display),
        "the first administrator is made"
    );
    place.begin(&user, standing).await
}

fn refused(why: &Reason) -> Problem {
    match why {
        Reason::Invalid(invalid) => {
            let problem = Problem::new(Kind::InvalidBody, format!("`user`: {}", invalid.what));
            problem.with("pointer", "/user")
        }
        _ => {
            let why =
                "somebody can change everything already, or the name is taken: log in with it";
            Problem::new(Kind::Conflict, why).with("reason", "not_first")
        }
    }
}

/// Gives who has logged in another password, and begins another session: all others of the person end. Wrong old passwords count as failed logins.
#[utoipa::path(post, path = "/api/v1/own-password", operation_id = "set_own_password", tag = "login", request_body = OwnPassword, responses((status = 200, description = "The user and the role; the session is the cookie `hmq_session`", body = Me)))]
pub(super) async fn password(
    turn: LoginTurn,
    place: Place,
    Extension(caller): Extension<Caller>,
    Body(OwnPassword { old, new }): Body<OwnPassword>,
) -> Result<Response, Problem> {
    let (old, new) = (Zeroizing::new(old), Zeroizing::new(new));
    let Place {
        broker,
        access,
        gate,
        ..
    } = &place;
    let not_own = |why: &str| Problem::new(Kind::Conflict, why).with("reason", "not_own");
    let user = match (&caller.who, caller.source) {
        (Who::User(session), Source::Store) => session.user.clone(),
        (Who::User(_), Source::File) => {
            return Err(not_own(
                "the password is in http.userFile: `heraldmq passwd` changes it there",
            ));
        }
        _ => return Err(not_own("only a person who has logged in has a password")),
    };
    long_enough("new", &new)?;
    if old == new {
        let problem = Problem::new(
            Kind::InvalidBody,
            "`new` is to be another password than `old`",
        );
        return Err(problem.with("pointer", "/new"));
    }
    let gone = || Problem::new(Kind::NotFound, "the person was removed");
    let before = access.view().person(&user).ok_or_else(gone)?;
    let attempt = LoginAttempt {
        user: user.clone(),
        password: old,
        peer: caller.peer,
    };
    broker.log_in(attempt).await?;
    drop(turn);
    let hash = hashed(&**access, new).await?;
    let person = Person {
        hash: Some(hash),
        must_change: false,
        ..before.record.clone()
    };
    let change = Change {
        expect: Expect::Revision(before.revision),
        put: Put::Person(user.as_str().into(), Some(Box::new(person))),
    };
    let by = caller.by(access.node());
    let made = access.change(by, vec![change]).await;
    made.map_err(|error| {
        access::failed_change(error, |_| {
            let why = "the person was changed meanwhile: log in again";
            Problem::new(Kind::Conflict, why).with("reason", "changed_meanwhile")
        })
    })?;
    let standing = gate.rights().person(&user).ok_or_else(gone)?;
    place.begin(&user, standing).await
}

fn me(caller: &Caller) -> Me {
    let (user, key, session) = match &caller.who {
        Who::Anonymous => (None, None, None),
        Who::Key { name, .. } => (None, Some(name.clone()), None),
        Who::Token => (None, Some("token-file".to_owned()), None),
        Who::User(session) => (
            Some(session.user.clone()),
            None,
            Some((session.csrf_token.clone(), session.ends_at.clone())),
        ),
    };
    let (csrf_token, ends_at) = session.unzip();
    Me {
        user,
        key,
        role: caller.role,
        audits: caller.audits || caller.role == Role::Administrator,
        must_change: caller.must_change,
        csrf_token,
        ends_at,
    }
}
