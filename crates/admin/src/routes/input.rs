//! What requests say: parameters and bodies, read with one form of refusal.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::backend::Range;
use crate::page::{BUDGET_MS, DEFAULT_BUDGET, DEFAULT_LIMIT, LARGEST_LIMIT, List};
use crate::problem::{Kind, Problem};

/// The parameters of a query. A parameter that the path does not have is refused: it would be a filter that does nothing.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(params)| Self(params))
            .map_err(|rejection: QueryRejection| {
                Problem::new(Kind::InvalidParameter, rejection.body_text())
            })
    }
}

/// A parameter of the path.
pub(super) struct Segment<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segment<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(segment)| Self(segment))
            .map_err(|rejection: PathRejection| {
                Problem::new(Kind::InvalidParameter, rejection.body_text())
            })
    }
}

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => Err(problem(&rejection)),
        }
    }
}

fn problem(rejection: &JsonRejection) -> Problem {
    let kind = match rejection {
        JsonRejection::MissingJsonContentType(_) => Kind::UnsupportedMediaType,
        JsonRejection::BytesRejection(_) => Kind::TooLarge,
        _ => Kind::InvalidBody,
    };
    Problem::new(kind, rejection.body_text())
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
            let why = format!("`limit` is 1 to {LARGEST_LIMIT}");
            Err(Problem::parameter("limit", why))
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
            let why = format!(
                "`budget_ms` is {} to {}",
                BUDGET_MS.start(),
                BUDGET_MS.end()
            );
            Err(Problem::parameter("budget_ms", why))
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
            None => {
                let why = format!("`{name}` is to be {accepted}");
                Err(Problem::parameter(name, why).with("accepted", accepted))
            }
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
