//! `/nodes/{node}/profile`: what goes on inside the process of a node.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::once;
use serde::Deserialize;
use tokio::runtime::Handle;
use utoipa::IntoParams;

use super::input::{Params, Segment, word};
use super::member;
use crate::api::{CpuProfile, MemoryProfile, ThreadsUsage};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::problem::Problem;
use crate::streams::StreamTurn;
use crate::worker;

/// How long a profile lasts if it is not said, in s.
const SECONDS: u64 = 10;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CpuQuery {
    /// How long, 1 to 60 s; 10 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 60)]
    seconds: Option<String>,
    /// Whether the node that is asked names the functions, as far as its machine has symbols of the build: `true` or `false`. It is `false` if it is not given.
    #[param(value_type = Option<bool>)]
    functions: Option<String>,
}

/// Why the answer breaks off.
type Unsent = Box<dyn std::error::Error + Send + Sync>;

/// Where the CPU time of a node's process goes from now on: the answer comes when the time is over, and the profile ends with the connection, that of
/// another node within 10 s. One at a time for each node (409). Any node answers for any other, if that runs a version which tells other nodes (409). It is one of the 32 streams of the node that is asked.
#[utoipa::path(post, path = "/api/v1/nodes/{node}/profile/cpu", operation_id = "profile_cpu", tag = "cluster", params(("node" = String, Path, description = "The identifier of the node, or its name"), CpuQuery), responses((status = 200, description = "The profile", body = CpuProfile)))]
pub(super) async fn cpu(
    mut turn: StreamTurn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(node): Segment<String>,
    Params(query): Params<CpuQuery>,
) -> Result<Response, Problem> {
    let node = member::segment(&broker, &node)?;
    let seconds = word("seconds", query.seconds.as_deref(), "1 to 60", |text| {
        text.parse().ok().filter(|s| (1..=60).contains(s))
    })?;
    let functions = word(
        "functions",
        query.functions.as_deref(),
        "`true` or `false`",
        |text| text.parse::<bool>().ok(),
    )?;
    let lasts = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let profiles = broker.processes().profiles;
    let profile = profiles.cpu(node, lasts).await?;
    turn.begin();
    // Another thread sends the answer; it does not make it.
    let thread = Handle::current();
    let text = async move {
        let _turn = turn;
        let made = worker::run(&thread, async move {
            let made = profile.await.inspect_err(|problem| {
                tracing::warn!(
                    why = problem.detail,
                    "another node did not send its CPU profile"
                );
            });
            let mut profile = made.map_err(|problem| problem.detail)?;
            if functions == Some(true) {
                profile = profiles.with_functions(profile).await;
            }
            Ok::<_, Unsent>(serde_json::to_vec(&profile)?)
        });
        // An error: a node stops. The answer then breaks off.
        Ok::<_, Unsent>(Bytes::from(made.await??))
    };
    let json = HeaderValue::from_static("application/json");
    // The connection has no place among the others any more.
    let close = HeaderValue::from_static("close");
    let headers = [(header::CONTENT_TYPE, json), (header::CONNECTION, close)];
    Ok((headers, Body::from_stream(once(text))).into_response())
}

/// What the threads of a node's process have used since they started. Any node answers for any other, if that runs a version which tells other nodes (409).
#[utoipa::path(get, path = "/api/v1/nodes/{node}/profile/threads", operation_id = "profile_threads", tag = "cluster", params(("node" = String, Path, description = "The identifier of the node, or its name")), responses((status = 200, description = "The threads", body = ThreadsUsage)))]
pub(super) async fn threads(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(node): Segment<String>,
) -> Result<Json<ThreadsUsage>, Problem> {
    let node = member::segment(&broker, &node)?;
    Ok(Json(broker.processes().profiles.threads(node).await?))
}

/// What takes the memory of a node's process: each part counts its own now, and the rows together are the resident memory. One at a time (409). Any
/// node answers for any other, if that runs a version which tells other nodes (409) and has counted within 5 s (503).
#[utoipa::path(get, path = "/api/v1/nodes/{node}/profile/memory", operation_id = "profile_memory", tag = "cluster", params(("node" = String, Path, description = "The identifier of the node, or its name")), responses((status = 200, description = "The parts", body = MemoryProfile)))]
pub(super) async fn memory(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(node): Segment<String>,
) -> Result<Json<MemoryProfile>, Problem> {
    let node = member::segment(&broker, &node)?;
    Ok(Json(broker.processes().profiles.memory(node).await?))
}
