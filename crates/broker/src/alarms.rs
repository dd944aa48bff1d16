//! The alarms of this node: which are raised and since when, and which have ended lately. Both outlive the process in a file
//! of the data folder.
//!
//! Invariant: name and subject tell alarms apart. What is said of one may change while it is raised, and its begin does not.
//!
//! Deliberately absent: what is an alarm (`inspect/alarms.rs`), when it is looked for it (`inspect/changes.rs`), and how other
//! nodes and people are told.

mod attention;
mod record;

use std::path::{Path, PathBuf};

use config::AttentionConfig;
use parking_lot::{Mutex, RwLock};

pub(crate) use attention::{Attention, Count, Seen, Waiting};
pub(crate) use record::{Changed, Ended, Found, Raised};
use record::{Kept, Record};

use crate::json_file;

/// The file in the data folder.
pub(crate) const FILE: &str = "alarms.json";

/// The least time from one write of the file to the next, however often alarms begin and end.
const WRITTEN_EVERY_MS: u64 = 5_000;

/// The alarms and their file.
#[derive(Debug)]
pub(crate) struct Alarms {
    path: PathBuf,
    /// From which counts on there are alarms.
    thresholds: RwLock<AttentionConfig>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    record: Record,
    /// Whether the file lacks a change.
    is_behind: bool,
    /// When it was written, or tried to be, for the last time.
    tried_ms: Option<u64>,
    /// Whether the log has said that the file cannot be written, and it could not be since.
    has_failed: bool,
}

