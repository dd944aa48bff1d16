mod crash;
mod damage;
mod full;
mod own_rows;
mod seed;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::storage::digest::{LogIndex, RowHasher};

pub(super) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub(super) fn open(folder: &Path) -> Tables {
    Tables::open(folder, TablesOptions::default()).unwrap()
}

pub(super) fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A value of 304 bytes that cannot be compressed.
pub(super) fn noise(seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (state ^ (state >> 29)).to_le_bytes()
    });
    words.take(38).flatten().collect()
}

/// What a table should hold.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Model(BTreeMap<Vec<u8>, Vec<u8>>);

impl Model {
    pub(super) fn apply(&mut self, changes: &Changes) {
        for (key, value) in &changes.entries {
            match value {
                Some(value) => drop(self.0.insert(key.clone(), value.clone())),
                None => drop(self.0.remove(key)),
            }
        }
    }
}

/// All that a table holds, as a scan and as single reads find it.
pub(super) fn content(table: &ShardTable) -> Result<Model, TableError> {
    let mut found = Model::default();
    table.range(&[], &[0xFF; 8], &mut |key, value| {
        found.0.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    for (key, value) in &found.0 {
        if table.get(key)?.as_ref() != Some(value) {
            return Err(TableError(format!("a scan finds {key:?}, a read does not")));
        }
    }
    Ok(found)
}

/// The changes of a numbered checkpoint: some keys new, some overwritten, some removed.
pub(super) fn checkpoint(number: u32) -> Changes {
    let mut changes = Changes::default();
    for place in 0..40 {
        let chosen = (number * 31 + place * 7) % 500;
        if (number + place).is_multiple_of(3) {
            changes.delete(key(chosen));
        } else {
            changes.put(key(chosen), vec![number as u8; 60]);
        }
    }
    changes
}

#[test]
fn what_is_written_is_read_after_opening_again() {
    let at = scratch();
    let mut model = Model::default();
    for number in 0..100 {
        // Opened again for each write, and merged between.
        let table = open(at.path()).shard(7).unwrap();
        let changes = checkpoint(number);
        model.apply(&changes);
        table.write(&changes, &number.to_be_bytes()).unwrap();
        if number.is_multiple_of(9) {
            table.maintain().unwrap();
        }
        assert_eq!(content(&table).unwrap(), model);
    }
    let table = open(at.path()).shard(7).unwrap();
    assert_eq!(content(&table).unwrap(), model);
    assert_eq!(table.mark().unwrap(), Some(99_u32.to_be_bytes().to_vec()));
}

#[test]
fn a_mark_is_no_record() {
    let at = scratch();
    let table = open(at.path()).shard(1).unwrap();
    assert_eq!(table.mark().unwrap(), None);
    table.write(&Changes::default(), b"here").unwrap();
    assert_eq!(table.mark().unwrap(), Some(b"here".to_vec()));
    assert_eq!(content(&table).unwrap(), Model::default());
    assert_eq!(table.get(&[]).unwrap(), None);
    let mut changes = Changes::default();
    changes.put(vec![], b"empty key".to_vec());
    table.write(&changes, b"there").unwrap();
    assert_eq!(table.get(&[]).unwrap(), Some(b"empty key".to_vec()));
    assert_eq!(table.mark().unwrap(), Some(b"there".to_vec()));
}

#[test]
fn a_range_has_its_first_key_and_not_its_last_and_stops_when_told() {
    let at = scratch();
    let table = open(at.path()).shard(1).unwrap();
    let mut changes = Changes::default();
    for number in [5, 1, 3, 2, 4] {
        changes.put(key(number), vec![]);
    }
    table.write(&changes, b"").unwrap();
    let visit = |from, to, most: usize| {
        let mut found = Vec::new();
        table
            .range(&key(from), &key(to), &mut |key, _| {
                found.push(u32::from_be_bytes(key.try_into().unwrap()));
                if found.len() == most {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap();
        found
    };
    assert_eq!(visit(2, 5, 9), [2, 3, 4]);
    assert_eq!(visit(2, 5, 2), [2, 3]);
    assert_eq!(visit(5, 2, 9), []);
    assert_eq!(visit(3, 3, 9), []);
}

#[test]
fn a_key_that_is_too_long_is_refused_and_the_longest_is_not() {
    let at = scratch();
    let table = open(at.path()).shard(1).unwrap();
    let mut changes = Changes::default();
    changes.put(vec![7; 65_535], vec![1]);
    let refused = table.write(&changes, b"").unwrap_err();
    assert!(matches!(refused, TablesError::KeyTooLong { bytes: 65_535 }));
    changes.entries.clear();
    changes.put(vec![7; 65_534], vec![1]);
    table.write(&changes, b"").unwrap();
    assert_eq!(table.get(&[7; 65_534]).unwrap(), Some(vec![1]));
}

#[test]
fn a_scan_sees_one_state_while_writes_and_merges_go_on() {
    let at = scratch();
    let table = open(at.path()).shard(1).unwrap();
    let all = |value: u8| {
        let mut changes = Changes::default();
        for number in 0..2_000 {
            changes.put(key(number), vec![value; 100]);
        }
        changes
    };
    table.write(&all(0), b"0").unwrap();
    let mut next = 0;
    let mut seen = 0;
    table
        .range(&[], &[0xFF; 8], &mut |_, value| {
            assert_eq!(value, [0; 100]);
            seen += 1;
            if seen % 100 == 0 {
                next += 1;
                table.write(&all(next), &[next]).unwrap();
                table.maintain().unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen, 2_000);
    assert_eq!(table.get(&key(0)).unwrap(), Some(vec![next; 100]));
}

#[test]
fn writing_and_merging_at_the_same_time_loses_nothing() {
    let at = scratch();
    let table = open(at.path()).shard(1).unwrap();
    let mut model = Model::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                table.maintain().unwrap();
            }
        });
        for number in 0..150 {
            let changes = checkpoint(number);
            model.apply(&changes);
            table.write(&changes, &number.to_be_bytes()).unwrap();
            assert_eq!(content(&table).unwrap(), model);
        }
        done.store(true, Relaxed);
    });
    drop(table);
    let table = open(at.path()).shard(1).unwrap();
    assert_eq!(content(&table).unwrap(), model);
}

#[test]
fn shards_are_listed_kept_apart_and_removed() {
    let at = scratch();
    let tables = open(at.path());
    assert_eq!(tables.shards().unwrap(), []);
    for id in [3, u64::MAX, 0] {
        let table = tables.shard(id).unwrap();
        table.write(&Changes::default(), &id.to_be_bytes()).unwrap();
    }
    assert_eq!(tables.shards().unwrap(), [0, 3, u64::MAX]);
    let held = tables.shard(3).unwrap();
    let refused = tables.remove(3).unwrap_err();
    assert!(matches!(refused, TablesError::StillOpen { .. }));
    drop(held);
    tables.remove(3).unwrap();
    tables.remove(3).unwrap();
    assert_eq!(tables.shards().unwrap(), [0, u64::MAX]);
    assert_eq!(tables.shard(3).unwrap().mark().unwrap(), None);
    let kept = tables.shard(u64::MAX).unwrap().mark().unwrap();
    assert_eq!(kept, Some(u64::MAX.to_be_bytes().to_vec()));
}

#[test]
fn a_removal_that_was_cut_off_is_finished_at_the_next_opening() {
    let at = scratch();
    let half = at.path().join("removed-shard-0000000000000001");
    fs::create_dir_all(half.join("tables")).unwrap();
    let tables = open(at.path());
    assert!(!half.exists());
    assert_eq!(tables.shards().unwrap(), []);
}

#[test]
fn all_handles_of_a_shard_are_one_table() {
    let at = scratch();
    let tables = open(at.path());
    let (one, two) = (tables.shard(1).unwrap(), tables.shard(1).unwrap());
    one.write(&Changes::default(), b"x").unwrap();
    assert_eq!(two.mark().unwrap(), Some(b"x".to_vec()));
}

#[test]
fn many_small_writes_without_maintenance_stay_below_the_limit_of_runs() {
    let at = scratch();
    let table = open(at.path()).shard(1).unwrap();
    for number in 0..2 * RUNS_LIMIT as u32 {
        table
            .write(&checkpoint(number), &number.to_be_bytes())
            .unwrap();
        assert!(table.0.tree.read().tree.l0_run_count() <= RUNS_LIMIT);
    }
}

#[test]
fn a_queue_that_drains_gives_its_space_back() {
    let at = scratch();
    let table = open(at.path()).shard(1).unwrap();
    for round in 0..5_u32 {
        let numbers = round * 8_000..(round + 1) * 8_000;
        let mut fill = Changes::default();
        numbers
            .clone()
            .for_each(|number| fill.put(key(number), noise(number)));
        table.write(&fill, b"full").unwrap();
        table.maintain().unwrap();
        assert!(table.disk_bytes() > 2_400_000);
        let mut drain = Changes::default();
        numbers.for_each(|number| drain.delete(key(number)));
        table.write(&drain, b"empty").unwrap();
        table.maintain().unwrap();
        assert!(table.disk_bytes() < 10_000, "{}", table.disk_bytes());
        assert!(size_of_folder(at.path()) < 20_000);
    }
    assert_eq!(content(&table).unwrap(), Model::default());
    assert_eq!(table.mark().unwrap(), Some(b"empty".to_vec()));
}

/// This test binary, to run one test of it in a process of its own, which finds `folder` in [`CHILD`].
pub(super) fn child(test: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    // A process that writes past its limit of file size is then told so instead of killed.
    let script = r#"trap "" XFSZ; exec "$0" "$@""#;
    command.args(["-c", script]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(CHILD, folder);
    command
}

/// The folder of a child process; unset in the process that runs the tests.
pub(super) const CHILD: &str = "HERALD_STORE_TEST_FOLDER";

pub(super) fn size_of_folder(folder: &Path) -> u64 {
    files(folder)
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .sum()
}

/// The files in a folder and below, in order.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A digest is the same however the rows came, and in whatever parts they are read.
#[test]
fn tables_with_the_same_rows_have_the_same_digest() {
    let digest = |writes: &[&[(&str, Option<&str>)]], most: usize| {
        let folder = tempfile::tempdir().unwrap();
        let table = table_of_digests(folder.path());
        for (number, write) in writes.iter().enumerate() {
            let mut changes = Changes::default();
            for (key, value) in *write {
                match value {
                    Some(value) => changes.put(key.as_bytes().to_vec(), value.as_bytes().to_vec()),
                    None => changes.delete(key.as_bytes().to_vec()),
                }
            }
            table.write(&changes, &[number as u8]).unwrap();
        }
        let mut reader = table.reader().unwrap().expect("a mark");
        let mut hasher = RowHasher::default();
        while reader
            .digest_part(&mut hasher, |_, value| value.into(), most)
            .unwrap()
        {}
        hasher.finish(LogIndex(1))
    };
    let at_once: &[(&str, Option<&str>)] = &[("a", Some("1")), ("b", Some("2"))];
    let expected = digest(&[at_once], 1);
    assert_eq!(digest(&[at_once], usize::MAX), expected);
    let bit_by_bit: [&[(&str, Option<&str>)]; 3] = [
        &[("b", Some("x")), ("c", Some("3"))],
        &[("a", Some("1")), ("c", None)],
        &[("b", Some("2"))],
    ];
    assert_eq!(digest(&bit_by_bit, 1), expected);
    assert_ne!(digest(&bit_by_bit[..2], 1), expected);
}

/// What it costs to read a million rows, for decision 33.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "it says what it has measured")]
fn a_million_rows_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_of_digests(folder.path());
    for part in 0..10_u32 {
        let mut changes = Changes::default();
        for row in 0..100_000_u32 {
            let key = (part * 100_000 + row).wrapping_mul(2_654_435_761);
            changes.put(key.to_be_bytes().to_vec(), vec![part as u8; 100]);
        }
        table.write(&changes, &[0]).unwrap();
    }
    let mut reader = table.reader().unwrap().expect("a mark");
    let mut hasher = RowHasher::default();
    let (mut longest, begun) = (Duration::ZERO, std::time::Instant::now());
    loop {
        let part = std::time::Instant::now();
        let more = reader.digest_part(&mut hasher, |_, value| value.into(), 64 * 1024);
        longest = longest.max(part.elapsed());
        if !more.unwrap() {
            break;
        }
    }
    println!(
        "{}: {:?}, the longest part {longest:?}",
        hasher.finish(LogIndex(1)),
        begun.elapsed()
    );
}

fn table_of_digests(folder: &Path) -> ShardTable {
    let tables = Tables::open(folder, TablesOptions::default()).unwrap();
    tables.shard(1).unwrap()
}
