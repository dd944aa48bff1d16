//! Retained messages are linearizable, topic by topic: there is an order of all writes and reads, in which
//! each stands between its question and its answer, and each read finds the last write before it.
//!
//! A write that is not answered yet may be carried out more than once: it is said again to whoever leads.

use std::collections::BTreeSet;

use crate::history::{History, RetainedKind, RetainedOp};

pub(super) fn check(history: &History) -> Result<(), String> {
    for (topic, ops) in &history.retained {
        check_topic(ops).map_err(|why| format!("topic {topic}: {why}"))?;
    }
    Ok(())
}

/// A way in which things may have gone: the value, and which of the open operations have happened.
type Way = (Option<u64>, BTreeSet<usize>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    // At the same time, questions come first: they may have been there before the answer.
    Asked,
    Answered,
}

fn check_topic(ops: &[RetainedOp]) -> Result<(), String> {
    let mut edges = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        let is_read = matches!(op.kind, RetainedKind::Read(_));
        if is_read && op.answered.is_none() {
            continue;
        }
        edges.push((op.asked, Edge::Asked, at));
        edges.extend(op.answered.map(|answered| (answered, Edge::Answered, at)));
    }
    edges.sort();
    let mut open = BTreeSet::new();
    let mut ways = BTreeSet::from([(None, BTreeSet::new())]);
    for (time, edge, at) in edges {
        match edge {
            Edge::Asked => {
                open.insert(at);
            }
            Edge::Answered => {
                ways = all_ways(ops, &open, ways);
                ways.retain(|(_, happened)| happened.contains(&at));
                open.remove(&at);
                ways = ways.into_iter().map(|way| without(way, at)).collect();
            }
        }
        if ways.is_empty() {
            return Err(format!("at {time}, {:?} cannot be; {ops:?}", ops[at]));
        }
    }
    Ok(())
}

fn without((value, mut happened): Way, at: usize) -> Way {
    happened.remove(&at);
    (value, happened)
}

/// All ways that open operations can lead to.
fn all_ways(ops: &[RetainedOp], open: &BTreeSet<usize>, ways: BTreeSet<Way>) -> BTreeSet<Way> {
    let mut next: Vec<Way> = ways.iter().cloned().collect();
    let mut found = ways;
    while let Some((value, happened)) = next.pop() {
        for at in open {
            let after = match ops[*at].kind {
                RetainedKind::Write(written) => Some(written),
                RetainedKind::Read(read) if read == value => value,
                RetainedKind::Read(_) => continue,
            };
            let mut happened = happened.clone();
            // What is never answered needs no trace.
            if ops[*at].answered.is_some() {
                happened.insert(*at);
            }
            let way = (after, happened);
            if found.insert(way.clone()) {
                next.push(way);
            }
        }
    }
    found
}
