//! `/bans`: who is not let in.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::input::{Body, ListParams, Params, Segment};
use crate::api::{Ban, NewBan};
use crate::backend::Broker;
use crate::page::{Found, List, Page, wrong_cursor};
use crate::problem::Problem;
use crate::rights::Target;

/// The bans, which all nodes of a cluster have in common, in the order of their numbers.
#[utoipa::path(get, path = "/api/v1/bans", operation_id = "list_bans", tag = "bans", params(ListParams), responses((status = 200, description = "A page of bans", body = Page<Ban>)))]
pub(super) async fn list(
    State(broker): State<Arc<dyn Broker>>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<Ban>>, Problem> {
    let list = List::new("bans", &[]);
    let range = params.range(&list)?;
    // A cursor of this list is the number of a ban.
    let number = |key: String| key.parse().map_err(|_| wrong_cursor());
    let after = range.after.map(number).transpose()?;
    let (items, more) = broker.bans(after, range.limit.into());
    let last = items.last().map(|ban| ban.id.to_string());
    let found = Found {
        scanned: items.len() as u64,
        items,
        last: last.filter(|_| more),
        partial: Vec::new(),
    };
    Ok(Json(found.page(&list)))
}

/// Bans a client identifier, a user or an address, and disconnects the clients that match. Other nodes are told at once, or when they are reachable.
#[utoipa::path(post, path = "/api/v1/bans", operation_id = "add_ban", tag = "bans", request_body = NewBan, responses((status = 201, description = "The ban that was made", body = Ban)))]
pub(super) async fn add(
    State(broker): State<Arc<dyn Broker>>,
    Body(ban): Body<NewBan>,
) -> Result<Response, Problem> {
    let names = [&ban.client, &ban.user, &ban.address];
    let target = Target(
        names
            .into_iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .join(" "),
    );
    let ban = broker.ban(ban).await?;
    let mut response = (StatusCode::CREATED, Json(ban)).into_response();
    response.extensions_mut().insert(target);
    Ok(response)
}

/// Removes a ban.
#[utoipa::path(delete, path = "/api/v1/bans/{id}", operation_id = "remove_ban", tag = "bans", params(("id" = u64, Path, description = "The number of the ban")), responses((status = 204, description = "The ban is removed")))]
pub(super) async fn remove(
    State(broker): State<Arc<dyn Broker>>,
    Segment(id): Segment<u64>,
) -> Result<StatusCode, Problem> {
    broker.unban(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
