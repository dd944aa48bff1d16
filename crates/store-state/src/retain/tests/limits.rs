//! What is kept, and for how long.

use mqtt_session::Timestamp;

use super::driver::{Shard, set};
use crate::retain::machine::OVERHEAD;
use crate::retain::{PageBudget, RetainMachine, RetainOp, RetainReply};
use crate::{Machine, NameHash};

#[test]
fn limits_hold_and_replacing_needs_no_room() {
    let mut shard = Shard::new();
    for topic in ["a", "b", "c"] {
        assert_eq!(shard.ask(&set(topic, b"1", 0)), RetainReply::Done);
    }
    assert_eq!(shard.ask(&set("d", b"1", 0)), RetainReply::Full);
    // [MQTT-3.3.1-5]
    assert_eq!(shard.ask(&set("a", b"2", 0)), RetainReply::Done);
    assert_eq!(shard.ask(&set("a", &[0; 20_000], 0)), RetainReply::Full);
    assert_eq!(shard.found("a"), [("a".to_owned(), b"2".to_vec())]);
    // 2 bytes for the length of a topic, 1 for it, 1 for the payload.
    assert_eq!(shard.machine.size(), (3, 3 * (4 + OVERHEAD)));
    // [MQTT-3.3.1-6] [MQTT-3.3.1-7]
    for topic in ["a", "b", "c", "c"] {
        assert_eq!(shard.ask(&set(topic, b"", 0)), RetainReply::Done);
    }
    assert_eq!(shard.machine.size(), (0, 0));
    assert_eq!(shard.found("#"), []);
}

#[test]
fn limits_may_be_lowered_below_what_is_kept() {
    let mut shard = Shard::new();
    for topic in ["a", "b"] {
        shard.ask(&set(topic, &[0; 100], 0));
    }
    shard.header.limits.retained_messages = 1;
    shard.header.limits.retained_bytes = 1;
    assert_eq!(shard.ask(&set("a", &[1; 100], 0)), RetainReply::Done);
    assert_eq!(shard.ask(&set("a", &[1; 101], 0)), RetainReply::Full);
    assert_eq!(shard.ask(&set("b", &[1; 99], 0)), RetainReply::Done);
    assert_eq!(shard.ask(&set("c", b"1", 0)), RetainReply::Full);
}

#[test]
fn limits_may_be_reached_exactly() {
    let mut shard = Shard::new();
    shard.header.limits.retained_bytes = 2 * (4 + OVERHEAD);
    assert_eq!(shard.ask(&set("a", b"1", 0)), RetainReply::Done);
    assert_eq!(shard.ask(&set("b", b"12", 0)), RetainReply::Full);
    assert_eq!(shard.ask(&set("b", b"1", 0)), RetainReply::Done);
}

#[test]
fn an_expired_message_is_neither_sent_nor_kept() {
    let mut shard = Shard::new();
    shard.ask(&set("a", b"1", 100));
    shard.ask(&set("b", b"1", 200));
    shard.ask(&set("b", b"2", 0));
    assert_eq!(shard.machine.next_deadline(), Some(100));
    let get = |shard: &Shard, now| shard.machine.get("a", Timestamp(now)).is_some();
    assert!(get(&shard, 99) && !get(&shard, 100));
    shard.header.now_ms = 99;
    assert_eq!(shard.found("#").len(), 2);
    shard.ask(&RetainOp::Expire);
    assert_eq!(shard.machine.size().0, 2);
    shard.header.now_ms = 100;
    assert_eq!(shard.found("#").len(), 1);
    shard.ask(&RetainOp::Expire);
    assert_eq!(shard.machine.size(), (1, 4 + OVERHEAD));
    assert_eq!(shard.machine.next_deadline(), None);
}

#[test]
fn a_message_that_has_expired_already_removes() {
    let mut shard = Shard::new();
    shard.header.now_ms = 100;
    shard.ask(&set("a", b"1", 0));
    assert_eq!(shard.ask(&set("a", b"2", 100)), RetainReply::Done);
    assert_eq!(shard.machine.size(), (0, 0));
}

#[test]
fn replacing_again_and_again_does_not_grow_the_list_of_expiries() {
    let mut shard = Shard::new();
    for n in 0..10_000 {
        shard.ask(&set("a", b"1", 1_000 + n));
    }
    assert_eq!(shard.machine.next_deadline(), Some(10_999));
    shard.ask(&set("a", b"1", 0));
    assert_eq!(shard.machine.next_deadline(), None);
}

#[test]
fn a_message_goes_to_the_slot_of_its_topic() {
    const HASH: NameHash = NameHash::with_seed(5);
    assert_eq!(
        RetainMachine::slot(&set("a/b", b"", 0), HASH),
        Some(HASH.slot_of("a/b"))
    );
    assert_eq!(RetainMachine::slot(&RetainOp::Expire, HASH), None);
}

#[test]
fn a_page_ends_when_any_part_of_its_budget_is_spent() {
    let mut shard = Shard::new();
    for topic in ["a", "b", "c"] {
        shard.ask(&set(topic, &[0; 1_000], 0));
    }
    let page = |mut budget: PageBudget| {
        let (page, next) = shard.machine.page("#", None, &mut budget, Timestamp(0));
        assert_eq!(budget.is_spent(), next.is_some());
        page.len()
    };
    let all = PageBudget::UNLIMITED;
    assert_eq!(page(all), 3);
    assert_eq!(page(PageBudget { messages: 1, ..all }), 1);
    // The last message may exceed the bytes.
    assert_eq!(
        page(PageBudget {
            bytes: 1_500,
            ..all
        }),
        2
    );
    assert_eq!(page(PageBudget { bytes: 1, ..all }), 1);
    assert_eq!(page(PageBudget { work: 1, ..all }), 1);
}
