//! The store of one node: opening, recovery, and where requests go.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consensus::{Birth, Condition, Group, GroupOptions, Log, LogOptions, LogStats, Nobody};
use mqtt_session::{ApplicationMessage, Timestamp};
use parking_lot::Mutex;
use store_state::inbox::{InboxMachine, InboxOp};
use store_state::retain::{RetainMachine, RetainOp};
use store_state::session::{SessionMachine, SessionOp};
use store_state::{Batch, Header, Request, Ticket};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use topic_router::Cursor;

use crate::command::Command;
use crate::folder::Folder;
use crate::kind::Kind;
use crate::later::Debts;
use crate::map::{ShardMap, ShardNumber};
use crate::proposer::Proposer;
use crate::shard::{Replica, Shard, Work, Written, checkpoint, write_checkpoint};
use crate::tables::{Tables, TablesOptions};
use crate::{Listener, MAP_VERSION, Read};

/// What a request takes in memory beside its own bytes, about.
const OVERHEAD: usize = 128;

/// Entries of a shard that stay in the log behind its checkpoint. There is no other replica that could
/// want them, and a thousand entries can be half a gigabyte.
const LOG_KEPT: u64 = 0;

/// How often deadlines of sessions and retained messages are looked at.
const DUE_LOOK: Duration = Duration::from_millis(100);

/// How often the node writes down that it is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// How long a start waits for space to record itself.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How long a shutdown waits for the log when space was given up for it.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// How often is looked meanwhile.
const ROOM_LOOK: Duration = Duration::from_millis(5);

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder.
    pub folder: PathBuf,
    /// Folders of the three stores (session, inbox, retain) if they are not in the data folder.
    pub folders: [Option<PathBuf>; 3],
    /// Shards that each store begins with.
    pub shards: [u16; 3],
    /// Threads that shards live on.
    pub threads: usize,
}

/// Why the store does not open.
#[derive(Debug)]
pub struct OpenError(String);

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    fn full_disk() -> Self {
        Self("the disk is full: the start cannot be recorded".to_owned())
    }
}

fn because<E: fmt::Display>(what: &str) -> impl Fn(E) -> OpenError {
    move |error| OpenError(format!("{what}: {error}"))
}

/// The store of this node. Cheap to share; requests can be given from any thread.
pub struct Store {
    session: ShardSet<SessionMachine>,
    inbox: ShardSet<InboxMachine>,
    retain: ShardSet<RetainMachine>,
    crowded: Arc<AtomicBool>,
    node: u64,
    incarnation: u64,
    folder: Arc<Folder>,
    log: Arc<Log>,
    condition: watch::Receiver<Condition>,
    stop: watch::Sender<Stop>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("node", &self.node)
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

/// What the threads are to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Serve.
    No,
    /// Finish what has been given, write a last checkpoint, end.
    InOrder,
}

/// The shards of one store.
struct ShardSet<M: Kind> {
    map: ShardMap,
    shards: Vec<Arc<Shard<M>>>,
    /// Set by whoever gives a crowded shard of any store more; cleared by [`Store::is_crowded`].
    crowded: Arc<AtomicBool>,
}

/// A place in the retained messages that a filter selects.
#[derive(Clone, Debug)]
pub struct RetainedPlace {
    shard: ShardNumber,
    cursor: Option<Cursor>,
}

/// What the store counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats {
    /// The log's.
    pub log: LogStats,
    /// Of the session, inbox and retain store.
    pub stores: [ShardStats; 3],
    /// Records of the session store.
    pub sessions: u64,
    /// Of these, the connected ones.
    pub connected: u64,
    /// Inboxes.
    pub inboxes: u64,
    /// Messages queued in them.
    pub queued_messages: u64,
    /// Bytes queued in them.
    pub queued_bytes: u64,
    /// Retained messages.
    pub retained_messages: u64,
    /// Bytes of these.
    pub retained_bytes: u64,
}

/// What the shards of one store count.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardStats {
    /// Shards.
    pub shards: u64,
    /// Shards that do not serve.
    pub stopped: u64,
    /// Batches applied.
    pub batches: u64,
    /// Requests in these.
    pub requests: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests waiting.
    pub waiting: u64,
    /// Requests that wait for space on the disk.
    pub owed: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Bytes of these.
    pub checkpoint_bytes: u64,
}

