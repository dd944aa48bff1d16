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
//! In which state of a session what leads to which: the tables of `tests.rs`, each row of which is a test.
//!
//! Invariant: each hold is released exactly once, by draining, by time, by the subscriber's end, or by that of the
//! connection between their nodes.

use mqtt_session::class_of;
use std::time::Duration;

use net_api::{ConnectionId, Key};
use peer_protocol::{Foreign, place_of};
use route_exchange::NodeId;

use crate::backpressure::held::{Earned, Holder};
use crate::backpressure::held_time::{HeldReason, HeldTimes, Until};
use crate::backpressure::remote_pauses::RemotePauses;
use crate::backpressure::throttle::{Bounds, Receivers, Step, Throttle};
use crate::clients::{BetweenLoops, LoopIo, Timer, key_of};
use crate::excerpt::excerpt;
use crate::key::{Publisher, SessionKey};
use crate::node::Node;
use crate::rim::Rim;
use crate::turn::{Effect, Turn};
use mqtt_session::Timestamp;

/// So often a subscriber that did not drain in time has to drain before it counts as one that does.
const PROBATION: i8 = 8;

/// For so many times as long as it was held, a publisher that has waited in vain does not wait for subscribers that have
/// not shown that they drain.
const SPARED: u64 = 9;

/// How often the log says of one subscriber that it holds publishers back, in ms.
const SAY_MS: u64 = 60_000;

/// Publishers that one subscriber holds back at most; further ones are not.
///
/// Limit: publishers that one subscriber holds back | {}, for {limits.connection.holdPublisherMs}; those with other
/// receivers, until it has drained once, for {limits.connection.holdUnearnedMs} and what it has earned by
/// acknowledging | further ones are not held; nobody is for 0 ms
const PUBLISHERS: usize = 1024;

/// Who holds whom back, among the sessions of a loop. What a session has to do with it is in its [`Hold`].
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// Publishers that subscribers of other nodes hold back.
    remote: RemotePauses,
    /// Whose packets wait, and why.
    times: HeldTimes,
}

