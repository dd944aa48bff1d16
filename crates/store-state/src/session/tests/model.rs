//! The session store as simply as it can be said: lists, and a search through them for each question.

use std::collections::{BTreeMap, BTreeSet};

use mqtt_session::NEVER_EXPIRES;

use super::driver::describe;
use crate::session::held::HELD_MS;
use crate::session::{
    ClaimRequest, Claimed, OfAnotherUser, SessionMachine, SessionOp, SessionReply, TakenFrom,
    WillAtClose,
};

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) epoch: u64,
    began: u64,
    owner: Option<(u64, u64)>,
    since: u64,
    expiry: u32,
    inbox: bool,
    user: Option<String>,
    /// Topic and delay.
    will: Option<(String, u32)>,
}

impl Session {
    fn end(&self) -> Option<u64> {
        let ends = self.owner.is_none() && self.expiry != NEVER_EXPIRES;
        ends.then(|| self.since + u64::from(self.expiry) * 1_000)
    }

    fn will_due(&self) -> Option<u64> {
        let (_, delay) = self.will.as_ref()?;
        let due = self.since + u64::from(*delay) * 1_000;
        self.owner.is_none().then_some(due)
    }
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) next: u64,
    pub(super) nodes: BTreeMap<u64, u64>,
    pub(super) sessions: BTreeMap<String, Session>,
    /// With the topic.
    pub(super) firing: BTreeMap<(String, u64), String>,
    /// By the epoch: whose, the topic, the process that had the connection, until when.
    pub(super) held: BTreeMap<u64, (String, String, (u64, u64), u64)>,
    pub(super) ending: BTreeSet<(String, u64)>,
    known: BTreeSet<String>,
    told: Vec<String>,
}

impl Model {
    /// What [`super::driver::apply`] says.
    pub(super) fn apply(&mut self, now: u64, op: &SessionOp) -> String {
        let reply = self.decide(now, op);
        self.tell_known();
        format!("{reply:?} {:?}", std::mem::take(&mut self.told))
    }

