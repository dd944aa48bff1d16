//! What replicas of each level write and do with entries is what it was when the level was made.
//!
//! `golden/level-N/` has the entries of a log of each store, the digest of the rows after each hundred of them, and the rows at the
//! end. Those of the levels 2 and 3 were written by the programs of the commits 95156cc and 04b4cc9 themselves.
//!
//! A test that fails here says that a replica of this program and one of an earlier program would come to hold different things. The
//! change needs a level of its own (`store_state::LEVELS`).

mod generate;
mod mirror;
mod replica;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use store_state::Level;
use store_state::api::StoreId;

use replica::Replica;

/// Entries of the session, inbox and retain store.
const ENTRIES: [usize; 3] = [500, 1_200, 300];
/// Entries from one digest to the next. The machine is loaded anew then.
const STEP: usize = 100;

fn folder(level: Level) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/level-{level}"))
}

/// Entries as they stand in the file: each behind its length in four bytes.
fn entries(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut entries = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (entry, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
        entries.push(entry.to_vec());
        rest = behind;
    }
    entries
}

fn replay(level: Level, store: StoreId, entries: &[Vec<u8>]) -> (String, String) {
    let mut replica = Replica::new(level, store);
    let mut digests = String::new();
    for (number, entry) in (1..).zip(entries) {
        replica.apply(entry);
        if number % STEP == 0 {
            replica.restart();
            writeln!(
                digests,
                "{} {number} {:016x}",
                store.name(),
                replica.digest()
            )
            .unwrap();
        }
    }
    (digests, replica.rows())
}

#[test]
fn each_level_does_what_it_did() {
    for level in (Level::OLDEST.0..=Level::AGED.0).map(Level) {
        let folder = folder(level);
        let kept = fs::read_to_string(folder.join("digests")).unwrap();
        let mut found = String::new();
        for (store, count) in StoreId::OF_NAMES.into_iter().zip(ENTRIES) {
            let entries = entries(&folder.join(format!("{}.entries", store.name())));
            assert_eq!(entries.len(), count);
            let (digests, rows) = replay(level, store, &entries);
            let kept = fs::read_to_string(folder.join(format!("{}.rows", store.name()))).unwrap();
            let first = kept
                .lines()
                .zip(rows.lines())
                .find(|(kept, found)| kept != found);
            assert_eq!(
                first, None,
                "the rows of level {level} differ (kept, found)"
            );
            assert_eq!(
                kept.len(),
                rows.len(),
                "there are as many rows at level {level}"
            );
            found += &digests;
        }
        assert_eq!(
            found, kept,
            "level {level}: after which entry do the rows differ?"
        );
    }
}

/// `HERALDMQ_WRITE_LEVEL=N cargo test -p herald-store-state --test levels -- --ignored` writes the corpus of a new level, once.
#[test]
#[ignore = "writes the corpus of a level"]
fn write_a_level() {
    let number: u32 = std::env::var("HERALDMQ_WRITE_LEVEL")
        .unwrap()
        .parse()
        .unwrap();
    let level = Level(number);
    let folder = folder(level);
    fs::create_dir_all(&folder).unwrap();
    assert!(
        !folder.join("digests").exists(),
        "the corpus of a level never changes"
    );
    let mut all_digests = String::new();
    for (store, count) in StoreId::OF_NAMES.into_iter().zip(ENTRIES) {
        let mut world = generate::World::new(u64::from(number), number);
        let mut replica = Replica::new(level, store);
        let mut file = Vec::new();
        let mut entries = Vec::new();
        for _ in 0..count {
            let entry = replica.draw(&mut world);
            file.extend((entry.len() as u32).to_be_bytes());
            file.extend(&entry);
            entries.push(entry);
        }
        let (digests, rows) = replay(level, store, &entries);
        all_digests += &digests;
        fs::write(folder.join(format!("{}.entries", store.name())), file).unwrap();
        fs::write(folder.join(format!("{}.rows", store.name())), rows).unwrap();
    }
    fs::write(folder.join("digests"), all_digests).unwrap();
}
