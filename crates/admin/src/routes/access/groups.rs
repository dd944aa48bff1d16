//! `/groups`: rules that several users have.

use std::sync::Arc;

use authorization::Rules;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::{Expect, Group, Priority, Put, Stored, Target};
use serde::Deserialize;
use utoipa::IntoParams;

use super::asked::{
    Asked, ChangeParams, Outcome, counted, in_order, missing, mistakes, name_of, new_name, strings,
    tagged, texts,
};
use super::current::Current;
use crate::api::{AccessEffects, AccessGroup, NewAccessGroup, RevisionNumber};
use crate::api_state::ListTurn;
use crate::page::{Found, List, Page};
use crate::problem::Problem;
use crate::routes::input::{Body, Params, Segment, limit};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupsQuery {
    /// What their names begin with.
    prefix: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Groups of users in the order of their names, as this node has them.
#[utoipa::path(get, path = "/api/v1/groups", operation_id = "list_groups", tag = "access", params(GroupsQuery, ("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "A page of groups", body = Page<AccessGroup>)))]
pub(crate) async fn list(
    Current(access): Current,
    _turn: ListTurn,
    Params(query): Params<GroupsQuery>,
) -> Result<Json<Page<AccessGroup>>, Problem> {
    let list = List::new("groups", &[query.prefix.as_deref()]);
    let after = query.after.as_deref().map(|cursor| list.key(cursor));
    let after = after.transpose()?;
    let most = usize::from(limit(query.limit.as_deref())?);
    let prefix = query.prefix.unwrap_or_default();
    let groups = access.view().groups();
    let mut all = groups.iter().filter(|(name, _)| {
        name.starts_with(prefix.as_str()) && after.as_deref().is_none_or(|after| &***name > after)
    });
    let items: Vec<AccessGroup> = all
        .by_ref()
        .take(most)
        .map(|(name, group)| row(name, group))
        .collect();
    let last = items.last().map(|group| group.name.clone());
    let found = Found {
        scanned: items.len() as u64,
        last: last.filter(|_| all.next().is_some()),
        items,
        partial: Vec::new(),
    };
    Ok(Json(found.page(&list)))
}

/// Adds a group of users.
#[utoipa::path(post, path = "/api/v1/groups", operation_id = "add_group", tag = "access", params(ChangeParams), request_body = NewAccessGroup, responses((status = 200, description = "What it would do (`dry_run`)", body = AccessEffects), (status = 201, description = "The group", body = AccessGroup)))]
pub(crate) async fn add(
    asked: Asked,
    Body(mut body): Body<NewAccessGroup>,
) -> Result<Response, Problem> {
    let (name, target) = new_name(body.name.take())?;
    let expect = asked.expect(Expect::New);
    let made = put(&asked, name, body, expect, StatusCode::CREATED).await?;
    Ok((target, made).into_response())
}

/// A group of users.
#[utoipa::path(get, path = "/api/v1/groups/{name}", operation_id = "get_group", tag = "access", params(("name" = String, Path, description = "The name of the group"), ("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "The group; `ETag` has its revision", body = AccessGroup)))]
pub(crate) async fn one(
    Current(access): Current,
    Segment(name): Segment<String>,
) -> Result<Response, Problem> {
    let groups = access.view().groups();
    let group = groups.get(name.as_str());
    let group = group.ok_or_else(|| missing(&Target::Group(name.as_str().into())))?;
    Ok(tagged(group.revision, Json(row(&name, group))))
}

/// Replaces a group of users, or adds it: what the body does not say has its default. Its rules hold for clients that are connected too.
/// `If-Match` and `If-None-Match: *` are conditions.
#[utoipa::path(put, path = "/api/v1/groups/{name}", operation_id = "put_group", tag = "access", params(("name" = String, Path, description = "The name of the group"), ChangeParams), request_body = NewAccessGroup, responses((status = 200, description = "The group; or what it would do (`dry_run`)", body = AccessGroup), (status = 201, description = "The group is new", body = AccessGroup)))]
pub(crate) async fn replace(
    asked: Asked,
    Segment(name): Segment<String>,
    Body(body): Body<NewAccessGroup>,
) -> Result<Response, Problem> {
    let name = name_of(name, body.name.as_ref())?;
    let status = match asked.access.view().groups().contains_key(&name) {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    put(&asked, name, body, asked.expect(Expect::Any), status).await
}

/// Removes a group that no user is in and no group includes.
#[utoipa::path(delete, path = "/api/v1/groups/{name}", operation_id = "remove_group", tag = "access", params(("name" = String, Path, description = "The name of the group"), ChangeParams), responses((status = 200, description = "What it would do (`dry_run`)", body = AccessEffects), (status = 204, description = "The group is removed")))]
pub(crate) async fn remove(
    asked: Asked,
    Segment(name): Segment<String>,
) -> Result<Response, Problem> {
    let put = Put::Group(name.into(), None);
    match asked.make(asked.expect(Expect::Known), put).await? {
        Outcome::Made(made) => Ok(counted(&made, StatusCode::NO_CONTENT)),
        Outcome::Dry(answer) => Ok(answer),
    }
}

async fn put(
    asked: &Asked,
    name: Box<str>,
    body: NewAccessGroup,
    expect: Expect,
    status: StatusCode,
) -> Result<Response, Problem> {
    let rules = texts(body.rules);
    Rules::from_lines(&*rules).map_err(|found| mistakes("/rules", &found))?;
    let group = Group {
        priority: Priority(body.priority),
        rules,
        includes: in_order(body.includes),
        class: body.class.map(Into::into),
        note: body.note.into(),
    };
    let put = Put::Group(name.clone(), Some(Box::new(group.clone())));
    match asked.make(expect, put).await? {
        Outcome::Dry(answer) => Ok(answer),
        Outcome::Made(made) => {
            let revision = made.revision;
            let groups = asked.access.view().groups();
            // It may be gone again.
            let now = groups.get(&name).cloned().unwrap_or_else(|| {
                let record = group;
                Arc::new(Stored { revision, record })
            });
            let answer = (status, Json(row(&name, &now)));
            Ok(tagged(now.revision, counted(&made, answer)))
        }
    }
}

fn row(name: &str, group: &Stored<Group>) -> AccessGroup {
    let Stored { revision, record } = group;
    let Priority(priority) = record.priority;
    AccessGroup {
        name: name.to_owned(),
        revision: RevisionNumber(revision.0),
        priority,
        rules: strings(&record.rules),
        includes: strings(&record.includes),
        class: record.class.as_deref().map(str::to_owned),
        note: record.note.to_string(),
    }
}
