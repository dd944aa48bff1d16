//! Back-pressure from a subscriber's queue to its publishers (P8).
//!
//! A connected subscriber whose queue of QoS 1 and 2 messages fills up holds back the publishers that
//! fill it: their connections are not read, TCP does the rest, and nothing is lost. Lest one stuck
//! subscriber stop its publishers for good, it may do so only for a set time; then they go on, what
//! does not fit is dropped by the queue's policy, and it holds nobody back until it has drained.
//!
//! What a held publisher sends is read on, as far as acknowledgements and pings go, so that its own
//! queue can drain; its PUBLISH packets are kept aside, up to a limit, and handled in their order when
//! it is let go. So sessions that hold each other still make progress.
//!
//! A message that was on its way between loops when its publisher was held back is queued beyond the
//! limit: at most what a publisher may send in a turn and what an inbox between loops holds.
//!
//! A publisher on another node is held back there: that node is told, and told again when it may go on. What it has
//! been told ends with its connection. Messages that are on their way between nodes by then are queued beyond the
//! limit as well: links are bounded.
//!
//! A subscriber earns that by draining. One that held publishers back for the whole time and did not drain has to
//! drain eight times before it counts as one that does, and a publisher that has waited so in vain is not held
//! back by such ones, or by new ones, for nine times as long: together they take a tenth of its time. A publisher
//! whose messages have other receivers too waits for a subscriber that has not yet drained only as long as that one
//! has earned by acknowledging messages: one that never read holds nobody else up.
//!
//! Invariant: each hold is released exactly once, by draining, by time, by the subscriber's end, or by that of the
//! connection between their nodes.

use mqtt_session::class_of;
use std::time::Duration;

use net_api::Key;
use peer_protocol::{Foreign, place_of};
use route_exchange::NodeId;