impl Backpressure {
    /// A message of QoS 1 or 2 is about to be queued: when the queue of a connected session is three
    /// quarters full, the publisher is held back. True: it is, and the message is to be kept.
    ///
    /// `has_others`: other sessions get the message too. They wait as well, as long as the session has earned.
    pub(crate) fn handle_queueing<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        publisher: u64,
        has_others: bool,
    ) -> bool {
        let mut hold_ms = turn.base.settings.hold_publisher_ms;
        let Some(client) = turn.clients.get_mut(key) else {
            return false;
        };
        let session = &client.session;
        let policy = turn.base.settings.policy_of(class_of(session));
        let full = session.queue_len() as u64 * 4 >= u64::from(policy.queue_messages) * 3
            || session.queue_bytes().saturating_mul(4) >= policy.queue_bytes.saturating_mul(3);
        if !full || hold_ms == 0 || !session.is_online() {
            return false;
        }
        let name = publisher;
        let Some(publisher) = Publisher::from_bits(publisher) else {
            return false;
        };
        if publisher == Publisher::Here(SessionKey::new(turn.base.index, key)) {
            // Who floods itself reads its own messages only if its connection is read.
            return false;
        }
        let hold = client.rare.make(|of| &mut of.hold);
        if hold.of.contains(&publisher) {
            return true;
        }
        if hold.spent || hold.of.len() >= PUBLISHERS {
            return false;
        }
        let now = turn.io.now_ms();
        if hold.drained <= 0 {
            let earned_ms =
                turn.base.settings.hold_unearned_ms + client.acknowledged.part_of(hold_ms);
            if has_others && earned_ms < hold_ms {
                hold_ms = earned_ms;
                if hold_ms == 0 || hold.until_ms > now + hold_ms {
                    turn.base.stats.holds_spared.add(1);
                    return false;
                }
            }
            if turn.base.node.slow.spares(name, now) {
                turn.base.stats.holds_spared.add(1);
                return false;
            }
        }
        if let Publisher::Elsewhere(publisher) = publisher
            && !tell_node(&turn.base.node, publisher, true)
        {
            return false;
        }
        hold.of.push(publisher);
        turn.base.stats.holding.add(1);
        if hold.until_ms == 0 {
            hold.until_ms = now + hold_ms;
            hold.length_ms = hold_ms;
            turn.io.arm(hold.until_ms, Timer::Hold(key).to_bits());
        }
        let is_due = hold.said_ms == 0 || now >= hold.said_ms + SAY_MS;
        let left_out = is_due.then(|| turn.base.node.slow.take_line(now)).flatten();
        if left_out.is_some() {
            hold.said_ms = now;
        }
        let holder = Box::new(Holder {
            subscriber: excerpt(client.session.client_id()).into(),
            line: left_out,
        });
        match publisher {
            Publisher::Here(publisher) if publisher.loop_index() == turn.base.index => {
                let publisher = publisher.key();
                self.handle_held(turn, publisher, HeldReason::SubscriberQueue, Some(holder));
            }
            Publisher::Here(publisher) => {
                turn.io.send(
                    publisher.loop_index(),
                    BetweenLoops::Hold(publisher, Some(holder)).into(),
                );
            }
            Publisher::Elsewhere(publisher) => {
                let name = format!("{publisher:?}, on another node");
                holder.note(&name, &turn.base.node.slow, Timestamp(now));
            }
        }
        true
    }

    /// A publication of a client is kept by all who are to keep it: if durable sessions among its receivers are
    /// filling up, the client may be held back for a moment.
    pub(crate) fn handle_publication<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        receivers: Receivers,
        topic: &[u8],
    ) {
        let now = Timestamp(turn.io.now_ms());
        let bounds = Bounds {
            longest: Duration::from_millis(turn.base.settings.hold_publisher_ms),
            unearned: Duration::from_millis(turn.base.settings.hold_unearned_ms),
        };
        let Some(client) = turn.clients.get_mut(key) else {
            return;
        };
        let hold = client.rare.make(|of| &mut of.hold);
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
                    client.rare.take(|of| &mut of.hold);
                }
            }
            Step::Spared => turn.base.stats.holds_spared.add(1),
            Step::PauseUntil(until) => {
                hold.by += 1;
                let publisher = client.session.client_id();
                let session = turn.base.node.slow.handle_paused(publisher, topic, now);
                turn.base.stats.holds.add(1);
                turn.base
                    .stats
                    .throttled_ms
                    .add(until.saturating_since(now));
                turn.io.arm(until.0, Timer::Throttled(key).to_bits());
                let why = (HeldReason::DurableQueues, session.as_deref());
                self.wait(turn, key, why, Until::Time(until));
            }
        }
    }

    /// A moment has passed for which a publisher was held back.
    pub(crate) fn handle_throttle_timer<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        let hold = turn
            .clients
            .get_mut(key)
            .and_then(|c| c.rare.get_mut(|of| &mut of.hold));
        if let Some(hold) = hold
            && hold.throttle.as_mut().is_some_and(Throttle::handle_timer)
        {
            self.handle_released(turn, key);
        }
    }

    /// Packets of a client wait, or its connection is not read.
    pub(crate) fn handle_wait<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        reason: HeldReason,
        until: Until,
    ) {
        self.wait(turn, key, (reason, None), until);
    }

    /// Connections that waited are read again.
    pub(crate) fn resume<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        connections: impl IntoIterator<Item = ConnectionId>,
    ) {
        let now = Timestamp(turn.io.now_ms());
        for connection in connections {
            if let Some(key) = key_of(turn.io, connection) {
                self.times.end(key, Until::Resumed, now, &turn.base.stats);
            }
            turn.io.resume(connection);
        }
    }

    /// Whose packets wait, or have within the last minute.
    pub(crate) fn held_times(&self) -> &HeldTimes {
        &self.times
    }

    fn wait<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        why: (HeldReason, Option<&str>),
        until: Until,
    ) {
        let (client, now) = (turn.clients.get(key), turn.io.now_ms());
        let at = (Timestamp(now), &*turn.base.stats);
        if let Some(client_id) = client.map(|client| client.session.client_id())
            && self.times.begin(key, client_id, why, until, at)
            && let Some(left_out) = turn.base.node.slow.take_line(now)
        {
            tracing::info!(
                client_id = &*excerpt(client_id),
                reason = why.0.as_str(),
                left_out,
                "a client has waited for more than half of the last minute; heraldmq client says which option limits it"
            );
        }
    }

    /// A publisher of this loop is held back: from its next PUBLISH on, its messages wait.
    pub(crate) fn handle_held<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        reason: HeldReason,
        holder: Option<Box<Holder>>,
    ) {
        if let Some(client) = turn.clients.get_mut(key) {
            if let Some(holder) = &holder {
                let publisher = excerpt(client.session.client_id());
                holder.note(
                    &publisher,
                    &turn.base.node.slow,
                    Timestamp(turn.io.now_ms()),
                );
            }
            turn.base.stats.holds.add(1);
            client.rare.make(|of| &mut of.hold).by += 1;
            let subscriber = holder.as_deref().map(Holder::subscriber);
            self.wait(turn, key, (reason, subscriber), Until::Released);
        }
    }

    /// One subscriber less holds this publisher back.
    pub(crate) fn handle_released<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        let Some(client) = turn.clients.get_mut(key) else {
            return;
        };
        if let Some(hold) = client.rare.get_mut(|of| &mut of.hold) {
            debug_assert!(hold.by > 0, "each hold is released once");
            hold.by = hold.by.saturating_sub(1);
            if hold.by > 0 {
                return;
            }
        }
        let now = Timestamp(turn.io.now_ms());
        self.times.end(key, Until::Released, now, &turn.base.stats);
        turn.base.add(Effect::HeldFrames(key));
    }

    /// The packets that were kept of a publisher have been handled: its connection is read, unless it is held again.
    pub(crate) fn handle_frames_handled<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        let Some(client) = turn.clients.get_mut(key) else {
            return;
        };
        if let Some(hold) = &client.rare.get().hold {
            if hold.is_held() {
                return;
            }
            if hold.is_idle() {
                client.rare.take(|of| &mut of.hold);
            }
        }
        if let Some(connection) = client.connection {
            turn.io.resume(connection);
        }
    }

    /// A subscriber has acknowledged a message.
    pub(crate) fn handle_acknowledgement<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        if let Some(client) = turn.clients.get_mut(key) {
            client.acknowledged.add_one();
        }
        turn.clients.show_room(key);
        self.handle_drained(turn, key);
    }

    /// A connection is over, and holds nobody back any more.
    pub(crate) fn handle_end_of_connection<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        self.times.forget(key);
        self.let_go(turn, key, false);
    }

    /// After transmitting: a queue that is less than half full holds nobody back.
    pub(crate) fn handle_drained<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        let Some(client) = turn.clients.get_mut(key) else {
            return;
        };
        let Some(hold) = &client.rare.get().hold else {
            return;
        };
        let session = &client.session;
        let policy = turn.base.settings.policy_of(class_of(session));
        let drained = session.queue_len() as u64 * 2 < u64::from(policy.queue_messages)
            && session.queue_bytes() * 2 < policy.queue_bytes;
        if drained && (hold.spent || !hold.of.is_empty()) {
            if let Some(hold) = client.rare.get_mut(|of| &mut of.hold)
                && !hold.of.is_empty()
            {
                hold.drained = hold.drained.saturating_add(1).min(1);
            }
            self.let_go(turn, key, false);
        }
    }

    /// The time for holding back is over.
    pub(crate) fn handle_hold_timer<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        let Some(client) = turn.clients.get_mut(key) else {
            return;
        };
        if let Some(hold) = &client.rare.get().hold
            && hold.until_ms != 0
            && hold.until_ms <= turn.io.now_ms()
        {
            if let Some(left_out) = turn.base.node.slow.take_line(turn.io.now_ms()) {
                tracing::info!(
                    client_id = &*excerpt(client.session.client_id()),
                    publishers = hold.of.len(),
                    left_out,
                    "a subscriber does not keep up; its publishers are no longer held back"
                );
            }
            turn.base.stats.holds_expired.add(1);
            let until = turn.io.now_ms() + SPARED * hold.length_ms;
            let names = hold.of.iter().map(|publisher| publisher.to_bits());
            turn.base
                .node
                .slow
                .handle_stall(names, until, turn.io.now_ms());
            self.let_go(turn, key, true);
        }
    }

    /// Releases all publishers that a session holds back.
    fn let_go<R: Rim, Io: LoopIo>(&mut self, turn: &mut Turn<'_, R, Io>, key: Key, spent: bool) {
        let Some(client) = turn.clients.get_mut(key) else {
            return;
        };
        let Some(hold) = client.rare.get_mut(|of| &mut of.hold) else {
            return;
        };
        let publishers = std::mem::take(&mut hold.of);
        turn.base.stats.holding.sub(publishers.len() as u64);
        hold.until_ms = 0;
        hold.spent = spent;
        if spent {
            hold.drained = 1 - PROBATION;
            client.acknowledged = Earned::default();
        }
        if hold.is_idle() {
            client.rare.take(|of| &mut of.hold);
        }
        // By a message also within this loop: a released publisher handles what was kept of it, which may end
        // its session and release others in turn. A chain of those must not become a deep recursion.
        for publisher in publishers {
            match publisher {
                Publisher::Here(publisher) => {
                    turn.io.send(
                        publisher.loop_index(),
                        BetweenLoops::Release(publisher).into(),
                    );
                }
                Publisher::Elsewhere(publisher) => {
                    // If that is lost, so is what the node knows of the hold.
                    tell_node(&turn.base.node, publisher, false);
                }
            }
        }
    }

    /// A subscriber of another node holds a publisher back.
    pub(crate) fn handle_remote_hold<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        node: NodeId,
        publisher: u64,
    ) {
        let Some(key) = Self::find_publisher(turn, publisher) else {
            return;
        };
        let clients = &turn.clients;
        self.remote
            .handle_held(node, key, |key| clients.get(key).is_some());
        self.handle_held(turn, key, HeldReason::SubscriberQueue, None);
    }

    /// A subscriber of another node holds a publisher back no longer.
    pub(crate) fn handle_remote_release<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        node: NodeId,
        publisher: u64,
    ) {
        let Some(key) = Self::find_publisher(turn, publisher) else {
            return;
        };
        if self.remote.handle_released(node, key) {
            self.handle_released(turn, key);
        }
    }

    /// A connection with a node is gone: those whom it holds back go on, and it is told again whom to hold back.
    pub(crate) fn handle_lost_link<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        node: NodeId,
    ) {
        for (key, holds) in self.remote.handle_lost(node) {
            for _ in 0..holds {
                self.handle_released(turn, key);
            }
        }
        let routes = &turn.base.node.routes;
        let is_lost = |publisher: &mut Publisher| matches!(publisher, Publisher::Elsewhere(p) if routes.node_in(p.node()) == Some(node));
        let subscribers: Vec<Key> = turn.clients.keys().collect();
        let mut publishers = Vec::new();
        for key in subscribers {
            if let Some(hold) = turn
                .clients
                .get_mut(key)
                .and_then(|c| c.rare.get_mut(|of| &mut of.hold))
            {
                let before = publishers.len();
                publishers.extend(hold.of.extract_if(.., is_lost));
                turn.base
                    .stats
                    .holding
                    .sub((publishers.len() - before) as u64);
            }
        }
        // In case that it knows of them.
        for publisher in publishers {
            if let Publisher::Elsewhere(publisher) = publisher {
                tell_node(&turn.base.node, publisher, false);
            }
        }
    }

    fn find_publisher<R: Rim, Io>(turn: &Turn<'_, R, Io>, found_by: u64) -> Option<Key> {
        let (_, slot) = place_of(found_by)?;
        let key = turn.clients.key_in(slot)?;
        let session = SessionKey::new(turn.base.index, key);
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