impl<M: Kind> ShardSet<M> {
    fn new(map: ShardMap, crowded: Arc<AtomicBool>) -> Self {
        Self {
            map,
            crowded,
            shards: (0..map.len())
                .map(|number| Shard::new(number, map.range(number)))
                .collect(),
        }
    }

    fn of(&self, name: &str) -> ShardNumber {
        self.map.shard_of(name)
    }

    fn put(&self, shard: ShardNumber, work: Work<M::Op>, bytes: usize) {
        if let Some(shard) = self.shards.get(usize::from(shard)) {
            shard.give(work, bytes);
            self.look_at(shard);
        }
    }

    /// Says so if a shard that was given something is crowded.
    fn look_at(&self, shard: &Shard<M>) {
        if shard.is_crowded() {
            self.crowded.store(true, Ordering::Release);
        }
    }

    fn propose(&self, shard: ShardNumber, ticket: Ticket, op: M::Op, bytes: usize) {
        let must_wait = M::must_wait(&op, ticket);
        self.put(shard, work(ticket, op, must_wait), OVERHEAD + bytes);
    }

    /// As [`propose`](Self::propose), for what can wait a little.
    fn propose_patiently(&self, shard: ShardNumber, op: M::Op, bytes: usize) {
        let must_wait = M::must_wait(&op, Ticket::NONE);
        if let Some(shard) = self.shards.get(usize::from(shard)) {
            shard.give_patient(work(Ticket::NONE, op, must_wait), OVERHEAD + bytes);
            self.look_at(shard);
        }
    }

    fn begin(&self, listener: &dyn Listener) {
        for shard in &self.shards {
            shard.begin(listener);
        }
    }

    fn is_crowded(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_crowded())
    }

    fn stats(&self) -> ShardStats {
        let mut sum = ShardStats::default();
        for shard in &self.shards {
            let stats = &shard.stats;
            sum.shards += 1;
            sum.stopped += u64::from(shard.look(|_| ()).is_none());
            sum.batches += stats.batches.load(Ordering::Relaxed);
            sum.requests += stats.requests.load(Ordering::Relaxed);
            sum.refused += stats.refused.load(Ordering::Relaxed);
            sum.waiting += shard.queue.len() as u64;
            sum.owed += stats.owed.load(Ordering::Relaxed) as u64;
            sum.checkpoints += stats.checkpoints.load(Ordering::Relaxed);
            sum.checkpoint_bytes += stats.checkpoint_bytes.load(Ordering::Relaxed);
        }
        sum
    }

    fn sum(&self, look: impl Fn(&M) -> u64) -> u64 {
        let looks = self.shards.iter().filter_map(|shard| shard.look(&look));
        looks.sum()
    }
}

impl Store {
    /// Recovers what the data folder holds and starts the shards. When it returns, they serve.
    ///
    /// A shard whose tables or log are damaged does not serve; the others do.
    ///
    /// # Errors
    /// The folder cannot be used, is another program's, or is in use; the log cannot be opened; the disk is
    /// so full that the start cannot be recorded.
    pub fn open(options: &Options, listener: &Arc<dyn Listener>) -> Result<Self, OpenError> {
        let folder = Folder::open(&options.folder).map_err(because("the data folder"))?;
        let folder = Arc::new(folder);
        let log = Log::open(&LogOptions::new(folder.log())).map_err(because("the log"))?;
        let log = Arc::new(log);
        let (stop, stopping) = watch::channel(Stop::No);
        let crowded = Arc::default();
        let mut opener = Opener {
            options,
            stopping: stopping.clone(),
            folder: Arc::clone(&folder),
            log: Arc::clone(&log),
            listener,
            crowded: Arc::clone(&crowded),
            debts: Debts::default(),
            starts: (0..options.threads.max(1)).map(|_| Vec::new()).collect(),
            next: 0,
        };
        let session = opener.shards::<SessionMachine>()?;
        let inbox = opener.shards::<InboxMachine>()?;
        let retain = opener.shards::<RetainMachine>()?;
        let mut threads = Vec::new();
        let mut ready = Vec::new();
        for (number, starts) in opener.starts.into_iter().enumerate() {
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            ready.push(told);
            let (stopping, condition) = (stopping.clone(), log.watch());
            let duties = (number == 0).then(|| Duties {
                folder: Arc::clone(&folder),
                listener: Arc::clone(listener),
            });
            let thread = std::thread::Builder::new()
                .name(format!("store-{number}"))
                .spawn(move || run(starts, duties, condition, stopping, &tell))
                .map_err(because("a thread"))?;
            threads.push(thread);
        }
        for told in ready {
            // A thread that ends before it is ready has said why.
            told.recv()
                .map_err(because("a thread of the store has ended"))??;
        }
        folder.reserve().keep();
        Ok(Self {
            session,
            inbox,
            retain,
            crowded,
            node: folder.node(),
            incarnation: folder.incarnation(),
            folder,
            condition: log.watch(),
            log,
            stop,
            threads: Mutex::new(threads),
        })
    }

