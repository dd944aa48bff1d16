//! The shim alone, under a small program that does what its arguments say (`shim/probe.c`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crash_test::chance::Chance;
use crash_test::faults::{
    Filesystem, Folder, Lost, PowerError, Shim, Survivors, flip_bit, lose_power, tear_newest,
};

/// A folder of its own, removed in the end.
struct Place {
    work: PathBuf,
    shim: Shim,
}

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("crash-shim-{}-{number}", std::process::id());
        let work = std::env::temp_dir().canonicalize().unwrap().join(name);
        fs::create_dir_all(work.join("data")).unwrap();
        let shim = Shim::build(&work).unwrap();
        let built = Command::new("cc")
            .args(["-O1", "-o"])
            .arg(work.join("probe"))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/shim/probe.c"))
            .status()
            .unwrap();
        assert!(built.success());
        Self { work, shim }
    }

    fn data(&self) -> PathBuf {
        self.work.join("data")
    }

    /// What the probe prints: nothing if all went well.
    fn probe(&self, script: &str) -> String {
        let mut command = Command::new(self.work.join("probe"));
        command.args(script.split(' ')).current_dir(self.data());
        self.shim.attach(&mut command, &self.data());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    /// Runs a script, then takes the power.
    fn crash(&self, script: &str, filesystem: Filesystem, survivors: Survivors) -> Lost {
        self.shim.reset().unwrap();
        let before = Folder::look(&self.data()).unwrap();
        assert_eq!(self.probe(&format!("{script} die")), "");
        lose_power(&before, &self.shim, filesystem, survivors).unwrap()
    }

    fn strict(&self, script: &str) -> Lost {
        self.crash(script, Filesystem::Strict, Survivors::Nothing)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read(self.data().join(name))
            .ok()
            .map(|bytes| String::from_utf8(bytes).unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.work);
    }
}

#[test]
fn what_was_not_synced_is_gone_and_what_was_synced_is_there() {
    let place = Place::new();
    let lost = place.strict("append a one sync a append a two write b gone mkdir c write c/d gone");
    assert_eq!(
        lost,
        Lost {
            writes: 3,
            names: 3
        }
    );
    assert_eq!(place.read("a").as_deref(), Some("one"));
    assert_eq!(place.read("b"), None);
    assert!(!place.data().join("c").exists());
}

#[test]
fn overwritten_and_cut_bytes_come_back() {
    let place = Place::new();
    place.strict("write a 0123456789 sync a write b abcdef sync b write c long sync c");
    let lost = place
        .strict("at a 2 XX at a 3 YYYY resize a 4 at a 20 Z resize b 2 allocate b 9 write c x");
    assert_eq!(lost.names, 0);
    assert_eq!(place.read("a").as_deref(), Some("0123456789"));
    assert_eq!(place.read("b").as_deref(), Some("abcdef"));
    assert_eq!(place.read("c").as_deref(), Some("long"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn what_goes_past_the_symbols_is_seen() {
    let place = Place::new();
    place.strict("print a old sync a");
    assert_eq!(place.read("a").as_deref(), Some("old"));
    let lost = place.strict("print a new write b other raw-rename b a");
    assert_eq!(
        lost,
        Lost {
            writes: 3,
            names: 2
        }
    );
    assert_eq!(place.read("a").as_deref(), Some("old"));
}

#[test]
fn names_need_a_sync_of_their_folder() {
    let place = Place::new();
    place.strict("write a 1 sync a write b 2 sync b write c 3 sync c");
    place.strict("rename a b unlink c write d 4 rename d e sync e");
    assert_eq!(place.read("a").as_deref(), Some("1"));
    assert_eq!(place.read("b").as_deref(), Some("2"));
    assert_eq!(place.read("c").as_deref(), Some("3"));
    assert_eq!(
        (place.read("d").as_deref(), place.read("e")),
        (Some("4"), None)
    );
    place.strict("rename a b unlink c sync . rename b f");
    assert_eq!((place.read("a"), place.read("c")), (None, None));
    assert_eq!(place.read("b").as_deref(), Some("1"));
}

#[test]
fn on_ext4_a_sync_of_the_file_keeps_its_name() {
    let place = Place::new();
    let script = "mkdir x write x/a 1 rename x/a x/b sync x/b";
    place.crash(script, Filesystem::Strict, Survivors::Nothing);
    assert_eq!(place.read("x/b"), None);
    place.crash(script, Filesystem::Ext4, Survivors::Nothing);
    assert_eq!(place.read("x/b").as_deref(), Some("1"));
}

#[test]
fn of_unsynced_writes_any_may_survive_and_no_synced_one_is_lost() {
    let mut seen = std::collections::BTreeSet::new();
    let place = Place::new();
    for seed in 0..40 {
        place.strict("resize a 0 sync a");
        let survivors = Survivors::Some(Chance::new(seed));
        let script = "append a 11 sync a append a 22 append a 33 append a 44";
        place.crash(script, Filesystem::Strict, survivors);
        let left = place.read("a").unwrap();
        assert!(left.starts_with("11"), "{left:?}");
        seen.insert(left);
    }
    for expected in ["11", "1122", "112233", "11223344", "11\x00\x0033"] {
        assert!(seen.contains(expected), "{expected:?} of {seen:?}");
    }
}

#[test]
fn a_full_disk_takes_nothing_until_there_is_space() {
    let place = Place::new();
    place.shim.set_disk_full(true).unwrap();
    let said = place.probe("write a 1 mkdir b");
    assert_eq!(said.matches("No space left on device").count(), 2, "{said}");
    assert_eq!(place.shim.refused_writes().unwrap(), 2);
    place.shim.set_disk_full(false).unwrap();
    assert_eq!(place.probe("write a 1 sync a"), "");
}

#[test]
fn the_nth_sync_and_all_after_it_fail() {
    let place = Place::new();
    place.shim.fail_sync(2).unwrap();
    let said = place.probe("write a 1 sync a sync a sync a");
    assert_eq!(said, "sync: Input/output error\n".repeat(2));
    assert_eq!(place.shim.refused_syncs().unwrap(), 2);
}

#[test]
fn syncs_take_longer() {
    let place = Place::new();
    place.shim.delay_syncs(200).unwrap();
    let start = Instant::now();
    assert_eq!(place.probe("write a 1 sync a sync a"), "");
    assert!(start.elapsed() >= Duration::from_millis(400));
}

#[test]
fn a_change_that_the_shim_did_not_see_is_an_error() {
    let place = Place::new();
    place.strict("write a 1 sync a");
    let before = Folder::look(&place.data()).unwrap();
    place.shim.reset().unwrap();
    fs::write(place.data().join("a"), "longer").unwrap();
    let got = lose_power(&before, &place.shim, Filesystem::Strict, Survivors::Nothing);
    assert!(matches!(got, Err(PowerError::Unseen(path)) if path.ends_with("a")));
}

#[test]
fn tearing_shortens_the_newest_file_and_flipping_changes_one_bit() {
    let place = Place::new();
    fs::create_dir(place.data().join("log")).unwrap();
    let file = place.data().join("log/1");
    fs::write(&file, [0; 100]).unwrap();
    let mut chance = Chance::new(1);
    let (torn, cut) = tear_newest(&place.data(), 10, &mut chance).unwrap();
    assert_eq!(
        (torn.as_path(), (1..=10).contains(&cut)),
        (Path::new(&file), true)
    );
    let offset = flip_bit(&file, None, &mut chance).unwrap();
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.len() as u64, 100 - cut);
    assert_eq!(bytes[offset as usize].count_ones(), 1);
    assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
}
