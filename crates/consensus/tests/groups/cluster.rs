//! Several nodes in one runtime, with a network and a clock that tests control.
//!
//! The clock stands while any node's log has something to write, so that a slow machine is no slow disk.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use consensus::simulation::{Chance, Loss, SimulatedDisk};
use consensus::{
    Birth, ChangeError, Condition, Group, GroupOptions, Log, LogError, LogOptions, Network,
    Proposal, ProposeError, Standing, StateMachine, Unreachable,
};
use futures_util::future::BoxFuture;
use tokio::runtime::Builder;
use tokio::task::{LocalSet, yield_now};
use tokio::time::{advance, sleep, timeout};

use crate::ledger::{Ledger, Note, Scratch, open};

/// The only group of each cluster.
const GROUP: u64 = 1;

/// How far the clock goes at once.
const STEP: Duration = Duration::from_millis(10);

/// Nothing here takes that long, by the simulated clock.
const LONG: Duration = Duration::from_secs(120);

/// What the network does to requests and answers.
#[derive(Default)]
struct Weather {
    groups: BTreeMap<u64, Arc<Group<Note>>>,
    /// From one node to another: nothing arrives.
    cut: BTreeSet<(u64, u64)>,
    /// Of a hundred, how many are lost.
    lost: usize,
    /// Milliseconds that one takes, at most.
    delay: usize,
    /// How many parts of snapshots still arrive.
    bulk_left: Option<usize>,
    bulk_seen: usize,
    chance: Option<Chance>,
}

#[derive(Clone, Default)]
struct Air(Arc<Mutex<Weather>>);

/// A node's way into the network.
struct Port {
    air: Air,
    node: u64,
}

impl Air {
    fn weather(&self) -> MutexGuard<'_, Weather> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long something takes from one node to another; `None`: it is lost.
    fn way(&self, from: u64, to: u64) -> Option<Duration> {
        let mut weather = self.weather();
        let (lost, delay) = (weather.lost, weather.delay);
        let is_cut = weather.cut.contains(&(from, to));
        let chance = weather.chance.get_or_insert(Chance(1));
        let is_lost = chance.below(100) < lost;
        let milliseconds = chance.below(delay + 1) as u64;
        (!is_cut && !is_lost).then_some(Duration::from_millis(milliseconds))
    }

    /// Whether one more part of a snapshot may pass.
    fn lets_bulk(&self) -> bool {
        let mut weather = self.weather();
        weather.bulk_seen += 1;
        match &mut weather.bulk_left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    async fn carry(self, from: u64, to: u64, bulk: bool, request: Bytes) -> Option<Bytes> {
        sleep(self.way(from, to)?).await;
        if bulk && !self.lets_bulk() {
            return None;
        }
        let group = self.weather().groups.get(&to).cloned()?;
        let answer = group.handle(request).await;
        drop(group);
        sleep(self.way(to, from)?).await;
        Some(answer)
    }
}

impl Network for Port {
    fn call(
        &self,
        node: u64,
        group: u64,
        bulk: bool,
        request: Bytes,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unreachable>> {
        assert_eq!(group, GROUP);
        // It is handled though the caller may not wait for it.
        let carried = tokio::spawn(self.air.clone().carry(self.node, node, bulk, request));
        Box::pin(async move {
            let lost = || Unreachable("lost".to_owned());
            match timeout(limit, carried).await {
                Ok(Ok(Some(answer))) => Ok(answer),
                _ => {
                    // Nobody is told at once that something is lost.
                    sleep(Duration::from_millis(1)).await;
                    Err(lost())
                }
            }
        })
    }
}

/// A node across crashes.
pub(crate) struct Node {
    scratch: Scratch,
    pub(crate) disk: SimulatedDisk,
    pub(crate) ledger: RefCell<Ledger>,
    log: RefCell<Option<Log>>,
    group: RefCell<Option<Arc<Group<Note>>>>,
}

/// Nodes 1, 2, …
pub(crate) struct Cluster {
    air: Air,
    pub(crate) nodes: BTreeMap<u64, Node>,
    options: GroupOptions,
    /// Who led, by term.
    leaders: RefCell<BTreeMap<u64, u64>>,
    pub(crate) acknowledged: RefCell<Vec<u64>>,
    next: Cell<u64>,
}

impl Cluster {
    /// Runs a test with this many nodes, of which none has been started.
    pub(crate) fn run<F: Future<Output = ()> + 'static>(
        nodes: u64,
        options: GroupOptions,
        test: impl FnOnce(Rc<Self>) -> F,
    ) {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        let cluster = Rc::new(Self {
            air: Air::default(),
            nodes: (1..=nodes).map(|number| (number, Node::new())).collect(),
            options,
            leaders: RefCell::default(),
            acknowledged: RefCell::default(),
            next: Cell::new(0),
        });
        let local = LocalSet::new();
        let test = local.run_until({
            let test = test(cluster.clone());
            async move {
                let test = tokio::task::spawn_local(test);
                while !test.is_finished() {
                    cluster.settle().await;
                    advance(STEP).await;
                }
                let outcome = test.await;
                for number in cluster.nodes.keys() {
                    cluster.stop(*number).await;
                }
                outcome
            }
        });
        if let Err(ended) = runtime.expect("a runtime").block_on(test) {
            std::panic::resume_unwind(ended.into_panic());
        }
    }

