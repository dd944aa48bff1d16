//! Claims, takeovers and the ends of connections.

use mqtt_session::NEVER_EXPIRES;

use super::driver::{
    Connect, Shard, again, asked, fired, gone, holding, left, lost, will, will_due,
};
use crate::session::{Claimed, SessionCounts, SessionOp, SessionReply, TakenFrom};
use crate::{Machine, NameHash, session::SessionMachine};

const NOTHING: [&str; 0] = [];

#[test]
fn a_first_claim_begins_a_session() {
    let mut shard = Shard::new();
    // [MQTT-3.1.2-6]
    let (reply, told) = shard.ask(0, Connect("c", 60).op());
    let expected = Claimed {
        epoch: 1,
        resumed: false,
        had_inbox: false,
        taken_from: TakenFrom::Nobody,
    };
    assert_eq!(reply, SessionReply::Claimed(expected));
    assert_eq!(told, ["known c"]);
    assert_eq!(shard.owner("c"), Some((1, 1)));
    assert_eq!(shard.owner("d"), None);
}

/// [MQTT-3.1.2-5] [MQTT-3.1.2-23] a session with an expiry goes on, and keeps its incarnation.
#[test]
fn a_session_goes_on() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).op());
    assert_eq!(shard.told(1, left("c", 1, 60)), NOTHING);
    assert_eq!(shard.owner("c"), None);
    let claimed = shard.claimed(60, Connect("c", 0).op());
    let expected = Claimed {
        epoch: 2,
        resumed: true,
        had_inbox: true,
        taken_from: TakenFrom::Nobody,
    };
    assert_eq!(claimed, expected);
    assert_eq!(shard.incarnation("c"), Some(1));
    // Without an expiry now, but with an inbox from before.
    assert_eq!(shard.told(61, left("c", 2, 0)), ["ended c 2"]);
}

/// [MQTT-3.1.2-4] [MQTT3-3.1.2-6]
#[test]
fn a_clean_start_discards() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).will("w", 10));
    shard.told(1, lost("c", 1, 60));
    let (reply, told) = shard.ask(2, Connect("c", 60).clean());
    let expected = Claimed {
        epoch: 2,
        resumed: false,
        had_inbox: true,
        // Nobody has an earlier connection; its will is on its way.
        taken_from: TakenFrom::Node { node: 1, will: 1 },
    };
    assert_eq!(reply, SessionReply::Claimed(expected));
    // [MQTT-3.1.2-8] the session's end comes before the delay.
    assert_eq!(told, ["fire c 1 w", "ended c 1"]);
    assert_eq!(shard.incarnation("c"), Some(2));
}

#[test]
fn a_session_without_expiry_lives_as_long_as_its_connection() {
    let mut shard = Shard::new();
    // [MQTT-4.1.0-1]
    shard.claimed(0, Connect("c", 0).op());
    assert_eq!(shard.told(1_000_000, SessionOp::Due), NOTHING);
    assert_eq!(shard.owner("c"), Some((1, 1)));
    // [MQTT-4.1.0-2]
    assert_eq!(shard.told(1_000_001, left("c", 1, 0)), ["not known c"]);
    let claimed = shard.claimed(1_000_002, Connect("c", 0).op());
    assert!(!claimed.resumed && !claimed.had_inbox);
}

/// [MQTT-3.1.4-3] the older connection is closed, and what it leaves depends on the newer one.
#[test]
fn takeover() {
    let before = |expiry, delay| {
        let mut shard = Shard::new();
        shard.claimed(0, Connect("c", expiry).will("w", delay));
        shard
    };
    let after = |mut shard: Shard, clean, will| {
        let (reply, told) = shard.ask(1, Connect("c", 60).from((2, 1), clean, None));
        let SessionReply::Claimed(claimed) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(claimed.taken_from, TakenFrom::Node { node: 1, will });
        assert_eq!(shard.owner("c"), Some((2, 2)));
        assert_eq!(shard.ask(2, lost("c", 1, 60)).0, SessionReply::Stale);
        (claimed.resumed, claimed.had_inbox, told)
    };
    let told = |lines: &[&str]| -> Vec<String> { lines.iter().map(|&line| line.into()).collect() };
    // [MQTT-3.1.3-9] back within the delay.
    assert_eq!(after(before(60, 5), false, 0), (true, true, told(&[])));
    // [MQTT-3.1.2-8] due when the connection is closed.
    let fires = told(&["fire c 1 w"]);
    assert_eq!(after(before(60, 0), false, 1), (true, true, fires.clone()));
    // The session ends with the connection, or by the clean start.
    assert_eq!(after(before(0, 5), false, 1), (false, false, fires));
    let both = told(&["fire c 1 w", "ended c 1"]);
    assert_eq!(after(before(60, 5), true, 1), (false, true, both));
}

