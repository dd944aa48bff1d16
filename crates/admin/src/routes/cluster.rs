//! `/cluster`, `/nodes`, `/shards` and what nodes are made of, and the change of the cluster.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use config::Endpoint;
use serde::Deserialize;
use store_state::api::Slot;
use utoipa::{IntoParams, ToSchema};

use super::input::{Body, BudgetParams, Params, Segment, word};
use super::member;
use super::reading::{wrong_field, wrong_parameter};
use super::settings::HistoryQuery;
use crate::api::{Alarm, History, ListenerRow, ShardName, ShardRow};
use crate::api_state::Turn;
use crate::backend::{Broker, Gathered};
use crate::cluster::{Change, ClusterStatus, StoreName};
use crate::page::Page;
use crate::problem::{Kind, Problem};

/// The cluster as the node that answers sees it, without asking others.
#[utoipa::path(get, path = "/api/v1/cluster", operation_id = "get_cluster", tag = "cluster", responses((status = 200, description = "The cluster as the node sees it", body = ClusterStatus)))]
pub(super) async fn status(State(broker): State<Arc<dyn Broker>>) -> Json<ClusterStatus> {
    Json(broker.cluster())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ShardQuery {
    /// `session`, `inbox` or `retain`.
    #[param(value_type = Option<StoreName>, inline)]
    store: Option<String>,
    /// The node that leads, by its identifier or name.
    node: Option<String>,
    /// `true`: only those that nobody leads.
    #[param(value_type = Option<bool>)]
    leaderless: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// The shards of the stores, each with what its leader says of it.
#[utoipa::path(get, path = "/api/v1/shards", operation_id = "list_shards", tag = "cluster", params(ShardQuery), responses((status = 200, description = "The shards", body = Page<ShardRow>)))]
pub(super) async fn shards(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<ShardQuery>,
) -> Result<Json<Page<ShardRow>>, Problem> {
    let (store, node) = (query.store.as_deref(), query.node.as_deref());
    let store = word("store", store, "session, inbox or retain", |text| {
        text.parse::<StoreName>().ok()
    })?;
    let node = member::parameter(&broker, node)?;
    let leaderless = query.leaderless.as_deref();
    let leaderless = word("leaderless", leaderless, "true or false", |text| {
        text.parse::<bool>().ok()
    })?;
    let leaderless = leaderless.unwrap_or_default();
    let budget = super::input::budget(query.budget_ms.as_deref())?;
    let mut shards = broker.shards(budget).await?;
    shards.all.retain(|row| {
        store.is_none_or(|store| row.store == store)
            && node.is_none_or(|node| row.leader == Some(node))
            && (!leaderless || row.leader.is_none())
    });
    Ok(Json(shards.page()))
}

/// One shard.
#[utoipa::path(get, path = "/api/v1/shards/{store}/{shard}", operation_id = "get_shard", tag = "cluster", params(("store" = StoreName, Path, description = "The store"), ("shard" = u64, Path, description = "The number of the shard in its store"), BudgetParams), responses((status = 200, description = "The shard", body = ShardRow)))]
pub(super) async fn shard(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment((store, shard)): Segment<(String, u64)>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<ShardRow>, Problem> {
    let name = shard_name(&store, shard)?;
    let shards = broker.shards(budget.budget()?).await?.all;
    let mut found = shards.into_iter();
    let found = found.find(|row| row.store == name.store && row.shard == name.shard);
    found.map(Json).ok_or_else(|| no_shard(name))
}

/// The load of a shard in the last hour, a sample for each 10 s, from each node while it led the shard: `cpu_cores` is CPU time per
/// second, as the balancer reckons with it, `wait_ms` how long a request has waited before it was proposed, on average; further
/// `requests_per_s` and `log_bytes_per_s`.
#[utoipa::path(get, path = "/api/v1/shards/{store}/{shard}/history", operation_id = "get_shard_history", tag = "cluster", params(("store" = StoreName, Path, description = "The store"), ("shard" = u64, Path, description = "The number of the shard in its store"), HistoryQuery), responses((status = 200, description = "The samples of each node that led the shard", body = History)))]
pub(super) async fn shard_history(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment((store, shard)): Segment<(String, u64)>,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<History>, Problem> {
    let name = shard_name(&store, shard)?;
    let since = query.since()?;
    let budget = query.budget()?;
    let known = broker.cluster().shards;
    if !known
        .iter()
        .any(|of| of.store == name.store && of.shard == name.shard)
    {
        return Err(no_shard(name));
    }
    Ok(Json(
        broker.traffic().shard_history(name, since, budget).await?,
    ))
}

fn shard_name(store: &str, shard: u64) -> Result<ShardName, Problem> {
    let accepted = "session, inbox or retain";
    match store.parse() {
        Ok(store) => Ok(ShardName { store, shard }),
        Err(_) => Err(wrong_parameter("store", store, accepted)),
    }
}

fn no_shard(ShardName { store, shard }: ShardName) -> Problem {
    let why = format!("there is no shard {shard} of the {store} store");
    Problem::new(Kind::NotFound, why).with("kind", "shard")
}

/// The listeners of all nodes.
#[utoipa::path(get, path = "/api/v1/listeners", operation_id = "list_listeners", tag = "cluster", params(BudgetParams), responses((status = 200, description = "The listeners", body = Page<ListenerRow>)))]
pub(super) async fn listeners(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Page<ListenerRow>>, Problem> {
    Ok(Json(broker.listeners(budget.budget()?).await?.page()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AlarmQuery {
    /// `active`: those that are raised; `ended`: those that have ended, the latest first. `active` if it is not given.
    #[param(value_type = Option<AlarmState>, inline)]
    state: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// Which alarms.
#[derive(Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "snake_case")]
enum AlarmState {
    Active,
    Ended,
}

/// What a person should see to, on all nodes, or what somebody should have seen to: each node remembers the last 256 alarms that
/// have ended, also over a restart.
#[utoipa::path(get, path = "/api/v1/alarms", operation_id = "list_alarms", tag = "cluster", params(AlarmQuery), responses((status = 200, description = "The alarms", body = Page<Alarm>)))]
pub(super) async fn alarms(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<AlarmQuery>,
) -> Result<Json<Page<Alarm>>, Problem> {
    let state = word("state", query.state.as_deref(), "active or ended", |text| {
        let all = [("active", AlarmState::Active), ("ended", AlarmState::Ended)];
        all.into_iter().find(|(name, _)| *name == text)
    })?;
    let budget = super::input::budget(query.budget_ms.as_deref())?;
    if let Some((_, AlarmState::Ended)) = state {
        return Ok(Json(broker.traffic().ended_alarms(budget).await?.page()));
    }
    let Gathered { all, partial } = broker.nodes(budget).await?;
    let health = all.into_iter().filter_map(|node| node.health);
    let all = health.flat_map(|health| health.alarms).collect();
    Ok(Json(Page::whole(all, partial)))
}

/// The body of `join`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Join {
    /// Host and port of a member.
    seed: String,
}

/// The body of `evict`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Evict {
    /// Its identifier or name.
    node: String,
    /// Also if shards lose their majority by it.
    #[serde(default)]
    force: bool,
}

/// The number of a shard in its store.
#[derive(Deserialize, ToSchema)]
struct Shard(u64);

/// The body of `transfer-leader`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferLeader {
    store: StoreName,
    shard: Shard,
    /// The identifier or name of the node that is to lead.
    to: String,
}

/// The body of `split`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Split {
    store: StoreName,
    shard: Shard,
    /// The first slot of the new shard.
    #[serde(default)]
    #[schema(value_type = Option<u16>)]
    at: Option<Slot>,
}

/// The body of `rebalance`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rebalance {
    /// How many clients each node moves per second; without it `clusterConfig.drainClientsPerSecond` of the node. 0: none any more.
    #[serde(default)]
    clients_per_second: Option<u32>,
}

/// Has the node look for members at another address, too.
#[utoipa::path(post, path = "/api/v1/cluster/join", operation_id = "join_cluster", tag = "cluster", request_body = Join, responses((status = 204, description = "The node looks for members there")))]
pub(super) async fn join(
    State(broker): State<Arc<dyn Broker>>,
    Body(Join { seed }): Body<Join>,
) -> Result<StatusCode, Problem> {
    match Endpoint::new(&seed) {
        Some(seed) => carry_out(broker, Change::Join { seed }).await,
        None => Err(wrong_field("/seed", &seed.into(), "host:port")),
    }
}

/// Has the node leave the cluster for ever: its clients and its replicas go elsewhere, then it ends.
#[utoipa::path(post, path = "/api/v1/cluster/leave", operation_id = "leave_cluster", tag = "cluster", responses((status = 204, description = "The node has begun to leave")))]
pub(super) async fn leave(State(broker): State<Arc<dyn Broker>>) -> Result<StatusCode, Problem> {
    carry_out(broker, Change::Leave).await
}

/// Has the node send its clients elsewhere and give up leading shards.
#[utoipa::path(post, path = "/api/v1/cluster/drain", operation_id = "drain_cluster_member", tag = "cluster", responses((status = 204, description = "The node has begun to drain")))]
pub(super) async fn drain(State(broker): State<Arc<dyn Broker>>) -> Result<StatusCode, Problem> {
    carry_out(broker, Change::Drain).await
}

/// Takes a node out that will not come back.
#[utoipa::path(post, path = "/api/v1/cluster/evict", operation_id = "evict_cluster_member", tag = "cluster", request_body = Evict, responses((status = 204, description = "The node is evicted")))]
pub(super) async fn evict(
    State(broker): State<Arc<dyn Broker>>,
    Body(Evict { node, force }): Body<Evict>,
) -> Result<StatusCode, Problem> {
    let node = member::field(&broker, "/node", &node)?;
    carry_out(broker, Change::Evict { node, force }).await
}

/// Lets another voter lead a shard.
#[utoipa::path(post, path = "/api/v1/cluster/transfer-leader", operation_id = "transfer_leader", tag = "cluster", request_body = TransferLeader, responses((status = 204, description = "The other voter is asked to lead the shard")))]
pub(super) async fn transfer_leader(
    State(broker): State<Arc<dyn Broker>>,
    Body(body): Body<TransferLeader>,
) -> Result<StatusCode, Problem> {
    let TransferLeader {
        store,
        shard: Shard(shard),
        to,
    } = body;
    let to = member::field(&broker, "/to", &to)?;
    carry_out(broker, Change::TransferLeader { store, shard, to }).await
}

/// Splits a shard: a new one gets its upper slots.
#[utoipa::path(post, path = "/api/v1/cluster/split", operation_id = "split_shard", tag = "cluster", request_body = Split, responses((status = 204, description = "The split has begun")))]
pub(super) async fn split(
    State(broker): State<Arc<dyn Broker>>,
    Body(body): Body<Split>,
) -> Result<StatusCode, Problem> {
    let Split {
        store,
        shard: Shard(shard),
        at,
    } = body;
    carry_out(broker, Change::Split { store, shard, at }).await
}

/// Finishes an upgrade: the level of all shards is raised to the highest that each node knows. Afterwards no node goes back to the version
/// before.
#[utoipa::path(post, path = "/api/v1/cluster/upgrade", operation_id = "finish_upgrade", tag = "cluster", responses((status = 204, description = "The level is being raised")))]
pub(super) async fn finish_upgrade(
    State(broker): State<Arc<dyn Broker>>,
) -> Result<StatusCode, Problem> {
    carry_out(broker, Change::FinishUpgrade).await
}

/// Moves clients from nodes that have more than their share to the others, at a pace. It stops by itself.
#[utoipa::path(post, path = "/api/v1/cluster/rebalance", operation_id = "rebalance", tag = "cluster", request_body = Rebalance, responses((status = 204, description = "The nodes begin, or stop, within a second or two")))]
pub(super) async fn rebalance(
    State(broker): State<Arc<dyn Broker>>,
    Body(body): Body<Rebalance>,
) -> Result<StatusCode, Problem> {
    let Rebalance { clients_per_second } = body;
    carry_out(broker, Change::Rebalance { clients_per_second }).await
}

/// Begins a change on a thread that may wait.
async fn carry_out(broker: Arc<dyn Broker>, change: Change) -> Result<StatusCode, Problem> {
    tracing::info!(?change, "a change of the cluster is asked for");
    match tokio::task::spawn_blocking(move || broker.change(change)).await {
        Ok(Ok(())) => Ok(StatusCode::NO_CONTENT),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(error) => Err(Problem::new(Kind::Internal, error)),
    }
}
