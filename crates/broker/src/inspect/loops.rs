//! Questions to the event loops of this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use admin::page::MissingReason;
use authorization::Action;
use broker_core::LoopMessage;
use broker_core::SessionKey;
use broker_core::Verdict;
use broker_core::inspect::{
    Answer, ClientDetail, ClientSummary, End, Ended, INSPECTED, Inspection, LoopMemory,
    MatchingSession, Question, SubscriptionDetail,
};
use broker_core::{
    ChangeSubscription, Changed, SubscriptionChange, TrafficAnswer, TrafficQuestion,
};
use tokio::sync::oneshot;

use crate::node::Node;

/// Sends a loop a question that takes a way for its answer. The loop may run its turn in the thread that sends, so this is
/// one that may wait.
async fn ask<T: Send + 'static>(
    node: &Arc<Node>,
    index: usize,
    question: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> LoopMessage + Send + 'static,
) -> Result<T, MissingReason> {
    let (answer, answered) = oneshot::channel();
    let node = Arc::clone(node);
    let sent = tokio::task::spawn_blocking(move || {
        let answer = Box::new(move |said| {
            // Who has asked may have given up.
            let _ = answer.send(said);
        });
        node.rim.loops().send(index, question(answer));
    });
    sent.await.map_err(|_| MissingReason::Failed)?;
    // A loop that ends drops what it was asked.
    answered.await.map_err(|_| MissingReason::Failed)
}

async fn inspect(
    node: &Arc<Node>,
    index: usize,
    question: Question,
) -> Result<Answer, MissingReason> {
    ask(node, index, |answer| {
        LoopMessage::Inspect(Inspection { question, answer })
    })
    .await
}

/// Sessions by their loops, in lots that one inspection takes.
fn lots(sessions: impl IntoIterator<Item = SessionKey>) -> Vec<(usize, Vec<SessionKey>)> {
    let mut by_loop: BTreeMap<usize, Vec<SessionKey>> = BTreeMap::new();
    for session in sessions {
        by_loop
            .entry(session.loop_index())
            .or_default()
            .push(session);
    }
    let lots = by_loop.into_iter().flat_map(|(index, sessions)| {
        let lots: Vec<_> = sessions.chunks(INSPECTED).map(<[_]>::to_vec).collect();
        lots.into_iter().map(move |lot| (index, lot))
    });
    lots.collect()
}

/// Rows of sessions; those that are gone have none.
pub(super) async fn summaries(
    node: &Arc<Node>,
    sessions: impl IntoIterator<Item = SessionKey>,
) -> Result<BTreeMap<SessionKey, ClientSummary>, MissingReason> {
    let mut all = BTreeMap::new();
    for (index, lot) in lots(sessions) {
        match inspect(node, index, Question::Summaries(lot)).await? {
            Answer::Summaries(rows) => all.extend(rows),
            _ => return Err(MissingReason::Failed),
        }
    }
    Ok(all)
}

/// Rows of clients that were held within the last minute, those that were held longest first.
pub(super) async fn longest_held(
    node: &Arc<Node>,
    limit: usize,
) -> Result<Vec<ClientSummary>, MissingReason> {
    let mut all = Vec::new();
    for index in 0..node.stats.len() {
        match inspect(node, index, Question::LongestHeld(limit)).await? {
            Answer::LongestHeld(rows) => all.extend(rows),
            _ => return Err(MissingReason::Failed),
        }
    }
    all.sort_by_key(|row| std::cmp::Reverse(row.held.as_ref().map(|held| held.share)));
    Ok(all)
}

/// A session in full; `None`: it is gone.
pub(super) async fn detail(
    node: &Arc<Node>,
    session: SessionKey,
) -> Result<Option<Box<ClientDetail>>, MissingReason> {
    let question = Question::Detail(session);
    match inspect(node, session.loop_index(), question).await? {
        Answer::Detail(detail) => Ok(detail),
        _ => Err(MissingReason::Failed),
    }
}

/// Subscriptions of a session behind a filter; `None`: it is gone.
pub(super) async fn subscriptions(
    node: &Arc<Node>,
    session: SessionKey,
    after: Box<str>,
    limit: usize,
) -> Result<Option<Vec<SubscriptionDetail>>, MissingReason> {
    let question = Question::Subscriptions {
        session,
        after,
        limit,
    };
    match inspect(node, session.loop_index(), question).await? {
        Answer::Subscriptions(rows) => Ok(rows),
        _ => Err(MissingReason::Failed),
    }
}

/// What the rules say about an action of a client, and its user; `None`: it is not connected.
pub(super) async fn verdict(
    node: &Arc<Node>,
    session: SessionKey,
    action: Action,
    topic: &str,
) -> Result<Option<(Verdict, Option<String>)>, MissingReason> {
    let question = Question::Verdict {
        session,
        action,
        topic: topic.into(),
    };
    match inspect(node, session.loop_index(), question).await? {
        Answer::Verdict(verdict) => Ok(verdict),
        _ => Err(MissingReason::Failed),
    }
}

/// Which subscriptions of sessions match a topic.
pub(super) async fn matching(
    node: &Arc<Node>,
    sessions: impl IntoIterator<Item = SessionKey>,
    topic: &str,
) -> Result<Vec<MatchingSession>, MissingReason> {
    let mut all = Vec::new();
    for (index, sessions) in lots(sessions) {
        let topic = topic.into();
        match inspect(node, index, Question::Matching { sessions, topic }).await? {
            Answer::Matching(rows) => all.extend(rows),
            _ => return Err(MissingReason::Failed),
        }
    }
    Ok(all)
}

/// What a loop says of busy clients and topics, or of a client that is watched.
pub(super) async fn traffic(
    node: &Arc<Node>,
    index: usize,
    question: TrafficQuestion,
) -> Result<TrafficAnswer, MissingReason> {
    match inspect(node, index, Question::Traffic(question)).await? {
        Answer::Traffic(answer) => Ok(answer),
        _ => Err(MissingReason::Failed),
    }
}

/// What the clients of a loop take of the memory, places of its table from this one on.
pub(super) async fn memory(
    node: &Arc<Node>,
    index: usize,
    from: u32,
) -> Result<Box<LoopMemory>, MissingReason> {
    match inspect(node, index, Question::Memory(from)).await? {
        Answer::Memory(memory) => Ok(memory),
        _ => Err(MissingReason::Failed),
    }
}

/// Ends a client.
pub(super) async fn end(
    node: &Arc<Node>,
    session: SessionKey,
    client_id: Box<str>,
    ends_session: bool,
) -> Result<Ended, MissingReason> {
    ask(node, session.loop_index(), move |answer| {
        LoopMessage::End(End {
            session,
            client_id,
            ends_session,
            answer,
        })
    })
    .await
}

/// Changes a subscription of a connected client.
pub(super) async fn change(
    node: &Arc<Node>,
    session: SessionKey,
    client_id: Box<str>,
    change: SubscriptionChange,
) -> Result<Changed, MissingReason> {
    ask(node, session.loop_index(), move |answer| {
        LoopMessage::ChangeSubscription(ChangeSubscription {
            session,
            client_id,
            change,
            answer,
        })
    })
    .await
}
