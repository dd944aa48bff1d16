//! What the nodes know of one client.

use std::sync::Arc;
use std::time::Duration;

use admin::cluster::NodeId;
use admin::page::{Missing, MissingReason};
use admin::problem::{Kind, Problem};
use inspection::merge;
use inspection::{Answer, ClientPart, Question};

use super::gather;
use super::state::Inspect;

/// What each node knows of a client, and which have not answered.
pub(super) async fn client_parts(
    inspect: &Arc<Inspect>,
    client_id: &str,
    budget: Duration,
) -> (Vec<(NodeId, String, ClientPart)>, Vec<Missing>) {
    let client_id = client_id.to_owned();
    let answers = gather::all(inspect, Question::Client { client_id }, budget).await;
    gather::sort(answers, "client", |answer| match answer {
        Answer::Client(part) => Some(*part),
        _ => None,
    })
}

/// What is said of a client that no node that has answered knows.
pub(super) fn not_found(client_id: &str, partial: Vec<Missing>) -> Problem {
    if partial.is_empty() {
        let shown = broker_core::excerpt(client_id);
        let why = format!("no node knows a connection or a session of {shown:?}");
        return Problem::new(Kind::NotFound, why).with("kind", "client");
    }
    let silent = partial.iter().filter_map(|missing| missing.node);
    let silent: Vec<String> = silent.map(|node| node.to_string()).collect();
    let why = "the nodes that have answered do not know the client, and others have not answered";
    Problem::new(Kind::NodeSilent, why).with("nodes", silent)
}

/// No node has answered.
pub(super) fn nobody(partial: &[Missing]) -> Problem {
    let is_busy = |missing: &Missing| missing.reason == MissingReason::Busy;
    let problem = if partial.iter().all(is_busy) {
        let why = "all nodes answer as many questions of this kind as they work on at once";
        Problem::new(Kind::TooManyRequests, why).with("limit", "scans")
    } else {
        Problem::new(Kind::NotReady, "no node has answered in time")
    };
    let partial = serde_json::to_value(partial).unwrap_or_default();
    problem.with("partial", partial)
}

/// The ranges of slots that nobody has answered for.
pub(super) fn uncovered(store: &str, covered: impl Iterator<Item = (u16, u16)>) -> Option<Missing> {
    let missing = merge::uncovered(store, covered);
    (!missing.is_empty()).then(|| Missing {
        node: None,
        node_name: String::new(),
        reason: MissingReason::NoLeader,
        missing,
    })
}
