//! Messages that wait or are kept, asked of all nodes.

use std::sync::Arc;
use std::time::Duration;

use admin::api::{
    Message, QueueOrder, QueuePurge, QueueRow, QueuedMessage, RetainedLevelRow, RetainedRow,
};
use admin::page::{Found, Missing};
use admin::problem::{Kind, Problem};
use admin::{Gathered, QueueQuestion, Range};
use inspection::merge;
use inspection::{
    Answer, Held, Limit, MessagesAnswer, MessagesQuestion, PlaceRange, Question, RetainedPart,
    Sequence, WaitingQuestion,
};
use mqtt_proto::{validate_topic_filter, validate_topic_name};
use peer_protocol::PURGES_SINCE;
use store::InTopicOrder;

use super::known::{nobody, uncovered};
use super::retained::{self, Listed};
use super::state::Inspect;
use super::wire::{ToApi, ToWire as _, found_to_api};
use super::{gather, known};

/// Retained messages that a filter selects.
pub(super) async fn retained(
    inspect: &Arc<Inspect>,
    filter: String,
    range: Range,
) -> Result<Found<RetainedRow>, Problem> {
    validate_topic_filter(&filter)
        .map_err(|error| Problem::parameter("filter", format!("`filter`: {error}")))?;
    let (budget, limit, range) = places(range);
    let question = MessagesQuestion::Retained { filter, range };
    let parts = ask(
        inspect,
        question,
        budget,
        "retained",
        |answer| match answer {
            MessagesAnswer::Retained(part) => Some(part),
            _ => None,
        },
    );
    list(parts.await, limit)
}

/// Levels of topics that have retained messages.
pub(super) async fn levels(
    inspect: &Arc<Inspect>,
    below: Option<String>,
    range: Range,
) -> Result<Found<RetainedLevelRow>, Problem> {
    if let Some(below) = &below {
        // Of an empty first level, too.
        validate_topic_name(&format!("{below}/"))
            .map_err(|error| Problem::parameter("below", format!("`below`: {error}")))?;
    }
    let (budget, limit, range) = places(range);
    let question = MessagesQuestion::Levels { below, range };
    let parts = ask(
        inspect,
        question,
        budget,
        "retained",
        |answer| match answer {
            MessagesAnswer::Levels(part) => Some(part),
            _ => None,
        },
    );
    list(parts.await, limit)
}

/// Its time, the length of a page, and what is asked of each node.
fn places(range: Range) -> (Duration, usize, PlaceRange) {
    let places = PlaceRange {
        after: range.after,
        // One more: whether anything follows.
        limit: Limit(range.limit + 1),
    };
    (range.budget, range.limit.into(), places)
}

/// What all nodes answer.
pub(super) async fn ask<T>(
    inspect: &Arc<Inspect>,
    question: MessagesQuestion,
    budget: Duration,
    what: &str,
    part: impl Fn(MessagesAnswer) -> Option<T>,
) -> (Vec<T>, Vec<Missing>) {
    let answers = gather::all(inspect, Question::Messages(question), budget).await;
    let (parts, partial) = gather::sort(answers, what, |answer| match answer {
        Answer::Messages(answer) => part(answer),
        _ => None,
    });
    (parts.into_iter().map(|(.., part)| part).collect(), partial)
}

fn list<T>(
    (parts, mut partial): (Vec<RetainedPart<T>>, Vec<Missing>),
    limit: usize,
) -> Result<Found<T::Api>, Problem>
where
    T: ToApi,
    Listed<T>: InTopicOrder,
{
    if parts.is_empty() {
        return Err(nobody(&partial));
    }
    let covered = parts.iter().flat_map(|part| part.covered.clone());
    partial.extend(uncovered("retain_store", covered));
    Ok(found_to_api(retained::merged(parts, limit), partial))
}

/// The retained message of a topic.
pub(super) async fn retained_message(
    inspect: &Arc<Inspect>,
    topic: String,
    budget: Duration,
) -> Result<Message, Problem> {
    validate_topic_name(&topic)
        .map_err(|error| Problem::parameter("topic", format!("`topic`: {error}")))?;
    let question = MessagesQuestion::Message { topic };
    let parts = ask(
        inspect,
        question,
        budget,
        "retained",
        |answer| match answer {
            MessagesAnswer::Message(held) => Some(held),
            _ => None,
        },
    );
    let (parts, partial) = parts.await;
    match held(parts) {
        Held::Found(message) => Ok(message.to_api()),
        Held::Absent => {
            let why = "the topic has no retained message";
            Err(Problem::new(Kind::NotFound, why).with("kind", "retained"))
        }
        Held::Elsewhere => Err(leaderless(partial)),
    }
}

