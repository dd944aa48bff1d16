//! How a session begins to linger.

use mqtt_session::{TakenSubscriptions, Timestamp};
use net_api::Key;
use store_state::api::Store as _;
use store_state::inbox::{Attached, InboxOp};

use super::{Kept, Linger, Lingering};
use crate::clients::{Clients, LoopIo};
use crate::inbox::{self, Epoch};
use crate::retained::backlog::Replay;
use crate::rim::Rim;
use crate::turn::{Base, Effect, Turn};

/// Subscriptions from which on a session is one with many.
const MANY: usize = 64;

/// Sessions of a loop that linger at the same time. The routes of others are taken out at once.
///
/// Limit: sessions with {MANY} subscriptions or more, or that were sent QoS 0 directly, that linger: their routes
/// stay when the connection ends | {} a loop, each for {PER_SUBSCRIPTION_US} a subscription, {SHORTEST_MS} to
/// {LONGEST_MS}; the filters count as those of connected clients | the routes of others are taken out at once
const MOST: usize = 1024;

/// How long routes stay, in µs for each subscription: some hundred times what it takes to make them, so that who
/// waits until they are gone has others wait for a small share of the time.
const PER_SUBSCRIPTION_US: u64 = 500;

/// The least and the most of that, in ms.
const SHORTEST_MS: u64 = 1_000;
const LONGEST_MS: u64 = 10_000;

/// Bytes, for each subscription, of messages that a lingering session gets.
/// Beyond that it costs less to take its routes out: then the shard keeps a message once for all its sessions.
///
/// Limit: messages of QoS 0 for a session that lingers | {} a subscription, {LATE_SHORT:bytes} at least | its routes
/// are taken out; then the inbox shard keeps a message once for all its sessions
const LATE_BYTES: usize = 1_024;

/// The least bytes of such messages: 1,024 short messages, as many as come in the time that routes stay for at least.
const LATE_SHORT: usize = 1_024 * super::late::LEAST;

/// For how long a session lingers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    ms: u64,
}

impl Linger {
    /// For how long a session lingers with so many subscriptions; `None`: it does not.
    /// `is_sent`: messages of QoS 0 are likely to be on their way.
    fn span<R: Rim>(
        &self,
        base: &Base<R>,
        count: usize,
        expiry_s: u32,
        is_sent: bool,
    ) -> Option<Span> {
        let ms = (count as u64 * PER_SUBSCRIPTION_US / 1000).clamp(SHORTEST_MS, LONGEST_MS);
        let has_place = self.count < MOST;
        // It is not to be there when the session has ended.
        let stays = u64::from(expiry_s) * 1000 >= ms;
        let goes_on = !base.closing && base.drained.is_none();
        ((count >= MANY || is_sent) && has_place && stays && goes_on).then_some(Span { ms })
    }

    /// For how long the session of a client lingers whose connection ends; `None`: it does not.
    pub(crate) fn lingers<R: Rim>(
        &self,
        base: &Base<R>,
        clients: &Clients,
        key: Key,
    ) -> Option<Span> {
        let client = clients.get(key)?;
        let inbox = client.stored.as_ref()?.inbox()?;
        let is_sent = inbox.has_come_directly();
        let replay = client.rare.get().replay.as_ref();
        let is_known = client.unanswered == 0 && replay.is_none_or(|of| of.is_settled());
        let session = &client.session;
        let count = session.subscriptions().len();
        let span = self.span(base, count, session.session_expiry(), is_sent)?;
        is_known.then_some(span)
    }

    /// The connection of a client has ended, and its session lingers. What the client has logged in as is looked at once more, and
    /// then nobody's.
    pub(crate) fn handle_end_of_connection<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        epoch: Epoch,
        Span { ms }: Span,
    ) {
        let holder = Self::holder_for(turn.clients, key);
        let client = turn.clients.get_mut(key);
        let client = client.expect("a client whose connection ends is there");
        client.rare.take(|of| &mut of.kept);
        client.session.release_spare();
        client.access = None;
        turn.base.node.quotas.handle_gone(
            client.confirmed_user(),
            &client.session,
            true,
            Timestamp(turn.io.now_ms()),
        );
        let subscriptions = client.session.take_subscriptions();
        let replay = client
            .rare
            .take(|of| &mut of.replay)
            .map(|of| Box::new(of.suspended()));
        let until_ms = turn.io.now_ms() + ms;
        turn.base.add(Effect::Logout(key));
        if let Some(holder) = holder {
            Self::hand_back(turn.base, turn.clients, key, holder);
            turn.base.add(Effect::Forget(key));
        }
        self.count(turn.base, 1);
        let holder = holder.unwrap_or(key);
        let before = Self::lingering(turn.clients, holder);
        let armed_ms = before.map_or(0, |before| before.armed_ms);
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
        if let Some(client) = turn.clients.get_mut(holder) {
            let kept = Kept::Here(lingering);
            client.rare.set(|of| &mut of.kept, Some(Box::new(kept)));
        }
        Self::arm(turn, holder);
    }

    /// The inbox of a client has been attached for a connection that is gone. The session lingers, if it is one
    /// with many subscriptions: a client is not to have others attach and detach it by connecting and going away.
    /// False: it does not.
    pub(crate) fn handle_unjoined<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        epoch: Epoch,
        attached: Attached,
    ) -> bool {
        let holder = Self::holder_for(turn.clients, key);
        let client = turn.clients.get(key);
        let client = client.expect("an entry stays until what it has asked for is answered");
        let expiry = client.session.session_expiry();
        let count = match holder.and_then(|holder| Self::lingering(turn.clients, holder)) {
            Some(Lingering { subscriptions, .. }) => subscriptions.as_ref().map_or(0, count_of),
            None => attached.subscriptions.len(),
        };
        let Some(span) = self.span(turn.base, count, expiry, false) else {
            return false;
        };
        let store = turn.base.node.store();
        let op = InboxOp::Linger {
            session: store.session_name(client.session.client_id(), attached.inbox),
            epoch: epoch.0,
            sent: 0,
        };
        turn.base.tell_inbox(op);
        let taken = self.take(turn.base, turn.clients, key);
        if taken.is_none() {
            Self::route_all(turn, key, &attached);
        }
        let client = turn.clients.get_mut(key);
        let client = client.expect("nothing has removed it meanwhile");
        match taken {
            Some(taken) => client.session.restore_subscriptions(taken),
            None => {
                let replay = Replay::resumed(attached.owed, &attached.subscriptions);
                client.rare.set(|of| &mut of.replay, replay.map(Box::new));
                let all = attached.subscriptions.into_iter().map(inbox::subscription);
                client.session.add_subscriptions(all.collect());
                let filters = client.session.filters().0;
                turn.base.stats.subscription_bytes.add(filters);
            }
        }
        let quotas = &turn.base.node.quotas;
        quotas.handle_connected(client.confirmed_user(), &client.session);
        self.handle_end_of_connection(turn, key, epoch, span);
        true
    }
}

fn count_of(taken: &TakenSubscriptions) -> usize {
    taken.subscriptions().len()
}
