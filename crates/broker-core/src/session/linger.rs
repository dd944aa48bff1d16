//! Sessions with many subscriptions whose connections have just ended, and sessions that were sent QoS 0.
//!
//! To take all subscriptions of a session out of the routes and to put them in again costs by their number, and a
//! client can have that done by a CONNECT of a few bytes. So the routes of such a session stay for a while after
//! its connection has ended, and its inbox stays attached: it lingers. A later connection to this node takes both
//! over as they are. What comes by these routes meanwhile, messages of QoS 0, goes to the inbox. If messages of QoS 0 came
//! by the last connection, more are likely to be on their way, from this node or another one: then a session with few
//! subscriptions lingers, too.
//!
//! The routes are under the key of an entry of the loop's clients: the one whose connection came first. The entry
//! stays when that connection ends; later connections have entries of their own, so that nothing that was asked
//! for one connection is answered to another.
//!
//! Invariants: while nobody is connected, the client identifier belongs to the entry that holds the routes. The
//! store takes messages from there only as long as no later connection has attached the inbox, whichever node that
//! is on. The subscriptions of an entry are those of the inbox; a session that may have others does not linger.
//!
//! Deliberately absent: who may have the session. A connection that wants it claims it as any other does, and
//! takes the routes over when the inbox has been attached for it; if it is refused, they stay as they were.

use std::sync::Arc;

use mqtt_session::{
    ApplicationMessage, Delivery, DropReason, Dropped, Qos0Inbox, TakenSubscriptions, Timestamp,
};
use net_api::Key;
use store_state::api::Store as _;
use store_state::inbox::{Attached, InboxOp, InboxReply, Item};

use crate::clients::{LoopIo, Timer, record};
use crate::connect::claim::{route_connection, subscription};
use crate::dispatch::ClientLoop;
use crate::inbox::Came;
use crate::key::{Publisher, SessionKey};
use crate::pending::{Answer, Pending};
use crate::retained::backlog::Replay;
use crate::rim::Rim;
use crate::session::lingering::{Kept, Late, Lingering};
use crate::share::{FILTER, units};
use crate::turn::Effect;
use store_state::api::{ShardRef, ShardRefs};

/// Subscriptions from which on a session is one with many.
const MANY: usize = 64;

/// Sessions of a loop that linger at the same time. The routes of others are taken out at once.
const MOST: usize = 1024;

/// How long routes stay, in µs for each subscription: some hundred times what it takes to make them, so that who
/// waits until they are gone has others wait for a small share of the time.
const PER_SUBSCRIPTION_US: u64 = 500;

/// The least and the most of that, in ms.
const SHORTEST_MS: u64 = 1_000;
const LONGEST_MS: u64 = 10_000;

/// Bytes, for each subscription, of messages that a lingering session gets, and the least that one of them counts.
/// Beyond that it costs less to take its routes out: then the shard keeps a message once for all its sessions.
const LATE_BYTES: usize = 1_024;
const LATE_LEAST: usize = 256;

/// The least bytes of such messages: 1,024 short messages, as many as come in the time that routes stay for at least.
const LATE_SHORT: usize = 1_024 * LATE_LEAST;

/// Bytes of such messages of all sessions of a loop that are on their way to inboxes. Beyond that they are dropped.
const LATE_UNDER_WAY: usize = 8 << 20;

/// Whom a message is for that routes of a session lead to.
pub(crate) enum Led {
    /// The client that has the routes now.
    To(Key, Delivery),
    /// The shared group that has chosen the session while it was connected: another member is to get it.
    Group(Delivery),
    /// Nobody is connected, and the inbox gets it.
    Kept,
}

impl<R: Rim> ClientLoop<R> {
    /// For how long a session lingers with so many subscriptions, in ms; `None`: it does not.
    /// `is_sent`: messages of QoS 0 are likely to be on their way.
    fn lingers_for(&self, count: usize, expiry_s: u32, is_sent: bool) -> Option<u64> {
        let ms = (count as u64 * PER_SUBSCRIPTION_US / 1000).clamp(SHORTEST_MS, LONGEST_MS);
        let has_place = self.lingerers.count < MOST;
        // It is not to be there when the session has ended.
        let stays = u64::from(expiry_s) * 1000 >= ms;
        let goes_on = !self.base.closing && self.base.drained.is_none();
        ((count >= MANY || is_sent) && has_place && stays && goes_on).then_some(ms)
    }

