//! `/subscriptions` and `/shared-groups`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::input::{Body, BudgetParams, ListParams, Params, Segment};
use crate::api::{
    GroupMember, NewSubscription, SharedGroupRow, SubscriptionChanged, SubscriptionRow,
};
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
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// Subscriptions of all clients, in the order of client identifiers and then topic filters.
#[utoipa::path(get, path = "/api/v1/subscriptions", operation_id = "list_subscriptions", tag = "subscriptions", params(ListQuery), responses((status = 200, description = "A page of subscriptions", body = Page<SubscriptionRow>)))]
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
    let range = params.range(&list)?;
    let found = match query.client {
        Some(client) => broker.subscriptions_of(client, query.prefix, range),
        None => broker.subscriptions(query.prefix, range),
    };
    let found = found.await?;
    Ok(Json(found.page(&list)))
}

/// The subscriptions of one client, in the order of topic filters.
#[utoipa::path(get, path = "/api/v1/clients/{client_id}/subscriptions", operation_id = "list_subscriptions_of_client", tag = "subscriptions", params(("client_id" = String, Path, description = "The client identifier"), ListParams), responses((status = 200, description = "A page of subscriptions", body = Page<SubscriptionRow>)))]
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

/// Makes a subscription for a client, connected or away, as if it had sent SUBSCRIBE: its rules and limits hold, and retained
/// messages come. A subscription with the same filter is replaced. 409 says which reason code SUBACK would have.
#[utoipa::path(post, path = "/api/v1/clients/{client_id}/subscriptions", operation_id = "subscribe_client", tag = "subscriptions", params(("client_id" = String, Path, description = "The client identifier"), BudgetParams), request_body = NewSubscription, responses((status = 200, description = "The subscription as it was made", body = SubscriptionChanged)))]
pub(super) async fn subscribe(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(budget): Params<BudgetParams>,
    Body(subscription): Body<NewSubscription>,
) -> Result<Json<SubscriptionChanged>, Problem> {
    let changed = broker.subscribe(client_id, subscription, budget.budget()?);
    Ok(Json(changed.await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct UnsubscribeQuery {
    /// The filter as it was given at SUBSCRIBE.
    filter: String,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// Removes a subscription of a client, connected or away.
#[utoipa::path(delete, path = "/api/v1/clients/{client_id}/subscriptions", operation_id = "unsubscribe_client", tag = "subscriptions", params(("client_id" = String, Path, description = "The client identifier"), UnsubscribeQuery), responses((status = 200, description = "The subscription that was removed", body = SubscriptionChanged)))]
pub(super) async fn unsubscribe(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(query): Params<UnsubscribeQuery>,
) -> Result<Json<SubscriptionChanged>, Problem> {
    let budget = BudgetParams {
        budget_ms: query.budget_ms,
    };
    let changed = broker.unsubscribe(client_id, query.filter, budget.budget()?);
    Ok(Json(changed.await?))
}

/// A subscription of a client whose identifier does not fit into a path.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscribeFor {
    /// Whose it is to be.
    client_id: String,
    /// It.
    subscription: NewSubscription,
}

/// The same as `POST` on the subscriptions of a client, for identifiers that do not fit into a path.
#[utoipa::path(post, path = "/api/v1/subscribe", operation_id = "look_up_and_subscribe_client", tag = "subscriptions", params(BudgetParams), request_body = SubscribeFor, responses((status = 200, description = "The subscription as it was made", body = SubscriptionChanged)))]
pub(super) async fn subscribe_for(
    turn: Turn,
    broker: State<Arc<dyn Broker>>,
    budget: Params<BudgetParams>,
    Body(body): Body<SubscribeFor>,
) -> Result<Json<SubscriptionChanged>, Problem> {
    let client_id = Segment(body.client_id);
    subscribe(turn, broker, client_id, budget, Body(body.subscription)).await
}

/// A filter and an identifier that do not fit into a path.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UnsubscribeFor {
    /// Whose it is.
    client_id: String,
    /// The filter as it was given at SUBSCRIBE.
    filter: String,
}

/// The same as `DELETE` on the subscriptions of a client, for identifiers and filters that do not fit into a path.
#[utoipa::path(post, path = "/api/v1/unsubscribe", operation_id = "look_up_and_unsubscribe_client", tag = "subscriptions", params(BudgetParams), request_body = UnsubscribeFor, responses((status = 200, description = "The subscription that was removed", body = SubscriptionChanged)))]
pub(super) async fn unsubscribe_for(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(body): Body<UnsubscribeFor>,
) -> Result<Json<SubscriptionChanged>, Problem> {
    let changed = broker.unsubscribe(body.client_id, body.filter, budget.budget()?);
    Ok(Json(changed.await?))
}

/// Shared groups, in the order of the filters that make sessions members.
#[utoipa::path(get, path = "/api/v1/shared-groups", operation_id = "list_shared_groups", tag = "subscriptions", params(ListParams), responses((status = 200, description = "A page of shared groups", body = Page<SharedGroupRow>)))]
pub(super) async fn groups(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<SharedGroupRow>>, Problem> {
    let list = List::new("shared-groups", &[]);
    let found = broker.groups().list(params.range(&list)?).await?;
    Ok(Json(found.page(&list)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct MembersQuery {
    /// The subscription that makes sessions members, as it is given at SUBSCRIBE, such as `$share/workers/jobs/#`.
    filter: String,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// The members of a shared group: durable sessions in the order of client identifiers, then the others by node. 404: no session is in
/// such a group.
#[utoipa::path(get, path = "/api/v1/shared-groups/members", operation_id = "list_members_of_shared_group", tag = "subscriptions", params(MembersQuery), responses((status = 200, description = "A page of members", body = Page<GroupMember>)))]
pub(super) async fn members(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<MembersQuery>,
) -> Result<Json<Page<GroupMember>>, Problem> {
    let list = List::new("members", &[Some(&query.filter)]);
    let params = ListParams {
        limit: query.limit,
        after: query.after,
        budget_ms: query.budget_ms,
    };
    let range = params.range(&list)?;
    let found = broker.groups().members(query.filter, range).await?;
    Ok(Json(found.page(&list)))
}
