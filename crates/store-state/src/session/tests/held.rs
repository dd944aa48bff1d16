//! Wills of connections that were taken over by another process.

use super::driver::{Connect, Shard, fired, holding, left, lost, will, will_due};
use crate::session::held::{HELD_MS, MOST};
use crate::session::{SessionOp, SessionReply, TakenFrom};

const NOTHING: [&str; 0] = [];
const HELD_S: u64 = HELD_MS / 1_000;

/// A client with a will at node 1, epoch 1, that connects to node 2, epoch 2.
fn taken_over(expiry: u32, clean: bool) -> Shard {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", expiry).will("w", 0));
    let claim = holding(Connect("c", 60).from((2, 1), clean, None));
    let told = shard.told(1, claim);
    let ended = ["ended c 1".to_owned()];
    assert_eq!(told, if clean && expiry > 0 { &ended[..] } else { &[] });
    shard
}

#[test]
fn a_disconnect_that_is_overtaken_by_the_next_connect_discards_the_will() {
    for (expiry, clean) in [(60, false), (60, true), (0, false), (0, true)] {
        let mut shard = taken_over(expiry, clean);
        assert_eq!(
            shard.ask(2, left("c", 1, expiry)),
            (SessionReply::Done, vec![])
        );
        assert_eq!(shard.machine.next_deadline(), None);
        assert_eq!(shard.ask(3, lost("c", 1, expiry)).0, SessionReply::Stale);
        assert_eq!(shard.told(60, SessionOp::Due), NOTHING);
        shard.checkpoint();
        assert_eq!(
            (shard.table.rows_of(b'W'), shard.table.rows_of(b'H')),
            (0, 0)
        );
    }
}

#[test]
fn a_will_is_published_when_its_connection_has_ended_otherwise() {
    for end in [lost("c", 1, 60), will_due("c", 1)] {
        let mut shard = taken_over(60, false);
        assert_eq!(shard.told(2, end.clone()), ["fire c 1 w"]);
        assert_eq!(shard.ask(3, end), (SessionReply::Stale, vec![]));
        assert_eq!(shard.told(3, fired("c", 1)), NOTHING);
        assert_eq!(shard.told(60, SessionOp::Due), NOTHING);
    }
}

#[test]
fn a_will_is_not_held_for_ever() {
    for restarts in [false, true] {
        let mut shard = taken_over(60, false);
        assert_eq!(shard.machine.next_deadline(), Some((1 + HELD_S) * 1_000));
        if restarts {
            shard.checkpoint();
            shard.restart();
            assert_eq!(shard.outstanding(), NOTHING);
        }
        assert_eq!(shard.told(HELD_S, SessionOp::Due), NOTHING);
        assert_eq!(shard.told(1 + HELD_S, SessionOp::Due), ["fire c 1 w"]);
        assert_eq!(
            shard.ask(2 + HELD_S, left("c", 1, 60)).0,
            SessionReply::Stale
        );
    }
}

#[test]
fn a_will_is_published_when_the_process_that_had_the_connection_has_ended() {
    let mut shard = taken_over(60, false);
    let node_up = |node, incarnation| SessionOp::NodeUp {
        node,
        incarnation,
        last_alive_ms: 2_000,
    };
    shard.told(3, node_up(2, 1));
    shard.told(3, node_up(1, 1));
    assert_eq!(shard.told(3, SessionOp::Due), NOTHING);
    shard.told(3, node_up(1, 2));
    assert_eq!(shard.told(3, SessionOp::Due), ["fire c 1 w"]);
}

#[test]
fn a_will_is_not_held_for_its_own_process_nor_one_that_is_delayed() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).will("w", 0));
    let again = holding(Connect("c", 60).will("v", 5));
    assert_eq!(shard.told(1, again), ["fire c 1 w"]);
    let elsewhere = holding(Connect("c", 60).from((2, 1), false, None));
    assert_eq!(shard.told(2, elsewhere), NOTHING);
    assert_eq!(shard.machine.counts().held, 0);
    assert_eq!(shard.told(60, SessionOp::Due), NOTHING);
}

#[test]
fn what_is_held_is_bounded() {
    let mut shard = Shard::new();
    let client = |n: usize| format!("c{n}");
    for n in 0..=MOST {
        let connect = Connect(&client(n), 60);
        shard.claimed(0, connect.from((1, 1), false, Some(will("w", 0))));
    }
    for n in 0..=MOST {
        let claim = holding(Connect(&client(n), 60).from((2, 1), false, None));
        let told = shard.told(1, claim);
        assert_eq!(told.len(), usize::from(n == MOST), "{told:?}");
    }
    assert_eq!(shard.machine.counts().held, MOST);
    assert_eq!(shard.machine.counts().firing, 1);
}

#[test]
fn a_connection_waits_for_the_wills_of_earlier_ones() {
    let mut shard = taken_over(60, false);
    assert!(shard.machine.awaits_wills("c"));
    assert!(!shard.machine.awaits_wills("d"));
    // It is known to be due, and then published.
    shard.told(2, will_due("c", 1));
    assert!(shard.machine.awaits_wills("c"));
    shard.checkpoint();
    shard.restart();
    assert!(shard.machine.awaits_wills("c"));
    shard.told(3, fired("c", 1));
    assert!(!shard.machine.awaits_wills("c"));
    // A shutdown publishes the will of the present connection, and that does not wait for itself.
    shard.claimed(4, Connect("d", 60).will("w", 0));
    assert_eq!(shard.told(5, will_due("d", 3)), ["fire d 3 w"]);
    assert!(!shard.machine.awaits_wills("d"));
}

#[test]
fn a_claim_says_which_will_is_waited_for() {
    let from = |node| holding(Connect("c", 60).from((node, 1), false, Some(will("w", 0))));
    let mut shard = Shard::new();
    let taken_from = |shard: &mut Shard, at, node| shard.claimed(at, from(node)).taken_from;
    assert_eq!(taken_from(&mut shard, 0, 1), TakenFrom::Nobody);
    let held = TakenFrom::Node { node: 1, will: 1 };
    assert_eq!(taken_from(&mut shard, 1, 2), held);
    // Node 1 has not said what became of the will: it may have it closed still, and so may any other node.
    assert_eq!(taken_from(&mut shard, 2, 3), TakenFrom::Unknown);
    shard.told(3, lost("c", 1, 60));
    // That one is being published; that of the connection which is superseded now is held.
    assert_eq!(taken_from(&mut shard, 4, 1), TakenFrom::Unknown);
    shard.told(5, will_due("c", 2));
    shard.told(5, will_due("c", 3));
    for epoch in 1..=3 {
        shard.told(5, fired("c", epoch));
    }
    // It was lost before, and nobody has a connection.
    shard.told(6, lost("c", 4, 60));
    let own = TakenFrom::Node { node: 2, will: 4 };
    assert_eq!(taken_from(&mut shard, 7, 2), own);
}
