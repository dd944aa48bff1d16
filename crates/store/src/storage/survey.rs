//! What a data folder holds that no broker uses, and whether it is right.
//!
//! Purpose: people look at a store, and know before they start a broker, or after a disk gave trouble,
//! that all of it can be read.
//!
//! Invariants: nothing in the folder is changed; everything is read that a broker might ever read: all
//! rows of all tables, and all entries of the log.
//!
//! Deliberately absent: what rows mean (`store_state::Survey`), how it is shown, repair.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

use consensus::{LogView, Mark};
use serde::Serialize;
use store_state::api::{PerStore, ShardNumber, StoreId};
use store_state::control::ControlMachine;
use store_state::inbox::InboxMachine;
use store_state::retain::RetainMachine;
use store_state::session::SessionMachine;
use store_state::{Descriptor, FullInbox, Level, Rows, Slots};
use tempfile::TempDir;

use crate::kinds::command::Command;
use crate::kinds::group::group_of;
use crate::kinds::kind::Kind;
use crate::storage::folder::{FolderError, FolderView};
use crate::storage::layout::ShardLayout;
use crate::storage::map::ShardMap;
use crate::storage::tables::{ShardTable, TablesOptions, shards_in};

/// What a data folder holds.
#[derive(Clone, Debug, Serialize)]
pub struct NodeSurvey {
    /// The data folder.
    pub folder: PathBuf,
    /// The number of its format.
    pub format: u32,
    /// The node's identifier, 16 hexadecimal digits.
    pub node: String,
    /// How often it was opened; `None`: that cannot be read.
    pub incarnation: Option<u64>,
    /// When a broker was last known to run on it, in ms of Unix time.
    pub last_alive_ms: Option<u64>,
    /// The log; `None`: it cannot be read.
    pub log: Option<LogSurvey>,
    /// The session, inbox and retain store, as far as they were made.
    pub stores: Vec<StoreSurvey>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Findings that are not listed, since there are too many.
    pub more_findings: u64,
}

/// The log of a node.
#[derive(Clone, Debug, Serialize)]
pub struct LogSurvey {
    /// Its files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Groups that have entries.
    pub groups: u64,
    /// Bytes of a last write that is not whole, which a broker cuts off when it starts. That is what a
    /// loss of power leaves; nothing of it was acknowledged.
    pub torn_bytes: u64,
}

/// One store.
#[derive(Clone, Debug, Serialize)]
pub struct StoreSurvey {
    /// Its name.
    pub name: &'static str,
    /// Its folder.
    pub folder: PathBuf,
    /// Bytes of all files in it.
    pub disk_bytes: u64,
    /// Its shards, by number.
    pub shards: Vec<ShardSurvey>,
}

/// One shard.
#[derive(Clone, Debug, Serialize)]
pub struct ShardSurvey {
    /// Its number.
    pub number: ShardNumber,
    /// The first of its slots.
    pub first_slot: u16,
    /// The last of its slots.
    pub last_slot: u16,
    /// Bytes of its table's files.
    pub table_bytes: u64,
    /// The last entry of the log that its table covers; `None`: there was no checkpoint.
    pub checkpoint: Option<u64>,
    /// Its part of the log; `None`: it cannot be read.
    pub log: Option<ShardLog>,
    /// What its table holds, by kind.
    pub rows: Vec<Rows>,
    /// Inboxes with the most queued messages, most first.
    pub fullest: Vec<FullInbox>,
}

/// A shard's part of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ShardLog {
    /// The index of the first entry.
    pub first: u64,
    /// The index of the next entry that will be written.
    pub next: u64,
    /// Entries behind the checkpoint that a broker applies again when it starts.
    pub replay_entries: u64,
    /// Requests in these.
    pub replay_requests: u64,
}

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The store; `None`: the node as a whole.
    pub store: Option<&'static str>,
    /// The shard; `None`: the store as a whole.
    pub shard: Option<ShardNumber>,
    /// The key of the row, in hexadecimal digits.
    pub key: Option<String>,
    /// What is wrong.
    pub what: String,
}

