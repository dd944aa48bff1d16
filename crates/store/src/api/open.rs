//! How a store opens: folders, the log, and the shards dealt to threads.
//!
//! Invariant: when [`Store::open`] returns, the shards of a node that is alone serve; those of a cluster do as soon as they have
//! leaders.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use consensus::{Log, LogOptions};
use parking_lot::Mutex;
use store_state::Level;
use store_state::api::{PerStore, StoreId};
use store_state::control::ControlMachine;
use store_state::inbox::{InboxMachine, InboxOp};
use store_state::retain::RetainMachine;
use store_state::session::SessionMachine;
use tokio::sync::{Semaphore, watch};

use crate::api::catching_up::{CatchingUp, CatchingUpShards};
use crate::api::control::{CONTROL_OPEN_FILES, ControlStore, has_begun};
use crate::api::error::{OpenError, because};
use crate::api::levels::{LeveledShards, Levels};
use crate::api::listener::Listener;
use crate::api::memory::MemoryOfStore;
use crate::api::options::Options;
use crate::api::shard_set::ShardSet;
use crate::api::split::AskedSplit;
use crate::api::splits::Splits;
use crate::api::store::{Store, ThreadHandles};
use crate::kinds::command::Command;
use crate::kinds::group::shard_of_group;
use crate::kinds::kind::Kind;
use crate::node::bootstrap::maker;
use crate::node::services::NodeServices;
use crate::node::shutdown::Stop;
use crate::node::starts::{StoreThreads, ThreadCounts};
use crate::node::threads::{NodeTasks, Part, run};
use crate::peers::known::KnownPeers;
use crate::scrub::counters::ScrubCounters;
use crate::scrub::shards::ScrubbedShards;
use crate::shard::begin::StoreBeginnings;
use crate::shard::deferred::Backlog;
use crate::shard::shards::Shards;
use crate::splitting::splitter::Splitter;
use crate::storage::folder::Folder;
use crate::storage::layout::ShardLayout;
use crate::storage::map::ShardMap;
use crate::storage::tables::{Tables, TablesOptions};

impl Store {
    /// Recovers what the data folder holds and starts the shards. When it returns, those of a node that is
    /// alone serve; those of a cluster do as soon as they have leaders.
    ///
    /// A shard whose tables or log are damaged does not serve; the others do.
    ///
    /// # Errors
    /// The folder cannot be used, is another program's, or is in use; the log cannot be opened; the disk is
    /// so full that the start cannot be recorded.
    pub fn open(
        folder: Folder,
        options: &Options,
        listener: &Arc<dyn Listener>,
    ) -> Result<Self, OpenError> {
        let log = Log::open(&LogOptions::new(folder.log())).map_err(because("the log"))?;
        let (store, parts, services) = Self::prepare(folder, log, options, listener)?;
        start_threads(parts, &services.threads, &store.threads)?;
        note_opened(&store.folder)?;
        Ok(store)
    }

    /// The same within one runtime, for simulations: the store serves as long as the future is polled that
    /// comes with it. The log may be one that forgets what was not synced.
    ///
    /// # Errors
    /// As of [`Store::open`].
    #[cfg(feature = "simulation")]
    pub fn open_within(
        folder: Folder,
        log: Log,
        options: &Options,
        listener: &Arc<dyn Listener>,
    ) -> Result<(Self, impl Future<Output = ()> + use<>), OpenError> {
        let (store, parts, services) = Self::prepare(folder, log, options, listener)?;
        for thread in 0..parts.len() {
            services.threads.is_ready(thread, None);
        }
        let folder = Arc::clone(&store.folder);
        let serve = async move {
            let ready = |_| drop(note_opened(&folder));
            let serving = parts.into_iter().map(|part| part.serve(ready));
            futures_util::future::join_all(serving).await;
        };
        Ok((store, serve))
    }

