use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use store_state::Level;

use super::*;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn refusal(path: &Path) -> String {
    Folder::open(path).unwrap_err().to_string()
}

/// Opens a folder that this process has closed. A process that another test starts holds its lock until it runs its program.
fn open_again(path: &Path) -> Folder {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match Folder::open(path) {
            Err(FolderError::InUse { .. }) if Instant::now() < deadline => thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

/// Changes one bit of a file.
fn flip(path: &Path, bit: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(path, bytes).unwrap();
}

#[test]
fn the_node_stays_and_the_incarnation_rises() {
    let at = scratch();
    let path = at.path().join("a/b");
    let first = Folder::open(&path).unwrap();
    let node = first.node();
    assert_eq!(first.incarnation(), 1);
    drop(first);
    let second = Folder::open(&path).unwrap();
    assert_eq!((second.node(), second.incarnation()), (node, 2));
    let other = Folder::open(&at.path().join("c")).unwrap();
    assert_ne!(other.node(), node);
}

#[test]
fn a_second_user_is_refused() {
    let at = scratch();
    let _held = Folder::open(at.path()).unwrap();
    let said = refusal(at.path());
    assert!(said.contains("in use"), "{said}");
    assert!(said.contains(at.path().to_str().unwrap()), "{said}");
}

#[test]
fn a_refused_second_user_does_not_raise_the_incarnation() {
    let at = scratch();
    let held = Folder::open(at.path()).unwrap();
    Folder::open(at.path()).unwrap_err();
    drop(held);
    assert_eq!(Folder::open(at.path()).unwrap().incarnation(), 2);
}

#[test]
fn a_foreign_folder_is_refused_and_left_alone() {
    let at = scratch();
    fs::write(at.path().join("holiday.jpg"), b"x").unwrap();
    let said = refusal(at.path());
    assert!(said.contains("holiday.jpg"), "{said}");
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 1);
}

#[test]
fn a_first_start_that_was_cut_off_is_begun_again() {
    let at = scratch();
    for left in [
        "LOCK",
        "incarnation",
        "FORMAT.new",
        ".write-test-7",
        "lost+found",
    ] {
        fs::write(at.path().join(left), b"torn").unwrap();
    }
    assert_eq!(Folder::open(at.path()).unwrap().incarnation(), 1);
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let at = scratch();
    drop(Folder::open(at.path()).unwrap());
    let later = Level::NEWEST.0 + 1;
    let content = format!("heraldmq data folder, format {later}\nx\n");
    fs::write(at.path().join("FORMAT"), content).unwrap();
    let said = refusal(at.path());
    assert!(
        said.contains(&format!("format {later}"))
            && said.contains(&format!("up to {}", Level::NEWEST)),
        "{said}"
    );
}

#[test]
fn a_damaged_or_lost_format_is_written_again_from_its_copy() {
    let at = scratch();
    let folder = Folder::open(at.path()).unwrap();
    let node = folder.node();
    let store = folder.store("inbox", None).unwrap();
    drop(folder);
    for folder in [at.path(), &store] {
        let whole = fs::read(folder.join("FORMAT")).unwrap();
        for name in ["FORMAT", "FORMAT.copy"] {
            let path = folder.join(name);
            let check = || {
                let folder = open_again(at.path());
                assert_eq!(folder.node(), node);
                assert_eq!(folder.store("inbox", None).unwrap(), store);
                assert_eq!(fs::read(&path).unwrap(), whole);
            };
            check();
            for bit in 0..whole.len() * 8 {
                flip(&path, bit);
                check();
            }
            fs::remove_file(&path).unwrap();
            check();
        }
    }
}

#[test]
fn a_view_reads_the_copy_of_a_damaged_format_and_changes_nothing() {
    let at = scratch();
    let node = Folder::open(at.path()).unwrap().node();
    let path = at.path().join("FORMAT");
    flip(&path, 3);
    let damaged = fs::read(&path).unwrap();
    let view = FolderView::open(at.path()).unwrap();
    assert_eq!(view.node(), node);
    assert_eq!(view.read_from_copies(), [path.as_path()]);
    assert_eq!(fs::read(&path).unwrap(), damaged);
}

#[test]
fn any_flipped_bit_in_format_is_noticed() {
    let at = scratch();
    drop(Folder::open(at.path()).unwrap());
    let path = at.path().join("FORMAT");
    let whole = fs::read(&path).unwrap();
    fs::write(at.path().join("FORMAT.copy"), "").unwrap();
    for bit in 0..whole.len() * 8 {
        flip(&path, bit);
        Folder::open(at.path()).unwrap_err();
        flip(&path, bit);
    }
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        Folder::open(at.path()).unwrap_err();
    }
    fs::write(&path, &whole).unwrap();
    Folder::open(at.path()).unwrap();
}

