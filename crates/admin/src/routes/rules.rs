//! `/acl/test`: what the rules say about a client.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::input::{Body, BudgetParams, Params};
use crate::api::{AclAnswer, AclQuestion};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::problem::{Kind, Problem};

/// Whether a client may do something, and which rule decides.
#[utoipa::path(post, path = "/api/v1/acl/test", operation_id = "test_acl", tag = "rights", params(BudgetParams), request_body = AclQuestion, responses((status = 200, description = "Whether the client may, and what decides", body = AclAnswer)))]
pub(super) async fn test(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(question): Body<AclQuestion>,
) -> Result<Json<AclAnswer>, Problem> {
    let address = question.address.as_deref();
    if address.is_some_and(|address| address.parse::<IpAddr>().is_err()) {
        let why = "`address` is an IP address";
        return Err(Problem::new(Kind::InvalidBody, why).with("pointer", "/address"));
    }
    Ok(Json(broker.acl(question, budget.budget()?).await?))
}
