//! For a cluster whose majority is gone for good: one of the nodes that are left goes on alone.
//!
//! Invariants: a shard that has a replica here is never begun anew; a shard that begins anew gives epochs, and has terms,
//! above all that the lost one can have given; an inbox whose session is lost is removed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use consensus::{Log, LogOptions, Mark, Missing};
use store_state::api::{PerStore, ShardNumber, StoreId};
use store_state::control::ControlMachine;
use store_state::inbox::{InboxMachine, each_stored};
use store_state::retain::RetainMachine;
use store_state::session::{SessionMachine, begin_anew};
use store_state::{Changes, DESCRIPTOR_KEY, Descriptor, ShardVersion};

use crate::api::error::{OpenError, because};
use crate::kinds::command::Command;
use crate::kinds::group::group_of;
use crate::kinds::kind::Kind;
use crate::shard::begin::CONTROL_SHARD;
use crate::storage::folder::Folder;
use crate::storage::layout::ShardLayout;
use crate::storage::map::ShardMap;
use crate::storage::tables::{Tables, TablesOptions};

/// What becomes of shards that the node has no replica of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostShards {
    /// They stay as they are, without a leader: another node may have a replica.
    Leave,
    /// They begin anew, empty, with this node as their only voter: no replica of them is left anywhere.
    BeginAnew {
        /// Unix time in ms. Epochs and terms of the new shards begin there, so that it must be later than that of an
        /// earlier recovery.
        now_ms: u64,
    },
}

/// What has become of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Its replica here decides alone from now on.
    SoleVoter,
    /// The node had no replica of it, and has none.
    Left,
    /// The node had no replica of it; the shard begins anew, and what it held is lost.
    BegunAnew {
        /// Of a session shard: inboxes on this node whose sessions are lost, and which are removed with what is queued
        /// in them.
        removed_inboxes: u64,
    },
}

/// A shard of a node that goes on alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: ShardNumber,
    /// What has become of it.
    pub outcome: Outcome,
}

/// Makes the node of a data folder that no broker uses the only voter of every shard that it has a replica
/// of, and with [`LostShards::BeginAnew`] of all others as well, which begin empty. Its next start leads them.
///
/// What the lost nodes had acknowledged without this one is lost, and what was never acknowledged may become
/// valid. The lost nodes must never come back with their folders.
///
/// # Errors
/// The folder cannot be used; some shards may have been recovered by then, and it can be tried again.
pub fn recover(
    folder: &Folder,
    folders: &PerStore<Option<PathBuf>>,
    lost: LostShards,
) -> Result<Vec<Recovered>, OpenError> {
    let log = Log::open(&LogOptions::new(folder.log())).map_err(because("the log"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(because("a runtime"))?;
    let files = PerStore {
        session: StoreFiles::open::<SessionMachine>(folder, folders, &log)?,
        inbox: StoreFiles::open::<InboxMachine>(folder, folders, &log)?,
        retain: StoreFiles::open::<RetainMachine>(folder, folders, &log)?,
        control: StoreFiles::open::<ControlMachine>(folder, folders, &log)?,
    };
    let mut recovery = Recovery {
        folder,
        log,
        lost,
        inboxes: BTreeMap::new(),
        recovered: Vec::new(),
    };
    runtime.block_on(async {
        if let (Some(session), Some(inbox)) = (&files.session, &files.inbox)
            && recovery.begins_any::<SessionMachine>(session)
        {
            recovery.find_inboxes(inbox)?;
        }
        let session = files.session.as_ref();
        if let Some(files) = session {
            recovery.store::<SessionMachine>(files).await?;
        }
        if let Some(files) = &files.inbox {
            recovery.store::<InboxMachine>(files).await?;
        }
        if let Some(files) = &files.retain {
            recovery.store::<RetainMachine>(files).await?;
        }
        if let Some(files) = &files.control
            && recovery.has_control(session)?
        {
            recovery.store::<ControlMachine>(files).await?;
        }
        Ok(recovery.recovered)
    })
}

/// A shard that goes on with what damage has left of its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: ShardNumber,
    /// What it lacks from now on; `None`: nothing, and nothing was changed.
    pub missing: Option<Missing>,
}

/// Who else may have what a damaged log has lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// Nodes that may come back.
    MayVote,
    /// Nobody: they are gone for good.
    AreLost,
}

