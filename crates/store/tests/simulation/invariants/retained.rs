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

/// The ways that open operations can lead to, as far as more happens in no other that ends with the same value: since
/// open writes may be carried out again, all of them can happen before the last one, and each read that finds one of
/// their values.
fn all_ways(ops: &[RetainedOp], open: &BTreeSet<usize>, ways: BTreeSet<Way>) -> BTreeSet<Way> {
    let read_of = |at: &usize| match ops[*at].kind {
        RetainedKind::Read(read) => Some(read),
        RetainedKind::Write(_) => None,
    };
    let written_by = |at: &usize| match ops[*at].kind {
        RetainedKind::Write(written) => Some(written),
        RetainedKind::Read(_) => None,
    };
    let written: BTreeSet<u64> = open.iter().filter_map(written_by).collect();
    let finds_written = |at: &&usize| {
        read_of(at)
            .flatten()
            .is_some_and(|of| written.contains(&of))
    };
    // What is never answered needs no trace.
    let is_answered = |at: &&usize| ops[**at].answered.is_some();
    let writes = open.iter().filter(|at| written_by(at).is_some());
    let all: BTreeSet<usize> = writes
        .filter(is_answered)
        .chain(open.iter().filter(finds_written))
        .copied()
        .collect();
    let mut found = BTreeSet::new();
    for (value, mut happened) in ways {
        happened.extend(open.iter().filter(|at| read_of(at) == Some(value)));
        let after_all = &happened | &all;
        found.extend(written.iter().map(|last| (Some(*last), after_all.clone())));
        found.insert((value, happened));
    }
    found
}

#[test]
fn what_was_overwritten_is_read_no_more() {
    let op = |asked, answered, kind| RetainedOp {
        asked,
        answered,
        kind,
    };
    let write = |number, asked, answered| op(asked, answered, RetainedKind::Write(number));
    let read = |number, asked, answered| op(asked, Some(answered), RetainedKind::Read(number));
    let one = write(1, 1, Some(2));
    let two = write(2, 3, Some(6));
    assert!(check_topic(&[read(None, 0, 1)]).is_ok());
    assert!(check_topic(&[one.clone(), read(None, 3, 4)]).is_err());
    // While a write is open, either.
    let both = [one.clone(), two.clone()];
    let with = |ops: &[RetainedOp]| check_topic(&[&both[..], ops].concat());
    assert!(with(&[read(Some(1), 4, 5), read(Some(2), 5, 6)]).is_ok());
    assert!(with(&[read(Some(2), 4, 5), read(Some(1), 7, 8)]).is_err());
    assert!(with(&[read(Some(2), 4, 4), read(Some(1), 5, 5)]).is_err());
    // One that is never answered may happen late.
    let late = write(3, 1, None);
    assert!(with(&[late, read(Some(2), 7, 8), read(Some(3), 9, 10)]).is_ok());
    let many: Vec<_> = (10..60).map(|number| write(number, 3, Some(9))).collect();
    assert!(check_topic(&[many, vec![read(Some(30), 10, 11)]].concat()).is_ok());
}
