//! Flipped bits and missing files are found, never passed over.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use consensus::simulation::{Chance, Loss, SimulatedDisk};
use consensus::{Damage, EntryIndex, Files, GroupOptions, Log, LogOptions, LogView, StartError};

use crate::ledger::{
    DEADLINE, Ledger, Note, Scratch, open, runtime, start, start_alone, try_start, write,
};

/// Bytes of a batch's header before its entries.
const BATCH_HEADER: usize = 16;

/// Notes of both groups.
const NOTES: u64 = 20;

/// A closed log and what its groups have in their tables.
struct Closed {
    scratch: Scratch,
    options: LogOptions,
    disk: SimulatedDisk,
    ledgers: [Ledger; 2],
}

/// How many notes of each group are in its tables.
#[derive(Clone, Copy)]
struct InTables(u64);

/// A log of the groups 1 and 2, one batch per note: 0, 2, 4, … of group 1, odd ones of group 2.
fn two_groups(file_bytes: u64, in_tables: InTables) -> Closed {
    filled(file_bytes, in_tables, End::Orderly)
}

fn filled(file_bytes: u64, in_tables: InTables, end: End) -> Closed {
    let (scratch, disk) = (Scratch::new(), SimulatedDisk::new());
    let options = LogOptions {
        file_bytes,
        disk_bytes: file_bytes,
        ..scratch.options()
    };
    let log = open(&options, &disk).expect("the log opens");
    let ledgers = [Ledger::default(), Ledger::default()];
    runtime().block_on(async {
        let mut groups = Vec::new();
        for (id, ledger) in (1..).zip(&ledgers) {
            let group = try_start(id, &log, ledger).await.expect("it starts");
            group.recovered().await.expect("it leads");
            groups.push(group);
        }
        for number in 0..NOTES {
            let of = number as usize % 2;
            write(&groups[of], [number], 100).await;
            if number / 2 + 1 == in_tables.0 {
                ledgers[of].checkpoint();
            }
        }
        for group in groups {
            group.shutdown().await;
        }
    });
    let closed = Closed {
        scratch,
        options,
        disk,
        ledgers,
    };
    match end {
        End::Orderly => {
            drop(log);
            closed
        }
        // What the operating system has of the files.
        End::Killed => closed.copy(),
    }
}

/// How the process ends.
#[derive(Clone, Copy)]
enum End {
    Orderly,
    Killed,
}

/// What becomes of a group.
#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    Whole,
    /// It says that it has lost something.
    Said(String),
    /// It serves, and has lost something.
    Silent(Vec<u64>),
}

impl Closed {
    /// The same, of which another one can be damaged.
    fn copy(&self) -> Self {
        let (scratch, disk) = (Scratch::new(), SimulatedDisk::new());
        fs::create_dir(scratch.path().join("entries")).expect("made");
        fs::copy(
            self.scratch.path().join("FORMAT"),
            scratch.path().join("FORMAT"),
        )
        .expect("copied");
        for path in self.disk.paths() {
            let name = path
                .strip_prefix(self.scratch.path())
                .expect("it is of the log");
            let copied = scratch.path().join(name);
            drop(disk.create(&copied).expect("made"));
            self.disk.edit(&path, |content| {
                disk.edit(&copied, |copy| copy.clone_from(content));
            });
        }
        Self {
            options: LogOptions {
                directory: scratch.path().to_owned(),
                ..self.options.clone()
            },
            scratch,
            disk,
            ledgers: self.ledgers.each_ref().map(Ledger::after_crash),
        }
    }

    fn open(&self) -> Log {
        open(&self.options, &self.disk).expect("the log opens")
    }

    /// What each group has after a start.
    fn outcomes(&self) -> [Outcome; 2] {
        let log = self.open();
        [1, 2].map(|id| runtime().block_on(outcome(id, &log, &self.ledgers[id as usize - 1])))
    }

    fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let mut paths = self.disk.paths();
        paths.retain(|path| path.to_string_lossy().ends_with(suffix));
        paths
    }

    fn len(&self, path: &Path) -> usize {
        let mut len = 0;
        self.disk.edit(path, |content| len = content.len());
        len
    }

    /// Where a note's bytes are.
    fn find(&self, number: u64) -> (PathBuf, usize) {
        let needle = [number as u8; 100];
        for path in self.disk.paths() {
            let mut found = None;
            self.disk.edit(&path, |content| {
                found = content.windows(100).position(|bytes| bytes == needle);
            });
            if let Some(offset) = found {
                return (path, offset);
            }
        }
        panic!("note {number} is nowhere");
    }

    /// Flips two bits of a byte, so that what they are in cannot be repaired.
    fn flip(&self, path: &Path, offset: usize, bit: usize) {
        let bits = 1 << bit | 1 << ((bit + 1) % 8);
        self.disk.edit(path, |content| content[offset] ^= bits);
    }

    fn flip_one(&self, path: &Path, offset: usize, bit: usize) {
        self.disk.edit(path, |content| content[offset] ^= 1 << bit);
    }
}

async fn outcome(id: u64, log: &Log, ledger: &Ledger) -> Outcome {
    let ledger = ledger.after_crash();
    let group = match try_start(id, log, &ledger).await {
        Err(error) => return Outcome::Said(error.to_string()),
        Ok(group) => group,
    };
    if let Err(error) = group.recovered().await {
        return Outcome::Said(error.to_string());
    }
    let noted = group.propose(Note::new(100, 1)).await.expect("it is taken");
    noted.await.expect("it is applied");
    group.shutdown().await;
    let numbers = ledger.pages().numbers();
    let all = (id - 1..NOTES).step_by(2).chain([100]);
    match all.eq(numbers.iter().copied()) {
        true => Outcome::Whole,
        false => Outcome::Silent(numbers),
    }
}

/// Damages a log.
type Strike = Box<dyn FnOnce(&Closed)>;

/// Damages copies of a log, and holds against each other what is said and what is lost.
fn damage_each(of: &Closed, damages: impl IntoIterator<Item = (String, impl FnOnce(&Closed))>) {
    let (mut whole, mut said) = (0, 0);
    for (name, damage) in damages {
        let copy = of.copy();
        damage(&copy);
        for outcome in copy.outcomes() {
            match outcome {
                Outcome::Whole => whole += 1,
                Outcome::Said(_) => said += 1,
                Outcome::Silent(left) => {
                    panic!("{name}: only {left:?} are left, and nothing is said")
                }
            }
        }
    }
    // Otherwise this tests nothing.
    assert!(whole > 0 && said > 0, "{whole} whole, {said} say so");
}

fn flips(of: &Closed, count: usize) -> Vec<(String, impl FnOnce(&Closed) + use<>)> {
    let mut chance = Chance(1);
    let paths = of.disk.paths();
    let flip = |_| {
        let path = &paths[chance.below(paths.len())];
        let written = of.len(path).min(3_000);
        let (offset, bit) = (chance.below(written), chance.below(8));
        let name = path
            .strip_prefix(of.scratch.path())
            .expect("of the log")
            .to_owned();
        let what = format!("bit {bit} of byte {offset} of {}", name.display());
        let damage = move |copy: &Closed| {
            let path = copy.scratch.path().join(name);
            copy.flip(&path, offset, bit);
        };
        (what, damage)
    };
    (0..count).map(flip).collect()
}

#[test]
fn no_flipped_bit_is_passed_over() {
    for file_bytes in [1 << 20, 1_000] {
        let closed = two_groups(file_bytes, InTables(0));
        damage_each(&closed, flips(&closed, 150));
    }
}

#[test]
fn no_flipped_bit_is_passed_over_behind_a_checkpoint() {
    for file_bytes in [1 << 20, 1_000] {
        let closed = two_groups(file_bytes, InTables(5));
        damage_each(&closed, flips(&closed, 150));
    }
}

