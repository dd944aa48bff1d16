//! `/outlets`: what takes messages to other systems.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::input::{BudgetParams, Params, Segment};
use crate::api::OutletRow;
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::page::Page;
use crate::problem::{Kind, Problem};

/// The outlets and inlets of the configuration of the node that is asked, by name, with the figures that the nodes that run them have; 64 at most.
#[utoipa::path(get, path = "/api/v1/outlets", operation_id = "list_outlets", tag = "outlets", params(BudgetParams), responses((status = 200, description = "All outlets", body = Page<OutletRow>)))]
pub(super) async fn list(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Page<OutletRow>>, Problem> {
    let gathered = broker.processes().outlets.list(budget.budget()?).await?;
    Ok(Json(gathered.page()))
}

/// An outlet or an inlet.
#[utoipa::path(get, path = "/api/v1/outlets/{name}", operation_id = "get_outlet", tag = "outlets", params(("name" = String, Path, description = "Its name"), BudgetParams), responses((status = 200, description = "The outlet", body = OutletRow)))]
pub(super) async fn one(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(name): Segment<String>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<OutletRow>, Problem> {
    let gathered = broker.processes().outlets.list(budget.budget()?).await?;
    let row = gathered.all.into_iter().find(|row| row.name == name);
    let unknown = || {
        let why = format!("no outlet or inlet is called {name}; GET /api/v1/outlets lists them");
        Problem::new(Kind::NotFound, why)
    };
    row.map(Json).ok_or_else(unknown)
}

/// Pauses an outlet: what is with its target is finished, and nothing more is given to it. Messages wait in the queue of its session. Pauses an
/// inlet: what it has published is finished, and it leaves the other broker, where messages wait. The pause
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
