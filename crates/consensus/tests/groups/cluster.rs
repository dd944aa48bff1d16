//! Several nodes in one runtime, with a network and a clock that tests control.
//!
//! The clock stands while any node's log has something to write, so that a slow machine is no slow disk.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use consensus::simulation::{Chance, Loss, SimulatedDisk};
use consensus::{
    Birth, ChangeError, Condition, EntryIndex, Group, GroupId, GroupOptions, Log, LogError,
    LogOptions, Network, Origin, Proposal, ProposeError, Standing, StateMachine, Unreachable,
};
use futures_util::future::BoxFuture;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::{advance, sleep, timeout};

use crate::ledger::{DEADLINE, Ledger, Note, SPLIT, Scratch, Seed, open};

/// The group of each cluster.
const GROUP: u64 = 1;

/// The group that splits off.
pub(crate) const CHILD: u64 = 2;

/// The question how far the leader's log reaches.
const QUESTION: [u8; 2] = [1, 6];

/// How far the clock goes at once.
const STEP: Duration = Duration::from_millis(10);

/// Nothing here takes that long, by the simulated clock.
const LONG: Duration = Duration::from_secs(120);

/// What the network does to requests and answers.
#[derive(Default)]
struct Weather {
    /// By group and node.
    groups: BTreeMap<(u64, u64), Arc<Group<Note>>>,
    /// From one node to another: nothing arrives.
    cut: BTreeSet<(u64, u64)>,
    /// Of a hundred, how many are lost.
    lost: usize,
    /// Milliseconds that one takes, at most.
    delay: usize,
    /// How many parts of snapshots still arrive.
    bulk_left: Option<usize>,
    bulk_seen: usize,
    /// No question for a leader's end arrives.
    loses_questions: bool,
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

    async fn carry(
        self,
        group: u64,
        (from, to): (u64, u64),
        bulk: bool,
        request: Bytes,
    ) -> Option<Bytes> {
        sleep(self.way(from, to)?).await;
        if bulk && !self.lets_bulk() {
            return None;
        }
        if self.weather().loses_questions && request[..] == QUESTION {
            return None;
        }
        let group = self.weather().groups.get(&(group, to)).cloned()?;
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
        // It is handled though the caller may not wait for it.
        let way = (self.node, node);
        let carried = tokio::spawn(self.air.clone().carry(group, way, bulk, request));
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
    scratch: Rc<Scratch>,
    pub(crate) disk: SimulatedDisk,
    pub(crate) ledger: RefCell<Ledger>,
    log: Rc<RefCell<Option<Rc<Log>>>>,
    group: RefCell<Option<Arc<Group<Note>>>>,
    /// How often the group was stopped.
    lives: Cell<u64>,
    /// The term at the last start.
    first_term: Cell<u64>,
    seeds: Cell<[u64; 2]>,
}

/// Nodes 1, 2, …
pub(crate) struct Cluster {
    group: u64,
    air: Air,
    /// The group that splits off, on the same nodes.
    child: RefCell<Option<Rc<Self>>>,
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
            group: GROUP,
            child: RefCell::default(),
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
                let test = spawn_local(test);
                while !test.is_finished() {
                    cluster.settle().await;
                    advance(STEP).await;
                }
                let outcome = test.await;
                // Power that fails later is no end.
                for node in cluster.nodes.values() {
                    node.disk.keep_power();
                }
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
                self.note_leaders();
                if let Some(child) = &*self.child.borrow() {
                    child.note_leaders();
                }
                return;
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
        let log = self.log(number).map_err(|error| error.to_string())?;
        let ledger = node.ledger.borrow().clone();
        if let Some(child) = &*self.child.borrow() {
            ledger.pages().births = Some(child.clone().births(number));
        }
        let lives = node.lives.get();
        let port = Arc::new(Port {
            air: self.air.clone(),
            node: number,
        });
        let options = &self.options;
        let started = Group::start(self.group, number, &log, ledger, port, birth, options).await;
        drop(log);
        let group = match started {
            Ok(group) => Arc::new(group),
            Err(error) => {
                if self.group == GROUP {
                    node.log.take();
                }
                return Err(error.to_string());
            }
        };
        if node.lives.get() != lives {
            // The node was stopped meanwhile.
            if let Ok(group) = Arc::try_unwrap(group) {
                group.shutdown().await;
            }
            return Err("stopped".to_owned());
        }
        node.first_term.set(group.watch().borrow().term);
        let groups = &mut self.air.weather().groups;
        groups.insert((self.group, number), group.clone());
        node.group.replace(Some(group));
        Ok(())
    }

