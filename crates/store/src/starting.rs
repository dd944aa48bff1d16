//! How shards come up, and the threads that they live on.

use std::num::NonZeroU8;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use consensus::{Condition, Log, Network, Nobody};
use serde::Serialize;
use store_state::{Batch, GivenUp, Header, Request, Ticket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::folder::Folder;
use crate::keeper::{Keeper, served};
use crate::kind::Kind;
use crate::later::Debts;
use crate::neighbours::Neighbours;
use crate::node::{OpenError, Stop, is_full};
use crate::peers::{Lead, Message};
use crate::server::Server;
use crate::shard::{Shard, Work};
use crate::size::written_len;
use crate::tables::Tables;
use crate::{Event, Listener, MAP_VERSION};

/// What a request takes in memory beside its own bytes, about.
pub(crate) const OVERHEAD: usize = 128;

/// What a request weighs while it waits and in a batch.
pub(crate) fn weigh<O: Serialize>(op: &O) -> usize {
    OVERHEAD + written_len(op)
}

/// How often deadlines of sessions and retained messages are looked at.
const DUE_LOOK: Duration = Duration::from_millis(100);

/// How often the node writes down that it is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// How often the other nodes are told what this one leads, if nothing changes.
const HERALD: Duration = Duration::from_secs(1);

/// How long a start waits for space to record itself.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// What the shards of a node have in common.
pub(crate) struct Means {
    /// Of the three stores.
    pub(crate) tables: [Arc<Tables>; 3],
    pub(crate) log: Arc<Log>,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) stopping: watch::Receiver<Stop>,
    pub(crate) debts: Debts,
    pub(crate) neighbours: Arc<Neighbours>,
    /// Shards that are not here are begun here.
    pub(crate) founds: bool,
    pub(crate) voters: [Option<NonZeroU8>; 3],
    pub(crate) replace_after: Duration,
}

impl Means {
    pub(crate) fn tables_of<M: Kind>(&self) -> &Tables {
        &self.tables[M::NUMBER as usize]
    }

    pub(crate) fn voters_of<M: Kind>(&self) -> Option<usize> {
        self.voters[M::NUMBER as usize].map(|voters| voters.get().into())
    }

    pub(crate) fn network(&self) -> Arc<dyn Network> {
        match &self.neighbours.peers {
            Some(peers) => Arc::clone(peers) as _,
            None => Arc::new(Nobody),
        }
    }

    /// What is recorded when this node starts, or goes on after it was taken for dead.
    pub(crate) fn node_up<M: Kind>(&self) -> Option<M::Op> {
        let last_alive = self.folder.last_alive_ms();
        let last_alive_ms = last_alive.unwrap_or_else(|| self.listener.now_ms());
        M::node_up(
            self.folder.node(),
            self.neighbours.incarnation(),
            last_alive_ms,
        )
    }
}

/// A request as it is given to a shard.
pub(crate) fn work<O>(ticket: Ticket, op: O, must_wait: bool) -> Work<O> {
    let request = Request {
        map_version: MAP_VERSION,
        ticket,
        op,
    };
    Work::Propose { request, must_wait }
}

/// A batch of one request that nobody waits for.
pub(crate) fn single<O>(op: O, listener: &dyn Listener) -> Batch<O> {
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
        given_up: GivenUp::default(),
    }
}

/// What a thread does to start one shard, within its runtime.
pub(crate) type StartShard = Box<dyn FnOnce() -> Starting + Send>;

/// A shard that starts.
type Starting = Pin<Box<dyn Future<Output = Option<Box<dyn Running>>>>>;

