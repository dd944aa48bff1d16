//! `/users`: whom MQTT clients log in as.

use std::sync::Arc;

use authorization::Rules;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::{Expect, Put, Revision, Stored, Target, UnixMs, User, Verifier};
use serde::Deserialize;
use utoipa::IntoParams;

use super::asked::{
    Asked, ChangeParams, Outcome, counted, in_order, missing, mistakes, name_of, new_name, strings,
    tagged, texts,
};
use super::current::Current;
use super::proof::Proof;
use crate::api::{
    AccessEffects, AccessUser, AccessUserMade, At, NewAccessPassword, NewAccessUser,
    Proof as ProofKind, RevisionNumber,
};
use crate::api_state::ListTurn;
use crate::page::{Found, List, Page};
use crate::problem::{Kind, Problem};
use crate::routes::input::{Body, Params, Segment, limit, word};
use crate::routes::reading::wrong_field;

/// Users that are looked at for one page, at most.
const SCANNED: usize = 2_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsersQuery {
    /// What their names begin with.
    prefix: Option<String>,
    /// A group that they are in.
    group: Option<String>,
    /// Whether clients can log in as them.
    #[param(value_type = Option<bool>)]
    enabled: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Users in the order of their names, as this node has them.
#[utoipa::path(get, path = "/api/v1/users", operation_id = "list_users", tag = "access", params(UsersQuery, ("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "A page of users", body = Page<AccessUser>)))]
pub(crate) async fn list(
    Current(access): Current,
    _turn: ListTurn,
    Params(query): Params<UsersQuery>,
) -> Result<Json<Page<AccessUser>>, Problem> {
    let filters = [&query.prefix, &query.group, &query.enabled].map(|filter| filter.as_deref());
    let list = List::new("users", &filters);
    let after = query.after.as_deref().map(|cursor| list.key(cursor));
    let after = after.transpose()?;
    let most = usize::from(limit(query.limit.as_deref())?);
    let enabled = word(
        "enabled",
        query.enabled.as_deref(),
        "true or false",
        |text| text.parse::<bool>().ok(),
    )?;
    let prefix = query.prefix.unwrap_or_default();
    let view = access.view();
    let mut found: Vec<(String, Arc<Stored<User>>)> = Vec::new();
    let (mut last, mut scanned, mut more) = (None, 0, false);
    let mut visit = |name: &str, user: &Arc<Stored<User>>| {
        if !name.starts_with(prefix.as_str()) {
            return false;
        }
        if found.len() == most || scanned == SCANNED {
            more = true;
            return false;
        }
        last = Some(name.to_owned());
        scanned += 1;
        let is_in = |group: &String| user.record.groups.iter().any(|of| **of == **group);
        if query.group.as_ref().is_none_or(is_in)
            && enabled.is_none_or(|enabled| enabled == user.record.enabled)
        {
            found.push((name.to_owned(), Arc::clone(user)));
        }
        true
    };
    // The user whose name is the prefix comes first.
    let begins = match after.as_deref() {
        Some(after) if after >= prefix.as_str() => Some(after),
        _ => {
            if let Some(user) = view.user(&prefix) {
                visit(&prefix, &user);
            }
            (!prefix.is_empty()).then_some(prefix.as_str())
        }
    };
    view.each_user(begins, &mut visit);
    let found = Found {
        items: found.iter().map(|(name, user)| row(name, user)).collect(),
        last: last.filter(|_| more),
        partial: Vec::new(),
        scanned: scanned as u64,
    };
    Ok(Json(found.page(&list)))
}

/// Adds a user. What it may do is in force at this node when this is answered, and at other nodes a moment later.
#[utoipa::path(post, path = "/api/v1/users", operation_id = "add_user", tag = "access", params(ChangeParams), request_body = NewAccessUser, responses((status = 200, description = "What it would do (`dry_run`)", body = AccessEffects), (status = 201, description = "The user, and its secret if one was generated", body = AccessUserMade)))]
pub(crate) async fn add(
    asked: Asked,
    Body(mut body): Body<NewAccessUser>,
) -> Result<Response, Problem> {
    let (name, target) = new_name(body.name.take())?;
    let expect = asked.expect(Expect::New);
    let made = put(&asked, name, body, expect, None).await?;
    Ok((target, made).into_response())
}

/// A user.
#[utoipa::path(get, path = "/api/v1/users/{name}", operation_id = "get_user", tag = "access", params(("name" = String, Path, description = "The MQTT user name"), ("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "The user; `ETag` has its revision", body = AccessUser)))]
pub(crate) async fn one(
    Current(access): Current,
    Segment(name): Segment<String>,
) -> Result<Response, Problem> {
    let user = access.view().user(&name);
    let user = user.ok_or_else(|| missing(&Target::User(name.as_str().into())))?;
    Ok(tagged(user.revision, Json(row(&name, &user))))
}

/// Replaces a user, or adds it: what the body does not say has its default, and the password stays if the body has none. Whoever is logged in
/// with a password that counts no more is disconnected. `If-Match` and `If-None-Match: *` are conditions.
#[utoipa::path(put, path = "/api/v1/users/{name}", operation_id = "put_user", tag = "access", params(("name" = String, Path, description = "The MQTT user name"), ChangeParams), request_body = NewAccessUser, responses((status = 200, description = "The user, and its secret if one was generated; or what it would do (`dry_run`)", body = AccessUserMade), (status = 201, description = "The user is new", body = AccessUserMade)))]
pub(crate) async fn replace(
    asked: Asked,
    Segment(name): Segment<String>,
    Body(body): Body<NewAccessUser>,
) -> Result<Response, Problem> {
    let name = name_of(name, body.name.as_ref())?;
    let before = asked.access.view().user(&name);
    put(
        &asked,
        name,
        body,
        asked.expect(Expect::Any),
        before.as_deref(),
    )
    .await
}

/// Removes a user, and disconnects its clients.
#[utoipa::path(delete, path = "/api/v1/users/{name}", operation_id = "remove_user", tag = "access", params(("name" = String, Path, description = "The MQTT user name"), ChangeParams), responses((status = 200, description = "What it would do (`dry_run`)", body = AccessEffects), (status = 204, description = "The user is removed")))]
pub(crate) async fn remove(
    asked: Asked,
    Segment(name): Segment<String>,
) -> Result<Response, Problem> {
    let put = Put::User(name.into(), None);
    match asked.make(asked.expect(Expect::Known), put).await? {
        Outcome::Made(made) => Ok(counted(&made, StatusCode::NO_CONTENT)),
        Outcome::Dry(answer) => Ok(answer),
    }
}

/// Gives a user another password, or a secret, which is the only one from then on. Clients that have logged in before are disconnected.
#[utoipa::path(post, path = "/api/v1/users/{name}/password", operation_id = "set_password", tag = "access", params(("name" = String, Path, description = "The MQTT user name"), ChangeParams), request_body = NewAccessPassword, responses((status = 200, description = "The user, and its secret if one was generated; or what it would do (`dry_run`)", body = AccessUserMade)))]
pub(crate) async fn password(
    asked: Asked,
    Segment(name): Segment<String>,
    Body(body): Body<NewAccessPassword>,
) -> Result<Response, Problem> {
    let access = &*asked.access;
    let proof = Proof::read(access, body.password, body.generate, None, None)?;
    if matches!(proof, Proof::None) {
        let why = "one of `password` and `generate` is to be given";
        return Err(Problem::new(Kind::InvalidBody, why));
    }
    let name: Box<str> = name.into();
    let before = access.view().user(&name);
    let before = before.ok_or_else(|| missing(&Target::User(name.clone())))?;
    let (verifiers, secret) = proof.settle(access, None, asked.is_dry_run).await?;
    let user = User {
        verifiers,
        ..before.record.clone()
    };
    // What the rest of the record is must not be lost.
    let expect = asked.expect(Expect::Revision(before.revision));
    finish(&asked, name, user, expect, secret, StatusCode::OK).await
}

/// Puts what a body says in the place of a user.
async fn put(
    asked: &Asked,
    name: Box<str>,
    body: NewAccessUser,
    expect: Expect,
    before: Option<&Stored<User>>,
) -> Result<Response, Problem> {
    let access = &*asked.access;
    let rules = texts(body.rules);
    Rules::from_lines(&*rules).map_err(|found| mistakes("/rules", &found))?;
    let ends_ms = body.ends_at.as_deref().map(ends).transpose()?;
    let proof = Proof::read(access, body.password, body.generate, body.hash, body.secret)?;
    // A password that stays must be the one that this node knows of.
    let expect = match (&proof, before, expect) {
        (Proof::None, Some(before), Expect::Any | Expect::Known) => {
            Expect::Revision(before.revision)
        }
        _ => expect,
    };
    let kept = before.map(|before| &*before.record.verifiers);
    let (verifiers, secret) = proof.settle(access, kept, asked.is_dry_run).await?;
    let user = User {
        enabled: body.enabled.unwrap_or(true),
        verifiers,
        groups: in_order(body.groups),
        rules,
        client_ids: body.client_ids.map(Into::into),
        class: body.class.map(Into::into),
        superuser: body.superuser,
        ends_ms,
        note: body.note.into(),
        logins_since: Revision(0),
    };
    let status = match before {
        Some(_) => StatusCode::OK,
        None => StatusCode::CREATED,
    };
    finish(asked, name, user, expect, secret, status).await
}

async fn finish(
    asked: &Asked,
    name: Box<str>,
    user: User,
    expect: Expect,
    secret: Option<String>,
    status: StatusCode,
) -> Result<Response, Problem> {
    let put = Put::User(name.clone(), Some(Box::new(user.clone())));
    match asked.make(expect, put).await? {
        Outcome::Dry(answer) => Ok(answer),
        Outcome::Made(made) => {
            let revision = made.revision;
            let now = asked.access.view().user(&name);
            // It may be gone again.
            let now = now.unwrap_or_else(|| {
                let record = user;
                Arc::new(Stored { revision, record })
            });
            let user = row(&name, &now);
            let answer = (status, Json(AccessUserMade { user, secret }));
            Ok(tagged(now.revision, counted(&made, answer)))
        }
    }
}

pub(super) fn ends(text: &str) -> Result<UnixMs, Problem> {
    let wrong = || {
        wrong_field(
            "/ends_at",
            &text.into(),
            "a time such as 2026-11-24T10:12:03Z",
        )
    };
    let time = humantime::parse_rfc3339(text).map_err(|_| wrong())?;
    let since_1970 = time
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|_| wrong())?;
    u64::try_from(since_1970.as_millis())
        .map(UnixMs)
        .map_err(|_| wrong())
}

fn row(name: &str, user: &Stored<User>) -> AccessUser {
    let Stored { revision, record } = user;
    let proof = |verifier: &Verifier| match verifier {
        Verifier::Hash(_) => ProofKind::Password,
        Verifier::Scram(_) => ProofKind::Scram,
        Verifier::Secret(_) => ProofKind::Secret,
    };
    AccessUser {
        name: name.to_owned(),
        revision: RevisionNumber(revision.0),
        enabled: record.enabled,
        proofs: record.verifiers.iter().map(proof).collect(),
        groups: strings(&record.groups),
        rules: strings(&record.rules),
        client_ids: record.client_ids.as_deref().map(str::to_owned),
        class: record.class.as_deref().map(str::to_owned),
        superuser: record.superuser,
        ends_at: record.ends_ms.map(|UnixMs(ms)| At::unix_ms(ms)),
        note: record.note.to_string(),
    }
}