    fn decide(&mut self, now: u64, op: &SessionOp) -> SessionReply {
        match op.clone() {
            SessionOp::NodeUp {
                node,
                incarnation,
                last_alive_ms,
            } => {
                let known = self.nodes.get(&node).copied().unwrap_or(0);
                if incarnation < known {
                    return SessionReply::Stale;
                }
                self.nodes.insert(node, incarnation);
                for (.., (at, by), until) in self.held.values_mut() {
                    if *at == node && *by < incarnation {
                        *until = (*until).min(last_alive_ms.min(now));
                    }
                }
                let mut sessions: Vec<_> = self.sessions.clone().into_iter().collect();
                sessions.sort_by_key(|(_, session)| session.epoch);
                for (client, session) in sessions {
                    if session
                        .owner
                        .is_some_and(|(at, by)| at == node && by < incarnation)
                    {
                        let at = last_alive_ms.min(now).max(session.since);
                        self.close(&client, at);
                        self.tell_known();
                    }
                }
                SessionReply::Done
            }
            SessionOp::ClaimAgain(_)
            | SessionOp::ClaimByAgain(_)
            | SessionOp::ClaimHoldingAgain(_) => {
                panic!("connections.rs tests it")
            }
            SessionOp::Claim(_) | SessionOp::ClaimBy(_) | SessionOp::ClaimHolding(_) => {
                let (user, of_another_user) = match op {
                    SessionOp::ClaimBy(by) | SessionOp::ClaimHolding(by) => {
                        (by.user.as_deref(), by.of_another_user)
                    }
                    _ => (None, OfAnotherUser::Refuse),
                };
                let ClaimRequest {
                    client,
                    node,
                    node_incarnation,
                    clean_start,
                    expiry,
                    will,
                    asked_ms: _,
                } = op.claimed().unwrap().clone();
                if self
                    .nodes
                    .get(&node)
                    .is_some_and(|known| node_incarnation < *known)
                {
                    return SessionReply::Stale;
                }
                while self.next_due().is_some_and(|(at, _)| at <= now) && self.one_due(now, &client)
                {
                }
                let made_by = self.sessions.get(&*client).and_then(|s| s.user.as_deref());
                let is_anothers = made_by.is_some_and(|made_by| user != Some(made_by));
                if is_anothers && of_another_user == OfAnotherUser::Refuse {
                    return SessionReply::NotOwner;
                }
                self.next += 1;
                let epoch = self.next;
                let before = self.sessions.get(&*client).cloned();
                if let Some(before) = &before {
                    let discard = clean_start || is_anothers || before.expiry == 0;
                    let will = before.will.as_ref();
                    if discard || will.is_some_and(|(_, delay)| *delay == 0) {
                        let process = (node, node_incarnation);
                        let other = before.owner.filter(|owner| *owner != process);
                        match other.filter(|_| matches!(op, SessionOp::ClaimHolding(_))) {
                            Some(other) => self.hold(&client, other, now),
                            None => self.fire(&client),
                        }
                    }
                    if discard {
                        self.end(&client);
                    }
                }
                let taken_from = self.taken_from(&client, before.as_ref(), node);
                let resumed = self.sessions.get(&*client).cloned();
                let had_inbox =
                    resumed.is_some() || self.ending.iter().any(|(of, _)| **of == *client);
                let session = Session {
                    epoch,
                    began: resumed.as_ref().map_or(epoch, |session| session.began),
                    owner: Some((node, node_incarnation)),
                    since: now,
                    expiry,
                    inbox: expiry > 0 || resumed.as_ref().is_some_and(|session| session.inbox),
                    user: user.map(str::to_owned),
                    will: will.map(|will| (describe(&will), will.delay)),
                };
                self.sessions.insert(client.into(), session);
                SessionReply::Claimed(Claimed {
                    epoch,
                    resumed: resumed.is_some(),
                    had_inbox,
                    taken_from,
                })
            }
            SessionOp::Disconnect {
                client,
                epoch,
                expiry,
                will,
            } => {
                if self.is_held(&client, epoch) {
                    match will {
                        WillAtClose::Keep => self.release(epoch),
                        WillAtClose::Discard => drop(self.held.remove(&epoch)),
                    }
                    return SessionReply::Done;
                }
                let Some(session) = self.sessions.get_mut(&*client) else {
                    return SessionReply::Stale;
                };
                if session.epoch != epoch {
                    return SessionReply::Stale;
                }
                if session.owner.is_none() {
                    return SessionReply::Stale;
                }
                session.expiry = expiry;
                session.inbox = session.inbox || expiry > 0;
                if will == WillAtClose::Discard {
                    session.will = None;
                }
                self.close(&client, now);
                SessionReply::Done
            }
            SessionOp::Fired { client, epoch } => {
                self.firing.remove(&(client.into(), epoch));
                SessionReply::Done
            }
            SessionOp::FireAgain { client, epoch } => {
                let Some(topic) = self.firing.get(&(client.to_string(), epoch)) else {
                    return SessionReply::Stale;
                };
                self.told.push(format!("fire {client} {epoch} {topic}"));
                SessionReply::Done
            }
            SessionOp::Gone { client, epoch } => {
                self.ending.remove(&(client.into(), epoch));
                SessionReply::Done
            }
            SessionOp::WillDue { client, epoch } => {
                if self.is_held(&client, epoch) {
                    self.release(epoch);
                    return SessionReply::Done;
                }
                let connected = |s: &&Session| s.epoch == epoch && s.owner.is_some();
                let Some(session) = self.sessions.get(&*client).filter(connected) else {
                    return SessionReply::Stale;
                };
                let delay = session.will.as_ref().map(|(_, delay)| *delay);
                if delay == Some(0) || session.expiry == 0 {
                    self.fire(&client);
                }
                SessionReply::Done
            }
            SessionOp::DiscardWill { client, epoch } => {
                if self.is_held(&client, epoch) {
                    self.held.remove(&epoch);
                    return SessionReply::Done;
                }
                let connected = |s: &&mut Session| s.epoch == epoch && s.owner.is_some();
                match self.sessions.get_mut(&*client).filter(connected) {
                    Some(session) => session.will = None,
                    None => return SessionReply::Stale,
                }
                SessionReply::Done
            }
            SessionOp::End { client, epoch } => {
                let away = |s: &&Session| s.epoch == epoch && s.owner.is_none();
                if self.sessions.get(&*client).filter(away).is_none() {
                    return SessionReply::Stale;
                }
                self.fire(&client);
                self.end(&client);
                SessionReply::Done
            }
            SessionOp::Due => {
                while let Some((until, epoch)) = self.first_held()
                    && until <= now
                {
                    self.release(epoch);
                }
                while let Some((at, client)) = self.next_due()
                    && at <= now
                {
                    self.one_due(at, &client);
                    self.tell_known();
                }
                SessionReply::Done
            }
        }
    }

