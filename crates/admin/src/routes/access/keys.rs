//! `/keys`: keys of the HTTP API.

use std::time::{Duration, SystemTime};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use control::{ApiKey, Expect, Hash, KeySecret, Put, Stored, Target, UnixMs};
use serde::Deserialize;
use utoipa::IntoParams;

use super::asked::{Asked, ChangeParams, Outcome, counted, missing, tagged};
use super::current::Current;
use super::users::ends;
use crate::api::{AccessEffects, At, KeyMade, KeyRow, KnownIn, NewKey, RevisionNumber, Rotation};
use crate::page::{Found, List, Page};
use crate::problem::{Kind, Problem};
use crate::rights::{self, Gate, Key, KeyId, MadeKey, Role, make_key, unix_ms};
use crate::routes::input::{Body, Params, Segment, limit};

/// How long the secret of before counts after a rotation, if the request does not say it, and at most.
const OVERLAP: Duration = Duration::from_secs(3_600);
const LONGEST_OVERLAP: Duration = Duration::from_secs(30 * 24 * 3_600);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysQuery {
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Keys in the order of their identifiers: those of the control store, and those of the file of the asked node.
#[utoipa::path(get, path = "/api/v1/keys", operation_id = "list_keys", tag = "access", params(KeysQuery, ("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "A page of keys", body = Page<KeyRow>)))]
pub(crate) async fn list(
    Current(access): Current,
    Extension(gate): Extension<Gate>,
    Params(query): Params<KeysQuery>,
) -> Result<Json<Page<KeyRow>>, Problem> {
    let list = List::new("keys", &[]);
    let after = query.after.as_deref().map(|cursor| list.key(cursor));
    let after = after.transpose()?;
    let most = usize::from(limit(query.limit.as_deref())?);
    let of_file = gate.rights().keys_of_file();
    let mut rows: Vec<KeyRow> = of_file.iter().map(row_of_file).collect();
    let keys = access.view().keys();
    let stored = keys.iter().map(|(id, key)| (KeyId::from(*id), key));
    let stored = stored.filter(|(id, _)| !of_file.iter().any(|other| other.id == *id));
    rows.extend(stored.map(|(id, key)| row(&id, key)));
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    rows.retain(|row| after.as_deref().is_none_or(|after| &*row.id > after));
    let is_more = rows.len() > most;
    rows.truncate(most);
    let found = Found {
        scanned: rows.len() as u64,
        last: rows.last().filter(|_| is_more).map(|row| row.id.clone()),
        items: rows,
        partial: Vec::new(),
    };
    Ok(Json(found.page(&list)))
}

/// Makes a key.
#[utoipa::path(post, path = "/api/v1/keys", operation_id = "add_key", tag = "access", params(ChangeParams), request_body = NewKey, responses((status = 200, description = "What it would do (`dry_run`)", body = AccessEffects), (status = 201, description = "The key and its text, which is shown once", body = KeyMade)))]
pub(crate) async fn add(
    asked: Asked,
    Extension(gate): Extension<Gate>,
    Body(body): Body<NewKey>,
) -> Result<Response, Problem> {
    let ends_ms = body.ends_at.as_deref().map(ends).transpose()?;
    let view = asked.access.view();
    let of_file = gate.rights().keys_of_file();
    let is_free = |made: &MadeKey| {
        view.key(made.id.number()).is_none() && !of_file.iter().any(|key| key.id == made.id)
    };
    let made = loop {
        let made = make_key(None);
        if is_free(&made) {
            break made;
        }
    };
    let key = ApiKey {
        name: body.name.into(),
        role: body.role.unwrap_or(Role::Viewer).into(),
        audits: body.audits,
        created_ms: unix_ms(SystemTime::now()),
        ends_ms,
        secrets: [secret(&made)].into(),
    };
    let answer = put(&asked, Expect::New, &made, key, StatusCode::CREATED).await?;
    Ok((Extension(rights::Target(made.id.to_string())), answer).into_response())
}

/// Removes a key: requests with it are refused from now on.
#[utoipa::path(delete, path = "/api/v1/keys/{id}", operation_id = "remove_key", tag = "access", params(("id" = String, Path, description = "The identifier of the key, 8 hexadecimal digits"), ChangeParams), responses((status = 200, description = "What it would do (`dry_run`)", body = AccessEffects), (status = 204, description = "The key is removed")))]
pub(crate) async fn remove(
    asked: Asked,
    Extension(gate): Extension<Gate>,
    Segment(id): Segment<String>,
) -> Result<Response, Problem> {
    let id = identifier(&gate, &id)?;
    let put = Put::Key(id.number(), None);
    match asked.make(asked.expect(Expect::Known), put).await? {
        Outcome::Made(made) => Ok(counted(&made, StatusCode::NO_CONTENT)),
        Outcome::Dry(answer) => Ok(answer),
    }
}

/// Gives a key another secret. The one of before counts for `overlap_s` more; one from before an earlier rotation counts no more.
#[utoipa::path(post, path = "/api/v1/keys/{id}/rotate", operation_id = "rotate_key", tag = "access", params(("id" = String, Path, description = "The identifier of the key, 8 hexadecimal digits"), ChangeParams), request_body = Rotation, responses((status = 200, description = "The key and its new text, which is shown once; or what it would do (`dry_run`)", body = KeyMade)))]
pub(crate) async fn rotate(
    asked: Asked,
    Extension(gate): Extension<Gate>,
    Segment(id): Segment<String>,
    Body(Rotation { overlap_s }): Body<Rotation>,
) -> Result<Response, Problem> {
    let id = identifier(&gate, &id)?;
    let overlap = overlap_s.map_or(OVERLAP, |s| Duration::from_secs(s.into()));
    if overlap > LONGEST_OVERLAP {
        let why = format!("`overlap_s` is to be at most {}", LONGEST_OVERLAP.as_secs());
        return Err(Problem::new(Kind::InvalidBody, why).with("pointer", "/overlap_s"));
    }
    let before = asked.access.view().key(id.number());
    let before = before.ok_or_else(|| missing(&Target::Key(id.number())))?;
    let made = make_key(Some(id));
    let until = unix_ms(SystemTime::now() + overlap);
    let last = before.record.secrets.first();
    let last = last.filter(|_| !overlap.is_zero()).map(|last| KeySecret {
        ends_ms: Some(last.ends_ms.map_or(until, |ends| ends.min(until))),
        ..*last
    });
    let key = ApiKey {
        secrets: [secret(&made)].into_iter().chain(last).collect(),
        ..before.record.clone()
    };
    let expect = asked.expect(Expect::Revision(before.revision));
    put(&asked, expect, &made, key, StatusCode::OK).await
}

async fn put(
    asked: &Asked,
    expect: Expect,
    made: &MadeKey,
    key: ApiKey,
    status: StatusCode,
) -> Result<Response, Problem> {
    let number = made.id.number();
    let put = Put::Key(number, Some(Box::new(key.clone())));
    match asked.make(expect, put).await? {
        Outcome::Dry(answer) => Ok(answer),
        Outcome::Made(done) => {
            let revision = done.revision;
            let record = key;
            // It may be gone again.
            let now = asked.access.view().key(number);
            let now = now.map_or(Stored { revision, record }, |now| (*now).clone());
            let key = row(&made.id, &now);
            let secret = Some(made.text.to_string());
            let answer = (status, Json(KeyMade { key, secret }));
            Ok(tagged(now.revision, counted(&done, answer)))
        }
    }
}

fn secret(made: &MadeKey) -> KeySecret {
    KeySecret {
        sha256: Hash(made.sha256),
        ends_ms: None,
    }
}

/// The identifier of a key that is not in the file.
fn identifier(gate: &Gate, text: &str) -> Result<KeyId, Problem> {
    let id: KeyId = text.parse().map_err(|why| Problem::parameter("id", why))?;
    let of_file = gate.rights().keys_of_file();
    match of_file.iter().any(|key| key.id == id) {
        true => {
            let why = format!(
                "the key {id} is in http.keyFile of this node, which counts: change it there"
            );
            Err(Problem::new(Kind::Conflict, why).with("reason", "of_file"))
        }
        false => Ok(id),
    }
}

fn at(UnixMs(ms): UnixMs) -> At {
    At::unix_ms(ms)
}

fn row_of_file(key: &Key) -> KeyRow {
    KeyRow {
        id: key.id.to_string(),
        name: key.name.clone(),
        source: KnownIn::File,
        revision: RevisionNumber(0),
        role: key.role,
        audits: false,
        created_at: at(unix_ms(key.created)),
        ends_at: key.ends.map(|ends| at(unix_ms(ends))),
        old_secret_ends_at: None,
    }
}

fn row(id: &KeyId, key: &Stored<ApiKey>) -> KeyRow {
    let Stored { revision, record } = key;
    let old = record.secrets.get(1).and_then(|old| old.ends_ms);
    KeyRow {
        id: id.to_string(),
        name: record.name.to_string(),
        source: KnownIn::Store,
        revision: RevisionNumber(revision.0),
        role: record.role.into(),
        audits: record.audits,
        created_at: at(record.created_ms),
        ends_at: record.ends_ms.map(at),
        old_secret_ends_at: old.map(at),
    }
}
