//! The log of a node: one folder, one engine, one thread.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use histogram::Snapshot;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::check::{Check, Damage, Finding};
use crate::command::Command;
use crate::disk::Health;
use crate::ends::{self, Ends, EndsFile, GroupEnd, Known};
use crate::engine::{open_engine, refused};
use crate::files::{Files, RealFiles};
use crate::folder::Folder;
use crate::group_log::{
    append_sole_voter, begin_anew, commands, deleted, last_id, leave_terms_behind, purged, span,
    stored,
};
use crate::log_error::LogError;
use crate::loss::{self, Missing, is_group};
use crate::mark::Mark;
use crate::mend;
use crate::numbers::GroupId;
use crate::one_bit::FlippedBits;
use crate::options::LogOptions;
use crate::recorder::Recorder;
use crate::replay::Remains;
use crate::request::{Change, Request, key};
use crate::scrub::SyncedFile;
use crate::seed::{self, Origin};
use crate::settle::Unsettled;
use crate::standing::Members;
use crate::stats::{LogStats, Places};
use crate::wal::{Condition, Wal, Writer};

/// What all groups of a node append to. Dropping it ends its thread, when that has written what waits;
/// groups that live on are refused.
pub struct Log {
    wal: Arc<Wal>,
    /// `None`: a task of a simulation writes.
    writer: Option<Arc<Mutex<Writer>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    damage: Vec<Finding>,
    /// What was found damaged since it was opened, up to [`FOUND_MOST`].
    found: Mutex<Vec<Finding>>,
}

/// Damaged places that are remembered, so that they are not counted again.
const FOUND_MOST: usize = 1_024;

impl Log {
    /// Opens the log and cuts a torn tail. Blocks: all files are read.
    ///
    /// Of a damaged log what is left is taken up: the old files stay in `damaged`, [`Log::damage`] says what was found, and a
    /// group that lacks something says so when it is started.
    pub fn open(options: &LogOptions) -> Result<Self, LogError> {
        Self::open_with(options, Arc::new(RealFiles))
    }

