//! Connections of one client on several nodes: the older one is closed before the later one is answered.
//!
//! Invariant: a node is told that a connection is closed when everything that came on it has been applied, or
//! never will be; so nothing of it comes after what comes on the later connection.

use std::sync::Arc;

use mqtt_proto::ReasonCode;
use mqtt_session::PacketIdSet;
use net_api::Key;
use peer_protocol::{Asker, Older};
use route_exchange::NodeId;
use store_state::api::Store as _;
use store_state::inbox::Attached;
use store_state::session::{Claimed, SessionOp, TakenFrom};

use crate::clients::{LoopIo, Timer};
use crate::connect::joining::ClaimStage;
use crate::connect::refused::Cause;
use crate::connect::taking::{Next, Settling, Superseded, Taking, Then};
use crate::dispatch::ClientLoop;
use crate::excerpt::excerpt;
use crate::linger::Linger;
use crate::peers::PeerEvent;
use crate::pending::Pending;
use crate::rim::Rim;
use crate::turn::Effect;

/// How long a CONNECT waits for nodes that are to close older connections of its client, in ms. A node that
/// cannot be reached is not waited for at all.
///
/// Limit: a CONNECT that waits for a node that has a connection of its client | {}, if that node is reached and does
/// not answer | refused: 0x88, 3 before MQTT 5.0; the older connection is closed when that node gets to it
const TAKEOVER_MS: u64 = 5_000;

/// How long a connection that another node takes over may take to be read to its end, in ms: a node's share of
/// [`TAKEOVER_MS`].
const READ_MS: u64 = 500;

/// Connections of a loop that are read to their end at the same time. Beyond that they are closed at once.
///
/// Limit: connections of a loop that another node takes over and that are read to their end first | {READ_MS}; {} |
/// closed at once: a DISCONNECT that has come is not seen
const READ_AT_ONCE: usize = 4_096;

/// What is known of the connection that has an identifier here.
enum Holder {
    /// It is not known yet whether it is the older one.
    RoutesUnknown,
    Older,
    Later,
}

impl<R: Rim> ClientLoop<R> {
    /// A claim has found out where the client was. Its connection there is closed before CONNACK.
    pub(crate) fn take_from_others(&mut self, io: &mut impl LoopIo, key: Key, claimed: Claimed) {
        let Claimed {
            epoch,
            resumed,
            taken_from,
            ..
        } = claimed;
        self.close_elsewhere(
            io,
            key,
            (epoch, resumed),
            taken_from,
            Then::Claimed(claimed),
        );
    }

    /// A session goes on that has unreleased publications of QoS 2. Where they came, it is known that all who
    /// are connected have them; so if that is not known here, everybody is asked.
    pub(crate) fn attached(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        epoch: u64,
        attached: Box<Attached>,
    ) {
        let client = self.clients.get_mut(key);
        let Some(joining) = client.and_then(|client| client.rare.get_mut(|of| &mut of.joining))
        else {
            return;
        };
        let from = if joining.unreleased.contains_all(&attached.received) {
            TakenFrom::Nobody
        } else {
            TakenFrom::Unknown
        };
        let then = Then::Attached { epoch, attached };
        self.close_elsewhere(io, key, (epoch, true), from, then);
    }

    /// Has others close what they have of a client, and goes on then.
    pub(crate) fn close_elsewhere(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        (epoch, resumes): (u64, bool),
        from: TakenFrom,
        then: Then,
    ) {
        let node = Arc::clone(&self.base.node);
        let Some(client) = self.clients.get(key) else {
            return;
        };
        if from == TakenFrom::Nobody {
            return self.go_on_joining(io, key, then);
        }
        let older = Older {
            client: client.session.client_id().into(),
            epoch,
            number: client.number,
            resumes,
        };
        let ticket = self
            .base
            .ask(Pending::TakeOver(Box::new(Taking::new(key, then, from))));
        // No answer is worked off before this turn is over.
        let questions = node.peers().map(|peers| {
            peers.close_elsewhere(&*node, from, &older, (self.base.index, ticket.token))
        });
        let id = Key::from_bits(ticket.token);
        if let Some(Pending::TakeOver(taking)) = self.base.pending.get_mut(id) {
            taking.handle_asked(questions.unwrap_or_default());
        }
        self.take_if_closed(io, id);
        if self.base.pending.get(id).is_some() {
            io.arm(io.now_ms() + TAKEOVER_MS, Timer::TakeOver(id).to_bits());
        }
    }

