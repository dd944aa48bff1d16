//! The HTTP port: metrics, health, the drops that people ask about, the bans, and the cluster.
//!
//! Invariant: a request that changes something needs the token; such routes stand in [`changes`] and nowhere
//! else. Reading is free; by default the port listens on a loopback address.

mod bans;
mod cluster;
mod serve;
mod token;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::{DefaultBodyLimit, FromRef, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};

use crate::ban_file::BanFile;
use crate::control;
use crate::node::Node;
use broker_core::{Drops, Reason};

use cluster::Control;

pub(crate) use serve::serve;
pub(crate) use token::Token;

/// Recent drops that are listed if the caller names no number.
const DEFAULT_LIMIT: usize = 100;

const NOT_READY: &str = "not ready\n";

/// The largest body of a request, in bytes.
const LARGEST_BODY: usize = 64 * 1024;

#[derive(Clone)]
struct Api {
    node: Arc<Node>,
    registry: Arc<Registry>,
    ban_file: Arc<BanFile>,
    cluster: Control,
}

impl FromRef<Api> for Control {
    fn from_ref(api: &Api) -> Self {
        api.cluster.clone()
    }
}

pub(crate) fn router(node: Arc<Node>, ban_file: Arc<BanFile>, cluster: Control) -> Router {
    let api = Api {
        registry: Arc::new(crate::metrics::registry(Arc::clone(&node))),
        node,
        ban_file,
        cluster,
    };
    let may_change = middleware::from_fn_with_state(api.clone(), token::authorize);
    reads()
        .merge(changes().route_layer(may_change))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(middleware::from_fn(in_time))
        .with_state(api)
}

/// What is answered before the node serves.
pub(crate) fn not_ready() -> Router {
    let says_no = || async { (StatusCode::SERVICE_UNAVAILABLE, NOT_READY) };
    Router::new()
        .route("/healthz", get(healthy))
        .fallback(says_no)
}

fn changes() -> Router<Api> {
    Router::new()
        .route("/api/v1/bans", post(bans::add))
        .route("/api/v1/bans/{id}", delete(bans::remove))
        .merge(cluster::changes())
}

fn reads() -> Router<Api> {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/api/v1/backpressure", get(holders))
        .route("/api/v1/drops", get(drops))
        .route("/api/v1/drops/sessions", get(sessions))
        .route("/api/v1/drops/totals", get(totals))
        .route("/api/v1/bans", get(bans::list))
        .merge(cluster::reads())
}

/// Ends a request that takes too long, for example because its body does not come.
async fn in_time(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(serve::REQUEST_TIME, next.run(request)).await;
    answer.unwrap_or_else(|_| {
        sentence(
            StatusCode::REQUEST_TIMEOUT,
            "the request took too long to come",
        )
    })
}

/// An answer for people.
fn sentence(status: StatusCode, text: impl std::fmt::Display) -> Response {
    (status, format!("{text}\n")).into_response()
}

async fn metrics(State(api): State<Api>) -> impl IntoResponse {
    match crate::metrics::text(&api.registry) {
        Ok(text) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn healthy() -> &'static str {
    "ok\n"
}

/// A node whose shards have no leader is ready: clean sessions need none, and all nodes would say no at once. The
/// answer names the shards.
async fn ready(State(api): State<Api>) -> (StatusCode, String) {
    if !api.node.rim.ready.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, NOT_READY.to_owned());
    }
    let mut text = "ready\n".to_owned();
    for (store, shard) in control::without_leader(&api.node) {
        text.push_str(&format!(
            "no node leads shard {shard} of the {store} store\n"
        ));
    }
    (StatusCode::OK, text)
}

#[derive(serde::Deserialize)]
struct DropsQuery {
    limit: Option<usize>,
}

async fn drops(State(api): State<Api>, Query(query): Query<DropsQuery>) -> Json<Value> {
    let recent = Drops::recent(
        &api.node.drops,
        query
            .limit
            .unwrap_or(DEFAULT_LIMIT)
            .min(api.node.recent_drops),
    );
    let rows = recent.into_iter().map(|drop| {
        json!({
            "time": time_of(drop.at_ms),
            "client_id": drop.client_id,
            "topic": drop.topic,
            "reason": drop.reason,
            "qos": drop.qos,
            "bytes": drop.bytes,
        })
    });
    Json(Value::Array(rows.collect()))
}

/// A time in ms of Unix time, as people read it.
fn time_of(at_ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at_ms)).to_string()
}

/// Who has held whom back, the latest first.
async fn holders(State(api): State<Api>, Query(query): Query<DropsQuery>) -> Json<Value> {
    let pairs = api.node.slow.list(query.limit.unwrap_or(DEFAULT_LIMIT));
    let rows = pairs.into_iter().map(|pair| {
        json!({
            "subscriber": pair.subscriber,
            "durable": pair.is_durable,
            "publisher": pair.publisher,
            "times": pair.times,
            "last": time_of(pair.last.0),
        })
    });
    Json(Value::Array(rows.collect()))
}

/// What sessions have lost, those first that have lost something last.
async fn sessions(State(api): State<Api>, Query(query): Query<DropsQuery>) -> Json<Value> {
    let drops = Drops::by_session(&api.node.drops, query.limit.unwrap_or(DEFAULT_LIMIT));
    let rows = drops.into_iter().map(|drops| {
        let total = drops.total();
        let reasons = drops.counts.iter();
        let reasons: Map<String, Value> = reasons
            .map(|(reason, count)| (reason.as_str().to_owned(), (*count).into()))
            .collect();
        json!({
            "client_id": drops.client_id,
            "dropped": total,
            "reasons": reasons,
            "first": time_of(drops.first.0),
            "last": time_of(drops.last.0),
        })
    });
    Json(Value::Array(rows.collect()))
}

async fn totals(State(api): State<Api>) -> Json<Value> {
    let count = |reason| {
        api.node
            .drops
            .iter()
            .map(|drops| drops.count(reason))
            .sum::<u64>()
    };
    let totals: Map<String, Value> = Reason::all()
        .map(|reason| (reason.as_str().to_owned(), count(reason).into()))
        .collect();
    Json(Value::Object(totals))
}
