//! Kill -9 at random instants, and what a loss of power leaves of files that were not synced.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use super::*;

/// The table after the first `count` checkpoints.
fn model(count: u32) -> Model {
    let mut model = Model::default();
    (0..count).for_each(|number| model.apply(&checkpoint(number)));
    model
}

/// How many checkpoints the table says it holds.
fn count(table: &ShardTable) -> u32 {
    let mark = table.mark().unwrap();
    mark.map_or(0, |mark| u32::from_le_bytes(mark.try_into().unwrap()))
}

/// Writes checkpoints until it is killed, and says how many are written.
fn write_for_ever(folder: &Path) {
    let table = open(folder).shard(1).unwrap();
    for number in count(&table).. {
        let written = number + 1;
        table
            .write(&checkpoint(number), &written.to_le_bytes())
            .unwrap();
        writeln!(std::io::stderr(), "{written}").unwrap();
        if number.is_multiple_of(5) {
            table.maintain().unwrap();
        }
    }
}

#[test]
fn after_kill_9_the_table_is_that_of_a_checkpoint_and_of_none_before_the_last_acknowledged() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return write_for_ever(Path::new(&folder));
    }
    let name = "storage::tables::tests::crash::\
        after_kill_9_the_table_is_that_of_a_checkpoint_and_of_none_before_the_last_acknowledged";
    let rounds = std::env::var("HERALD_CRASH_ROUNDS").map_or(12, |rounds| rounds.parse().unwrap());
    let at = scratch();
    let mut before = 0;
    for round in 0..rounds {
        let mut child = child(name, at.path())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // From the first write on, at another place in it each round.
        for _ in 0..=round % 7 {
            lines.next().unwrap().unwrap();
        }
        for _ in 0..(round * 769) % 3_001 {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let said = lines.map(Result::unwrap).last();
        let acknowledged = said.map_or(before, |line| line.parse().unwrap());

        let table = open(at.path()).shard(1).unwrap();
        let found = count(&table);
        assert!(
            found >= acknowledged,
            "round {round}: {found} < {acknowledged}"
        );
        assert_eq!(content(&table).unwrap(), model(found), "round {round}");
        assert!(found > before, "round {round}: nothing was written");
        before = found;
    }
}

#[test]
fn files_of_a_write_that_did_not_finish_count_for_nothing() {
    let (before, after) = (scratch(), scratch());
    let table = open(after.path()).shard(1).unwrap();
    for number in 0..5_u32 {
        table
            .write(&checkpoint(number), &(number + 1).to_le_bytes())
            .unwrap();
    }
    copy(after.path(), before.path());
    table.write(&checkpoint(5), &6_u32.to_le_bytes()).unwrap();

    // All that the write has made, but the pointer that makes it count, cut at any length.
    for file in files(after.path()) {
        let place = file.strip_prefix(after.path()).unwrap();
        let whole = fs::read(&file).unwrap();
        if before.path().join(place).exists() {
            continue;
        }
        for length in (0..whole.len()).step_by(97).chain([whole.len()]) {
            let crashed = scratch();
            copy(before.path(), crashed.path());
            fs::write(crashed.path().join(place), &whole[..length]).unwrap();
            let table = open(crashed.path()).shard(1).unwrap();
            assert_eq!(count(&table), 5);
            assert_eq!(content(&table).unwrap(), model(5));
            table.write(&checkpoint(5), &6_u32.to_le_bytes()).unwrap();
            assert_eq!(content(&table).unwrap(), model(6));
        }
    }
}

#[test]
fn a_shard_whose_making_was_cut_off_is_made_again() {
    for left in ["", "tables", "v0"] {
        let at = scratch();
        let folder = at.path().join(folder_of(1));
        fs::create_dir_all(&folder).unwrap();
        match left {
            "v0" => fs::write(folder.join("v0"), b"torn").unwrap(),
            name => fs::create_dir_all(folder.join(name)).unwrap(),
        }
        let table = open(at.path()).shard(1).unwrap();
        table.write(&Changes::default(), b"made").unwrap();
        drop(table);
        let mark = open(at.path()).shard(1).unwrap().mark().unwrap();
        assert_eq!(mark, Some(b"made".to_vec()), "{left}");
    }
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
}
