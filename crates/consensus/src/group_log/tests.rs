//! openraft's own tests of a log, and what they leave out: files opened again.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::{RaftLogReader, StorageError};
use tokio::runtime::Builder;

use super::*;
use crate::ends;
use crate::files::Files;
use crate::machine::Machine;
use crate::numbers::EntryIndex;
use crate::shorten::{Shortened, floor_of};
use crate::simulation::{Loss, SimulatedDisk};
use crate::types::{Payload, log_id};
use crate::{Applied, CorruptCommand, Encoded, Log, LogOptions, Mark, StateMachine};

#[derive(Clone, PartialEq, Debug)]
struct Number(u64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Command for Number {
    fn encoded(&self) -> Encoded {
        Encoded::Own(self.0.to_le_bytes().to_vec())
    }

    fn decode(bytes: &Bytes) -> Result<Self, CorruptCommand> {
        let bytes = bytes[..].try_into();
        let bytes = bytes.map_err(|_| CorruptCommand("not 8 bytes".to_owned()))?;
        Ok(Self(u64::from_le_bytes(bytes)))
    }

    fn encoded_len_hint(&self) -> usize {
        8
    }
}

struct Nothing;

impl StateMachine<Number> for Nothing {
    fn durable(&self) -> Option<Mark> {
        None
    }

    fn apply(&mut self, _: u64, _: &Mark, _: &Number, _: usize) -> Applied {
        Applied::Done
    }

    fn flush(&mut self, _applied: &Mark) {}
}

/// So that nothing stays in memory for the sake of a machine.
fn all_applied() -> Arc<Positions> {
    let mark = Mark {
        log_id: Some(log_id(1, u64::MAX - 1)),
        ..Mark::default()
    };
    Arc::new(Positions::new(mark))
}

/// A log in a folder that is removed in the end.
struct Node {
    path: PathBuf,
    disk: SimulatedDisk,
    log: Option<Log>,
}

impl Node {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("herald-group-log-{}-{number}", std::process::id());
        let mut node = Self {
            path: std::env::temp_dir().join(name),
            disk: SimulatedDisk::new(),
            log: None,
        };
        node.open();
        node
    }

    fn open(&mut self) {
        let files: Arc<dyn Files> = Arc::new(self.disk.clone());
        let opened = Log::open_with(&LogOptions::new(&self.path), files);
        self.log = Some(opened.expect("the log opens"));
    }

    fn lose_power(&mut self) {
        self.log = None;
        self.disk.restart(Loss::All, 0);
        self.open();
    }

    /// Its group, which keeps nothing in memory that is written.
    async fn group(&self) -> GroupLog<Number> {
        let wal = self.log.as_ref().expect("it is open").wal().clone();
        let opened = GroupLog::open(1, wal, all_applied(), 0).await;
        opened.expect("the group's log is whole")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.log = None;
        // What is left is the operating system's to clean.
        drop(std::fs::remove_dir_all(&self.path));
    }
}

/// Builds logs that keep nothing in memory that is written.
struct Logs;

impl StoreBuilder<Types<Number>, GroupLog<Number>, Machine<Number>, Node> for Logs {
    async fn build(
        &self,
    ) -> Result<(Node, GroupLog<Number>, Machine<Number>), StorageError<Types<Number>>> {
        let node = Node::new();
        let log = node.group().await;
        // The tests apply what is in no log: for the machine everything counts as written.
        let new = Arc::new(Positions::new(Mark::default()));
        let opened = GroupLog::open(2, log.wal.clone(), new, 0).await;
        let mut of_machine = opened.expect("the group's log is whole");
        let purged = of_machine.purge(log_id(1, u64::MAX - 1)).await;
        purged.expect("purged");
        Ok((node, log, Machine::new(Nothing, of_machine)))
    }
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().build();
    runtime.expect("a runtime").block_on(test);
}

/// Runs these of openraft's tests, each with a log of its own.
macro_rules! openraft_tests {
    ($($test:ident)*) => {
        run(async {
            $(
                let (node, log, machine) = Logs.build().await.expect("built");
                let outcome = Suite::<_, _, _, Logs, Node>::$test(log, machine).await;
                outcome.unwrap_or_else(|error| panic!("{}: {error}", stringify!($test)));
                drop(node);
            )*
        })
    };
}

