//! `/acl/test` and `/acl/rules`: what the rules say about a client.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::input::{Body, BudgetParams, Params};
use super::reading::wrong_field;
use crate::api::{AclAnswer, AclQuestion, AclRules, AclSubject};
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
    check_address(question.address.as_deref())?;
    Ok(Json(broker.acl(question, budget.budget()?).await?))
}

/// The rules of the rule file whose conditions hold for a client, in the order in which they count: 500 at most. The file is that of the
/// asked node.
#[utoipa::path(post, path = "/api/v1/acl/rules", operation_id = "list_acl_rules", tag = "rights", params(BudgetParams), request_body = AclSubject, responses((status = 200, description = "The rules, and by what they were chosen", body = AclRules)))]
pub(super) async fn list(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(subject): Body<AclSubject>,
) -> Result<Json<AclRules>, Problem> {
    check_address(subject.address.as_deref())?;
    Ok(Json(broker.acl_rules(subject, budget.budget()?).await?))
}

fn check_address(address: Option<&str>) -> Result<(), Problem> {
    match address {
        Some(given) if given.parse::<IpAddr>().is_err() => {
            Err(wrong_field("/address", &given.into(), "an IP address"))
        }
        _ => Ok(()),
    }
}
