//! `/events`: what happens, as it happens.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep};
use utoipa::IntoParams;

use super::input::{Params, word};
use crate::api::{Event, EventKind};
use crate::backend::{Broker, EventFilter};
use crate::cluster::NodeId;
use crate::connection::LONGEST_STREAM;
use crate::problem::Problem;
use crate::streams::StreamTurn;

/// How often the nodes are asked.
const PAUSE: Duration = Duration::from_millis(500);

/// How long the nodes have for their answer.
const BUDGET: Duration = Duration::from_millis(400);

/// How often something is sent if nothing happens.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Only these types, with commas between them, such as `client.connected,client.disconnected`.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kinds: Option<String>,
    /// Only what concerns this client.
    client_id: Option<String>,
    /// Only what concerns clients whose identifiers begin so.
    prefix: Option<String>,
    /// Only what concerns topics that this filter matches.
    topic: Option<String>,
    /// Only what happens on this node.
    node: Option<String>,
    /// The `id` of an event: what came behind it comes first. The header `Last-Event-ID` says the same, and counts more.
    after: Option<String>,
}

/// What happens on all nodes, as server-sent events: `event` is the type, `data` an object, `id` a position from which a later request goes
/// on. `hello` comes first, `gap` says that events were missed, `partial` which nodes do not answer, `end` that the stream ends, after an hour. 32 streams a node.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(EventsQuery), responses((status = 200, body = Event, content_type = "text/event-stream")))]
pub(super) async fn stream(
    turn: StreamTurn,
    State(broker): State<Arc<dyn Broker>>,
    headers: HeaderMap,
    Params(query): Params<EventsQuery>,
) -> Result<Response, Problem> {
    let known = "types of events with commas between them";
    let kinds = word("type", query.kinds.as_deref(), known, |text| {
        let names: BTreeSet<&str> = text.split(',').collect();
        let kinds = EventKind::ALL.into_iter();
        let kinds: Vec<EventKind> = kinds.filter(|kind| names.contains(kind.name())).collect();
        (kinds.len() == names.len()).then_some(kinds)
    })?;
    let node = query.node.as_deref();
    let filter = EventFilter {
        kinds: kinds.unwrap_or_default(),
        client_id: query.client_id,
        prefix: query.prefix,
        topic: query.topic,
        node: word("node", node, "16 hexadecimal digits", |text| {
            text.parse::<NodeId>().ok()
        })?,
    };
    let last = headers.get(LAST_EVENT_ID);
    let last = last.and_then(|id| id.to_str().ok()).map(str::to_owned);
    // Whether the position can be used is said at once.
    let first = broker
        .events(filter.clone(), last.or(query.after), BUDGET)
        .await?;
    let mut watch = Watch {
        broker,
        filter,
        position: first.position.clone(),
        lines: VecDeque::new(),
        silent: Vec::new(),
        next: Instant::now() + PAUSE,
        ends: Instant::now() + LONGEST_STREAM,
        has_ended: false,
        turn,
    };
    watch.line("hello", &json!({ "step_ms": PAUSE.as_millis() }));
    watch.add(first);
    let stream = Sse::new(watch.stream()).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE));
    let mut response = stream.into_response();
    // The connection has no place among the others any more.
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    Ok(response)
}

/// One who watches.
struct Watch {
    broker: Arc<dyn Broker>,
    filter: EventFilter,
    position: String,
    /// What is to be sent. Nothing is asked for before all of it is.
    lines: VecDeque<Line>,
    /// Nodes that have not answered the last time.
    silent: Vec<Option<NodeId>>,
    next: Instant,
    ends: Instant,
    has_ended: bool,
    turn: StreamTurn,
}

impl Watch {
    fn stream(self) -> impl Stream<Item = Result<Line, Infallible>> {
        unfold(self, |mut watch| async move {
            loop {
                if let Some(line) = watch.lines.pop_front() {
                    return Some((Ok(line), watch));
                }
                if watch.has_ended {
                    return None;
                }
                watch.ask().await;
            }
        })
    }

    async fn ask(&mut self) {
        sleep(self.next.saturating_duration_since(Instant::now())).await;
        if Instant::now() >= self.ends {
            self.has_ended = true;
            self.line("end", &json!({ "reason": "an-hour" }));
            return;
        }
        self.next = Instant::now() + PAUSE;
        if let Err(problem) = self.turn.check().await {
            return self.end(&problem);
        }
        let (filter, position) = (self.filter.clone(), self.position.clone());
        match self.broker.events(filter, Some(position), BUDGET).await {
            Ok(happened) => self.add(happened),
            Err(problem) => self.end(&problem),
        }
    }

    fn end(&mut self, problem: &Problem) {
        self.has_ended = true;
        let reason = problem.kind.row().name;
        self.line("end", &json!({ "reason": reason }));
    }

    fn add(&mut self, happened: crate::api::Happened) {
        let silent: Vec<Option<NodeId>> = happened
            .partial
            .iter()
            .map(|missing| missing.node)
            .collect();
        if silent != self.silent {
            self.line("partial", &happened.partial);
            self.silent = silent;
        }
        for gap in &happened.gaps {
            self.line("gap", gap);
        }
        for event in &happened.events {
            self.line(event.kind.name(), event);
        }
        self.position = happened.position;
        // Behind all of them: who reads on from there has had them.
        if let Some(line) = self.lines.pop_back() {
            self.lines.push_back(line.id(&self.position));
        }
        if happened.more {
            self.next = Instant::now();
        }
    }

    fn line(&mut self, name: &str, data: &impl Serialize) {
        let line = Line::default().event(name);
        let line = line.json_data(data);
        self.lines
            .push_back(line.expect("strings and numbers are JSON on one line"));
    }
}
