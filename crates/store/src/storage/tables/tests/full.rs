//! A full disk, played by a limit of file size: writing fails part of the way, as it does without space.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::own_rows::{ROWS, descriptor, filled, halves, on_disk, open_halves, rows};
use super::*;

#[test]
fn a_full_disk_refuses_writes_and_recovers() {
    let Some(folder) = std::env::var_os(CHILD) else {
        let at = scratch();
        let name = "storage::tables::tests::full::a_full_disk_refuses_writes_and_recovers";
        let run = child(name, at.path()).output().unwrap();
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        let report = String::from_utf8_lossy(&run.stdout);
        assert!(report.contains("1 passed"), "{name} is no test: {report}");
        return;
    };
    let table = open(Path::new(&folder)).shard(1).unwrap();
    let mut model = Model::default();
    for number in 0..8 {
        let changes = checkpoint(number);
        model.apply(&changes);
        table.write(&changes, b"before").unwrap();
    }
    let mut large = Changes::default();
    (0..3_000).for_each(|number| large.put(key(number), noise(number)));
    table.maintain().unwrap();
    let size = size_of_folder(Path::new(&folder));

    for limit in [0, 10, 1_000, 100_000, 900_000] {
        limit_file_size(Some(limit));
        let refused = table.write(&large, b"after").unwrap_err();
        assert!(refused.is_full(), "{limit}: {refused}");
        assert!(refused.to_string().starts_with("no space for table"));
        assert_eq!(content(&table).unwrap(), model);
        assert_eq!(table.mark().unwrap(), Some(b"before".to_vec()));
        assert_eq!(size_of_folder(Path::new(&folder)), size, "left by {limit}");
    }
    limit_file_size(Some(1_000));
    for _ in 0..2 {
        // Merging is due too, and cannot be done.
        table.0.unmerged_bytes.store(FILE_BYTES as usize, Relaxed);
        assert!(table.maintain().unwrap_err().is_full());
        assert_eq!(content(&table).unwrap(), model);
    }

    limit_file_size(None);
    table.maintain().unwrap();
    assert_eq!(content(&table).unwrap(), model);
    model.apply(&large);
    table.write(&large, b"after").unwrap();
    assert_eq!(content(&table).unwrap(), model);
    drop(table);
    let table = open(Path::new(&folder)).shard(1).unwrap();
    assert_eq!(content(&table).unwrap(), model);
    assert_eq!(table.mark().unwrap(), Some(b"after".to_vec()));
}

#[test]
fn a_full_disk_refuses_a_child_and_leaves_the_parent_alone() {
    let Some(folder) = std::env::var_os(CHILD) else {
        let at = scratch();
        let name =
            "storage::tables::tests::full::a_full_disk_refuses_a_child_and_leaves_the_parent_alone";
        let run = child(name, at.path()).output().unwrap();
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        let report = String::from_utf8_lossy(&run.stdout);
        assert!(report.contains("1 passed"), "{name} is no test: {report}");
        return;
    };
    let folder = Path::new(&folder);
    let tables = open_halves(folder);
    let parent = tables.shard(0).unwrap();
    let mut whole = filled(&parent);
    let (narrow, half) = halves();
    let mut changes = rows(ROWS / 2..ROWS);
    changes.put(DESCRIPTOR_KEY.to_vec(), half.to_row());
    let before = files(folder);
    for limit in [0, 10, 100, 1_000, 100_000, 900_000] {
        limit_file_size(Some(limit));
        let refused = tables.seed(500, &parent, &changes, b"child").err().unwrap();
        assert!(refused.is_full(), "{limit}: {refused}");
        assert_eq!(files(folder), before, "left by {limit}");
        assert_eq!(content(&parent).unwrap(), whole);
    }
    // Foreign rows are there when the disk is full again, and nobody finds them.
    limit_file_size(None);
    let child = tables.seed(500, &parent, &changes, b"child").unwrap();
    let mut child_is = whole.clone();
    child_is.apply(&changes);
    let child_is = child_is.of(half.range);
    limit_file_size(Some(1_000));
    for _ in 0..2 {
        assert!(child.maintain().unwrap_err().is_full());
        assert_eq!(content(&child).unwrap(), child_is);
    }
    limit_file_size(None);
    child.maintain().unwrap();
    assert_eq!(content(&child).unwrap(), child_is);
    assert_eq!(on_disk(&child), child_is);
    let changes = descriptor(&narrow);
    whole.apply(&changes);
    parent.write(&changes, b"after").unwrap();
    assert_eq!(content(&parent).unwrap(), whole.of(narrow.range));
}

fn limit_file_size(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = bytes.or(maximum);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
}
