//! Disks that are full, and disks that fail.

use std::time::Instant;

use consensus::simulation::{Chance, Loss, SimulatedDisk};
use consensus::{Condition, Log, LogOptions, ProposeError};
use tokio::time::timeout;

use crate::ledger::{DEADLINE, Ledger, Note, Scratch, open, runtime, start, write};

async fn until(log: &Log, condition: impl FnMut(&Condition) -> bool) -> Condition {
    let mut watch = log.watch();
    let seen = timeout(DEADLINE, watch.wait_for(condition)).await;
    seen.expect("in time").expect("the log is open").clone()
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    for seed in 0..20 {
        let (scratch, disk, ledger) = (Scratch::new(), SimulatedDisk::new(), Ledger::default());
        // Some are full at the end of a file, some in the header of the next.
        let options = LogOptions {
            file_bytes: 8 << 10,
            ..scratch.options()
        };
        let log = open(&options, &disk).expect("the log opens");
        runtime().block_on(async {
            let group = start(&log, &ledger).await;
            write(&group, 0..10, 100).await;
            let more = Chance(seed).below(12 << 10);
            disk.set_capacity(Some(disk.used_bytes() + more));
            let mut proposals = Vec::new();
            let mut next = 10..;
            while *log.watch().borrow() == Condition::Working {
                let number = next.next().expect("numbers do not end");
                match group.propose(Note::new(number, 300)).await {
                    Ok(proposal) => proposals.push(proposal),
                    Err(error) => assert_eq!(error, ProposeError::Full),
                }
                tokio::task::yield_now().await;
            }
            let refused = group.propose(Note::new(0, 0)).await;
            assert_eq!(refused.err(), Some(ProposeError::Full));

            disk.set_capacity(None);
            for proposal in proposals {
                proposal.await.expect("it waited for room");
            }
            until(&log, |condition| *condition == Condition::Working).await;
            write(&group, 1_000_000..1_000_010, 300).await;
            group.shutdown().await;
        });
        drop(log);

        disk.restart(Loss::All, 0);
        let log = open(&options, &disk).expect("the log opens again");
        let again = Ledger::default();
        runtime().block_on(async { start(&log, &again).await.shutdown().await });
        assert_eq!(again.pages().notes, ledger.pages().notes, "seed {seed}");
    }
}

#[test]
fn a_log_waits_for_files_that_the_system_lacks() {
    let (scratch, disk, ledger) = (Scratch::new(), SimulatedDisk::new(), Ledger::default());
    let options = LogOptions {
        file_bytes: 8 << 10,
        ..scratch.options()
    };
    let log = open(&options, &disk).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        write(&group, 0..10, 100).await;
        disk.set_lacks_files(true);
        let mut proposals = Vec::new();
        let begun = Instant::now();
        // Until the next file is due. Writes are still taken: the disk is in order.
        for number in 10.. {
            if log.stats().waits_for_files.0 > 0 {
                break;
            }
            assert!(begun.elapsed() < DEADLINE, "no file was needed");
            let proposal = group.propose(Note::new(number, 300)).await;
            proposals.push(proposal.expect("it is taken"));
            tokio::task::yield_now().await;
        }
        assert_eq!(*log.watch().borrow(), Condition::Working);
        disk.set_lacks_files(false);
        for proposal in proposals {
            proposal.await.expect("it waited for a file");
        }
        group.shutdown().await;
    });
    drop(log);
    disk.restart(Loss::All, 0);
    let log = open(&options, &disk).expect("the log opens again");
    let again = Ledger::default();
    runtime().block_on(async { start(&log, &again).await.shutdown().await });
    assert_eq!(again.pages().notes, ledger.pages().notes);
}

#[test]
fn a_log_that_is_full_can_be_closed_and_opened() {
    let (scratch, disk, ledger) = (Scratch::new(), SimulatedDisk::new(), Ledger::default());
    let log = open(&scratch.options(), &disk).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        write(&group, 0..10, 100).await;
        disk.set_capacity(Some(disk.used_bytes()));
        let proposal = group.propose(Note::new(10, 4 << 20)).await;
        until(&log, |condition| *condition == Condition::Full).await;
        drop(log);
        assert_eq!(
            proposal.expect("it was taken").await,
            Err(ProposeError::Unknown)
        );
    });
    disk.set_capacity(None);
    let log = open(&scratch.options(), &disk).expect("the log opens again");
    let again = Ledger::default();
    runtime().block_on(async { start(&log, &again).await.shutdown().await });
    assert!(again.pages().numbers().into_iter().eq(0..10));
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    for loss in [Loss::All, Loss::Tail, Loss::Sectors] {
        let (scratch, disk, ledger) = (Scratch::new(), SimulatedDisk::new(), Ledger::default());
        let log = open(&scratch.options(), &disk).expect("the log opens");
        runtime().block_on(async {
            let group = start(&log, &ledger).await;
            write(&group, 0..10, 100).await;
            disk.fail_syncs();
            let doomed = group
                .propose(Note::new(10, 100))
                .await
                .expect("it is taken");
            assert_eq!(doomed.await, Err(ProposeError::Unknown));
            let failed = |condition: &Condition| matches!(condition, Condition::Failed(_));
            until(&log, failed).await;
            let refused = group.propose(Note::new(11, 100)).await;
            assert!(
                matches!(&refused, Err(ProposeError::Stopped(why)) if why.contains("sync failed")),
                "{refused:?}"
            );
            assert_eq!(ledger.pages().notes.len(), 10, "nothing more is applied");
        });
        drop(log);

        disk.restart(loss, 1);
        let log = open(&scratch.options(), &disk).expect("the log opens again");
        let again = Ledger::default();
        runtime().block_on(async { start(&log, &again).await.shutdown().await });
        assert!(
            again
                .pages()
                .numbers()
                .starts_with(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
        );
    }
}