/// Lets shards of a data folder that no broker uses go on with what damage has left of their logs. They then lack what was
/// acknowledged and lost.
///
/// # Errors
/// The folder cannot be used; the node has no such shard; other nodes vote in one, and may have what is missing. Some shards
/// may go on by then, and it can be tried again.
pub fn accept_damage(
    folder: &Folder,
    folders: &PerStore<Option<PathBuf>>,
    shards: &[(StoreId, ShardNumber)],
    others: Others,
) -> Result<Vec<Accepted>, OpenError> {
    let log = Log::open(&LogOptions::new(folder.log())).map_err(because("the log"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(because("a runtime"))?;
    let accepting = Accepting {
        folder,
        folders,
        log,
        others,
    };
    runtime.block_on(async {
        let mut accepted = Vec::new();
        for (store, shard) in shards {
            let missing = match store {
                StoreId::Session => accepting.shard::<SessionMachine>(*shard).await,
                StoreId::Inbox => accepting.shard::<InboxMachine>(*shard).await,
                StoreId::Retain => accepting.shard::<RetainMachine>(*shard).await,
                StoreId::Control => accepting.shard::<ControlMachine>(*shard).await,
            };
            accepted.push(Accepted {
                store: *store,
                shard: *shard,
                missing: missing?,
            });
        }
        Ok(accepted)
    })
}

struct Accepting<'a> {
    folder: &'a Folder,
    folders: &'a PerStore<Option<PathBuf>>,
    log: Log,
    others: Others,
}

impl Accepting<'_> {
    async fn shard<M: Kind>(&self, shard: ShardNumber) -> Result<Option<Missing>, OpenError> {
        let refused = because::<String>(M::NAME);
        let files = StoreFiles::open::<M>(self.folder, self.folders, &self.log)?;
        let files = files.filter(|files| files.layout.has(shard.into()));
        let files = files.ok_or_else(|| refused(format!("there is no shard {shard}")))?;
        let (group, node) = (group_of::<M>(shard), self.folder.node());
        let mark = files.mark::<M>(shard)?;
        if self
            .log
            .missing(group, &mark)
            .map_err(because("the log"))?
            .is_none()
        {
            return Ok(None);
        }
        let members = self.log.members(group, &mark).map_err(because("the log"))?;
        let is_alone = members.voters.is_empty() || members.is_sole_voter(node);
        if !is_alone && self.others == Others::MayVote {
            let why = format!(
                "other nodes have replicas of shard {shard}, and send this one what it lacks when it is started; if they \
                 are gone for good, say so with --majority-is-lost"
            );
            return Err(refused(why));
        }
        let missing = self.log.accept_loss(group, &mark).await;
        let missing = missing.map_err(because("the log"))?;
        let written = self.log.make_sole_voter(group, node, &mark).await;
        written.map_err(because("the log"))?;
        Ok(missing)
    }
}

/// The files of one store.
struct StoreFiles {
    map: ShardMap,
    layout: ShardLayout,
    tables: Tables,
}

impl StoreFiles {
    /// `None`: the store was never made.
    fn open<M: Kind>(
        folder: &Folder,
        folders: &PerStore<Option<PathBuf>>,
        log: &Log,
    ) -> Result<Option<Self>, OpenError> {
        let last = folder.last_place(M::NAME);
        let elsewhere = folders[M::STORE].as_deref().or(last.as_deref());
        let path = folder.store(M::NAME, elsewhere)?;
        let map = ShardMap::read(&path, folder.name_hash()).map_err(because("the shard map"))?;
        map.map(|map| {
            let tables = Tables::open(&path, TablesOptions::of::<M>()).map_err(because(M::NAME))?;
            let layout = ShardLayout::new::<M>(map, &log.group_ids());
            if layout.has_children(map) {
                folder.note_split()?;
            }
            Ok(Self {
                map,
                layout,
                tables,
            })
        })
        .transpose()
    }

