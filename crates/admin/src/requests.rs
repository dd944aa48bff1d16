//! What all requests have: an identifier, a time, and one form of refusal.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::connection::Connection;
use crate::places::{Work, is_probe};
use crate::problem::{Kind, Problem};
use crate::serve::REQUEST_TIME;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The identifier of a request, for its answer and for the log.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

impl RequestId {
    /// The next one: no two of a process are equal, and strangers cannot tell how many there were.
    fn next() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{:016x}", SEED.hash_one(number)))
    }
}

/// Reads the body of a request that changes something or asks with a body, before it takes a turn: the time that a body needs is
/// that of its connection alone, which may be closed for another one meanwhile.
///
/// The state gives the longest body in bytes of a path.
pub(crate) async fn read_body(
    State(longest): State<fn(&str) -> usize>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(next.run(request).await);
    }
    let connection = request.extensions().get::<Connection>().cloned();
    let longest = longest(request.uri().path());
    let (parts, body) = request.into_parts();
    if let Some(connection) = &connection {
        connection.waits();
    }
    let body = to_bytes(body, longest).await.map_err(|error| {
        tracing::debug!(%error, "the body of a request was not read");
        Problem::new(
            Kind::TooLarge,
            "a body has at most 64 KiB, that of /publish/bulk 1 MiB, that of /rules 2 MiB, and that of /control/import 4 MiB",
        )
    })?;
    if connection.is_some_and(|connection| !connection.goes_on()) {
        return Err(no_place());
    }
    Ok(next.run(Request::from_parts(parts, Body::from(body))).await)
}

fn no_place() -> Problem {
    let why = "this node already answers as many requests as it takes at once";
    Problem::new(Kind::TooManyRequests, why).with("limit", "connections")
}

/// Ends a request that takes too long, for example because its body does not come, and gives each refusal its document.
pub(crate) async fn wrap(mut request: Request, next: Next) -> Response {
    let id = RequestId::next();
    request.extensions_mut().insert(id.clone());
    let path = request.uri().path();
    let is_api = path.starts_with("/api/");
    let work = match is_probe(path) {
        true => Work::Probe,
        false => Work::Answer,
    };
    // Without a connection, in tests, there are no places.
    let connection = request.extensions().get::<Connection>();
    let answering = connection.map(|connection| connection.begin(work));
    let (mut response, answering) = match answering {
        Some(None) => (no_place().into_response(), None),
        None => (in_time(request, next).await, None),
        Some(answering) => (in_time(request, next).await, answering),
    };
    if let Some(problem) = refusal(&mut response, is_api) {
        let document = serde_json::to_vec(&problem.document(&id.0))
            .expect("a document of strings and numbers is JSON");
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        *response.body_mut() = Body::from(document);
    }
    if let Some(answering) = answering {
        let body = std::mem::take(response.body_mut());
        *response.body_mut() = answering.until_sent(body);
    }
    let id = HeaderValue::from_str(&id.0).expect("hexadecimal digits are a header");
    response.headers_mut().insert(REQUEST_ID, id);
    if is_api {
        // It is of the moment, and for the one who asks.
        let no_store = HeaderValue::from_static("no-store");
        response
            .headers_mut()
            .insert(header::CACHE_CONTROL, no_store);
    }
    response
}

async fn in_time(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(REQUEST_TIME, next.run(request)).await;
    answer.unwrap_or_else(|_| {
        Problem::new(Kind::RequestTimeout, "the request did not arrive in time").into_response()
    })
}

/// Why a request was refused; `None`: it was not, or its answer is a text for people and monitors.
fn refusal(response: &mut Response, is_api: bool) -> Option<Problem> {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        return Some(problem);
    }
    let status = response.status();
    if !is_api || !(status.is_client_error() || status.is_server_error()) {
        return None;
    }
    // The frame of routes has refused it.
    let (kind, detail) = match status {
        StatusCode::METHOD_NOT_ALLOWED => (Kind::MethodNotAllowed, "the header Allow names them"),
        StatusCode::NOT_FOUND => (
            Kind::UnknownPath,
            "GET /api/v1/openapi.json lists the paths",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => (
            Kind::TooLarge,
            "a body has at most 64 KiB, that of /publish/bulk 1 MiB, that of /rules 2 MiB, and that of /control/import 4 MiB",
        ),
        StatusCode::BAD_REQUEST => (Kind::InvalidParameter, "the path is not UTF-8"),
        _ => (Kind::Internal, "the request was not understood"),
    };
    Some(Problem::new(kind, detail))
}
