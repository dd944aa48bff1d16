//! The routes of a node: what the broker does with `route-exchange`, in short.

use std::collections::{BTreeMap, BTreeSet};

use route_exchange::{Change, Exports, Imports, Key, Message, Times, Value};

/// How soon the leader of a shard is asked again, in ms.
const ASK_AGAIN: u64 = 300;

/// What the brokers of two nodes say to each other about routes.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Exchange(Message),
    /// Tell me when all know the routes of a shard.
    Await {
        shard: u16,
        question: u64,
    },
    /// They do.
    Known {
        question: u64,
    },
}

/// Who waits until all know a route.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    Here(u64),
    Node(u64, u64),
}

struct Asked {
    shard: u16,
    token: u64,
    leader: Option<u64>,
    at: u64,
}

pub(crate) struct Routes {
    own: u64,
    shards: u16,
    exports: Exports,
    imports: Imports,
    imported: BTreeSet<(u64, Key)>,
    connected: BTreeSet<u64>,
    waiting: Vec<(u64, Waiter)>,
    asked: BTreeMap<u64, Asked>,
    last_question: u64,
    /// To be sent.
    pub(crate) out: Vec<(u64, Frame)>,
    /// Tokens of those who waited and need not any more.
    pub(crate) passed: Vec<u64>,
}

impl Routes {
    pub(crate) fn new(own: u64, incarnation: u64, shards: u16) -> Self {
        let times = Times::default();
        Self {
            own,
            shards,
            exports: Exports::new(incarnation, times),
            imports: Imports::new(times),
            imported: BTreeSet::new(),
            connected: BTreeSet::new(),
            waiting: Vec::new(),
            asked: BTreeMap::new(),
            last_question: 0,
            out: Vec::new(),
            passed: Vec::new(),
        }
    }

    pub(crate) fn members(&mut self, others: &BTreeSet<u64>, now: u64) {
        let known: BTreeSet<u64> = self.exports.peers().collect();
        for gone in known.difference(others) {
            let changes = self.imports.remove_peer(*gone);
            self.import(*gone, changes);
            self.exports.remove_peer(*gone);
            self.connected.remove(gone);
        }
        for new in others.difference(&known) {
            self.imports.add_peer(*new);
            self.exports.add_peer(*new, now);
        }
        self.pass(now);
    }

    pub(crate) fn connected(&mut self, to: u64, now: u64) {
        self.connected.insert(to);
        self.beat(to, now);
        self.exports.connected(to);
        self.tell(to, now);
    }

    pub(crate) fn disconnected(&mut self, to: u64) {
        self.connected.remove(&to);
        self.exports.disconnected(to);
    }

    pub(crate) fn lost(&mut self, from: u64) {
        self.imports.lost(from);
    }

    pub(crate) fn lead(&mut self, shard: u16, term: u64) {
        self.exports.lead(shard, term);
    }

    pub(crate) fn resign(&mut self, shard: u16) {
        self.exports.resign(shard);
    }

    pub(crate) fn complete(&mut self, shard: u16) {
        self.exports.complete(shard);
    }

    pub(crate) fn set_filter(&mut self, shard: u16, filter: &str, any: bool, detached: bool) {
        let value = any.then_some(Value::Shard { detached });
        self.exports
            .set_of_shard(Key::ShardFilter(shard, filter.into()), value);
    }

    pub(crate) fn message(&mut self, from: u64, frame: Frame, now: u64) {
        match frame {
            Frame::Exchange(Message::Batch(batch)) => {
                let changes = self.imports.apply(from, batch).expect("it makes sense");
                self.import(from, changes);
                let state = self.imports.state(from, None);
                self.out
                    .push((from, Frame::Exchange(Message::State(state))));
            }
            Frame::Exchange(Message::State(state)) => {
                let handled = self.exports.handle_state(from, &state);
                handled.expect("it makes sense");
                self.tell(from, now);
                self.pass(now);
            }
            Frame::Await { shard, question } => {
                if self.exports.led(shard).is_some() {
                    self.wait(Waiter::Node(from, question));
                    self.tell_all(now);
                    self.pass(now);
                }
            }
            Frame::Known { question } => {
                let by_leader = |asked: &mut Asked| asked.leader == Some(from);
                if self.asked.get_mut(&question).is_some_and(by_leader)
                    && let Some(asked) = self.asked.remove(&question)
                {
                    self.passed.push(asked.token);
                }
            }
        }
    }

    /// To be told by `passed` when all live nodes know the routes of a shard.
    pub(crate) fn await_shard(&mut self, shard: u16, token: u64, leader: Option<u64>, now: u64) {
        if leader == Some(self.own) {
            self.wait(Waiter::Here(token));
            return self.pass(now);
        }
        self.last_question += 1;
        let asked = Asked {
            shard,
            token,
            leader,
            at: now,
        };
        self.asked.insert(self.last_question, asked);
        let question = self.last_question;
        self.out
            .extend(leader.map(|leader| (leader, Frame::Await { shard, question })));
    }

    fn wait(&mut self, waiter: Waiter) {
        self.waiting.push((self.exports.number(), waiter));
    }

    /// What is to be done now and then.
    pub(crate) fn tick(&mut self, leader: impl Fn(u16) -> Option<u64>, now: u64) {
        self.tell_all(now);
        for peer in self.connected.clone() {
            self.beat(peer, now);
        }
        self.pass(now);
        let is_due =
            |asked: &Asked| now >= asked.at + ASK_AGAIN || leader(asked.shard) != asked.leader;
        let again: Vec<_> = self.asked.extract_if(.., |_, a| is_due(a)).collect();
        for (_, asked) in again {
            self.await_shard(asked.shard, asked.token, leader(asked.shard), now);
        }
    }

    fn beat(&mut self, to: u64, now: u64) {
        let state = self.imports.state(to, Some(now));
        self.out.push((to, Frame::Exchange(Message::State(state))));
    }

    pub(crate) fn tell_all(&mut self, now: u64) {
        let peers: Vec<u64> = self.exports.peers().collect();
        for peer in peers {
            self.tell(peer, now);
        }
    }

    fn tell(&mut self, peer: u64, now: u64) {
        while let Some(batch) = self.exports.poll(peer, now) {
            self.out
                .push((peer, Frame::Exchange(Message::Batch(batch))));
        }
    }

    fn pass(&mut self, now: u64) {
        let passed = self.exports.passed(now);
        for (_, waiter) in self.waiting.extract_if(.., |(number, _)| *number <= passed) {
            match waiter {
                Waiter::Here(token) => self.passed.push(token),
                Waiter::Node(node, question) => self.out.push((node, Frame::Known { question })),
            }
        }
    }

    fn import(&mut self, peer: u64, changes: Vec<Change>) {
        for (key, value) in changes {
            match value {
                Some(_) => self.imported.insert((peer, key)),
                None => self.imported.remove(&(peer, key)),
            };
        }
    }

    /// The inbox shards that a message of this topic has to go to.
    pub(crate) fn matching(&self, topic: &str, now: u64) -> BTreeSet<u16> {
        let unknown = self
            .imports
            .unknown(self.shards, |shard| self.exports.led(shard), now);
        let mut found: BTreeSet<u16> = unknown.shards.into_iter().collect();
        let own = (0..self.shards).flat_map(|shard| self.exports.of_shard(shard));
        let imported = self.imported.iter().map(|(_, key)| key);
        for key in own.chain(imported) {
            if let Key::ShardFilter(shard, filter) = key
                && matches(filter, topic)
            {
                found.insert(*shard);
            }
        }
        found
    }
}

/// Whether a filter selects a topic.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}