#[test]
fn nothing_is_passed_over_after_a_kill() {
    let closed = filled(1_000, InTables(5), End::Killed);
    let mut damages: Vec<(String, Strike)> = Vec::new();
    for (what, flip) in flips(&closed, 150) {
        damages.push((what, Box::new(flip)));
    }
    let place = |number| {
        let (path, offset) = closed.find(number);
        let name = path.strip_prefix(closed.scratch.path());
        (name.expect("of the log").to_owned(), offset)
    };
    for number in NOTES - 4..NOTES {
        let (name, offset) = place(number);
        // Between two batches: nothing that cannot be read is left.
        let end = offset - BATCH_HEADER - 17 - 8;
        let cut = move |copy: &Closed| {
            let path = copy.scratch.path().join(name);
            copy.disk.edit(&path, |content| content.truncate(end));
        };
        damages.push((format!("cut before note {number}"), Box::new(cut)));
    }
    for step in 0..40 {
        let (name, offset) = place(NOTES - 1);
        let at = offset + 3 * step;
        let flip = move |copy: &Closed| copy.flip(&copy.scratch.path().join(name), at, step % 8);
        damages.push((format!("byte {at} of the last note"), Box::new(flip)));
    }
    damage_each(&closed, damages);
}

#[test]
fn no_cut_end_is_passed_over() {
    for file_bytes in [1 << 20, 1_000] {
        let closed = two_groups(file_bytes, InTables(3));
        let mut cuts = Vec::new();
        for path in closed.disk.paths() {
            let len = closed.len(&path);
            let name = path
                .strip_prefix(closed.scratch.path())
                .expect("of the log")
                .to_owned();
            for cut in (0..20).map(|part| len * part / 20) {
                let name = name.clone();
                let what = format!("{} cut to {cut} of {len}", name.display());
                cuts.push((what, move |copy: &Closed| {
                    let path = copy.scratch.path().join(name);
                    copy.disk.edit(&path, |content| content.truncate(cut));
                }));
            }
        }
        damage_each(&closed, cuts);
    }
}

#[test]
fn no_zeroed_end_and_no_missing_file_is_passed_over() {
    let closed = two_groups(1_000, InTables(3));
    let mut damages: Vec<(String, Strike)> = Vec::new();
    for path in closed.disk.paths() {
        let len = closed.len(&path);
        let name = path
            .strip_prefix(closed.scratch.path())
            .expect("of the log")
            .to_owned();
        let lost = name.clone();
        damages.push((
            format!("{} lost", name.display()),
            Box::new(move |copy| {
                copy.disk
                    .delete(&copy.scratch.path().join(lost))
                    .expect("deleted")
            }),
        ));
        for zeros in [1, 50, 300, 4_096] {
            let name = name.clone();
            damages.push((
                format!("the last {zeros} bytes of {} zeroed", name.display()),
                Box::new(move |copy| {
                    copy.disk.edit(&copy.scratch.path().join(name), |content| {
                        content[len.saturating_sub(zeros)..].fill(0);
                    });
                }),
            ));
        }
    }
    damage_each(&closed, damages);
}

/// The newest file of entries that were moved, and its length.
fn rewritten(disk: &SimulatedDisk) -> Option<(PathBuf, usize)> {
    let mut paths = disk.paths();
    paths.retain(|path| path.to_string_lossy().ends_with(".rewrite"));
    let newest = paths.pop()?;
    let mut len = 0;
    disk.edit(&newest, |content| len = content.len());
    Some((newest, len))
}

