//! `/events` and `/clients/{client_id}/watch`: what happens, as it happens.

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
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use utoipa::IntoParams;

use super::input::{Params, Segment, time, word};
use super::member;
use super::rates::{EVERY, Rates};
use crate::api::{ClientRates, Event, EventKind, WatchedClient};
use crate::backend::{Broker, EventFilter, Gathered};
use crate::cluster::NodeId;
use crate::connection::LONGEST_STREAM;
use crate::problem::Problem;
use crate::streams::StreamTurn;
use crate::worker;

/// How often the nodes are asked.
const PAUSE: Duration = Duration::from_millis(500);

/// How long the nodes have for their answer.
const BUDGET: Duration = Duration::from_millis(400);

/// How long a client is watched if it is not said, in s.
const WATCHED_S: u64 = 60;

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
    /// Only what happens on this node, by its identifier or name.
    node: Option<String>,
    /// The `id` of an event: what came behind it comes first. The header `Last-Event-ID` says the same, and counts more.
    after: Option<String>,
    /// The time, RFC 3339, from which on each node first sends the events that it keeps. Not together with `after`.
    since: Option<String>,
}

/// What happens on all nodes, as server-sent events: `event` is the type, `data` an object, `id` a position from which a later request goes
/// on. `hello` comes first, `gap` says that events were missed, `partial` which nodes do not answer, `end` that the stream ends, after an hour. 32 streams a node.
#[utoipa::path(get, path = "/api/v1/events", operation_id = "stream_events", tag = "events", params(EventsQuery), responses((status = 200, description = "A stream of events; the schema is that of `data`", body = Event, content_type = "text/event-stream")))]
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
        node: member::parameter(&broker, node)?,
        since_ms: time("since", query.since.as_deref())?,
    };
    if filter.since_ms.is_some() && query.after.is_some() {
        let why = "`since` and `after` are not to be given together";
        return Err(Problem::parameter("after", why));
    }
    // A browser that reconnects sends the header with the same address: the header counts more than `since`.
    let last = headers.get(LAST_EVENT_ID);
    let last = last.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let watch = Watch::begin(turn, broker, (filter, last.or(query.after)), PAUSE).await?;
    Ok(watch.answer())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchQuery {
    /// How long, 1 to 3600 s; 60 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 3600)]
    seconds: Option<String>,
}

/// What one client does, as server-sent events: those of `/events` that concern it, and `rates` each second, with its messages and bytes
/// in and out. Its node counts all of its packets meanwhile. `end` comes last. It is one of the 32 streams of a node.
#[utoipa::path(get, path = "/api/v1/clients/{client_id}/watch", operation_id = "watch_client", tag = "events", params(("client_id" = String, Path, description = "The client identifier"), WatchQuery), responses((status = 200, description = "A stream of events; the schema is that of `data` of `rates`", body = ClientRates, content_type = "text/event-stream")))]
pub(super) async fn watch(
    turn: StreamTurn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(query): Params<WatchQuery>,
) -> Result<Response, Problem> {
    let most = LONGEST_STREAM.as_secs();
    let seconds = word("seconds", query.seconds.as_deref(), "1 to 3600", |text| {
        text.parse().ok().filter(|s| (1..=most).contains(s))
    })?;
    let filter = EventFilter {
        client_id: Some(client_id.clone()),
        ..EventFilter::default()
    };
    let mut watch = Watch::begin(turn, broker, (filter, None), EVERY).await?;
    let now = Instant::now();
    watch.ends = now + Duration::from_secs(seconds.unwrap_or(WATCHED_S));
    watch.rates = Some(Rates::new(client_id, now));
    Ok(watch.answer())
}

/// One who watches.
struct Watch {
    broker: Arc<dyn Broker>,
    filter: EventFilter,
    position: String,
    /// Of the client that is watched.
    rates: Option<Rates>,
    /// What is to be sent. Nothing is asked for before all of it is.
    lines: VecDeque<Line>,
    /// Nodes that have not answered the last time.
    silent: Vec<Option<NodeId>>,
    next: Instant,
    ends: Instant,
    has_ended: bool,
    turn: StreamTurn,
    /// Where answers are made.
    thread: Handle,
}

impl Watch {
    /// Whether the position can be used is said at once. `step`: what `hello` says how often something comes.
    async fn begin(
        turn: StreamTurn,
        broker: Arc<dyn Broker>,
        (filter, after): (EventFilter, Option<String>),
        step: Duration,
    ) -> Result<Self, Problem> {
        let first = broker.events(filter.clone(), after, BUDGET).await?;
        let now = Instant::now();
        let mut watch = Self {
            broker,
            filter,
            position: first.position.clone(),
            rates: None,
            lines: VecDeque::new(),
            silent: Vec::new(),
            next: now + PAUSE,
            ends: now + LONGEST_STREAM,
            has_ended: false,
            turn,
            thread: Handle::current(),
        };
        watch.line("hello", &json!({ "step_ms": step.as_millis() }));
        watch.add(first);
        Ok(watch)
    }

    fn answer(mut self) -> Response {
        self.turn.begin();
        let stream = Sse::new(self.stream());
        let mut response = stream
            .keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE))
            .into_response();
        // The connection has no place among the others any more.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        response
    }

    fn stream(self) -> impl Stream<Item = Result<Line, Infallible>> {
        unfold(self, |mut watch| async move {
            loop {
                if let Some(line) = watch.lines.pop_front() {
                    return Some((Ok(line), watch));
                }
                if watch.has_ended {
                    return None;
                }
                // Another thread sends what is told; it does not make it.
                let thread = watch.thread.clone();
                let asked = worker::run(&thread, async move {
                    watch.ask().await;
                    watch
                });
                // An error: the node stops.
                watch = asked.await.ok()?;
            }
        })
    }

    async fn ask(&mut self) {
        sleep(self.next.saturating_duration_since(Instant::now())).await;
        if Instant::now() >= self.ends {
            self.has_ended = true;
            let reason = if self.rates.is_some() {
                "time"
            } else {
                "an-hour"
            };
            self.line("end", &json!({ "reason": reason }));
            return;
        }
        self.next = Instant::now() + PAUSE;
        if let Err(problem) = self.turn.check().await {
            return self.end(&problem);
        }
        let (filter, position) = (self.filter.clone(), self.position.clone());
        match self.broker.events(filter, Some(position), BUDGET).await {
            Ok(happened) => self.add(happened),
            Err(problem) => return self.end(&problem),
        }
        let due = self.rates.as_ref();
        let due = due.filter(|rates| rates.due <= Instant::now());
        if let Some(client_id) = due.map(|rates| rates.client_id.clone()) {
            match self.broker.traffic().watched(client_id, BUDGET).await {
                Ok(counted) => self.add_counted(counted),
                Err(problem) => self.end(&problem),
            }
        }
    }

    fn add_counted(&mut self, counted: Gathered<Vec<WatchedClient>>) {
        let rates = self.rates.as_mut();
        let rates = rates.expect("who has asked for rates of a client watches one");
        let told = rates.handle(counted, Instant::now());
        self.line("rates", &told);
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