/// Reads all of a data folder, which is locked meanwhile: no broker can start on it. `elsewhere`:
/// folders of the session, inbox and retain store that are not in the data folder.
///
/// Takes about 100 bytes of memory for each inbox, will and shared message. Links to the files are made
/// in the system's temporary folder.
///
/// # Errors
/// A broker uses the folder; it is no data folder, or of a newer format; or it cannot be read at all.
/// What is damaged within it is no error but a finding.
pub fn survey(
    folder: &Path,
    elsewhere: &PerStore<Option<PathBuf>>,
) -> Result<NodeSurvey, FolderError> {
    let folder = FolderView::open(folder)?;
    let scratch =
        tempfile::tempdir().map_err(|reason| FolderError::io(&std::env::temp_dir(), reason))?;
    let mut surveyor = Surveyor {
        folder: &folder,
        scratch: &scratch,
        elsewhere,
        log: None,
        groups: Vec::new(),
        findings: Vec::new(),
        more_findings: 0,
    };
    for file in folder.read_from_copies() {
        let file = file.display();
        let what = format!(
            "{file} is damaged or missing; a broker takes its copy, and writes it again when it starts"
        );
        surveyor.note((None, None), what);
    }
    let incarnation = surveyor.or_note(folder.incarnation());
    let last_alive_ms = surveyor.or_note(folder.last_alive_ms()).flatten();
    surveyor.log = surveyor.open_log();
    let stores = [
        surveyor.store::<SessionMachine>(),
        surveyor.store::<InboxMachine>(),
        surveyor.store::<RetainMachine>(),
        surveyor.store::<ControlMachine>().filter(has_shards),
    ];
    let log = surveyor.log();
    Ok(NodeSurvey {
        folder: folder.root().to_owned(),
        format: folder.format(),
        node: format!("{:016x}", folder.node()),
        incarnation,
        last_alive_ms,
        log,
        stores: stores.into_iter().flatten().collect(),
        findings: surveyor.findings,
        more_findings: surveyor.more_findings,
    })
}

/// Whether a store that a cluster need not have was begun.
fn has_shards(store: &StoreSurvey) -> bool {
    store
        .shards
        .iter()
        .any(|shard| shard.checkpoint.is_some() || shard.log.is_some_and(|log| log.next > 0))
}

/// Goes through a folder and notes what is wrong.
struct Surveyor<'a> {
    folder: &'a FolderView,
    scratch: &'a TempDir,
    elsewhere: &'a PerStore<Option<PathBuf>>,
    /// `None`: it cannot be read, which has been noted.
    log: Option<LogView>,
    /// Groups of the shards that exist.
    groups: Vec<u64>,
    findings: Vec<Finding>,
    more_findings: u64,
}

