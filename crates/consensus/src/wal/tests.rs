//! What the threads of groups write when they have nothing else to do, and what they leave to the log's thread.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use super::*;
use crate::Log;
use crate::ends;
use crate::files::Files;
use crate::request::{Append, key};
use crate::simulation::{Loss, SimulatedDisk};
use crate::types::{LogId, Membership, log_id};

/// How long a test waits for the log's thread.
const DEADLINE: Duration = Duration::from_secs(20);

const GROUP: u64 = 1;

/// An entry of [`GROUP`], and where its outcome goes.
struct Asked {
    index: u64,
    outcomes: mpsc::Sender<(u64, bool)>,
}

impl Append for Asked {
    fn group(&self) -> u64 {
        GROUP
    }

    fn records(&self) -> Vec<Record> {
        let members = Membership::default();
        vec![Record::of_membership(&log_id(1, self.index), &members)]
    }

    fn committed(&self) -> Option<Vec<u8>> {
        None
    }

    fn first(&self) -> Option<u64> {
        Some(self.index)
    }

    fn last(&self) -> Option<LogId> {
        Some(log_id(1, self.index))
    }

    fn entries(&self) -> usize {
        1
    }

    fn bytes(&self) -> usize {
        0
    }

    fn complete(self: Box<Self>, outcome: io::Result<()>) {
        let sent = self.outcomes.send((self.index, outcome.is_ok()));
        sent.expect("the test waits");
    }
}

/// A log in a folder that is removed in the end.
struct Node {
    path: PathBuf,
    disk: SimulatedDisk,
    log: Option<Log>,
    send: mpsc::Sender<(u64, bool)>,
    outcomes: mpsc::Receiver<(u64, bool)>,
}

impl Node {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("herald-wal-{}-{number}", std::process::id());
        let (send, outcomes) = mpsc::channel();
        let mut node = Self {
            path: std::env::temp_dir().join(name),
            disk: SimulatedDisk::new(),
            log: None,
            send,
            outcomes,
        };
        node.open();
        node
    }

    fn open(&mut self) {
        let files: Arc<dyn Files> = Arc::new(self.disk.clone());
        let opened = Log::open_with(&LogOptions::new(&self.path), files);
        self.log = Some(opened.expect("the log opens"));
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("it is open")
    }

    fn wal(&self) -> &Wal {
        self.log().wal()
    }

    fn entry(&self, index: u64) -> Request {
        Request::Append(Box::new(Asked {
            index,
            outcomes: self.send.clone(),
        }))
    }

    /// Holds an entry, after a sync that was quick: those of the simulated disk may be slow on a busy machine.
    fn hold(&self, index: u64) {
        self.wal().health.set_slow(false);
        self.wal().push_held(self.entry(index));
    }

    /// What has been answered by now.
    fn answered(&self) -> Vec<(u64, bool)> {
        self.outcomes.try_iter().collect()
    }

    /// The next answer, which comes from the log's thread.
    fn next_answer(&self) -> (u64, bool) {
        let answer = self.outcomes.recv_timeout(DEADLINE);
        answer.expect("the log's thread answers")
    }

    /// Waits until a condition holds that the log's thread brings about.
    fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::yield_now();
        }
    }

    fn thread_sleeps(&self) -> bool {
        self.wal().queue.is_asleep()
    }

    fn last(&self) -> Option<u64> {
        self.wal().span(GROUP).map(|(_, last)| last)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.log = None;
        drop(fs::remove_dir_all(&self.path));
    }
}

#[test]
fn an_idle_thread_writes_what_is_held_before_it_goes_on() {
    let mut node = Node::new();
    for index in 0..3 {
        // It was woken to see when the end has to be noted.
        node.until("the log's thread sleeps", || node.thread_sleeps());
        node.hold(index);
        assert_eq!(node.answered(), [], "nobody has written it");
        assert!(node.thread_sleeps());
        node.log().write_idle();
        assert_eq!(node.answered(), [(index, true)]);
    }
    assert_eq!(node.log().stats().batches, 3);
    // Nothing is left to be written.
    node.log().write_idle();
    assert_eq!(node.log().stats().batches, 3);
    node.disk.fail_power_after(0);
    node.log = None;
    node.disk.restart(Loss::All, 0);
    node.open();
    assert_eq!(node.last(), Some(2), "it was synced");
}

