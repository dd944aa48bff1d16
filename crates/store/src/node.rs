//! The store of one node: opening, recovery, and where requests go.

use std::fmt;
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use consensus::{Condition, Log, LogOptions, LogStats};
use mqtt_session::{ApplicationMessage, Timestamp};
use parking_lot::Mutex;
use store_state::Ticket;
use store_state::inbox::{InboxMachine, InboxOp, Origin};
use store_state::retain::{PageBudget, RetainMachine, RetainOp};
use store_state::session::{SessionMachine, SessionOp};
use tokio::sync::{mpsc, watch};

use crate::folder::{Folder, FolderError};
use crate::kind::Kind;
use crate::later::Debts;
use crate::map::{ShardMap, ShardNumber};
use crate::neighbours::{Member, Neighbours};
use crate::peers::{Lead, Message, Peers};
use crate::retained::{PageRequest, RetainMark, RetainedPlace, Selection, Wanted};
use crate::shard::{Place, Seat, Shard, Work};
use crate::starting::{Duties, Led, Means, Part, Start, StartShard, go_on_as, run, weigh, work};
use crate::tables::{Tables, TablesOptions};
use crate::{Listener, Read};

/// How long a shutdown waits for the log when space was given up for it.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// How often is looked meanwhile.
const ROOM_LOOK: Duration = Duration::from_millis(5);

/// Settings of the store.
#[derive(Clone)]
pub struct Options {
    /// Folders of the three stores (session, inbox, retain) if they are not in the data folder.
    pub folders: [Option<PathBuf>; 3],
    /// Shards that each store begins with.
    pub shards: [u16; 3],
    /// Threads that shards live on.
    pub threads: usize,
    /// Replicas of each shard that vote, if the settings say how many.
    pub voters: [Option<NonZeroU8>; 3],
    /// The time after which a node that is down is replaced as a voter.
    pub replace_after: Duration,
    /// The other nodes; `None`: this one is alone.
    pub cluster: Option<Cluster>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folders: [const { None }; 3],
            shards: [1; 3],
            threads: 1,
            voters: [None; 3],
            replace_after: Duration::from_secs(600),
            cluster: None,
        }
    }
}

/// How the store takes part in a cluster.
#[derive(Clone)]
pub struct Cluster {
    /// The way to the other nodes.
    pub peers: Arc<dyn Peers>,
    /// Whether this node founds the cluster. One that has joined waits until it is given shards.
    pub founds: bool,
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
    pub(crate) fn full_disk() -> Self {
        Self("the disk is full: the start cannot be recorded".to_owned())
    }
}

impl From<FolderError> for OpenError {
    fn from(error: FolderError) -> Self {
        because("the data folder")(error)
    }
}

pub(crate) fn because<E: fmt::Display>(what: &str) -> impl Fn(E) -> OpenError {
    move |error| OpenError(format!("{what}: {error}"))
}

/// The store of this node. Cheap to share; requests can be given from any thread.
pub struct Store {
    session: ShardSet<SessionMachine>,
    inbox: ShardSet<InboxMachine>,
    retain: ShardSet<RetainMachine>,
    crowded: Arc<AtomicBool>,
    neighbours: Arc<Neighbours>,
    folder: Arc<Folder>,
    log: Arc<Log>,
    condition: watch::Receiver<Condition>,
    stop: watch::Sender<Stop>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("node", &self.node())
            .field("incarnation", &self.incarnation())
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
    /// Tell the keepers that they are wanted.
    invite: Vec<mpsc::Sender<()>>,
    /// Set by whoever gives a crowded shard of any store more; cleared by [`Store::is_crowded`].
    crowded: Arc<AtomicBool>,
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
    /// Publications of QoS 0, and of clean sessions of QoS 2, that inbox shards would not record again.
    pub remembered_calls: u64,
    /// Publishers of which they would record nothing that earlier connections have sent.
    pub remembered_fences: u64,
    /// Wills and messages of ended sessions that they would not record again, or have not recorded yet.
    pub remembered_origins: u64,
    /// Retained messages.
    pub retained_messages: u64,
    /// Bytes of these.
    pub retained_bytes: u64,
    /// Wills of which the retain shards remember that they have kept them.
    pub retained_wills: u64,
    /// Wills of connections that were taken over, and that may have been discarded.
    pub held_wills: u64,
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
    /// Shards that this node leads.
    pub led: u64,
    /// Requests sent to the nodes that lead their shards, also again.
    pub forwarded: u64,
    /// Of these, those that are not answered yet.
    pub outstanding: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Bytes of these.
    pub checkpoint_bytes: u64,
}

