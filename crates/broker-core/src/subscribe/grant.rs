//! Subscriptions, and the retained messages that they bring.

use std::collections::VecDeque;
use std::sync::Arc;

use hashing::HashSet;
use mqtt_proto::{
    PacketType, ProtocolVersion, QoS, ReasonCode, Subscribe, SubscribeFiltersIter,
    SubscriptionFilter, SubscriptionOptions, Unsubscribe, UnsubscribeFiltersIter,
};
use mqtt_session::{ClassId, Subscription, Wanted, class_of};
use net_api::{Key, Next};
use store_state::api::{Failure, Store as _};
use store_state::inbox::{InboxOp, InboxReply, SessionName, StoredSubscription};

use crate::clients::{Client, LoopIo};
use crate::events::SubscriptionHappened;
use crate::excerpt::excerpt;
use crate::inbox::{self, Epoch};
use crate::linger::Linger;
use crate::pending::{Answer, Pending};
use crate::quotas::Holding;
use crate::retained::backlog::Owed;
use crate::retained::replay::Replays;
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::share::{FILTER, FILTER_BYTES_PER_UNIT, units};
use crate::subscribe::parts::{AnswerTo, Parts};
use crate::subscribe::room::Room;
use crate::subscribe::waiting::{Asked, Part};
use crate::subscribe::{parts, told};
use crate::turn::{Effect, Turn};

/// Who tells other nodes of a subscription.
#[derive(Clone, Copy, Debug)]
enum RouteOwner {
    /// This node: of its connected sessions.
    ThisNode,
    /// The leader of an inbox shard: of durable sessions.
    LeaderOf(u16),
}

/// The parts below.
#[derive(Debug)]
pub(crate) struct Below<'a> {
    pub(crate) rights: &'a mut Rights,
    pub(crate) replays: &'a mut Replays,
}

/// The subscriptions of a loop's clients, as they change. What is under way stands with each client.
#[derive(Debug)]
pub(crate) struct Subscriptions;

