//! What a request is refused with: problem documents (RFC 9457), one table of them.
//!
//! Invariant: `type` never changes its meaning and never goes away; `title` and `detail` are for people.

use std::fmt;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use peer_protocol::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// What is wrong, by the last part of its `type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A parameter of the path or the query cannot be used.
    InvalidParameter,
    /// The body is no JSON, or not what the path takes.
    InvalidBody,
    /// `after` is no cursor, or that of another list or of other filters.
    InvalidCursor,
    /// No key was shown, or one that nobody has.
    NotAuthenticated,
    /// The user or the password is wrong.
    LoginFailed,
    /// The key's role may not do this.
    NoRight,
    /// A change by a session without the session's token.
    Csrf,
    /// The header `Host` names neither an address nor a host of `http.hosts`.
    HostNotAllowed,
    /// A page of another origin asks without a key.
    OriginNotAllowed,
    /// There is no such path.
    UnknownPath,
    /// There is no such client, session, node, shard or ban.
    NotFound,
    /// The path has other methods; `Allow` names them.
    MethodNotAllowed,
    /// The body did not come in time.
    RequestTimeout,
    /// The state of the cluster does not allow it.
    Conflict,
    /// There would be more of something than is kept.
    WouldExceed,
    /// The record is not what `If-Match` or `If-None-Match` says.
    PreconditionFailed,
    /// The body is longer than is read.
    TooLarge,
    /// The body is to be `application/json`.
    UnsupportedMediaType,
    /// More is asked at once than is answered; `Retry-After` says when to ask again.
    TooManyRequests,
    /// The node failed.
    Internal,
    /// The node starts or stops, or no node that can be reached could answer.
    NotReady,
    /// Nobody leads the shard that would have to answer.
    NoLeader,
    /// A client that had published the message would not be acknowledged.
    NotStored,
    /// The only node that could answer is silent.
    NodeSilent,
}

/// One row of the table: what follows from a [`Kind`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The problem.
    pub kind: Kind,
    /// The last part of its `type`.
    pub name: &'static str,
    /// The status of the answer.
    pub status: StatusCode,
    /// For people.
    pub title: &'static str,
}

const fn row(kind: Kind, name: &'static str, status: StatusCode, title: &'static str) -> Row {
    Row {
        kind,
        name,
        status,
        title,
    }
}

/// All problems, in the order of [`Kind`].
pub const ROWS: [Row; 24] = [
    row(
        Kind::InvalidParameter,
        "invalid-parameter",
        StatusCode::BAD_REQUEST,
        "Invalid parameter",
    ),
    row(
        Kind::InvalidBody,
        "invalid-body",
        StatusCode::BAD_REQUEST,
        "Invalid request body",
    ),
    row(
        Kind::InvalidCursor,
        "invalid-cursor",
        StatusCode::BAD_REQUEST,
        "Invalid cursor",
    ),
    row(
        Kind::NotAuthenticated,
        "not-authenticated",
        StatusCode::UNAUTHORIZED,
        "Authentication required",
    ),
    row(
        Kind::LoginFailed,
        "login-failed",
        StatusCode::UNAUTHORIZED,
        "Wrong user name or password",
    ),
    row(
        Kind::NoRight,
        "no-right",
        StatusCode::FORBIDDEN,
        "Not permitted for this role",
    ),
    row(
        Kind::Csrf,
        "csrf",
        StatusCode::FORBIDDEN,
        "CSRF token missing or wrong",
    ),
    row(
        Kind::HostNotAllowed,
        "host-not-allowed",
        StatusCode::FORBIDDEN,
        "Host not allowed",
    ),
    row(
        Kind::OriginNotAllowed,
        "origin-not-allowed",
        StatusCode::FORBIDDEN,
        "Origin not allowed",
    ),
    row(
        Kind::UnknownPath,
        "unknown-path",
        StatusCode::NOT_FOUND,
        "Unknown path",
    ),
    row(
        Kind::NotFound,
        "not-found",
        StatusCode::NOT_FOUND,
        "Not found",
    ),
    row(
        Kind::MethodNotAllowed,
        "method-not-allowed",
        StatusCode::METHOD_NOT_ALLOWED,
        "Method not allowed",
    ),
    row(
        Kind::RequestTimeout,
        "request-timeout",
        StatusCode::REQUEST_TIMEOUT,
        "Request timeout",
    ),
    row(
        Kind::Conflict,
        "conflict",
        StatusCode::CONFLICT,
        "Not possible in the current state",
    ),
    row(
        Kind::WouldExceed,
        "would-exceed",
        StatusCode::CONFLICT,
        "More than is kept",
    ),
    row(
        Kind::PreconditionFailed,
        "precondition-failed",
        StatusCode::PRECONDITION_FAILED,
        "The record has changed",
    ),
    row(
        Kind::TooLarge,
        "too-large",
        StatusCode::PAYLOAD_TOO_LARGE,
        "The request is too large",
    ),
    row(
        Kind::UnsupportedMediaType,
        "unsupported-media-type",
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "Unsupported media type",
    ),
    row(
        Kind::TooManyRequests,
        "too-many-requests",
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests",
    ),
    row(
        Kind::Internal,
        "internal",
        StatusCode::INTERNAL_SERVER_ERROR,
        "Internal error",
    ),
    row(
        Kind::NotReady,
        "not-ready",
        StatusCode::SERVICE_UNAVAILABLE,
        "Not ready",
    ),
    row(
        Kind::NoLeader,
        "no-leader",
        StatusCode::SERVICE_UNAVAILABLE,
        "The shard has no leader",
    ),
    row(
        Kind::NotStored,
        "not-stored",
        StatusCode::SERVICE_UNAVAILABLE,
        "The message was not stored",
    ),
    row(
        Kind::NodeSilent,
        "node-silent",
        StatusCode::GATEWAY_TIMEOUT,
        "The node does not answer",
    ),
];