    /// Until no node has anything to do but wait.
    async fn settle(&self) {
        loop {
            for _ in 0..15 {
                yield_now().await;
            }
            let is_busy = |node: &Node| {
                let log = node.log.borrow();
                log.as_ref().is_some_and(|log| {
                    // A full disk may stay full.
                    let works = *log.watch().borrow() == Condition::Working;
                    works && log.stats().waiting_requests > 0
                })
            };
            if !self.nodes.values().any(is_busy) {
                return self.note_leaders();
            }
            std::thread::yield_now();
        }
    }

    /// There is one leader in each term.
    fn note_leaders(&self) {
        for number in self.nodes.keys() {
            let Some(standing) = self.standing(*number) else {
                continue;
            };
            if standing.leads {
                let mut leaders = self.leaders.borrow_mut();
                let leader = *leaders.entry(standing.term).or_insert(*number);
                assert_eq!(leader, *number, "two lead in term {}", standing.term);
            }
        }
    }

    pub(crate) fn standing(&self, number: u64) -> Option<Standing> {
        let group = self.nodes[&number].group.borrow();
        group.as_ref().map(|group| group.watch().borrow().clone())
    }

    /// The nodes that believe that they lead.
    pub(crate) fn leading(&self) -> Vec<u64> {
        let leads = |number: &&u64| self.standing(**number).is_some_and(|now| now.leads);
        self.nodes.keys().filter(leads).copied().collect()
    }

    pub(crate) fn group(&self, number: u64) -> Arc<Group<Note>> {
        let group = self.nodes[&number].group.borrow();
        group.clone().expect("the node runs")
    }

    /// Waits for something, and says in vain for what.
    pub(crate) async fn until(&self, what: &str, is: impl Fn() -> bool) {
        let waited = timeout(LONG, async {
            while !is() {
                sleep(STEP).await;
            }
        });
        if waited.await.is_err() {
            let standings: Vec<_> = self.nodes.keys().map(|node| self.standing(*node)).collect();
            let progress: Vec<_> = self
                .nodes
                .values()
                .map(|node| {
                    let group = node.group.borrow();
                    group.as_ref().and_then(|group| group.progress())
                })
                .collect();
            let seen = self.bulk_seen();
            panic!("in vain for this: {what}; {progress:?}, {seen} chunks, {standings:#?}");
        }
    }

    /// Waits until somebody leads of whom all that run and hear each other know.
    pub(crate) async fn leader(&self) -> u64 {
        self.until("a leader", || self.leading().len() == 1).await;
        self.leading()[0]
    }

    pub(crate) async fn leader_but(&self, other: u64) -> u64 {
        let another = || self.leading().into_iter().find(|number| *number != other);
        self.until("another leader", || another().is_some()).await;
        another().expect("there was one")
    }

    /// Small files, deleted as soon as possible.
    fn log_options(&self, number: u64) -> LogOptions {
        LogOptions {
            file_bytes: 8 << 10,
            disk_bytes: 24 << 10,
            purge_interval: Duration::ZERO,
            ..self.nodes[&number].scratch.options()
        }
    }

