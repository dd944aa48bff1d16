//! `/api/v1/cluster`: the cluster as this node sees it, and its change.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use config::Endpoint;
use serde::Deserialize;
use store_state::api::Slot;

use super::sentence;
use crate::cluster_control::{Change, ClusterControl, NodeId, Refusal, StoreName};

pub(super) type Control = Arc<dyn ClusterControl>;

/// The body of `join`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Join {
    /// Host and port of a member.
    seed: String,
}

/// The body of `evict`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Evict {
    node: NodeId,
    /// Also if shards lose their majority by it.
    #[serde(default)]
    force: bool,
}

/// The number of a shard in its store.
#[derive(Deserialize)]
struct Shard(u64);

/// The body of `transfer-leader`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransferLeader {
    store: StoreName,
    shard: Shard,
    to: NodeId,
}

/// The body of `split`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Split {
    store: StoreName,
    shard: Shard,
    /// The first slot of the new shard.
    #[serde(default)]
    at: Option<Slot>,
}

pub(super) fn reads<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Control: FromRef<S>,
{
    Router::new().route("/api/v1/cluster", get(status))
}

pub(super) fn changes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Control: FromRef<S>,
{
    Router::new()
        .route("/api/v1/cluster/join", post(join))
        .route("/api/v1/cluster/leave", post(leave))
        .route("/api/v1/cluster/drain", post(drain))
        .route("/api/v1/cluster/evict", post(evict))
        .route("/api/v1/cluster/transfer-leader", post(transfer_leader))
        .route("/api/v1/cluster/split", post(split))
}

async fn status(State(control): State<Control>) -> Response {
    Json(control.status()).into_response()
}

async fn join(State(control): State<Control>, body: Result<Json<Join>, JsonRejection>) -> Response {
    let Json(Join { seed }) = match body {
        Ok(body) => body,
        Err(rejection) => return refuse(&rejection),
    };
    match Endpoint::new(&seed) {
        Some(seed) => carry_out(control, Change::Join { seed }).await,
        None => sentence(StatusCode::BAD_REQUEST, "`seed` is to be host:port"),
    }
}

async fn leave(State(control): State<Control>) -> Response {
    carry_out(control, Change::Leave).await
}

async fn drain(State(control): State<Control>) -> Response {
    carry_out(control, Change::Drain).await
}

async fn evict(
    State(control): State<Control>,
    body: Result<Json<Evict>, JsonRejection>,
) -> Response {
    match body {
        Ok(Json(Evict { node, force })) => carry_out(control, Change::Evict { node, force }).await,
        Err(rejection) => refuse(&rejection),
    }
}

async fn transfer_leader(
    State(control): State<Control>,
    body: Result<Json<TransferLeader>, JsonRejection>,
) -> Response {
    match body {
        Ok(Json(TransferLeader {
            store,
            shard: Shard(shard),
            to,
        })) => carry_out(control, Change::TransferLeader { store, shard, to }).await,
        Err(rejection) => refuse(&rejection),
    }
}

async fn split(
    State(control): State<Control>,
    body: Result<Json<Split>, JsonRejection>,
) -> Response {
    match body {
        Ok(Json(Split {
            store,
            shard: Shard(shard),
            at,
        })) => carry_out(control, Change::Split { store, shard, at }).await,
        Err(rejection) => refuse(&rejection),
    }
}

fn refused(refusal: Refusal) -> Response {
    match refusal {
        Refusal::Unknown(why) => sentence(StatusCode::NOT_FOUND, why),
        Refusal::Conflict(why) => sentence(StatusCode::CONFLICT, why),
        Refusal::Unavailable(why) => sentence(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

fn refuse(rejection: &JsonRejection) -> Response {
    sentence(rejection.status(), rejection.body_text())
}

/// Begins a change on a thread that may wait.
async fn carry_out(control: Control, change: Change) -> Response {
    tracing::info!(?change, "a change of the cluster is asked for");
    match tokio::task::spawn_blocking(move || control.change(change)).await {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(refusal)) => refused(refusal),
        Err(error) => sentence(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

#[cfg(test)]
mod tests;
