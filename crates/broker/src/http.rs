//! The HTTP port: metrics, health, and the drops that people ask about.
//!
//! It reads, and changes nothing; by default it listens on a loopback address.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};

use crate::drops::{Drops, Reason};
use crate::node::Node;

/// Recent drops that are listed if the caller names no number.
const DEFAULT_LIMIT: usize = 100;

#[derive(Clone)]
struct Api {
    node: Arc<Node>,
    registry: Arc<Registry>,
}

pub(crate) fn router(node: Arc<Node>) -> Router {
    let registry = Arc::new(crate::metrics::registry(Arc::clone(&node)));
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/api/v1/drops", get(drops))
        .route("/api/v1/drops/totals", get(totals))
        .with_state(Api { node, registry })
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

async fn ready(State(api): State<Api>) -> (StatusCode, &'static str) {
    if api.node.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
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
            "time": humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(drop.at_ms)).to_string(),
            "client_id": drop.client_id,
            "topic": drop.topic,
            "reason": drop.reason,
            "qos": drop.qos,
            "bytes": drop.bytes,
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