    fn taken_from(&self, client: &str, before: Option<&Session>, node: u64) -> TakenFrom {
        let held = self.held.iter().filter(|(_, (of, ..))| of == client);
        let held: BTreeSet<u64> = held.map(|(epoch, _)| *epoch).collect();
        let firing = self.firing.keys().filter(|(of, _)| of == client);
        let outstanding: BTreeSet<u64> = firing
            .map(|(_, epoch)| *epoch)
            .chain(held.clone())
            .collect();
        let last = before.map_or(0, |before| before.epoch);
        let owner = before.and_then(|before| before.owner);
        if held.iter().any(|epoch| *epoch != last) {
            return TakenFrom::Unknown;
        }
        if outstanding.is_empty() && owner.is_none() {
            return TakenFrom::Nobody;
        }
        let will = held.first().or(outstanding.first()).copied().unwrap_or(0);
        TakenFrom::Node {
            node: owner.map_or(node, |(owner, _)| owner),
            will,
        }
    }

    fn is_held(&self, client: &str, epoch: u64) -> bool {
        let held = self.held.get(&epoch);
        held.is_some_and(|(of, ..)| of == client)
    }

    fn first_held(&self) -> Option<(u64, u64)> {
        let held = self.held.iter();
        held.map(|(epoch, (.., until))| (*until, *epoch)).min()
    }

    fn hold(&mut self, client: &str, owner: (u64, u64), now: u64) {
        let session = self.sessions.get_mut(client).unwrap();
        if let Some((topic, _)) = session.will.take() {
            let held = (client.to_owned(), topic, owner, now + HELD_MS);
            self.held.insert(session.epoch, held);
        }
    }

    fn release(&mut self, epoch: u64) {
        let (client, topic, ..) = self.held.remove(&epoch).unwrap();
        self.told.push(format!("fire {client} {epoch} {topic}"));
        self.firing.insert((client, epoch), topic);
    }

    /// The first of what is due, at the same time in the order of epochs.
    fn next_due(&self) -> Option<(u64, String)> {
        let all = self.sessions.iter().flat_map(|(client, session)| {
            [session.will_due(), session.end()].map(|at| Some((at?, session.epoch, client)))
        });
        let (at, _, client) = all.flatten().min()?;
        Some((at, client.clone()))
    }

