//! What monitors ask: `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api_state::Api;
use crate::backend::{Broker, MetricsFormat};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

pub(super) const NOT_READY: &str = "not ready\n";

pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

/// A node whose shards have no leader is ready: clean sessions need none, and all nodes would say no at once. The answer names
/// the shards, or says in a line each why the node is not ready.
pub(super) async fn ready(State(broker): State<Arc<dyn Broker>>) -> (StatusCode, String) {
    let (is_ready, lines) = broker.readiness();
    let (status, first) = match is_ready {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, NOT_READY),
    };
    let mut text = first.to_owned();
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    (status, text)
}

/// In the format that the `Accept` header prefers; text if it names neither.
pub(super) async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let format = preferred(accepted.filter_map(|value| value.to_str().ok()));
    match api.metrics(format).await {
        Ok(bytes) => {
            let kind = match format {
                MetricsFormat::Text => TEXT,
                MetricsFormat::Protobuf => PROTOBUF,
            };
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], bytes).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The format that values of `Accept` prefer [RFC 9110, 12.5.1]. Protocol buffers are written for those who like them better than
/// any text.
fn preferred<'a>(accepted: impl Iterator<Item = &'a str>) -> MetricsFormat {
    let (mut text, mut protobuf) = (0.0, 0.0);
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let (mut quality, mut is_delimited) = (1.0_f32, false);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match (name.trim(), value.trim().trim_matches('"')) {
                ("q", value) => quality = value.parse().unwrap_or(0.0),
                ("encoding", value) => is_delimited = value == "delimited",
                _ => {}
            }
        }
        match kind {
            "application/vnd.google.protobuf" if is_delimited => protobuf = quality.max(protobuf),
            "text/plain" | "text/*" | "application/openmetrics-text" => text = quality.max(text),
            _ => {}
        }
    }
    match protobuf > text {
        true => MetricsFormat::Protobuf,
        false => MetricsFormat::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_buffers_are_for_those_who_prefer_them() {
        const FAMILY: &str =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
        let of = |accepted: &str| preferred(std::iter::once(accepted));
        for (accepted, expected) in [
            ("*/*".to_owned(), MetricsFormat::Text),
            ("text/html, */*;q=0.8".to_owned(), MetricsFormat::Text),
            (
                format!("{FAMILY};encoding=delimited"),
                MetricsFormat::Protobuf,
            ),
            (
                format!(
                    "{FAMILY}; encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
                ),
                MetricsFormat::Protobuf,
            ),
            (
                format!("text/plain;version=0.0.4;q=0.6,{FAMILY};encoding=delimited;q=0.5"),
                MetricsFormat::Text,
            ),
            (format!("{FAMILY};encoding=text"), MetricsFormat::Text),
            (
                format!("{FAMILY};encoding=delimited;q=x"),
                MetricsFormat::Text,
            ),
        ] {
            assert_eq!(of(&accepted), expected, "{accepted}");
        }
        assert_eq!(preferred(std::iter::empty()), MetricsFormat::Text);
    }
}