#[test]
fn is_a_log_as_openraft_wants_it() {
    // Left out are those that begin a log elsewhere than at 0 and those of snapshots.
    openraft_tests!(
        last_membership_in_log_initial get_membership_initial
        get_initial_state_without_init get_initial_state_with_state
        get_initial_state_last_log_gt_sm get_initial_state_log_ids save_vote
        get_log_entries limited_get_log_entries leader_bounded_stream entries_stream
        try_get_log_entry log_reader_reads_new_entries initial_logs get_log_state get_log_id
        last_id_in_log last_applied_state purge_logs_upto_0 purge_logs_upto_5 purge_logs_upto_20
        delete_logs_after_11 delete_logs_after_5 delete_logs_after_0 delete_logs_after_none
        append_to_log apply_single apply_multiple
    );
}

fn entry(term: u64, index: u64) -> Entry<Number> {
    Entry {
        log_id: log_id(term, index),
        payload: Payload::Normal(Number(term * 1_000 + index)),
    }
}

/// Appends and waits for the disk.
async fn append(log: &mut GroupLog<Number>, term: u64, indices: Range<u64>) {
    let (done, flushed) = Types::<Number>::oneshot();
    let entries: Vec<_> = indices.map(|index| entry(term, index)).collect();
    let appended = log.append(entries, IOFlushed::signal(done)).await;
    appended.expect("it is queued");
    flushed
        .await
        .expect("it is answered")
        .expect("it is written");
}

async fn terms(log: &mut GroupLog<Number>) -> Vec<u64> {
    let entries = log.try_get_log_entries(..).await.expect("it is readable");
    entries
        .iter()
        .map(|entry| entry.log_id.leader_id.term)
        .collect()
}

#[test]
fn what_replaced_a_truncated_end_is_there_after_a_power_loss() {
    run(async {
        let mut node = Node::new();
        let mut log = node.group().await;
        append(&mut log, 1, 0..5).await;
        log.truncate_after(Some(log_id(1, 2)))
            .await
            .expect("truncated");
        append(&mut log, 2, 3..4).await;
        assert_eq!(terms(&mut log).await, [1, 1, 1, 2]);
        drop(log);
        node.lose_power();
        let mut log = node.group().await;
        assert_eq!(terms(&mut log).await, [1, 1, 1, 2]);
    });
}

#[test]
fn entries_written_after_their_truncation_say_nothing_of_the_new_ones() {
    run(async {
        let node = Node::new();
        let mut log = node.group().await;
        append(&mut log, 1, 0..3).await;
        let late = Appended {
            log: log.clone(),
            entries: vec![entry(1, 3)],
            bytes: 0,
            committed: None,
            truncations: 0,
            flushed: IOFlushed::noop(),
        };
        log.truncate_after(Some(log_id(1, 2)))
            .await
            .expect("truncated");
        log.state.lock().tail.push(entry(2, 3));
        Box::new(late).complete(Ok(()));
        assert_eq!(
            terms(&mut log).await,
            [1, 1, 1, 2],
            "from memory, it is not written"
        );
    });
}

#[test]
fn purged_entries_that_come_back_leave_no_hole() {
    run(async {
        let mut node = Node::new();
        let mut log = node.group().await;
        append(&mut log, 1, 0..5).await;
        log.save_vote(&Vote::new(3, 1)).await.expect("saved");
        // What raft-engine may do: the position of the purge stays, the purge itself does not.
        let purged = log.change(vec![(key::PURGED, encoded(&log_id(2, 20)))]);
        purged.await.expect("written");
        drop(log);
        node.lose_power();

        let mut log = node.group().await;
        assert_eq!(log.span(), (21, 21));
        append(&mut log, 3, 21..23).await;
        drop(log);
        node.lose_power();
        let mut log = node.group().await;
        assert_eq!(terms(&mut log).await, [3, 3]);
        assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new(3, 1)));
    });
}