    /// Opens everything, and says what threads are to do.
    fn prepare(
        folder: Folder,
        log: Log,
        options: &Options,
        listener: &Arc<dyn Listener>,
    ) -> Result<(Self, Vec<Part>, Arc<NodeServices>), OpenError> {
        let folder = Arc::new(folder);
        let log = Arc::new(log);
        let (stop, stopping) = watch::channel(Stop::No);
        let peers = options
            .cluster
            .as_ref()
            .map(|cluster| Arc::clone(&cluster.peers));
        let known_peers = Arc::new(KnownPeers::new(peers, folder.incarnation()));
        let has_founded = folder.has_founded();
        let founds = options
            .cluster
            .as_ref()
            .is_none_or(|cluster| cluster.founds);
        let is_new = folder.is_new().map_err(because("the data folder"))?;
        let places = PerStore {
            session: StoreFolder::open::<SessionMachine>(&folder, options)?,
            inbox: StoreFolder::open::<InboxMachine>(&folder, options)?,
            retain: StoreFolder::open::<RetainMachine>(&folder, options)?,
            control: StoreFolder::open::<ControlMachine>(&folder, options)?,
        };
        settle_level(&folder, is_new, options.level, || {
            shown(&places.inbox.tables, &log)
        })?;
        let groups = log.group_ids().into_iter();
        let replicas: Vec<_> = groups.filter_map(shard_of_group).collect();
        let had_begun = has_begun(&log, &places.session.tables);
        let (threads, starts) = StoreThreads::new(ThreadCounts {
            first: options.threads,
            most: options.threads_most,
        });
        let services = Arc::new(NodeServices {
            led_shards: Arc::default(),
            held_queues: Arc::default(),
            held_retained: Arc::default(),
            threads,
            tables: PerStore::from_fn(|store| Arc::clone(&places[store].tables)),
            log: Arc::clone(&log),
            listener: Arc::clone(listener),
            folder: Arc::clone(&folder),
            stopping: stopping.clone(),
            backlog: Backlog::default(),
            apply_times: Arc::default(),
            known_peers: Arc::clone(&known_peers),
            founds: founds && !has_founded,
            accepts_folder: options.cluster.as_ref().and_then(|c| c.accepts_folder),
            voters: options.voters,
            replace_after: options.replace_after,
            compare_every: options.compare_every,
            scrubbed: Arc::new(ScrubCounters::of(options.scrub_every)),
            comparing: Arc::new(Semaphore::new(1)),
            beginnings: OnceLock::new(),
        });
        let over_limit = Arc::default();
        let session = open_shards::<SessionMachine>(&services, &places.session, &over_limit)?;
        let inbox = open_shards::<InboxMachine>(&services, &places.inbox, &over_limit)?;
        let retain = open_shards::<RetainMachine>(&services, &places.retain, &over_limit)?;
        let control = open_shards::<ControlMachine>(&services, &places.control, &over_limit)?;
        let is_new = services.beginnings.set(Box::new(StoreBeginnings {
            session: Arc::downgrade(&session.shards),
            control: Arc::downgrade(&control.shards),
        }));
        debug_assert!(is_new.is_ok(), "they are said once");
        let splits = Arc::new(Splits {
            session: Arc::clone(&session),
            inbox: Arc::clone(&inbox),
            retain: Arc::clone(&retain),
            known_peers: Arc::clone(&known_peers),
            asked: AskedSplit::default(),
            splitter: Mutex::new(Splitter::new(
                &options.splits,
                options.split_scripts.clone(),
            )),
        });
        let part = |(number, given)| Part {
            given,
            listener: Arc::clone(listener),
            log: Arc::clone(&log),
            node_tasks: (number == 0).then(|| NodeTasks {
                services: Arc::clone(&services),
                splits: Arc::clone(&splits),
                scrubbed: PerStore {
                    session: Arc::clone(&session.shards) as Arc<dyn ScrubbedShards>,
                    inbox: Arc::clone(&inbox.shards) as Arc<dyn ScrubbedShards>,
                    retain: Arc::clone(&retain.shards) as Arc<dyn ScrubbedShards>,
                    control: Arc::clone(&control.shards) as Arc<dyn ScrubbedShards>,
                },
            }),
            condition: log.watch(),
            stopping: stopping.clone(),
        };
        let parts = starts.into_iter().enumerate().map(part).collect();
        let levels = Levels {
            shards: PerStore {
                session: Arc::clone(&session) as Arc<dyn LeveledShards>,
                inbox: Arc::clone(&inbox) as Arc<dyn LeveledShards>,
                retain: Arc::clone(&retain) as Arc<dyn LeveledShards>,
                control: Arc::clone(&control) as Arc<dyn LeveledShards>,
            },
            known_peers: Arc::clone(&known_peers),
            folder: Arc::clone(&folder),
        };
        let control_store = ControlStore {
            session: Arc::clone(&session),
            control: Arc::clone(&control),
            had_begun,
        };
        let catching_up = PerStore {
            session: Arc::clone(&session) as Arc<dyn CatchingUpShards>,
            inbox: Arc::clone(&inbox) as Arc<dyn CatchingUpShards>,
            retain: Arc::clone(&retain) as Arc<dyn CatchingUpShards>,
            control: Arc::clone(&control) as Arc<dyn CatchingUpShards>,
        };
        let memory = MemoryOfStore {
            session: Arc::clone(&session),
            inbox: Arc::clone(&inbox),
            retain: Arc::clone(&retain),
            control: Arc::clone(&control),
            tables: PerStore::from_fn(|store| Arc::clone(&services.tables[store])),
        };
        let store = Self {
            memory,
            levels,
            control_store,
            catching_up: CatchingUp::new(catching_up, replicas.into_iter()),
            session,
            inbox,
            retain,
            control,
            over_limit,
            splits,
            led_shards: Arc::clone(&services.led_shards),
            apply_times: Arc::clone(&services.apply_times),
            scrubbed: Arc::clone(&services.scrubbed),
            held_queues: Arc::clone(&services.held_queues),
            known_peers,
            folder,
            condition: log.watch(),
            log,
            stop,
            threads: Arc::default(),
        };
        Ok((store, parts, services))
    }
}