/// The first queues in an order.
pub(super) async fn first_queues(
    inspect: &Arc<Inspect>,
    by: QueueOrder,
    limit: usize,
    budget: Duration,
) -> Gathered<Vec<QueueRow>> {
    let by = by.to_wire();
    let question = MessagesQuestion::FirstQueues {
        by,
        limit: Limit(u16::try_from(limit).unwrap_or(u16::MAX)),
    };
    let parts = ask(inspect, question, budget, "queues", |answer| match answer {
        MessagesAnswer::FirstQueues(rows) => Some(rows),
        _ => None,
    });
    let (parts, partial) = parts.await;
    let rows = parts.into_iter().flatten().collect();
    Gathered {
        all: merge::queues(rows, by, limit).to_api(),
        partial,
    }
}

/// What waits for a durable session.
pub(super) async fn queue(
    inspect: &Arc<Inspect>,
    asked: QueueQuestion,
    range: Range,
) -> Result<Found<QueuedMessage>, Problem> {
    let QueueQuestion {
        client_id,
        payloads,
    } = asked;
    let from = match range.after.map(|after| after.parse::<u64>()) {
        None => 0,
        Some(Ok(from)) => from,
        Some(Err(_)) => {
            let why = "`after` is to be the `next` of a page of the same queue";
            return Err(Problem::new(Kind::InvalidCursor, why).with("parameter", "after"));
        }
    };
    let question = MessagesQuestion::Waiting(WaitingQuestion {
        client_id: client_id.clone(),
        from: Sequence(from),
        limit: Limit(range.limit),
        payloads,
    });
    let parts = ask(
        inspect,
        question,
        range.budget,
        "queue",
        |answer| match answer {
            MessagesAnswer::Waiting(held) => Some(held),
            _ => None,
        },
    );
    let (parts, partial) = parts.await;
    match held(parts) {
        Held::Found(part) => Ok(Found {
            scanned: part.messages.len() as u64,
            items: part.messages.to_api(),
            last: part.next.map(|next| next.0.to_string()),
            // Nothing of it is with other nodes.
            partial: Vec::new(),
        }),
        Held::Absent => Err(known::not_found(&client_id, Vec::new())),
        Held::Elsewhere => Err(leaderless(partial)),
    }
}

/// Drops what waits for a durable session.
pub(super) async fn purge(
    inspect: &Arc<Inspect>,
    client_id: String,
    budget: Duration,
) -> Result<QueuePurge, Problem> {
    // A replica that cannot read the operation stops at it, and with it what its shard needs a majority for.
    let clustered = inspect.node.rim.clustered();
    let may_trim = inspect.node.store().levels.may_trim();
    if !may_trim || clustered.is_some_and(|cluster| !cluster.cluster().all_speak(PURGES_SINCE)) {
        let why = "a node runs a version that cannot empty queues, or has not been reached yet, or the upgrade is not finished";
        return Err(Problem::new(Kind::Conflict, why));
    }
    let question = MessagesQuestion::Purge {
        client_id: client_id.clone(),
    };
    let parts = ask(inspect, question, budget, "queue", |answer| match answer {
        MessagesAnswer::Purged(held) => Some(held),
        _ => None,
    });
    let (parts, partial) = parts.await;
    match held(parts) {
        Held::Found(purge) => Ok(purge.to_api()),
        Held::Absent => Err(known::not_found(&client_id, Vec::new())),
        Held::Elsewhere => Err(leaderless(partial)),
    }
}

/// What the node says that has it, or that leads the shard where it is not.
fn held<T>(parts: Vec<Held<T>>) -> Held<T> {
    let mut all = Held::Elsewhere;
    for part in parts {
        match part {
            Held::Found(_) => return part,
            Held::Absent => all = Held::Absent,
            Held::Elsewhere => {}
        }
    }
    all
}

/// What is said if the leader of the shard has not answered.
fn leaderless(partial: Vec<Missing>) -> Problem {
    if partial.is_empty() {
        return Problem::new(Kind::NoLeader, "no node leads the shard");
    }
    let silent = partial.iter().filter_map(|missing| missing.node);
    let silent: Vec<String> = silent.map(|node| node.to_string()).collect();
    let why = "the node that leads the shard has not answered";
    Problem::new(Kind::NodeSilent, why).with("nodes", silent)
}
