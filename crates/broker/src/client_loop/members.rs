//! Messages for shared groups while not all members are known.
//!
//! The leader of an inbox shard tells all nodes which of its sessions are in shared groups. When another node
//! leads the shard, there is a moment in which this node lacks that: a group then has fewer members than it has,
//! or none. A plain subscription does not suffer, since the shard itself matches what it is given; a member of a
//! group has to be chosen here.
//!
//! So a message of QoS 1 or 2 waits for the groups that have got it to nobody, and its publisher's acknowledgement
//! waits with it (P1), until all shards are known.
//!
//! Invariants: what waits is given out in the order in which it came, before anything that comes later; at most
//! [`LIMIT`] messages of a loop wait, for [`PATIENCE_MS`] at most.

use std::collections::VecDeque;
use std::sync::Arc;

use mqtt_proto::QoS;
use mqtt_session::ApplicationMessage;
use net::Key;
use store::Failure;
use store_state::inbox::Origin;

use super::pending::{Answer, Awaiting, Pending};
use super::publish::Keepers;
use super::{Client, ClientLoop, LoopIo, Timer};
use crate::groups::{Member, Who};

/// Messages of a loop that wait at the same time. Beyond that, a group without known members gets none.
const LIMIT: usize = 16_384;

/// How soon it is looked whether all shards are known, in ms.
const LOOK_MS: u64 = 5;

/// How long a message waits, in ms: as long as what is asked of a shard that nobody leads.
const PATIENCE_MS: u64 = 8_000;

/// What waits in a loop.
#[derive(Debug, Default)]
pub(super) struct Members {
    waiting: VecDeque<Waiting>,
    is_armed: bool,
}

/// A message that waits.
#[derive(Debug)]
struct Waiting {
    message: Arc<ApplicationMessage>,
    groups: Groups,
    /// What is pending for its publisher; `None`: it is acknowledged, or its publisher is not here.
    publication: Option<Key>,
    origin: Option<Origin>,
    until_ms: u64,
}