    /// The event loops have started: they are told what was found, and get their answers from now on.
    pub fn begin(&self, listener: &dyn Listener) {
        self.session.begin(listener);
        self.inbox.begin(listener);
        self.retain.begin(listener);
    }

    /// This node's identifier.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.node
    }

    /// Counts the starts of this node.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Gives the session store a request about a client.
    pub fn session(&self, client: &str, ticket: Ticket, op: SessionOp) {
        let bytes = match &op {
            SessionOp::Claim {
                will: Some(will), ..
            } => will.message.body.heap_len(),
            _ => 0,
        };
        self.session
            .propose(self.session.of(client), ticket, op, client.len() + bytes);
    }

    /// Whether the session store has a record of this client.
    #[must_use]
    pub fn knows(&self, client: &str) -> bool {
        let shard = self
            .session
            .shards
            .get(usize::from(self.session.of(client)));
        shard.is_some_and(|shard| shard.look(|machine| machine.known(client)) == Some(true))
    }

    /// How many inbox shards there are.
    #[must_use]
    pub fn inbox_shards(&self) -> u16 {
        self.inbox.map.len()
    }

    /// The node that leads an inbox shard, as far as it is known.
    #[must_use]
    pub fn inbox_leader(&self, shard: ShardNumber) -> Option<u64> {
        (shard < self.inbox_shards()).then_some(self.node)
    }

    /// The inbox shard of a client.
    #[must_use]
    pub fn inbox_shard(&self, client: &str) -> ShardNumber {
        self.inbox.of(client)
    }

    /// Gives an inbox shard a request. `bytes`: the messages in it.
    pub fn inbox(&self, shard: ShardNumber, ticket: Ticket, op: InboxOp, bytes: usize) {
        self.inbox.propose(shard, ticket, op, bytes);
    }

    /// Tells an inbox shard what a session has done with its messages. It is recorded with the next
    /// request, or after a moment: what a crash loses of it is sent again, as may be sent twice.
    pub fn acknowledge(&self, shard: ShardNumber, op: InboxOp, bytes: usize) {
        self.inbox.propose_patiently(shard, op, bytes);
    }

    /// Asks an inbox shard for pages of a queue.
    pub fn read(&self, shard: ShardNumber, read: Read) {
        self.inbox.put(shard, Work::Read(read), size_of::<Read>());
    }

    /// Gives the retain store a message. `must_wait`: on a full disk it waits, since nobody would publish
    /// it again: a will.
    pub fn retain(&self, ticket: Ticket, message: Arc<ApplicationMessage>, must_wait: bool) {
        let shard = self.retain.of(message.body.topic());
        let bytes = OVERHEAD + message.body.heap_len();
        let work = work(ticket, RetainOp::Set { message }, must_wait);
        self.retain.put(shard, work, bytes);
    }

    /// Has [`Event::Passed`](crate::Event::Passed) sent by each retain shard when everything is applied
    /// that was given to it before.
    pub fn retain_barrier(&self, ticket: Ticket) {
        for number in 0..self.retain.map.len() {
            self.retain.put(number, Work::Barrier(ticket), 0);
        }
    }

    /// How many retain shards there are.
    #[must_use]
    pub fn retain_shards(&self) -> u16 {
        self.retain.map.len()
    }

    /// Whether everything that was given to the retain store is applied, or waits for space on the disk:
    /// then nobody should wait for it.
    #[must_use]
    pub fn is_retain_idle(&self) -> bool {
        self.is_full() || self.retain.shards.iter().all(|shard| shard.is_idle())
    }

    /// A page of the retained messages that a filter selects, and where the next one begins. `from`:
    /// where the last one said; `None`: the first.
    #[must_use]
    pub fn retained(
        &self,
        filter: &str,
        from: Option<RetainedPlace>,
        limit: usize,
        now: Timestamp,
    ) -> (Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>) {
        let RetainedPlace { mut shard, cursor } = from.unwrap_or(RetainedPlace {
            shard: 0,
            cursor: None,
        });
        let read = self.retain.shards.get(usize::from(shard));
        let page =
            read.and_then(|s| s.look(|machine| machine.page(filter, cursor.as_ref(), limit, now)));
        let (messages, cursor) = page.unwrap_or_default();
        if cursor.is_none() {
            shard += 1;
        }
        let more = shard < self.retain.map.len();
        (messages, more.then_some(RetainedPlace { shard, cursor }))
    }

    /// Whether publishers should not be read for now. Asked for each message: while no shard is crowded,
    /// it is one look at what hardly ever changes.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed) && self.is_still_crowded()
    }

    fn is_still_crowded(&self) -> bool {
        // In this order: a shard that becomes crowded behind the look says so after this.
        self.crowded.swap(false, Ordering::AcqRel);
        let is_crowded =
            self.inbox.is_crowded() || self.retain.is_crowded() || self.session.is_crowded();
        if is_crowded {
            self.crowded.store(true, Ordering::Release);
        }
        is_crowded
    }

    /// Whether the disk is full: what has to be kept is refused, or waits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        is_full(&self.condition.borrow())
    }

    /// Before a shutdown: if the disk is full, gives up the space that was kept for that, and waits for at
    /// most [`ROOM_WAIT`] until the log can be written. What waits for space is then recorded.
    pub fn make_room(&self) {
        if !self.is_full() {
            return;
        }
        self.folder.reserve().give_up();
        let deadline = Instant::now() + ROOM_WAIT;
        while self.is_full() && Instant::now() < deadline {
            std::thread::sleep(ROOM_LOOK);
        }
    }

    /// Clients that the session store has a record of.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.session.sum(|machine| machine.counts().records as u64)
    }

    /// Figures for the metrics.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            log: self.log.stats(),
            stores: [
                self.session.stats(),
                self.inbox.stats(),
                self.retain.stats(),
            ],
            sessions: self.sessions(),
            connected: self
                .session
                .sum(|machine| machine.counts().connected as u64),
            inboxes: self.inbox.sum(|machine| machine.counts().inboxes as u64),
            queued_messages: self.inbox.sum(|machine| machine.counts().messages),
            queued_bytes: self.inbox.sum(|machine| machine.counts().bytes),
            retained_messages: self.retain.sum(|machine| machine.size().0),
            retained_bytes: self.retain.sum(|machine| machine.size().1),
        }
    }

    /// Carries out what has been given, writes a last checkpoint, and ends the threads. On a full disk
    /// only what [`Store::make_room`] has room for is carried out.
    pub fn shutdown(&self) {
        self.make_room();
        self.stop.send_replace(Stop::InOrder);
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended by a panic");
            }
        }
    }
}