    /// The same with other files than the operating system's.
    pub fn open_with(options: &LogOptions, files: Arc<dyn Files>) -> Result<Self, LogError> {
        let (wal, writer, damage) = prepare(options, files)?;
        let writer = Arc::new(Mutex::new(writer));
        wal.queue.lend_writer();
        let of_thread = Arc::clone(&writer);
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || Writer::run(&of_thread))
            .map_err(|error| LogError::Io {
                path: options.directory.clone(),
                error,
            })?;
        Ok(Self {
            wal,
            writer: Some(writer),
            thread: Mutex::new(Some(thread)),
            damage,
            found: Mutex::default(),
        })
    }

    /// The same without a thread: a task of the present runtime writes, which takes `write_time` each time.
    ///
    /// # Errors
    /// As of [`Log::open`].
    #[cfg(feature = "simulation")]
    pub fn open_within(
        options: &LogOptions,
        files: Arc<dyn Files>,
        write_time: std::time::Duration,
    ) -> Result<Self, LogError> {
        let (wal, writer, damage) = prepare(options, files)?;
        tokio::spawn(writer.run_within(write_time));
        Ok(Self {
            wal,
            writer: None,
            thread: Mutex::default(),
            damage,
            found: Mutex::default(),
        })
    }

    /// Writes and syncs what groups with [`GroupOptions::writes_idle`](crate::GroupOptions::writes_idle) have appended,
    /// unless the log's thread does already. The runtime of such a group calls it before its thread sleeps. Blocks for one
    /// write.
    pub fn write_idle(&self) {
        if let Some(writer) = &self.writer {
            Writer::write_idle(writer, &self.wal);
        }
    }

    /// Counters and gauges.
    pub fn stats(&self) -> LogStats {
        LogStats {
            damage: Places((self.damage.len() + self.found.lock().len()) as u64),
            ..self.wal.stats()
        }
    }

    /// How long calls of `fdatasync` took since it was opened.
    pub fn sync_times(&self) -> Snapshot {
        self.wal.sync_times()
    }

    /// Whether it can be appended to, now and at each change.
    pub fn watch(&self) -> watch::Receiver<Condition> {
        self.wal.watch()
    }

    /// What was damaged or missing in the files when the log was opened.
    #[must_use]
    pub fn damage(&self) -> &[Finding] {
        &self.damage
    }

    /// The files that are there now, as far as they are synced, to be read again for damage. Costs no look at the disk.
    #[must_use]
    pub fn synced_files(&self) -> Vec<SyncedFile> {
        // A log that is looked at has no folder, and is not written.
        let entries = self.wal.folder.iter().map(Folder::entries);
        let files = entries.flat_map(|entries| {
            let ends = self.wal.health.synced_ends().into_iter();
            ends.map(move |(file, end)| SyncedFile::new(&entries, file, end))
        });
        files.collect()
    }

    /// A file was read again, and this was found: it counts in [`LogStats::damage`], and the log says so. What the file holds is in memory,
    /// and the next start goes on with what is whole. False: it was known, or more is known than is remembered.
    pub fn note_damage(&self, finding: Finding) -> bool {
        let mut found = self.found.lock();
        if found.len() >= FOUND_MOST || found.contains(&finding) {
            return false;
        }
        tracing::error!("the log is damaged: {finding}");
        found.push(finding);
        true
    }

    /// Reads `FORMAT` and its copy again, and writes the one that is damaged or missing from the other. Blocks.
    pub fn repair_format(&self) -> Option<durable_file::Repair> {
        self.wal.folder.as_ref().map(Folder::repair)
    }

    /// What a damaged log has lost of a group, and its tables, which reach to `tables`, do not hold; `None`: nothing. The
    /// group must not have been started here: a start settles that.
    ///
    /// # Errors
    /// What is kept of the group is damaged.
    pub fn missing(&self, group: u64, tables: &Mark) -> io::Result<Option<Missing>> {
        self.unsettled(group, tables).missing()
    }

    /// The members of a group that has not been started here, as far as its log and its tables, which reach to `tables`,
    /// know them.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn members(&self, group: u64, tables: &Mark) -> io::Result<Members> {
        self.unsettled(group, tables).members()
    }

    /// Has the replica of a group go on with what a damaged log has left of it. Gives what it lacks from now on, as
    /// [`Log::missing`]. Nobody else may vote, nobody else may have what is missing; the group must not have been started here.
    ///
    /// The group's members may be among what is lost: [`Log::make_sole_voter`] is to be called next.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub async fn accept_loss(&self, group: u64, tables: &Mark) -> io::Result<Option<Missing>> {
        self.unsettled(group, tables).accept().await
    }

    /// Groups that have something in the log.
    pub fn group_ids(&self) -> Vec<u64> {
        let mut groups = self.wal.group_ids();
        groups.retain(|group| is_group(*group));
        groups
    }

    /// Groups whose old entries kept files from being deleted when files were last looked through. They
    /// should write a checkpoint.
    pub fn overdue(&self) -> Vec<u64> {
        self.wal.overdue()
    }

    /// Whether this node has a replica of a group, and not only its vote from a time when it had. A seeded one counts
    /// though there is no entry and no table yet.
    pub fn has_replica(&self, group: u64) -> bool {
        self.wal.span(group).is_some() || self.wal.get(group, key::PURGED).is_some()
    }

    /// Whether the replica of a group was deleted here ([`Log::delete_group`]), and none has begun since.
    pub fn has_deleted(&self, group: u64) -> bool {
        !self.has_replica(group) && self.wal.get(group, key::DELETED).is_some()
    }

    /// The entry of another group that a seeded group's first state comes from; `None`: the group was not seeded here,
    /// or has been deleted since.
    ///
    /// A group with an origin whose tables hold nothing yet cannot be started for itself. The parent's tables do not
    /// reach to that entry either: when the parent starts it is applied again and makes the state, and then the group
    /// starts with [`Birth::Seeded`](crate::Birth::Seeded). If the parent's tables do reach to it (a snapshot has
    /// replaced them), the state is lost here: then the group is to be deleted, and another member sends it.
    ///
    /// # Errors
    /// What is kept of the group is damaged.
    pub fn origin(&self, group: u64) -> io::Result<Option<Origin>> {
        seed::origin(&self.wal, group)
    }

    /// Whether [`Birth::Seeded`](crate::Birth::Seeded) with this entry is possible: the same entry has seeded the
    /// group before, or the node has no replica of the group and never had one. Else the part of the state that the
    /// entry cuts off is of no use here.
    ///
    /// Its tables are not looked at. When these hold the state already, the group is to be started with them.
    ///
    /// # Errors
    /// Another entry has seeded the group here, or what is kept of the group is damaged.
    pub fn may_seed(&self, group: u64, by: Origin) -> io::Result<bool> {
        seed::may_seed(&self.wal, group, by)
    }

    /// The index of the last entry of a group, also if it is purged by now; `None`: there has been none. Entries that a damaged log
    /// has lost count, as far as they are known, until it is decided what that means.
    ///
    /// # Errors
    /// What is kept of the group is damaged.
    pub fn last_index(&self, group: u64) -> io::Result<Option<u64>> {
        self.unsettled(group, &Mark::default()).last_index()
    }

    /// Forgets everything of a group but the vote and where its log ended: others may still take the node for
    /// a voter. It must not vote for another one in the same term, nor follow the leader of an earlier one,
    /// nor vote for one that lacks what was acknowledged here. The group must have been shut down here; its
    /// tables are its owner's to remove.
    ///
    /// # Errors
    /// The log cannot be read, has failed or is closed.
    pub async fn delete_group(&self, group: u64) -> io::Result<()> {
        self.unsettled(group, &Mark::default()).delete().await
    }

    /// For a group whose majority is gone for good: makes `node`, on which this log is, its only voter, so
    /// that its next start leads. `tables`: how far its tables reach. Returns the index of the entry that
    /// says so. The group must not have been started here.
    ///
    /// This is unsafe for what the group agreed on: commands that the lost members had acknowledged without
    /// this one are lost, others that were never acknowledged become valid, and if a lost member comes back
    /// there are two groups. Such a member must be wiped first.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub async fn make_sole_voter(&self, group: u64, node: u64, tables: &Mark) -> io::Result<u64> {
        append_sole_voter(&self.wal, group, node, tables.log_id).await
    }

    /// For a group all of whose replicas are gone for good: begins it anew, with `node`, on which this log is, as its only
    /// voter. Gives the mark that its tables are to be written with. When they are on the disk,
    /// [`Log::make_sole_voter`] with this mark makes them a replica; until then there is none, and this can be asked
    /// again.
    ///
    /// `term`: higher than any that the lost group can have had; its replicas could otherwise be taken for later ones
    /// than this.
    ///
    /// # Errors
    /// There is a replica of the group here; or the log cannot be read or written.
    pub async fn begin_anew(&self, group: u64, node: u64, term: u64) -> io::Result<Mark> {
        if self.has_replica(group) {
            let why = format!("group {group} has a replica here");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        begin_anew(&self.wal, group, node, term).await
    }

    /// Reads all entries of a group in their order and visits those that are commands, with their index: also those that
    /// are not committed, or that its tables hold already.
    ///
    /// # Errors
    /// The first entry that is missing or cannot be read; those before it have been visited.
    pub fn commands<C: Command>(&self, group: u64, visit: impl FnMut(u64, &C)) -> io::Result<()> {
        commands(&self.wal, group, span(&self.wal, group)?, visit)
    }

    /// For a replica whose folder may be an old copy, and which has not been started since: moves the vote of `node`, on
    /// which this log is, to a term of at least `term`, and by at least a million. Members that have lost what
    /// happened since other copies were made could otherwise hold elections in terms in which others were elected, and
    /// write other entries under the same positions. Without a replica nothing is changed.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub async fn leave_terms_behind(&self, group: u64, node: u64, term: u64) -> io::Result<()> {
        match self.has_replica(group) {
            true => leave_terms_behind(&self.wal, group, node, term).await,
            false => Ok(()),
        }
    }

    fn unsettled<'a>(&'a self, group: u64, tables: &'a Mark) -> Unsettled<'a> {
        Unsettled {
            wal: &self.wal,
            group: GroupId(group),
            tables,
        }
    }

    /// What an idle thread writes with.
    #[cfg(test)]
    pub(crate) fn writer(&self) -> &Mutex<Writer> {
        self.writer.as_ref().expect("it is no simulation's")
    }

    pub(crate) fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }
}