/// The groups that a message waits for.
#[derive(Debug)]
pub(super) enum Groups {
    /// One, by the filter of its SUBSCRIBE.
    One(Box<str>),
    /// All that match but these.
    AllBut(Vec<Box<str>>),
    /// Those of them without members that have got it directly: it has come before.
    DurableBut(Vec<Box<str>>),
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl ClientLoop {
    /// Whether a message for a group that has no member, as far as is known, is to wait until all shards are.
    fn may_have_members(&self, message: &ApplicationMessage) -> bool {
        message.qos > QoS::AtMostOnce
            && self.members.len() < LIMIT
            && self.node.routes.lacks_shards()
    }

    /// Whether the groups of a match may have members that are not known, and the message waits for these.
    pub(super) fn awaits_members(&self, lacks_shards: bool, message: &ApplicationMessage) -> bool {
        lacks_shards && message.qos > QoS::AtMostOnce && self.members.len() < LIMIT
    }

    /// Has a message wait. `publication`: it counts the wait as one of those that it is to be answered for.
    pub(super) fn await_members(
        &mut self,
        io: &mut LoopIo,
        message: &Arc<ApplicationMessage>,
        groups: Groups,
        publication: Option<Key>,
        origin: Option<Origin>,
    ) {
        self.members.waiting.push_back(Waiting {
            message: Arc::clone(message),
            groups,
            publication,
            origin,
            until_ms: io.now_ms() + PATIENCE_MS,
        });
        self.stats.members_awaited.set(self.members.len() as u64);
        self.look_for_members_again(io);
    }

    /// No member of a group is known: a message waits if there may be some, else it is dropped. `publication`:
    /// whose acknowledgement waits for it.
    pub(super) fn nobody_is_known(
        &mut self,
        io: &mut LoopIo,
        filter: &str,
        message: &Arc<ApplicationMessage>,
        publication: Option<Key>,
    ) {
        if !self.may_have_members(message) {
            self.nobody_in_group(io, message);
            return;
        }
        if let Some(Pending::Publish(waiting)) = publication.and_then(|id| self.pending.get_mut(id))
        {
            waiting.left += 1;
        }
        self.await_members(io, message, Groups::One(filter.into()), publication, None);
    }

    fn look_for_members_again(&mut self, io: &mut LoopIo) {
        if !self.members.is_armed {
            self.members.is_armed = true;
            io.arm(io.now_ms() + LOOK_MS, Timer::Members.to_bits());
        }
    }

    /// The timer has fired.
    pub(super) fn look_for_members(&mut self, io: &mut LoopIo) {
        self.members.is_armed = false;
        self.members_may_be_known(io);
        self.give_up_on_members(io);
        if !self.members.waiting.is_empty() {
            self.look_for_members_again(io);
        }
    }

    /// If all shards are known, what waits is given to members.
    pub(super) fn members_may_be_known(&mut self, io: &mut LoopIo) {
        if self.members.waiting.is_empty() {
            return;
        }
        if let Some(peers) = self.node.peers() {
            peers.check_leases(&self.node, io.now_ms());
        }
        // Those that have to wait again wait in another list.
        for waiting in std::mem::take(&mut self.members.waiting) {
            if self.node.routes.lacks_shards() {
                self.members.waiting.push_back(waiting);
            } else {
                self.give_to_members(io, waiting);
            }
        }
        self.stats.members_awaited.set(self.members.len() as u64);
    }

    fn give_to_members(&mut self, io: &mut LoopIo, waiting: Waiting) {
        let Waiting {
            message,
            groups,
            publication,
            origin,
            ..
        } = waiting;
        let is_gone = |id| !matches!(self.pending.get(id), Some(Pending::Publish(_)));
        if publication.is_some_and(is_gone) {
            // Its publisher was answered, by what was known.
            return;
        }
        let mut keepers = Keepers::default();
        match groups {
            Groups::One(filter) => {
                keepers
                    .members
                    .extend(self.give_to_group(io, &filter, &message, publication));
            }
            Groups::AllBut(served) => {
                self.serve_others(io, &message, &served, |_| true, &mut keepers);
            }
            Groups::DurableBut(served) => {
                self.serve_others(io, &message, &served, all_durable, &mut keepers);
            }
        }
        if let Some(Pending::Publish(pending)) = publication.and_then(|id| self.pending.get_mut(id))
        {
            pending.left += keepers.members.len();
            pending.unsure &= keepers.members.is_empty();
            if origin.is_some()
                && let Awaiting::Client(key, packet_id) = pending.from
                && let Some(inbox) = self.clients.get_mut(key).and_then(Client::inbox)
            {
                let store = self.node.store();
                let members = keepers.members.iter();
                inbox.remember(
                    packet_id,
                    members.map(|(client, _)| store.inbox_shard(client)),
                );
            }
        }
        for (client, item) in keepers.members {
            self.give_to_inbox(&client, item, publication, origin.clone());
        }
        if let Some(publication) = publication {
            self.publication_answered(io, publication, Answer::Passed);
        }
    }

    fn serve_others(
        &mut self,
        io: &mut LoopIo,
        message: &Arc<ApplicationMessage>,
        served: &[Box<str>],
        admits: fn(&[Member]) -> bool,
        keepers: &mut Keepers,
    ) {
        let set = self.find(io, message);
        for (group, members) in &set.groups {
            if !served.iter().any(|filter| **filter == *group.filter())
                && admits(members)
                && !self.deliver_to_group(io, group, members, message, keepers)
            {
                self.nobody_in_group(io, message);
            }
        }
    }

    /// What has waited for too long is refused, or dropped if it is acknowledged.
    fn give_up_on_members(&mut self, io: &mut LoopIo) {
        let now_ms = io.now_ms();
        while let Some(waiting) = self
            .members
            .waiting
            .pop_front_if(|waiting| waiting.until_ms <= now_ms)
        {
            match waiting.publication {
                Some(id) => {
                    self.publication_answered(io, id, Answer::Failed(Failure::Stopped));
                }
                None => self.nobody_in_group(io, &waiting.message),
            }
        }
        self.stats.members_awaited.set(self.members.len() as u64);
    }
}

/// Whether all members have inboxes.
pub(super) fn all_durable(members: &[Member]) -> bool {
    members.iter().all(|m| matches!(m.who, Who::Durable(_)))
}
