//! Retained messages are linearizable, topic by topic: there is an order of all publications and look-ups in which each
//! stands between its beginning and its end, and each look-up finds the last publication before it.
//!
//! A publication that is not acknowledged, or was sent on a further connection, may be carried out more than once, and
//! late. At the end a client finds something on each topic on which something was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{History, Published};

pub(super) fn check(history: &History) -> Result<(), String> {
    let Some(found) = &history.retained else {
        return Err("nobody has looked at what is retained".to_owned());
    };
    if let Some((number, message)) = lacks(history, found) {
        return Err(format!(
            "nothing is retained where {number} was: {message:?}"
        ));
    }
    for (topic, ops) in &operations(history) {
        check_topic(ops).map_err(|why| format!("retained {topic}: {why}"))?;
    }
    Ok(())
}

/// A message that was acknowledged, and nothing was found on its topic.
pub(crate) fn lacks<'a>(
    history: &'a History,
    found: &BTreeMap<String, u64>,
) -> Option<(u64, &'a Published)> {
    let mut published = history.published.iter();
    let is_lacking = |(_, message): &(&u64, &Published)| {
        let is_kept = message.topic.starts_with("r/") && message.acknowledged.is_some();
        is_kept && !found.contains_key(&message.topic)
    };
    let (number, message) = published.find(is_lacking)?;
    Some((*number, message))
}

/// Something that was done with a topic.
#[derive(Clone, Debug)]
struct Operation {
    begun: u64,
    /// `None`: it may still be carried out.
    ended: Option<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Write(u64),
    Read(u64),
}

fn operations(history: &History) -> BTreeMap<&str, Vec<Operation>> {
    let mut operations: BTreeMap<&str, Vec<Operation>> = BTreeMap::new();
    for (number, message) in &history.published {
        if message.topic.starts_with("r/") {
            operations
                .entry(&message.topic)
                .or_default()
                .push(Operation {
                    begun: message.begun,
                    ended: message.acknowledged.filter(|_| !message.is_sent_again),
                    kind: Kind::Write(*number),
                });
        }
    }
    for look in &history.looks {
        operations.entry(&look.topic).or_default().push(Operation {
            begun: look.asked,
            ended: Some(look.given),
            kind: Kind::Read(look.number),
        });
    }
    operations
}

/// A way in which things may have gone: the value, and which of the open operations have happened.
type Way = (Option<u64>, BTreeSet<usize>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    // At the same time, beginnings come first: they may have been there before the end.
    Begun,
    Ended,
}

fn check_topic(ops: &[Operation]) -> Result<(), String> {
    let mut edges = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        edges.push((op.begun, Edge::Begun, at));
        edges.extend(op.ended.map(|ended| (ended, Edge::Ended, at)));
    }
    edges.sort();
    let mut open = BTreeSet::new();
    let mut ways = BTreeSet::from([(None, BTreeSet::new())]);
    for (time, edge, at) in edges {
        match edge {
            Edge::Begun => {
                open.insert(at);
            }
            Edge::Ended => {
                ways = all_ways(ops, &open, ways);
                ways.retain(|(_, happened)| happened.contains(&at));
                open.remove(&at);
                ways = ways.into_iter().map(|way| without(way, at)).collect();
            }
        }
        if ways.is_empty() {
            return Err(format!("at {time}, {:?} cannot be", ops[at]));
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
fn all_ways(ops: &[Operation], open: &BTreeSet<usize>, ways: BTreeSet<Way>) -> BTreeSet<Way> {
    let read_of = |at: &usize| match ops[*at].kind {
        Kind::Read(read) => Some(read),
        Kind::Write(_) => None,
    };
    let written_by = |at: &usize| match ops[*at].kind {
        Kind::Write(written) => Some(written),
        Kind::Read(_) => None,
    };
    let written: BTreeSet<u64> = open.iter().filter_map(written_by).collect();
    let finds_written = |at: &&usize| read_of(at).is_some_and(|of| written.contains(&of));
    // What never ends needs no trace.
    let is_ended = |at: &&usize| ops[**at].ended.is_some();
    let writes = open.iter().filter(|at| written_by(at).is_some());
    let all: BTreeSet<usize> = writes
        .filter(is_ended)
        .chain(open.iter().filter(finds_written))
        .copied()
        .collect();
    let mut found = BTreeSet::new();
    for (value, mut happened) in ways {
        happened.extend(open.iter().filter(|at| {
            let read = read_of(at);
            read.is_some() && read == value
        }));
        let after_all = &happened | &all;
        found.extend(written.iter().map(|last| (Some(*last), after_all.clone())));
        found.insert((value, happened));
    }
    found
}

#[test]
fn what_was_overwritten_is_read_no_more() {
    let op = |begun, ended, kind| Operation { begun, ended, kind };
    let write = |number, begun, ended| op(begun, ended, Kind::Write(number));
    let read = |number, begun, ended| op(begun, Some(ended), Kind::Read(number));
    let one = write(1, 1, Some(2));
    let two = write(2, 3, Some(6));
    assert!(check_topic(&[read(9, 0, 1)]).is_err());
    assert!(check_topic(&[one.clone(), read(1, 3, 4)]).is_ok());
    // While a write is open, either.
    let both = [one.clone(), two.clone()];
    let with = |ops: &[Operation]| check_topic(&[&both[..], ops].concat());
    assert!(with(&[read(1, 4, 5), read(2, 5, 6)]).is_ok());
    assert!(with(&[read(2, 4, 5), read(1, 7, 8)]).is_err());
    assert!(with(&[read(2, 4, 4), read(1, 5, 5)]).is_err());
    // One that is never acknowledged may happen late.
    let late = write(3, 1, None);
    assert!(with(&[late, read(2, 7, 8), read(3, 9, 10)]).is_ok());
    let many: Vec<_> = (10..60).map(|number| write(number, 3, Some(9))).collect();
    assert!(check_topic(&[many, vec![read(30, 10, 11)]].concat()).is_ok());
}
