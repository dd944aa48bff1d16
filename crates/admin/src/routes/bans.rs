//! `/bans`: who is not let in.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::input::{Body, Segment};
use crate::api::{Ban, NewBan};
use crate::backend::Broker;
use crate::page::Page;
use crate::problem::Problem;
use crate::rights::Target;

/// The bans, which all nodes of a cluster have in common.
#[utoipa::path(get, path = "/api/v1/bans", operation_id = "list_bans", tag = "bans", responses((status = 200, description = "The bans", body = Page<Ban>)))]
pub(super) async fn list(State(broker): State<Arc<dyn Broker>>) -> Json<Page<Ban>> {
    Json(Page::whole(broker.bans(), Vec::new()))
}

/// Lets somebody in no more, and disconnects whom it concerns. Other nodes hear of it at once, or when they are in reach.
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

/// Takes a ban back.
#[utoipa::path(delete, path = "/api/v1/bans/{id}", operation_id = "remove_ban", tag = "bans", params(("id" = u64, Path, description = "The number of the ban")), responses((status = 204, description = "The ban is removed")))]
pub(super) async fn remove(
    State(broker): State<Arc<dyn Broker>>,
    Segment(id): Segment<u64>,
) -> Result<StatusCode, Problem> {
    broker.unban(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