/// The folder of one store.
struct StoreFolder {
    map: ShardMap,
    tables: Arc<Tables>,
}

impl StoreFolder {
    fn open<M: Kind>(folder: &Folder, options: &Options) -> Result<Self, OpenError> {
        let path = folder
            .store(M::NAME, options.folders[M::STORE].as_deref())
            .map_err(because("the data folder"))?;
        let initial = match M::BEGINS_LATER {
            true => 1,
            false => options.shards[M::STORE],
        };
        let map =
            ShardMap::open(&path, initial, folder.name_hash()).map_err(because("the shard map"))?;
        let tables_options = TablesOptions {
            open_files: match M::BEGINS_LATER {
                true => options.open_files.min(CONTROL_OPEN_FILES),
                false => options.open_files,
            },
            ..TablesOptions::of::<M>()
        };
        let tables = Tables::open(&path, tables_options).map_err(because(M::NAME))?;
        Ok(Self {
            map,
            tables: Arc::new(tables),
        })
    }
}

/// Decides which level the folder has for shards that say none. At the first start: the newest, if nothing was made in it and no member
/// says another one; else what members tell, or what the folder shows. A program without levels may have had the folder since then: what
/// it shows of the later level counts for as long as the level was not raised.
fn settle_level(
    folder: &Folder,
    is_new: bool,
    told: Option<Level>,
    shown: impl FnOnce() -> Result<Option<Level>, OpenError>,
) -> Result<(), OpenError> {
    let noted = folder.noted_level();
    let level = match noted {
        None if is_new => told.unwrap_or(Level::NEWEST),
        None | Some(Level::UNGATED) if !folder.has_noted(Level::RAISED) => {
            let shown = match folder.is_split() {
                true => Some(Level::SPLITS),
                false => shown()?,
            };
            let later = shown.filter(|level| *level == Level::SPLITS);
            // Without any sign there is nothing in the folder that the two levels have in different ways.
            let level = later.or(noted).or(told).or(shown);
            level.unwrap_or(Level::UNGATED)
        }
        Some(noted) => noted,
        // The file is gone. Shards of a raised folder say their levels, but for those that were not raised yet.
        None => Level::SPLITS,
    };
    if noted != Some(level) {
        let set = folder.set_level(level);
        set.map_err(because("the data folder"))?;
        tracing::info!(%level, "the level of shards that record none");
    }
    Ok(())
}