#[test]
fn no_flipped_bit_is_passed_over_in_what_was_moved() {
    let (scratch, disk) = (Scratch::new(), SimulatedDisk::new());
    let options = LogOptions {
        file_bytes: 1_000,
        disk_bytes: 1_000,
        purge_interval: Duration::ZERO,
        ..scratch.options()
    };
    let of_group = GroupOptions {
        keep: 0,
        ..GroupOptions::default()
    };
    let log = open(&options, &disk).expect("the log opens");
    let ledgers = [Ledger::default(), Ledger::default()];
    runtime().block_on(async {
        for (id, ledger) in (1..).zip(&ledgers) {
            let group = start_alone(id, 1, &log, ledger, &of_group).await;
            let group = group.expect("it starts");
            group.recovered().await.expect("it leads");
            for number in (id - 1..NOTES).step_by(2) {
                write(&group, [number], 100).await;
            }
            // What group 1 needs is in files whose other entries are not needed any more.
            if id == 2 {
                group.checkpointed(ledger.checkpoint()).await;
                let begin = Instant::now();
                while rewritten(&disk).is_none_or(|(_, len)| len < 1_000) {
                    assert!(begin.elapsed() < DEADLINE, "its entries are to be moved");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            group.shutdown().await;
        }
    });
    drop(log);
    let closed = Closed {
        scratch,
        options,
        disk,
        ledgers,
    };
    let (path, len) = rewritten(&closed.disk).expect("there is one");
    let name = path
        .strip_prefix(closed.scratch.path())
        .expect("of the log");
    let flip = |at: usize| {
        let (what, path) = (format!("byte {at}"), name.to_owned());
        let flip = move |copy: &Closed| copy.flip(&copy.scratch.path().join(path), at, at % 8);
        (what, flip)
    };
    damage_each(&closed, (0..len).step_by(len / 60 + 1).map(flip));
}

#[test]
fn a_flipped_bit_in_an_entry_stops_its_group_only() {
    let closed = two_groups(1 << 20, InTables(0));
    let (path, offset) = closed.find(9);
    closed.flip(&path, offset, 0);
    let log = closed.open();
    let [finding] = log.damage() else {
        panic!("{:?}", log.damage());
    };
    assert_eq!(finding.path, path);
    let batch = (offset - BATCH_HEADER - 17 - 8) as u64;
    assert!(
        matches!(finding.what, Damage::Bytes { from, .. } if from == batch),
        "{finding}"
    );
    let healthy = Ledger::default();
    runtime().block_on(async {
        let why = try_start(2, &log, &Ledger::default()).await.err();
        assert!(
            matches!(why, Some(StartError::Lost(missing)) if missing.first == EntryIndex(6)),
            "{why:?}"
        );
        start(&log, &healthy).await.shutdown().await;
    });
    assert!(healthy.pages().numbers().into_iter().eq((0..20).step_by(2)));
}

#[test]
fn one_flipped_bit_of_a_batch_is_flipped_back_and_nothing_is_lost() {
    let closed = two_groups(1 << 20, InTables(0));
    let (path, offset) = closed.find(9);
    let begin = offset - BATCH_HEADER - 17 - 8;
    let end = closed.find(10).1 - BATCH_HEADER - 17 - 8;
    let mut whole = Vec::new();
    closed.disk.edit(&path, |content| whole.clone_from(content));
    // All of the batch: its header, its entry, its footer and both checksums.
    for at in begin..end {
        closed.flip_one(&path, at, at % 8);
        let log = closed.open();
        let [finding] = log.damage() else {
            panic!("byte {at}: {:?}", log.damage());
        };
        let at = at as u64;
        assert_eq!(finding.what, Damage::Bit { at });
        assert_eq!(finding.path, path);
        drop(log);
        let mut now = Vec::new();
        closed
            .disk
            .edit(&path, |content| now.extend_from_slice(&content[..end]));
        assert_eq!(now, whole[..end], "byte {at}");
    }
    assert_eq!(closed.outcomes(), [Outcome::Whole, Outcome::Whole]);
}

#[test]
fn a_flipped_bit_of_a_killed_process_is_flipped_back_in_several_batches() {
    let closed = filled(1 << 20, InTables(0), End::Killed);
    for number in [3, 8, 9, 19] {
        let (path, offset) = closed.find(number);
        closed.flip_one(&path, offset, 5);
    }
    let log = closed.open();
    assert_eq!(log.damage().len(), 4, "{:?}", log.damage());
    assert!(
        log.damage()
            .iter()
            .all(|finding| matches!(finding.what, Damage::Bit { .. }))
    );
    drop(log);
    assert_eq!(closed.outcomes(), [Outcome::Whole, Outcome::Whole]);
}

#[test]
fn what_is_damaged_and_in_the_tables_is_not_missed() {
    let closed = two_groups(1 << 20, InTables(7));
    // The batches of notes 8 and 9, of both groups, with headers, entries and footers.
    for (number, at) in [(8, 0), (9, 110)] {
        let (path, offset) = closed.find(number);
        closed.flip(&path, offset + at, 3);
    }
    assert_eq!(closed.outcomes(), [Outcome::Whole, Outcome::Whole]);
    // And again, with what is left.
    closed
        .ledgers
        .iter()
        .for_each(|ledger| drop(ledger.after_crash()));
    let log = closed.open();
    assert_eq!(log.damage(), []);
}

#[test]
fn a_loss_is_told_at_each_start_until_it_is_accepted() {
    let closed = two_groups(1 << 20, InTables(3));
    let (path, offset) = closed.find(15);
    closed.flip(&path, offset, 0);
    for _ in 0..2 {
        let [whole, said] = closed.outcomes();
        // Group 1 has its own note by now.
        assert!(!matches!(whole, Outcome::Said(_)), "{whole:?}");
        assert!(matches!(said, Outcome::Said(_)), "{said:?}");
    }
    let ledger = closed.ledgers[1].after_crash();
    let log = closed.open();
    runtime().block_on(async {
        let mark = ledger.durable_mark();
        let lost = log.accept_loss(2, &mark).await.expect("it is accepted");
        let lost = lost.expect("something is lost");
        log.make_sole_voter(2, 1, &mark).await.expect("written");
        assert_eq!((lost.first, lost.last), (EntryIndex(9), Some(11)));
        assert_eq!(lost.to_string(), "entries 9 to 11 are missing");
        let group = try_start(2, &log, &ledger).await.expect("it starts");
        group.recovered().await.expect("it leads");
        assert_eq!(ledger.pages().numbers(), [1, 3, 5, 7, 9, 11, 13]);
        write(&group, [99], 10).await;
        group.shutdown().await;
    });
    drop(log);
    let ledger = ledger.after_crash();
    let log = closed.open();
    assert_eq!(log.damage(), []);
    runtime().block_on(async {
        let group = try_start(2, &log, &ledger).await.expect("it starts");
        group.recovered().await.expect("it leads");
        assert_eq!(ledger.pages().numbers(), [1, 3, 5, 7, 9, 11, 13, 99]);
        group.shutdown().await;
    });
}

#[test]
fn the_files_of_a_damaged_log_are_kept() {
    let closed = two_groups(1 << 20, InTables(0));
    let (path, offset) = closed.find(9);
    closed.flip(&path, offset, 0);
    let mut before = Vec::new();
    closed
        .disk
        .edit(&path, |content| before.clone_from(content));
    drop(closed.open());
    let name = path.file_name().expect("it has one");
    let kept = closed.scratch.path().join("damaged/1").join(name);
    let mut after = Vec::new();
    closed.disk.edit(&kept, |content| after.clone_from(content));
    assert_eq!(before, after);
}

#[test]
fn a_repair_goes_on_after_a_power_loss_at_any_moment() {
    let closed = two_groups(1_000, InTables(3));
    let (path, offset) = closed.find(15);
    closed.flip(&path, offset, 0);
    let whole = closed.copy();
    let operations = {
        let before = whole.disk.operations();
        drop(whole.open());
        whole.disk.operations() - before
    };
    for moment in 0..operations {
        let copy = closed.copy();
        copy.disk.fail_power_after(moment);
        drop(open(&copy.options, &copy.disk));
        copy.disk.restart(Loss::All, moment);
        let [first, second] = copy.outcomes();
        assert_eq!(first, Outcome::Whole, "operation {moment}");
        assert!(
            matches!(second, Outcome::Said(_)),
            "operation {moment}: {second:?}"
        );
    }
}

#[test]
fn an_end_that_was_synced_is_missed_after_a_crash_too() {
    let closed = two_groups(1 << 20, InTables(0));
    let log = closed.open();
    let ends = closed.scratch.path().join("ends");
    let says = |term: u64, index: u64| {
        let id = [term.to_le_bytes(), index.to_le_bytes()].concat();
        let mut says = false;
        closed.disk.edit(&ends, |content| {
            // Behind the hints, which are not synced.
            let mut slots = content[4_096..].windows(id.len());
            says = slots.any(|bytes| bytes == id);
        });
        says
    };
    runtime().block_on(async {
        let ledger = Ledger::default();
        let group = start(&log, &ledger).await;
        write(&group, [100], 100).await;
        let index = group.applied_mark().index().expect("a note is applied");
        let term = group.watch().borrow().term;
        let begin = Instant::now();
        while !says(term, index) {
            assert!(begin.elapsed() < DEADLINE, "the end is to be written down");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        closed.disk.fail_power_after(0);
        group.shutdown().await;
    });
    drop(log);
    closed.disk.restart(Loss::All, 0);
    let (path, offset) = closed.find(100);
    closed.disk.edit(&path, |content| {
        content.truncate(offset - BATCH_HEADER - 17 - 8)
    });
    let [said, whole] = closed.outcomes();
    assert!(matches!(said, Outcome::Said(_)), "{said:?}");
    assert_eq!(whole, Outcome::Whole);
}

#[test]
fn a_log_that_is_closed_says_that_it_ends_there() {
    let closed = two_groups(1 << 20, InTables(0));
    let log = closed.open();
    runtime().block_on(async {
        let group = start(&log, &Ledger::default()).await;
        write(&group, [100], 100).await;
        group.shutdown().await;
    });
    log.close();
    let copy = closed.copy();
    drop(log);
    let (path, offset) = copy.find(100);
    copy.disk.edit(&path, |content| content.truncate(offset));
    let log = copy.open();
    let started = runtime().block_on(try_start(1, &log, &Ledger::default()));
    let Err(StartError::Lost(missing)) = started else {
        panic!("{:?}", started.err());
    };
    assert!(!missing.is_open, "{missing}");
    assert_eq!(missing.last, Some(missing.first.0));
}

#[test]
fn a_vote_is_not_forgotten_with_the_write_that_held_it() {
    const TERM: u64 = 50_000_000;
    for end in [End::Orderly, End::Killed] {
        let closed = two_groups(1 << 20, InTables(3));
        let path = closed.files(".raftlog").remove(0);
        let before = closed.len(&path);
        let log = closed.open();
        let vote = log.leave_terms_behind(1, 1, TERM);
        runtime().block_on(vote).expect("it is written");
        // At once: nothing but the vote itself may have had it written down.
        let killed = closed.copy();
        drop(log);
        let copy = match end {
            End::Orderly => closed.copy(),
            End::Killed => killed,
        };
        let path = copy.files(".raftlog").remove(0);
        copy.disk.edit(&path, |content| content.truncate(before));
        let log = copy.open();
        assert!(!log.damage().is_empty(), "the write is missing");
        let ledger = copy.ledgers[0].after_crash();
        runtime().block_on(async {
            let mark = ledger.durable_mark();
            if log.missing(1, &mark).expect("it can be read").is_some() {
                log.accept_loss(1, &mark).await.expect("it is accepted");
                log.make_sole_voter(1, 1, &mark).await.expect("written");
            }
            let group = try_start(1, &log, &ledger).await.expect("it starts");
            group.recovered().await.expect("it leads");
            let term = group.watch().borrow().term;
            assert!(term > TERM, "it leads in term {term}");
            group.shutdown().await;
        });
    }
}

#[test]
fn bytes_that_a_client_sent_are_never_taken_for_a_batch() {
    // What is written here into one log is sent to another as the content of a note.
    let forged = two_groups(1 << 20, InTables(0));
    let path = forged.files(".raftlog").remove(0);
    let mut content = Vec::new();
    forged.disk.edit(&path, |bytes| content.clone_from(bytes));
    let (scratch, disk) = (Scratch::new(), SimulatedDisk::new());
    let options = scratch.options();
    let log = open(&options, &disk).expect("the log opens");
    runtime().block_on(async {
        let group = try_start(3, &log, &Ledger::default())
            .await
            .expect("it starts");
        group.recovered().await.expect("it leads");
        let forged = Note(std::sync::Arc::new((7, content)));
        group
            .propose(forged)
            .await
            .expect("taken")
            .await
            .expect("applied");
        write(&group, [8], 100).await;
        group.shutdown().await;
    });
    drop(log);
    let file = disk
        .paths()
        .into_iter()
        .find(|path| path.ends_with("0000000000000001.raftlog"));
    let file = file.expect("there is one");
    let mut batch = None;
    disk.edit(&file, |bytes| {
        batch = bytes
            .windows(8)
            .position(|bytes| bytes == 7u64.to_le_bytes());
    });
    let header = batch.expect("it is there") - BATCH_HEADER - 17;
    // The length of the batch that holds it.
    // Two bits: one would be flipped back.
    disk.edit(&file, |bytes| bytes[header + 5] ^= 3);
    let log = open(&options, &disk).expect("the log opens");
    assert_eq!(log.group_ids(), [3]);
    let started = runtime().block_on(try_start(3, &log, &Ledger::default()));
    assert!(
        matches!(started, Err(StartError::Lost(_))),
        "{:?}",
        started.err()
    );
}

#[test]
fn a_view_of_a_damaged_log_says_what_is_missing() {
    let (scratch, names) = (Scratch::new(), Scratch::new());
    let log = Log::open(&scratch.options()).expect("the log opens");
    let mark = runtime().block_on(async {
        let group = start(&log, &Ledger::default()).await;
        write(&group, 0..1, 100).await;
        let mark = group.applied_mark();
        write(&group, 1..2, 100).await;
        group.shutdown().await;
        mark
    });
    drop(log);
    let file = scratch.path().join("entries/0000000000000001.raftlog");
    let whole = fs::read(&file).expect("read");
    fs::write(&file, &whole[..whole.len() - 20]).expect("written");
    let view = LogView::open(scratch.path(), names.path()).expect("it can be looked at");
    let [_, finding] = view.damage() else {
        panic!("{:?}", view.damage());
    };
    assert!(matches!(finding.what, Damage::Short { .. }), "{finding}");
    assert!(
        finding.to_string().contains("0000000000000001.raftlog"),
        "{finding}"
    );
    let lacks = view.check_fit(1, &mark).expect_err("an entry is missing");
    assert!(lacks.to_string().contains("is missing"), "{lacks}");
    assert_eq!(fs::read(&file).expect("read").len(), whole.len() - 20);
    assert!(!scratch.path().join("damaged").exists());
}

#[test]
fn a_view_of_a_log_with_one_flipped_bit_reads_what_a_start_reads() {
    let (scratch, names) = (Scratch::new(), Scratch::new());
    let log = Log::open(&scratch.options()).expect("the log opens");
    let mark = runtime().block_on(async {
        let group = start(&log, &Ledger::default()).await;
        write(&group, 0..1, 100).await;
        let mark = group.applied_mark();
        write(&group, 1..2, 100).await;
        group.shutdown().await;
        mark
    });
    drop(log);
    let file = scratch.path().join("entries/0000000000000001.raftlog");
    let mut bytes = fs::read(&file).expect("read");
    let at = bytes.len() - 20;
    bytes[at] ^= 4;
    fs::write(&file, &bytes).expect("written");
    let view = LogView::open(scratch.path(), names.path()).expect("it can be looked at");
    let [finding] = view.damage() else {
        panic!("{:?}", view.damage());
    };
    assert_eq!(finding.what, Damage::Bit { at: at as u64 });
    view.check_fit(1, &mark).expect("nothing is missing");
    assert_eq!(fs::read(&file).expect("read"), bytes, "nothing is changed");
    drop(view);
    let log = Log::open(&scratch.options()).expect("the log opens");
    assert_eq!(log.damage().len(), 1);
}

#[test]
fn a_torn_last_write_is_cut_off_without_a_word() {
    let closed = two_groups(1 << 20, InTables(0));
    let path = closed.files(".raftlog").remove(0);
    closed
        .disk
        .edit(&path, |content| content.extend_from_slice(&[7; 50]));
    assert_eq!(closed.open().damage(), []);
    assert_eq!(closed.outcomes(), [Outcome::Whole, Outcome::Whole]);
}
