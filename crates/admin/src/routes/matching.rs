//! `/match`: who would get a message.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::input::{Body, BudgetParams, Params};
use super::reading::{too_many, wrong_field};
use crate::api::{Match, MatchRequest};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::page::LARGEST_LIMIT;
use crate::problem::Problem;

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
    if request.qos > 2 {
        return Err(wrong_field("/qos", &request.qos.into(), "0, 1 or 2"));
    }
    if !(1..=LARGEST_LIMIT).contains(&request.limit) {
        let accepted = format!("a whole number from 1 to {LARGEST_LIMIT}");
        return Err(wrong_field("/limit", &request.limit.into(), &accepted));
    }
    if request.clients.len() > MOST_CLIENTS {
        return Err(too_many("/clients", request.clients.len(), MOST_CLIENTS));
    }
    let budget = budget.budget()?;
    Ok(Json(broker.matching(request, budget).await?))
}
