//! What happens by the passing of time, and by the end of a node.

use mqtt_session::NEVER_EXPIRES;

use super::driver::{Connect, Shard, Told, header, left, lost};
use crate::Machine;
use crate::session::{SessionOp, SessionReply};

const NOTHING: [&str; 0] = [];

fn node_up(node: u64, incarnation: u64, last_alive: u64) -> SessionOp {
    SessionOp::NodeUp {
        node,
        incarnation,
        last_alive_ms: last_alive * 1_000,
    }
}

/// [MQTT-4.1.0-2] [MQTT-3.1.2-23]
#[test]
fn session_expiry() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).op());
    assert_eq!(shard.machine.next_deadline(), None);
    // DISCONNECT may change the interval.
    shard.told(10, left("c", 1, 30));
    assert_eq!(shard.machine.next_deadline(), Some(40_000));
    assert_eq!(shard.told(39, SessionOp::Due), NOTHING);
    assert_eq!(shard.told(40, SessionOp::Due), ["ended c 1"]);
    assert_eq!(shard.machine.next_deadline(), None);
    assert!(!shard.claimed(41, Connect("c", 60).op()).resumed);
}

#[test]
fn a_session_may_never_expire() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", NEVER_EXPIRES).op());
    shard.told(0, left("c", 1, NEVER_EXPIRES));
    assert_eq!(shard.machine.next_deadline(), None);
    let now = u64::MAX / 1_000;
    assert_eq!(shard.told(now, SessionOp::Due), NOTHING);
    assert!(shard.claimed(now, Connect("c", 0).op()).resumed);
}

/// [MQTT-3.1.2-8] [MQTT-3.1.2-10] after its delay, once; the session lives on.
#[test]
fn the_will_after_its_delay() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).will("w", 5));
    shard.told(10, lost("c", 1, 60));
    assert_eq!(shard.machine.next_deadline(), Some(15_000));
    assert_eq!(shard.told(14, SessionOp::Due), NOTHING);
    assert_eq!(shard.told(15, SessionOp::Due), ["fire c 1 w"]);
    assert_eq!(shard.machine.next_deadline(), Some(70_000));
    assert_eq!(shard.told(70, SessionOp::Due), ["ended c 1"]);
}

/// [MQTT-3.1.2-8] no later than the end of the session.
#[test]
fn the_will_at_the_end_of_the_session() {
    for delay in [60, 600] {
        let mut shard = Shard::new();
        shard.claimed(0, Connect("c", 60).will("w", delay));
        shard.told(0, lost("c", 1, 60));
        assert_eq!(shard.told(59, SessionOp::Due), NOTHING);
        let both = ["fire c 1 w", "ended c 1"];
        assert_eq!(shard.told(60, SessionOp::Due), both);
    }
}

/// [MQTT-3.1.3-9]
#[test]
fn no_will_for_who_returns_in_time() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).will("w", 5));
    shard.told(0, lost("c", 1, 60));
    let (_, told) = shard.ask(4, Connect("c", 60).will("v", 5));
    assert_eq!(told, NOTHING);
    shard.told(10, lost("c", 2, 60));
    assert_eq!(shard.told(100, SessionOp::Due), ["fire c 2 v", "ended c 2"]);
}

/// What is due has happened, even if nobody has asked yet.
#[test]
fn who_returns_too_late_finds_what_time_has_done() {
    let lost_with_will = || {
        let mut shard = Shard::new();
        shard.claimed(0, Connect("c", 60).will("w", 5));
        shard.told(0, lost("c", 1, 60));
        shard
    };
    let mut shard = lost_with_will();
    let (reply, told) = shard.ask(5, Connect("c", 60).op());
    assert_eq!(told, ["fire c 1 w"]);
    assert!(matches!(reply, SessionReply::Claimed(claimed) if claimed.resumed));
    let mut shard = lost_with_will();
    let (reply, told) = shard.ask(60, Connect("c", 60).op());
    assert_eq!(told, ["fire c 1 w", "ended c 1"]);
    assert!(
        matches!(reply, SessionReply::Claimed(claimed) if !claimed.resumed && claimed.had_inbox)
    );
}

#[test]
fn what_is_due_happens_in_the_order_of_time() {
    let mut shard = Shard::new();
    for (client, delay) in [("b", 30), ("z", 10), ("a", 10), ("c", 70)] {
        let epoch = shard.claimed(0, Connect(client, 50).will("w", delay)).epoch;
        shard.told(0, lost(client, epoch, 50));
    }
    let told = [
        "fire z 2 w",
        "fire a 3 w",
        "fire b 1 w",
        "ended b 1",
        "ended z 2",
        "ended a 3",
        "fire c 4 w",
        "ended c 4",
    ];
    assert_eq!(shard.told(100, SessionOp::Due), told);
}

