//! A question to all nodes, and who has not answered it.

use std::sync::Arc;
use std::time::Duration;

use admin::cluster::{ClusterStatus, NodeId, Reach};
use admin::page::{Missing, MissingReason};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use inspection::{Answer, Asked, MessagesAnswer, Question, Unreadable};
use peer_protocol::{INSPECTION_SINCE, PeerRequest};
use tokio::time::{Instant, timeout_at};

use super::state::Inspect;
use crate::clustered::Clustered;
use crate::peers::answerer::Answerer;

/// What is left of the time for an answer when another node is to have answered.
const RESERVE: Duration = Duration::from_millis(50);

/// What a question to all nodes takes at least.
pub(super) const SHORTEST: Duration = Duration::from_millis(60);

/// The answer of a node.
#[derive(Debug)]
pub(super) struct OfNode {
    pub(super) node: NodeId,
    pub(super) name: String,
    pub(super) answer: Result<Answer, MissingReason>,
}

impl OfNode {
    /// That the node's part is missing.
    pub(super) fn missing(&self, what: &str) -> Option<Missing> {
        let reason = match &self.answer {
            Ok(_) => return None,
            Err(reason) => *reason,
        };
        Some(Missing {
            node: Some(self.node),
            node_name: self.name.clone(),
            reason,
            missing: vec![what.to_owned()],
        })
    }
}

/// The parts of those that have answered, and what is missing.
pub(super) fn sort<T>(
    answers: Vec<OfNode>,
    what: &str,
    part: impl Fn(Answer) -> Option<T>,
) -> (Vec<(NodeId, String, T)>, Vec<Missing>) {
    let (mut parts, mut partial) = (Vec::new(), Vec::new());
    for mut of_node in answers {
        if let Ok(answer) = of_node.answer {
            match part(answer) {
                Some(part) => {
                    parts.push((of_node.node, of_node.name, part));
                    continue;
                }
                // It answers something else than was asked.
                None => of_node.answer = Err(MissingReason::Failed),
            }
        }
        partial.extend(of_node.missing(what));
    }
    (parts, partial)
}

/// Asks all nodes, this one included, in the order of their identifiers.
pub(super) async fn all(
    inspect: &Arc<Inspect>,
    question: Question,
    budget: Duration,
) -> Vec<OfNode> {
    let status = inspect.control.status();
    let nodes = nodes(&status, &inspect.name);
    let ids: Vec<NodeId> = nodes.iter().map(|(node, ..)| *node).collect();
    some(inspect, &nodes, &ids, |_| question.clone(), budget).await
}

/// Asks some nodes, each its own question.
pub(super) async fn some(
    inspect: &Arc<Inspect>,
    nodes: &[(NodeId, String, Reach)],
    ids: &[NodeId],
    question: impl Fn(NodeId) -> Question,
    budget: Duration,
) -> Vec<OfNode> {
    let deadline = Instant::now() + budget;
    let own = NodeId(inspect.node.store().node());
    let asked = nodes.iter().filter(|(node, ..)| ids.contains(node));
    let answers = asked.map(|(node, name, reach)| {
        let question = question(*node);
        async move {
            let answer = match node {
                node if *node == own => here(inspect, question, deadline).await,
                // Nobody waits for a node that is known to be gone.
                _ if *reach == Reach::Down => Err(MissingReason::Down),
                node => there(inspect, node.0, &question, deadline).await,
            };
            OfNode {
                node: *node,
                name: name.clone(),
                answer,
            }
        }
    });
    join_all(answers).await
}

/// The members with their names; this node alone if it runs alone.
pub(super) fn nodes(status: &ClusterStatus, own_name: &str) -> Vec<(NodeId, String, Reach)> {
    if status.nodes.is_empty() {
        return vec![(status.node, own_name.to_owned(), Reach::Up)];
    }
    let row = |node: &admin::cluster::NodeStatus| (node.node, node.name.clone(), node.reach);
    status.nodes.iter().map(row).collect()
}

async fn here(
    inspect: &Arc<Inspect>,
    question: Question,
    deadline: Instant,
) -> Result<Answer, MissingReason> {
    let answered = timeout_at(deadline, inspect.answer(question, deadline)).await;
    known(answered.unwrap_or(Err(MissingReason::Timeout))?)
}

async fn there(
    inspect: &Arc<Inspect>,
    node: u64,
    question: &Question,
    deadline: Instant,
) -> Result<Answer, MissingReason> {
    let clustered = inspect.node.rim.clustered().ok_or(MissingReason::Down)?;
    let bytes = encode(question, deadline);
    let left = (deadline - RESERVE).saturating_duration_since(Instant::now());
    let answer = call(clustered, node, bytes, left).await?;
    read(&answer)
}