#[test]
fn a_vote_is_not_saved_before_it_is_on_the_disk() {
    run(async {
        let mut node = Node::new();
        let mut log = node.group().await;
        log.save_vote(&Vote::new(3, 1)).await.expect("saved");
        node.disk.fail_power_after(0);
        let saved = log.save_vote(&Vote::new(4, 2)).await;
        assert!(saved.is_err(), "{saved:?}");
        drop(log);
        node.lose_power();
        let mut log = node.group().await;
        assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new(3, 1)));
    });
}

impl Node {
    /// The power fails now: what is not synced is gone, and nothing is written when the log is closed.
    fn fail_power(&mut self) {
        self.disk.fail_power_after(0);
        self.log = None;
        self.disk.restart(Loss::All, 0);
    }
}

#[test]
fn a_log_that_is_made_to_end_earlier_never_ends_before_what_is_noted() {
    run(async {
        let mut is_cut_off = false;
        for operations in 0.. {
            let mut node = Node::new();
            let mut log = node.group().await;
            append(&mut log, 1, 0..2).await;
            append(&mut log, 2, 2..5).await;
            // With the vote the end is written down.
            log.save_vote(&Vote::new(3, 1)).await.expect("saved");
            node.disk.fail_power_after(operations);
            let truncated = log.truncate_after(Some(log_id(1, 1))).await;
            truncated.expect("truncated");
            let (done, flushed) = Types::<Number>::oneshot();
            let appended = log.append([entry(1, 2)], IOFlushed::signal(done)).await;
            appended.expect("it is queued");
            let is_written = flushed.await.is_ok_and(|outcome| outcome.is_ok());
            drop(log);
            node.fail_power();
            let known = ends::read(&node.disk, &node.path).expect("read");
            let noted = known.expect("it is there").ends.groups[&1].last;
            node.open();
            let last = node.group().await.state.lock().last;
            assert!(noted <= last, "{operations}: {noted:?}, {last:?}");
            is_cut_off |= last == Some(log_id(1, 2));
            if is_written {
                break;
            }
        }
        assert!(is_cut_off);
    });
}

/// Cuts the log of the group, which is not open, and opens it after a power loss.
async fn shortened(node: &mut Node, cut: Shortened) -> GroupLog<Number> {
    let wal = node.log.as_ref().expect("it is open").wal().clone();
    let begun = cut.write(&wal, 1).await;
    begun.expect("it is written");
    drop(wal);
    node.lose_power();
    node.group().await
}

#[test]
fn a_damaged_log_ends_where_it_was_whole_and_has_a_floor_until_that_is_ended() {
    run(async {
        let mut node = Node::new();
        let mut log = node.group().await;
        log.save_vote(&Vote::new(3, 1)).await.expect("saved");
        append(&mut log, 1, 0..4).await;
        let committed = log.save_committed(Some(log_id(1, 3))).await;
        committed.expect("saved");
        append(&mut log, 1, 4..5).await;
        drop(log);
        let cut = Shortened {
            last: Some(log_id(1, 2)),
            begins_anew: false,
            vote: Some(Vote::new(5, 2)),
            floor: Some(floor_of(5)),
        };
        let mut log = shortened(&mut node, cut).await;
        assert_eq!(terms(&mut log).await, [1, 1, 1]);
        assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new(5, 2)));
        let committed = log.read_committed().await.expect("read");
        assert_eq!(committed, Some(log_id(1, 2)));
        assert!(log.is_below_floor());
        assert!(!log.may_forget_for(Some(log_id(5, 100))));
        append(&mut log, 6, 3..4).await;
        assert!(!log.is_below_floor());
        log.end_floor().await.expect("written");
        drop(log);
        node.lose_power();
        let mut log = node.group().await;
        assert_eq!(terms(&mut log).await, [1, 1, 1, 6]);
        assert!(log.may_forget_for(None));
    });
}

