//! `/acl/test`: what the rules say about a client.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::input::{Body, BudgetParams, Params};
use super::reading::wrong_field;
use crate::api::{AclAnswer, AclQuestion};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::problem::Problem;

/// What a client may be asked about.
const ACTIONS: [&str; 4] = ["publish", "retain", "subscribe", "receive"];

/// Whether a client may do something, and which rule decides.
#[utoipa::path(post, path = "/api/v1/acl/test", operation_id = "test_acl", tag = "rights", params(BudgetParams), request_body = AclQuestion, responses((status = 200, description = "Whether the client may, and what decides", body = AclAnswer)))]
pub(super) async fn test(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(question): Body<AclQuestion>,
) -> Result<Json<AclAnswer>, Problem> {
    if !ACTIONS.contains(&question.action.as_str()) {
        let accepted = "publish, retain, subscribe or receive";
        return Err(wrong_field("/action", &question.action.into(), accepted));
    }
    if let Some(address) = &question.address
        && address.parse::<IpAddr>().is_err()
    {
        let given = address.as_str().into();
        return Err(wrong_field("/address", &given, "an IP address"));
    }
    Ok(Json(broker.acl(question, budget.budget()?).await?))
}