#[test]
fn a_broken_incarnation_falls_back_to_the_one_before_and_none_is_given_twice() {
    let at = scratch();
    for _ in 0..3 {
        drop(Folder::open(at.path()).unwrap());
    }
    // Incarnation 3 is the fourth number written, after 0: slot 0. Slot 1 holds incarnation 2.
    let path = at.path().join("incarnation");
    let whole = fs::read(&path).unwrap();
    let next = || Folder::open(at.path()).unwrap().incarnation();
    flip(&path, 70);
    assert_eq!((next(), next()), (4, 5), "3 was given");
    // The older slot: whether it was the newer one is not known.
    fs::write(&path, &whole).unwrap();
    flip(&path, 4_096 * 8 + 70);
    assert_eq!((next(), next()), (5, 6));
    // The newest slot reads as if it never was written.
    let mut zeroed = whole.clone();
    zeroed[..24].fill(0);
    fs::write(&path, zeroed).unwrap();
    assert_eq!((next(), next()), (4, 5));
    // The file is cut in the older slot.
    fs::write(&path, &whole[..4_096]).unwrap();
    assert_eq!((next(), next()), (5, 6));
    fs::write(&path, &whole).unwrap();
    flip(&path, 70);
    flip(&path, 4_096 * 8 + 70);
    let said = refusal(at.path());
    assert!(said.contains("incarnation is damaged"), "{said}");
    fs::remove_file(&path).unwrap();
    assert!(refusal(at.path()).contains("incarnation"));
}

#[test]
fn the_last_sign_of_life_is_that_of_the_process_before() {
    let at = scratch();
    let first = Folder::open(at.path()).unwrap();
    assert_eq!(first.last_alive_ms(), None);
    first.mark_alive(5_000).unwrap();
    // A clock that was set back is believed.
    first.mark_alive(4_000).unwrap();
    assert_eq!(first.last_alive_ms(), None);
    drop(first);
    assert_eq!(
        Folder::open(at.path()).unwrap().last_alive_ms(),
        Some(4_000)
    );
}

#[test]
fn a_torn_sign_of_life_falls_back_to_the_one_before() {
    let at = scratch();
    let first = Folder::open(at.path()).unwrap();
    first.mark_alive(5_000).unwrap();
    first.mark_alive(6_000).unwrap();
    drop(first);
    let path = at.path().join("alive");
    flip(&path, 64);
    assert_eq!(
        Folder::open(at.path()).unwrap().last_alive_ms(),
        Some(5_000)
    );
    flip(&path, 4_096 * 8 + 64);
    assert_eq!(Folder::open(at.path()).unwrap().last_alive_ms(), None);
}

#[test]
fn a_store_elsewhere_belongs_to_one_node() {
    let at = scratch();
    let disk = at.path().join("disk");
    let mine = Folder::open(&at.path().join("mine")).unwrap();
    assert_eq!(mine.store("inbox", Some(&disk)).unwrap(), disk);
    assert_eq!(mine.store("inbox", Some(&disk)).unwrap(), disk);
    let said = mine.store("retain", Some(&disk)).unwrap_err().to_string();
    assert!(
        said.contains("is that of the inbox store, not of the retain store"),
        "{said}"
    );
    let other = Folder::open(&at.path().join("other")).unwrap();
    let said = other.store("inbox", Some(&disk)).unwrap_err().to_string();
    assert!(said.contains("belongs to node"), "{said}");
}

/// Whoever looks at the folder later need not know the settings.
#[test]
fn a_store_elsewhere_is_found_by_a_view() {
    let at = scratch();
    let (disk, moved, root) = (
        at.path().join("disk"),
        at.path().join("moved"),
        at.path().join("mine"),
    );
    let mine = Folder::open(&root).unwrap();
    mine.store("inbox", Some(&disk)).unwrap();
    mine.store("retain", None).unwrap();
    // Where it was last.
    fs::rename(&disk, &moved).unwrap();
    mine.store("inbox", Some(&moved)).unwrap();
    assert_eq!(mine.last_place("inbox"), Some(moved.clone()));
    assert_eq!(mine.last_place("retain"), None);
    drop(mine);
    let view = FolderView::open(&root).unwrap();
    assert_eq!(view.store("inbox", None).unwrap(), Some(moved));
    assert_eq!(
        view.store("retain", None).unwrap(),
        Some(root.join("retain"))
    );
    // A wrong word of the caller is not made up for.
    view.store("inbox", Some(&disk)).unwrap_err();
}

