//! Messages to other nodes, and from them.
//!
//! A message goes once to each node with sessions that match, encoded once; a turn's messages for a node go
//! in one frame. The node that gets it matches it for its own connected sessions only: inboxes, retained
//! messages, and shared groups are the business of the node of the publisher.
//!
//! Invariant: messages of one publisher reach the sessions of a node in their order: a loop's frames are
//! sent in their order, and handled by one loop there.

use std::sync::Arc;

use mqtt_proto::QoS;
use mqtt_session::{ApplicationMessage, Qos0Inbox};
use peer_protocol::{ForGroup, Forwarded, LARGEST, Whom, with_hash};
use route_exchange::NodeId;
use store_state::inbox::{Item, Origin};

use crate::clients::{BetweenLoops, LoopIo, effective, record_drop};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::key::SessionKey;
use crate::publish::forwarding::Outgoing;
use crate::publish::once::Once;
use crate::publish::rest::{ToGroups, Which};
use crate::rim::Rim;
use crate::routes::{MatchSet, NodeTarget};
use crate::share::units;
use crate::shared::groups::{Group, Member, Who};

/// How many nodes a message for a shared group is sent to, one after the other, before it is dropped.
const HOPS: u8 = 2;

impl<R: Rim> ClientLoop<R> {
    /// Sends a message to the other nodes of a match. `awaits`: it waits here until all members of shared groups are
    /// known, and is given to them then.
    pub(crate) fn forward(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        set: &MatchSet,
        publisher: u64,
        once: Option<&Origin>,
        awaits: bool,
    ) {
        let always = self.base.settings.limits.policy.qos0_inbox == Qos0Inbox::Always;
        let is_for_sessions = message.qos == QoS::AtMostOnce && !always;
        let targets = |known: bool| {
            let wants = move |target: &&NodeTarget| !target.qos0_only || is_for_sessions;
            let is_known = move |target: &&NodeTarget| target.known == known;
            set.nodes.iter().filter(is_known).filter(wants)
        };
        self.forward_to(
            io,
            message,
            targets(true),
            publisher,
            || Whom::Sessions,
            once,
        );
        let served = || set.groups.iter().map(|(group, _)| group.filter().into());
        let whom = || match awaits {
            true => Whom::Sessions,
            false => Whom::Anybody {
                served: served().collect(),
            },
        };
        self.forward_to(io, message, targets(false), publisher, whom, once);
    }