async fn call(
    clustered: &Arc<Clustered>,
    node: u64,
    question: Vec<u8>,
    patience: Duration,
) -> Result<Bytes, MissingReason> {
    if !clustered.speaks(node, INSPECTION_SINCE) {
        return Err(match clustered.is_linked(node) {
            true => MissingReason::Version,
            false => MissingReason::Down,
        });
    }
    let call = clustered.call(node, PeerRequest::Inspection(question.into()), patience);
    let answer = call.map_err(|_| MissingReason::Down)?.await;
    let answer = answer.map_err(|error| match error {
        cluster::Unreachable::NotConnected => MissingReason::Down,
        _ => MissingReason::Timeout,
    })?;
    match PeerRequest::check_inspected(&answer) {
        Ok(()) => Ok(answer),
        Err(_) => Err(MissingReason::Failed),
    }
}

/// The question with the time that is left for its answer.
fn encode(question: &Question, deadline: Instant) -> Vec<u8> {
    let left = (deadline - RESERVE).saturating_duration_since(Instant::now());
    let asked = Asked {
        budget_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        question: question.clone(),
    };
    asked.encode()
}

/// What other nodes ask is answered.
#[derive(Debug)]
pub(crate) struct Answering(pub(crate) Arc<Inspect>);

impl Answerer for Answering {
    fn answer(&self, question: Bytes) -> BoxFuture<'static, Bytes> {
        let inspect = Arc::clone(&self.0);
        async move { answer(inspect, &question).await.into() }.boxed()
    }
}

/// Answers another node.
async fn answer(inspect: Arc<Inspect>, question: &[u8]) -> Vec<u8> {
    let answer = match Asked::decode(question) {
        Ok(Asked {
            budget_ms,
            question,
        }) => {
            let budget = Duration::from_millis(budget_ms.min(*admin::page::BUDGET_MS.end()));
            let deadline = Instant::now() + budget;
            let answered = timeout_at(deadline, inspect.answer(question, deadline)).await;
            match answered.unwrap_or(Err(MissingReason::Timeout)) {
                Ok(answer) => answer,
                Err(MissingReason::Busy) => Answer::Busy,
                Err(_) => Answer::Failed,
            }
        }
        Err(Unreadable::Unknown) => Answer::NotKnown,
        Err(Unreadable::IllFormed) => Answer::Failed,
    };
    answer.encode()
}

/// What another node has answered. Its answer is of another version, or the node has failed; it is never taken for another one.
fn read(answer: &[u8]) -> Result<Answer, MissingReason> {
    match Answer::decode(answer) {
        Ok(answer) => known(answer),
        Err(Unreadable::Unknown) => Err(MissingReason::Version),
        Err(Unreadable::IllFormed) => Err(MissingReason::Failed),
    }
}

fn known(answer: Answer) -> Result<Answer, MissingReason> {
    match answer {
        Answer::Busy => Err(MissingReason::Busy),
        Answer::Failed => Err(MissingReason::Failed),
        Answer::NotKnown | Answer::Messages(MessagesAnswer::NotKnown) => {
            Err(MissingReason::Version)
        }
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_says_nothing_is_missing_for_a_reason() {
        for (text, reason) in [
            (r#""busy""#, MissingReason::Busy),
            (r#""failed""#, MissingReason::Failed),
            (r#""not_known""#, MissingReason::Version),
            (r#"{"messages":"not_known"}"#, MissingReason::Version),
            (r#"{"of_a_later_version":[1]}"#, MissingReason::Version),
            (r#"{"clients":{}}"#, MissingReason::Failed),
            ("", MissingReason::Failed),
        ] {
            assert_eq!(read(text.as_bytes()), Err(reason), "{text}");
        }
        assert!(read(br#"{"queues":{}}"#).is_ok());
    }

    #[test]
    fn who_answers_something_else_is_missing() {
        let answers = vec![OfNode {
            node: NodeId(1),
            name: "a".to_owned(),
            answer: Ok(Answer::Queues(std::collections::BTreeMap::new())),
        }];
        let (parts, partial) = sort(answers, "client", |answer| match answer {
            Answer::Client(part) => Some(part),
            _ => None,
        });
        assert!(parts.is_empty());
        let [missing] = &partial[..] else {
            panic!("{partial:?}");
        };
        assert_eq!(missing.reason, MissingReason::Failed);
        assert_eq!(
            (missing.node, missing.node_name.as_str()),
            (Some(NodeId(1)), "a")
        );
        assert_eq!(missing.missing, ["client"]);
    }
}