impl Subscriptions {
    /// Carries a SUBSCRIBE out, or begins to. See [`Self::handle_rest`].
    pub(crate) fn handle_subscribe<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        subscribe: &Subscribe<'_>,
    ) -> Next {
        let filters = subscribe.filters.iter();
        let id = subscribe.properties.subscription_id.unwrap_or(0);
        if let Some(client) = turn.clients.get_mut(key) {
            let parts = Parts::new(
                AnswerTo::Client(subscribe.packet_id),
                id,
                filters.bytes_left(),
            );
            client.rare.set(|of| &mut of.parts, Some(Box::new(parts)));
        }
        Self::subscribe_parts(turn, below, key, filters)
    }

    /// Whether filters of the client's last packet are in no part yet: the packet is to be offered again.
    pub(crate) fn has_parts_left<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) -> bool {
        turn.clients.get(key).is_some_and(Client::has_parts_left)
    }

    /// Goes on with a SUBSCRIBE or UNSUBSCRIBE that has parts left. It is done with if none are left then. The
    /// client yields when its share of the turn is spent, and pauses while it waits for an answer.
    pub(crate) fn handle_rest<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        packet_type: PacketType,
        packet: &[u8],
    ) -> Next {
        let parts = turn
            .clients
            .get(key)
            .and_then(|c| c.rare.get().parts.as_ref());
        let left = parts.map_or(0, |parts| parts.bytes_left);
        if packet_type == PacketType::Subscribe {
            Self::subscribe_parts(turn, below, key, SubscribeFiltersIter::resume(packet, left))
        } else {
            Self::unsubscribe_parts(
                turn,
                below,
                key,
                UnsubscribeFiltersIter::resume(packet, left),
            )
        }
    }

    fn subscribe_parts<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        mut filters: SubscribeFiltersIter<'_>,
    ) -> Next {
        loop {
            if turn.base.share.is_spent() || turn.io.has_done_enough() {
                return Next::Yield;
            }
            let part = Self::next_part(turn, below, key, &mut filters);
            let Some(parts) = turn
                .clients
                .get_mut(key)
                .and_then(|c| c.rare.get_mut(|of| &mut of.parts))
            else {
                return Next::Read;
            };
            parts.bytes_left = filters.bytes_left();
            match Self::store_part(turn, below, key, part) {
                Ok(()) => return Next::Pause,
                Err(part) => Self::take_part(turn, key, part, None),
            }
            if !Self::has_parts_left(turn, key) {
                return if Self::all_subscribed(turn, below, key) {
                    Next::Pause
                } else {
                    Next::Read
                };
            }
        }
    }

    /// The next filters of a SUBSCRIBE, at most as many as make a part.
    pub(super) fn next_part<'f, R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        filters: &mut impl Iterator<Item = (&'f str, SubscriptionOptions)>,
    ) -> Part {
        let mut part = Part::new();
        let mut room = Self::room_for_filters(turn, key);
        // Filters of this part that the session does not have yet.
        let mut fresh: HashSet<&str> = HashSet::default();
        let mut patterns = Vec::new();
        let mut bytes = 0;
        while !parts::is_full(part.len(), bytes)
            && let Some((text, options)) = filters.next()
        {
            bytes += text.len();
            let admitted = Self::admit_filter(turn, below, key, text, options);
            let Some(client) = turn.clients.get_mut(key) else {
                break;
            };
            let admitted = admitted.and_then(|options| {
                if client.session.subscription(text).is_none() && !fresh.contains(text) {
                    let held = client.session.subscriptions().len() + fresh.len();
                    let policy = turn.base.settings.policy_of(class_of(&client.session));
                    let full = held >= policy.subscriptions as usize;
                    if full
                        || !client.session.admits_pattern(text, &mut patterns, policy)
                        || !room.take(text, &turn.base.node)
                    {
                        return Err(ReasonCode::QuotaExceeded);
                    }
                    fresh.insert(text);
                }
                Ok(options)
            });
            let Some(parts) = client.rare.get_mut(|of| &mut of.parts) else {
                break;
            };
            if let Err(reason) = admitted {
                parts.refused.add(text, reason);
            }
            part.push(admitted.map(|options| StoredSubscription {
                filter: text.into(),
                options,
                id: parts.subscription_id,
            }));
        }
        turn.base.charge(turn.io, part_cost(part.len(), bytes));
        part
    }

    /// How much more a session may subscribe to. While memory is scarce, nothing.
    fn room_for_filters<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) -> Room {
        let client = turn.clients.get(key);
        let held = client.map_or(0, |client| client.session.filters().0);
        let user = client.and_then(Client::confirmed_user);
        let class = client.map_or(ClassId::DEFAULT, |client| class_of(&client.session));
        let most = turn.base.settings.limits_of(class).subscription_bytes;
        let bytes = most.saturating_sub(held);
        Room::new(
            &turn.base.settings,
            &turn.base.node,
            bytes,
            user,
            turn.io.now_ms(),
        )
    }

    /// The options to grant a subscription with, or why it is refused.
    fn admit_filter<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        text: &str,
        options: SubscriptionOptions,
    ) -> Result<SubscriptionOptions, ReasonCode> {
        let client = turn.clients.get(key).ok_or(ReasonCode::UnspecifiedError)?;
        let policy = turn.base.settings.policy_of(class_of(&client.session));
        let (parsed, granted) = client.session.check_filter(text, options, policy)?;
        if below
            .rights
            .may_subscribe(turn, key, parsed.filter, options.qos)
        {
            Ok(granted)
        } else {
            Err(ReasonCode::NotAuthorized)
        }
    }

    /// What was asked is answered, by all.
    pub(crate) fn handle_answer<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        asked: Asked,
        answer: Answer,
    ) {
        match asked {
            Asked::Subscribe { key, part } => {
                Self::subscribe_answered(turn, below, key, part, answer);
            }
            Asked::Unsubscribe { key, part } => {
                Self::unsubscribe_answered(turn, below, key, &part, answer);
            }
            Asked::Barrier {
                key,
                answer_to,
                reasons,
                replays,
                ..
            } => {
                let waits = replays;
                Self::barrier_passed(turn, below, key, answer_to, reasons, waits);
            }
        }
    }

    fn subscribe_answered<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        mut part: Part,
        answer: Answer,
    ) {
        below.replays.handle_change_done(turn, key);
        let new = match answer {
            Answer::Inbox(InboxReply::Subscribed(new)) => {
                Self::handle_changed(turn, key);
                new
            }
            Answer::Failed(_)
                if Self::awaits_answer(turn, key, |version| version == ProtocolVersion::V3_1) =>
            {
                // 3.1 has no code for a refusal.
                turn.base.end(key, ReasonCode::ImplementationSpecificError);
                return;
            }
            Answer::Failed(failure) => {
                let reason = match failure {
                    Failure::Full | Failure::TooLong => ReasonCode::QuotaExceeded,
                    Failure::Stopped | Failure::Moved => ReasonCode::ImplementationSpecificError,
                };
                for filter in part.iter_mut().filter(|f| f.is_ok()) {
                    *filter = Err(reason);
                }
                Vec::new()
            }
            // A later connection has the session.
            _ => return,
        };
        Self::take_part(turn, key, part, Some(&new));
        if Self::has_parts_left(turn, key) || !Self::all_subscribed(turn, below, key) {
            Self::stop_waiting(turn, key);
        }
    }

    /// The inbox has changed the subscriptions of a client as it was asked to.
    pub(crate) fn handle_changed<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) {
        if let Some(client) = turn.clients.get_mut(key) {
            client.unanswered = client.unanswered.saturating_sub(1);
        }
    }

    /// Whether a client of such a version waits for SUBACK or UNSUBACK.
    fn awaits_answer<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        is_such: impl FnOnce(ProtocolVersion) -> bool,
    ) -> bool {
        turn.clients.get(key).is_some_and(|client| {
            let parts = client.rare.get().parts.as_ref();
            parts.is_some_and(|parts| parts.answer_to.is_client())
                && is_such(client.session.version())
        })
    }

    /// What the client sends after a SUBSCRIBE or UNSUBSCRIBE is read again.
    fn stop_waiting<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) {
        if let Some(client) = turn.clients.get_mut(key) {
            client.waits = false;
            if let Some(connection) = client.connection {
                turn.io.resume(connection);
            }
        }
    }

    /// Makes the subscriptions of a part effective. `stored`: what the store said to those admitted, for each
    /// whether it is new.
    pub(super) fn take_part<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        part: Part,
        stored: Option<&[bool]>,
    ) {
        let mut reasons = Vec::with_capacity(part.len());
        let mut subscriptions = Vec::with_capacity(part.len());
        let mut owed = VecDeque::new();
        let mut answers = stored.unwrap_or_default().iter().copied();
        for filter in part {
            reasons.push(match filter {
                Err(reason) => reason,
                Ok(subscription) => {
                    let options = subscription.options;
                    let was_new = stored.map(|_| answers.next().unwrap_or(false));
                    if let Some(added) = Self::route_subscription(turn, key, subscription, was_new)
                    {
                        owed.extend(added.owes);
                        subscriptions.push(added.subscription);
                    }
                    granted_code(options.qos)
                }
            });
        }
        let Some(client) = turn.clients.get_mut(key) else {
            return;
        };
        let before = Holding::of(&client.session);
        client.session.add_subscriptions(subscriptions);
        let after = Holding::of(&client.session);
        turn.base
            .stats
            .subscription_bytes
            .add((after.bytes - before.bytes) as u64);
        turn.base
            .node
            .quotas
            .handle_change(client.confirmed_user(), &before, &after);
        let Some(parts) = client.rare.get_mut(|of| &mut of.parts) else {
            return;
        };
        parts.reasons.append(&mut reasons);
        if !owed.is_empty() {
            let is_held = std::mem::replace(&mut parts.holds_replay, true);
            let replay = client.rare.make(|of| &mut of.replay);
            replay.owe(owed);
            // No page goes before the answer.
            replay.hold(!is_held);
        }
    }

    /// All subscriptions of a SUBSCRIBE are effective: it is answered. True: the answer waits for retained messages
    /// on their way to the store, or for other nodes.
    pub(super) fn all_subscribed<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
    ) -> bool {
        let Some(client) = turn.clients.get_mut(key) else {
            return false;
        };
        let Some(parts) = client.rare.take(|of| &mut of.parts) else {
            return false;
        };
        let Parts {
            answer_to,
            reasons,
            refused,
            holds_replay,
            ..
        } = *parts;
        turn.base
            .stats
            .subscriptions_refused
            .add(refused.count as u64);
        if refused.count > 0
            && let Some(left_out) = turn.base.node.lines.refusals.take(turn.io.now_ms())
        {
            tracing::info!(
                client_id = &*excerpt(client.session.client_id()),
                refused = refused.count,
                of = reasons.len(),
                filters = refused.names(),
                left_out,
                "subscriptions are refused"
            );
        }
        let store = turn.base.node.store();
        // A question to other nodes goes behind what is on its way.
        let asks_retained = holds_replay && !store.has_peers() && !store.is_retain_idle();
        let routes = Self::awaited_routes(turn, key);
        let Some(client) = turn.clients.get_mut(key) else {
            return false;
        };
        if asks_retained || !routes.is_empty() {
            client.waits = true;
            let shards = asks_retained.then(|| turn.base.node.store().retain_shards());
            let retain_shards = shards.as_deref().unwrap_or_default();
            let ticket = turn.base.ask(Pending::Subscribe(Asked::Barrier {
                key,
                answer_to,
                reasons,
                left: retain_shards.len() + routes.len(),
                replays: holds_replay,
            }));
            turn.base.node.store().retain_barrier(retain_shards, ticket);
            Self::await_routes(turn, &routes, ticket.token);
            return true;
        }
        answer_to.subscribed(&mut client.session, reasons);
        if holds_replay {
            below.replays.handle_change_done(turn, key);
        }
        // At once, so that nothing that is published from now on goes before the first page.
        below.replays.handle_page_due(turn, below.rights, key);
        turn.clients.show_room(key);
        if let Some(connection) = turn.clients.get(key).and_then(|client| client.connection) {
            turn.io.touch(connection);
        }
        false
    }

    /// Whose routes other nodes may lack that a SUBSCRIBE of a client has changed.
    fn awaited_routes<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) -> Vec<RouteOwner> {
        let Some(peers) = turn.base.node.peers() else {
            return Vec::new();
        };
        let mut owners = Vec::new();
        if peers.lacks_routes(&*turn.base.node, turn.io.now_ms()) {
            owners.push(RouteOwner::ThisNode);
        }
        let stored = turn.clients.get(key).and_then(|c| c.stored.as_ref());
        let inbox = stored.and_then(|stored| stored.inbox());
        if let Some(shard) = inbox.map(|inbox| turn.base.node.store().inbox_shard(inbox.slot()))
            && peers.is_led_elsewhere(&*turn.base.node, shard)
        {
            owners.push(RouteOwner::LeaderOf(shard));
        }
        owners
    }

    /// A question is answered once for each owner, when all live nodes know its routes.
    fn await_routes<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        owners: &[RouteOwner],
        token: u64,
    ) {
        let node = Arc::clone(&turn.base.node);
        let Some(peers) = node.peers().filter(|_| !owners.is_empty()) else {
            return;
        };
        turn.base.stats.route_waits.add(1);
        for owner in owners {
            match owner {
                RouteOwner::ThisNode => peers.await_routes(&*node, turn.base.index, token),
                RouteOwner::LeaderOf(shard) => {
                    peers.await_shard(&*node, *shard, turn.base.index, token);
                }
            }
        }
        turn.base.add(Effect::TellPeers);
    }

    /// Other nodes know the routes of a subscription, and retained messages that were on their way when the
    /// client subscribed are in the store: they come with the first page, which follows SUBACK.
    fn barrier_passed<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        answer_to: AnswerTo,
        reasons: Vec<ReasonCode>,
        replays: bool,
    ) {
        if let Some(client) = turn.clients.get_mut(key) {
            answer_to.subscribed(&mut client.session, reasons);
        }
        if replays {
            below.replays.handle_change_done(turn, key);
        }
        below.replays.handle_page_due(turn, below.rights, key);
        turn.clients.show_room(key);
        if let Some(connection) = turn.clients.get(key).and_then(|client| client.connection) {
            turn.io.touch(connection);
        }
        Self::stop_waiting(turn, key);
    }

    /// Routes a subscription. `stored`: the store has it, and says whether it is new.
    fn route_subscription<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        subscription: StoredSubscription,
        stored: Option<bool>,
    ) -> Option<Added> {
        let (session_key, routes) = (
            turn.base.session_key(key),
            Linger::route_key(turn.base, turn.clients, key),
        );
        let client = turn.clients.get_mut(key)?;
        let filter = SubscriptionFilter::parse(&subscription.filter).ok()?;
        let wanted = Wanted::new(subscription.options, subscription.id);
        let (new, group) = match stored {
            Some(new) => {
                let of_node = &turn.base.node.routes;
                of_node.subscribe_connection(routes, &subscription);
                if client.rare.get().gauge.is_none() {
                    client.rare.set(
                        |of| &mut of.gauge,
                        turn.base
                            .node
                            .routes
                            .durable_gauge(client.session.client_id()),
                    );
                    if let Some(gauge) = &client.rare.get().gauge {
                        gauge.set_home(Some(session_key));
                    }
                }
                (new, None)
            }
            None => {
                let rare = &mut client.rare;
                let share = || Arc::clone(rare.make(|of| &mut of.gauge));
                let subscribed =
                    turn.base
                        .node
                        .routes
                        .subscribe(session_key, filter, wanted, share);
                let group = subscribed.group.and_then(std::num::NonZeroU32::new);
                (subscribed.new, group)
            }
        };
        if new {
            let added = SubscriptionHappened::Added;
            told::tell(&turn.base.node.rim, client, added, &subscription.filter);
        }
        let owes = subscription.wants_retained(new);
        Some(Added {
            owes: owes.then(|| Owed::new(filter.filter, wanted)),
            subscription: Subscription {
                group,
                ..inbox::subscription(subscription)
            },
        })
    }

    /// Carries an UNSUBSCRIBE out, or begins to. See [`Self::handle_rest`].
    pub(crate) fn handle_unsubscribe<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        unsubscribe: &Unsubscribe<'_>,
    ) -> Next {
        let filters = unsubscribe.filters.iter();
        if let Some(client) = turn.clients.get_mut(key) {
            let parts = Parts::new(
                AnswerTo::Client(unsubscribe.packet_id),
                0,
                filters.bytes_left(),
            );
            client.rare.set(|of| &mut of.parts, Some(Box::new(parts)));
        }
        Self::unsubscribe_parts(turn, below, key, filters)
    }

    fn unsubscribe_parts<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        mut filters: UnsubscribeFiltersIter<'_>,
    ) -> Next {
        loop {
            if turn.base.share.is_spent() || turn.io.has_done_enough() {
                return Next::Yield;
            }
            let mut part: Vec<Box<str>> = Vec::new();
            let mut bytes = 0;
            while !parts::is_full(part.len(), bytes)
                && let Some(text) = filters.next()
            {
                bytes += text.len();
                part.push(text.into());
            }
            turn.base.charge(turn.io, part_cost(part.len(), bytes));
            let Some(parts) = turn
                .clients
                .get_mut(key)
                .and_then(|c| c.rare.get_mut(|of| &mut of.parts))
            else {
                return Next::Read;
            };
            parts.bytes_left = filters.bytes_left();
            match Self::store_removal(turn, below, key, part) {
                Ok(()) => return Next::Pause,
                Err(part) => Self::remove_part(turn, key, &part, None),
            }
            if !Self::has_parts_left(turn, key) {
                Self::all_unsubscribed(turn, key);
                return Next::Read;
            }
        }
    }

    fn unsubscribe_answered<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        part: &[Box<str>],
        answer: Answer,
    ) {
        below.replays.handle_change_done(turn, key);
        match answer {
            Answer::Inbox(InboxReply::Unsubscribed(existed)) => {
                Self::handle_changed(turn, key);
                Self::remove_part(turn, key, part, Some(&existed));
            }
            Answer::Failed(_) if Self::awaits_answer(turn, key, |version| !version.is_v5()) => {
                // Before 5.0 an answer cannot say no: none is sent.
                turn.base.end(key, ReasonCode::ImplementationSpecificError);
                return;
            }
            Answer::Failed(_) => {
                if let Some(parts) = turn
                    .clients
                    .get_mut(key)
                    .and_then(|c| c.rare.get_mut(|of| &mut of.parts))
                {
                    let failed = ReasonCode::ImplementationSpecificError;
                    parts
                        .reasons
                        .resize(parts.reasons.len() + part.len(), failed);
                }
            }
            // A later connection has the session.
            _ => return,
        }
        if !Self::has_parts_left(turn, key) {
            Self::all_unsubscribed(turn, key);
        }
        Self::stop_waiting(turn, key);
    }

    /// All subscriptions of an UNSUBSCRIBE are gone: it is answered.
    pub(super) fn all_unsubscribed<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) {
        if let Some(client) = turn.clients.get_mut(key)
            && let Some(parts) = client.rare.take(|of| &mut of.parts)
        {
            let Parts {
                answer_to, reasons, ..
            } = *parts;
            answer_to.unsubscribed(&mut client.session, reasons);
            if let Some(connection) = client.connection {
                turn.io.touch(connection);
            }
        }
        turn.clients.show_room(key);
    }

    /// Takes the subscriptions of a part of an UNSUBSCRIBE out of the routes and the session, and notes the answers.
    pub(super) fn remove_part<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        part: &[Box<str>],
        stored: Option<&[bool]>,
    ) {
        let mut reasons = Self::remove_subscriptions(turn, key, part, stored);
        if let Some(parts) = turn
            .clients
            .get_mut(key)
            .and_then(|c| c.rare.get_mut(|of| &mut of.parts))
        {
            parts.reasons.append(&mut reasons);
        }
    }

    /// Takes subscriptions out of the routes and the session. `stored`: for each filter, whether the store had
    /// one. Returns for each filter what UNSUBACK says of it.
    pub(crate) fn remove_subscriptions<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        part: &[Box<str>],
        stored: Option<&[bool]>,
    ) -> Vec<ReasonCode> {
        let (session_key, routes) = (
            turn.base.session_key(key),
            Linger::route_key(turn.base, turn.clients, key),
        );
        let mut reasons = Vec::with_capacity(part.len());
        let mut removed = Vec::with_capacity(part.len());
        for (at, text) in part.iter().enumerate() {
            let Ok(filter) = SubscriptionFilter::parse(text) else {
                reasons.push(ReasonCode::TopicFilterInvalid);
                continue;
            };
            let routed = turn.base.node.routes.unsubscribe(routes, filter);
            let existed = stored.map_or(routed, |stored| stored.get(at) == Some(&true));
            reasons.push(if existed {
                ReasonCode::Success
            } else {
                ReasonCode::NoSubscriptionExisted
            });
            if existed && let Some(client) = turn.clients.get(key) {
                told::tell(
                    &turn.base.node.rim,
                    client,
                    SubscriptionHappened::Removed,
                    text,
                );
            }
            removed.push(&**text);
            if filter.shared.is_none()
                && let Some(client) = turn.clients.get_mut(key)
                && let Some(replay) = client.rare.get_mut(|of| &mut of.replay)
            {
                replay.cancel(filter.filter);
            }
        }
        let Some(client) = turn.clients.get_mut(key) else {
            return reasons;
        };
        let before = Holding::of(&client.session);
        let removed = client.session.remove_subscriptions(&removed);
        let after = Holding::of(&client.session);
        turn.base
            .stats
            .subscription_bytes
            .sub((before.bytes - after.bytes) as u64);
        turn.base
            .node
            .quotas
            .handle_change(client.confirmed_user(), &before, &after);
        for group in removed.into_iter().filter_map(|s| s.group) {
            let deliveries = turn
                .clients
                .get_mut(key)
                .map_or_else(Vec::new, |client| client.session.take_group(group));
            let except = Some(session_key);
            turn.base.add(Effect::Redispatch { deliveries, except });
        }
        reasons
    }

    /// Takes a session's subscriptions out of the routes.
    pub(crate) fn remove_routes<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) {
        let session_key = Linger::route_key(turn.base, turn.clients, key);
        if let Some(client) = turn.clients.get(key) {
            let all = client.session.subscriptions();
            // Many clients with many of them go in several turns.
            turn.io.charge(units(all.len()).saturating_mul(FILTER));
            turn.base.node.routes.unsubscribe_all(session_key, all);
        }
    }

    /// Has the store add the subscriptions of a part of a durable session; the client waits for it. `Err`: nothing of the part
    /// is for the store.
    pub(super) fn store_part<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        part: Part,
    ) -> Result<(), Part> {
        let admitted: Vec<_> = part.iter().flatten().cloned().collect();
        let name = Self::inbox_name(turn, key);
        let Some((session, epoch)) = name.filter(|_| !admitted.is_empty()) else {
            return Err(part);
        };
        let op = InboxOp::Subscribe {
            session,
            epoch: epoch.0,
            subscriptions: admitted,
        };
        Self::wait_for_inbox(turn, below, key, Asked::Subscribe { key, part }, op);
        Ok(())
    }

    /// Has the store remove the subscriptions of a part of a durable session; the client waits for it. `Err`: the session is not
    /// in the store.
    pub(super) fn store_removal<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        part: Vec<Box<str>>,
    ) -> Result<(), Vec<Box<str>>> {
        let Some((session, epoch)) = Self::inbox_name(turn, key) else {
            return Err(part);
        };
        let op = InboxOp::Unsubscribe {
            session,
            epoch: epoch.0,
            filters: part.clone(),
        };
        Self::wait_for_inbox(turn, below, key, Asked::Unsubscribe { key, part }, op);
        Ok(())
    }

    fn inbox_name<R: Rim, Io: LoopIo>(
        turn: &Turn<'_, R, Io>,
        key: Key,
    ) -> Option<(SessionName, Epoch)> {
        let client = turn.clients.get(key)?;
        client.inbox_name(turn.base.node.store())
    }

    /// Asks the inbox of a client, which waits for the answer.
    fn wait_for_inbox<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
        asked: Asked,
        op: InboxOp,
    ) {
        if let Some(client) = turn.clients.get_mut(key) {
            client.waits = true;
            client.unanswered += 1;
        }
        below.replays.handle_change_asked(turn.clients, key);
        turn.base.ask_inbox(Pending::Subscribe(asked), op);
    }
}

/// A subscription that is routed, and the retained messages that it brings.
struct Added {
    subscription: Subscription,
    owes: Option<Owed>,
}

/// Units of work for a part.
fn part_cost(filters: usize, bytes: usize) -> u32 {
    units(filters)
        .saturating_mul(FILTER)
        .saturating_add(units(bytes / FILTER_BYTES_PER_UNIT))
}

pub(super) fn granted_code(qos: QoS) -> ReasonCode {
    match qos {
        QoS::AtMostOnce => ReasonCode::Success,
        QoS::AtLeastOnce => ReasonCode::GrantedQoS1,
        QoS::ExactlyOnce => ReasonCode::GrantedQoS2,
    }
}
