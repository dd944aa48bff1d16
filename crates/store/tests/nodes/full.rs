//! A full disk: a small file system in memory, for which one has to be root.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use store::Failure;

use crate::node::{Node, message, survey, until};

/// A file system of 8 MiB.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`: this process may not mount one.
    fn new() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]);
        let mounted = mount.arg(at.path()).output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self(at))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "why a test is skipped")]
fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let Some(disk) = Disk::new() else {
        eprintln!("skipped: a file system can be mounted by root only");
        return;
    };
    let ballast = disk.path().join("ballast");
    let data = disk.path().join("data");
    std::fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let node = Node::start(&data, 1);
    node.sleeper("ann", "a");
    node.retain("kept", b"x").unwrap();
    let payload = vec![2; 64 << 10];
    let shard = node.store.inbox_shard("ann");
    let mut queued = 0;
    // A request that has reached the log waits for space; those that come later are refused.
    let refused = loop {
        node.publish_to(shard, &message("a", &payload));
        match node.any_reply(Duration::from_millis(500)) {
            Some(Err(failure)) => break failure,
            Some(Ok(_)) => queued += 1,
            None => {}
        }
        assert!(queued < 200, "the disk is never full");
    };
    assert_eq!(refused, Failure::Full);
    assert!(queued > 0);
    assert_eq!(node.retained().len(), 1);
    assert!(node.store.knows("ann"));

    std::fs::remove_file(&ballast).unwrap();
    until("the disk has space again", || {
        node.publish("a", b"after").is_ok()
    });
    node.stop();
    assert_eq!(survey(&data).findings, []);
}