impl Kind {
    /// Its row of the table.
    #[must_use]
    pub const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}

/// Why a request is not answered as it was meant.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// Which.
    pub kind: Kind,
    /// A sentence, with the remedy if there is one.
    pub detail: String,
    /// Members of the document beside those of RFC 9457.
    pub members: Map<String, Value>,
}

impl Problem {
    /// A problem with a sentence.
    #[must_use]
    pub fn new(kind: Kind, detail: impl fmt::Display) -> Self {
        Self {
            kind,
            detail: detail.to_string(),
            members: Map::new(),
        }
    }

    /// The same with one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// A parameter of the path or the query that cannot be used.
    #[must_use]
    pub fn parameter(name: &str, detail: impl fmt::Display) -> Self {
        Self::new(Kind::InvalidParameter, detail).with("parameter", name)
    }

    /// The document. `request`: the identifier of the request.
    #[must_use]
    pub fn document(&self, request: &str) -> Document {
        let row = self.kind.row();
        Document {
            kind: format!("urn:heraldmq:problem:{}", row.name),
            title: row.title.to_owned(),
            status: row.status.as_u16(),
            detail: self.detail.clone(),
            instance: format!("urn:heraldmq:request:{request}"),
            members: self.members.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.row().name, self.detail)
    }
}

impl std::error::Error for Problem {}

/// A problem as it is sent, `application/problem+json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Document {
    /// `urn:heraldmq:problem:` and the name of the problem, which stays.
    #[serde(rename = "type")]
    pub kind: String,
    /// The problem for people.
    pub title: String,
    /// The status of the answer.
    #[schema(value_type = u16)]
    pub status: u16,
    /// What is wrong with this request, and the remedy if there is one.
    pub detail: String,
    /// `urn:heraldmq:request:` and the identifier of the request, which is also in the log and in `X-Request-Id`.
    pub instance: String,
    /// Further members, by the problem.
    #[serde(flatten)]
    #[schema(value_type = Object, additional_properties)]
    pub members: Map<String, Value>,
}

/// What people are told of a change that was not made.
impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unknown(why) => Self::new(Kind::NotFound, why),
            Refusal::Conflict(why) => Self::new(Kind::Conflict, why),
            Refusal::Unavailable(why) => Self::new(Kind::NotReady, why),
        }
    }
}

impl IntoResponse for Problem {
    /// The status and the headers; [`crate::requests`] writes the document, which has the request's identifier.
    fn into_response(self) -> Response {
        let mut response = self.kind.row().status.into_response();
        if self.kind == Kind::NotAuthenticated {
            let challenge = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        if self.kind == Kind::TooManyRequests {
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, soon);
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_problem_has_its_row_and_a_name_of_its_own() {
        let names: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        for row in &ROWS {
            assert_eq!(row.kind.row().name, row.name, "the order is that of Kind");
            assert!(row.status.is_client_error() || row.status.is_server_error());
        }
    }
}