    fn forward_to<'a>(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        targets: impl Iterator<Item = &'a NodeTarget>,
        publisher: u64,
        whom: impl FnOnce() -> Whom,
        once: Option<&Origin>,
    ) {
        let mut targets = targets.peekable();
        if targets.peek().is_none() {
            return;
        }
        let forwarded = Forwarded {
            message: Arc::clone(message),
            publisher: named(publisher, message),
            whom: whom(),
            origin: once.cloned(),
        };
        let encoded = forwarded.append(std::mem::take(&mut self.forwarding.encoded));
        for target in targets {
            let lost = target.known.then_some(message);
            self.put(io, target.node, &encoded, lost);
            self.mark_crowding(target.node, publisher);
        }
        self.forwarding.encoded = encoded;
        self.forwarding.encoded.clear();
    }

    /// Sends a message to a node, for one member of a group there. `hops`: nodes that it was sent to before.
    pub(crate) fn forward_to_group(
        &mut self,
        io: &mut impl LoopIo,
        node: NodeId,
        group: &Group,
        message: &Arc<ApplicationMessage>,
        hops: u8,
        once: Option<&Origin>,
    ) {
        let Some(peers) = self.base.node.peers() else {
            return;
        };
        let mut forwarded = Forwarded {
            message: Arc::clone(message),
            publisher: named(message.publisher, message),
            whom: Whom::Group(ForGroup {
                filter: group.filter().into(),
                hops: hops + 1,
                copy: 0,
            }),
            origin: once.cloned(),
        };
        if message.qos > QoS::AtMostOnce {
            peers.keep_copy(node, &mut forwarded);
        }
        let lost = forwarded.copy().is_none().then_some(message);
        let encoded = forwarded.append(Vec::new());
        self.put(io, node, &encoded, lost);
        self.mark_crowding(node, message.publisher);
    }

    /// Adds a message to the frame of a node. `lost`: what is dropped if it does not get there.
    fn put(
        &mut self,
        io: &mut impl LoopIo,
        to: NodeId,
        encoded: &[u8],
        lost: Option<&Arc<ApplicationMessage>>,
    ) {
        if encoded.len() > LARGEST {
            if let Some(message) = lost {
                record_drop(
                    &self.base.drops,
                    io.now_ms(),
                    message,
                    Reason::PeerUnreachable,
                );
            }
            return;
        }
        self.base.stats.forwarded.add(1);
        self.base.stats.forwarded_bytes.add(encoded.len() as u64);
        let frame = self.forwarding.frame(to, self.base.index);
        frame.messages.push_encoded(encoded);
        frame.lost_with_it.extend(lost.cloned());
        if frame.messages.is_full() {
            self.send_frames(io);
        } else {
            self.flush_peers_soon(io);
        }
    }

    /// Who publishes to a crowded node is not read before that can take more.
    fn mark_crowding(&mut self, node: NodeId, publisher: u64) {
        if self.forwarding.crowded.contains(&node)
            && let Some(publisher) = SessionKey::from_bits(publisher)
            && publisher.loop_index() == self.base.index
            && let Some(client) = self.clients.get_mut(publisher.key())
        {
            client.crowds = true;
        }
    }

    /// At the end of the turn, what is for other nodes is sent.
    pub(crate) fn flush_peers_soon(&mut self, io: &mut impl LoopIo) {
        if !self.forwarding.flushes {
            self.forwarding.flushes = true;
            io.send(self.base.index, BetweenLoops::FlushPeers.into());
        }
    }

    pub(crate) fn flush_peers(&mut self, io: &mut impl LoopIo) {
        self.forwarding.flushes = false;
        self.send_frames(io);
        self.flush_registrations(io);
        if let Some(peers) = self.base.node.peers() {
            peers.tell_routes(&*self.base.node);
        }
    }

    fn send_frames(&mut self, io: &impl LoopIo) {
        let Some(peers) = self.base.node.peers() else {
            return;
        };
        for Outgoing {
            to,
            messages,
            lost_with_it,
        } in self.forwarding.frames.drain(..)
        {
            if !peers.forward(to, messages) {
                for message in &lost_with_it {
                    record_drop(
                        &self.base.drops,
                        io.now_ms(),
                        message,
                        Reason::PeerUnreachable,
                    );
                }
            } else if peers.is_crowded(to) && !self.forwarding.crowded.contains(&to) {
                self.forwarding.crowded.push(to);
            }
        }
    }

    /// Messages of clients of another node.
    pub(crate) fn receive_from_peer(
        &mut self,
        io: &mut impl LoopIo,
        from: NodeId,
        messages: Vec<Forwarded>,
        bytes: usize,
    ) {
        self.base.stats.from_peers.add(messages.len() as u64);
        self.base.stats.from_peers_bytes.add(bytes as u64);
        for forwarded in messages {
            let Forwarded {
                message,
                whom,
                origin,
                ..
            } = forwarded;
            let once = origin.as_ref();
            match whom {
                Whom::Group(group) => self.receive_for_group(io, from, &message, &group, once),
                Whom::Sessions => {
                    let set = self.find(io, &message);
                    self.deliver_to_sessions(io, message, &set, once);
                }
                Whom::Anybody { served } => self.receive_for_anybody(io, &message, &served, once),
            }
        }
    }

    fn receive_for_anybody(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        served: &[Box<str>],
        once: Option<&Origin>,
    ) {
        let set = self.find(io, message);
        self.deliver_to_sessions(io, Arc::clone(message), &set, once);
        if set.groups.is_empty() {
            return;
        }
        let routes = &self.base.node.routes;
        let known = served.iter().filter_map(|filter| routes.group_of(filter));
        let mut but: Vec<u32> = known.map(|group| group.number().get()).collect();
        but.sort_unstable();
        io.charge(units(served.len()));
        let to = ToGroups {
            which: Which::Own,
            but: but.into(),
            once: of_broker(once),
            publication: None,
            served: None,
        };
        self.deliver_to_groups(io, message, set, to);
    }

    /// A message for one member of a group here; if there are none any more, for one elsewhere.
    fn receive_for_group(
        &mut self,
        io: &mut impl LoopIo,
        from: NodeId,
        message: &Arc<ApplicationMessage>,
        to: &ForGroup,
        once: Option<&Origin>,
    ) {
        let Some(group) = self.base.node.routes.group_of(&to.filter) else {
            self.nobody_is_known(io, &to.filter, message, None, of_broker(once));
            return;
        };
        let members = self.base.node.routes.members(&group);
        let choose = |admits: &dyn Fn(&Member) -> bool| {
            group.choose(&members, message.publisher_hash, admits)
        };
        let here = |m: &Member| m.who.is_session();
        let elsewhere =
            |m: &Member| !m.who.is_node() || (to.hops < HOPS && m.who != Who::Node(from));
        match choose(&here).or_else(|| choose(&elsewhere)) {
            Some(member) => self.give_to_member(io, &group, member, message, to.hops, once),
            None => self.nobody_is_known(io, &to.filter, message, None, of_broker(once)),
        }
    }

    /// Gives messages that were on their way to members on a node that is gone to others.
    pub(crate) fn give_to_others(
        &mut self,
        io: &mut impl LoopIo,
        gone: NodeId,
        copies: Vec<Forwarded>,
    ) {
        for forwarded in copies {
            let Forwarded {
                message,
                whom,
                origin,
                ..
            } = forwarded;
            let Whom::Group(to) = whom else { continue };
            let once = origin.as_ref();
            let group = self.base.node.routes.group_of(&to.filter);
            let members = group
                .as_ref()
                .map(|group| self.base.node.routes.members(group));
            let (Some(group), Some(members)) = (group, members) else {
                self.nobody_is_known(io, &to.filter, &message, None, of_broker(once));
                continue;
            };
            let others = |m: &Member| m.who != Who::Node(gone);
            match group.choose(&members, message.publisher_hash, others) {
                Some(member) => self.give_to_member(io, &group, member, &message, 0, once),
                None => self.nobody_is_known(io, &to.filter, &message, None, of_broker(once)),
            }
        }
    }

    /// Gives a message whose publisher does not wait for it to a member of a group.
    fn give_to_member(
        &mut self,
        io: &mut impl LoopIo,
        group: &Group,
        member: &Member,
        message: &Arc<ApplicationMessage>,
        hops: u8,
        once: Option<&Origin>,
    ) {
        if let Who::Node(node) = member.who {
            self.forward_to_group(io, node, group, message, hops, once);
            return;
        }
        let item = item_for(group, member, message);
        if let Some((client, item)) = self.give_directly(io, group, member, item, once) {
            self.give_to_inbox(&client, item, None, of_broker(once));
        }
    }
}

/// What a message from another node is known by: it has an origin only if the broker publishes it.
fn of_broker(once: Option<&Origin>) -> Option<Once> {
    once.cloned().map(Once::Broker)
}

/// What another node is to name a publisher by. Who is not connected to this node is found by nobody.
fn named(publisher: u64, message: &ApplicationMessage) -> u64 {
    let found_by = SessionKey::from_bits(publisher).map_or(0, SessionKey::found_by);
    with_hash(found_by, message.publisher_hash)
}

/// A message as a member of a group gets it.
pub(crate) fn item_for(group: &Group, member: &Member, message: &Arc<ApplicationMessage>) -> Item {
    Item {
        message: Arc::clone(message),
        qos: effective(message.qos, member.wanted.qos),
        retain: message.retain && member.wanted.retain_as_published,
        subscription_ids: member.wanted.ids(),
        group: Some(group.filter().into()),
    }
}