    pub(crate) async fn start(&self, number: u64, birth: Birth) -> Result<(), String> {
        let node = &self.nodes[&number];
        let log = open(&self.log_options(number), &node.disk).map_err(|error| error.to_string())?;
        let ledger = node.ledger.borrow().clone();
        let port = Arc::new(Port {
            air: self.air.clone(),
            node: number,
        });
        let started = Group::start(GROUP, number, &log, ledger, port, birth, &self.options).await;
        let group = Arc::new(started.map_err(|error| error.to_string())?);
        self.air.weather().groups.insert(number, group.clone());
        node.log.replace(Some(log));
        node.group.replace(Some(group));
        Ok(())
    }

    /// Ends a node's process. Its tables stay as they were at their last checkpoint.
    pub(crate) async fn stop(&self, number: u64) {
        let node = &self.nodes[&number];
        let Some(mut group) = node.group.take() else {
            return;
        };
        self.air.weather().groups.remove(&number);
        // Requests that are handled hold it.
        let group = loop {
            match Arc::try_unwrap(group) {
                Ok(group) => break group,
                Err(shared) => group = shared,
            }
            sleep(STEP).await;
        };
        group.shutdown().await;
        node.log.take();
        let left = node.ledger.borrow().after_crash();
        node.ledger.replace(left);
    }

    /// Takes a node's power away.
    pub(crate) async fn crash(&self, number: u64) {
        self.nodes[&number].disk.fail_power_after(0);
        self.stop(number).await;
    }

    pub(crate) async fn restart(&self, number: u64, loss: Loss, seed: u64) -> Result<(), String> {
        self.nodes[&number].disk.restart(loss, seed);
        // Tasks of the last life hold its folder until they have ended.
        for _ in 0..1_000 {
            match self.start(number, Birth::Invited).await {
                Err(error) if error.contains("another process") => yield_now().await,
                other => return other,
            }
        }
        Err("the folder stays locked".to_owned())
    }

