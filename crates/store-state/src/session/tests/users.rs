//! Whose a session is.

use super::driver::{Connect, Shard, again, by, left, lost};
use crate::session::{OfAnotherUser, SessionMachine, SessionOp, SessionReply, TakenFrom};
use crate::{Machine, Slots, row};

use OfAnotherUser::{Discard, Refuse};

/// A claim of another process, which would take the client over.
fn claim(user: Option<&str>, of_another_user: OfAnotherUser) -> SessionOp {
    let elsewhere = Connect("c", 60).from((2, 1), false, None);
    by(user, of_another_user, elsewhere)
}

/// Ann's session, with a will, connected.
fn anns() -> Shard {
    let mut shard = Shard::new();
    let claim = by(Some("ann"), Refuse, Connect("c", 60).will("w", 0));
    shard.claimed(0, claim);
    shard
}

#[test]
fn another_user_neither_gets_a_session_nor_ends_it() {
    for user in [Some("bob"), Some(""), None] {
        let mut shard = anns();
        for clean in [false, true] {
            let op = Connect("c", 0).from((2, 1), clean, None);
            let refused = (SessionReply::NotOwner, vec![]);
            assert_eq!(shard.ask(1, by(user, Refuse, op.clone())), refused);
            assert_eq!(shard.ask(1, again(1, by(user, Refuse, op))), refused);
        }
        // Its connection and its will are as they were.
        assert_eq!(shard.owner("c"), Some((1, 1)));
        assert_eq!(shard.told(2, lost("c", 1, 60)), ["fire c 1 w"]);
        assert_eq!(
            shard.ask(3, claim(user, Refuse)).0,
            SessionReply::NotOwner,
            "nor when nobody is connected"
        );
        let resumed = shard.claimed(4, claim(Some("ann"), Refuse));
        assert!(resumed.resumed);
    }
}

#[test]
fn another_user_gets_a_session_of_his_own_if_so_set() {
    for user in [Some("bob"), None] {
        let mut shard = anns();
        let (reply, told) = shard.ask(1, claim(user, Discard));
        let SessionReply::Claimed(claimed) = reply else {
            panic!("{reply:?}");
        };
        assert!(!claimed.resumed && claimed.had_inbox);
        assert_eq!(claimed.taken_from, TakenFrom::Node { node: 1, will: 1 });
        assert_eq!(told, ["fire c 1 w", "ended c 1"]);
        assert_eq!(shard.incarnation("c"), Some(claimed.epoch));
        // Asked again, it is the same claim.
        let again = shard.claimed(2, again(1, claim(user, Discard)));
        assert_eq!((again.epoch, again.resumed), (claimed.epoch, false));
    }
}

#[test]
fn a_session_of_nobody_in_particular_is_of_the_first_user_who_claims_it() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).op());
    assert!(shard.claimed(1, claim(None, Refuse)).resumed);
    assert!(shard.claimed(2, claim(Some("ann"), Refuse)).resumed);
    for user in [Some("bob"), None] {
        assert_eq!(shard.ask(3, claim(user, Refuse)).0, SessionReply::NotOwner);
    }
}

#[test]
fn a_session_that_has_ended_is_nobodys() {
    let mut shard = anns();
    shard.told(1, left("c", 1, 5));
    assert_eq!(
        shard.ask(5, claim(Some("bob"), Refuse)).0,
        SessionReply::NotOwner
    );
    let claimed = shard.claimed(6, claim(Some("bob"), Refuse));
    assert!(!claimed.resumed && claimed.had_inbox);
}

#[test]
fn whose_a_session_is_survives_a_crash() {
    let mut shard = anns();
    shard.checkpoint();
    shard.restart();
    assert_eq!(
        shard.ask(1, claim(Some("bob"), Refuse)).0,
        SessionReply::NotOwner
    );
    assert!(shard.claimed(1, claim(Some("ann"), Refuse)).resumed);
    let survey = SessionMachine::survey(Slots::ALL, &shard.table);
    assert_eq!(survey.findings, []);
}

#[test]
fn a_row_that_names_no_user_is_as_it_always_was() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).op());
    shard.checkpoint();
    // Format, epoch, incarnation, node and its incarnation, since, expiry, inbox, will.
    let row = [1, 1, 1, 1, 1, 1, 0, 60, 1, 0];
    assert_eq!(shard.table.rows[&row::unseeded_key(b'S', "c")], row);
    shard.restart();
    assert!(shard.claimed(1, claim(Some("ann"), Refuse)).resumed);
}

#[test]
fn an_anonymous_claim_is_written_as_it_always_was() {
    let SessionOp::Claim(request) = Connect("c", 60).op() else {
        panic!("a claim");
    };
    let op = SessionOp::claim(request.clone(), None, Refuse);
    assert!(matches!(op, SessionOp::ClaimHolding(_)), "{op:?}");
    for op in [
        SessionOp::claim(request.clone(), None, Discard),
        SessionOp::claim(request, Some("ann".into()), Refuse),
    ] {
        assert!(matches!(op, SessionOp::ClaimHolding(_)), "{op:?}");
        assert!(matches!(op.again(), SessionOp::ClaimHoldingAgain(_)));
    }
}
