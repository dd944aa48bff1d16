//! A message's way to the shared groups that match it: to one member of each.
//!
//! A message with many groups is given to some of them in each turn, in the queue of its publisher
//! (`distribute.rs`). Its acknowledgement waits for all of them (P1): they count as one of the answers that a
//! publication needs. Those of later turns get it by who is a member then.
//!
//! Invariant: a message of QoS 1 or 2 is dropped for a group only when all inbox shards are known, and so all members;
//! else it waits for them (`shared/members.rs`).
//!
//! Deliberately absent: which member of a group gets it (`shared/groups.rs`), and what is kept of a message until all
//! groups have got it (`rest.rs`).

use std::ops::Range;
use std::sync::Arc;

use mqtt_proto::QoS;
use mqtt_session::ApplicationMessage;
use net_api::Key;
use peer_protocol::Slot;
use store_state::api::Store as _;

use crate::clients::{Client, LoopIo, record_drop};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::pending::{Answer, Awaiting, Pending};
use crate::publish::forward::item_for;
use crate::publish::once::Once;
use crate::publish::rest::{ForInboxes, Rest, ToGroups, Which};
use crate::publish::route::MATCHES_PER_UNIT;
use crate::rim::Rim;
use crate::routes::MatchSet;
use crate::share::units;
use crate::shared::awaited::Groups;
use crate::shared::groups::{Group, Member};
use crate::shared::members::all_durable;

/// Groups that are worth a unit: a member is chosen, and its loop is sent the message.
const PER_UNIT: usize = 2;

impl<R: Rim> ClientLoop<R> {
    /// Gives a message to groups of a match; to some later, if they are many.
    pub(crate) fn deliver_to_groups(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        set: Arc<MatchSet>,
        to: ToGroups,
    ) {
        let (rest, members) = self.deliver_to_first_groups(io, message, set, to);
        let Rest { to, .. } = &rest;
        self.give_to_inboxes(members, to.publication, to.once.as_ref());
        self.put_off_groups(io, message, rest);
    }

    /// Gives a message to groups of its match, as many as it is given to in the turn in which it comes.
    pub(crate) fn deliver_to_first_groups(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        set: Arc<MatchSet>,
        mut to: ToGroups,
    ) -> (Rest, ForInboxes) {
        let mut members = ForInboxes::new();
        let mut range = 0..set.groups.len();
        while let Some(piece) =
            self.deliveries
                .next_at_once(message.publisher, &mut range, io.has_done_enough())
        {
            self.base.charge(io, units(piece.len() / PER_UNIT));
            for (group, known) in set.groups.get(piece).unwrap_or_default() {
                self.deliver_to_group(io, group, known, message, &mut to, &mut members);
            }
        }
        (Rest { set, range, to }, members)
    }

    /// Gives a message that has waited to groups of its match.
    pub(crate) fn deliver_to_next_groups(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        set: &MatchSet,
        piece: Range<usize>,
        to: &mut ToGroups,
    ) {
        self.await_what_is_unknown(message, set, piece.start, to);
        let mut members = ForInboxes::new();
        // Not to the client whose packets are handled: the publisher may be another one.
        io.charge(units(piece.len().div_ceil(PER_UNIT)));
        for (group, before) in set.groups.get(piece).unwrap_or_default() {
            // A group without known members when the message came may lack earlier ones of its publisher, which wait
            // for members and go first.
            let waits = to.served.is_some() && before.is_empty();
            let known = match waits {
                true => Arc::clone(before),
                false => self.base.node.routes.members(group),
            };
            self.deliver_to_group(io, group, &known, message, to, &mut members);
        }
        self.give_to_inboxes(members, to.publication, to.once.as_ref());
    }

    /// Inbox shards may have become unknown since a message came: then it waits for members of those groups that have
    /// none from now on. `done`: so many groups of its match are done with.
    fn await_what_is_unknown(
        &self,
        message: &ApplicationMessage,
        set: &MatchSet,
        done: usize,
        to: &mut ToGroups,
    ) {
        let cannot_wait = message.qos == QoS::AtMostOnce || to.which == Which::Own;
        if to.served.is_some() || cannot_wait || !self.base.node.routes.lacks_shards() {
            return;
        }
        let done = set.groups.iter().take(done);
        let done = done.map(|(group, _)| group.number().get());
        to.served = Some(to.but.iter().copied().chain(done).collect());
    }

    /// Gives a message to one member of a group: at once, or by way of its inbox.
    fn deliver_to_group(
        &mut self,
        io: &mut impl LoopIo,
        group: &Arc<Group>,
        known: &[Member],
        message: &Arc<ApplicationMessage>,
        to: &mut ToGroups,
        members: &mut ForInboxes,
    ) {
        let number = group.number().get();
        if to.but.binary_search(&number).is_ok() {
            return;
        }
        self.base.charge(io, units(known.len() / MATCHES_PER_UNIT));
        let once = to.once.as_ref().and_then(Once::of_broker);
        let chosen = match to.which {
            Which::Durable if !all_durable(known) => {
                to.served.iter_mut().for_each(|served| served.push(number));
                return;
            }
            Which::Own => {
                let is_own = |member: &Member| member.by.node == Slot::OWN;
                group.choose(known, message.publisher_hash, is_own)
            }
            Which::All | Which::Durable => self.choose(group, known, message, once, |_| true),
        };
        let Some(member) = chosen else {
            if to.served.is_none() && to.which != Which::Own {
                record_drop(
                    &self.base.drops,
                    io.now_ms(),
                    message,
                    Reason::NoGroupMember,
                );
            }
            return;
        };
        let item = item_for(group, member, message);
        members.extend(self.give_directly(io, group, member, item, once));
        to.served.iter_mut().for_each(|served| served.push(number));
    }

    /// Asks inboxes of members to take a message. `publication`: what waits for them.
    pub(crate) fn give_to_inboxes(
        &mut self,
        members: ForInboxes,
        publication: Option<Key>,
        once: Option<&Once>,
    ) {
        if members.is_empty() {
            return;
        }
        if let Some(Pending::Publish(pending)) =
            publication.and_then(|id| self.base.pending.get_mut(id))
        {
            pending.left += members.len();
            pending.unsure = false;
            if once.is_some()
                && let Awaiting::Client(key, packet_id) = pending.from
                && let Some((inbox, session)) = self
                    .clients
                    .get_mut(key)
                    .and_then(Client::inbox_and_session)
            {
                let store = self.base.node.store();
                let known = store.inbox_shards();
                inbox.keep_up(&known, || session.received().clone());
                let clients = members.iter().map(|(client, _)| client);
                let shards = clients.map(|client| store.inbox_shard(store.inbox_slot(client)));
                inbox.remember(packet_id, shards, &known);
            }
        }
        for (client, item) in members {
            self.give_to_inbox(&client, item, publication, once.cloned());
        }
    }

    /// All groups have got a message for which somebody is a member, as far as it is known.
    pub(crate) fn groups_done(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        to: ToGroups,
    ) {
        let ToGroups {
            which,
            once,
            publication,
            served,
            ..
        } = to;
        if let Some(mut served) = served {
            served.sort_unstable();
            let groups = match which {
                Which::Durable => Groups::DurableBut(served.into()),
                Which::All | Which::Own => Groups::AllBut(served.into()),
            };
            self.await_members(io, message, groups, publication, once);
        } else if let Some(publication) = publication {
            self.publication_answered(io, publication, Answer::Passed);
        }
    }
}
