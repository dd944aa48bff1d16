//! What monitors ask: `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::backend::Broker;

pub(super) const NOT_READY: &str = "not ready\n";

pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

/// A node whose shards have no leader is ready: clean sessions need none, and all nodes would say no at once. The answer names
/// the shards.
pub(super) async fn ready(State(broker): State<Arc<dyn Broker>>) -> (StatusCode, String) {
    let (is_ready, lines) = broker.readiness();
    if !is_ready {
        return (StatusCode::SERVICE_UNAVAILABLE, NOT_READY.to_owned());
    }
    let mut text = "ready\n".to_owned();
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    (StatusCode::OK, text)
}

pub(super) async fn metrics(State(broker): State<Arc<dyn Broker>>) -> Response {
    match broker.metrics() {
        Ok(text) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