impl Log {
    /// Ends the log's thread, when it has written what waits and that the log ends there; groups that live on are refused.
    /// Blocks.
    pub fn close(&self) {
        self.wal.close();
        let thread = self.thread.lock().take();
        #[cfg(feature = "simulation")]
        if thread.is_none() {
            // Nobody answers what waits, and it holds the log.
            drop(self.wal.queue.take_all());
        }
        if let Some(thread) = thread {
            // A panic has ended the process.
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the files of a log, and puts what is left of a damaged one in its place.
fn prepare(
    options: &LogOptions,
    files: Arc<dyn Files>,
) -> Result<(Arc<Wal>, Writer, Vec<Finding>), LogError> {
    let folder = Folder::open(&options.directory)?;
    let entries = folder.entries();
    let failed = |error| LogError::Io {
        path: folder.path().to_owned(),
        error,
    };
    mend::finish(&files, folder.path(), &entries)?;
    let known = ends::read(&*files, folder.path()).map_err(failed)?;
    let mut examined = Examined::of(&files, &entries, known.as_ref()).map_err(failed)?;
    let flipped = examined.flipped_bits(&files, &entries, known.as_ref());
    let flipped = flipped.map_err(failed)?;
    if !flipped.is_empty() {
        flipped.flip_back(&*files, &entries).map_err(failed)?;
        examined = Examined::of(&files, &entries, known.as_ref()).map_err(failed)?;
    }
    let mut damage = examined.damage();
    let Known { count, ends, .. } = if damage.is_empty() {
        examined.check.cut(&*files, &entries).map_err(failed)?;
        let mut known = known.unwrap_or_default();
        known.ends.files = examined.check.ends;
        known
    } else {
        for finding in &damage {
            tracing::error!("the log is damaged: {finding}");
        }
        let remains = examined.remains(&files, &entries, known.as_ref());
        let remains = remains.map_err(failed)?;
        let known = known.as_ref();
        mend::mend(&files, folder.path(), &entries, &remains, known, options)?;
        let mended = ends::read(&*files, folder.path()).map_err(failed)?;
        mended.unwrap_or_default()
    };
    damage.extend(flipped.findings(&entries));

    let health = Arc::new(Health::default());
    health.set_ends(&ends.files);
    let engine = open_engine(options, &entries, files.clone(), &health)
        .map_err(|error| refused(error, &entries))?;
    folder.sync_entries().map_err(failed)?;
    if let Some(failure) = health.failure() {
        return Err(failed(io::Error::other(failure.to_owned())));
    }
    let file = EndsFile::new(files, folder.path(), count);
    let wal = Arc::new(Wal::new(engine, Some(folder), health, options));
    let opened = Opened(&wal);
    let ends = opened.complete(ends);
    opened.forget_apart();
    let writer = Writer::new(wal.clone(), options, Recorder::new(ends, file, options));
    Ok((wal, writer, damage))
}

/// A log that was looked at and not opened.
pub(crate) struct Examined {
    pub(crate) check: Check,
    /// What is left, if that was read already.
    remains: Option<Remains>,
    lost_oldest: Vec<Finding>,
}

impl Examined {
    pub(crate) fn of(
        files: &Arc<dyn Files>,
        entries: &Path,
        known: Option<&Known>,
    ) -> io::Result<Self> {
        let check = Check::of(&**files, entries, known.map(|known| &known.synced))?;
        let mut examined = Self {
            check,
            remains: None,
            lost_oldest: Vec::new(),
        };
        // Files are deleted before `ends` says so: that is told from a loss by what the groups have.
        if examined.check.findings.is_empty()
            && examined.check.lacks_oldest
            && let Some(known) = known
        {
            let remains = Remains::read(&**files, entries, &examined.check, Some(known))?;
            if remains.has_loss() {
                let missing = mend::missing_oldest(known, &examined.check).into_iter();
                let missing = missing.map(|file| Finding {
                    path: file.path(entries),
                    what: Damage::Missing,
                });
                examined.lost_oldest = missing.collect();
                examined.remains = Some(remains);
            }
        }
        Ok(examined)
    }

    /// Flipped bits that are to be flipped back before the log is opened.
    pub(crate) fn flipped_bits(
        &self,
        files: &Arc<dyn Files>,
        entries: &Path,
        known: Option<&Known>,
    ) -> io::Result<FlippedBits> {
        match known {
            Some(known) if !self.check.findings.is_empty() => {
                FlippedBits::find(&**files, entries, &known.synced)
            }
            _ => Ok(FlippedBits::default()),
        }
    }

    /// What is damaged, by the file and its place.
    pub(crate) fn damage(&self) -> Vec<Finding> {
        let found = self.check.findings.iter().chain(&self.lost_oldest);
        found.cloned().collect()
    }

    pub(crate) fn remains(
        self,
        files: &Arc<dyn Files>,
        entries: &Path,
        known: Option<&Known>,
    ) -> io::Result<Remains> {
        match self.remains {
            Some(remains) => Ok(remains),
            None => Remains::read(&**files, entries, &self.check, known),
        }
    }
}

/// A log whose engine is open and whose thread does not run yet.
struct Opened<'a>(&'a Arc<Wal>);

impl Opened<'_> {
    /// With the groups of which `ends` says nothing: an earlier version has written the log.
    fn complete(&self, mut ends: Ends) -> Ends {
        let wal = self.0;
        for group in wal.group_ids() {
            if is_group(group) && !ends.groups.contains_key(&group) {
                // What cannot be read is left out; the group says so when it starts.
                let end = GroupEnd {
                    vote: stored(wal, group, key::VOTE, |bytes| bytes.vote()).unwrap_or(None),
                    last: last_id(wal, group).unwrap_or(None),
                    purged: purged(wal, group).unwrap_or(None),
                    floor: deleted(wal, group).unwrap_or(None),
                };
                ends.groups.insert(group, end);
            }
        }
        ends
    }

    /// Forgets entries apart of groups whose loss is settled: a crash came between.
    fn forget_apart(&self) {
        let wal = self.0;
        for group in wal
            .group_ids()
            .into_iter()
            .filter(|group| !is_group(*group))
        {
            if wal.get(loss::of_apart(group), key::LOSS).is_none() {
                wal.push(Request::Change(Change {
                    group,
                    clean: true,
                    ..Change::default()
                }));
            }
        }
    }
}
