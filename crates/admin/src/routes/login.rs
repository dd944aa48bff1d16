//! `/login`, `/me`, `/logout`: sessions of people who use a browser.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use super::input::Body;
use crate::api::{Credentials, Me};
use crate::api_state::LoginTurn;
use crate::backend::{Broker, LoginAttempt};
use crate::connection::Connection;
use crate::problem::{Kind, Problem};
use crate::rights::{COOKIE, Caller, Gate, Who};
use crate::serve::Peer;

/// Begins a session: the cookie `hmq_session` stands for the user in later requests, at each node of the cluster, for 30 min
/// without a request and 12 h at most. A session that the request had ends.
#[utoipa::path(post, path = "/api/v1/login", operation_id = "log_in", tag = "login", request_body = Credentials, responses((status = 200, description = "The user and the role; the cookie is set", body = Me)))]
pub(super) async fn login(
    turn: LoginTurn,
    State(broker): State<Arc<dyn Broker>>,
    Extension(gate): Extension<Gate>,
    peer: Option<Extension<Peer>>,
    connection: Option<Extension<Connection>>,
    headers: HeaderMap,
    Body(credentials): Body<Credentials>,
) -> Result<Response, Problem> {
    let Credentials { user, password } = credentials;
    let attempt = LoginAttempt {
        user: user.clone(),
        password: password.into(),
        peer: peer.map(|peer| peer.0.0),
    };
    let logging_in = broker.log_in(attempt);
    // Whoever leaves before the answer has failed nevertheless, and keeps the place until his password is checked.
    let checked = tokio::spawn(async move {
        let role = logging_in.await;
        drop(turn);
        role
    });
    let role = checked.await.map_err(|error| {
        tracing::error!(%error, "a login was not checked");
        Problem::new(Kind::Internal, "the login could not be checked")
    })??;
    gate.end_session(&headers).await.unwrap_or_else(|problem| {
        tracing::debug!(%problem, "the session before a login is not ended, and ends by itself");
    });
    let node = broker.cluster().node;
    let sessions = gate.rights().sessions();
    let begun = sessions.begin(node, &user, role, Instant::now());
    // Behind a proxy that speaks HTTPS the cookie is for HTTPS as well.
    let is_secure = connection.is_some_and(|connection| connection.is_secure())
        || headers
            .get("x-forwarded-proto")
            .is_some_and(|proto| proto == "https");
    let cookie = cookie(&begun.token, is_secure);
    Ok((
        [(header::SET_COOKIE, cookie)],
        Json(me(Who::User(begun.session), role)),
    )
        .into_response())
}

/// Whose the request is and what it may do.
#[utoipa::path(get, path = "/api/v1/me", operation_id = "get_me", tag = "login", responses((status = 200, description = "The user or the key, and the role", body = Me)))]
pub(super) async fn who(Extension(caller): Extension<Caller>) -> Json<Me> {
    Json(me(caller.who, caller.role))
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

/// For the folder that the API stands in, also behind a proxy with a prefix.
fn cookie(token: &str, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={token}; HttpOnly; SameSite=Strict{secure}");
    let mut cookie = HeaderValue::try_from(text).expect("a token is letters, digits, - and _");
    cookie.set_sensitive(true);
    cookie
}

fn me(who: Who, role: crate::rights::Role) -> Me {
    let (user, key, session) = match who {
        Who::Anonymous => (None, None, None),
        Who::Key { name, .. } => (None, Some(name), None),
        Who::Token => (None, Some("token-file".to_owned()), None),
        Who::User(session) => (
            Some(session.user),
            None,
            Some((session.csrf_token, session.ends_at)),
        ),
    };
    let (csrf_token, ends_at) = session.unzip();
    Me {
        user,
        key,
        role,
        csrf_token,
        ends_at,
    }
}
