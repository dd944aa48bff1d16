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
//! [`LIMIT`](super::awaited::LIMIT) messages of a loop wait, or [`LIMIT_BYTES`](super::awaited::LIMIT_BYTES), for
//! [`PATIENCE_MS`] at most. Beyond that a publication is refused: it is never acknowledged while a member may lack it.

use std::sync::Arc;

use mqtt_proto::QoS;
use mqtt_session::ApplicationMessage;
use net_api::Key;
use store_state::api::Failure;

use crate::clients::{LoopIo, Timer, record_drop};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::pending::{Answer, Pending};
use crate::publish::once::Once;
use crate::publish::rest::{ToGroups, Which};
use crate::rim::Rim;
use crate::shared::awaited::{Groups, Waiting};
use crate::shared::groups::{Member, Who};

/// How soon it is looked whether all shards are known, in ms.
const LOOK_MS: u64 = 5;

/// How long a message waits, in ms: as long as what is asked of a shard that nobody leads.
const PATIENCE_MS: u64 = 8_000;

impl<R: Rim> ClientLoop<R> {
    /// Has a message wait, or refuses it if too many do. `publication`: it counts the wait as one of the answers that
    /// it needs.
    pub(crate) fn await_members(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        groups: Groups,
        publication: Option<Key>,
        once: Option<Once>,
    ) {
        let waits = self.members.push(Waiting {
            message: Arc::clone(message),
            groups,
            publication,
            once,
            until_ms: io.now_ms() + PATIENCE_MS,
        });
        if waits {
            self.base
                .stats
                .members_awaited
                .set(self.members.waiting.len() as u64);
            self.look_for_members_again(io);
        } else {
            self.give_up_on(io, message, publication, Failure::Full);
        }
    }

    /// No member of a group is known: a message waits if there may be some, else it is dropped. `publication`:
    /// whose acknowledgement waits for it.
    pub(crate) fn nobody_is_known(
        &mut self,
        io: &mut impl LoopIo,
        filter: &str,
        message: &Arc<ApplicationMessage>,
        publication: Option<Key>,
        once: Option<Once>,
    ) {
        if message.qos == QoS::AtMostOnce || !self.base.node.routes.lacks_shards() {
            record_drop(
                &self.base.drops,
                io.now_ms(),
                message,
                Reason::NoGroupMember,
            );
            return;
        }
        if let Some(Pending::Publish(waiting)) =
            publication.and_then(|id| self.base.pending.get_mut(id))
        {
            waiting.left += 1;
        }
        let group = Groups::One(filter.into());
        self.await_members(io, message, group, publication, once);
    }

    fn look_for_members_again(&mut self, io: &mut impl LoopIo) {
        if !self.members.is_armed {
            self.members.is_armed = true;
            io.arm(io.now_ms() + LOOK_MS, Timer::Members.to_bits());
        }
    }

    /// The timer has fired.
    pub(crate) fn look_for_members(&mut self, io: &mut impl LoopIo) {
        self.members.is_armed = false;
        self.members_may_be_known(io);
        self.give_up_on_members(io);
        if !self.members.waiting.is_empty() {
            self.look_for_members_again(io);
        }
    }

    /// If all shards are known, what waits is given to members.
    pub(crate) fn members_may_be_known(&mut self, io: &mut impl LoopIo) {
        if self.members.waiting.is_empty() {
            return;
        }
        if let Some(peers) = self.base.node.peers() {
            peers.check_leases(&*self.base.node, io.now_ms());
        }
        // What has to wait again is put behind the others, and is not met a second time.
        for _ in 0..self.members.waiting.len() {
            if self.base.node.routes.lacks_shards() {
                break;
            }
            if let Some(waiting) = self.members.pop_if(|_| true) {
                self.give_to_members(io, waiting);
            }
        }
        self.base
            .stats
            .members_awaited
            .set(self.members.waiting.len() as u64);
    }

    fn give_to_members(&mut self, io: &mut impl LoopIo, waiting: Waiting) {
        let Waiting {
            message,
            groups,
            publication,
            once: named,
            ..
        } = waiting;
        let is_gone = |id| !matches!(self.base.pending.get(id), Some(Pending::Publish(_)));
        if publication.is_some_and(is_gone) {
            // Its publisher was answered, by what was known.
            return;
        }
        let (which, but) = match groups {
            Groups::One(filter) => {
                let once = named.as_ref();
                let given = self.give_to_group(io, &filter, &message, publication, once);
                self.give_to_inboxes(given.into_iter().collect(), publication, once);
                if let Some(publication) = publication {
                    self.publication_answered(io, publication, Answer::Passed);
                }
                return;
            }
            Groups::AllBut(served) => (Which::All, served),
            Groups::DurableBut(served) => (Which::Durable, served),
        };
        let set = self.find(io, &message);
        let to = ToGroups {
            which,
            but,
            once: named,
            publication,
            served: None,
        };
        self.deliver_to_groups(io, &message, set, to);
    }

    /// What has waited for too long is refused, or dropped if it is acknowledged.
    fn give_up_on_members(&mut self, io: &mut impl LoopIo) {
        let now_ms = io.now_ms();
        while let Some(waiting) = self.members.pop_if(|waiting| waiting.until_ms <= now_ms) {
            let Waiting {
                message,
                publication,
                ..
            } = waiting;
            self.give_up_on(io, &message, publication, Failure::Stopped);
        }
        self.base
            .stats
            .members_awaited
            .set(self.members.waiting.len() as u64);
    }

    fn give_up_on(
        &mut self,
        io: &mut impl LoopIo,
        message: &ApplicationMessage,
        publication: Option<Key>,
        failure: Failure,
    ) {
        match publication {
            Some(id) => self.publication_answered(io, id, Answer::Failed(failure)),
            None => record_drop(
                &self.base.drops,
                io.now_ms(),
                message,
                Reason::NoGroupMember,
            ),
        }
    }
}

/// Whether all members have inboxes.
pub(crate) fn all_durable(members: &[Member]) -> bool {
    members.iter().all(|m| matches!(m.who, Who::Durable(_)))
}
