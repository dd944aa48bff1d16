//! The table of a child: made of the parent's files, whole or not at all, and independent of the parent afterwards.

use std::cell::Cell;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use super::own_rows::{ROWS, descriptor, filled, halves, on_disk, open_halves, row, rows};
use super::*;

/// The child's number, and the first checkpoint of it: what both halves have written since the parent's.
const CHILD_SHARD: u64 = ROWS as u64 / 16;

fn first_checkpoint() -> Changes {
    let (_, child) = halves();
    let mut changes = descriptor(&child);
    changes.put(row(ROWS - 1), b"since".to_vec());
    changes.delete(row(ROWS - 3));
    changes.put(row(ROWS + 5), b"new".to_vec());
    changes
}

fn last_of_parent() -> Changes {
    let (parent, _) = halves();
    let mut changes = descriptor(&parent);
    changes.put(row(1), b"since".to_vec());
    changes.delete(row(3));
    changes
}

/// What the child's table should have.
fn child_of(parent: &Model) -> Model {
    let mut model = parent.clone();
    model.apply(&first_checkpoint());
    model.of(halves().1.range)
}

fn seed(tables: &Tables, parent: &ShardTable) -> Result<ShardTable, TablesError> {
    tables.seed(CHILD_SHARD, parent, &first_checkpoint(), b"child")
}

#[test]
fn both_halves_have_their_rows_and_go_on_by_themselves() {
    let at = scratch();
    let tables = open_halves(at.path());
    let mut parent = tables.shard(0).unwrap();
    let whole = filled(&parent);
    let mut child = seed(&tables, &parent).unwrap();
    let mut child_is = child_of(&whole);
    assert_eq!(content(&child).unwrap(), child_is);
    assert_eq!(child.mark().unwrap(), Some(b"child".to_vec()));
    // The parent is as it was before the split until it writes a checkpoint itself.
    assert_eq!(content(&parent).unwrap(), whole);
    assert_eq!(parent.mark().unwrap(), Some(b"before".to_vec()));
    assert_eq!(tables.shards().unwrap(), [0, CHILD_SHARD]);

    let mut tables = Some(tables);
    let mut parent_is = whole;
    parent_is.apply(&last_of_parent());
    parent_is = parent_is.of(halves().0.range);
    parent.write(&last_of_parent(), b"parent").unwrap();
    // Files with the same numbers and other rows, read through the same cache.
    for round in 0..30_u32 {
        let numbers = |from: u32| (from..from + ROWS / 2).step_by(9 + round as usize);
        let value = |half: &str| format!("{half} {round}").repeat(30).into_bytes();
        for (table, model, from, half) in [
            (&parent, &mut parent_is, 0, "parent"),
            (&child, &mut child_is, ROWS / 2, "child"),
        ] {
            let mut changes = Changes::default();
            for number in numbers(from) {
                match number % 7 {
                    0 => changes.delete(row(number)),
                    _ => changes.put(row(number), value(half)),
                }
            }
            model.apply(&changes);
            table.write(&changes, half.as_bytes()).unwrap();
        }
        match round % 10 {
            3 => parent.maintain().unwrap(),
            5 => child.maintain().unwrap(),
            7 => {
                drop((parent, child, tables.take()));
                let again = open_halves(at.path());
                parent = again.shard(0).unwrap();
                child = again.shard(CHILD_SHARD).unwrap();
                tables = Some(again);
            }
            _ => {}
        }
        assert_eq!(content(&parent).unwrap(), parent_is, "{round}");
        assert_eq!(content(&child).unwrap(), child_is, "{round}");
    }
    for table in [&parent, &child] {
        table.maintain().unwrap();
    }
    assert_eq!(on_disk(&parent), parent_is);
    assert_eq!(on_disk(&child), child_is);
}

#[test]
fn a_half_outlives_the_other_one() {
    for removed in [0, CHILD_SHARD] {
        let at = scratch();
        let tables = open_halves(at.path());
        let parent = tables.shard(0).unwrap();
        let mut left_is = filled(&parent);
        let child = seed(&tables, &parent).unwrap();
        let left = if removed == 0 {
            left_is = child_of(&left_is);
            drop(parent);
            child
        } else {
            drop(child);
            parent
        };
        tables.remove(removed).unwrap();
        assert_eq!(content(&left).unwrap(), left_is);
        left.maintain().unwrap();
        assert_eq!(content(&left).unwrap(), left_is);
        drop((left, tables));
        let left = open_halves(at.path()).shard(CHILD_SHARD - removed).unwrap();
        assert_eq!(content(&left).unwrap(), left_is);
    }
}