#[test]
fn what_comes_behind_a_held_request_wakes_the_log_for_both() {
    let node = Node::new();
    node.hold(0);
    node.hold(1);
    assert_eq!(
        [node.next_answer(), node.next_answer()],
        [(0, true), (1, true)]
    );
    node.hold(2);
    node.wal().push(node.entry(3));
    assert_eq!(
        [node.next_answer(), node.next_answer()],
        [(2, true), (3, true)]
    );
    node.hold(4);
    node.wal().queue.hand_over();
    assert_eq!(node.next_answer(), (4, true));
    node.hold(5);
    node.log().close();
    assert_eq!(node.next_answer(), (5, true));
}

#[test]
fn while_the_log_writes_idle_threads_leave_it_what_they_hold() {
    let node = Node::new();
    node.until("the log's thread sleeps", || node.thread_sleeps());
    node.hold(0);
    let writer = node.log().writer().lock();
    node.log().write_idle();
    assert_eq!(node.answered(), []);
    drop(writer);
    assert_eq!(node.next_answer(), (0, true));
}

#[test]
fn the_log_notes_in_time_where_an_idle_thread_has_made_it_end() {
    let node = Node::new();
    node.until("the log's thread sleeps", || node.thread_sleeps());
    node.hold(0);
    node.log().write_idle();
    node.until("the end is noted", || {
        let known = ends::read(&node.disk, &node.path).expect("it is readable");
        let known = known.expect("there is something");
        let end = known.ends.groups.get(&GROUP);
        end.is_some_and(|end| end.last == Some(log_id(1, 0)))
    });
}

#[test]
fn after_a_slow_sync_the_log_writes_until_syncs_are_quick() {
    let node = Node::new();
    node.wal().health.set_slow(true);
    node.wal().push_held(node.entry(0));
    assert_eq!(node.next_answer(), (0, true));
    node.until("the log's thread sleeps", || node.thread_sleeps());
    node.hold(1);
    assert!(node.thread_sleeps(), "it was not woken");
    node.log().write_idle();
    assert_eq!(node.answered(), [(1, true)]);
}

#[test]
fn on_a_full_disk_an_idle_thread_does_not_wait() {
    let node = Node::new();
    node.until("the log's thread sleeps", || node.thread_sleeps());
    node.disk.set_capacity(Some(node.disk.used_bytes()));
    node.hold(0);
    node.log().write_idle();
    assert_eq!(node.answered(), []);
    node.until("the log is full", || {
        node.wal().condition() == Condition::Full
    });
    node.disk.set_capacity(None);
    assert_eq!(node.next_answer(), (0, true));
    assert_eq!(node.last(), Some(0));
}

#[test]
fn a_failed_sync_of_an_idle_thread_acknowledges_nothing_from_then_on() {
    let node = Node::new();
    node.until("the log's thread sleeps", || node.thread_sleeps());
    node.disk.fail_syncs();
    node.hold(0);
    node.log().write_idle();
    assert_eq!(node.answered(), [(0, false)]);
    assert!(matches!(node.wal().condition(), Condition::Failed(_)));
    node.hold(1);
    assert_eq!(node.answered(), [(1, false)]);
    node.log().write_idle();
}

#[test]
fn an_append_that_replaces_entries_is_left_to_the_log() {
    let node = Node::new();
    for index in [0, 1] {
        node.until("the log's thread sleeps", || node.thread_sleeps());
        node.hold(index);
        node.log().write_idle();
    }
    assert_eq!(node.answered(), [(0, true), (1, true)]);
    node.until("the log's thread sleeps", || node.thread_sleeps());
    // What the log noted of its end has to be lowered first, which may have to wait for space.
    node.hold(1);
    let writer = node.log().writer().lock();
    assert!(!writer.can_write_idle(&[node.entry(1)]));
    assert!(writer.can_write_idle(&[node.entry(2)]));
    let vote = Request::Change(Change {
        group: GROUP,
        puts: vec![(key::VOTE, Vec::new())],
        ..Change::default()
    });
    assert!(!writer.can_write_idle(&[vote]));
    drop(writer);
    node.log().write_idle();
    assert_eq!(node.next_answer(), (1, true));
}