    /// How far the table of a shard reaches.
    fn mark<M: Kind>(&self, shard: ShardNumber) -> Result<Mark, OpenError> {
        let table = self.tables.shard(u64::from(shard));
        let mark = table.and_then(|table| table.mark());
        let mark = mark.map_err(because(M::NAME))?;
        let mark = mark.map(|bytes| Mark::decode(&bytes)).transpose();
        Ok(mark.map_err(because(M::NAME))?.unwrap_or_default())
    }
}

struct Recovery<'a> {
    folder: &'a Folder,
    log: Log,
    lost: LostShards,
    /// Clients with an inbox here, and the highest epoch that was attached to it. Some may be gone already. Empty if
    /// all session shards have a replica here.
    inboxes: BTreeMap<Box<str>, u64>,
    recovered: Vec<Recovered>,
}

impl Recovery<'_> {
    fn begins_any<M: Kind>(&self, files: &StoreFiles) -> bool {
        let is_lost = |shard| !self.log.has_replica(group_of::<M>(shard));
        self.lost != LostShards::Leave && files.layout.numbers().any(is_lost)
    }

    /// Whether the control store has begun: a replica of it is here, or the first session shard says so.
    fn has_control(&self, session: Option<&StoreFiles>) -> Result<bool, OpenError> {
        let is_here = self
            .log
            .has_replica(group_of::<ControlMachine>(CONTROL_SHARD));
        let Some(session) = session.filter(|_| !is_here) else {
            return Ok(is_here);
        };
        let of_store = because(SessionMachine::NAME);
        let first = session.layout.of_slot(0);
        let table = session.tables.shard(u64::from(first)).map_err(&of_store)?;
        let descriptor = Descriptor::of_table(&table).map_err(because(SessionMachine::NAME))?;
        let mut has_begun = descriptor.is_some_and(|descriptor| descriptor.has_begun_control);
        let group = group_of::<SessionMachine>(first);
        let read = self.log.commands(group, |_, command: &Command| {
            has_begun |= matches!(command, Command::Begin(_));
        });
        read.map_err(because("the log"))?;
        Ok(has_begun)
    }

    /// Finds the inboxes of this node, in the tables and in what the log has beyond these.
    fn find_inboxes(&mut self, files: &StoreFiles) -> Result<(), OpenError> {
        let Self { log, inboxes, .. } = self;
        let mut found = |client: &str, epoch: u64| match inboxes.get_mut(client) {
            Some(known) => *known = epoch.max(*known),
            None => drop(inboxes.insert(client.into(), epoch)),
        };
        for shard in files.layout.numbers() {
            let group = group_of::<InboxMachine>(shard);
            if !log.has_replica(group) {
                continue;
            }
            let table = files.tables.shard(u64::from(shard));
            let table = table.map_err(because(InboxMachine::NAME))?;
            each_stored(files.layout.range(shard, files.map), &table, &mut found)
                .map_err(because(InboxMachine::NAME))?;
            let read = log.commands(group, |_, command: &Command| {
                let batch = InboxMachine::batch(command);
                let requests = batch.into_iter().flat_map(|batch| &batch.requests);
                for (client, epoch) in requests.filter_map(|request| request.op.attaches()) {
                    found(client, epoch);
                }
            });
            read.map_err(because("the log"))?;
        }
        Ok(())
    }

    async fn store<M: Kind>(&mut self, files: &StoreFiles) -> Result<(), OpenError> {
        for shard in files.layout.numbers() {
            let outcome = match self.lost {
                _ if self.log.has_replica(group_of::<M>(shard)) => {
                    self.make_sole_voter::<M>(files, shard).await?;
                    Outcome::SoleVoter
                }
                LostShards::Leave => Outcome::Left,
                LostShards::BeginAnew { now_ms } => {
                    let removed_inboxes = self.begin_anew::<M>(files, shard, now_ms).await?;
                    Outcome::BegunAnew { removed_inboxes }
                }
            };
            self.recovered.push(Recovered {
                store: M::STORE,
                shard,
                outcome,
            });
        }
        Ok(())
    }

    async fn make_sole_voter<M: Kind>(
        &self,
        files: &StoreFiles,
        shard: ShardNumber,
    ) -> Result<(), OpenError> {
        let mark = files.mark::<M>(shard)?;
        let group = group_of::<M>(shard);
        let missing = self.log.missing(group, &mark);
        if let Some(missing) = missing.map_err(because("the log"))? {
            let (store, why) = (M::NAME, "its log was damaged");
            let why =
                format!("{why}: {missing}; --accept-damage {store}/{shard} goes on without that");
            return Err(because(&format!("{store}, shard {shard}"))(why));
        }
        let written = self
            .log
            .make_sole_voter(group, self.folder.node(), &mark)
            .await;
        written.map(drop).map_err(because("the log"))
    }

    /// Begins a shard anew that has no replica here. The last write makes it a replica: before that, all of it is done
    /// again. Gives how many inboxes of this node are removed since their sessions are lost.
    async fn begin_anew<M: Kind>(
        &self,
        files: &StoreFiles,
        shard: ShardNumber,
        now_ms: u64,
    ) -> Result<u64, OpenError> {
        let (mut rows, removed_inboxes) = match M::STORE {
            StoreId::Session => self.session_rows(files, shard, now_ms),
            StoreId::Inbox | StoreId::Retain | StoreId::Control => (Changes::default(), 0),
        };
        let range = files.layout.range(shard, files.map);
        if shard >= files.map.len() || range != files.map.range(shard) {
            let descriptor = Descriptor {
                // The lost shard can have been split that often only if each split took a millisecond at least.
                version: ShardVersion(now_ms),
                ..Descriptor::first(range)
            };
            rows.put(DESCRIPTOR_KEY.to_vec(), descriptor.to_row());
        }
        let group = group_of::<M>(shard);
        let mark = self.log.begin_anew(group, self.folder.node(), now_ms).await;
        let mark = mark.map_err(because("the log"))?;
        // What a replica has left that was here once.
        let removed = files.tables.remove(u64::from(shard));
        removed.map_err(because(M::NAME))?;
        let table = files.tables.shard(u64::from(shard));
        let written = table.and_then(|table| table.write(&rows, &mark.encode()));
        written.map_err(because(M::NAME))?;
        let began = self
            .log
            .make_sole_voter(group, self.folder.node(), &mark)
            .await;
        began.map_err(because("the log"))?;
        Ok(removed_inboxes)
    }

    /// The rows of a session shard that begins anew. Its epochs begin at the Unix time in microseconds: the lost shard
    /// would have to have accepted a million connections a second to have given that many.
    fn session_rows(&self, files: &StoreFiles, shard: ShardNumber, now_ms: u64) -> (Changes, u64) {
        let highest = self.inboxes.values().max().copied().unwrap_or_default();
        let next_epoch = now_ms.saturating_mul(1_000).max(highest.saturating_add(1));
        let all = self.inboxes.iter();
        let left: Vec<(&str, u64)> = all
            .map(|(client, epoch)| (&**client, *epoch))
            .filter(|(client, _)| {
                let slot = files.map.hash().slot_of(client);
                files.layout.of_slot(slot) == shard
            })
            .collect();
        let removed = left.len() as u64;
        (begin_anew(files.map.hash(), next_epoch, left), removed)
    }
}
