//! What a group does with proposals when nothing goes wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use consensus::simulation::SimulatedDisk;
use consensus::{COMMAND_LIMIT, GroupOptions, Log, LogError, ProposeError};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::ledger::{
    DEADLINE, Ledger, Note, Scratch, open, runtime, start, start_alone, try_start, write,
};

#[test]
fn are_applied_in_order_and_flushed_in_batches() {
    let (scratch, ledger) = (Scratch::new(), Ledger::default());
    let log = Log::open(&scratch.options()).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        assert!(group.watch().borrow().leads);
        let before = ledger.pages().flushes;
        write(&group, 0..1_000, 16).await;
        assert!(ledger.pages().numbers().into_iter().eq(0..1_000));
        let flushes = ledger.pages().flushes - before;
        assert!((1..500).contains(&flushes), "{flushes} flushes");
        assert_eq!(group.applied_mark().index(), ledger.pages().last_index);
        group.shutdown().await;
    });
    let stats = log.stats();
    assert!(stats.entries >= 1_000 && stats.batches < 500, "{stats:?}");
    assert!(stats.written_bytes > 1_000 * 16 && stats.syncs >= stats.batches);
    assert_eq!((stats.waiting_entries, stats.waiting_bytes), (0, 0));
}

#[test]
fn what_was_proposed_here_is_applied_without_being_decoded() {
    let (scratch, ledger) = (Scratch::new(), Ledger::default());
    let log = Log::open(&scratch.options()).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        let note = Note::new(7, 32);
        let proposed = group.propose(note.clone()).await.expect("it is taken");
        proposed.await.expect("it is applied");
        assert!(Arc::ptr_eq(&ledger.pages().notes[0].0, &note.0));
        group.shutdown().await;
    });
}

#[test]
fn a_restart_applies_everything_again_though_little_stays_in_memory() {
    let (scratch, ledger) = (Scratch::new(), Ledger::default());
    let log = Log::open(&scratch.options()).expect("the log opens");
    runtime().block_on(async {
        let options = GroupOptions {
            tail_bytes: 1_000,
            in_flight_bytes: 5_000,
            ..GroupOptions::default()
        };
        let started = start_alone(1, 1, &log, &ledger, &options).await;
        let group = started.expect("the group starts");
        group.recovered().await.expect("it leads");
        write(&group, 0..2_000, 100).await;
        group.shutdown().await;
    });
    drop(log);

    let log = Log::open(&scratch.options()).expect("the log opens again");
    assert_eq!(log.group_ids(), [1]);
    let again = Ledger::default();
    runtime().block_on(async {
        let group = start(&log, &again).await;
        assert_eq!(again.pages().notes, ledger.pages().notes);
        write(&group, 2_000..2_010, 100).await;
        group.shutdown().await;
    });
    assert!(again.pages().numbers().into_iter().eq(0..2_010));
}

#[test]
fn groups_share_synced_writes() {
    let (scratch, disk) = (Scratch::new(), SimulatedDisk::new());
    let log = open(&scratch.options(), &disk).expect("the log opens");
    runtime().block_on(async {
        let ledgers: Vec<Ledger> = (0..8).map(|_| Ledger::default()).collect();
        let mut groups = Vec::new();
        for (id, ledger) in (1..).zip(&ledgers) {
            groups.push(try_start(id, &log, ledger).await.expect("it starts"));
        }
        for group in &groups {
            group.recovered().await.expect("it recovers");
        }
        let before = log.stats();
        let mut proposals = Vec::new();
        for number in 0..100 {
            for group in &groups {
                let proposed = group.propose(Note::new(number, 16)).await;
                proposals.push(proposed.expect("it is taken"));
            }
        }
        for proposal in proposals {
            proposal.await.expect("it is applied");
        }
        for ledger in &ledgers {
            assert!(ledger.pages().numbers().into_iter().eq(0..100));
        }
        let batches = log.stats().batches - before.batches;
        assert!(batches < 400, "800 commands took {batches} syncs");
    });
}

#[test]
fn what_is_larger_than_what_stays_in_memory_is_not_decoded_either() {
    let scratch = Scratch::new();
    let log = Log::open(&scratch.options()).expect("the log opens");
    let ledger = Ledger::default();
    // Each larger than what stays in memory of what is written.
    let notes: Vec<Note> = (0..20).map(|number| Note::new(number, 2 << 20)).collect();
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        let mut proposals = Vec::new();
        for note in &notes {
            proposals.push(group.propose(note.clone()).await.expect("it is taken"));
        }
        for proposal in proposals {
            proposal.await.expect("it is applied");
        }
        group.shutdown().await;
    });
    let applied = &ledger.pages().notes;
    let is_same = |(a, b): (&Note, &Note)| Arc::ptr_eq(&a.0, &b.0);
    assert!(applied.len() == 20 && applied.iter().zip(&notes).all(is_same));
}

