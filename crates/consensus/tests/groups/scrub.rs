//! Files of a log are read again while it is written.

use std::fs;

use consensus::{Damage, Log, Scrubbed, SyncedFile};

use crate::ledger::{Ledger, Scratch, runtime, start, write};

/// Reads a file to its end; the bytes, or what was damaged.
fn read(file: &SyncedFile) -> Result<u64, Damage> {
    let mut open = file.open().expect("it is read").expect("it is there");
    let mut bytes = 0;
    loop {
        match open.read_next().expect("it is read") {
            Scrubbed::Whole(read) => bytes += read,
            Scrubbed::Damaged(finding) => return Err(finding.what),
            Scrubbed::End => return Ok(bytes),
        }
    }
}

#[test]
fn each_flipped_bit_of_what_is_synced_is_found_and_nothing_else() {
    let scratch = Scratch::new();
    let log = Log::open(&scratch.options()).expect("the log opens");
    let ledger = Ledger::default();
    runtime().block_on(async {
        let group = start(&log, &ledger).await;
        write(&group, 0..4, 30).await;
        group.shutdown().await;
    });
    let files = log.synced_files();
    let bytes: u64 = files.iter().map(SyncedFile::bytes).sum();
    assert!(bytes > 200, "{bytes}");
    for file in &files {
        assert_eq!(read(file), Ok(file.bytes()));
    }
    let path = scratch.path().join("entries/0000000000000001.raftlog");
    let newest = files.last().expect("there are files");
    let whole = fs::read(&path).expect("read");
    let synced = usize::try_from(newest.bytes()).expect("it is small");
    for bit in 0..synced * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, damaged).expect("written");
        let found = read(newest).expect_err("it is damaged");
        match found {
            Damage::Header => assert!(bit < 69 * 8, "bit {bit}"),
            Damage::Bytes { from, to } => {
                assert!(from <= bit as u64 / 8 && to <= newest.bytes(), "bit {bit}");
            }
            other => panic!("bit {bit}: {other:?}"),
        }
    }
    // What is written and not synced yet is not judged.
    let mut longer = whole[..synced].to_vec();
    longer.extend([7; 300]);
    fs::write(&path, longer).expect("written");
    assert_eq!(read(newest), Ok(newest.bytes()));
    // Cut off.
    fs::write(&path, &whole[..synced - 1]).expect("written");
    read(newest).expect_err("it is too short");
    // Deleted, since nothing in it is needed.
    fs::remove_file(&path).expect("removed");
    assert!(newest.open().expect("looked at").is_none());
    fs::write(&path, &whole).expect("written");
}
