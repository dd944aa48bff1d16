//! Wills that are published again.

use super::driver::{Shard, set, will};
use crate::retain::RetainReply;
use crate::retain::recent::{MOST, WILLS_MS};

fn value(shard: &Shard, topic: &str) -> Option<Vec<u8>> {
    let message = shard.machine.get(topic, shard.now())?;
    Some(message.body.payload().to_vec())
}

#[test]
fn a_will_that_is_published_again_does_not_replace_what_came_since() {
    for restarts in [false, true] {
        let mut shard = Shard::new();
        shard.ask(&will("t", b"gone", 1));
        assert_eq!(value(&shard, "t"), Some(b"gone".to_vec()));
        shard.ask(&set("t", b"back", 0));
        if restarts {
            shard.checkpoint();
            shard.restart();
        }
        assert_eq!(shard.ask(&will("t", b"gone", 1)), RetainReply::Done);
        assert_eq!(value(&shard, "t"), Some(b"back".to_vec()));
        shard.ask(&set("t", b"", 0));
        shard.ask(&will("t", b"gone", 1));
        assert_eq!(value(&shard, "t"), None, "it was removed");
        shard.ask(&will("t", b"gone again", 2));
        assert_eq!(value(&shard, "t"), Some(b"gone again".to_vec()));
    }
}

#[test]
fn a_will_that_there_is_no_room_for_may_be_kept_later() {
    let mut shard = Shard::new();
    for topic in ["a", "b", "c"] {
        shard.ask(&set(topic, b"1", 0));
    }
    assert_eq!(shard.ask(&will("t", b"gone", 1)), RetainReply::Full);
    shard.ask(&set("a", b"", 0));
    assert_eq!(shard.ask(&will("t", b"gone", 1)), RetainReply::Done);
    assert_eq!(value(&shard, "t"), Some(b"gone".to_vec()));
}

#[test]
fn wills_are_known_for_an_hour_and_as_many_as_there_is_room_for() {
    let mut shard = Shard::new();
    shard.ask(&will("t", b"gone", 1));
    shard.checkpoint();
    shard.header.now_ms = WILLS_MS;
    shard.ask(&will("t", b"gone", 2));
    assert_eq!(shard.machine.wills(), 1);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'W'), 1);
    for epoch in 0..MOST as u64 {
        shard.ask(&will("t", b"gone", 10 + epoch));
    }
    assert_eq!(shard.machine.wills(), MOST);
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.machine.wills(), MOST);
    assert_eq!(shard.table.rows_of(b'W'), MOST);
}