/// A shard that serves.
pub(crate) trait Running {
    /// Serves no more: carries out what has been given, and writes a last checkpoint.
    fn finish(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()>>>;
}

/// A shard before it serves.
pub(crate) struct Start<M: Kind> {
    pub(crate) shard: Arc<Shard<M>>,
    pub(crate) means: Arc<Means>,
    pub(crate) invited: mpsc::Receiver<()>,
}

/// A shard that serves, with its tasks.
struct Served<M: Kind> {
    shard: Arc<Shard<M>>,
    keeper: JoinHandle<Keeper<M>>,
    tasks: Vec<JoinHandle<()>>,
}

impl<M: Kind> Start<M> {
    pub(crate) fn boxed(self) -> StartShard {
        Box::new(move || Box::pin(self.run()))
    }

    /// Recovers the shard and starts its tasks. `None`: it is damaged, and refuses what it is asked.
    async fn run(self) -> Option<Box<dyn Running>> {
        let Self {
            shard,
            means,
            invited,
        } = self;
        let is_alone = means.neighbours.peers.is_none();
        let mut keeper = Keeper::new(Arc::clone(&shard), Arc::clone(&means), invited);
        if let Err(error) = keeper.begin().await {
            shard.tell_damage(&error);
            if is_alone {
                tokio::spawn(refuse(shard, Arc::clone(&means.listener)));
                return None;
            }
        }
        if !is_alone && let Some(op) = means.node_up::<M>() {
            shard.give(work(Ticket::NONE, op, true), OVERHEAD);
        }
        let server = Server::new(Arc::clone(&shard), &means);
        let mut tasks = vec![tokio::spawn(server.run())];
        if M::due().is_some() {
            let due = watch_deadlines(Arc::clone(&shard), Arc::clone(&means.listener));
            tasks.push(tokio::spawn(due));
        }
        if is_alone {
            served(&shard).await;
        }
        Some(Box::new(Served {
            shard,
            keeper: tokio::spawn(keeper.run()),
            tasks,
        }))
    }
}

impl<M: Kind> Running for Served<M> {
    fn finish(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            // Ends by itself when the store is told to stop.
            let keeper = self.keeper.await;
            let (done, all_done) = oneshot::channel();
            self.shard.queue.put(Work::Stop(done), 0);
            // An error: the server is gone, and with it what it had.
            let _ = all_done.await;
            for task in self.tasks {
                task.abort();
                let _ = task.await;
            }
            if let Ok(keeper) = keeper {
                keeper.finish().await;
            }
        })
    }
}

