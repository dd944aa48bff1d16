//! Since when messages are retained, and what is removed by that.

use std::ops::ControlFlow;

use topic_router::Cursor;

use super::driver::{Shard, remove, set, set_from, will};
use crate::retain::{RetainMachine, RetainOp, RetainedEnd, RetainedSince};
use crate::{Level, Machine, Slots};

impl Shard {
    /// At the last level that kept no ages.
    fn without_ages() -> Self {
        let mut shard = Self::new();
        let slots = Slots {
            level: Level::PEOPLE,
            ..Slots::ALL
        };
        shard.machine = RetainMachine::load(slots, &shard.table).unwrap();
        shard
    }

    /// Topics, times, and from when they count, in steps of so much work.
    fn looked(&self, work: usize) -> Vec<(String, u64, Option<u64>)> {
        let (mut found, mut after): (_, Option<Cursor>) = (Vec::new(), None);
        loop {
            let mut work = work;
            after = self.machine.look(after.as_ref(), &mut work, |view| {
                let from = view.counts_from.map(|from| from.0);
                found.push((view.topic.to_owned(), view.since.0, from));
                ControlFlow::Continue(())
            });
            if after.is_none() {
                return found;
            }
        }
    }
}

#[test]
fn a_message_has_the_time_at_which_it_was_set_last() {
    let mut shard = Shard::new();
    for (time, op) in [
        (100, set("a", b"1", 0)),
        (200, will("$b", b"1", 1)),
        (300, set_from("c", b"1", "p", 1)),
        (400, set("a", b"2", 0)),
    ] {
        shard.header.now_ms = time;
        shard.ask(&op);
    }
    let expected = [("$b", 200), ("a", 400), ("c", 300)]
        .map(|(topic, since)| (topic.to_owned(), since, Some(since)));
    for work in [1, 10, 1_000] {
        assert_eq!(shard.looked(work), expected);
    }
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.looked(1), expected);
    let since = shard.machine.retained_since("a");
    assert_eq!(since, Some(RetainedSince(400)));
}

#[test]
fn only_what_was_looked_at_is_removed() {
    let mut shard = Shard::new();
    shard.header.now_ms = 100;
    shard.ask(&set("a", b"1", 0));
    shard.ask(&set("b", b"1", 0));
    shard.header.now_ms = 200;
    shard.ask(&set("a", b"2", 0));
    let late = remove(&[("a", 100), ("b", 100), ("c", 100)], RetainedEnd::Messages);
    assert_eq!(shard.ends(&late), [RetainedEnd::Messages]);
    assert_eq!(shard.found("#"), [("a".to_owned(), b"2".to_vec())]);
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.looked(9).len(), 1);
    let both = remove(&[("a", 200), ("a", 200)], RetainedEnd::Age);
    assert_eq!(shard.ends(&both), [RetainedEnd::Age]);
    assert_eq!(shard.machine.size(), (0, 0));
}

#[test]
fn what_expires_is_told() {
    let mut shard = Shard::new();
    shard.header.now_ms = 100;
    shard.ask(&set("a", b"1", 150));
    shard.ask(&set("b", b"1", 0));
    shard.header.now_ms = 200;
    assert_eq!(shard.ends(&RetainOp::Expire), [RetainedEnd::Expiry]);
}

#[test]
fn messages_of_levels_without_ages_count_from_the_first_that_has_them() {
    let mut shard = Shard::without_ages();
    shard.header.now_ms = 100;
    shard.ask(&set("a", b"1", 0));
    shard.checkpoint();
    assert_eq!(shard.looked(9), [("a".to_owned(), 0, None)]);
    let rows = shard.table.clone();
    let op = remove(&[("a", 0)], RetainedEnd::Age);
    assert!(shard.machine.lowered(op.clone(), Level::PEOPLE).is_none());
    assert!(RetainMachine::is_lowered(Level::PEOPLE));
    assert!(!RetainMachine::is_lowered(Level::AGED));

    shard.machine.raise(Level::AGED);
    shard.header.now_ms = 500;
    assert_eq!(shard.ends(&remove(&[], RetainedEnd::Age)), []);
    shard.header.now_ms = 600;
    shard.ask(&set("b", b"1", 0));
    let expected = [
        ("a".to_owned(), 0, Some(500)),
        ("b".to_owned(), 600, Some(600)),
    ];
    assert_eq!(shard.looked(9), expected);
    assert!(shard.checkpoint() > 0);
    assert_ne!(
        shard.table.rows, rows.rows,
        "the row of the machine is another one"
    );
    shard.restart();
    assert_eq!(shard.looked(9), expected);
    assert_eq!(shard.ends(&op), [RetainedEnd::Age]);
}
