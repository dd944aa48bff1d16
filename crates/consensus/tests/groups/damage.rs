//! Flipped bits and missing files are found, never passed over.

use std::path::{Path, PathBuf};

use consensus::simulation::SimulatedDisk;
use consensus::{Files, LogError, LogOptions};

use crate::ledger::{Ledger, Note, Scratch, open, runtime, start, try_start, write};

/// Bytes of a batch's header before its entries.
const BATCH_HEADER: usize = 16;

/// A closed log of the groups 1 and 2, one batch per note: 0, 2, 4, … of group 1, odd ones of group 2.
fn two_groups(file_bytes: u64) -> (Scratch, LogOptions, SimulatedDisk) {
    let (scratch, disk) = (Scratch::new(), SimulatedDisk::new());
    let options = LogOptions {
        file_bytes,
        ..scratch.options()
    };
    let log = open(&options, &disk).expect("the log opens");
    runtime().block_on(async {
        let ledger = Ledger::default();
        let first = try_start(1, &log, &ledger).await.expect("it starts");
        first.recovered().await.expect("it leads");
        let second = try_start(2, &log, &Ledger::default())
            .await
            .expect("it starts");
        second.recovered().await.expect("it leads");
        for number in (0..20).step_by(2) {
            write(&first, [number], 100).await;
            write(&second, [number + 1], 100).await;
        }
        first.shutdown().await;
        second.shutdown().await;
    });
    drop(log);
    (scratch, options, disk)
}

/// Where a note's bytes are.
fn find(disk: &SimulatedDisk, number: u64) -> (PathBuf, usize) {
    let needle = [number as u8; 100];
    for path in disk.paths() {
        let mut found = None;
        disk.edit(&path, |content| {
            found = content.windows(100).position(|bytes| bytes == needle);
        });
        if let Some(offset) = found {
            return (path, offset);
        }
    }
    panic!("note {number} is nowhere");
}

fn flip(disk: &SimulatedDisk, path: &Path, offset: usize) {
    disk.edit(path, |content| content[offset] ^= 1);
}

#[test]
fn a_flipped_bit_in_an_entry_stops_its_group_only() {
    let (_scratch, options, disk) = two_groups(1 << 20);
    let (path, offset) = find(&disk, 9);
    flip(&disk, &path, offset);
    let log = open(&options, &disk).expect("the log opens");
    let healthy = Ledger::default();
    runtime().block_on(async {
        let why = match try_start(2, &log, &Ledger::default()).await {
            Err(error) => error.to_string(),
            Ok(group) => group.recovered().await.expect_err("damaged").to_string(),
        };
        assert!(why.contains("group 2") && why.contains("Checksum"), "{why}");
        start(&log, &healthy).await.shutdown().await;
    });
    assert!(healthy.pages().numbers().into_iter().eq((0..20).step_by(2)));
}

#[test]
fn a_flipped_bit_in_an_index_is_not_taken_for_a_torn_tail() {
    let (_scratch, options, disk) = two_groups(1 << 20);
    let (path, offset) = find(&disk, 9);
    // Behind the entry and its checksum begins the index of the batch.
    flip(&disk, &path, offset + 100 + 4 + 3);
    let batch = (offset - BATCH_HEADER - 17 - 8) as u64;
    match open(&options, &disk) {
        Err(LogError::Damaged {
            path: found,
            offset,
        }) => {
            assert_eq!((found, offset), (path, batch));
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("all that follows is cut off"),
    }
}

#[test]
fn a_flipped_bit_in_an_older_file_is_found_with_its_place() {
    let (_scratch, options, disk) = two_groups(1_000);
    let (path, offset) = find(&disk, 9);
    assert!(
        disk.paths().iter().any(|other| *other > path),
        "one file only"
    );
    flip(&disk, &path, offset + 100 + 4 + 3);
    let error = open(&options, &disk).err().expect("damaged");
    assert!(
        matches!(&error, LogError::Damaged { path: found, offset } if *found == path && *offset > 0),
        "{error}"
    );
}

#[test]
fn a_cut_tail_loses_what_was_in_it_only() {
    let (_scratch, options, disk) = two_groups(1 << 20);
    let (path, offset) = find(&disk, 19);
    disk.edit(&path, |content| content.truncate(offset + 50));
    let log = open(&options, &disk).expect("the log opens");
    runtime().block_on(async {
        for (id, expected) in [(1, 10), (2, 9)] {
            let ledger = Ledger::default();
            let group = try_start(id, &log, &ledger).await.expect("it starts");
            group.recovered().await.expect("it recovers");
            let noted = group.propose(Note::new(100, 1)).await.expect("it is taken");
            noted.await.expect("it is applied");
            group.shutdown().await;
            assert_eq!(ledger.pages().notes.len(), expected + 1, "group {id}");
        }
    });
}

#[test]
fn a_missing_file_is_noticed() {
    let (_scratch, options, disk) = two_groups(1_000);
    let oldest = disk.paths().remove(0);
    disk.delete(&oldest).expect("it is deleted");
    let log = open(&options, &disk).expect("the log opens");
    let started = runtime().block_on(try_start(1, &log, &Ledger::default()));
    let why = started.err().expect("entries are missing").to_string();
    assert!(why.contains("group 1") && why.contains("missing"), "{why}");
}