impl Surveyor<'_> {
    fn open_log(&mut self) -> Option<LogView> {
        let names = self.scratch.path().join("log");
        let made = fs::create_dir(&names).map_err(|reason| FolderError::io(&names, reason));
        self.or_note(made)?;
        let opened = LogView::open(&self.folder.log(), &names);
        let log = self.or_note(opened)?;
        for finding in log.damage() {
            self.note((None, None), finding.to_string());
        }
        Some(log)
    }

    /// The log as a whole, when all shards are known.
    fn log(&mut self) -> Option<LogSurvey> {
        let log = self.log.as_ref()?;
        let (files, bytes) = log.size();
        let torn_bytes = log.torn_bytes();
        let groups = log.group_ids();
        for group in &groups {
            if !self.groups.contains(group) {
                let what = format!("the log has entries of group {group}, which is no shard's");
                self.note((None, None), what);
            }
        }
        Some(LogSurvey {
            files,
            bytes,
            groups: groups.len() as u64,
            torn_bytes,
        })
    }

    fn store<M: Kind>(&mut self) -> Option<StoreSurvey> {
        let place = (Some(M::NAME), None);
        let elsewhere = self.elsewhere[M::STORE].as_deref();
        let folder = self.folder.store(M::NAME, elsewhere);
        let path = self.or_note_at(place, folder)??;
        let level = self.folder.level();
        let level = self.or_note_at(place, level)?;
        let (map, tables) = (
            ShardMap::read(&path, self.folder.name_hash()),
            shards_in(&path),
        );
        let map = self.or_note_at(place, map)?;
        let tables = self.or_note_at(place, tables)?;
        let groups = self.log.as_ref().map_or_else(Vec::new, LogView::group_ids);
        let layout = map.map(|map| ShardLayout::new::<M>(map, &groups));
        for shard in tables {
            // Without a map the first start was interrupted, unless there are tables.
            if layout.as_ref().is_none_or(|layout| !layout.has(shard)) {
                let what = format!("there is a table of shard {shard}, which is none of the store");
                self.note(place, what);
            }
        }
        let disk_bytes = bytes_in(&path);
        let disk_bytes = self.or_note_at(place, disk_bytes)?;
        let shards = map.zip(layout).map_or_else(Vec::new, |(map, layout)| {
            let numbers = layout.numbers();
            numbers
                .map(|number| {
                    let slots = Slots {
                        range: layout.range(number, map),
                        hash: map.hash(),
                        level,
                    };
                    self.shard::<M>(&path, slots, number)
                })
                .collect()
        });
        Some(StoreSurvey {
            name: M::NAME,
            folder: path,
            disk_bytes,
            shards,
        })
    }

    fn shard<M: Kind>(
        &mut self,
        store: &Path,
        mut slots: Slots,
        number: ShardNumber,
    ) -> ShardSurvey {
        let place = (Some(M::NAME), Some(number));
        let mut found = ShardSurvey {
            number,
            first_slot: slots.range.first,
            last_slot: slots.range.last,
            table_bytes: 0,
            checkpoint: None,
            log: None,
            rows: Vec::new(),
            fullest: Vec::new(),
        };
        self.groups.push(group_of::<M>(number));
        let links = self.scratch.path().join(format!("{}-{number}", M::NAME));
        let table = ShardTable::view(store, number.into(), &links, TablesOptions::of::<M>());
        let Some(table) = self.or_note_at(place, table) else {
            return found;
        };
        let mut mark = Some(Mark::default());
        if let Some(table) = table {
            mark = self.mark(place, &table);
            found.table_bytes = table.disk_bytes();
            let descriptor = Descriptor::of_table(&table);
            if let Some(Some(descriptor)) = self.or_note_at(place, descriptor) {
                slots.range = descriptor.range;
                (found.first_slot, found.last_slot) = (slots.range.first, slots.range.last);
            }
            let level = Level::of_table(&table);
            if let Some(Some(level)) = self.or_note_at(place, level) {
                slots.level = level;
            }
            let rows = M::survey(slots, &table);
            self.more_findings += rows.found - rows.findings.len() as u64;
            for wrong in rows.findings {
                self.findings.push(Finding {
                    store: place.0,
                    shard: place.1,
                    key: wrong.key,
                    what: wrong.what,
                });
            }
            found.rows = rows.rows;
            found.fullest = rows.fullest;
        }
        if let Some(mark) = mark {
            found.checkpoint = mark.index();
            found.log = self.shard_log::<M>(number, &mark);
        }
        found
    }

    /// How far a table reaches.
    fn mark(&mut self, place: Place, table: &ShardTable) -> Option<Mark> {
        let bytes = table.mark();
        match self.or_note_at(place, bytes)? {
            Some(bytes) => {
                let mark = Mark::decode(&bytes);
                let mark = mark.map_err(|error| format!("its checkpoint is damaged: {error}"));
                self.or_note_at(place, mark)
            }
            None => Some(Mark::default()),
        }
    }

    /// Reads a shard's part of the log, all of it.
    fn shard_log<M: Kind>(&mut self, number: ShardNumber, mark: &Mark) -> Option<ShardLog> {
        let log = self.log.take()?;
        let read = read_log::<M>(&log, group_of::<M>(number), mark);
        self.log = Some(log);
        self.or_note_at((Some(M::NAME), Some(number)), read)
    }

    fn or_note<T>(&mut self, outcome: Result<T, impl ToString>) -> Option<T> {
        self.or_note_at((None, None), outcome)
    }

    fn or_note_at<T>(&mut self, place: Place, outcome: Result<T, impl ToString>) -> Option<T> {
        outcome
            .map_err(|error| self.note(place, error.to_string()))
            .ok()
    }

    fn note(&mut self, (store, shard): Place, what: String) {
        self.findings.push(Finding {
            store,
            shard,
            key: None,
            what,
        });
    }
}

/// Where something is wrong: store and shard.
type Place = (Option<&'static str>, Option<ShardNumber>);

/// Reads a group's entries, and counts those behind the mark of its table.
fn read_log<M: Kind>(log: &LogView, group: u64, mark: &Mark) -> Result<ShardLog, String> {
    log.check_fit(group, mark)
        .map_err(|error| error.to_string())?;
    let span: Range<u64> = log.span(group).map_err(|error| error.to_string())?;
    let covered = mark.index();
    let mut found = ShardLog {
        first: span.start,
        next: span.end,
        ..ShardLog::default()
    };
    let mut foreign = None;
    log.commands(group, span, |index, command: &Command| {
        let is_own = match command {
            Command::Split(store, _) | Command::Raise(store, _) | Command::Compare(store) => {
                *store == M::STORE
            }
            // It is an entry of the session store, whichever store begins.
            Command::Begin(_) => M::STORE == StoreId::Session,
            _ => false,
        };
        if is_own {
            found.replay_entries += u64::from(covered.is_none_or(|covered| covered < index));
            return;
        }
        match M::batch(command) {
            Some(batch) if covered.is_none_or(|covered| covered < index) => {
                found.replay_entries += 1;
                found.replay_requests += batch.requests.len() as u64;
            }
            Some(_) => {}
            None => foreign = Some(format!("entry {index} of its log is {command}")),
        }
    })
    .map_err(|error| error.to_string())?;
    foreign.map_or(Ok(found), Err)
}

/// Bytes of all files in a folder and those below.
fn bytes_in(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_in(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}
