//! What tables hold, the log may forget.

use std::time::Duration;

use consensus::simulation::{Loss, SimulatedDisk};
use consensus::{Log, LogOptions, StartError};

use crate::ledger::{Ledger, Scratch, open, runtime, start, start_alone, try_start, write};

/// Small files that are deleted at once.
fn options(scratch: &Scratch) -> LogOptions {
    LogOptions {
        file_bytes: 64 << 10,
        disk_bytes: 128 << 10,
        purge_interval: Duration::ZERO,
        ..scratch.options()
    }
}

#[test]
fn bound_the_log_and_what_a_restart_applies_again() {
    let (scratch, disk, ledger) = (Scratch::new(), SimulatedDisk::new(), Ledger::default());
    let log = open(&options(&scratch), &disk).expect("the log opens");
    let mark = runtime().block_on(async {
        let group = start(&log, &ledger).await;
        for round in 0..50 {
            write(&group, round * 100..(round + 1) * 100, 200).await;
            group.checkpointed(ledger.checkpoint()).await;
        }
        write(&group, 5_000..5_050, 200).await;
        group.shutdown().await;
        ledger.durable_mark()
    });
    assert!(log.stats().written_bytes > 1_000_000);
    drop(log);
    let used = disk.used_bytes();
    assert!(used < 500_000, "{used} bytes for 1,000 entries to keep");

    disk.restart(Loss::All, 0);
    let log = open(&options(&scratch), &disk).expect("the log opens again");
    let again = ledger.after_crash();
    assert_eq!(again.pages().notes.len(), 5_000);
    runtime().block_on(async {
        let group = start(&log, &again).await;
        assert!(again.pages().numbers().into_iter().eq(0..5_050));
        // Tables that were left behind cannot be brought up from what the log still has.
        group.shutdown().await;
        let old = try_start(1, &log, &Ledger::default()).await;
        assert!(
            matches!(old, Err(StartError::TablesTooOld { tables_next: 0, log_first }) if log_first > 0),
            "{:?}",
            old.err()
        );
    });
    assert!(mark.index() >= Some(5_000));
}

#[test]
fn of_another_log_are_refused() {
    let ledger = Ledger::default();
    let first = Scratch::new();
    runtime().block_on(async {
        let log = Log::open(&first.options()).expect("the log opens");
        let group = start(&log, &ledger).await;
        write(&group, 0..10, 8).await;
        ledger.checkpoint();
        group.shutdown().await;
    });
    let empty = Scratch::new();
    let log = Log::open(&empty.options()).expect("the log opens");
    let started = runtime().block_on(try_start(1, &log, &ledger.after_crash()));
    assert!(
        matches!(started, Err(StartError::LogTooShort { log_next: 0, .. })),
        "{:?}",
        started.err()
    );
}

#[test]
fn a_node_that_is_no_member_does_not_start() {
    let scratch = Scratch::new();
    let log = Log::open(&scratch.options()).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &Ledger::default()).await;
        group.shutdown().await;
        let options = consensus::GroupOptions::default();
        let other = start_alone(1, 2, &log, &Ledger::default(), &options).await;
        assert!(matches!(other, Err(StartError::NotAMember)));
    });
}

#[test]
fn a_deleted_group_leaves_its_vote_and_nothing_else() {
    let (scratch, disk) = (Scratch::new(), SimulatedDisk::new());
    let log = open(&scratch.options(), &disk).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &Ledger::default()).await;
        write(&group, 0..10, 8).await;
        group.shutdown().await;
        log.delete_group(1).await.expect("it is deleted");
    });
    assert!(!log.has_replica(1));
    drop(log);
    disk.restart(Loss::All, 0);
    let log = open(&scratch.options(), &disk).expect("the log opens again");
    assert!(!log.has_replica(1));
    runtime().block_on(async {
        // It has voted: it may be made a member again, but not begin the group anew.
        let options = consensus::GroupOptions::default();
        let anew = start_alone(1, 1, &log, &Ledger::default(), &options).await;
        assert!(matches!(anew, Err(StartError::NotAMember)));
    });
}
