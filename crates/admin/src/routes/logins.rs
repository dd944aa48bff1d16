//! Who fails to log in, and who is not let in.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::drops::FirstQuery;
use super::input::{BudgetParams, Params};
use crate::api::{FailedLoginsRow, RefusedLoginsRow};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::page::Page;
use crate::problem::Problem;

/// Who fails to log in, on all nodes: addresses with the user names that were tried there, those that failed most first. 100
/// addresses of each node.
#[utoipa::path(get, path = "/api/v1/failed-logins", operation_id = "list_failed_logins", tag = "bans", params(BudgetParams), responses((status = 200, description = "The addresses", body = Page<FailedLoginsRow>)))]
pub(super) async fn failed_logins(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Page<FailedLoginsRow>>, Problem> {
    let rows = broker.traffic().failed_logins(budget.budget()?);
    Ok(Json(rows.await?.page()))
}

/// Who was not let in, and why, the latest first: clients of MQTT, connections that ended before CONNECT, and people at the API.
/// A row is what one node has counted of an address, a user name and a cause; a node remembers 256 addresses with 32 rows each.
#[utoipa::path(get, path = "/api/v1/refused-logins", operation_id = "list_refused_logins", tag = "bans", params(FirstQuery), responses((status = 200, description = "Addresses and user names with the cause", body = Page<RefusedLoginsRow>)))]
pub(super) async fn refused_logins(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<FirstQuery>,
) -> Result<Json<Page<RefusedLoginsRow>>, Problem> {
    let (node, limit, budget) = query.read(&broker)?;
    let rows = broker.traffic().refused_logins(node, limit, budget);
    Ok(Json(rows.await?.page()))
}
