//! `/subscriptions` and `/shared-groups`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::input::{ListParams, Params, Segment};
use crate::api::{SharedGroupRow, SubscriptionRow};
use crate::api_state::{ListTurn, Turn};
use crate::backend::Broker;
use crate::page::{List, Page};
use crate::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// What filters begin with.
    prefix: Option<String>,
    /// Only those of this client.
    client: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    budget_ms: Option<String>,
}

/// Subscriptions of all clients, in the order of client identifiers and then topic filters.
#[utoipa::path(get, path = "/api/v1/subscriptions", tag = "subscriptions", params(ListQuery), responses((status = 200, body = Page<SubscriptionRow>)))]
pub(super) async fn list(
    _turn: ListTurn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<SubscriptionRow>>, Problem> {
    let filters = [query.prefix.as_deref(), query.client.as_deref()];
    let list = List::new("subscriptions", &filters);
    let params = ListParams {
        limit: query.limit,
        after: query.after,
        budget_ms: query.budget_ms,
    };
    let found = broker
        .subscriptions(query.prefix, params.range(&list)?)
        .await?;
    Ok(Json(found.page(&list)))
}

/// The subscriptions of one client, in the order of topic filters.
#[utoipa::path(get, path = "/api/v1/clients/{client_id}/subscriptions", tag = "subscriptions", params(("client_id" = String, Path), ListParams), responses((status = 200, body = Page<SubscriptionRow>)))]
pub(super) async fn of_client(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<SubscriptionRow>>, Problem> {
    let list = List::new("subscriptions of", &[Some(&client_id)]);
    let range = params.range(&list)?;
    let found = broker.subscriptions_of(client_id, None, range).await?;
    Ok(Json(found.page(&list)))
}

/// Shared groups, in the order of the filters that make sessions members.
#[utoipa::path(get, path = "/api/v1/shared-groups", tag = "subscriptions", params(ListParams), responses((status = 200, body = Page<SharedGroupRow>)))]
pub(super) async fn groups(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<SharedGroupRow>>, Problem> {
    let list = List::new("shared-groups", &[]);
    let found = broker.shared_groups(params.range(&list)?).await?;
    Ok(Json(found.page(&list)))
}