#[test]
fn a_parent_that_rewrites_its_files_leaves_those_of_the_child_alone() {
    let at = scratch();
    let tables = open_halves(at.path());
    let parent = tables.shard(0).unwrap();
    let whole = filled(&parent);
    drop(seed(&tables, &parent).unwrap());
    let before = files(&at.path().join(folder_of(0)));
    parent.write(&last_of_parent(), b"parent").unwrap();
    parent.maintain().unwrap();
    let after = files(&at.path().join(folder_of(0)));
    assert!(
        after
            .iter()
            .all(|file| !before.contains(file) || !is_sorted_file(file)),
        "a file of before the split is left"
    );
    let child = tables.shard(CHILD_SHARD).unwrap();
    assert_eq!(content(&child).unwrap(), child_of(&whole));
}

fn is_sorted_file(file: &Path) -> bool {
    file.parent().unwrap().ends_with("tables")
}

#[test]
fn a_parent_that_writes_and_merges_meanwhile_gives_one_of_its_states() {
    let at = scratch();
    let tables = open_halves(at.path());
    let parent = tables.shard(0).unwrap();
    let done = AtomicBool::new(false);
    let state = |number: u32| {
        let mut changes = Changes::default();
        for place in 0..200 {
            changes.put(row(ROWS / 2 + place * 7), number.to_be_bytes().to_vec());
        }
        changes
    };
    parent.write(&state(0), b"before").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if done.load(Relaxed) {
                    break;
                }
                parent.write(&state(number), b"before").unwrap();
                parent.change(Tree::merge).unwrap();
            }
        });
        let mut last = 0;
        for _ in 0..40 {
            let (_, child) = halves();
            let made = tables.seed(CHILD_SHARD, &parent, &descriptor(&child), b"child");
            let found = content(&made.unwrap()).unwrap().0;
            let mut values: Vec<_> = found
                .into_iter()
                .filter(|(key, _)| key[0] == b'Q')
                .collect();
            assert_eq!(values.len(), 200);
            values.dedup_by(|a, b| a.1 == b.1);
            assert_eq!(values.len(), 1, "rows of several checkpoints");
            let number = u32::from_be_bytes(values[0].1.clone().try_into().unwrap());
            assert!(number >= last);
            last = number;
            tables.remove(CHILD_SHARD).unwrap();
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn no_links_are_made_of_a_list_that_is_not_the_one_in_memory() {
    let at = scratch();
    let tables = open_halves(at.path());
    let parent = tables.shard(0).unwrap();
    filled(&parent);
    // The disk is further: as within a write that has replaced the list, and has not said so.
    let ahead = Tree::open(&at.path().join(folder_of(0)), &tables.resources).unwrap();
    ahead.ingest(&[], b"ahead").unwrap();
    let refused = seed(&tables, &parent).err().unwrap();
    assert!(matches!(refused, TablesError::Io { .. }), "{refused}");
    assert_eq!(tables.shards().unwrap(), [0]);
    assert!(!tables.seeding_folder(CHILD_SHARD).exists());
}

#[test]
fn a_parent_that_was_never_written_has_a_child_with_what_has_come_since() {
    let at = scratch();
    let tables = open_halves(at.path());
    let parent = tables.shard(0).unwrap();
    let child = seed(&tables, &parent).unwrap();
    assert_eq!(content(&child).unwrap(), child_of(&Model::default()));
    assert_eq!(parent.mark().unwrap(), None);
}

#[test]
fn a_child_that_is_there_is_seeded_no_more() {
    let at = scratch();
    let tables = open_halves(at.path());
    let parent = tables.shard(0).unwrap();
    let whole = filled(&parent);
    let child = seed(&tables, &parent).unwrap();
    // The answer was lost, and it is tried again.
    let again = seed(&tables, &parent).unwrap();
    assert_eq!(content(&again).unwrap(), child_of(&whole));
    child.write(&Changes::default(), b"later").unwrap();
    let refused = seed(&tables, &parent).err().unwrap();
    assert!(matches!(refused, TablesError::Exists { .. }), "{refused}");
    assert_eq!(child.mark().unwrap(), Some(b"later".to_vec()));
}

#[test]
#[should_panic(expected = "which slots it has")]
fn a_first_checkpoint_without_descriptor_is_refused() {
    let at = scratch();
    let tables = open_halves(at.path());
    let parent = tables.shard(0).unwrap();
    let _ = tables.seed(CHILD_SHARD, &parent, &rows(0..1), b"child");
}

#[test]
fn where_files_cannot_be_linked_they_are_copied() {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    let at = scratch();
    let tables = open_halves(at.path());
    let parent = tables.shard(0).unwrap();
    let whole = filled(&parent);
    for kind in [CrossesDevices, PermissionDenied, TooManyLinks, Unsupported] {
        let folder = tables.seeding_folder(CHILD_SHARD);
        let calls = Cell::new(0);
        let link = |_: &Path, _: &Path| {
            calls.set(calls.get() + 1);
            Err(kind.into())
        };
        parent.link_into(&folder, link).unwrap();
        assert!(calls.get() > 1);
        let (_, child) = halves();
        let changes = descriptor(&child);
        let entries = sorted(&changes).unwrap();
        tables.write_first(&folder, &entries, b"child").unwrap();
        tables.publish(&folder, CHILD_SHARD).unwrap();
        let child = tables.shard(CHILD_SHARD).unwrap();
        let mut child_is = whole.clone();
        child_is.apply(&changes);
        assert_eq!(content(&child).unwrap(), child_is.of(halves().1.range));
        drop(child);
        tables.remove(CHILD_SHARD).unwrap();
    }
    let folder = tables.seeding_folder(CHILD_SHARD);
    let full = |_: &Path, _: &Path| Err(io::ErrorKind::StorageFull.into());
    assert!(parent.link_into(&folder, full).unwrap_err().is_full());
}

/// A crash after each file: what was made so far is there.
#[test]
fn what_a_crash_leaves_of_a_child_is_removed() {
    let at = scratch();
    let whole = {
        let tables = open_halves(at.path());
        let parent = tables.shard(0).unwrap();
        filled(&parent)
    };
    let mut left = 0;
    for crash in 0.. {
        let tables = open_halves(at.path());
        assert_eq!(tables.shards().unwrap(), [0], "{crash}");
        assert!(!tables.seeding_folder(CHILD_SHARD).exists(), "{crash}");
        let parent = tables.shard(0).unwrap();
        assert_eq!(content(&parent).unwrap(), whole, "{crash}");
        let folder = tables.seeding_folder(CHILD_SHARD);
        let links = Cell::new(0);
        let link = |from: &Path, to: &Path| {
            links.set(links.get() + 1);
            if links.get() > crash {
                return Err(io::ErrorKind::Interrupted.into());
            }
            fs::hard_link(from, to)
        };
        match parent.link_into(&folder, link) {
            Err(_) => left += usize::from(folder.exists()),
            Ok(()) => break,
        }
    }
    assert!(left > 1);
    // With the links and without the first checkpoint, and with it, but under another name.
    for has_checkpoint in [false, true] {
        let tables = open_halves(at.path());
        let folder = tables.seeding_folder(CHILD_SHARD);
        assert!(!folder.exists());
        let parent = tables.shard(0).unwrap();
        let link = |from: &Path, to: &Path| fs::hard_link(from, to);
        parent.link_into(&folder, link).unwrap();
        if has_checkpoint {
            let changes = first_checkpoint();
            let entries = sorted(&changes).unwrap();
            tables.write_first(&folder, &entries, b"child").unwrap();
        }
        assert_eq!(tables.shards().unwrap(), [0]);
    }
    let tables = open_halves(at.path());
    let parent = tables.shard(0).unwrap();
    assert_eq!(content(&parent).unwrap(), whole);
    let child = seed(&tables, &parent).unwrap();
    assert_eq!(content(&child).unwrap(), child_of(&whole));
}

/// Seeds children until it is killed; says so before each.
fn seed_for_ever(folder: &Path) {
    let tables = open_halves(folder);
    let parent = tables.shard(0).unwrap();
    for round in 0_u32.. {
        tables.remove(CHILD_SHARD).unwrap();
        writeln!(io::stderr(), "{round}").unwrap();
        seed(&tables, &parent).unwrap();
    }
}

#[test]
fn after_kill_9_there_is_the_whole_child_or_none() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return seed_for_ever(Path::new(&folder));
    }
    let name = "storage::tables::tests::seed::after_kill_9_there_is_the_whole_child_or_none";
    let rounds = std::env::var("HERALD_CRASH_ROUNDS").map_or(24, |rounds| rounds.parse().unwrap());
    let at = scratch();
    let whole = filled(&open_halves(at.path()).shard(0).unwrap());
    for round in 0..rounds {
        let mut process = child(name, at.path())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        for _ in 0..=round % 3 {
            lines.next().unwrap().unwrap();
        }
        for _ in 0..(round * 769) % 9_001 {
            std::thread::yield_now();
        }
        process.kill().unwrap();
        process.wait().unwrap();

        let tables = open_halves(at.path());
        assert!(!tables.seeding_folder(CHILD_SHARD).exists());
        let parent = tables.shard(0).unwrap();
        assert_eq!(content(&parent).unwrap(), whole, "round {round}");
        if tables.shards().unwrap().contains(&CHILD_SHARD) {
            let child = tables.shard(CHILD_SHARD).unwrap();
            assert_eq!(child.mark().unwrap(), Some(b"child".to_vec()));
            assert_eq!(content(&child).unwrap(), child_of(&whole), "round {round}");
        }
    }
}
