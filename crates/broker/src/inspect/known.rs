//! What the nodes know of one client.

use std::sync::Arc;
use std::time::Duration;

use admin::cluster::NodeId;
use admin::page::Missing;
use admin::problem::{Kind, Problem};

use super::gather;
use super::question::{Answer, ClientPart, Question};
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