/// What a thread does to start one shard, within its runtime.
type StartShard = Box<dyn FnOnce() -> Starting + Send>;

/// A shard that starts.
type Starting = Pin<Box<dyn Future<Output = Option<Box<dyn Running>>>>>;

/// A shard that serves.
trait Running {
    /// Serves no more: carries out what has been given, and writes a last checkpoint.
    fn finish(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()>>>;
}

/// Prepares the shards of all stores and deals them to threads.
struct Opener<'a> {
    options: &'a Options,
    stopping: watch::Receiver<Stop>,
    folder: Arc<Folder>,
    log: Arc<Log>,
    listener: &'a Arc<dyn Listener>,
    crowded: Arc<AtomicBool>,
    debts: Debts,
    starts: Vec<Vec<StartShard>>,
    next: usize,
}

impl Opener<'_> {
    fn shards<M: Kind>(&mut self) -> Result<ShardSet<M>, OpenError> {
        let index = M::NUMBER as usize;
        let elsewhere = self.options.folders.get(index).cloned().flatten();
        let path = self
            .folder
            .store(M::NAME, elsewhere.as_deref())
            .map_err(because("the data folder"))?;
        let initial = self.options.shards.get(index).copied().unwrap_or(1);
        let map = ShardMap::open(&path, initial).map_err(because("the shard map"))?;
        let tables = Tables::open(&path, TablesOptions::default()).map_err(because(M::NAME))?;
        let tables = Arc::new(tables);
        let set = ShardSet::new(map, Arc::clone(&self.crowded));
        for shard in &set.shards {
            let start = Start {
                shard: Arc::clone(shard),
                tables: Arc::clone(&tables),
                log: Arc::clone(&self.log),
                listener: Arc::clone(self.listener),
                folder: Arc::clone(&self.folder),
                stopping: self.stopping.clone(),
                debts: self.debts.clone(),
            };
            let thread = self.next % self.starts.len();
            self.next += 1;
            if let Some(starts) = self.starts.get_mut(thread) {
                starts.push(Box::new(move || Box::pin(start.run())));
            }
        }
        Ok(set)
    }
}