    /// For how long the session of a client lingers whose connection ends.
    pub(crate) fn lingers(&self, key: Key) -> Option<u64> {
        let client = self.clients.get(key)?;
        let inbox = client.stored.as_ref()?.inbox()?;
        let is_sent = inbox.has_come_directly();
        let replay = client.rare.get().replay.as_ref();
        let is_known = client.unanswered == 0 && replay.is_none_or(|of| of.is_settled());
        let session = &client.session;
        let count = session.subscriptions().len();
        let ms = self.lingers_for(count, session.session_expiry(), is_sent)?;
        is_known.then_some(ms)
    }

    /// The connection of a client has ended, and its session lingers.
    pub(crate) fn linger(&mut self, io: &mut impl LoopIo, key: Key, epoch: u64, ms: u64) {
        let holder = self.holder_for(key);
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        client.rare.take(|of| &mut of.kept);
        client.session.release_spare();
        client.access = None;
        self.base.node.quotas.handle_gone(
            client.confirmed_user(),
            &client.session,
            true,
            Timestamp(io.now_ms()),
        );
        let subscriptions = client.session.take_subscriptions();
        let replay = client
            .rare
            .take(|of| &mut of.replay)
            .map(|of| Box::new(of.suspended()));
        let login = client.login.take();
        let expires_at = login.and_then(|login| login.expires_at());
        let until_ms = io.now_ms() + ms;
        self.expiries.replace(key, expires_at, None);
        if let Some(holder) = holder {
            self.hand_back(key, holder);
            self.base.add(Effect::Forget(key));
        }
        self.count_lingering(1);
        let holder = holder.unwrap_or(key);
        let armed_ms = self.lingering(holder).map_or(0, |before| before.armed_ms);
        let lingering = Lingering {
            epoch,
            last: key,
            late_bytes: (subscriptions.subscriptions().len() * LATE_BYTES).max(LATE_SHORT),
            subscriptions: Some(subscriptions),
            replay,
            successor: None,
            until_ms,
            armed_ms,
            is_over: false,
        };
        if let Some(client) = self.clients.get_mut(holder) {
            client
                .rare
                .set(|of| &mut of.kept, Some(Box::new(Kept::Here(lingering))));
        }
        self.arm_linger(io, holder);
    }

    /// Arms the loop for the end of a lingering. Timers cannot be taken back: one for each connection that ends
    /// would be many.
    fn arm_linger(&mut self, io: &mut impl LoopIo, holder: Key) {
        let now = io.now_ms();
        if let Some(lingering) = self.lingering_mut(holder) {
            let at = lingering.until_ms.max(now);
            if lingering.armed_ms == 0 || at < lingering.armed_ms {
                lingering.armed_ms = at;
                io.arm(at, Timer::Linger(holder).to_bits());
            }
        }
    }

    /// The time that the loop was armed for.
    pub(crate) fn linger_timer(&mut self, io: &mut impl LoopIo, holder: Key) {
        if let Some(lingering) = self.lingering_mut(holder) {
            lingering.armed_ms = 0;
        }
        self.linger_is_over(io, holder);
        if self.is_lingering(holder) && !self.is_over(holder) {
            self.arm_linger(io, holder);
        }
    }