/// The level that the rows and the log of the inbox store show, of those of programs that knew of no levels. `None`: neither. Reads
/// the inboxes, and the log until it shows the later one.
fn shown(tables: &Tables, log: &Log) -> Result<Option<Level>, OpenError> {
    let of_store = because(InboxMachine::NAME);
    let mut shown = None;
    for shard in tables.shards().map_err(&of_store)? {
        let table = tables.shard(shard).map_err(&of_store)?;
        match store_state::inbox::level_shown(&table) {
            Ok(level) => shown = shown.max(level),
            // The shard says so when it is opened.
            Err(error) => tracing::warn!(shard, %error, "the rows of a shard do not show a level"),
        }
    }
    for group in log.group_ids() {
        let is_inbox = shard_of_group(group).is_some_and(|(store, _)| store == StoreId::Inbox);
        if shown == Some(Level::SPLITS) || !is_inbox {
            continue;
        }
        let mut is_raised = false;
        let read = log.commands(group, |_, command: &Command| match command {
            // What follows says nothing of before.
            Command::Raise(..) => is_raised = true,
            Command::Inbox(batch) if !is_raised => {
                let classes = &batch.header.limits.classes;
                let mut ops = batch.requests.iter().map(|request| &request.op);
                if !classes.is_empty() || ops.any(InboxOp::is_gated) {
                    shown = Some(Level::SPLITS);
                }
            }
            _ => {}
        });
        if let Err(error) = read {
            // The replica says so when it is opened.
            tracing::warn!(group, %error, "the log of a shard does not show a level");
        }
    }
    Ok(shown)
}

/// Prepares the shards of a store: those that it began with, and those that splits have made as far as this node has something
/// of them.
fn open_shards<M: Kind>(
    services: &Arc<NodeServices>,
    place: &StoreFolder,
    over_limit: &Arc<AtomicBool>,
) -> Result<Arc<ShardSet<M>>, OpenError> {
    let shards = Arc::new(Shards::new(place.map, services.folder.level()));
    let layout = ShardLayout::new::<M>(place.map, &services.log.group_ids());
    if layout.has_children(place.map) {
        let noted = services.folder.note_split();
        noted.map_err(because("the data folder"))?;
    }
    shards.set_maker(maker(services));
    for number in layout.numbers() {
        shards.add_first(number);
    }
    Ok(Arc::new(ShardSet {
        shards,
        over_limit: Arc::clone(over_limit),
        misrouted: AtomicU64::new(0),
    }))
}

/// The shards have started: a later start begins none.
fn note_opened(folder: &Folder) -> Result<(), OpenError> {
    if !folder.has_founded() {
        let noted = folder.note_founded();
        noted.map_err(because("the data folder"))?;
    }
    folder.reserve().keep();
    Ok(())
}

/// Starts the first threads, and waits until their shards have started. The others are started when they are given one.
fn start_threads(
    parts: Vec<Part>,
    threads: &StoreThreads,
    handles: &Arc<ThreadHandles>,
) -> Result<(), OpenError> {
    let mut ready = Vec::new();
    for (number, part) in parts.into_iter().enumerate() {
        if threads.is_first(number) {
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            ready.push(told);
            let tell = move |outcome| {
                // An error: whoever waited is gone, and with it the store, which ends the thread.
                let _ = tell.send(outcome);
            };
            start_thread(number, part, handles, tell).map_err(because("a thread"))?;
            threads.is_ready(number, None);
        } else {
            let handles = Arc::clone(handles);
            let launch = move || {
                start_thread(number, part, &handles, |outcome| {
                    if let Err(error) = outcome {
                        tracing::error!(%error, "an additional thread of the store has ended");
                    }
                })
            };
            threads.is_ready(number, Some(Box::new(launch)));
        }
    }
    for told in ready {
        // A thread that ends before it is ready has said why.
        told.recv()
            .map_err(because("a thread of the store has ended"))??;
    }
    Ok(())
}

fn start_thread(
    number: usize,
    part: Part,
    handles: &ThreadHandles,
    ready: impl FnOnce(Result<(), OpenError>) + Send + 'static,
) -> io::Result<()> {
    let thread = std::thread::Builder::new()
        .name(format!("store-{number}"))
        .spawn(move || run(part, ready))?;
    handles.lock().push(thread);
    Ok(())
}
