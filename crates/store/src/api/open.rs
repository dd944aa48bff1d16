//! How a store opens: folders, the log, and the shards dealt to threads.
//!
//! Invariant: when [`Store::open`] returns, the shards of a node that is alone serve; those of a cluster do as soon as they have
//! leaders.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use consensus::{Log, LogOptions};
use parking_lot::Mutex;
use store_state::Level;
use store_state::api::PerStore;
use store_state::inbox::InboxMachine;
use store_state::retain::RetainMachine;
use store_state::session::SessionMachine;
use tokio::sync::watch;

use crate::api::error::{OpenError, because};
use crate::api::levels::{LeveledShards, Levels};
use crate::api::listener::Listener;
use crate::api::options::Options;
use crate::api::shard_set::ShardSet;
use crate::api::split::AskedSplit;
use crate::api::splits::Splits;
use crate::api::store::{Store, ThreadHandles};
use crate::kinds::kind::Kind;
use crate::node::bootstrap::maker;
use crate::node::services::NodeServices;
use crate::node::shutdown::Stop;
use crate::node::starts::{StoreThreads, ThreadCounts};
use crate::node::threads::{NodeTasks, Part, run};
use crate::peers::known::KnownPeers;
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
        };
        if folder.noted_level().is_none() {
            let level = match is_new {
                true => options.level.unwrap_or(Level::NEWEST),
                false => level_before(&folder, &places.inbox.tables, options.level)?,
            };
            folder
                .set_level(level)
                .map_err(because("the data folder"))?;
        }
        let (threads, starts) = StoreThreads::new(ThreadCounts {
            first: options.threads,
            most: options.threads_most,
        });
        let services = Arc::new(NodeServices {
            led_shards: Arc::default(),
            held_queues: Arc::default(),
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
        });
        let over_limit = Arc::default();
        let session = open_shards::<SessionMachine>(&services, &places.session, &over_limit)?;
        let inbox = open_shards::<InboxMachine>(&services, &places.inbox, &over_limit)?;
        let retain = open_shards::<RetainMachine>(&services, &places.retain, &over_limit)?;
        let splits = Arc::new(Splits {
            session: Arc::clone(&session),
            inbox: Arc::clone(&inbox),
            retain: Arc::clone(&retain),
            known_peers: Arc::clone(&known_peers),
            asked: AskedSplit::default(),
            splitter: Mutex::new(Splitter::new(&options.splits)),
        });
        let part = |(number, given)| Part {
            given,
            listener: Arc::clone(listener),
            node_tasks: (number == 0).then(|| NodeTasks {
                services: Arc::clone(&services),
                splits: Arc::clone(&splits),
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
            },
            known_peers: Arc::clone(&known_peers),
            folder: Arc::clone(&folder),
        };
        let store = Self {
            levels,
            session,
            inbox,
            retain,
            over_limit,
            splits,
            led_shards: Arc::clone(&services.led_shards),
            apply_times: Arc::clone(&services.apply_times),
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
        let initial = options.shards[M::STORE];
        let map =
            ShardMap::open(&path, initial, folder.name_hash()).map_err(because("the shard map"))?;
        let tables_options = TablesOptions {
            open_files: options.open_files,
            ..TablesOptions::of::<M>()
        };
        let tables = Tables::open(&path, tables_options).map_err(because(M::NAME))?;
        Ok(Self {
            map,
            tables: Arc::new(tables),
        })
    }
}

/// The level of a folder that programs have written which knew of no levels: as the members say, or else as the rows show. Without
/// either there is nothing in the folder that the two levels write in different ways.
fn level_before(folder: &Folder, tables: &Tables, told: Option<Level>) -> Result<Level, OpenError> {
    if folder.is_split() {
        return Ok(Level::SPLITS);
    }
    if let Some(told) = told {
        return Ok(told);
    }
    let of_store = because(InboxMachine::NAME);
    for shard in tables.shards().map_err(&of_store)? {
        let table = tables.shard(shard).map_err(&of_store)?;
        match store_state::inbox::level_shown(&table) {
            Ok(Some(level)) => return Ok(level),
            Ok(None) => {}
            // The shard says so when it is opened.
            Err(error) => tracing::warn!(shard, %error, "the rows of a shard do not show a level"),
        }
    }
    Ok(Level::UNGATED)
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
                        tracing::error!(%error, "a further thread of the store has ended");
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
