//! `/settings` and `/stats`: what nodes are configured with, and what they have counted.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::input::{BudgetParams, Params, budget, time, word};
use crate::api::{History, SettingRow, Stats};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::cluster::NodeId;
use crate::page::Page;
use crate::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsQuery {
    /// What the names of options begin with, such as `limits.session`.
    prefix: Option<String>,
    /// The node whose values are the first; without it the one that answers.
    node: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// What a node is configured with, who said so, and where other nodes differ.
#[utoipa::path(get, path = "/api/v1/settings", tag = "cluster", params(SettingsQuery), responses((status = 200, body = Page<SettingRow>)))]
pub(super) async fn list(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<SettingsQuery>,
) -> Result<Json<Page<SettingRow>>, Problem> {
    let node = query.node.as_deref();
    let node = word("node", node, "16 hexadecimal digits", |text| {
        text.parse::<NodeId>().ok()
    })?;
    let budget = budget(query.budget_ms.as_deref())?;
    let prefix = query.prefix.unwrap_or_default();
    let settings = broker.settings(node, prefix, budget).await?;
    Ok(Json(settings.page()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Only samples that end after this time, RFC 3339, such as the `end` of an earlier answer.
    since: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

impl HistoryQuery {
    pub(super) fn since(&self) -> Result<Option<u64>, Problem> {
        time("since", self.since.as_deref())
    }

    pub(super) fn budget(&self) -> Result<Duration, Problem> {
        budget(self.budget_ms.as_deref())
    }
}

/// The last hour of each node, a sample for each 10 s; nodes keep it in memory.
#[utoipa::path(get, path = "/api/v1/stats/history", tag = "cluster", params(HistoryQuery), responses((status = 200, body = History)))]
pub(super) async fn history(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<History>, Problem> {
    Ok(Json(broker.history(query.since()?, query.budget()?).await?))
}

/// What there is now, and what has happened since the nodes have started.
#[utoipa::path(get, path = "/api/v1/stats", tag = "cluster", params(BudgetParams), responses((status = 200, body = Stats)))]
pub(super) async fn stats(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Stats>, Problem> {
    Ok(Json(broker.stats(budget.budget()?).await?))
}
