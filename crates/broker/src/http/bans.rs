//! `/api/v1/bans`: who is banned, and its change.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use guard::{Ban, Bans, Change, Subject, TooMany};
use serde::Deserialize;

use super::{Api, sentence};

/// The longest reason that is kept, in bytes.
const LONGEST_REASON: usize = 1_024;

/// Bounds times, so that sums of them stay far from overflow: a hundred years.
const LONGEST_BAN_S: u64 = 100 * 365 * 24 * 3600;

/// What is asked for by POST.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    client: Option<String>,
    user: Option<String>,
    address: Option<String>,
    #[serde(default)]
    reason: String,
    /// For how long; without it until the ban is removed.
    seconds: Option<u64>,
}

/// Why the bans are as they were.
enum Unchanged {
    Unknown(u64),
    Full,
    File(io::Error),
}

impl From<io::Error> for Unchanged {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<TooMany> for Unchanged {
    fn from(TooMany: TooMany) -> Self {
        Self::Full
    }
}

impl IntoResponse for Unchanged {
    fn into_response(self) -> Response {
        match self {
            Self::Unknown(id) => sentence(StatusCode::NOT_FOUND, format!("there is no ban {id}")),
            Self::Full => sentence(StatusCode::CONFLICT, "there are too many bans"),
            Self::File(error) => {
                tracing::error!(%error, "the file with the bans cannot be written");
                let answer = format!("the file with the bans cannot be written: {error}");
                sentence(StatusCode::INTERNAL_SERVER_ERROR, answer)
            }
        }
    }
}

pub(super) async fn list(State(api): State<Api>) -> Json<Vec<Ban>> {
    let bans = api.node.guard.bans();
    Json(bans.iter(api.node.rim.clock.now_ms()).cloned().collect())
}

pub(super) async fn add(
    State(api): State<Api>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Response {
    let Json(wanted) = match wanted {
        Ok(wanted) => wanted,
        Err(rejection) => return sentence(rejection.status(), rejection.body_text()),
    };
    let now_ms = api.node.rim.clock.now_ms();
    let ban = match wanted.check(now_ms) {
        Ok(ban) => ban,
        Err(problem) => return sentence(StatusCode::BAD_REQUEST, problem),
    };
    let (subject, reason, expires_ms) = ban;
    let added = change(&api, now_ms, move |bans| {
        Ok(bans.add(subject, reason, now_ms, expires_ms)?)
    });
    match added.await {
        Ok(ban) => {
            tracing::info!(id = ban.id, subject = ?ban.subject, reason = ban.reason, "ban added");
            api.node.rim.check_bans();
            tell(&api, &Change::Banned(ban.clone()));
            (StatusCode::CREATED, Json(ban)).into_response()
        }
        Err(unchanged) => unchanged.into_response(),
    }
}

pub(super) async fn remove(State(api): State<Api>, Path(id): Path<u64>) -> Response {
    let now_ms = api.node.rim.clock.now_ms();
    let removed = change(&api, now_ms, move |bans| {
        bans.lift(id, now_ms).ok_or(Unchanged::Unknown(id))
    });
    match removed.await {
        Ok(ban) => {
            tracing::info!(id, subject = ?ban.subject, "ban removed");
            let known = api.node.guard.bans().lifted_of(&ban.subject);
            if let Some(lifted) = known {
                tell(&api, &Change::Lifted(lifted));
            }
            StatusCode::NO_CONTENT.into_response()
        }
        Err(unchanged) => unchanged.into_response(),
    }
}

/// The nodes in reach hear of it at once, the others when they are.
fn tell(api: &Api, change: &Change) {
    if let Some(bans) = api.node.rim.bans() {
        bans.tell(change);
    }
}

/// Changes the bans on a thread that may wait for the disk.
async fn change(
    api: &Api,
    now_ms: u64,
    change: impl FnOnce(&mut Bans) -> Result<Ban, Unchanged> + Send + 'static,
) -> Result<Ban, Unchanged> {
    let (node, file) = (Arc::clone(&api.node), Arc::clone(&api.ban_file));
    tokio::task::spawn_blocking(move || file.change(&node.guard, now_ms, change))
        .await
        .map_err(io::Error::from)?
}

impl Wanted {
    fn check(self, now_ms: u64) -> Result<(Subject, String, Option<u64>), String> {
        if self.reason.len() > LONGEST_REASON {
            return Err(format!("a reason has at most {LONGEST_REASON} bytes"));
        }
        if self
            .seconds
            .is_some_and(|s| !(1..=LONGEST_BAN_S).contains(&s))
        {
            return Err(format!("a ban lasts 1 to {LONGEST_BAN_S} seconds"));
        }
        let subject = Subject::new(self.client, self.user, self.address.as_deref())?;
        let expires_ms = self.seconds.map(|seconds| now_ms + seconds * 1_000);
        Ok((subject, self.reason, expires_ms))
    }
}