#[test]
fn others_have_their_turn_while_a_long_command_is_applied() {
    const PARTS: usize = 500;
    let (scratch, ledger) = (Scratch::new(), Ledger::default());
    let log = Log::open(&scratch.options()).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        ledger.pages().parts_of_each = PARTS;
        let turns = Arc::new(AtomicUsize::new(0));
        let heart = tokio::spawn({
            let (turns, ledger) = (turns.clone(), ledger.clone());
            async move {
                loop {
                    if ledger.pages().parts > 0 {
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        let applied = group.applied_mark();
        let proposed = group.propose(Note::new(1, 8)).await.expect("it is taken");
        let long = proposed.await.expect("it is applied");
        heart.abort();
        // In between nothing of it counted as applied.
        assert!(applied.index() < Some(long));
        let turns = turns.load(Ordering::Relaxed);
        assert!(turns > PARTS / 2, "{turns} turns within {PARTS} parts");
        assert_eq!(ledger.pages().numbers(), [1]);
        group.shutdown().await;
    });
}

#[test]
fn what_would_not_fit_between_nodes_is_refused_and_the_next_goes_on() {
    let (scratch, ledger) = (Scratch::new(), Ledger::default());
    let log = Log::open(&scratch.options()).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        let refused = group.propose(Note::new(1, COMMAND_LIMIT)).await;
        assert!(matches!(refused, Err(ProposeError::TooLong { bytes }) if bytes > COMMAND_LIMIT));
        write(&group, 2..3, 16).await;
        assert_eq!(ledger.pages().numbers(), [2]);
        group.shutdown().await;
    });
}

#[test]
fn a_command_that_waits_is_asked_for_again_once() {
    let (scratch, ledger) = (Scratch::new(), Ledger::default());
    let log = Log::open(&scratch.options()).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        let (gate, gated) = watch::channel(true);
        ledger.pages().gate = Some(gated);
        write(&group, 0..3, 8).await;
        gate.send_replace(false);
        let waiting = group.propose(Note::new(3, 8)).await.expect("it is taken");
        let behind = group.propose(Note::new(4, 8)).await.expect("it is taken");
        ledger.found_closed().await;
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(ledger.pages().waits, 1, "it is asked without a reason");
        assert_eq!(ledger.pages().numbers(), [0, 1, 2]);
        // What is waited for may be that the tables are written.
        assert_eq!(ledger.checkpoint(), group.applied_mark());
        gate.send_replace(true);
        let first = waiting.await.expect("it is applied");
        assert_eq!(behind.await, Ok(first + 1));
        assert_eq!(ledger.pages().waits, 1);
        assert_eq!(ledger.pages().numbers(), [0, 1, 2, 3, 4]);
        group.shutdown().await;
    });
}

#[test]
fn what_was_applied_is_sent_out_before_a_command_waits() {
    let (scratch, ledger) = (Scratch::new(), Ledger::default());
    let log = Log::open(&scratch.options()).expect("the log opens");
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        let (_gate, gated) = watch::channel(false);
        {
            let mut pages = ledger.pages();
            (pages.gate, pages.gated_from) = (Some(gated), 3);
        }
        let mut proposals = Vec::new();
        for number in 0..4 {
            let proposed = group.propose(Note::new(number, 8)).await;
            proposals.push(proposed.expect("it is taken"));
        }
        ledger.found_closed().await;
        let last = ledger.pages().last_index;
        assert_eq!(ledger.checkpoint().index(), last);
        group.shutdown().await;
    });
}

#[test]
fn a_group_ends_though_a_command_waits() {
    let (scratch, ledger) = (Scratch::new(), Ledger::default());
    let (_gate, gated) = watch::channel(false);
    ledger.pages().gate = Some(gated);
    runtime().block_on(async {
        let log = Log::open(&scratch.options()).expect("the log opens");
        let group = start(&log, &ledger).await;
        let waiting = group.propose(Note::new(0, 8)).await.expect("it is taken");
        ledger.found_closed().await;
        group.shutdown().await;
        let outcome = timeout(DEADLINE, waiting).await;
        assert_eq!(outcome, Ok(Err(ProposeError::Unknown)));
        drop(log);
        // A task that still waited would hold the folder.
        for _ in 0..1_000 {
            match Log::open(&scratch.options()) {
                Err(LogError::Locked { .. }) => tokio::task::yield_now().await,
                opened => return drop(opened.expect("the log opens")),
            }
        }
        panic!("the folder stays locked");
    });
}