/// Proposes what a machine does by the passing of time, while this node leads.
async fn watch_deadlines<M: Kind>(shard: Arc<Shard<M>>, listener: Arc<dyn Listener>) {
    let mut look = tokio::time::interval(DUE_LOOK);
    loop {
        look.tick().await;
        if !shard.place.is_here() {
            continue;
        }
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

/// A shard, as far as other nodes are told of it.
pub(crate) trait Led: Send + Sync {
    /// What to tell a node, if this one leads the shard.
    fn lead(&self, receiver: u64) -> Option<Lead>;

    /// This node goes on as a new process would: what it had connected is closed.
    fn begin_anew(&self, incarnation: u64, listener: &dyn Listener);
}

impl<M: Kind> Led for Shard<M> {
    fn lead(&self, receiver: u64) -> Option<Lead> {
        let seat = *self.place.seat.borrow();
        let group = self.place.group.borrow().clone()?;
        if seat.leader != self.place.node {
            return None;
        }
        let standing = group.watch().borrow().clone();
        Some(Lead {
            store: M::NUMBER as u8,
            shard: self.number,
            reign: seat.reign,
            voters: standing.members.voters.into_iter().flatten().collect(),
            learners: standing.members.learners,
            incarnation: self.look(|machine| machine.incarnation(receiver))?,
        })
    }

    fn begin_anew(&self, incarnation: u64, listener: &dyn Listener) {
        self.end_with_node(listener);
        if let Some(op) = M::node_up(self.place.node, incarnation, listener.now_ms()) {
            self.give(work(Ticket::NONE, op, true), OVERHEAD);
        }
    }
}

/// The others have taken this node for dead: it goes on as a new process would.
pub(crate) fn go_on_as(
    incarnation: u64,
    folder: &Folder,
    neighbours: &Neighbours,
    listener: &dyn Listener,
    shards: impl Iterator<Item = Arc<dyn Led>>,
) {
    tracing::warn!(
        incarnation,
        "the other nodes have taken this one for dead; its clients have to connect again"
    );
    if let Err(error) = folder.raise_incarnation_to(incarnation) {
        return listener.failed(&error.to_string());
    }
    neighbours.set_incarnation(incarnation);
    for shard in shards {
        shard.begin_anew(incarnation, listener);
    }
    for loop_index in 0..listener.loops() {
        listener.mail(loop_index, vec![Event::Fenced]);
    }
}

/// What one of the threads does for the node as a whole.
pub(crate) struct Duties {
    pub(crate) means: Arc<Means>,
    pub(crate) shards: Vec<Arc<dyn Led>>,
}

/// What one thread of the store does.
pub(crate) struct Part {
    pub(crate) starts: Vec<StartShard>,
    pub(crate) duties: Option<Duties>,
    pub(crate) condition: watch::Receiver<Condition>,
    pub(crate) stopping: watch::Receiver<Stop>,
}

/// A thread of the store, from the start of its shards to their end.
pub(crate) fn run(part: Part, ready: impl FnOnce(Result<(), OpenError>)) {
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
    runtime.block_on(part.serve(ready));
}

impl Part {
    /// Starts the shards, says that they are `ready`, and serves until the store ends.
    pub(crate) async fn serve(self, ready: impl FnOnce(Result<(), OpenError>)) {
        let Self {
            starts,
            duties,
            mut condition,
            mut stopping,
        } = self;
        let mut running = Vec::new();
        for start in starts {
            tokio::select! {
                () = stays_full(&mut condition) => {
                    return ready(Err(OpenError::full_disk()));
                }
                started = start() => running.extend(started),
            }
        }
        if let Some(Duties { means, shards }) = duties {
            let listener = &means.listener;
            tokio::spawn(stay_alive(Arc::clone(&means.folder), Arc::clone(listener)));
            tokio::spawn(watch_log(condition, Arc::clone(listener)));
            if means.neighbours.peers.is_some() {
                tokio::spawn(herald(means, shards));
            }
        }
        ready(Ok(()));
        // An error: the store itself is gone.
        let _ = stopping.wait_for(|stop| *stop != Stop::No).await;
        for shard in running {
            shard.finish().await;
        }
    }
}

/// Tells the other nodes which shards this one leads.
async fn herald(means: Arc<Means>, shards: Vec<Arc<dyn Led>>) {
    let neighbours = &means.neighbours;
    let Some(peers) = &neighbours.peers else {
        return;
    };
    let node = means.folder.node();
    let mut condition = means.log.watch();
    let mut each = tokio::time::interval(HERALD);
    loop {
        tokio::select! {
            _ = each.tick() => {}
            () = neighbours.news() => {}
            // The log lives as long as the means.
            Ok(()) = condition.changed() => {}
        }
        for lead in shards.iter().filter_map(|shard| shard.lead(node)) {
            // Nobody else says so of a shard that this node leads by now.
            if lead.incarnation > neighbours.incarnation() {
                let all = shards.iter().cloned();
                go_on_as(
                    lead.incarnation,
                    &means.folder,
                    neighbours,
                    &*means.listener,
                    all,
                );
            }
            neighbours.heard(node, lead);
        }
        let health = neighbours.own_health(is_full(&condition.borrow()));
        let health = Message::Health(health).encode();
        for to in neighbours.linked() {
            peers.send(to, health.clone());
            let leads: Vec<Lead> = shards.iter().filter_map(|shard| shard.lead(to)).collect();
            if !leads.is_empty() {
                peers.send(to, Message::Leads(leads).encode());
            }
        }
    }
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