    /// The log of a node, opened if it is not.
    fn log(&self, number: u64) -> Result<Rc<Log>, LogError> {
        let node = &self.nodes[&number];
        if let Some(log) = &*node.log.borrow() {
            return Ok(log.clone());
        }
        let log = Rc::new(open(&self.log_options(number), &node.disk)?);
        node.log.replace(Some(log.clone()));
        Ok(log)
    }

    /// The group that will split off.
    pub(crate) fn child(&self) -> Rc<Self> {
        let node = |node: &Node| Node {
            disk: node.disk.clone(),
            log: node.log.clone(),
            ..Node::new_in(node.scratch.clone())
        };
        let nodes = self.nodes.iter();
        let child = Rc::new(Self {
            group: CHILD,
            child: RefCell::default(),
            air: self.air.clone(),
            nodes: nodes.map(|(number, of)| (*number, node(of))).collect(),
            options: self.options.clone(),
            leaders: RefCell::default(),
            acknowledged: RefCell::default(),
            next: Cell::new(1_000_000),
        });
        self.child.replace(Some(child.clone()));
        child
    }

    /// Where what splits off on a node goes: it becomes the state of this group there.
    fn births(self: Rc<Self>, number: u64) -> mpsc::UnboundedSender<Seed> {
        let (sender, mut seeds) = mpsc::unbounded_channel();
        spawn_local(async move {
            while let Some(seed) = seeds.recv().await {
                self.seed(number, seed).await;
            }
        });
        sender
    }

    async fn seed(&self, number: u64, seed: Seed) {
        let node = &self.nodes[&number];
        let log = node.log.borrow().clone();
        let Some(log) = log else {
            return;
        };
        let origin = Origin {
            parent: GroupId(GROUP),
            index: EntryIndex(seed.index),
        };
        let has_tables = node.ledger.borrow().durable().is_some();
        if has_tables || !log.may_seed(CHILD, origin).expect("nothing is damaged") {
            return;
        }
        let [first, again] = node.seeds.get();
        node.seeds.set(match log.origin(CHILD) {
            Ok(Some(_)) => [first, again + 1],
            _ => [first + 1, again],
        });
        drop(log);
        node.ledger.replace(Ledger::seeded(seed));
        // Its power may have failed.
        drop(self.start(number, Birth::Seeded(origin)).await);
    }

    /// Whether an entry may seed the group on a node.
    pub(crate) fn may_seed(&self, number: u64, by: Origin) -> bool {
        let log = self.log(number).expect("it opens");
        log.may_seed(self.group, by).expect("it is not damaged")
    }

    /// How often it was seeded on a node whose disk did not know of it, and on one whose disk did.
    pub(crate) fn seeds(&self, number: u64) -> [u64; 2] {
        self.nodes[&number].seeds.get()
    }

    /// Has the leader agree on a note that splits the group, if it has not done so before.
    pub(crate) async fn try_split(&self, child: &Self) -> bool {
        // If one was not acknowledged, it is agreed on before this, or never.
        if !self.try_write().await {
            return false;
        }
        let Some(leader) = self.leading().pop() else {
            return false;
        };
        if !self.notes(leader).contains(&SPLIT) {
            let proposed = self.group(leader).propose(Note::new(SPLIT, 1)).await;
            let Ok(proposal) = proposed else {
                return false;
            };
            if proposal.await.is_err() {
                return false;
            }
        }
        let notes = self.notes(leader);
        let before = notes.iter().take_while(|note| **note != SPLIT);
        let mut acknowledged = child.acknowledged.borrow_mut();
        if acknowledged.is_empty() {
            acknowledged.extend(before);
        }
        true
    }

    pub(crate) async fn split(&self, child: &Self) {
        let split = timeout(LONG, async {
            while !self.try_split(child).await {
                sleep(STEP).await;
            }
        });
        split.await.expect("it is agreed in time");
    }

    /// The term that a node knew of when it started last.
    pub(crate) fn first_term(&self, number: u64) -> u64 {
        self.nodes[&number].first_term.get()
    }

