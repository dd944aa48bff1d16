//! `/nodes`: each node, its health, and changes of it from any other.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::ToSchema;

use super::input::{Body, BudgetParams, Params, Segment};
use super::member;
use crate::api::{Alarm, Health, HealthState, NodeChange, NodeCheck, NodeRow};
use crate::api_state::Turn;
use crate::backend::{Broker, Gathered, NodeCommand};
use crate::cluster::{NodeState, Reach};
use crate::page::Page;
use crate::problem::{Kind, Problem};
use crate::rights::Untold;

/// The nodes, each with what it says of itself.
#[utoipa::path(get, path = "/api/v1/nodes", operation_id = "list_nodes", tag = "cluster", params(BudgetParams), responses((status = 200, description = "The nodes", body = Page<NodeRow>)))]
pub(super) async fn list(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Page<NodeRow>>, Problem> {
    Ok(Json(broker.nodes(budget.budget()?).await?.page()))
}

/// One node, by its identifier or name.
#[utoipa::path(get, path = "/api/v1/nodes/{node}", operation_id = "get_node", tag = "cluster", params(("node" = String, Path, description = "The identifier of the node, or its name"), BudgetParams), responses((status = 200, description = "The node", body = NodeRow)))]
pub(super) async fn one(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(node): Segment<String>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<NodeRow>, Problem> {
    Ok(Json(find(&broker, &node, &budget).await?))
}

async fn find(
    broker: &Arc<dyn Broker>,
    node: &str,
    budget: &BudgetParams,
) -> Result<NodeRow, Problem> {
    let node = member::segment(broker, node)?;
    let mut nodes = broker.nodes(budget.budget()?).await?.all.into_iter();
    // It may have left since.
    let gone =
        || Problem::new(Kind::NotFound, "the node has left the cluster").with("kind", "node");
    nodes.find(|row| row.node == node).ok_or_else(gone)
}

/// How the cluster is, in one word, and why.
#[utoipa::path(get, path = "/api/v1/health", operation_id = "get_health", tag = "cluster", params(BudgetParams), responses((status = 200, description = "The state of the cluster", body = Health)))]
pub(super) async fn health(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Health>, Problem> {
    let Gathered { all, partial } = broker.nodes(budget.budget()?).await?;
    Ok(Json(judge(all, partial)))
}

/// Alarms of counts (`attention` in the configuration): clients have a problem, and the nodes are as they should be.
const OF_COUNTS: [&str; 3] = ["dropping", "queues_full", "publishers_held"];

fn degrades(alarm: &Alarm) -> bool {
    !OF_COUNTS.contains(&alarm.name.as_str())
}

fn judge(rows: Vec<NodeRow>, partial: Vec<crate::page::Missing>) -> Health {
    let nodes: Vec<NodeCheck> = rows.iter().map(check).collect();
    let is_ready = |row: &NodeRow| row.health.as_ref().is_some_and(|health| health.ready);
    let serves = rows.iter().any(is_ready);
    let health = rows.into_iter().filter_map(|row| row.health);
    let alarms: Vec<_> = health.flat_map(|health| health.alarms).collect();
    let state = match serves {
        false => HealthState::Unavailable,
        true if !alarms.iter().any(degrades) && nodes.iter().all(|node| node.ok) => HealthState::Ok,
        true => HealthState::Degraded,
    };
    Health {
        state,
        nodes,
        alarms,
        partial,
    }
}

fn check(row: &NodeRow) -> NodeCheck {
    let wrong = match (&row.health, row.reach, row.state) {
        (_, Reach::Down, _) => Some("the node is unreachable".to_owned()),
        (None, ..) => Some("it has not answered".to_owned()),
        (Some(health), ..) if !health.ready => Some("it takes no clients yet".to_owned()),
        (_, Reach::Suspect, _) => Some("it has been silent for a while".to_owned()),
        (.., NodeState::Up) => None,
        (.., state) => Some(format!("it is {state}")),
    };
    NodeCheck {
        node: row.node,
        node_name: row.node_name.clone(),
        ok: wrong.is_none(),
        detail: wrong,
    }
}

/// Whether a change is only judged.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ChangeBody {
    /// Say what it would mean, and change nothing.
    dry_run: bool,
}

/// How a node is evicted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EvictBody {
    /// Say what it would take from the cluster, and change nothing.
    dry_run: bool,
    /// Also if shards lose their majority by it.
    force: bool,
}

/// Has a node send its clients elsewhere and give up leading shards. `GET` on the node shows how far it is.
#[utoipa::path(post, path = "/api/v1/nodes/{node}/drain", operation_id = "drain_node", tag = "cluster", params(("node" = String, Path, description = "The identifier of the node, or its name"), BudgetParams), request_body = ChangeBody, responses((status = 200, description = "What it would mean (`dry_run`)", body = NodeChange), (status = 202, description = "It has begun", body = NodeChange)))]
pub(super) async fn drain(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(node): Segment<String>,
    Params(budget): Params<BudgetParams>,
    Body(body): Body<ChangeBody>,
) -> Result<Response, Problem> {
    change(broker, &node, NodeCommand::Drain, body.dry_run, &budget).await
}

/// Ends the draining of a node: it takes clients again, and may lead shards.
#[utoipa::path(delete, path = "/api/v1/nodes/{node}/drain", operation_id = "end_drain_of_node", tag = "cluster", params(("node" = String, Path, description = "The identifier of the node, or its name"), BudgetParams), responses((status = 202, description = "It takes clients again", body = NodeChange)))]
pub(super) async fn end_drain(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(node): Segment<String>,
    Params(budget): Params<BudgetParams>,
) -> Result<Response, Problem> {
    change(broker, &node, NodeCommand::EndDrain, false, &budget).await
}

/// Has a node leave the cluster permanently: its clients and its replicas go elsewhere, then it ends.
#[utoipa::path(post, path = "/api/v1/nodes/{node}/leave", operation_id = "remove_node", tag = "cluster", params(("node" = String, Path, description = "The identifier of the node, or its name"), BudgetParams), request_body = ChangeBody, responses((status = 200, description = "What it would mean (`dry_run`)", body = NodeChange), (status = 202, description = "It has begun", body = NodeChange)))]
pub(super) async fn leave(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(node): Segment<String>,
    Params(budget): Params<BudgetParams>,
    Body(body): Body<ChangeBody>,
) -> Result<Response, Problem> {
    change(broker, &node, NodeCommand::Leave, body.dry_run, &budget).await
}

/// Takes a node out of the cluster that will not come back.
#[utoipa::path(post, path = "/api/v1/nodes/{node}/evict", operation_id = "evict_node", tag = "cluster", params(("node" = String, Path, description = "The identifier of the node, or its name"), BudgetParams), request_body = EvictBody, responses((status = 200, description = "What it would mean (`dry_run`)", body = NodeChange), (status = 202, description = "It is evicted", body = NodeChange)))]
pub(super) async fn evict(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(node): Segment<String>,
    Params(budget): Params<BudgetParams>,
    Body(body): Body<EvictBody>,
) -> Result<Response, Problem> {
    let command = NodeCommand::Evict { force: body.force };
    change(broker, &node, command, body.dry_run, &budget).await
}

async fn change(
    broker: Arc<dyn Broker>,
    node: &str,
    command: NodeCommand,
    dry_run: bool,
    budget: &BudgetParams,
) -> Result<Response, Problem> {
    let node = member::segment(&broker, node)?;
    if !dry_run {
        tracing::info!(?command, %node, "a change of a node is asked for");
    }
    let changed = broker.change_node(node, command, dry_run, budget.budget()?);
    let changed = Json(changed.await?);
    Ok(match dry_run {
        true => (StatusCode::OK, Extension(Untold), changed).into_response(),
        false => (StatusCode::ACCEPTED, changed).into_response(),
    })
}