#[test]
fn a_connection_may_be_taken_over_within_its_node() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).op());
    let claimed = shard.claimed(0, Connect("c", 60).op());
    assert_eq!(
        (claimed.epoch, claimed.taken_from),
        (2, TakenFrom::Node { node: 1, will: 0 })
    );
}

#[test]
fn a_claim_that_is_said_again_is_carried_out_once() {
    let mut shard = Shard::new();
    let claim = Connect("c", 60).will("w", 0);
    // The first one was lost on its way.
    let first = shard.claimed(0, again(0, claim.clone()));
    assert_eq!(
        (first.epoch, first.taken_from, first.resumed),
        (1, TakenFrom::Nobody, false)
    );
    // Only its answer was lost: the will of the connection is not fired by its own claim.
    let (reply, told) = shard.ask(1, again(0, claim));
    let expected = Claimed {
        epoch: 1,
        resumed: false,
        had_inbox: true,
        taken_from: TakenFrom::Unknown,
    };
    assert_eq!(reply, SessionReply::Claimed(expected));
    assert_eq!(told, NOTHING);
    // Another CONNECT, of a client that did not wait for the answer.
    let other = shard.claimed(1, again(1, Connect("c", 60).will("v", 0)));
    assert_eq!((other.epoch, other.resumed), (2, true));
    let clean = Connect("c", 60).from((1, 1), true, None);
    let clean = shard.claimed(1, again(1, clean));
    assert_eq!((clean.epoch, clean.resumed), (3, false));
    // Another process had it before: it is a new claim.
    shard.claimed(2, Connect("c", 60).from((2, 1), false, None));
    let third = shard.claimed(3, again(3, Connect("c", 60).op()));
    assert_eq!(
        (third.epoch, third.taken_from, third.resumed),
        (5, TakenFrom::Node { node: 2, will: 1 }, true)
    );
}

#[test]
fn a_claim_that_is_said_again_does_not_take_a_client_back() {
    let mut shard = Shard::new();
    let elsewhere = Connect("c", 60).from((2, 1), false, Some(will("w", 0)));
    shard.claimed(5, elsewhere);
    // It came before that, and was given up.
    let (reply, told) = shard.ask(6, again(4, Connect("c", 60).op()));
    assert_eq!((reply, told), (SessionReply::Stale, vec![]));
    assert_eq!(shard.owner("c"), Some((2, 1)));
    // Not when the other one is gone: nobody can say then who was the later one.
    shard.told(7, left("c", 1, 60));
    assert_eq!(shard.claimed(8, again(4, Connect("c", 60).op())).epoch, 2);
}

/// [MQTT-3.14.4-3] [MQTT-3.1.2-10] [MQTT3-3.14.4-3] [MQTT3-3.1.2-10]
#[test]
fn a_claim_that_has_waited_does_not_take_a_client_back() {
    let claim = |node, at_ms| {
        let claim = Connect("c", 60).from((node, 1), false, None);
        asked(at_ms, holding(claim))
    };
    let mut shard = Shard::new();
    shard.claimed(5, claim(2, 5_000));
    // It was asked for before that, and its client has gone to node 2.
    assert_eq!(shard.ask(9, claim(1, 3_000)).0, SessionReply::Stale);
    assert_eq!(shard.owner("c"), Some((2, 1)));
    // A claim that has waited and is the later one; one that comes at once, whatever the clocks of nodes say.
    assert_eq!(shard.claimed(9, claim(1, 7_000)).epoch, 2);
    assert_eq!(shard.claimed(9, claim(2, 8_500)).epoch, 3);
}

#[test]
fn the_will_at_the_end_of_a_connection() {
    for (expiry, delay, close, expected) in [
        (
            60,
            0,
            lost as fn(&str, u64, u32) -> SessionOp,
            vec!["fire c 1 w"],
        ),
        (60, 0, left, vec![]),
        (60, 5, lost, vec![]),
        (0, 5, lost, vec!["fire c 1 w", "ended c 1"]),
        (0, 5, left, vec!["ended c 1"]),
    ] {
        let mut shard = Shard::new();
        shard.claimed(0, Connect("c", 60).will("w", delay));
        assert_eq!(shard.told(1, close("c", 1, expiry)), expected);
        // Once.
        shard.ask(2, close("c", 1, expiry));
        assert_eq!(shard.told(2, SessionOp::Due), NOTHING);
    }
}

#[test]
fn who_has_disconnected_is_not_disconnected_again() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).will("w", 5));
    shard.told(1, lost("c", 1, 60));
    // Whether its will was published in between, nobody knows any more.
    let again = shard.ask(50, left("c", 1, 10));
    assert_eq!(again, (SessionReply::Stale, vec![]));
    assert_eq!(shard.machine.next_deadline(), Some(6_000));
    assert_eq!(shard.ask(50, lost("c", 2, 60)).0, SessionReply::Stale);
    assert_eq!(shard.ask(50, lost("d", 1, 60)).0, SessionReply::Stale);
}