#[test]
fn a_damaged_log_that_is_deleted_keeps_the_end_that_it_may_have_had() {
    let loss = |end| crate::loss::Loss {
        first: EntryIndex(3),
        behind: Some((6, 8)),
        last: Some(7),
        is_open: false,
        end,
    };
    for (end, expected) in [
        (None, floor_of(3)),
        (Some(log_id(2, 9)), log_id(2, 9)),
        (Some(log_id(1, 1)), log_id(1, 2)),
    ] {
        run(async {
            let node = Node::new();
            let mut log = node.group().await;
            log.save_vote(&Vote::new(3, 1)).await.expect("saved");
            append(&mut log, 1, 0..3).await;
            drop(log);
            let log = node.log.as_ref().expect("it is open");
            let change = Change {
                group: 1,
                puts: vec![(key::LOSS, loss(end).encode())],
                ..Change::default()
            };
            log.wal().change(change).await.expect("written");
            assert_eq!(log.last_index(1).expect("read"), Some(8));
            log.delete_group(1).await.expect("deleted");
            assert_eq!(deleted(log.wal(), 1).expect("read"), Some(expected));
            assert!(log.has_deleted(1));
        });
    }
}

#[test]
fn a_damaged_log_of_which_no_entry_stays_begins_anew_behind_the_tables() {
    run(async {
        let mut node = Node::new();
        let mut log = node.group().await;
        append(&mut log, 1, 0..5).await;
        log.save_vote(&Vote::new(3, 1)).await.expect("saved");
        log.expect_tables(&log_id(2, 20)).await.expect("written");
        drop(log);
        let cut = Shortened {
            last: Some(log_id(2, 20)),
            begins_anew: true,
            vote: Some(Vote::new(2, 1)),
            floor: Some(floor_of(3)),
        };
        let mut log = shortened(&mut node, cut).await;
        assert_eq!(log.span(), (21, 21));
        assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new(3, 1)));
        assert!(log.is_below_floor());
        let tables = node
            .log
            .as_ref()
            .expect("it is open")
            .wal()
            .get(1, key::TABLES);
        assert_eq!(tables, Some(encoded(&log_id(2, 20))));
        append(&mut log, 3, 21..22).await;
        assert!(log.is_below_floor());
    });
}

#[test]
fn an_end_counts_when_it_is_of_a_late_term_and_all_before_it_is_written() {
    run(async {
        let mut node = Node::new();
        let mut log = node.group().await;
        append(&mut log, 1, 0..3).await;
        drop(log);
        let cut = Shortened {
            last: Some(log_id(1, 1)),
            begins_anew: false,
            vote: None,
            floor: Some(floor_of(3)),
        };
        let mut log = shortened(&mut node, cut).await;
        append(&mut log, 3, 2..5).await;
        let has_all_of = |term, last| {
            let vote = Vote::new_committed(term, 2);
            log.has_all_of(&End { vote, last })
        };
        assert!(has_all_of(3, Some(log_id(3, 4))));
        assert!(has_all_of(3, Some(log_id(3, 2))));
        assert!(has_all_of(4, None));
        assert!(!has_all_of(3, Some(log_id(3, 5))), "it is not here");
        assert!(!has_all_of(2, Some(log_id(2, 2))), "of an earlier term");
        assert!(
            !has_all_of(3, Some(log_id(1, 1))),
            "it may have been replaced"
        );
    });
}

#[test]
fn a_group_whose_floor_is_a_whole_term_begins_anew_at_an_index_that_there_can_be() {
    run(async {
        let mut node = Node::new();
        let mut log = node.group().await;
        append(&mut log, 1, 0..3).await;
        drop(log);
        let cut = Shortened {
            last: None,
            begins_anew: true,
            vote: Some(Vote::new(3, 1)),
            floor: Some(floor_of(3)),
        };
        drop(shortened(&mut node, cut).await);
        let wal = node.log.as_ref().expect("it is open").wal().clone();
        delete(&wal, 1, None).await.expect("written");
        let mark = begin_anew(&wal, 1, 1, 0).await.expect("written");
        let begin = mark.log_id.expect("it has a position");
        assert!(begin > floor_of(3) && begin.index < MAX_NUMBER);
    });
}