impl Alarms {
    /// Reads what the file of the data folder holds. If it cannot be used, the log says so, and the times of alarms before this
    /// start are forgotten: no node stays away for that.
    pub(crate) fn open(data_folder: &Path, thresholds: &AttentionConfig) -> Self {
        let path = data_folder.join(FILE);
        let kept = json_file::read::<Kept>(&path).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "the alarms from before the start cannot be read and are discarded");
            Kept::default()
        });
        let state = State {
            record: Record::new(kept),
            ..State::default()
        };
        Self {
            path,
            thresholds: RwLock::new(thresholds.clone()),
            state: Mutex::new(state),
        }
    }

    /// From which counts on there are alarms now.
    pub(crate) fn thresholds(&self) -> AttentionConfig {
        self.thresholds.read().clone()
    }

    /// From the next look on there are alarms from these counts on.
    pub(crate) fn configure(&self, thresholds: &AttentionConfig) {
        *self.thresholds.write() = thresholds.clone();
    }

    /// What is an alarm at a time, in ms of Unix time: all of it. Says which alarms have begun and ended, and keeps that in the
    /// file, for which it waits for the disk. A change that comes soon after another is written some seconds later.
    pub(crate) fn handle_found(&self, found: Vec<Found>, now_ms: u64) -> Changed {
        let mut state = self.state.lock();
        let changed = state.record.handle_found(found, now_ms);
        state.is_behind |= !changed.is_empty();
        // The clock may have been set back.
        let is_due = state
            .tried_ms
            .is_none_or(|tried| now_ms < tried || now_ms - tried >= WRITTEN_EVERY_MS);
        let kept = (state.is_behind && is_due).then(|| state.record.kept());
        if kept.is_some() {
            state.tried_ms = Some(now_ms);
        }
        drop(state);
        if let Some(kept) = kept {
            self.write(&kept);
        }
        changed
    }

    /// The node stops: the file gets what it lacks.
    pub(crate) fn handle_stop(&self) {
        let state = self.state.lock();
        let kept = state.is_behind.then(|| state.record.kept());
        drop(state);
        if let Some(kept) = kept {
            self.write(&kept);
        }
    }

    /// Those that are raised.
    pub(crate) fn raised(&self) -> Vec<Raised> {
        self.state.lock().record.raised().to_vec()
    }

    /// Those that have ended, the latest first.
    pub(crate) fn ended(&self) -> Vec<Ended> {
        self.state.lock().record.ended().cloned().collect()
    }

    /// A file that cannot be written now is written some seconds later.
    fn write(&self, kept: &Kept) {
        let written = json_file::write(&self.path, kept);
        let mut state = self.state.lock();
        state.is_behind = written.is_err();
        let had_failed = std::mem::replace(&mut state.has_failed, written.is_err());
        drop(state);
        if let Err(error) = written
            && !had_failed
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the alarms cannot be written: their times will be lost at the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> Alarms {
        let thresholds = config::Config::default().attention;
        Alarms::open(folder, &thresholds)
    }

    fn found(name: &'static str) -> Found {
        Found {
            name,
            subject: String::new(),
            detail: "why".to_owned(),
        }
    }

    fn raised(alarms: &Alarms) -> Vec<(String, u64)> {
        let raised = alarms.raised().into_iter();
        raised.map(|alarm| (alarm.name, alarm.since.0)).collect()
    }

    #[test]
    fn alarms_keep_their_times_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let alarms = open(folder.path());
        alarms.handle_found(vec![found("memory"), found("disk_full")], 10);
        alarms.handle_found(vec![found("memory")], 5_020);
        let again = open(folder.path());
        assert_eq!(raised(&again), []);
        again.handle_found(vec![found("memory")], 5_090);
        assert_eq!(raised(&again), [("memory".to_owned(), 10)]);
        let ended = again.ended();
        let ended = ended.iter().map(|of| (&*of.alarm.name, of.until.0));
        assert_eq!(ended.collect::<Vec<_>>(), [("disk_full", 5_020)]);
        // Nothing but the file is left in the folder.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_changed_just_before_a_stop_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let alarms = open(folder.path());
        alarms.handle_found(vec![found("memory")], 10);
        alarms.handle_found(Vec::new(), 1_010);
        assert_eq!(open(folder.path()).ended().len(), 0);
        alarms.handle_stop();
        assert_eq!(open(folder.path()).ended().len(), 1);
        // Nothing is written if nothing lacks.
        std::fs::remove_file(folder.path().join("alarms.json")).unwrap();
        alarms.handle_stop();
        assert_eq!(open(folder.path()).ended().len(), 0);
    }

    #[test]
    fn the_file_is_written_only_when_alarms_begin_or_end() {
        let folder = tempfile::tempdir().unwrap();
        let alarms = open(folder.path());
        let path = folder.path().join("alarms.json");
        alarms.handle_found(Vec::new(), 1);
        assert!(!path.exists());
        alarms.handle_found(vec![found("memory")], 2);
        std::fs::remove_file(&path).unwrap();
        let other = Found {
            detail: "for another reason".to_owned(),
            ..found("memory")
        };
        alarms.handle_found(vec![other], 5_003);
        assert!(!path.exists());
        alarms.handle_found(Vec::new(), 5_004);
        assert!(path.exists());
    }

    #[test]
    fn an_alarm_that_begins_and_ends_all_the_time_is_written_seldom() {
        let folder = tempfile::tempdir().unwrap();
        let alarms = open(folder.path());
        let path = folder.path().join("alarms.json");
        let mut written = 0;
        for second in 0..60_u64 {
            let found = (second % 2 == 0).then(|| found("memory"));
            alarms.handle_found(found.into_iter().collect(), second * 1_000);
            written += u64::from(std::fs::remove_file(&path).is_ok());
        }
        assert_eq!(written, 12);
        // What was not written is, even if nothing changes any more.
        for second in 60..70 {
            alarms.handle_found(Vec::new(), second * 1_000);
        }
        let again = open(folder.path());
        assert_eq!(again.ended().len(), 30);
    }

    #[test]
    fn a_file_that_could_not_be_written_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let data_folder = folder.path().join("data");
        let alarms = open(&data_folder);
        alarms.handle_found(vec![found("memory")], 2);
        std::fs::create_dir(&data_folder).unwrap();
        alarms.handle_found(vec![found("memory")], 5_003);
        let again = open(&data_folder);
        again.handle_found(vec![found("memory")], 5_009);
        assert_eq!(raised(&again), [("memory".to_owned(), 2)]);
    }

    #[test]
    fn a_damaged_file_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("alarms.json"), "{\"raised\":").unwrap();
        let alarms = open(folder.path());
        alarms.handle_found(vec![found("memory")], 2);
        assert_eq!(raised(&alarms), [("memory".to_owned(), 2)]);
    }
}