    /// A node has closed what it had of a client, and tells of publications that are not released; `None`: it is not
    /// waited for.
    pub(crate) fn closed_elsewhere(
        &mut self,
        io: &mut impl LoopIo,
        token: u64,
        told: Option<(NodeId, PacketIdSet)>,
    ) {
        let id = Key::from_bits(token);
        let Some(Pending::TakeOver(taking)) = self.base.pending.get_mut(id) else {
            return;
        };
        taking.handle_closed(told);
        self.take_if_closed(io, id);
    }

    /// A connection has waited long enough for nodes that are reached and do not answer. It is refused: were it
    /// let in, there would be two connections of one client (P5). The older ones are closed all the same, when
    /// their nodes get to it.
    pub(crate) fn end_take_over(&mut self, io: &mut impl LoopIo, id: Key) {
        let Some(Pending::TakeOver(taking)) = self.base.pending.remove(id) else {
            return;
        };
        if let Some(peers) = self.base.node.peers() {
            peers.stop_awaiting(&taking.questions);
        }
        let Taking { key, then, .. } = *taking;
        self.base.stats.takeover_timeouts.add(1);
        if let Some(client) = self.clients.get_mut(key) {
            let version = client.session.version();
            if let Some(connection) = client.connection.take() {
                if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
                    tracing::info!(
                        client_id = client.session.client_id(),
                        left_out,
                        "a client is refused: a node that has a connection of it does not answer"
                    );
                }
                self.base.node.count_disconnected();
                let answer = Some((version, ReasonCode::ServerUnavailable));
                let why = (client.who(), Cause::TakeOver);
                self.base.refuse(io, connection, answer, why);
            }
        }
        self.go_on_joining(io, key, then);
    }

    /// The next step of a connection whose older ones are to be closed, if it can be taken.
    pub(crate) fn take_if_closed(&mut self, io: &mut impl LoopIo, id: Key) {
        let (next, key) = match self.base.pending.get_mut(id) {
            Some(Pending::TakeOver(taking)) => (taking.next(), taking.key),
            _ => return,
        };
        match next {
            Next::Wait => return,
            Next::Refuse => return self.end_take_over(io, id),
            Next::GoOn => {}
            Next::WillDue(epoch) => {
                if let Some(client) = self.clients.get(key) {
                    let client = Box::<str>::from(client.session.client_id());
                    let ticket = self.base.ticket(id.to_bits());
                    let op = SessionOp::WillDue {
                        client: client.clone(),
                        epoch,
                    };
                    self.base.node.store().session(&client, ticket, op);
                    return;
                }
            }
        }
        if let Some(Pending::TakeOver(taking)) = self.base.pending.remove(id) {
            let Taking {
                key,
                then,
                unreleased,
                told_by,
                ..
            } = *taking;
            let client = self.clients.get_mut(key);
            if let Some(joining) =
                client.and_then(|client| client.rare.get_mut(|of| &mut of.joining))
            {
                joining.unreleased.extend(unreleased.iter());
                joining.told_by.extend(told_by);
            }
            self.go_on_joining(io, key, then);
        }
    }

    fn go_on_joining(&mut self, io: &mut impl LoopIo, key: Key, then: Then) {
        match then {
            Then::Registered => self.join_registered(io, key),
            Then::Claimed(claimed) => self.claimed(io, key, claimed),
            Then::Attached { epoch, attached } => self.joined_durable(io, key, epoch, *attached),
        }
    }

    /// A node has claimed a client, and wants older connections of it closed.
    /// `is_read`: the connection was read since that is known.
    pub(crate) fn close_older(
        &mut self,
        io: &mut impl LoopIo,
        asker: Asker,
        older: Older,
        is_read: bool,
    ) {
        if !older.resumes {
            // The later connection has what it needs of the session, or another one.
            self.base.node.unreleased.forget(&older.client, older.epoch);
        }
        let home = self.base.node.registry.find(&older.client);
        match home {
            Some(home) if home.loop_index() != self.base.index => {
                io.send(
                    home.loop_index(),
                    PeerEvent::CloseOlder(asker, older).into(),
                );
            }
            None => self.settle_for(asker, older),
            Some(home) => self.close_if_older(io, home.key(), asker, older, is_read),
        }
    }

    fn close_if_older(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        asker: Asker,
        older: Older,
        is_read: bool,
    ) {
        if Linger::is_lingering(&self.clients, key) {
            let (parts, mut turn) = self.turn(io);
            parts
                .linger
                .handle_later_elsewhere(&mut turn, &older.client);
            return self.settle_for(asker, older);
        }
        let holder = self.holder(key, &older);
        let is_older = matches!(holder, Holder::Older);
        if is_older && !is_read && self.reads_first(io, key, asker, &older) {
            return;
        }
        match holder {
            Holder::RoutesUnknown => self.defer_close(key, asker, older),
            Holder::Later => self.tell_closed(asker, &PacketIdSet::new()),
            Holder::Older => {
                let client = self.clients.get(key);
                if client.is_some_and(|client| client.connection.is_some()) {
                    self.end_older(io, key, &older.client, asker.node);
                    // What is left of it then is looked at.
                    self.base.add(Effect::CloseOlder(Box::new((asker, older))));
                    return;
                }
                let (parts, mut turn) = self.turn(io);
                parts
                    .linger
                    .handle_later_elsewhere(&mut turn, &older.client);
                if self.may_supersede(key) {
                    self.defer_close(key, asker, older);
                } else {
                    self.settle_for(asker, older);
                }
            }
        }
    }

    /// A node hears later what becomes of the connection that it wants closed: when the directory or the session store
    /// has answered that one.
    fn defer_close(&mut self, key: Key, asker: Asker, older: Older) {
        let client = self.clients.get_mut(key);
        if let Some(joining) = client.and_then(|client| client.rare.get_mut(|of| &mut of.joining)) {
            joining.defer_close(asker, older);
        }
    }

    /// Whether the store may yet take a connection for the later one, though it is the older one: its claim is on its way,
    /// or an even older one is waited for whose claim may be. Such a claim would supersede the claim of the later
    /// connection, and close that one, unless the later connection claims afterwards.
    fn may_supersede(&self, key: Key) -> bool {
        let joining = self
            .clients
            .get(key)
            .and_then(|c| c.rare.get().joining.as_ref());
        joining.is_some_and(|joining| !matches!(joining.claim, ClaimStage::Given(_)))
    }

    /// A connection ends because its client has a later one on another node.
    fn end_older(&mut self, io: &impl LoopIo, key: Key, client_id: &str, node: NodeId) {
        if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
            tracing::info!(
                client_id = &*excerpt(client_id),
                node = format!("{node:016x}"),
                left_out,
                "a new connection on another node takes the session over"
            );
        }
        self.base.stats.takeovers.add(1);
        // [MQTT-3.1.4-3] [MQTT3-3.1.4-2] the older connection ends with 0x8E
        self.base.end(key, ReasonCode::SessionTakenOver);
    }

    /// Has a connection read before it is closed. False: it is not being read, or too many are.
    fn reads_first(&mut self, io: &mut impl LoopIo, key: Key, asker: Asker, older: &Older) -> bool {
        let connection = self.clients.get(key).and_then(|client| client.connection);
        let Some(connection) = connection.filter(|_| self.superseded.len() < READ_AT_ONCE) else {
            return false;
        };
        if !io.read_soon(connection) {
            return false;
        }
        let now_ms = io.now_ms();
        if self.superseded.is_empty() {
            io.arm(now_ms + 1, Timer::Superseded.to_bits());
        }
        self.superseded.push(Superseded {
            connection,
            asker,
            older: older.clone(),
            until_ms: now_ms + READ_MS,
        });
        self.base.stats.superseded.set(self.superseded.len() as u64);
        true
    }

    /// Connections that other nodes take over are closed when they have been read.
    pub(crate) fn close_superseded(&mut self, io: &mut impl LoopIo) {
        let now_ms = io.now_ms();
        for superseded in std::mem::take(&mut self.superseded) {
            if io.is_read_soon(superseded.connection) && now_ms < superseded.until_ms {
                self.superseded.push(superseded);
            } else {
                let Superseded { asker, older, .. } = superseded;
                self.close_older(io, asker, older, true);
            }
        }
        if !self.superseded.is_empty() {
            io.arm(now_ms + 1, Timer::Superseded.to_bits());
        }
        self.base.stats.superseded.set(self.superseded.len() as u64);
    }

    fn holder(&self, key: Key, older: &Older) -> Holder {
        let Some(client) = self.clients.get(key) else {
            return Holder::Older;
        };
        let stored = client.stored.as_ref().map(|stored| stored.epoch().0);
        let epoch = match &client.rare.get().joining {
            Some(_) if client.number == 0 => return Holder::RoutesUnknown,
            Some(joining) if joining.is_stored && older.epoch != 0 => match joining.claim {
                ClaimStage::Given(epoch) => epoch,
                ClaimStage::Unasked | ClaimStage::Asked => return Holder::RoutesUnknown,
            },
            Some(_) => 0,
            None => stored.unwrap_or(0),
        };
        let is_older = if epoch != 0 && older.epoch != 0 {
            epoch < older.epoch
        } else {
            client.number < older.number
        };
        if is_older {
            Holder::Older
        } else {
            Holder::Later
        }
    }

    /// Tells a node that a client has no older connection here, when all of its work is done.
    fn settle_for(&mut self, asker: Asker, older: Older) {
        // What is still on its way to inboxes is of another session, unless the later connection has this one.
        let shards = Some(self.base.node.store().inbox_shards()).filter(|_| older.resumes);
        // What became of the will is on its way to the store, if that knows the client.
        let is_known = older.epoch != 0;
        let left = shards.as_ref().map_or(0, |shards| shards.len()) + usize::from(is_known);
        if left == 0 {
            return self.tell_closed(asker, &PacketIdSet::new());
        }
        let client = older.client.clone();
        let settling = Settling::new(left, asker, older);
        let ticket = self.base.ask(Pending::Settle(settling));
        if let Some(shards) = shards {
            self.base.node.store().inbox_barrier(&shards, ticket);
        }
        if is_known {
            self.base.node.store().session_barrier(&client, ticket);
        }
    }

    /// Shards have done all that they were asked before, or cannot.
    pub(crate) fn settled(&self, settling: Settling) {
        let unreleased = if settling.resumes {
            let now_ms = self.base.node.rim.now_ms();
            let unreleased = &self.base.node.unreleased;
            unreleased.tell(&settling.client, settling.epoch, now_ms)
        } else {
            PacketIdSet::new()
        };
        self.tell_closed(settling.asker, &unreleased);
    }

    /// A client is connected, and it is known here which of its publications are not released: it need not be
    /// remembered anywhere else. `told_by`: the other nodes that have told of them.
    pub(crate) fn forget_unreleased(
        &self,
        client_id: &str,
        epoch: u64,
        key: Key,
        told_by: &[NodeId],
    ) {
        self.base.node.unreleased.forget(client_id, epoch);
        let Some(peers) = self.base.node.peers() else {
            return;
        };
        for node in told_by {
            let older = Older {
                client: client_id.into(),
                epoch,
                number: self.clients.get(key).map_or(0, |client| client.number),
                resumes: false,
            };
            peers.have_closed(&*self.base.node, *node, older);
        }
    }

    fn tell_closed(&self, asker: Asker, unreleased: &PacketIdSet) {
        if let Some(peers) = self.base.node.peers() {
            peers.tell_closed(asker, unreleased);
        }
    }
}