use crate::backpressure::held::Holder;
use crate::backpressure::throttle::{Bounds, Receivers, Step, Throttle};
use crate::clients::{BetweenLoops, LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::excerpt::excerpt;
use crate::key::{Publisher, SessionKey};
use crate::node::Node;
use crate::rim::Rim;
use crate::turn::Effect;
use mqtt_session::Timestamp;

/// So often a subscriber that did not drain in time has to drain before it counts as one that does.
const PROBATION: i8 = 8;

/// So many messages that it has acknowledged earn a subscriber that has not shown that it drains the longest hold;
/// fewer, their part of it.
const EARNED: u64 = 1_250;

/// For so many times as long as it was held, a publisher that has waited in vain does not wait for subscribers that have
/// not shown that they drain.
const SPARED: u64 = 9;

/// How often the log says of one subscriber that it holds publishers back, in ms.
const SAY_MS: u64 = 60_000;

/// Publishers that one subscriber holds back at most; further ones are not.
const PUBLISHERS: usize = 1024;

impl<R: Rim> ClientLoop<R> {
    /// A message of QoS 1 or 2 is about to be queued: when the queue of a connected session is three
    /// quarters full, the publisher is held back. True: it is, and the message is to be kept.
    ///
    /// `has_others`: other sessions get the message too. They wait as well, as long as the session has earned.
    pub(crate) fn hold_back(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        publisher: u64,
        has_others: bool,
    ) -> bool {
        let mut hold_ms = self.base.settings.hold_publisher_ms;
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let session = &client.session;
        let policy = self.base.settings.policy_of(class_of(session));
        let full = session.queue_len() as u64 * 4 >= u64::from(policy.queue_messages) * 3
            || session.queue_bytes().saturating_mul(4) >= policy.queue_bytes.saturating_mul(3);
        if !full || hold_ms == 0 || !session.is_online() {
            return false;
        }
        let name = publisher;
        let Some(publisher) = Publisher::from_bits(publisher) else {
            return false;
        };
        if publisher == Publisher::Here(SessionKey::new(self.base.index, key)) {
            // Who floods itself reads its own messages only if its connection is read.
            return false;
        }
        let hold = client.hold.get_or_insert_default();
        if hold.of.contains(&publisher) {
            return true;
        }
        if hold.spent || hold.of.len() >= PUBLISHERS {
            return false;
        }
        let now = io.now_ms();
        if hold.drained <= 0 {
            let earned_ms = self.base.settings.hold_unearned_ms
                + hold_ms * u64::from(client.acknowledged) / EARNED;
            if has_others && earned_ms < hold_ms {
                hold_ms = earned_ms;
                if hold_ms == 0 || hold.until_ms > now + hold_ms {
                    self.base.stats.holds_spared.add(1);
                    return false;
                }
            }
            if self.base.node.slow.spares(name, now) {
                self.base.stats.holds_spared.add(1);
                return false;
            }
        }
        if let Publisher::Elsewhere(publisher) = publisher
            && !tell_node(&self.base.node, publisher, true)
        {
            return false;
        }
        hold.of.push(publisher);
        self.base.stats.holding.add(1);
        if hold.until_ms == 0 {
            hold.until_ms = now + hold_ms;
            hold.length_ms = hold_ms;
            io.arm(hold.until_ms, Timer::Hold(key).to_bits());
        }
        let is_due = hold.said_ms == 0 || now >= hold.said_ms + SAY_MS;
        let left_out = is_due.then(|| self.base.node.slow.take_line(now)).flatten();
        if left_out.is_some() {
            hold.said_ms = now;
        }
        let holder = Box::new(Holder {
            subscriber: excerpt(client.session.client_id()).into(),
            line: left_out,
        });
        match publisher {
            Publisher::Here(publisher) if publisher.loop_index() == self.base.index => {
                self.held(io, publisher.key(), Some(holder));
            }
            Publisher::Here(publisher) => {
                io.send(
                    publisher.loop_index(),
                    BetweenLoops::Hold(publisher, Some(holder)).into(),
                );
            }
            Publisher::Elsewhere(publisher) => {
                let name = format!("{publisher:?}, on another node");
                holder.note(&name, &self.base.node.slow, Timestamp(now));
            }
        }
        true
    }

    /// A publication of a client is kept by all who are to keep it: if durable sessions among its receivers are
    /// filling up, the client may be held back for a moment.
    pub(crate) fn throttle_publisher(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        receivers: Receivers,
        topic: &[u8],
    ) {
        let now = Timestamp(io.now_ms());
        let bounds = Bounds {
            longest: Duration::from_millis(self.base.settings.hold_publisher_ms),
            unearned: Duration::from_millis(self.base.settings.hold_unearned_ms),
        };
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let hold = client.hold.get_or_insert_default();
        let throttle = hold
            .throttle
            .get_or_insert_with(|| Throttle::new(now, bounds));
        let step = throttle.handle_publication(receivers, now, bounds);
        if throttle.is_idle(bounds) {
            hold.throttle = None;
        }
        match step {
            Step::None => {
                if hold.is_idle() {
                    client.hold = None;
                }
            }
            Step::Spared => self.base.stats.holds_spared.add(1),
            Step::PauseUntil(until) => {
                hold.by += 1;
                let publisher = client.session.client_id();
                self.base.node.slow.handle_paused(publisher, topic, now);
                self.base.stats.holds.add(1);
                self.base
                    .stats
                    .throttled_ms
                    .add(until.saturating_since(now));
                io.arm(until.0, Timer::Throttled(key).to_bits());
            }
        }
    }

    /// A moment has passed for which a publisher was held back.
    pub(crate) fn end_throttle(&mut self, key: Key) {
        let hold = self.clients.get_mut(key).and_then(|c| c.hold.as_mut());
        if let Some(hold) = hold
            && hold.throttle.as_mut().is_some_and(Throttle::handle_timer)
        {
            self.released(key);
        }
    }

    /// A publisher of this loop is held back: from its next PUBLISH on, its messages wait.
    pub(crate) fn held(&mut self, io: &impl LoopIo, key: Key, holder: Option<Box<Holder>>) {
        if let Some(client) = self.clients.get_mut(key) {
            if let Some(holder) = holder {
                let publisher = excerpt(client.session.client_id());
                holder.note(&publisher, &self.base.node.slow, Timestamp(io.now_ms()));
            }
            self.base.stats.holds.add(1);
            client.hold.get_or_insert_default().by += 1;
        }
    }

    /// One subscriber less holds this publisher back.
    pub(crate) fn released(&mut self, key: Key) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if let Some(hold) = &mut client.hold {
            hold.by = hold.by.saturating_sub(1);
            if hold.by > 0 {
                return;
            }
        }
        self.base.add(Effect::HeldFrames(key));
    }

    /// The packets that were kept of a publisher have been handled: its connection is read, unless it is held again.
    pub(crate) fn go_on_reading(&mut self, io: &mut impl LoopIo, key: Key) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if let Some(hold) = &client.hold {
            if hold.is_held() {
                return;
            }
            if hold.is_idle() {
                client.hold = None;
            }
        }
        if let Some(connection) = client.connection {
            io.resume(connection);
        }
    }

    /// After transmitting: a queue that is less than half full holds nobody back.
    pub(crate) fn relax_hold(&mut self, io: &mut impl LoopIo, key: Key) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(hold) = &client.hold else { return };
        let session = &client.session;
        let policy = self.base.settings.policy_of(class_of(session));
        let drained = session.queue_len() as u64 * 2 < u64::from(policy.queue_messages)
            && session.queue_bytes() * 2 < policy.queue_bytes;
        if drained && (hold.spent || !hold.of.is_empty()) {
            if let Some(hold) = &mut client.hold
                && !hold.of.is_empty()
            {
                hold.drained = hold.drained.saturating_add(1).min(1);
            }
            self.let_go(io, key, false);
        }
    }

    /// The time for holding back is over.
    pub(crate) fn end_hold(&mut self, io: &mut impl LoopIo, key: Key) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if let Some(hold) = &client.hold
            && hold.until_ms != 0
            && hold.until_ms <= io.now_ms()
        {
            if let Some(left_out) = self.base.node.slow.take_line(io.now_ms()) {
                tracing::info!(
                    client_id = &*excerpt(client.session.client_id()),
                    publishers = hold.of.len(),
                    left_out,
                    "a subscriber does not keep up; its publishers are held back no longer"
                );
            }
            self.base.stats.holds_expired.add(1);
            let until = io.now_ms() + SPARED * hold.length_ms;
            let names = hold.of.iter().map(|publisher| publisher.to_bits());
            self.base.node.slow.handle_stall(names, until, io.now_ms());
            self.let_go(io, key, true);
        }
    }

    /// Releases all publishers that a session holds back.
    pub(crate) fn let_go(&mut self, io: &mut impl LoopIo, key: Key, spent: bool) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(hold) = &mut client.hold else { return };
        let publishers = std::mem::take(&mut hold.of);
        self.base.stats.holding.sub(publishers.len() as u64);
        hold.until_ms = 0;
        hold.spent = spent;
        if spent {
            hold.drained = 1 - PROBATION;
            client.acknowledged = 0;
        }
        if hold.is_idle() {
            client.hold = None;
        }
        // By mail also within this loop: a released publisher handles what was kept of it, which may end
        // its session and release others in turn. A chain of those must not become a deep recursion.
        for publisher in publishers {
            match publisher {
                Publisher::Here(publisher) => {
                    io.send(
                        publisher.loop_index(),
                        BetweenLoops::Release(publisher).into(),
                    );
                }
                Publisher::Elsewhere(publisher) => {
                    // If that is lost, so is what the node knows of the hold.
                    tell_node(&self.base.node, publisher, false);
                }
            }
        }
    }

    /// A subscriber of another node holds a publisher back.
    pub(crate) fn held_for(&mut self, io: &impl LoopIo, node: NodeId, publisher: u64) {
        let Some(key) = self.find_publisher(publisher) else {
            return;
        };
        let lives = |key| self.clients.get(key).is_some();
        self.remote_pauses.handle_held(node, key, lives);
        self.held(io, key, None);
    }

    /// A subscriber of another node holds a publisher back no longer.
    pub(crate) fn released_for(&mut self, node: NodeId, publisher: u64) {
        let Some(key) = self.find_publisher(publisher) else {
            return;
        };
        if self.remote_pauses.handle_released(node, key) {
            self.released(key);
        }
    }

    /// A connection with a node is gone: those whom it holds back go on, and it is told again whom to hold back.
    pub(crate) fn holds_lost(&mut self, node: NodeId) {
        for (key, holds) in self.remote_pauses.handle_lost(node) {
            for _ in 0..holds {
                self.released(key);
            }
        }
        let routes = &self.base.node.routes;
        let is_lost = |publisher: &mut Publisher| matches!(publisher, Publisher::Elsewhere(p) if routes.node_in(p.node()) == Some(node));
        let subscribers: Vec<Key> = self.clients.keys().collect();
        let mut publishers = Vec::new();
        for key in subscribers {
            if let Some(hold) = self.clients.get_mut(key).and_then(|c| c.hold.as_mut()) {
                let before = publishers.len();
                publishers.extend(hold.of.extract_if(.., is_lost));
                self.base
                    .stats
                    .holding
                    .sub((publishers.len() - before) as u64);
            }
        }
        // In case that it knows of them.
        for publisher in publishers {
            if let Publisher::Elsewhere(publisher) = publisher {
                tell_node(&self.base.node, publisher, false);
            }
        }
    }

    fn find_publisher(&self, found_by: u64) -> Option<Key> {
        let (_, slot) = place_of(found_by)?;
        let key = self.clients.key_in(slot)?;
        let session = SessionKey::new(self.base.index, key);
        (session.found_by() == found_by).then_some(key)
    }
}

/// Asks the node of a publisher to hold it back, or to let it go. False: it cannot be reached.
pub(crate) fn tell_node<R: Rim>(node: &Node<R>, publisher: Foreign, hold: bool) -> bool {
    node.peers().is_some_and(|peers| {
        let to = node.routes.node_in(publisher.node());
        to.is_some_and(|to| peers.hold(to, publisher.found_by(), hold))
    })
}