/// A shard before it serves.
struct Start<M: Kind> {
    shard: Arc<Shard<M>>,
    tables: Arc<Tables>,
    log: Arc<Log>,
    listener: Arc<dyn Listener>,
    folder: Arc<Folder>,
    stopping: watch::Receiver<Stop>,
    debts: Debts,
}

/// A shard that serves, with its tasks.
struct Served<M: Kind> {
    shard: Arc<Shard<M>>,
    group: Arc<Group<Command>>,
    stopping: watch::Receiver<Stop>,
    checkpoints: JoinHandle<Written>,
    tasks: Vec<JoinHandle<()>>,
}

impl<M: Kind> Start<M> {
    /// Recovers the shard and starts its tasks. `None`: it is damaged, and refuses what it is asked.
    async fn run(self) -> Option<Box<dyn Running>> {
        match self.recover().await {
            Ok(group) => Some(Box::new(self.serve(group))),
            Err(error) => {
                tracing::error!(
                    store = M::NAME,
                    shard = self.shard.number,
                    error,
                    "a shard does not serve: what it holds cannot be used"
                );
                self.shard.close();
                tokio::spawn(refuse(self.shard, self.listener));
                None
            }
        }
    }

    async fn recover(&self) -> Result<Group<Command>, String> {
        let table = self
            .tables
            .shard(u64::from(self.shard.number))
            .map_err(|error| error.to_string())?;
        let durable = self.shard.load(table, &self.listener)?;
        let replica = Replica {
            shard: Arc::clone(&self.shard),
            listener: Arc::clone(&self.listener),
            durable,
        };
        let node = self.folder.node();
        let group = Group::start(
            self.shard.group(),
            node,
            &self.log,
            replica,
            Arc::new(Nobody),
            Birth::Alone,
            &GroupOptions {
                keep: LOG_KEPT,
                ..GroupOptions::default()
            },
        )
        .await
        .map_err(|error| error.to_string())?;
        group.recovered().await.map_err(|error| error.to_string())?;
        let last_alive_ms = self
            .folder
            .last_alive_ms()
            .unwrap_or_else(|| self.listener.now_ms());
        if let Some(op) = M::node_up(node, self.folder.incarnation(), last_alive_ms) {
            let batch = single(op, &*self.listener);
            let proposal = group.propose(M::command(Arc::new(batch))).await;
            let applied = match proposal {
                Ok(proposal) => proposal.await,
                Err(error) => Err(error),
            };
            applied.map_err(|error| error.to_string())?;
        }
        self.shard.live(|machine, outlet| machine.announce(outlet));
        Ok(group)
    }

    fn serve(self, group: Group<Command>) -> Served<M> {
        let group = Arc::new(group);
        let proposer = Proposer::new(
            Arc::clone(&self.shard),
            Arc::clone(&group),
            Arc::clone(&self.listener),
            self.log.watch(),
            self.debts,
        );
        let checkpoints = checkpoint(
            Arc::clone(&self.shard),
            Arc::clone(&group),
            self.stopping.clone(),
        );
        let checkpoints = tokio::spawn(checkpoints);
        let mut tasks = vec![tokio::spawn(proposer.run())];
        if M::due().is_some() {
            let due = watch_deadlines(Arc::clone(&self.shard), Arc::clone(&self.listener));
            tasks.push(tokio::spawn(due));
        }
        Served {
            shard: self.shard,
            group,
            stopping: self.stopping,
            checkpoints,
            tasks,
        }
    }
}

impl<M: Kind> Running for Served<M> {
    fn finish(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let (done, all_done) = oneshot::channel();
            self.shard.queue.put(Work::Stop(done), 0);
            // An error: the proposer is gone, and with it what it had.
            let _ = all_done.await;
            for task in self.tasks {
                task.abort();
                let _ = task.await;
            }
            // The checkpoint under way is waited for: a second one beside it would be of a part only.
            if !matches!(self.checkpoints.await, Ok(Written::GivenUp) | Err(_)) {
                write_checkpoint(&self.shard, &self.group, &self.stopping).await;
            }
            if let Ok(group) = Arc::try_unwrap(self.group) {
                group.shutdown().await;
            }
        })
    }
}

