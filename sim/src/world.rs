//! The driver: time, the network, faults; and the nodes, one after the other.
//!
//! Time goes in steps. In each, what arrives is handed out, then each node lives for the step, and what it
//! sends is on its way for a step at least: so no node can see what another does in the same step, and the
//! order in which they live does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use broker_core::TICK_MS;
use bytes::Bytes;
use consensus::simulation::{Chance, Loss};
use store::{Lead, Member, Role};
use store_state::Retention;
use store_state::api::PerStore;
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::clients::Clients;
use crate::control::Wish;
use crate::history::History;
use crate::levels::Levels;
use crate::network::Network;
use crate::node::{Life, Node, Part, stores};
use crate::operators::Operators;
use crate::rim::{Out, Trimmed};
use crate::splits::{SplitAnswer, Wanted};

/// How far time goes at once, in ms. Nothing gets from one node to another faster.
const STEP: u64 = 10;

/// How long a node is not heard until others take it for down, in ms.
const DOWN: u64 = 2_500;

/// Of a node that was evicted: what any of its starts had connected is closed.
const LAST_INCARNATION: u64 = u64::MAX - 1;

/// How long nothing has gone wrong until all nodes have heard each other again and know it, in ms.
const SETTLED: u64 = 3_000;

/// How long an end of a link may not notice that it is broken, in ms.
const UNNOTICED: usize = 6_000;

/// What is to happen.
enum Happening {
    Message {
        from: u64,
        to: u64,
        session: u64,
        message: Bytes,
    },
    Call {
        from: u64,
        to: u64,
        call: u64,
        group: u64,
        request: Bytes,
    },
    Answer {
        call: u64,
        answer: Option<Bytes>,
    },
    SenderNotices {
        from: u64,
        to: u64,
        session: u64,
    },
    ReceiverNotices {
        from: u64,
        to: u64,
        session: u64,
    },
    Start(u64),
    Cut(Vec<(u64, u64)>, u64),
    Mend(Vec<(u64, u64)>),
}

struct Call {
    from: u64,
    life: u64,
    to: u64,
    answer: oneshot::Sender<Bytes>,
}

/// What a node was when it was last heard, and when that was.
struct Heard {
    at: u64,
    incarnation: u64,
    life: u64,
    role: Role,
}

impl Heard {
    fn of(node: &Node, now: u64) -> Self {
        Self {
            at: now,
            incarnation: node.incarnation,
            life: node.lives,
            role: node.role,
        }
    }
}

/// Whether the log of a node is damaged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damages {
    None,
    /// When one crashes that no shard needs, in this part.
    Once(Part),
    /// It has been.
    Done,
}

/// Who belongs to the cluster: each version, and which each node knows.
struct Membership {
    versions: Vec<BTreeSet<u64>>,
    known_version: BTreeMap<u64, usize>,
}

pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) now: u64,
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) shards: PerStore<u16>,
    pub(crate) clients: Clients,
    pub(crate) history: History,
    pub(crate) operators: Operators,
    /// From which level replicas are raised, and when.
    pub(crate) levels: Levels,
    pub(crate) damages: Damages,
    /// How long messages are kept in queues, and stay with members of the shared group that are away.
    pub(crate) retention: Arc<Retention>,
    network: Network,
    agenda: BTreeMap<(u64, u64), Happening>,
    numbers: u64,
    calls: BTreeMap<u64, Call>,
    membership: Membership,
    /// What the first has last heard of the second.
    heard: BTreeMap<(u64, u64), Heard>,
    /// Which life of the second the first was last told of.
    told_lives: BTreeMap<(u64, u64), u64>,
    /// When a node or a link last failed, or came back.
    disturbed_at: u64,
    trace: u64,
    /// Prints what happens.
    is_loud: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let shards = PerStore {
            session: 1 + chance.below(2),
            inbox: 1 + chance.below(2),
            retain: 1,
            control: 1,
        }
        .map(|count| count as u16);
        let network = Network {
            delay: [0, 10, 40][chance.below(3)],
            lost: [0, 0, 20][chance.below(3)],
            ..Network::default()
        };
        Self {
            now: 0,
            nodes: BTreeMap::new(),
            shards,
            clients: Clients::new(&mut chance),
            history: History::default(),
            operators: Operators::default(),
            levels: Levels::default(),
            damages: Damages::None,
            retention: Arc::new(crate::settings::handover()),
            network,
            agenda: BTreeMap::new(),
            numbers: 0,
            calls: BTreeMap::new(),
            membership: Membership {
                versions: vec![BTreeSet::new()],
                known_version: BTreeMap::new(),
            },
            heard: BTreeMap::new(),
            told_lives: BTreeMap::new(),
            disturbed_at: 0,
            trace: seed,
            is_loud: std::env::var_os("HERALD_TRACE").is_some(),
            chance,
        }
    }

    /// A number that is not given twice.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The same for the same seed, if all that happened was the same.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    pub(crate) fn note(&mut self, what: &str) {
        if self.is_loud {
            tell(&format!("{:>6} {what}", self.now));
        }
        self.record(what.as_bytes());
    }

    /// Takes something that has happened into the trace.
    pub(crate) fn record(&mut self, what: &[u8]) {
        self.trace = xxh3_64_with_seed(what, self.trace.wrapping_add(self.now));
    }

    pub(crate) fn alive(&self) -> BTreeSet<u64> {
        let alive = self.nodes.values().filter(|node| node.life.is_some());
        alive.map(|node| node.id).collect()
    }

    /// The members, as of the latest change.
    pub(crate) fn members(&self) -> &BTreeSet<u64> {
        &self.membership.versions[self.membership.versions.len() - 1]
    }

    /// Since when all nodes have reached each other for long enough that each knows it of all; `None`: they have not.
    pub(crate) fn settled_since(&self) -> Option<u64> {
        let since = self.disturbed_at + SETTLED;
        let is_settled = since <= self.now
            && self.network.cut.is_empty()
            && self.alive().len() == self.members().len();
        is_settled.then_some(since)
    }

    fn at(&mut self, time: u64, happening: Happening) {
        let number = self.number();
        self.agenda.insert((time, number), happening);
    }

    /// How long something is on its way.
    fn delay(&mut self) -> u64 {
        STEP + self.chance.below(self.network.delay + 1) as u64
    }

    /// Adds a node to the cluster.
    pub(crate) fn add(&mut self) -> u64 {
        let id = self.nodes.len() as u64 + 1;
        let skew = self.chance.below(200) as u64;
        let write = [0, 2, 15][self.chance.below(3)];
        let mut members = self.members().clone();
        members.insert(id);
        let mut node = Node::new(id, skew, write);
        if self.damages != Damages::None {
            node.note_each_end();
        }
        self.nodes.insert(id, node);
        self.change_members(members);
        self.start(id);
        id
    }

    /// Whether all shards can do without a node for good, as far as anybody knows.
    pub(crate) fn can_lose(&self, id: u64) -> bool {
        let lives = self.nodes.values().filter_map(|node| node.life.as_ref());
        let mut leads = lives.flat_map(|life| life.store().leads());
        let serve_all = self.nodes.values().all(|node| node.role == Role::Serves);
        serve_all
            && leads.all(|(_, lead)| {
                let stay = |node: &u64| *node != id && self.members().contains(node);
                lead.voters.iter().filter(|node| stay(node)).count() >= 2
            })
    }

    /// A node is not to come back.
    pub(crate) fn evict(&mut self, id: u64) {
        self.note(&format!("{id} is evicted"));
        self.crash(id);
        let mut members = self.members().clone();
        members.remove(&id);
        self.change_members(members);
    }

    pub(crate) fn give_role(&mut self, id: u64, role: Role) {
        self.note(&format!("{id}: {role:?}"));
        let node = self.nodes.get_mut(&id).expect("there is one");
        node.role = role;
    }

    fn change_members(&mut self, members: BTreeSet<u64>) {
        self.membership.versions.push(members);
        // Somebody was told.
        let told = self.alive().first().copied();
        let version = self.membership.versions.len() - 1;
        self.membership
            .known_version
            .extend(told.map(|node| (node, version)));
    }

    fn start(&mut self, id: u64) {
        let (shards, now, founds) = (self.shards, self.now, id == 1);
        let version = self.membership.versions.len() - 1;
        if !self.members().contains(&id) {
            return;
        }
        let node = self.nodes.get_mut(&id).expect("there is one");
        if node.life.is_some() {
            return;
        }
        let others: Vec<u64> = self.membership.versions[version]
            .iter()
            .copied()
            .filter(|other| *other != id)
            .collect();
        let of_queues = (
            self.operators.splits.by_itself,
            &self.retention,
            self.levels.begin,
        );
        node.start(shards, of_queues, founds, now, &others);
        self.disturbed_at = now;
        self.told_lives.retain(|(by, _), _| *by != id);
        self.membership.known_version.insert(id, version);
        self.heard.retain(|(by, _), _| *by != id);
        self.note(&format!("{id} starts"));
        self.spread_membership();
    }

    /// The power of a node fails.
    pub(crate) fn crash(&mut self, id: u64) {
        let seed = self.number();
        let loss = [Loss::All, Loss::Tail, Loss::Sectors][self.chance.below(3)];
        let node = self.nodes.get_mut(&id).expect("there is one");
        if node.life.is_none() {
            return;
        }
        let part = match self.damages {
            Damages::Once(part) => Some(part).filter(|_| self.can_lose(id)),
            Damages::None | Damages::Done => None,
        };
        let node = self.nodes.get_mut(&id).expect("there is one");
        node.disk.fail_power_after(0);
        node.life = None;
        node.disk.restart(loss, seed);
        if let Some(part) = part {
            let how = node.damage(&mut self.chance, part);
            self.damages = Damages::Done;
            self.note(&format!("{id} is damaged: {how}"));
        }
        self.disturbed_at = self.now;
        self.note(&format!("{id} crashes"));
        self.life_ended(id);
        let others: Vec<u64> = self.nodes.keys().copied().collect();
        for other in others {
            self.break_link(id, other);
            self.break_link(other, id);
            self.network.link(id, other).sender_believes = false;
            self.network.link(other, id).receiver_believes = false;
        }
    }

    pub(crate) fn start_later(&mut self, id: u64, after: u64) {
        self.at(self.now + after, Happening::Start(id));
    }

    /// Nothing passes between these from now on, for a while.
    pub(crate) fn cut(&mut self, pairs: Vec<(u64, u64)>, time: u64) {
        self.note(&format!("cut {pairs:?} for {time}"));
        for (from, to) in &pairs {
            self.network.cut.insert((*from, *to));
            self.break_link(*from, *to);
        }
        self.at(self.now + time, Happening::Mend(pairs));
    }

    /// The same again and again: as long as it is cut, it then holds.
    pub(crate) fn flap(&mut self, pairs: &[(u64, u64)], time: u64, times: u64) {
        for round in 0..times {
            let at = self.now + 2 * time * round;
            self.at(at, Happening::Cut(pairs.to_vec(), time));
        }
    }

    /// Another voter leads one of the shards that a node leads.
    pub(crate) fn move_a_lead(&mut self, id: u64) {
        let Some(life) = &self.nodes[&id].life else {
            return;
        };
        let leads = life.store().leads();
        let own: Vec<&Lead> = leads
            .iter()
            .filter(|(leader, _)| *leader == id)
            .map(|(_, lead)| lead)
            .collect();
        if own.is_empty() {
            return;
        }
        let lead = own[self.chance.below(own.len())];
        let others: Vec<u64> = lead.voters.iter().copied().filter(|to| *to != id).collect();
        if others.is_empty() {
            return;
        }
        let to = others[self.chance.below(others.len())];
        life.transfer_leader(lead.store, lead.shard, to);
        let (store, shard) = (lead.store, lead.shard);
        self.note(&format!("{id} hands {store}/{shard} over to {to}"));
    }

    /// A connection is lost; others can be made.
    pub(crate) fn reset(&mut self, from: u64, to: u64) {
        self.note(&format!("reset {from} to {to}"));
        self.break_link(from, to);
    }

    fn break_link(&mut self, from: u64, to: u64) {
        self.disturbed_at = self.now;
        let dial_at = self.now + STEP + self.chance.below(500) as u64;
        let link = self.network.link(from, to);
        if !link.is_open {
            return;
        }
        link.is_open = false;
        link.dial_at = dial_at;
        let session = link.session;
        let quick = self.chance.below(2) == 0;
        let unnoticed = if quick { 50 } else { UNNOTICED };
        let sender = self.now + self.chance.below(unnoticed) as u64;
        let receiver = self.now + self.chance.below(unnoticed) as u64;
        self.at(sender, Happening::SenderNotices { from, to, session });
        self.at(receiver, Happening::ReceiverNotices { from, to, session });
    }

    fn sender_notices(&mut self, from: u64, to: u64) {
        let link = self.network.link(from, to);
        if std::mem::take(&mut link.sender_believes)
            && let Some(life) = &self.nodes[&from].life
        {
            life.linked(to, false);
        }
    }

    fn receiver_notices(&mut self, from: u64, to: u64) {
        let link = self.network.link(from, to);
        if std::mem::take(&mut link.receiver_believes)
            && let Some(life) = &self.nodes[&to].life
        {
            life.incoming(from, false);
        }
    }

    /// Dials what is to be dialled.
    fn dial(&mut self) {
        let alive = self.alive();
        let members = self.members().clone();
        for from in &alive {
            for to in alive.iter().filter(|to| *to != from) {
                let link = *self.network.link(*from, *to);
                let is_possible = !self.network.is_cut(*from, *to)
                    && !self.network.is_cut(*to, *from)
                    && members.contains(from)
                    && members.contains(to);
                if !link.is_open && link.dial_at <= self.now && is_possible {
                    self.connect(*from, *to);
                }
            }
        }
    }

    fn connect(&mut self, from: u64, to: u64) {
        self.sender_notices(from, to);
        self.receiver_notices(from, to);
        let link = self.network.link(from, to);
        link.session += 1;
        link.is_open = true;
        link.sender_believes = true;
        link.receiver_believes = true;
        if let Some(life) = &self.nodes[&to].life {
            life.incoming(from, true);
        }
        if let Some(life) = &self.nodes[&from].life {
            life.linked(to, true);
        }
    }

    /// Lets everybody know who can be heard, as far as they can be told.
    fn spread_membership(&mut self) {
        let alive = self.alive();
        for by in &alive {
            let heard = self.network.heard_by(*by, &alive);
            let versions = heard
                .iter()
                .filter_map(|node| self.membership.known_version.get(node));
            let version = versions.copied().max().unwrap_or_default();
            self.membership.known_version.insert(*by, version);
            for node in heard {
                let heard = Heard::of(&self.nodes[&node], self.now);
                self.heard.insert((*by, node), heard);
            }
        }
        for by in alive {
            self.tell_members(by);
        }
    }

    /// Other nodes that have begun another life since a node was last told of them.
    fn restarted(&mut self, by: u64) -> Vec<u64> {
        let heard = self.heard.range((by, 0)..=(by, u64::MAX));
        let lives: Vec<(u64, u64)> = heard.map(|((_, id), heard)| (*id, heard.life)).collect();
        let mut restarted = Vec::new();
        for (id, life) in lives.into_iter().filter(|(id, _)| *id != by) {
            let before = self.told_lives.insert((by, id), life);
            if before.is_some_and(|before| before != life) {
                restarted.push(id);
            }
        }
        restarted
    }

    fn tell_members(&mut self, by: u64) {
        let known = self.membership.known_version[&by];
        // Who has been one, too: `evict` is for good.
        for id in self.membership.versions[..=known].iter().flatten() {
            // Of a node that was never heard, when it was heard of.
            let heard = Heard::of(&self.nodes[id], self.now);
            self.heard.entry((by, *id)).or_insert(heard);
        }
        let restarted = self.restarted(by);
        let Some(life) = &self.nodes[&by].life else {
            return;
        };
        let members = &self.membership.versions[known];
        let others: Vec<u64> = members.iter().copied().filter(|id| *id != by).collect();
        life.within(|node, own_now| {
            let all = self.heard.range((by, 0)..=(by, u64::MAX));
            let member = |((_, id), heard): (&(u64, u64), &Heard)| {
                let silent = self.now - heard.at;
                let is_member = members.contains(id);
                Member {
                    node: *id,
                    incarnation: if is_member {
                        heard.incarnation
                    } else {
                        LAST_INCARNATION
                    },
                    is_up: is_member && silent < DOWN,
                    role: if is_member { heard.role } else { Role::Leaves },
                    has_ended: false,
                    last_heard_ms: own_now - silent,
                }
            };
            let all: Vec<Member> = all.map(member).collect();
            node.with_peers(|peers, node| {
                for restarted in &restarted {
                    peers.restarted(node, *restarted);
                }
                peers.members(node, &others);
                let down = all.iter().filter(|member| !member.is_up);
                let down: Vec<u64> = down.map(|member| member.node).collect();
                peers.down(node, &down);
            });
            node.store().members(all);
        });
    }

    /// One step of time.
    pub(crate) fn step(&mut self) {
        self.now += STEP;
        while let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= self.now
        {
            let happening = entry.remove();
            self.happen(happening);
        }
        if self.now.is_multiple_of(50) {
            self.dial();
        }
        if self.now.is_multiple_of(TICK_MS) {
            self.spread_membership();
            self.clients.note_quorums(&self.nodes, self.now);
            self.tick();
        }
        for id in self.alive() {
            self.live(id);
        }
        if self.is_loud && self.now.is_multiple_of(100) {
            self.tell_leads();
            tell(&format!("       trace {:016x}", self.trace));
        }
        change_shards(self);
        self.act();
    }

    fn tell_leads(&self) {
        for node in self.nodes.values() {
            for (leader, lead) in node.life.iter().flat_map(|life| life.store().leads()) {
                let (store, shard, term) = (lead.store, lead.shard, lead.term());
                let members = (&lead.voters, &lead.learners);
                let id = node.id;
                tell(&format!(
                    "       {id} believes: {leader} leads {store}/{shard} in term {term}, of {members:?}"
                ));
            }
        }
    }

    fn tick(&self) {
        for node in self.nodes.values() {
            if let Some(life) = &node.life {
                life.within(|node, _| node.with_peers(|peers, node| peers.tick(node)));
            }
        }
    }

    /// A life of a node, if it goes on.
    pub(crate) fn life(&mut self, node: u64, number: u64) -> Option<&mut Life> {
        let life = self.nodes.get_mut(&node)?.life.as_mut()?;
        (life.number == number).then_some(life)
    }

    /// A node lives for a step.
    fn live(&mut self, id: u64) {
        let now = self.now;
        let node = self.nodes.get_mut(&id).expect("there is one");
        let Some(life) = &mut node.life else {
            return;
        };
        life.run(now);
        let (number, brought) = (life.number, life.take());
        let effects = life.effects();
        let lived = [id, number, effects, node.disk.operations()];
        node.incarnation = life.store().incarnation();
        let is_off = node.disk.is_off();
        for count in lived {
            self.record(&count.to_le_bytes());
        }
        if is_off {
            self.crash(id);
            let after = 100 + self.chance.below(5_000) as u64;
            return self.start_later(id, after);
        }
        if let Some(failure) = brought.failure {
            self.history.wrong(format!("node {id} fails: {failure}"));
        }
        for SplitAnswer { store, at, outcome } in brought.split_answers {
            self.note(&format!(
                "{id} answers the split of {store:?} at {at:?}: {outcome:?}"
            ));
        }
        for answer in &brought.control_answers {
            self.operators.changes.answered(answer);
        }
        for of in brought.trimmed {
            self.note(&format!("{id} does not keep {of:?}"));
            let Trimmed(client, number, reason) = of;
            if let Some(client) = self.clients.find(&client) {
                self.history.trim(client, number, reason, now);
            }
        }
        for shard in brought.reopened {
            self.history.reopened(id, shard, now);
        }
        for out in brought.out {
            self.send(id, number, out);
        }
    }

    fn send(&mut self, from: u64, life: u64, out: Out) {
        match out {
            Out::Message { to, message } => self.post(from, to, message),
            Out::Call {
                to,
                group,
                request,
                answer,
            } => {
                let call = self.number();
                let arrival = self.now + self.delay();
                let is_lost = self.chance.below(1_000) < self.network.lost;
                if is_lost || self.nodes.get(&to).is_none_or(|node| node.life.is_none()) {
                    // A connection is lost, or refused: the caller hears of it at once.
                    return;
                }
                let pending = Call {
                    from,
                    life,
                    to,
                    answer,
                };
                self.calls.insert(call, pending);
                let happening = Happening::Call {
                    from,
                    to,
                    call,
                    group,
                    request,
                };
                self.at(arrival, happening);
            }
            Out::Answer { call, answer } => {
                let arrival = self.now + self.delay();
                self.at(arrival, Happening::Answer { call, answer });
            }
        }
    }

    fn post(&mut self, from: u64, to: u64, message: Bytes) {
        let arrival = self.now + self.delay();
        let link = self.network.link(from, to);
        if !link.is_open {
            return;
        }
        link.last = link.last.max(arrival);
        let (arrival, session) = (link.last, link.session);
        let happening = Happening::Message {
            from,
            to,
            session,
            message,
        };
        self.at(arrival, happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Message {
                from,
                to,
                session,
                message,
            } => self.arrive(from, to, session, &message),
            Happening::Call {
                from,
                to,
                call,
                group,
                request,
            } => {
                if self.network.is_cut(from, to) {
                    return;
                }
                self.record(&request);
                if let Some(life) = &self.nodes[&to].life {
                    life.handle(call, group, request);
                }
            }
            Happening::Answer { call, answer } => {
                let Some(pending) = self.calls.remove(&call) else {
                    return;
                };
                self.record(answer.as_deref().unwrap_or_default());
                let life = self.nodes[&pending.from].life.as_ref();
                let waits = life.is_some_and(|life| life.number == pending.life);
                if let Some(answer) = answer.filter(|_| waits)
                    && !self.network.is_cut(pending.to, pending.from)
                {
                    // The caller may not wait any more.
                    let _ = pending.answer.send(answer);
                }
            }
            Happening::SenderNotices { from, to, session } => {
                if self.network.link(from, to).session == session {
                    self.sender_notices(from, to);
                }
            }
            Happening::ReceiverNotices { from, to, session } => {
                if self.network.link(from, to).session == session {
                    self.receiver_notices(from, to);
                }
            }
            Happening::Start(id) => self.start(id),
            Happening::Cut(pairs, time) => self.cut(pairs, time),
            Happening::Mend(pairs) => {
                self.note(&format!("mend {pairs:?}"));
                self.disturbed_at = self.now;
                for pair in pairs {
                    self.network.cut.remove(&pair);
                }
            }
        }
    }

    fn arrive(&mut self, from: u64, to: u64, session: u64, message: &[u8]) {
        let link = *self.network.link(from, to);
        let Some(life) = &self.nodes[&to].life else {
            return;
        };
        if !link.is_open || link.session != session {
            return;
        }
        life.received(from, message);
        self.record(message);
    }

    /// No more faults: everything is mended, and who is off is started.
    pub(crate) fn heal(&mut self) {
        self.note("heal");
        self.disturbed_at = self.now;
        self.agenda
            .retain(|_, happening| !matches!(happening, Happening::Cut(..)));
        self.network.cut.clear();
        self.network.lost = 0;
        for node in self.nodes.values().filter(|node| node.life.is_some()) {
            node.disk.fail_power_after(u64::MAX);
        }
        let off: Vec<u64> = self.nodes.keys().copied().collect();
        for id in off {
            self.start(id);
        }
        for node in self.nodes.values() {
            node.disk.keep_power();
        }
    }
}

/// Asks leaders for the splits that are due, has nodes raise what they lead, and has them change the control store, if it is time
/// for that.
fn change_shards(world: &mut World) {
    if world.levels.is_due(world.now) {
        for life in world.nodes.values().filter_map(|node| node.life.as_ref()) {
            life.raise();
        }
    }
    let asked = world.operators.splits.ask(world.now, &stores(&world.nodes));
    for (leader, shard, Wanted { store, at, .. }) in asked {
        let life = world.nodes[&leader].life.as_ref();
        life.expect("it lives").split(store, shard, at);
        world.note(&format!(
            "{leader} is asked to split {store:?}/{shard} at {at:?}"
        ));
    }
    let (chance, stores) = (&mut world.chance, stores(&world.nodes));
    let wishes = world.operators.changes.ask(chance, world.now, &stores);
    for (node, wish) in wishes {
        let life = world.nodes[&node].life.as_ref();
        let life = life.expect("it lives");
        match wish {
            Wish::Begin => life.begin_control(),
            Wish::Change(token, op) => life.ask_control(token, op),
        }
    }
}

#[expect(clippy::print_stderr, reason = "a test that is asked to tell")]
pub(crate) fn tell(what: &str) {
    eprintln!("{what}");
}