impl<M: Kind> ShardSet<M> {
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

    fn propose(&self, shard: ShardNumber, ticket: Ticket, op: M::Op) {
        let must_wait = M::must_wait(&op, ticket);
        let bytes = weigh(&op);
        self.put(shard, work(ticket, op, must_wait), bytes);
    }

    /// As [`propose`](Self::propose), for what can wait a little.
    fn propose_patiently(&self, shard: ShardNumber, op: M::Op) {
        let must_wait = M::must_wait(&op, Ticket::NONE);
        if let Some(shard) = self.shards.get(usize::from(shard)) {
            let bytes = weigh(&op);
            shard.give_patient(work(Ticket::NONE, op, must_wait), bytes);
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
            let is_alone = shard.place.peers.is_none();
            sum.stopped += u64::from(is_alone && shard.look(|_| ()).is_none());
            sum.led += u64::from(shard.place.is_here());
            sum.forwarded += stats.forwarded.load(Ordering::Relaxed);
            sum.outstanding += shard.place.sent.lock().len() as u64;
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

    /// Of the shards that are served here, so that each counts on one node.
    fn sum(&self, look: impl Fn(&M) -> u64) -> u64 {
        let here = self.shards.iter().filter(|shard| shard.place.is_here());
        here.filter_map(|shard| shard.look(&look)).sum()
    }

    fn leader(&self, number: ShardNumber) -> Option<u64> {
        let seat = *self.get(number)?.place.seat.borrow();
        (seat.is_reachable && seat.leader != 0).then_some(seat.leader)
    }

    fn get(&self, number: ShardNumber) -> Option<&Shard<M>> {
        self.shards.get(usize::from(number)).map(|shard| &**shard)
    }

    /// A node says that it leads a shard.
    fn lead(&self, node: u64, lead: &Lead, is_linked: bool) {
        if let Some(shard) = self.get(lead.shard) {
            shard.place.seat.send_if_modified(|seat| {
                let is_news =
                    lead.reign > seat.reign || lead.reign == seat.reign && seat.leader == 0;
                if is_news {
                    *seat = Seat {
                        leader: node,
                        reign: lead.reign,
                        is_reachable: is_linked,
                        way: seat.way + 1,
                    };
                }
                is_news
            });
        }
    }

    /// The way to a node, or back, is open anew, or closed.
    fn way(&self, node: u64, is_open: bool) {
        for shard in &self.shards {
            shard.place.seat.send_if_modified(|seat| {
                let concerns = seat.leader == node;
                if concerns {
                    seat.is_reachable = is_open;
                    seat.way += 1;
                }
                concerns
            });
        }
    }
}

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
        let (store, parts) = Self::prepare(folder, log, options, listener)?;
        *store.threads.lock() = start_threads(parts)?;
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
        let (store, parts) = Self::prepare(folder, log, options, listener)?;
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
    ) -> Result<(Self, Vec<Part>), OpenError> {
        let folder = Arc::new(folder);
        let log = Arc::new(log);
        let (stop, stopping) = watch::channel(Stop::No);
        let peers = options
            .cluster
            .as_ref()
            .map(|cluster| Arc::clone(&cluster.peers));
        let neighbours = Arc::new(Neighbours::new(peers, folder.incarnation()));
        let has_founded = folder.has_founded();
        let founds = options
            .cluster
            .as_ref()
            .is_none_or(|cluster| cluster.founds);
        let places = [
            StoreFolder::open::<SessionMachine>(&folder, options)?,
            StoreFolder::open::<InboxMachine>(&folder, options)?,
            StoreFolder::open::<RetainMachine>(&folder, options)?,
        ];
        let means = Arc::new(Means {
            tables: places.each_ref().map(|place| Arc::clone(&place.tables)),
            log: Arc::clone(&log),
            listener: Arc::clone(listener),
            folder: Arc::clone(&folder),
            stopping: stopping.clone(),
            debts: Debts::default(),
            neighbours: Arc::clone(&neighbours),
            founds: founds && !has_founded,
            voters: options.voters,
            replace_after: options.replace_after,
        });
        let mut opener = Opener {
            means: Arc::clone(&means),
            crowded: Arc::default(),
            starts: (0..options.threads.max(1)).map(|_| Vec::new()).collect(),
            led: Vec::new(),
            next: 0,
        };
        let [session, inbox, retain] = places.map(|place| place.map);
        let session = opener.shards::<SessionMachine>(session);
        let inbox = opener.shards::<InboxMachine>(inbox);
        let retain = opener.shards::<RetainMachine>(retain);
        let parts = opener.parts(&stopping);
        let store = Self {
            session,
            inbox,
            retain,
            crowded: opener.crowded,
            neighbours,
            folder,
            condition: log.watch(),
            log,
            stop,
            threads: Mutex::default(),
        };
        Ok((store, parts))
    }