/// A request as it is given to a shard.
fn work<O>(ticket: Ticket, op: O, must_wait: bool) -> Work<O> {
    let request = Request {
        map_version: MAP_VERSION,
        ticket,
        op,
    };
    Work::Propose { request, must_wait }
}

/// A batch of one request that nobody waits for.
fn single<O>(op: O, listener: &dyn Listener) -> Batch<O> {
    Batch {
        header: Header {
            now_ms: listener.now_ms(),
            limits: listener.limits(),
        },
        requests: vec![Request {
            map_version: MAP_VERSION,
            ticket: Ticket::NONE,
            op,
        }],
        bytes: OVERHEAD,
    }
}

/// Proposes what a machine does by the passing of time.
async fn watch_deadlines<M: Kind>(shard: Arc<Shard<M>>, listener: Arc<dyn Listener>) {
    let mut look = tokio::time::interval(DUE_LOOK);
    loop {
        look.tick().await;
        let deadline = shard.look(M::next_deadline).flatten();
        if deadline.is_some_and(|at| at <= listener.now_ms())
            && let Some(op) = M::due()
        {
            shard.give(work(Ticket::NONE, op, false), OVERHEAD);
        }
    }
}

/// Answers for a shard that does not serve.
async fn refuse<M: Kind>(shard: Arc<Shard<M>>, listener: Arc<dyn Listener>) {
    let mut taken = Vec::new();
    loop {
        shard.queue.take(usize::MAX, usize::MAX, &mut taken).await;
        shard.refuse_work(&*listener, taken.drain(..).map(|(_, work)| work));
    }
}

/// A thread of the store, from the start of its shards to their end.
fn run(
    starts: Vec<StartShard>,
    duties: Option<Duties>,
    mut condition: watch::Receiver<Condition>,
    mut stopping: watch::Receiver<Stop>,
    ready: &std::sync::mpsc::SyncSender<Result<(), OpenError>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(4)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "a thread of the store cannot start");
            return;
        }
    };
    runtime.block_on(async move {
        let mut running = Vec::new();
        for start in starts {
            tokio::select! {
                () = stays_full(&mut condition) => {
                    // An error: whoever waited is gone.
                    let _ = ready.send(Err(OpenError::full_disk()));
                    return;
                }
                started = start() => running.extend(started),
            }
        }
        if let Some(Duties { folder, listener }) = duties {
            tokio::spawn(stay_alive(folder, Arc::clone(&listener)));
            tokio::spawn(watch_log(condition, listener));
        }
        if ready.send(Ok(())).is_err() {
            return;
        }
        // An error: the store itself is gone.
        let _ = stopping.wait_for(|stop| *stop != Stop::No).await;
        for shard in running {
            shard.finish().await;
        }
    });
}

/// Returns when the disk has been full for [`START_PATIENCE`].
async fn stays_full(condition: &mut watch::Receiver<Condition>) {
    while condition.wait_for(is_full).await.is_ok() {
        tracing::error!("the disk is full: the start waits for space");
        let has_space = condition.wait_for(|condition| !is_full(condition));
        if tokio::time::timeout(START_PATIENCE, has_space)
            .await
            .is_err()
        {
            return;
        }
    }
}

/// What one of the threads does for the node as a whole.
struct Duties {
    folder: Arc<Folder>,
    listener: Arc<dyn Listener>,
}

pub(crate) fn is_full(condition: &Condition) -> bool {
    *condition == Condition::Full
}

/// Tells of the log's end, and of a full disk.
async fn watch_log(mut condition: watch::Receiver<Condition>, listener: Arc<dyn Listener>) {
    loop {
        let now = condition.borrow_and_update().clone();
        match now {
            Condition::Working => tracing::debug!("the log can be written"),
            Condition::Full => tracing::error!("the disk is full: what has to be kept is refused"),
            Condition::Failed(why) => listener.failed(&why),
        }
        if condition.changed().await.is_err() {
            return;
        }
    }
}

/// Writes down each second that the node is alive, for those who ask when it died, and keeps the reserve.
async fn stay_alive(folder: Arc<Folder>, listener: Arc<dyn Listener>) {
    let mut each = tokio::time::interval(ALIVE);
    loop {
        each.tick().await;
        if let Err(error) = folder.mark_alive(listener.now_ms()) {
            tracing::debug!(%error, "the mark of being alive cannot be written");
        }
        folder.reserve().refill();
    }
}

#[cfg(test)]
mod tests;
