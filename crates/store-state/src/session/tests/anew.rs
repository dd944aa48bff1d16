//! A shard that begins anew when all its replicas are lost.

use super::driver::{Connect, Shard, Told};
use crate::session::{SessionMachine, SessionReply, begin_anew};
use crate::test_table::TestTable;
use crate::{Machine, NameHash, Slots};

const NEXT: u64 = 1_000_000;

fn begun() -> Shard {
    let mut table = TestTable::default();
    let left = [("ann", 7), ("bob", NEXT - 1)];
    table.write(&begin_anew(NameHash::default(), NEXT, left));
    let machine = SessionMachine::load(Slots::ALL, &table).unwrap();
    Shard { machine, table }
}

#[test]
fn its_rows_are_right() {
    let survey = SessionMachine::survey(Slots::ALL, &begun().table);
    assert_eq!(survey.findings, []);
}

#[test]
fn inboxes_without_a_session_are_removed() {
    let shard = begun();
    let mut told = Told::default();
    shard.machine.outstanding(&mut told);
    told.0.sort();
    assert_eq!(
        told.0,
        ["ended ann 7".to_owned(), format!("ended bob {}", NEXT - 1)]
    );
}

#[test]
fn a_client_that_comes_back_gets_a_new_session_with_a_higher_epoch() {
    let mut shard = begun();
    let (reply, _) = shard.ask(1, Connect("bob", 60).op());
    let SessionReply::Claimed(claimed) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!((claimed.epoch, claimed.resumed), (NEXT, false));
    // The inbox of the lost session is still to be removed, and not the new one's.
    let mut told = Told::default();
    shard.machine.outstanding(&mut told);
    assert!(
        told.0.contains(&format!("ended bob {}", NEXT - 1)),
        "{:?}",
        told.0
    );
    assert!(
        !told.0.contains(&format!("ended bob {NEXT}")),
        "{:?}",
        told.0
    );
}
