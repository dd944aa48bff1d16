//! `/drops` and `/backpressure`: what did not get through, and who has held whom back.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::input::{BudgetParams, ListParams, Params, budget, limit, time};
use super::member;
use crate::api::{DropRow, DropTotals, HolderRow, SessionDrops};
use crate::api_state::Turn;
use crate::backend::{Broker, DropFilter};
use crate::cluster::NodeId;
use crate::page::{List, Missing, Page};
use crate::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Why messages were dropped, as in metrics.
    reason: Option<String>,
    /// The client that a message was for, or that published it.
    client: Option<String>,
    /// A topic filter that topics match.
    topic: Option<String>,
    /// Not before this time, RFC 3339.
    since: Option<String>,
    /// On this node, by its identifier or name.
    node: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// Messages that were dropped, the latest first, as far as the nodes remember.
#[utoipa::path(get, path = "/api/v1/drops", operation_id = "list_drops", tag = "drops", params(ListQuery), responses((status = 200, description = "A page of dropped messages", body = Page<DropRow>)))]
pub(super) async fn list(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<DropRow>>, Problem> {
    let filters = [
        query.reason.as_deref(),
        query.client.as_deref(),
        query.topic.as_deref(),
        query.since.as_deref(),
        query.node.as_deref(),
    ];
    let list = List::new("drops", &filters);
    let params = ListParams {
        limit: query.limit,
        after: query.after,
        budget_ms: query.budget_ms,
    };
    let range = params.range(&list)?;
    let (since, node) = (query.since.as_deref(), query.node.as_deref());
    let filter = DropFilter {
        since_ms: time("since", since)?,
        node: member::parameter(&broker, node)?,
        reason: query.reason,
        client: query.client,
        topic: query.topic,
    };
    let found = broker.drops(filter, range).await?;
    Ok(Json(found.page(&list)))
}

/// How many messages were dropped, by reason, on all nodes that answer, since each has started.
#[utoipa::path(get, path = "/api/v1/drops/totals", operation_id = "get_drop_totals", tag = "drops", params(BudgetParams), responses((status = 200, description = "The sums by reason", body = DropSums)))]
pub(super) async fn totals(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<DropSums>, Problem> {
    let totals = broker.traffic().drop_totals(budget.budget()?).await?;
    Ok(Json(DropSums {
        reasons: totals.all,
        partial: totals.partial,
    }))
}

/// Sums of dropped messages.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct DropSums {
    /// By reason, all reasons.
    #[serde(flatten)]
    #[schema(value_type = Object, additional_properties)]
    reasons: DropTotals,
    /// Nodes that are not in the sums; not there if all are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partial: Vec<Missing>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct FirstQuery {
    /// On this node, by its identifier or name.
    node: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

impl FirstQuery {
    /// The node, the most items, and how long the answer may take.
    pub(super) fn read(
        &self,
        broker: &Arc<dyn Broker>,
    ) -> Result<(Option<NodeId>, u16, Duration), Problem> {
        Ok((
            member::parameter(broker, self.node.as_deref())?,
            limit(self.limit.as_deref())?,
            budget(self.budget_ms.as_deref())?,
        ))
    }
}

/// What sessions have lost, those first that have lost something last. A row is what one node has counted.
#[utoipa::path(get, path = "/api/v1/drops/sessions", operation_id = "list_session_drops", tag = "drops", params(FirstQuery), responses((status = 200, description = "The sessions", body = Page<SessionDrops>)))]
pub(super) async fn sessions(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<FirstQuery>,
) -> Result<Json<Page<SessionDrops>>, Problem> {
    let (node, limit, budget) = query.read(&broker)?;
    let drops = broker.traffic().session_drops(node, limit, budget);
    Ok(Json(drops.await?.page()))
}

/// Whose full queue has held whom back, the latest first. A row is what one node knows.
#[utoipa::path(get, path = "/api/v1/backpressure", operation_id = "list_backpressure", tag = "drops", params(FirstQuery), responses((status = 200, description = "The subscribers whose queues were full, with the publishers that were not read", body = Page<HolderRow>)))]
pub(super) async fn holders(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<FirstQuery>,
) -> Result<Json<Page<HolderRow>>, Problem> {
    let (node, limit, budget) = query.read(&broker)?;
    let holders = broker.traffic().holders(node, limit, budget);
    Ok(Json(holders.await?.page()))
}
