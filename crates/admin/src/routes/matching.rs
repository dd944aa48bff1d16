//! `/match`: who would get a message.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::input::{Body, BudgetParams, Params};
use crate::api::{Match, MatchRequest};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::page::LARGEST_LIMIT;
use crate::problem::{Kind, Problem};

/// Clients that a question may name.
const MOST_CLIENTS: usize = 100;

/// Who would get a message, and why others would not. Nothing is published, and no shared group gives up a turn.
#[utoipa::path(post, path = "/api/v1/match", operation_id = "match_message", tag = "subscriptions", params(BudgetParams), request_body = MatchRequest, responses((status = 200, description = "Who would get the message", body = Match)))]
pub(super) async fn matching(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(request): Body<MatchRequest>,
) -> Result<Json<Match>, Problem> {
    let wrong = |pointer: &str, why: &str| {
        Err(Problem::new(Kind::InvalidBody, why).with("pointer", pointer))
    };
    if request.qos > 2 {
        return wrong("/qos", "`qos` is 0, 1 or 2");
    }
    if !(1..=LARGEST_LIMIT).contains(&request.limit) {
        return wrong("/limit", "`limit` is 1 to 500");
    }
    if request.clients.len() > MOST_CLIENTS {
        return wrong("/clients", "at most 100 clients are explained");
    }
    let budget = budget.budget()?;
    Ok(Json(broker.matching(request, budget).await?))
}
