//! `/outlets`: what takes messages to other systems.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::input::Segment;
use crate::api::OutletRow;
use crate::backend::Broker;
use crate::page::Page;
use crate::problem::Problem;

/// The outlets of the configuration of the node that is asked, by name; 64 at most. Figures are those of outlets that are at this node.
#[utoipa::path(get, path = "/api/v1/outlets", operation_id = "list_outlets", tag = "outlets", responses((status = 200, description = "All outlets", body = Page<OutletRow>)))]
pub(super) async fn list(State(broker): State<Arc<dyn Broker>>) -> Json<Page<OutletRow>> {
    Json(Page::whole(broker.processes().outlets.list(), Vec::new()))
}

/// An outlet.
#[utoipa::path(get, path = "/api/v1/outlets/{name}", operation_id = "get_outlet", tag = "outlets", params(("name" = String, Path, description = "Its name")), responses((status = 200, description = "The outlet", body = OutletRow)))]
pub(super) async fn one(
    State(broker): State<Arc<dyn Broker>>,
    Segment(name): Segment<String>,
) -> Result<Json<OutletRow>, Problem> {
    broker.processes().outlets.one(&name).map(Json)
}

/// Pauses an outlet: what is with its target is finished, and nothing more is given to it. Messages wait in the queue of its session. The pause
/// lasts until it is ended, over restarts too. It counts within two seconds.
#[utoipa::path(post, path = "/api/v1/outlets/{name}/pause", operation_id = "pause_outlet", tag = "outlets", params(("name" = String, Path, description = "Its name")), responses((status = 204, description = "The pause is kept")))]
pub(super) async fn pause(
    State(broker): State<Arc<dyn Broker>>,
    Segment(name): Segment<String>,
) -> Result<StatusCode, Problem> {
    broker.processes().outlets.pause(name, true).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends the pause of an outlet. What failed before is tried at once.
#[utoipa::path(post, path = "/api/v1/outlets/{name}/resume", operation_id = "resume_outlet", tag = "outlets", params(("name" = String, Path, description = "Its name")), responses((status = 204, description = "There is no pause")))]
pub(super) async fn resume(
    State(broker): State<Arc<dyn Broker>>,
    Segment(name): Segment<String>,
) -> Result<StatusCode, Problem> {
    broker.processes().outlets.pause(name, false).await?;
    Ok(StatusCode::NO_CONTENT)
}