    /// The entry that a node says has seeded the group.
    pub(crate) fn origin(&self, number: u64) -> Option<Origin> {
        let log = self.log(number).expect("it opens");
        log.origin(self.group).expect("it is not damaged")
    }

    /// Ends a node's process. Its tables stay as they were at their last checkpoint.
    pub(crate) async fn stop(&self, number: u64) {
        let node = &self.nodes[&number];
        let child = self.child.borrow().clone();
        if let Some(child) = child {
            Box::pin(child.stop(number)).await;
        }
        self.stop_group(number).await;
        if self.group == GROUP {
            node.log.take();
        }
    }

    async fn stop_group(&self, number: u64) {
        let node = &self.nodes[&number];
        node.lives.set(node.lives.get() + 1);
        let left = node.ledger.borrow().after_crash();
        let Some(mut group) = node.group.take() else {
            node.ledger.replace(left);
            return;
        };
        self.air.weather().groups.remove(&(self.group, number));
        // Requests that are handled hold it.
        let group = loop {
            match Arc::try_unwrap(group) {
                Ok(group) => break group,
                Err(shared) => group = shared,
            }
            sleep(STEP).await;
        };
        group.shutdown().await;
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
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE {
            match self.start(number, Birth::Invited).await {
                Err(error) if error.contains("another process") => yield_now().await,
                Ok(()) => return self.restart_child(number).await,
                other => return other,
            }
        }
        Err("the folder stays locked".to_owned())
    }

    /// What split off starts by itself when tables hold it.
    async fn restart_child(&self, number: u64) -> Result<(), String> {
        let child = self.child.borrow().clone();
        match child {
            Some(child) if child.nodes[&number].ledger.borrow().durable().is_some() => {
                match child.is_running(number) {
                    false => Box::pin(child.start(number, Birth::Invited)).await,
                    true => Ok(()),
                }
            }
            _ => Ok(()),
        }
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
        let mut groups = vec![(GROUP, node.ledger.borrow().durable())];
        if let Some(child) = &*self.child.borrow() {
            groups.push((CHILD, child.nodes[&number].ledger.borrow().durable()));
        }
        for (group, reach) in groups {
            let reach = reach.unwrap_or_default();
            let index = log.make_sole_voter(group, number, &reach).await;
            index.expect("it is written");
        }
        drop(log);
        let started = self.start(number, Birth::Invited).await;
        started.expect("it starts");
    }

    /// Removes the replica of a node that runs, and starts it without.
    pub(crate) async fn forget(&self, number: u64) {
        self.stop(number).await;
        let node = &self.nodes[&number];
        let log = self.log(number).expect("it opens");
        log.delete_group(self.group).await.expect("it is deleted");
        assert!(!log.has_replica(self.group));
        drop(log);
        node.ledger.replace(Ledger::default());
        let started = self.start(number, Birth::Invited).await;
        started.expect("it starts");
    }

    /// Has a node that runs lose the last entries of its log, of which this one is the first, and starts it again.
    pub(crate) async fn damage(&self, number: u64, first_lost: u64) {
        self.stop(number).await;
        let log = self.log(number).expect("it opens");
        let lost = log.lose_from(self.group, first_lost).await;
        lost.expect("it is written");
        let last = log.last_index(self.group).expect("it is readable");
        assert_eq!(last, first_lost.checked_sub(1));
        drop(log);
        let started = self.start(number, Birth::Invited).await;
        started.expect("it starts");
    }

    /// The index of the last note on a node.
    pub(crate) fn last_index(&self, number: u64) -> u64 {
        let last = self.ledger(number).pages().last_index;
        last.expect("there are notes")
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

    /// Whether nobody learns how far the leader's log reaches, as from a leader of an earlier version.
    pub(crate) fn lose_questions(&self, lost: bool) {
        self.air.weather().loses_questions = lost;
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
        Self::new_in(Rc::new(Scratch::new()))
    }

    fn new_in(scratch: Rc<Scratch>) -> Self {
        Self {
            scratch,
            disk: SimulatedDisk::new(),
            ledger: RefCell::default(),
            log: Rc::default(),
            group: RefCell::default(),
            lives: Cell::default(),
            first_term: Cell::default(),
            seeds: Cell::default(),
        }
    }

    /// How many notes came in the last snapshot.
    pub(crate) fn installed(&self) -> usize {
        self.ledger.borrow().pages().installed
    }
}