    /// Makes a node that is off the sole voter, and starts it.
    pub(crate) async fn revive(&self, number: u64) {
        let node = &self.nodes[&number];
        node.disk.restart(Loss::All, 0);
        let log = loop {
            match open(&self.log_options(number), &node.disk) {
                Ok(log) => break log,
                Err(LogError::Locked { .. }) => yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let reach = node.ledger.borrow().durable().unwrap_or_default();
        let index = log.make_sole_voter(GROUP, number, &reach).await;
        index.expect("it is written");
        drop(log);
        let started = self.start(number, Birth::Invited).await;
        started.expect("it starts");
    }

    /// Removes the replica of a node that runs, and starts it without.
    pub(crate) async fn forget(&self, number: u64) {
        self.stop(number).await;
        let node = &self.nodes[&number];
        let log = open(&self.log_options(number), &node.disk).expect("it opens");
        log.delete_group(GROUP).await.expect("it is deleted");
        assert!(!log.has_replica(GROUP));
        drop(log);
        node.ledger.replace(Ledger::default());
        let started = self.start(number, Birth::Invited).await;
        started.expect("it starts");
    }

    /// Starts nodes as one group: the first founds it, the others become voters.
    pub(crate) async fn found(&self, numbers: impl IntoIterator<Item = u64>) {
        let numbers: Vec<u64> = numbers.into_iter().collect();
        let first = numbers[0];
        for number in &numbers {
            let birth = if *number == first {
                Birth::Alone
            } else {
                Birth::Invited
            };
            self.start(*number, birth).await.expect("it starts");
        }
        self.until("the founder leads", || self.leading() == [first])
            .await;
        let group = self.group(first);
        for number in &numbers[1..] {
            group.add_learner(*number).await.expect("it is added");
        }
        let voters = group.change_voters(numbers.into_iter().collect()).await;
        voters.expect("they vote");
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    pub(crate) async fn propose(&self, number: u64) -> Result<(u64, Proposal<Note>), ProposeError> {
        let note = self.next_number();
        let group = self.group(number);
        Ok((note, group.propose(Note::new(note, 100)).await?))
    }

    /// Has the leader agree on some notes, whoever that is.
    pub(crate) async fn write(&self, count: usize) {
        for _ in 0..count {
            let written = timeout(LONG, async {
                while !self.try_write().await {
                    sleep(STEP).await;
                }
            });
            written.await.expect("it is agreed in time");
        }
    }

    /// Proposes a note to who leads last; says whether it was acknowledged.
    pub(crate) async fn try_write(&self) -> bool {
        let Some(leader) = self.leading().pop() else {
            return false;
        };
        let Ok((note, proposal)) = self.propose(leader).await else {
            return false;
        };
        let is_acknowledged = proposal.await.is_ok();
        if is_acknowledged {
            self.acknowledged.borrow_mut().push(note);
        }
        is_acknowledged
    }

    /// Changes members by whoever leads, until it is done.
    pub(crate) async fn change<F>(&self, change: impl Fn(Arc<Group<Note>>) -> F)
    where
        F: Future<Output = Result<(), ChangeError>>,
    {
        let changed = timeout(LONG, async {
            loop {
                let leader = self.leader().await;
                if change(self.group(leader)).await.is_ok() {
                    return;
                }
                sleep(STEP).await;
            }
        });
        changed.await.expect("it changes in time");
    }

    /// Writes the tables of a node, so that its log may be purged.
    pub(crate) async fn checkpoint(&self, number: u64) {
        let mark = self.nodes[&number].ledger.borrow().checkpoint();
        self.group(number).checkpointed(mark).await;
    }

    pub(crate) fn ledger(&self, number: u64) -> Ledger {
        self.nodes[&number].ledger.borrow().clone()
    }

    pub(crate) fn notes(&self, number: u64) -> Vec<u64> {
        self.nodes[&number].ledger.borrow().pages().numbers()
    }

    /// Waits until these nodes have everything that was acknowledged.
    pub(crate) async fn agreed(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let what = format!("all notes on node {number}");
            self.until(&what, || self.has_all(number)).await;
        }
        self.check();
    }

    /// Waits until all members have everything that was acknowledged. A change of members may be under way.
    pub(crate) async fn members_agreed(&self) {
        let members_have_all = || {
            let leader = self.leading().first().copied();
            let standing = leader.and_then(|leader| self.standing(leader));
            standing.is_some_and(|of| of.members.all().into_iter().all(|node| self.has_all(node)))
        };
        self.until("all notes on all members", members_have_all)
            .await;
        self.check();
    }

    fn has_all(&self, number: u64) -> bool {
        let notes: BTreeSet<u64> = self.notes(number).into_iter().collect();
        let acknowledged = self.acknowledged.borrow();
        acknowledged.iter().all(|note| notes.contains(note))
    }

    /// What one node has applied begins with what another has, or the other way round.
    pub(crate) fn check(&self) {
        let all: Vec<Vec<u64>> = self
            .nodes
            .keys()
            .map(|number| self.notes(*number))
            .collect();
        let longest = all.iter().max_by_key(|notes| notes.len()).expect("nodes");
        for notes in &all {
            assert_eq!(notes[..], longest[..notes.len()], "not in the same order");
        }
        let distinct: BTreeSet<&u64> = longest.iter().collect();
        assert_eq!(distinct.len(), longest.len(), "something was applied twice");
    }

    pub(crate) fn is_running(&self, number: u64) -> bool {
        self.nodes[&number].group.borrow().is_some()
    }

    /// Nothing passes from the first to the second.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.air.weather().cut.insert((from, to));
    }

    /// Nothing passes between a node and all others.
    pub(crate) fn isolate(&self, number: u64) {
        for other in self.nodes.keys() {
            self.cut(number, *other);
            self.cut(*other, number);
        }
    }

    pub(crate) fn mend(&self) {
        self.air.weather().cut.clear();
    }

    /// Of a hundred messages so many are lost, and each takes up to so many milliseconds.
    pub(crate) fn blow(&self, lost: usize, delay: usize, seed: u64) {
        let mut weather = self.air.weather();
        (weather.lost, weather.delay) = (lost, delay);
        weather.chance = Some(Chance(seed));
    }

    /// Lets so many more parts of snapshots pass.
    pub(crate) fn limit_bulk(&self, left: Option<usize>) {
        self.air.weather().bulk_left = left;
    }

    pub(crate) fn bulk_seen(&self) -> usize {
        self.air.weather().bulk_seen
    }
}

impl Node {
    fn new() -> Self {
        Self {
            scratch: Scratch::new(),
            disk: SimulatedDisk::new(),
            ledger: RefCell::default(),
            log: RefCell::default(),
            group: RefCell::default(),
        }
    }

    /// How many notes came in the last snapshot.
    pub(crate) fn installed(&self) -> usize {
        self.ledger.borrow().pages().installed
    }
}