#[test]
fn connections_of_an_earlier_process_ended_when_it_was_last_alive() {
    let mut shard = Shard::new();
    shard.told(0, node_up(1, 1, 0));
    shard.claimed(0, Connect("now", 60).will("w", 0));
    shard.claimed(0, Connect("later", 60).will("w", 20));
    shard.claimed(0, Connect("bare", 0).will("w", 9));
    shard.claimed(0, Connect("elsewhere", 0).from((2, 1), false, None));
    let (reply, told) = shard.ask(100, node_up(1, 2, 50));
    assert_eq!(reply, SessionReply::Done);
    assert_eq!(told, ["fire now 1 w", "fire bare 3 w"]);
    assert_eq!(shard.machine.counts().connected, 1);
    assert_eq!(shard.machine.next_deadline(), Some(70_000));
    let told = shard.told(110, SessionOp::Due);
    assert_eq!(told, ["fire later 2 w", "ended now 1", "ended later 2"]);
}

#[test]
fn a_connection_did_not_end_before_it_began_nor_in_the_future() {
    for (last_alive, deadline) in [(5, 70), (15, 75), (99, 80)] {
        let mut shard = Shard::new();
        shard.claimed(10, Connect("c", 60).op());
        shard.told(20, node_up(1, 2, last_alive));
        assert_eq!(shard.machine.next_deadline(), Some(deadline * 1_000));
    }
}

#[test]
fn nothing_is_heard_of_a_process_that_has_ended() {
    let mut shard = Shard::new();
    shard.told(0, node_up(1, 2, 0));
    let stale = (SessionReply::Stale, vec![]);
    let from = |process| Connect("c", 60).from(process, false, None);
    assert_eq!(shard.ask(1, from((1, 1))), stale);
    assert!(!shard.machine.known("c"));
    assert_eq!(shard.ask(1, node_up(1, 1, 0)), stale);
    assert_eq!(shard.claimed(1, from((1, 2))).epoch, 1);
    // The same process again.
    assert_eq!(shard.ask(1, node_up(1, 2, 0)).0, SessionReply::Done);
    assert_eq!(shard.owner("c"), Some((1, 1)));
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.ask(1, from((1, 1))), stale);
}

/// The most that one part of an operation may end or close.
const AT_ONCE: usize = 256;

/// Applies an operation part by part: what each part told of.
fn parts(shard: &mut Shard, now: u64, op: &SessionOp) -> Vec<Vec<String>> {
    let mut parts = Vec::new();
    loop {
        let mut told = Told::default();
        let header = header(now * 1_000);
        let reply = shard
            .machine
            .apply_part(&header, op, &shard.table, &mut told);
        parts.push(told.0);
        if let Some(reply) = reply.unwrap() {
            assert_eq!(reply, SessionReply::Done);
            return parts;
        }
    }
}

#[test]
fn however_many_sessions_expire_at_once_it_takes_parts() {
    const SESSIONS: usize = 1_000;
    let mut shard = Shard::new();
    for number in 0..SESSIONS {
        let client = format!("c{number}");
        let epoch = shard.claimed(0, Connect(&client, 60).op()).epoch;
        shard.told(1, left(&client, epoch, 60));
    }
    let parts = parts(&mut shard, 61, &SessionOp::Due);
    let ended = |told: &Vec<String>| told.iter().filter(|line| line.starts_with("ended")).count();
    assert_eq!(parts.iter().map(ended).sum::<usize>(), SESSIONS);
    assert!(parts.iter().all(|told| ended(told) <= AT_ONCE));
    assert_eq!(shard.machine.next_deadline(), None);
}

#[test]
fn however_many_clients_a_node_had_its_end_takes_parts() {
    const CLIENTS: usize = 1_000;
    let mut shard = Shard::new();
    for number in 0..CLIENTS {
        shard.claimed(0, Connect(&format!("c{number}"), 0).op());
    }
    let node = shard.owner("c0").unwrap().0;
    let parts = parts(&mut shard, 5, &node_up(node, u64::MAX, 4));
    let gone = |told: &Vec<String>| {
        told.iter()
            .filter(|line| line.starts_with("not known"))
            .count()
    };
    assert_eq!(parts.iter().map(gone).sum::<usize>(), CLIENTS);
    assert!(parts.iter().all(|told| gone(told) <= AT_ONCE));
    assert_eq!(shard.machine.counts().connected, 0);
}
