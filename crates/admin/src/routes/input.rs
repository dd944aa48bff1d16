//! What requests say: parameters and bodies, read with one form of refusal.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, RawPathParams, Request};
use axum::http::header;
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::reading;
use crate::backend::Range;
use crate::page::{BUDGET_MS, DEFAULT_BUDGET, DEFAULT_LIMIT, LARGEST_LIMIT, List};
use crate::problem::{Kind, Problem};

/// The parameters of a query. A parameter that the path does not have is refused: it would be a filter that does nothing.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Query(pairs) = pairs.map_err(|_| {
            let why = "the query is to be names and values, such as `a=1&b=2`";
            Problem::new(Kind::InvalidParameter, why)
        })?;
        reading::query(pairs).map(Self)
    }
}

/// A parameter of the path.
pub(super) struct Segment<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segment<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let error = match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(segment)) => return Ok(Self(segment)),
            Err(error) => error,
        };
        let raw = RawPathParams::from_request_parts(parts, state).await.ok();
        Err(segment_problem(&error, raw.as_ref()))
    }
}

/// `raw`: all parameters of the path, if they are UTF-8.
fn segment_problem(error: &PathRejection, raw: Option<&RawPathParams>) -> Problem {
    let kind = match error {
        PathRejection::FailedToDeserializePathParams(error) => Some(error.kind()),
        _ => None,
    };
    let at = match kind {
        Some(ErrorKind::InvalidUtf8InPathParam { key }) => {
            let accepted = "UTF-8, with `%` and two hexadecimal digits for a byte";
            let why = format!("`{key}` is not UTF-8; it is to be {accepted}");
            return Problem::parameter(key, why).with("accepted", accepted);
        }
        Some(ErrorKind::ParseErrorAtIndex { index, .. }) => *index,
        _ => 0,
    };
    // Parameters that are read from text are numbers.
    match raw.and_then(|raw| raw.iter().nth(at)) {
        Some((name, given)) => reading::wrong_parameter(name, given, "a whole number from 0 on"),
        None => Problem::new(Kind::InvalidParameter, "the path has other parameters"),
    }
}

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let given = request.headers().get(header::CONTENT_TYPE);
        let given = given.map(|given| String::from_utf8_lossy(given.as_bytes()).into_owned());
        if !given.as_deref().is_some_and(is_json) {
            return Err(no_json(given.as_deref()));
        }
        let text = Bytes::from_request(request, state).await;
        let text = text.map_err(|_| {
            let why = "the body is longer than this path reads, or has not come in full";
            Problem::new(Kind::TooLarge, why)
        })?;
        reading::body(&text).map(Self)
    }
}

/// Whether a header `Content-Type` names JSON, or a kind of it.
pub(super) fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

fn no_json(given: Option<&str>) -> Problem {
    let was = match given {
        Some(given) => format!("`{}`", reading::shortened(given)),
        None => "missing".to_owned(),
    };
    let why = format!("the Content-Type header is {was}; application/json is expected");
    let problem = Problem::new(Kind::UnsupportedMediaType, why);
    problem
        .with("header", "Content-Type")
        .with("accepted", "application/json")
}

/// Which part of a list is asked for, as all lists have it.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListParams {
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    pub(super) limit: Option<String>,
    /// The `next` of the page before.
    pub(super) after: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    pub(super) budget_ms: Option<String>,
}

impl ListParams {
    /// The part, if what is given can be used.
    pub(super) fn range(&self, list: &List) -> Result<Range, Problem> {
        let after = self.after.as_deref().map(|cursor| list.key(cursor));
        Ok(Range {
            after: after.transpose()?,
            limit: limit(self.limit.as_deref())?,
            budget: budget(self.budget_ms.as_deref())?,
        })
    }
}

/// How long an answer may take.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BudgetParams {
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    pub(super) budget_ms: Option<String>,
}

impl BudgetParams {
    pub(super) fn budget(&self) -> Result<Duration, Problem> {
        budget(self.budget_ms.as_deref())
    }
}

pub(super) fn limit(text: Option<&str>) -> Result<u16, Problem> {
    let Some(text) = text else {
        return Ok(DEFAULT_LIMIT);
    };
    match text.parse() {
        Ok(limit @ 1..=LARGEST_LIMIT) => Ok(limit),
        _ => {
            let accepted = format!("a whole number from 1 to {LARGEST_LIMIT}");
            Err(reading::wrong_parameter("limit", text, &accepted))
        }
    }
}

pub(super) fn budget(text: Option<&str>) -> Result<Duration, Problem> {
    let Some(text) = text else {
        return Ok(DEFAULT_BUDGET);
    };
    match text.parse() {
        Ok(ms) if BUDGET_MS.contains(&ms) => Ok(Duration::from_millis(ms)),
        _ => {
            let (least, most) = (BUDGET_MS.start(), BUDGET_MS.end());
            let accepted = format!("a whole number from {least} to {most}");
            Err(reading::wrong_parameter("budget_ms", text, &accepted))
        }
    }
}

/// A parameter that is one of a few words, or is read from text in another way.
pub(super) fn word<T>(
    name: &str,
    text: Option<&str>,
    accepted: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    match text {
        None => Ok(None),
        Some(text) => match read(text) {
            Some(value) => Ok(Some(value)),
            None => Err(reading::wrong_parameter(name, text, accepted)),
        },
    }
}

/// A parameter that is a time, in ms of Unix time.
pub(super) fn time(name: &str, text: Option<&str>) -> Result<Option<u64>, Problem> {
    let accepted = "a time such as 2026-11-24T10:12:03Z";
    word(name, text, accepted, |text| {
        let time = humantime::parse_rfc3339(text).ok()?;
        let since_1970 = time.duration_since(std::time::UNIX_EPOCH).ok()?;
        u64::try_from(since_1970.as_millis()).ok()
    })
}
