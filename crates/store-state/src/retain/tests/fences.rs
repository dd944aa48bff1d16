//! Messages of connections that are over.

use std::sync::Arc;

use super::driver::{Shard, set, set_from};
use crate::NameHash;
use crate::retain::recent::{FENCES_MS, MOST};
use crate::retain::{ConnectionNumber, RetainOp, RetainReply, Writer};

fn value(shard: &Shard) -> Option<Vec<u8>> {
    let message = shard.machine.get("t", shard.now())?;
    Some(message.body.payload().to_vec())
}

#[test]
fn what_an_earlier_connection_sent_does_not_replace_what_a_later_one_did() {
    for restarts in [false, true] {
        let mut shard = Shard::new();
        shard.ask(&set_from("t", b"first", "c", 5));
        assert_eq!(
            shard.ask(&set_from("t", b"second", "c", 5)),
            RetainReply::Done
        );
        // The client removes it, by its next connection.
        assert_eq!(shard.ask(&set_from("t", b"", "c", 7)), RetainReply::Done);
        if restarts {
            shard.checkpoint();
            shard.restart();
        }
        assert_eq!(
            shard.ask(&set_from("t", b"late", "c", 6)),
            RetainReply::Fenced
        );
        assert_eq!(value(&shard), None);
        assert_eq!(
            shard.ask(&set_from("t", b"other", "d", 1)),
            RetainReply::Done
        );
        assert_eq!(value(&shard), Some(b"other".to_vec()));
        assert_eq!(
            shard.ask(&set_from("t", b"third", "c", 7)),
            RetainReply::Done
        );
        assert_eq!(value(&shard), Some(b"third".to_vec()));
    }
}

#[test]
fn fences_are_known_for_a_minute_and_as_many_as_there_is_room_for() {
    let mut shard = Shard::new();
    shard.ask(&set_from("t", b"1", "first", 1));
    shard.checkpoint();
    shard.header.now_ms = FENCES_MS;
    shard.ask(&set_from("t", b"1", "second", 1));
    assert_eq!(shard.machine.fences(), 1);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'F'), 1);
    for client in 0..MOST {
        shard.ask(&set_from("t", b"1", &client.to_string(), 1));
    }
    assert_eq!(shard.machine.fences(), MOST);
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.machine.fences(), MOST);
    assert_eq!(shard.table.rows_of(b'F'), MOST);
}

#[test]
fn a_long_client_identifier_makes_no_long_request() {
    let RetainOp::Set { message } = set("t", b"1", 0) else {
        unreachable!("it sets");
    };
    let bytes = |publisher: &str| {
        let writer = Writer::Client {
            publisher,
            connection: ConnectionNumber(1),
        };
        let op = RetainOp::set(Arc::clone(&message), writer, NameHash::default());
        postcard::to_stdvec(&op).unwrap().len()
    };
    assert!(bytes(&"c".repeat(60_000)) < bytes("c") + 16);
}