    /// Does what is due for a client till then, or the first of it; says whether there was anything.
    fn one_due(&mut self, now: u64, client: &str) -> bool {
        let Some(session) = self.sessions.get(client) else {
            return false;
        };
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= now);
        let end = passed(session.end());
        let will = passed(session.will_due());
        if will || end {
            self.fire(client);
        }
        if end {
            self.end(client);
        }
        will || end
    }

    fn close(&mut self, client: &str, at: u64) {
        let session = self.sessions.get_mut(client).unwrap();
        session.owner = None;
        session.since = at;
        let ends = session.expiry == 0;
        if ends || session.will.as_ref().is_some_and(|(_, delay)| *delay == 0) {
            self.fire(client);
        }
        if ends {
            self.end(client);
        }
    }

    fn fire(&mut self, client: &str) {
        let session = self.sessions.get_mut(client).unwrap();
        if let Some((topic, _)) = session.will.take() {
            let epoch = session.epoch;
            self.told.push(format!("fire {client} {epoch} {topic}"));
            self.firing.insert((client.to_owned(), epoch), topic);
        }
    }

    fn end(&mut self, client: &str) {
        let session = self.sessions.remove(client).unwrap();
        if session.inbox {
            self.told.push(format!("ended {client} {}", session.epoch));
            self.ending.insert((client.to_owned(), session.epoch));
        }
    }

    fn tell_known(&mut self) {
        let mut now: BTreeSet<String> = self.sessions.keys().cloned().collect();
        now.extend(self.firing.keys().map(|(client, _)| client.clone()));
        now.extend(self.ending.iter().map(|(client, _)| client.clone()));
        now.extend(self.held.values().map(|(client, ..)| client.clone()));
        for client in now.difference(&self.known) {
            self.told.push(format!("known {client}"));
        }
        for client in self.known.difference(&now) {
            self.told.push(format!("not known {client}"));
        }
        self.known = now;
    }

    /// All that it holds, in words.
    pub(super) fn state(&self) -> String {
        let connected = self.sessions.values().filter(|s| s.owner.is_some()).count();
        let wills = self.sessions.values().filter(|s| s.will.is_some()).count();
        let next = (self.next + 1, &self.nodes, connected, wills);
        let due = self.next_due().map(|(at, _)| at);
        let held = self.first_held().map(|(at, _)| at);
        let due = due.into_iter().chain(held).min();
        format!(
            "{next:?} {due:?} {:?} {:?} {:?} {:?}",
            self.sessions, self.firing, self.held, self.ending
        )
    }

    /// The same of a machine.
    pub(super) fn state_of(machine: &SessionMachine) -> String {
        let records = machine.records.iter().map(|(client, record)| {
            let session = Session {
                epoch: record.epoch,
                began: record.incarnation,
                owner: record.owner.map(|owner| (owner.node, owner.incarnation)),
                since: record.since,
                expiry: record.expiry,
                inbox: record.inbox,
                user: record.user.as_deref().map(str::to_owned),
                will: record
                    .will
                    .as_ref()
                    .map(|will| (describe(will), will.delay)),
            };
            (client.to_string(), session)
        });
        let records: BTreeMap<String, Session> = records.collect();
        let firing = machine.firing.iter();
        let firing: BTreeMap<(String, u64), String> = firing
            .map(|(client, epoch, will)| ((client.to_string(), epoch), describe(will)))
            .collect();
        let held = machine.held.iter().map(|(client, epoch, held)| {
            let owner = (held.owner.node, held.owner.incarnation);
            let held = (client.to_string(), describe(&held.will), owner, held.until);
            (epoch, held)
        });
        let held: BTreeMap<_, _> = held.collect();
        let ending = machine.ending.iter();
        let ending: BTreeSet<(String, u64)> = ending
            .map(|(client, epoch, ())| (client.to_string(), epoch))
            .collect();
        let counts = machine.counts();
        assert_eq!(
            (counts.records, counts.firing, counts.held, counts.ending),
            (records.len(), firing.len(), held.len(), ending.len())
        );
        let next = (
            machine.next_epoch,
            &machine.nodes,
            counts.connected,
            counts.wills,
        );
        let due = machine.next_deadline();
        format!("{next:?} {due:?} {records:?} {firing:?} {held:?} {ending:?}")
    }
}
