//! `/top`: who publishes most, who gets most, who gets it late, and which topics.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::input::{Params, budget, limit, word};
use crate::api::{BusyClient, BusyOrder, BusyRole, BusyTopic};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::page::Page;
use crate::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    /// `messages` if it is not given, `bytes`, or, of subscribers, `delay`.
    #[param(value_type = Option<BusyOrder>, inline)]
    by: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

impl TopQuery {
    fn order(&self, accepted: &str, orders: &[BusyOrder]) -> Result<BusyOrder, Problem> {
        let order = word("by", self.by.as_deref(), accepted, |text| {
            orders.iter().copied().find(|order| order.name() == text)
        })?;
        Ok(order.unwrap_or_default())
    }
}

const OF_ALL: [BusyOrder; 2] = [BusyOrder::Messages, BusyOrder::Bytes];

/// The clients that publish most, in the last whole window of 5 s. Estimates: see `BusyRates`.
#[utoipa::path(get, path = "/api/v1/top/publishers", operation_id = "list_top_publishers", tag = "top", params(TopQuery), responses((status = 200, description = "The clients", body = Page<BusyClient>)))]
pub(super) async fn publishers(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<TopQuery>,
) -> Result<Json<Page<BusyClient>>, Problem> {
    let by = query.order("messages or bytes", &OF_ALL)?;
    clients(broker, BusyRole::Publisher, by, &query).await
}

/// The clients that are sent most, or latest, in the last whole window of 5 s. Estimates: see `BusyRates`. Who takes nothing at all is
/// not among them: `/queues` and `/backpressure` have it.
#[utoipa::path(get, path = "/api/v1/top/subscribers", operation_id = "list_top_subscribers", tag = "top", params(TopQuery), responses((status = 200, description = "The clients", body = Page<BusyClient>)))]
pub(super) async fn subscribers(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<TopQuery>,
) -> Result<Json<Page<BusyClient>>, Problem> {
    let by = query.order("messages, bytes or delay", &BusyOrder::ALL)?;
    clients(broker, BusyRole::Subscriber, by, &query).await
}

async fn clients(
    broker: Arc<dyn Broker>,
    role: BusyRole,
    by: BusyOrder,
    query: &TopQuery,
) -> Result<Json<Page<BusyClient>>, Problem> {
    let limit = limit(query.limit.as_deref())?;
    let budget = budget(query.budget_ms.as_deref())?;
    let busiest = broker
        .traffic()
        .busy_clients(role, by, limit, budget)
        .await?;
    Ok(Json(busiest.page()))
}

/// The topics that most is published to, in the last whole window of 5 s, all nodes together. Estimates: see `BusyRates`.
#[utoipa::path(get, path = "/api/v1/top/topics", operation_id = "list_top_topics", tag = "top", params(TopQuery), responses((status = 200, description = "The topics", body = Page<BusyTopic>)))]
pub(super) async fn topics(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<TopQuery>,
) -> Result<Json<Page<BusyTopic>>, Problem> {
    let by = query.order("messages or bytes", &OF_ALL)?;
    let limit = limit(query.limit.as_deref())?;
    let budget = budget(query.budget_ms.as_deref())?;
    let busiest = broker.traffic().busy_topics(by, limit, budget).await?;
    Ok(Json(busiest.page()))
}