    /// The inbox of a client has been attached for a connection that is gone. The session lingers, if it is one
    /// with many subscriptions: a client is not to have others attach and detach it by connecting and going away.
    /// False: it does not.
    pub(crate) fn linger_unjoined(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        epoch: u64,
        attached: Attached,
    ) -> bool {
        let holder = self.holder_for(key);
        let Some(client) = self.clients.get(key) else {
            return false;
        };
        let expiry = client.session.session_expiry();
        let count = match holder.and_then(|holder| self.lingering(holder)) {
            Some(Lingering { subscriptions, .. }) => subscriptions.as_ref().map_or(0, count_of),
            None => attached.subscriptions.len(),
        };
        let Some(ms) = self.lingers_for(count, expiry, false) else {
            return false;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        let op = InboxOp::Linger {
            session: self
                .base
                .node
                .store()
                .session_name(&client_id, attached.inbox),
            epoch,
            sent: 0,
        };
        self.base.tell_inbox(op);
        let taken = self.take_lingering(key);
        if taken.is_none() {
            self.route_all(io, key, &attached);
        }
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        match taken {
            Some(taken) => client.session.restore_subscriptions(taken),
            None => {
                let replay = Replay::resumed(attached.owed, &attached.subscriptions);
                client.rare.set(|of| &mut of.replay, replay.map(Box::new));
                let all = attached.subscriptions.into_iter().map(subscription);
                client.session.add_subscriptions(all.collect());
                let filters = client.session.filters().0;
                self.base.stats.subscription_bytes.add(filters);
            }
        }
        self.base
            .node
            .quotas
            .handle_connected(client.confirmed_user(), &client.session);
        self.linger(io, key, epoch, ms);
        true
    }

    /// Routes what goes to the connection of a client with a durable session.
    pub(crate) fn route_all(&mut self, io: &mut impl LoopIo, key: Key, attached: &Attached) {
        let session_key = self.base.session_key(key);
        io.charge(units(attached.subscriptions.len()).saturating_mul(FILTER));
        for stored in &attached.subscriptions {
            route_connection(&self.base.node.routes, session_key, stored);
        }
        if self.base.node.peers().is_some() && !attached.subscriptions.is_empty() {
            self.flush_peers_soon(io);
        }
    }

    fn lingering(&self, key: Key) -> Option<&Lingering> {
        match self.clients.get(key)?.rare.get().kept.as_deref() {
            Some(Kept::Here(lingering)) => Some(lingering),
            _ => None,
        }
    }

    fn lingering_mut(&mut self, key: Key) -> Option<&mut Lingering> {
        match self
            .clients
            .get_mut(key)?
            .rare
            .get_mut(|of| &mut of.kept)
            .map(|of| &mut **of)
        {
            Some(Kept::Here(lingering)) => Some(lingering),
            _ => None,
        }
    }

    /// The entry that holds the routes of a client, if that is another one.
    fn holder_for(&self, key: Key) -> Option<Key> {
        match self.clients.get(key)?.rare.get().kept.as_deref() {
            Some(Kept::By(holder)) => Some(*holder),
            _ => None,
        }
    }

    /// Whether an entry only holds routes, and no connection has taken them over or is about to.
    pub(crate) fn is_lingering(&self, key: Key) -> bool {
        self.lingering(key)
            .is_some_and(|lingering| lingering.successor.is_none())
    }

    /// The key that routes of a session's own subscriptions are under.
    pub(crate) fn route_key(&self, key: Key) -> SessionKey {
        self.base.session_key(self.holder_for(key).unwrap_or(key))
    }

    /// The key that the client publishes under whose routes are under a key.
    pub(crate) fn behind_route(&self, routes: SessionKey) -> SessionKey {
        match self.lingering(routes.key()) {
            Some(lingering) => self
                .base
                .session_key(lingering.successor.unwrap_or(lingering.last)),
            None => routes,
        }
    }

    /// A client that connects is to have the routes that another entry holds.
    pub(crate) fn succeed(&mut self, holder: Key, successor: Key) {
        if let Some(lingering) = self.lingering_mut(holder) {
            lingering.successor = Some(successor);
        }
        if let Some(client) = self.clients.get_mut(successor) {
            client
                .rare
                .set(|of| &mut of.kept, Some(Box::new(Kept::By(holder))));
        }
    }

    /// The epoch that the inbox of a client lingers since, as far as this loop knows, and whether it knows what
    /// the subscriptions owe.
    pub(crate) fn left_by(&self, key: Key) -> Option<(u64, bool)> {
        let lingering = self.lingering(self.holder_for(key)?)?;
        Some((lingering.epoch, lingering.replay.is_some()))
    }

    /// The subscriptions that routes are held for. The client has joined, and takes both over, and the replay.
    pub(crate) fn take_lingering(&mut self, key: Key) -> Option<TakenSubscriptions> {
        let holder = self.holder_for(key)?;
        let lingering = self.lingering_mut(holder)?;
        let taken = lingering.subscriptions.take()?;
        let replay = lingering.replay.take();
        if let Some(client) = self.clients.get_mut(key) {
            client.rare.set(|of| &mut of.replay, replay);
        }
        self.count_lingering(-1);
        Some(taken)
    }

    fn count_lingering(&mut self, more: isize) {
        self.lingerers.count = self.lingerers.count.saturating_add_signed(more);
        self.base.stats.lingering.set(self.lingerers.count as u64);
    }

    /// The client identifier belongs to the entry that holds the routes again.
    fn hand_back(&self, key: Key, holder: Key) {
        if let Some(client) = self.clients.get(key) {
            let (from, to) = (self.base.session_key(key), self.base.session_key(holder));
            let client_id = client.session.client_id();
            self.base.node.registry.hand_on(client_id, from, to);
        }
    }

    /// A client is gone. If it was refused, or gave up, the routes stay as long as they would have without it.
    pub(crate) fn leave_lingering(&mut self, io: &mut impl LoopIo, key: Key) {
        let Some(holder) = self.holder_for(key) else {
            return;
        };
        match self.lingering_mut(holder) {
            Some(lingering) if lingering.subscriptions.is_some() => {
                lingering.successor = None;
                self.arm_linger(io, holder);
                self.hand_back(key, holder);
                if let Some(client) = self.clients.get_mut(key) {
                    client.rare.take(|of| &mut of.kept);
                }
            }
            _ => self.drop_lingering(io, key),
        }
    }

    /// A client has no use for the routes that another entry holds.
    pub(crate) fn drop_lingering(&mut self, io: &mut impl LoopIo, key: Key) {
        if let Some(holder) = self.holder_for(key) {
            if let Some(client) = self.clients.get_mut(key) {
                client.rare.take(|of| &mut of.kept);
            }
            self.end_lingering(io, holder);
        }
    }

    /// Routes have stayed long enough, if nobody has taken them over or is about to.
    fn linger_is_over(&mut self, io: &mut impl LoopIo, holder: Key) {
        if self.is_lingering(holder)
            && let Some(lingering) = self.lingering_mut(holder)
            && lingering.until_ms <= io.now_ms()
            && !std::mem::replace(&mut lingering.is_over, true)
        {
            self.lingerers.over.push_back(holder);
        }
        self.end_next(io);
    }

    /// Whether the time is over of an entry that only holds routes; of this lingering, not of one before it.
    fn is_over(&self, holder: Key) -> bool {
        self.is_lingering(holder) && self.lingering(holder).is_some_and(|of| of.is_over)
    }

    /// None of the sessions is to linger any longer.
    pub(crate) fn end_all_lingering(&mut self, io: &mut impl LoopIo) {
        let all: Vec<Key> = self.clients.keys().collect();
        for holder in all {
            if let Some(lingering) = self.lingering_mut(holder) {
                lingering.until_ms = 0;
                self.linger_is_over(io, holder);
            }
        }
    }

    /// The process ends: inboxes are detached, so that the store takes what comes for them from now on.
    pub(crate) fn detach_all_lingering(&mut self) {
        let all: Vec<Key> = self.clients.keys().collect();
        for holder in all {
            if let Some(op) = self.detachment(holder) {
                self.base.tell_inbox(op);
            }
        }
    }

    /// Asks to detach the next inbox of those whose time is over.
    fn end_next(&mut self, io: &mut impl LoopIo) {
        while self.lingerers.ending.is_none()
            && let Some(holder) = self.lingerers.over.pop_front()
        {
            if !self.is_over(holder) {
                // A client that connects is to have it. If that comes to nothing, the timer is armed again.
                if let Some(lingering) = self.lingering_mut(holder) {
                    lingering.is_over = false;
                }
            } else if io.has_done_enough() {
                self.lingerers.over.push_front(holder);
                io.arm(io.now_ms(), Timer::Linger(holder).to_bits());
                return;
            } else if let Some(op) = self.detachment(holder) {
                self.lingerers.ending = Some(holder);
                self.base.ask_inbox(Pending::LingerEnd(holder), op);
            }
        }
    }

    /// Detaches the inbox of a session that lingers. If there was a later connection elsewhere, it changes nothing.
    fn detachment(&self, holder: Key) -> Option<InboxOp> {
        let lingering = self.lingering(holder)?;
        lingering.subscriptions.as_ref()?;
        let client_id = self.clients.get(holder)?.session.client_id();
        Some(InboxOp::Detach {
            session: self.base.node.store().client_name(client_id).into(),
            epoch: lingering.epoch,
            sent: 0,
        })
    }

    /// The inbox is detached, and whoever routes to its shard knows it: the routes to this node can go.
    pub(crate) fn detach_answered(&mut self, io: &mut impl LoopIo, holder: Key) {
        self.lingerers.ending = None;
        if self.is_over(holder) {
            self.end_lingering(io, holder);
        } else if let Some(lingering) = self.lingering_mut(holder) {
            lingering.is_over = false;
        }
        self.end_next(io);
    }

    /// The session is another node's: its routes can go, and its inbox is detached unless that node has it.
    pub(crate) fn end_lingering_of(&mut self, io: &mut impl LoopIo, client_id: &str) {
        let home = self.base.node.registry.find(client_id);
        let holder = home.filter(|home| home.loop_index() == self.base.index);
        if let Some(holder) = holder.map(SessionKey::key)
            && self.is_lingering(holder)
        {
            if let Some(op) = self.detachment(holder) {
                self.base.tell_inbox(op);
            }
            self.end_lingering(io, holder);
        }
    }

    /// Takes routes out, with the entry that holds them.
    fn end_lingering(&mut self, io: &mut impl LoopIo, holder: Key) {
        let Some(Lingering { subscriptions, .. }) = self.lingering_mut(holder) else {
            return;
        };
        let subscriptions = subscriptions.take();
        if let Some(subscriptions) = subscriptions {
            self.count_lingering(-1);
            self.base
                .stats
                .subscription_bytes
                .sub(subscriptions.bytes());
            let session_key = self.base.session_key(holder);
            self.take_out_routes(io, session_key, subscriptions.subscriptions());
        }
        self.base.add(Effect::Forget(holder));
    }

    /// Whom a message for the routes of an entry is for. `shards`: those that were asked to keep the message, if it
    /// was published here and matched; `None`: as if all were.
    pub(crate) fn led_to(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        delivery: Delivery,
        shards: Option<(&[ShardRef], &ShardRefs)>,
    ) -> Led {
        let Some(lingering) = self.lingering(key) else {
            return Led::To(key, delivery);
        };
        if delivery.group.is_some() {
            return Led::Group(delivery);
        }
        let successor = lingering.successor;
        if let Some(successor) = successor.filter(|_| lingering.subscriptions.is_none()) {
            return Led::To(successor, delivery);
        }
        self.store_late(io, key, delivery, shards);
        Led::Kept
    }

    fn store_late(
        &mut self,
        io: &mut impl LoopIo,
        holder: Key,
        delivery: Delivery,
        shards: Option<(&[ShardRef], &ShardRefs)>,
    ) {
        let Some(client) = self.clients.get_mut(holder) else {
            return;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        let Some(Kept::Here(lingering)) =
            client.rare.get_mut(|of| &mut of.kept).map(|of| &mut **of)
        else {
            return;
        };
        let bytes = (client_id.len() + delivery.message.body.heap_len()).max(LATE_LEAST);
        let is_full = self.lingerers.late_bytes + bytes > LATE_UNDER_WAY;
        if is_full || self.base.settings.limits.policy.qos0_inbox == Qos0Inbox::Never {
            return self.drop_late(io, &client_id, delivery.message);
        }
        let epoch = lingering.epoch;
        lingering.late_bytes = lingering.late_bytes.saturating_sub(bytes);
        if lingering.late_bytes == 0 {
            lingering.until_ms = 0;
        }
        self.lingerers.late_bytes += bytes;
        // Which shards another node has asked is not known here.
        let publisher = Publisher::from_bits(delivery.message.publisher);
        let shards = shards.filter(|_| matches!(publisher, Some(Publisher::Here(_))));
        let slot = self.base.node.store().inbox_slot(&client_id);
        let op = InboxOp::DeliverLate {
            session: self.base.node.store().client_name(&client_id).into(),
            epoch,
            detached: shards.is_some_and(|(shards, known)| {
                let own = known.of_slot(slot);
                own.is_none_or(|own| !shards.contains(&own))
            }),
            item: Item {
                message: Arc::clone(&delivery.message),
                qos: delivery.qos,
                retain: delivery.retain,
                subscription_ids: delivery.subscription_ids.clone(),
                group: None,
            },
        };
        let late = Late {
            client: client_id.clone(),
            holder,
            delivery,
            bytes,
        };
        self.base.ask_inbox(Pending::Late(Box::new(late)), op);
        self.linger_is_over(io, holder);
    }

    /// The inbox of a client that was not connected has a message, or not.
    pub(crate) fn late_answered(&mut self, io: &mut impl LoopIo, late: Late, answer: &Answer) {
        self.lingerers.late_bytes -= late.bytes;
        match answer {
            Answer::Inbox(InboxReply::Published { .. }) => {}
            Answer::Inbox(InboxReply::Stale) => match self.lingering_mut(late.holder) {
                // The client is connected since, here. Its routes brought the message to nobody else.
                Some(Lingering {
                    subscriptions: None,
                    successor: Some(successor),
                    ..
                }) => {
                    let successor = *successor;
                    self.deliver_to_client(io, successor, late.delivery, Came::Earlier);
                }
                // It is elsewhere, or its session has ended.
                Some(lingering) => {
                    lingering.until_ms = 0;
                    self.linger_is_over(io, late.holder);
                }
                None => {}
            },
            _ => self.drop_late(io, &late.client, late.delivery.message),
        }
    }

    fn drop_late(&self, io: &impl LoopIo, client: &str, message: Arc<ApplicationMessage>) {
        let reason = DropReason::OfflineQos0;
        record(
            &self.base.drops,
            io.now_ms(),
            client,
            &Dropped { message, reason },
        );
    }
}

fn count_of(taken: &TakenSubscriptions) -> usize {
    taken.subscriptions().len()
}