#[test]
fn a_store_whose_disk_is_not_mounted_is_missed() {
    let at = scratch();
    let disk = at.path().join("disk");
    let mine = Folder::open(&at.path().join("mine")).unwrap();
    mine.store("inbox", Some(&disk)).unwrap();
    fs::remove_dir_all(&disk).unwrap();
    fs::create_dir(&disk).unwrap();
    let said = mine.store("inbox", Some(&disk)).unwrap_err().to_string();
    assert!(
        said.contains("inbox store of this node is not in"),
        "{said}"
    );
    // Nor is one begun at the usual place.
    mine.store("inbox", None).unwrap_err();
    mine.store("retain", None).unwrap();
}

#[test]
fn a_foreign_folder_is_not_taken_as_a_store() {
    let at = scratch();
    let disk = at.path().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("photo"), b"").unwrap();
    let mine = Folder::open(&at.path().join("mine")).unwrap();
    let said = mine.store("inbox", Some(&disk)).unwrap_err().to_string();
    assert!(said.contains("photo"), "{said}");
}

#[test]
fn a_disk_has_free_bytes_and_a_missing_folder_has_none() {
    let at = scratch();
    assert!(free_bytes(at.path()).unwrap() > 0);
    let said = free_bytes(&at.path().join("gone")).unwrap_err().to_string();
    assert!(said.contains("gone: "), "{said}");
}

/// As HeraldMQ wrote it before there were seeds.
fn write_first_format(folder: &Path, node: u64) {
    let lines = format!("heraldmq data folder, format 1\nnode {node:016x}\n");
    let check = xxhash_rust::xxh3::xxh3_64(lines.as_bytes());
    fs::write(
        folder.join("FORMAT"),
        format!("{lines}check {check:016x}\n"),
    )
    .unwrap();
}

#[test]
fn a_folder_of_the_first_format_goes_on_without_a_seed_and_is_of_the_new_format() {
    let at = scratch();
    drop(Folder::open(at.path()).unwrap());
    write_first_format(at.path(), 0xABC);
    for _ in 0..2 {
        let folder = Folder::open(at.path()).unwrap();
        assert_eq!((folder.node(), folder.name_seed()), (0xABC, 0));
        assert_eq!(folder.name_hash(), NameHash::default());
    }
    let text = fs::read_to_string(at.path().join("FORMAT")).unwrap();
    assert!(
        text.starts_with("heraldmq data folder, format 2\n"),
        "{text}"
    );
}

#[test]
fn the_format_is_raised_when_a_shard_is_split_and_stays() {
    let at = scratch();
    let first_line = || {
        let text = fs::read_to_string(at.path().join("FORMAT")).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    let mut folder = Folder::open(at.path()).unwrap();
    folder.adopt_name_seed(7).unwrap();
    assert!(!folder.is_split());
    assert_eq!(first_line(), "heraldmq data folder, format 2");
    let node = folder.node();
    // It cannot be written.
    let in_the_way = at.path().join("FORMAT.new");
    fs::create_dir(&in_the_way).unwrap();
    folder.note_split().unwrap_err();
    assert!(!folder.is_split());
    assert_eq!(first_line(), "heraldmq data folder, format 2");
    fs::remove_dir(&in_the_way).unwrap();
    folder.note_split().unwrap();
    drop(folder);
    for _ in 0..2 {
        let folder = Folder::open(at.path()).unwrap();
        assert!(folder.is_split());
        assert_eq!((folder.node(), folder.name_seed()), (node, 7));
        folder.note_split().unwrap();
        assert_eq!(first_line(), "heraldmq data folder, format 3");
    }
}

#[test]
fn each_new_folder_has_a_seed_of_its_own_that_stays() {
    let at = scratch();
    let seed = |name: &str| {
        let folder = Folder::open(&at.path().join(name)).unwrap();
        assert!(!format!("{folder:?}").contains(&folder.name_seed().to_string()));
        folder.name_seed()
    };
    assert_eq!(seed("a"), seed("a"));
    assert_ne!(seed("a"), seed("b"));
    assert_ne!(seed("a"), 0);
}

#[test]
fn a_node_that_joins_takes_over_the_seed_unless_it_has_stores() {
    let at = scratch();
    let mut folder = Folder::open(at.path()).unwrap();
    folder.adopt_name_seed(7).unwrap();
    drop(folder);
    let mut folder = Folder::open(at.path()).unwrap();
    assert_eq!(folder.name_seed(), 7);
    folder.store("inbox", None).unwrap();
    folder.adopt_name_seed(7).unwrap();
    let said = folder.adopt_name_seed(8).unwrap_err().to_string();
    assert!(said.contains("did not begin in the cluster"), "{said}");
    assert_eq!(folder.name_seed(), 7);
}