#[test]
fn what_is_owed_outlives_the_session_and_harms_no_other() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).will("w", 0));
    let told = shard.told(1, lost("c", 1, 0));
    assert_eq!(told, ["fire c 1 w", "ended c 1"]);
    assert!(shard.machine.known("c"));
    let claimed = shard.claimed(2, Connect("c", 60).will("v", 5));
    assert!(!claimed.resumed && claimed.had_inbox);
    assert_eq!(shard.outstanding(), ["fire c 1 w", "ended c 1"]);
    // Neither is about the new session, whose epoch is 2.
    assert_eq!(shard.told(3, gone("c", 2)), NOTHING);
    assert_eq!(shard.told(3, fired("c", 2)), NOTHING);
    assert_eq!(shard.outstanding().len(), 2);
    assert_eq!(shard.told(3, gone("c", 1)), NOTHING);
    assert_eq!(shard.told(3, fired("c", 1)), NOTHING);
    assert_eq!(shard.outstanding(), NOTHING);
    let claimed = shard.claimed(4, Connect("c", 60).op());
    assert!(claimed.resumed, "{claimed:?}");
}

#[test]
fn a_will_that_is_due_before_the_close_is_not_due_at_it() {
    let mut shard = Shard::new();
    let mut connect = |expiry, delay| {
        let claimed = shard.claimed(0, Connect("c", expiry).will("w", delay));
        let epoch = claimed.epoch;
        let early = shard.told(1, will_due("c", epoch));
        let late = shard.told(2, lost("c", epoch, expiry));
        (early, late)
    };
    let fire = |epoch: u64| vec![format!("fire c {epoch} w")];
    assert_eq!(connect(60, 0), (fire(1), vec![]));
    assert_eq!(connect(60, 5), (vec![], vec![]));
    // Whose session ends with its connection has no delay.
    let (early, late) = connect(0, 5);
    assert_eq!((early, late), (fire(3), vec!["ended c 3".to_owned()]));
    assert_eq!(shard.ask(3, will_due("c", 3)).0, SessionReply::Stale);
}

#[test]
fn a_client_is_known_until_nothing_is_left_of_it() {
    let mut shard = Shard::new();
    let known = |shard: &Shard| {
        let mut known = Vec::new();
        shard
            .machine
            .for_each_known(|client| known.push(client.to_owned()));
        known
    };
    shard.claimed(0, Connect("c", 60).will("w", 0));
    shard.claimed(0, Connect("c", 60).will("v", 0));
    assert_eq!(known(&shard), ["c"]);
    shard.told(1, lost("c", 2, 0));
    let expected = SessionCounts {
        firing: 2,
        ending: 1,
        ..SessionCounts::default()
    };
    assert_eq!(shard.machine.counts(), expected);
    assert_eq!(known(&shard), ["c"]);
    for op in [fired("c", 1), fired("c", 2)] {
        assert_eq!(shard.told(1, op), NOTHING);
        assert_eq!(known(&shard), ["c"]);
    }
    assert_eq!(shard.told(1, gone("c", 1)), NOTHING);
    assert_eq!(shard.told(1, gone("c", 2)), ["not known c"]);
    assert_eq!(known(&shard), NOTHING);
}

#[test]
fn counts_are_those_of_the_records() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("a", 60).will("w", 5));
    shard.claimed(0, Connect("b", NEVER_EXPIRES).op());
    shard.claimed(0, Connect("c", 0).op());
    shard.told(0, lost("a", 1, 60));
    let expected = SessionCounts {
        records: 3,
        connected: 2,
        wills: 1,
        ..SessionCounts::default()
    };
    assert_eq!(shard.machine.counts(), expected);
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.machine.counts(), expected);
}

#[test]
fn operations_of_one_client_go_to_its_slot() {
    const HASH: NameHash = NameHash::with_seed(5);
    let slot = SessionMachine::slot;
    for op in [
        Connect("c", 0).op(),
        lost("c", 1, 0),
        fired("c", 1),
        gone("c", 1),
        will_due("c", 1),
    ] {
        assert_eq!(slot(&op, HASH), Some(HASH.slot_of("c")));
    }
    assert_eq!(slot(&SessionOp::Due, HASH), None);
}

#[test]
fn the_message_of_a_will_comes_as_it_was_given() {
    let mut shard = Shard::new();
    let given = will("w", 7);
    shard.claimed(0, Connect("c", 60).from((1, 1), false, Some(given.clone())));
    shard.checkpoint();
    shard.restart();
    let record = shard.machine.records.get("c").unwrap();
    let kept = record.will.as_ref().unwrap();
    assert_eq!(format!("{kept:?}"), format!("{:?}", Box::new(given)));
}