    /// What the replicas here hold.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn replicas(&self) -> Vec<crate::Replica> {
        let mut replicas = self.session.replicas();
        replicas.extend(self.inbox.replicas());
        replicas.extend(self.retain.replicas());
        replicas
    }

    /// Before a simulated crash: lets go of what holds itself.
    #[cfg(feature = "simulation")]
    pub fn abandon(&self) {
        self.session.abandon();
        self.inbox.abandon();
        self.retain.abandon();
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
        self.folder.node()
    }

    /// Counts the starts of this node, and how often it was taken for dead.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.neighbours.incarnation()
    }

    /// How many session shards there are.
    #[must_use]
    pub fn session_shards(&self) -> u16 {
        self.session.map.len()
    }

    /// The session shard of a client.
    #[must_use]
    pub fn session_shard(&self, client: &str) -> ShardNumber {
        self.session.of(client)
    }

    /// The node that leads a session shard, if it can be reached, and the term in which it does.
    #[must_use]
    pub fn session_leader(&self, shard: ShardNumber) -> Option<(u64, u64)> {
        let seat = *self.session.get(shard)?.place.seat.borrow();
        seat.is_reachable.then_some((seat.leader, seat.reign.term))
    }

    /// Gives the session store a request about a client.
    pub fn session(&self, client: &str, ticket: Ticket, op: SessionOp) {
        self.session.propose(self.session.of(client), ticket, op);
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

    /// Whether a client's session belongs to another user than this one, as far as this node knows; `None`: an
    /// anonymous client.
    #[must_use]
    pub fn is_of_another_user(&self, client: &str, user: Option<&str>) -> bool {
        let shard = self
            .session
            .shards
            .get(usize::from(self.session.of(client)));
        shard.is_some_and(|shard| {
            shard.look(|machine| machine.is_of_another(client, user)) == Some(true)
        })
    }

    /// How many inbox shards there are.
    #[must_use]
    pub fn inbox_shards(&self) -> u16 {
        self.inbox.map.len()
    }

    /// The node that leads an inbox shard, as far as it is known.
    #[must_use]
    pub fn inbox_leader(&self, shard: ShardNumber) -> Option<u64> {
        let seat = *self.inbox.get(shard)?.place.seat.borrow();
        Some(seat.leader).filter(|node| *node != 0)
    }

    /// The inbox shard of a client.
    #[must_use]
    pub fn inbox_shard(&self, client: &str) -> ShardNumber {
        self.inbox.of(client)
    }

    /// Gives an inbox shard a request. It weighs what it is when it is written; one that is longer than a
    /// shard takes is refused with [`Failure::TooLong`](crate::Failure::TooLong).
    pub fn inbox(&self, shard: ShardNumber, ticket: Ticket, op: InboxOp) {
        self.inbox.propose(shard, ticket, op);
    }

    /// Tells an inbox shard what a session has done with its messages, or been given of retained ones. It is
    /// recorded with the next request, or after a moment: what a crash loses of it is sent again, as may be
    /// sent twice.
    pub fn acknowledge(&self, shard: ShardNumber, op: InboxOp) {
        self.inbox.propose_patiently(shard, op);
    }

    /// Asks an inbox shard for pages of a queue.
    pub fn read(&self, shard: ShardNumber, read: Read) {
        self.inbox
            .put(shard, Work::Read(0, read), size_of::<Read>());
    }

    /// Gives the retain store a message. `will`: the origin, if it is a will. It is kept once, and on a full disk it
    /// waits: no client would publish it again.
    pub fn retain(&self, ticket: Ticket, message: Arc<ApplicationMessage>, will: Option<Origin>) {
        let shard = self.retain.of(message.body.topic());
        let must_wait = will.is_some();
        let op = match will {
            Some(origin) => RetainOp::SetWill { message, origin },
            None => RetainOp::Set { message },
        };
        let bytes = weigh(&op);
        self.retain.put(shard, work(ticket, op, must_wait), bytes);
    }

    /// Has [`Event::Passed`](crate::Event::Passed) sent by each retain shard when everything is applied
    /// that was given to it before.
    pub fn retain_barrier(&self, ticket: Ticket) {
        for number in 0..self.retain.map.len() {
            self.retain.put(number, Work::Barrier(ticket), 0);
        }
    }

    /// Has [`Event::Passed`](crate::Event::Passed) sent by each inbox shard when everything is applied that was
    /// given to it before.
    pub fn inbox_barrier(&self, ticket: Ticket) {
        for number in 0..self.inbox.map.len() {
            self.inbox.put(number, Work::Barrier(ticket), 0);
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

    /// What has been given to the retain store here until now.
    #[must_use]
    pub fn retain_mark(&self) -> RetainMark {
        let shards = self.retain.shards.iter();
        RetainMark(shards.map(|shard| shard.given()).collect())
    }

    /// Whether all that was given to the retain store here by then is applied, or refused.
    #[must_use]
    pub fn has_reached(&self, mark: &RetainMark) -> bool {
        let mut shards = self.retain.shards.iter().zip(&mark.0);
        shards.all(|(shard, given)| shard.has_finished(*given))
    }

    /// A page of the retained messages that a filter selects, which takes its part of `budget`, and where the
    /// next one begins. `from`: where the last one said; `None`: the first. A page may hold no message, and yet
    /// not be the last. Only if this node is alone, and so has all there is.
    #[must_use]
    pub fn retained(
        &self,
        filter: &str,
        from: Option<RetainedPlace>,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> (Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>) {
        let selection = self.selection(filter, from);
        let page = self.retain.get(selection.place.shard).and_then(|shard| {
            shard
                .look(|machine| machine.retained(&selection, budget, now))
                .flatten()
        });
        let (messages, cursor) = page.unwrap_or_default();
        (messages, selection.next(cursor))
    }

    /// The shard that has the next page of what a filter selects. `from`: where the last page said; `None`: the
    /// first.
    #[must_use]
    pub fn retained_shard(&self, filter: &str, from: Option<&RetainedPlace>) -> ShardNumber {
        match from {
            Some(place) => place.shard,
            None => self.shards_of(filter).0,
        }
    }

    /// Asks a shard for such pages, of `limit` messages together at most: [`Event::Retained`](crate::Event::Retained)
    /// brings those of the first filters. They have what was acknowledged before, by whichever node, and what was
    /// given to the retain store here before, and hold 256 KiB and one message at most. `wanted`: filters of which
    /// the shard has the next page, and where that begins.
    pub fn ask_retained<'a>(
        &self,
        ticket: Ticket,
        shard: ShardNumber,
        wanted: impl IntoIterator<Item = (&'a str, Option<RetainedPlace>)>,
        limit: usize,
        now: Timestamp,
    ) {
        let selections = wanted
            .into_iter()
            .map(|(filter, from)| self.selection(filter, from));
        let wanted = Wanted {
            selections: selections.collect(),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            now_ms: now.0,
        };
        let bytes = weigh(&wanted);
        self.retain
            .put(shard, Work::Page(PageRequest { ticket, wanted }), bytes);
    }

    /// Whether retained messages have to be asked for.
    #[must_use]
    pub fn has_neighbours(&self) -> bool {
        self.neighbours.peers.is_some()
    }

    fn selection(&self, filter: &str, from: Option<RetainedPlace>) -> Selection {
        let (first, last_shard) = self.shards_of(filter);
        Selection {
            filter: filter.into(),
            place: from.unwrap_or_else(|| RetainedPlace::first_of(first)),
            last_shard,
        }
    }

    /// The first and the last shard that can have retained messages of a filter.
    fn shards_of(&self, filter: &str) -> (ShardNumber, ShardNumber) {
        if filter.contains(['+', '#']) {
            (0, self.retain.map.len() - 1)
        } else {
            let shard = self.retain.of(filter);
            (shard, shard)
        }
    }

    /// The membership has changed, or who of the members can be reached.
    pub fn members(&self, members: Vec<Member>) {
        self.neighbours.members.send_replace(members.into());
    }

    /// Messages can be sent to a node, or not any more; what was sent before may be lost.
    pub fn linked(&self, node: u64, is_up: bool) {
        self.neighbours.link(node, is_up);
        self.way(node, is_up);
        self.neighbours.tell();
    }

    /// Whether messages can be sent to a node.
    #[must_use]
    pub fn is_linked(&self, node: u64) -> bool {
        self.neighbours.is_linked(node)
    }

    /// What a node has sent to this one may be lost.
    pub fn interrupted(&self, node: u64) {
        self.way(node, self.neighbours.is_linked(node));
    }

    fn way(&self, node: u64, is_open: bool) {
        self.session.way(node, is_open);
        self.inbox.way(node, is_open);
        self.retain.way(node, is_open);
    }

    /// A message of the store of another node has come.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn received(
        &self,
        listener: &dyn Listener,
        from: u64,
        message: &[u8],
    ) -> Result<(), String> {
        match Message::decode(message)? {
            Message::Session(work) => {
                let shard = self.session.get(work.shard).ok_or("no such shard")?;
                shard.take_on(from, work);
            }
            Message::Inbox(work) => {
                let shard = self.inbox.get(work.shard).ok_or("no such shard")?;
                shard.take_on(from, work);
            }
            Message::Retain(work) => {
                let shard = self.retain.get(work.shard).ok_or("no such shard")?;
                shard.take_on(from, work);
            }
            Message::Mail(mail) => {
                let (store, number) = (u64::from(mail.store), mail.shard);
                if store == SessionMachine::NUMBER
                    && let Some(shard) = self.session.get(number)
                {
                    shard.delivered(listener, mail);
                } else if store == InboxMachine::NUMBER
                    && let Some(shard) = self.inbox.get(number)
                {
                    shard.delivered(listener, mail);
                } else if store == RetainMachine::NUMBER
                    && let Some(shard) = self.retain.get(number)
                {
                    shard.delivered(listener, mail);
                }
            }
            Message::Leads(leads) => {
                for lead in leads {
                    self.lead(listener, from, lead);
                }
            }
            Message::Health(health) => self.neighbours.heard_health(from, health),
        }
        Ok(())
    }

    fn lead(&self, listener: &dyn Listener, from: u64, lead: Lead) {
        if lead.incarnation > self.incarnation() {
            let session = self
                .session
                .shards
                .iter()
                .map(|shard| Arc::clone(shard) as Arc<dyn Led>);
            let inbox = self
                .inbox
                .shards
                .iter()
                .map(|shard| Arc::clone(shard) as Arc<dyn Led>);
            let (folder, neighbours) = (&self.folder, &self.neighbours);
            go_on_as(
                lead.incarnation,
                folder,
                neighbours,
                listener,
                session.chain(inbox),
            );
        }
        let is_linked = self.neighbours.is_linked(from);
        if self.neighbours.heard(from, lead.clone()) {
            match u64::from(lead.store) {
                SessionMachine::NUMBER => self.session.lead(from, &lead, is_linked),
                InboxMachine::NUMBER => self.inbox.lead(from, &lead, is_linked),
                RetainMachine::NUMBER => self.retain.lead(from, &lead, is_linked),
                _ => {}
            }
        }
    }

    /// A request of the replica of a group on another node; the answer to it, or `None`: there is no
    /// replica here yet.
    pub async fn handle(&self, group: u64, request: Bytes) -> Option<Bytes> {
        let (store, number) = (
            group >> 32,
            u16::try_from((group & 0xFFFF_FFFF).checked_sub(1)?).ok()?,
        );
        match store {
            SessionMachine::NUMBER => self.session.handle(number, request).await,
            InboxMachine::NUMBER => self.inbox.handle(number, request).await,
            RetainMachine::NUMBER => self.retain.handle(number, request).await,
            _ => None,
        }
    }

    /// Who leads each shard, and with which replicas, as far as this node knows.
    #[must_use]
    pub fn leads(&self) -> Vec<(u64, Lead)> {
        self.neighbours.leads()
    }

    /// The node that leads a shard (as [`Lead`] names it), if it can be reached from here.
    #[must_use]
    pub fn leader(&self, store: u8, shard: ShardNumber) -> Option<u64> {
        match u64::from(store) {
            SessionMachine::NUMBER => self.session.leader(shard),
            InboxMachine::NUMBER => self.inbox.leader(shard),
            RetainMachine::NUMBER => self.retain.leader(shard),
            _ => None,
        }
    }

    /// The shards, as [`Lead`] names them, that no node leads: for `time`, as far as this one is told. On a node that is
    /// alone: those that do not serve.
    #[must_use]
    pub fn without_leader(&self, time: Duration) -> Vec<(u8, ShardNumber)> {
        let is_led = |store, shard| match self.neighbours.peers {
            Some(_) => !self.neighbours.lacks_lead((store, shard), time),
            None => self.leader(store, shard).is_some(),
        };
        (0..)
            .zip(self.shard_counts())
            .flat_map(|(store, count)| (0..count).map(move |shard| (store, shard)))
            .filter(|(store, shard)| !is_led(*store, *shard))
            .collect()
    }

    /// Has another voter lead a shard (as [`Lead`] names it) that this node leads.
    ///
    /// # Errors
    /// This node does not lead it, or `to` is no voter.
    pub async fn transfer_leader(
        &self,
        store: u8,
        shard: ShardNumber,
        to: u64,
    ) -> Result<(), String> {
        let group = match u64::from(store) {
            SessionMachine::NUMBER => self.session.group(shard),
            InboxMachine::NUMBER => self.inbox.group(shard),
            RetainMachine::NUMBER => self.retain.group(shard),
            _ => None,
        };
        let group = group.ok_or("there is no replica of that shard here")?;
        group
            .transfer_leader(to)
            .await
            .map_err(|error| error.to_string())
    }

    /// How many shards each store was made with.
    #[must_use]
    pub fn shard_counts(&self) -> [u16; 3] {
        [
            self.session.map.len(),
            self.inbox.map.len(),
            self.retain.map.len(),
        ]
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
            remembered_calls: self.inbox.sum(|machine| machine.counts().calls as u64),
            remembered_fences: self.inbox.sum(|machine| machine.counts().fences as u64),
            remembered_origins: self.inbox.sum(|machine| {
                let counts = machine.counts();
                (counts.origins + counts.released_origins) as u64
            }),
            retained_messages: self.retain.sum(|machine| machine.size().0),
            retained_bytes: self.retain.sum(|machine| machine.size().1),
            retained_wills: self.retain.sum(|machine| machine.wills() as u64),
            held_wills: self.session.sum(|machine| machine.counts().held as u64),
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
        // What this did not need of the space that was given up is for the next start.
        self.folder.reserve().keep();
    }
}

impl<M: Kind> ShardSet<M> {
    #[cfg(feature = "simulation")]
    fn replicas(&self) -> Vec<crate::Replica>
    where
        M: crate::simulation::Describe,
    {
        let replicas = self.shards.iter().map(|shard| shard.replica());
        replicas.flatten().collect()
    }

    #[cfg(feature = "simulation")]
    fn abandon(&self) {
        for shard in &self.shards {
            shard.place.group.send_replace(None);
        }
    }

    fn group(&self, number: ShardNumber) -> Option<Arc<consensus::Group<crate::command::Command>>> {
        self.get(number)?.place.group.borrow().clone()
    }

    async fn handle(&self, number: ShardNumber, request: Bytes) -> Option<Bytes> {
        if let Some(group) = self.group(number) {
            return Some(group.handle(request).await);
        }
        if let Some(invite) = self.invite.get(usize::from(number)) {
            // Full: it has been told.
            let _ = invite.try_send(());
        }
        None
    }
}

/// The folder of one store.
struct StoreFolder {
    map: ShardMap,
    tables: Arc<Tables>,
}

impl StoreFolder {
    fn open<M: Kind>(folder: &Folder, options: &Options) -> Result<Self, OpenError> {
        let index = M::NUMBER as usize;
        let elsewhere = options.folders.get(index).cloned().flatten();
        let path = folder
            .store(M::NAME, elsewhere.as_deref())
            .map_err(because("the data folder"))?;
        let initial = options.shards.get(index).copied().unwrap_or(1);
        let map =
            ShardMap::open(&path, initial, folder.name_hash()).map_err(because("the shard map"))?;
        let tables = Tables::open(&path, TablesOptions::default()).map_err(because(M::NAME))?;
        Ok(Self {
            map,
            tables: Arc::new(tables),
        })
    }
}

/// Prepares the shards of all stores and deals them to threads.
struct Opener {
    means: Arc<Means>,
    crowded: Arc<AtomicBool>,
    starts: Vec<Vec<StartShard>>,
    led: Vec<Arc<dyn Led>>,
    next: usize,
}

impl Opener {
    fn shards<M: Kind>(&mut self, map: ShardMap) -> ShardSet<M> {
        let mut set = ShardSet {
            map,
            shards: Vec::new(),
            invite: Vec::new(),
            crowded: Arc::clone(&self.crowded),
        };
        for number in 0..map.len() {
            let peers = self.means.neighbours.peers.clone();
            let place = Place::new(self.means.folder.node(), peers);
            let shard = Shard::<M>::new(number, map.slots(number), place);
            let (invite, invited) = mpsc::channel(1);
            let start = Start {
                shard: Arc::clone(&shard),
                means: Arc::clone(&self.means),
                invited,
            };
            let thread = self.next % self.starts.len();
            self.next += 1;
            if let Some(starts) = self.starts.get_mut(thread) {
                starts.push(start.boxed());
            }
            self.led.push(Arc::clone(&shard) as _);
            set.shards.push(shard);
            set.invite.push(invite);
        }
        set
    }

    /// What each of the threads is to do.
    fn parts(&mut self, stopping: &watch::Receiver<Stop>) -> Vec<Part> {
        let starts = std::mem::take(&mut self.starts);
        let part = |(number, starts)| Part {
            starts,
            duties: (number == 0).then(|| Duties {
                means: Arc::clone(&self.means),
                shards: std::mem::take(&mut self.led),
            }),
            condition: self.means.log.watch(),
            stopping: stopping.clone(),
        };
        starts.into_iter().enumerate().map(part).collect()
    }
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

/// Starts the threads, and waits until their shards have started.
fn start_threads(parts: Vec<Part>) -> Result<Vec<std::thread::JoinHandle<()>>, OpenError> {
    let mut threads = Vec::new();
    let mut ready = Vec::new();
    for (number, part) in parts.into_iter().enumerate() {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        ready.push(told);
        let tell = move |outcome| {
            // An error: whoever waited is gone, and with it the store, which ends the thread.
            let _ = tell.send(outcome);
        };
        let thread = std::thread::Builder::new()
            .name(format!("store-{number}"))
            .spawn(move || run(part, tell))
            .map_err(because("a thread"))?;
        threads.push(thread);
    }
    for told in ready {
        // A thread that ends before it is ready has said why.
        told.recv()
            .map_err(because("a thread of the store has ended"))??;
    }
    Ok(threads)
}

pub(crate) fn is_full(condition: &Condition) -> bool {
    *condition == Condition::Full
}

#[cfg(test)]
mod tests;
