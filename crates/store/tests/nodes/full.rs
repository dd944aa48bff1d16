//! A full disk: a small file system in memory, for which one has to be root.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use store::{Look, Purge, SplitError};
use store_state::CorrelationId;
use store_state::api::{Event, Failure, Store as _, StoreId};
use store_state::inbox::{Done, InboxOp, InboxReply, Origin};
use store_state::retain::Writer;
use store_state::session::{ClaimRequest, SessionOp, SessionReply, StoredWill, WillAtClose};

use crate::node::{Node, message, survey, until};
use crate::splits::try_split;

/// A file system of 16 MiB. A sixteenth of it is kept for starts, which is enough for all shards of a test.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`: this process may not mount one.
    #[expect(clippy::print_stderr, reason = "why a test is skipped")]
    fn new() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]);
        let mounted = mount.arg(at.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(at));
        }
        eprintln!("skipped: a file system can be mounted by root only");
        None
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Another program takes all the space.
    fn fill(&self) {
        let mut options = std::fs::File::options();
        let mut file = options
            .append(true)
            .create(true)
            .open(self.filler())
            .unwrap();
        loop {
            match file.write(&[1; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// It gives the space back.
    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    /// Fills the disk, and what the log has taken of it ahead. Nothing of it is waited for.
    fn fill_with(&self, node: &Node) {
        self.fill();
        let shard = node.first_shard();
        let large = message("nobody", &[2; 64 << 10]);
        for _ in 0..100 {
            node.publish_to(shard, &large);
        }
        until("the disk is full", || node.store.is_full());
    }

    /// The same, with retained messages, one at a time: no other shard has anything under way, and little waits in the log.
    fn fill_step_by_step(&self, node: &Node) {
        self.fill();
        until("the disk is full", || {
            node.store.retain(
                CorrelationId::NONE,
                message("new", &[3; 4096]),
                Writer::Anybody,
            );
            until("it is kept or waits", || node.store.is_retain_idle());
            node.store.is_full()
        });
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn refused(node: &Node) {
    until("requests are refused", || {
        node.retain("new", b"x") == Err(Failure::Full)
    });
}

/// Requests of the session, inbox and retain store that wait for space.
fn deferred(node: &Node) -> Vec<u64> {
    let stores = node.store.stats(mqtt_session::Timestamp(0)).stores;
    let all = StoreId::OF_NAMES.into_iter();
    all.map(|store| stores[store].deferred).collect()
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let Some(disk) = Disk::new() else { return };
    let node = Node::start(&disk.data(), 1);
    let ann = node.sleeper("ann", "a");
    assert_eq!(node.publish("a", b"before"), Ok(1));
    node.retain("kept", b"x").unwrap();
    let ann = (ann + 1, node.connect("ann").1);
    // More than may be on its way at once: what is behind that must not wait for it.
    disk.fill_with(&node);
    refused(&node);
    let split = try_split(&node, StoreId::Inbox, 0, 30_000);
    assert_eq!(split, Err(SplitError::Full));

    assert_eq!(node.retained().len(), 1);
    assert!(node.store.knows("ann"));
    assert_eq!(node.read("ann", &ann, 1), [b"before"]);
    let barrier = node.correlation_id();
    node.store
        .retain_barrier(&node.store.retain_shards(), barrier);
    node.wait(|event| match event {
        Event::Passed { token } if token == barrier.token => Ok(()),
        other => Err(other),
    });

    disk.free();
    until("the disk has space again", || {
        node.publish("a", b"after").is_ok()
    });
    node.stop();
    assert_eq!(survey(&disk.data()).findings, []);
}

#[test]
fn a_queue_that_a_full_disk_does_not_let_be_emptied_is_not_said_to_be_empty() {
    const PATIENCE: Duration = Duration::from_secs(120);
    let Some(disk) = Disk::new() else { return };
    let node = Node::start(&disk.data(), 1);
    node.sleeper("ann", "a");
    assert_eq!(node.publish("a", b"before"), Ok(1));
    disk.fill_step_by_step(&node);
    let begun = Instant::now();
    let purged = node.purge("ann", PATIENCE);
    assert_eq!(purged, (Look::Found(Purge::Incomplete), 0));
    assert!(
        begun.elapsed() < PATIENCE / 2,
        "a refusal is not waited for"
    );
    disk.free();
    until("the disk has space again", || {
        node.retain("new", b"x").is_ok()
    });
    let purged = node.purge("ann", PATIENCE);
    assert_eq!(purged, (Look::Found(Purge::Complete), 1));
    node.stop();
}

#[test]
fn a_queue_behind_writes_that_wait_for_space_is_emptied_no_longer_than_asked() {
    let Some(disk) = Disk::new() else { return };
    let node = Node::start(&disk.data(), 1);
    node.sleeper("ann", "a");
    assert_eq!(node.publish("a", b"before"), Ok(1));
    // Some of that is under way in the shard of the queue.
    disk.fill_with(&node);
    refused(&node);
    let begun = Instant::now();
    let purged = node.purge("ann", Duration::from_millis(200));
    assert_eq!(purged, (Look::Found(Purge::Incomplete), 0));
    assert!(begun.elapsed() < Duration::from_secs(30));
    disk.free();
    node.stop();
}

fn goodbye(client: &str, epoch: u64) -> SessionOp {
    SessionOp::Disconnect {
        client: client.into(),
        epoch,
        expiry: 1_000,
        will: WillAtClose::Discard,
    }
}

#[test]
fn what_nobody_would_say_again_is_recorded_before_anything_else() {
    let Some(disk) = Disk::new() else { return };
    let node = Node::start(&disk.data(), 2);
    let (epoch, ann) = node.connect("ann");

    node.subscribe("ann", epoch, "a");
    for payload in [b"1", b"2", b"3"] {
        assert_eq!(node.publish("a", payload), Ok(1));
    }
    disk.fill_with(&node);
    refused(&node);
    let counts = || deferred(&node);
    for sequence in [ann.first, ann.first + 1] {
        let op = InboxOp::Acknowledge {
            session: "ann".into(),
            epoch,
            sent: sequence,
            done: Done(vec![sequence]),
        };
        node.store.inbox(CorrelationId::NONE, op);
    }
    let closed = node.correlation_id();
    node.store.session("ann", closed, goodbye("ann", epoch));
    until("all of it waits", || counts() == [1, 1, 0]);

    disk.free();
    until("the disk has space again", || {
        node.retain("new", b"x").is_ok()
    });
    let stats = node.store.stats(mqtt_session::Timestamp(0));
    assert_eq!((stats.connected, stats.queued_messages), (0, 1));
    assert_eq!(counts(), [0, 0, 0]);
    let reply = node.wait(|event| match event {
        Event::Session { token, reply } if token == closed.token => Ok(reply),
        other => Err(other),
    });
    assert_eq!(reply, SessionReply::Done);
    node.stop();
}

#[test]
fn a_will_that_is_due_on_a_full_disk_is_published_when_there_is_space() {
    let Some(disk) = Disk::new() else { return };
    let node = Node::start(&disk.data(), 1);
    node.sleeper("ann", "will");
    disk.fill_with(&node);
    refused(&node);
    let will = node.correlation_id();
    let origin = Origin {
        client: "bob".into(),
        incarnation: 1,
        packet_id: 0,
    };
    let op = InboxOp::Publish {
        message: message("will", b"gone"),
        publisher: 0,
        origin: Some(origin.clone()),
    };
    node.store.inboxes(node.first_shard(), will, op);
    let kept = node.correlation_id();
    node.store
        .retain(kept, message("will", b"gone"), Writer::Will(origin));
    until("they wait", || deferred(&node) == [0, 1, 1]);
    disk.free();
    match node.inbox_reply(will) {
        Ok(InboxReply::Published { matched: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
    until("the will is retained", || node.retained().len() == 1);
    node.stop();
}

/// A node with a connected client that has a will.
fn with_will(folder: &Path) -> (Node, u64) {
    let node = Node::start(folder, 1);
    let op = SessionOp::Claim(ClaimRequest {
        client: "bob".into(),
        node: node.store.node(),
        node_incarnation: node.store.incarnation(),
        clean_start: false,
        expiry: 1_000,
        will: Some(StoredWill {
            message: message("will", b"gone"),
            message_expiry: None,
            delay: 0,
        }),
        asked_ms: 0,
    });
    match node.session("bob", op) {
        Ok(SessionReply::Claimed(claimed)) => (node, claimed.epoch),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shutdown_on_a_full_disk_records_what_clients_did_at_last() {
    let Some(disk) = Disk::new() else { return };
    let (node, epoch) = with_will(&disk.data());
    disk.fill_step_by_step(&node);
    node.store
        .session("bob", CorrelationId::NONE, goodbye("bob", epoch));
    until("it waits", || deferred(&node) == [1, 0, 0]);
    node.stop();

    disk.free();
    let node = Node::start(&disk.data(), 1);
    node.retain("after", b"x").unwrap();
    assert_eq!(node.fired(), [""; 0]);
    node.stop();
}

#[test]
fn a_node_starts_on_a_full_disk_again_and_again() {
    let Some(disk) = Disk::new() else { return };
    // So many shards that what they write does not fit into the last page of the log.
    let node = Node::start(&disk.data(), 16);
    node.sleeper("ann", "a");
    assert_eq!(node.publish("a", b"before"), Ok(1));
    node.retain("kept", b"x").unwrap();
    node.stop();
    for _ in 0..3 {
        disk.fill();
        let node = Node::start(&disk.data(), 16);
        disk.fill_with(&node);
        refused(&node);
        assert_eq!(node.retained().len(), 1);
        assert_eq!(
            node.store.stats(mqtt_session::Timestamp(0)).queued_messages,
            1
        );
        node.stop();
    }
    disk.free();
    let node = Node::start(&disk.data(), 16);
    assert_eq!(node.publish("a", b"after"), Ok(1));
    let ann = node.connect("ann");
    assert_eq!(node.read("ann", &ann, 2), [&b"before"[..], b"after"]);
    node.stop();
}
