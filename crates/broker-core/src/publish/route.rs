//! A message's way to its receivers.

use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use mqtt_proto::{MessageBody, PacketId, QoS, ReasonCode};
use mqtt_session::{
    ApplicationMessage, Delivery, DropReason, Dropped, Qos0Inbox, SubscriptionIdSet,
};
use net_api::{Behind, Key};
use store_state::CorrelationId;
use store_state::api::{ShardRef, ShardRefs, Store as _};
use store_state::inbox::{InboxOp, Item, Origin, publisher_hash};
use store_state::retain::{ConnectionNumber, Writer};

use crate::backpressure::throttle::Receivers;
use crate::clients::{
    BetweenLoops, Client, LoopIo, Timer, Together, effective, record, record_drop,
};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::inbox::{Came, Inboxes};
use crate::key::{SessionKey, ordering_hash};
use crate::linger::{Led, Linger};
use crate::pending::{Awaiting, Pending, Publication, Storing, ToMember};
use crate::publish::STORED_NAME;
use crate::publish::calls::needs_call;
use crate::publish::forward::item_for;
use crate::publish::once;
use crate::publish::once::Once;
use crate::publish::rest::{ForInboxes, Rest, ToGroups, Which};
use crate::publish::retained_order::{Asks, ToOwner};
use crate::publish::source::Source;
use crate::rim::Rim;
use crate::routes::{MatchSet, Target};
use crate::share::units;
use crate::shared::groups::{Group, Member, Who};
use crate::stats::BrokerStats;
use crate::sys;

/// Receivers of a message that are worth a unit of its publisher's share of the turn.
const TARGETS_PER_UNIT: usize = 8;

/// Receivers, and members of a group, that are worth a unit when they are looked up.
pub(crate) const MATCHES_PER_UNIT: usize = 16;

/// Who is to store a message.
#[derive(Debug)]
struct Recorders {
    /// Inbox shards, for their sessions that match.
    shards: Vec<ShardRef>,
    /// All that there are as far as whoever has found these knew.
    routed_by: ShardRefs,
    /// Members of shared groups.
    members: ForInboxes,
    /// Groups that have not got it, or that may have members which are not known.
    rest: Option<Rest>,
    /// Nobody is known to have sessions that match, and the publisher does not wait for that if this node is
    /// cut off.
    unsure: bool,
    /// Sessions get it that no inbox keeps it for.
    others: bool,
    /// Another loop gives it to sessions, and asks the shards.
    to_owner: Option<Box<ToOwner>>,
}

impl Recorders {
    fn len(&self) -> usize {
        self.shards.len() + self.members.len() + usize::from(self.rest.is_some())
    }
}

impl<R: Rim> ClientLoop<R> {
    /// Routes a client's message. The answer is the reason code of its acknowledgement, if everything
    /// that has to be kept before it (P1) is kept when this returns; else it comes when that is.
    pub(crate) fn publish(
        &mut self,
        io: &mut impl LoopIo,
        mut message: ApplicationMessage,
        from: Key,
        packet_id: Option<PacketId>,
    ) -> Option<ReasonCode> {
        let client = self.clients.get(from);
        let client_id = client.map_or("", |client| client.session.client_id());
        if sys::is_closed_to(client_id, message.body.topic_bytes()) {
            // [MQTT-4.7.2-1] the broker's own topics are the broker's to say
            self.base
                .drop_inbound(&self.clients, io, from, &message, Reason::ReservedTopic);
            return Some(ReasonCode::NotAuthorized);
        }
        let _retaining = message.retain.then(|| self.base.node.retaining.begin());
        let set = self.find(io, &message);
        if !set.is_direct()
            && let Some(client) = self.clients.get(from)
        {
            message.publisher_hash = ordering_hash(client.session.client_id());
        }
        let source = self.source(&message, from, packet_id);
        self.distribute_now(io, Arc::new(message), source, set)
    }

    fn source(
        &self,
        message: &ApplicationMessage,
        from: Key,
        packet_id: Option<PacketId>,
    ) -> Source {
        let client = self.clients.get(from);
        let stored = client.and_then(|client| client.stored.as_ref());
        let inbox = stored.and_then(|stored| stored.inbox());
        let mut source = Source {
            key: self.base.session_key(from).to_bits(),
            transient: inbox.is_none(),
            awaiting: match packet_id {
                Some(id) => Some(Awaiting::Client(from, id)),
                None => message.retain.then_some(Awaiting::Nobody(from)),
            },
            ..Source::default()
        };
        if message.qos == QoS::ExactlyOnce
            && let Some(packet_id) = packet_id
            && let (Some(client), Some(stored), Some(inbox)) = (client, stored, inbox)
        {
            source.repeated = inbox.is_repeated(packet_id);
            let client_id = client.session.client_id();
            source.once = Some(inbox.once(client_id, stored.epoch(), packet_id));
        }
        source
    }

    /// What durable sessions know the publisher by, for No Local; 0: the broker.
    fn hash_of(&self, source: &Source) -> u64 {
        if let Some(Awaiting::Will { client, .. }) = &source.awaiting {
            return publisher_hash(client);
        }
        SessionKey::from_bits(source.key)
            .and_then(|publisher| self.clients.get(publisher.key()))
            .map_or(0, |client| publisher_hash(client.session.client_id()))
    }

    /// Gives a message to all whose subscriptions match, and to the retain store. `None`: it is on its
    /// way to those who keep it.
    pub(crate) fn distribute(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        source: Source,
    ) -> Option<ReasonCode> {
        // Before those are found that get it: sessions of other loops may have it before the retain store is asked to keep
        // it, or after that.
        let _retaining = message.retain.then(|| self.base.node.retaining.begin());
        let set = self.find(io, message);
        self.distribute_now(io, Arc::clone(message), source, set)
    }

    fn distribute_now(
        &mut self,
        io: &mut impl LoopIo,
        message: Arc<ApplicationMessage>,
        source: Source,
        set: Arc<MatchSet>,
    ) -> Option<ReasonCode> {
        if !set.lacks_shards {
            // What waits for members goes before what comes later.
            self.members_may_be_known(io);
        }
        let retain = message.retain && self.can_retain(io, &message, &source);
        let owned = self.deliveries.elsewhere.handle_publication(
            message.body.topic_bytes(),
            retain,
            self.base.index,
            io.loops(),
        );
        if set.is_direct() && !retain && owned.is_none() && source.once.is_none() {
            // Most messages: nobody keeps it, and all who get it are connected to this node.
            let answer = answer_to(&self.base.stats, &message, &set);
            self.deliver_to_sessions(io, message, &set, None);
            return Some(answer);
        }
        let message = &message;
        let mut recorders = Recorders {
            shards: self.matching_shards(&set, message).to_vec(),
            routed_by: set.known.clone(),
            members: ForInboxes::default(),
            rest: None,
            unsure: set.unsure && source.transient,
            others: false,
            to_owner: None,
        };
        if !source.transient && message.qos > QoS::AtMostOnce {
            recorders.shards.extend_from_slice(&set.cut_off);
        }
        let awaits = set.lacks_shards && message.qos > QoS::AtMostOnce;
        if awaits || !set.groups.is_empty() {
            let to = ToGroups {
                // In case the store could not keep it when it came before. A group with members that got it directly
                // is done with.
                which: match source.repeated {
                    true => Which::Durable,
                    false => Which::All,
                },
                but: Box::default(),
                once: source.once.clone(),
                publication: None,
                served: awaits.then(Vec::new),
            };
            let (rest, members) = self.deliver_to_first_groups(io, message, Arc::clone(&set), to);
            recorders.others = set.groups.len() > members.len();
            recorders.members = members;
            recorders.rest = (awaits || !rest.range.is_empty()).then_some(rest);
        }
        if let Some(owned) = owned {
            self.base
                .charge(io, 1 + units(set.targets.len() / TARGETS_PER_UNIT));
            recorders.to_owner = Some(Box::new(ToOwner {
                owned,
                from: self.base.index,
                message: Arc::clone(message),
                set: Arc::clone(&set),
                delivers: !source.repeated,
                of_broker: source.of_broker().cloned(),
                asks: Asks::default(),
                _retaining: message.retain.then(|| self.base.node.retaining.begin()),
            }));
        } else if !source.repeated {
            self.deliver_to_sessions(io, Arc::clone(message), &set, source.of_broker());
        }
        if !source.repeated {
            self.forward(io, message, &set, source.key, source.of_broker(), awaits);
        }
        self.remember_keepers(&source, &mut recorders);
        let reason = answer_to(&self.base.stats, message, &set);
        if recorders.len() == 0 && !retain {
            if let Some(to_owner) = recorders.to_owner {
                io.send(
                    Behind(to_owner.owned.by),
                    BetweenLoops::ToOwner(to_owner).into(),
                );
            }
            return Some(reason);
        }
        let is_put_off = recorders
            .rest
            .as_ref()
            .is_some_and(|rest| !rest.range.is_empty());
        recorders.unsure &= recorders.members.is_empty() && !is_put_off && !retain;
        if !recorders.shards.is_empty() {
            let direct = set.targets.iter().any(|target| !target.durable);
            recorders.others |= direct || set.nodes.iter().any(|target| !target.qos0_only);
        }
        self.keep(io, message, source, recorders, reason, retain);
        None
    }

    /// Who gets a message, as of now.
    pub(crate) fn find(
        &mut self,
        io: &mut impl LoopIo,
        message: &ApplicationMessage,
    ) -> Arc<MatchSet> {
        if let Some(peers) = self.base.node.peers() {
            peers.check_leases(&*self.base.node, io.now_ms());
        }
        let topic = message.body.topic_bytes();
        let misses = self.cache.misses();
        let set = self.cache.find(topic, &self.base.node.routes);
        if self.cache.misses() != misses {
            self.base
                .charge(io, 1 + units(set.len() / MATCHES_PER_UNIT));
            self.base.stats.cached_topics.set(self.cache.len() as u64);
            self.base.stats.cache_misses.set(self.cache.misses());
        }
        set
    }

    /// Gives a message to the sessions of a match that are connected to this node. `once`: unless they have got it,
    /// from whichever node.
    pub(crate) fn deliver_to_sessions(
        &mut self,
        io: &mut impl LoopIo,
        message: Arc<ApplicationMessage>,
        set: &Arc<MatchSet>,
        once: Option<&Origin>,
    ) {
        if once.is_some_and(|origin| !self.base.node.direct.begin(origin, None)) {
            return;
        }
        self.base
            .share
            .charge(units(set.targets.len() / TARGETS_PER_UNIT));
        // Not one reference more than there are receivers: counting them is synchronised.
        let messages = repeat_n(message, set.loops.len());
        for ((to, range), message) in set.loops.iter().zip(messages) {
            if *to == self.base.index {
                self.deliver_range(io, message, set, range.clone());
            } else {
                let mut message = Some(message);
                io.add_to_last(*to, |last| Together::add(last, &mut message, set, range));
                // Else it goes along with the one before it.
                if let Some(first) = message {
                    let together = Together {
                        retaining: first.retain.then(|| self.base.node.retaining.begin()),
                        first,
                        others: Vec::new(),
                        set: Arc::clone(set),
                        range: range.clone(),
                    };
                    io.send(*to, BetweenLoops::Deliver(together).into());
                }
            }
        }
    }

    /// The shards with sessions that match.
    fn matching_shards<'m>(
        &self,
        set: &'m MatchSet,
        message: &ApplicationMessage,
    ) -> &'m [ShardRef] {
        match (message.qos, self.base.settings.limits.policy.qos0_inbox) {
            (QoS::AtMostOnce, Qos0Inbox::Never) => &[],
            (QoS::AtMostOnce, Qos0Inbox::Offline) => &set.detached,
            _ => &set.shards,
        }
    }

    /// Takes note of who is asked to keep a QoS 2 publication of a durable session: they forget it at
    /// PUBREL. The publisher's own shard remembers it, whoever gets it.
    fn remember_keepers(&mut self, source: &Source, recorders: &mut Recorders) {
        if let Some(Awaiting::Client(from, packet_id)) = source.awaiting
            && source.once.is_some()
            && let Some((inbox, session)) = self
                .clients
                .get_mut(from)
                .and_then(Client::inbox_and_session)
        {
            let store = self.base.node.store();
            inbox.keep_up(&store.inbox_shards(), || session.received().clone());
            let members = recorders.members.iter();
            let of_members = members.map(|(client, _)| store.inbox_shard(store.inbox_slot(client)));
            let shards = recorders.shards.iter().map(|shard| shard.number);
            inbox.remember(packet_id, shards.chain(of_members), &recorders.routed_by);
            // As those that match: what is split off by now gets it from there.
            let own = recorders.routed_by.of_slot(inbox.slot());
            recorders
                .shards
                .extend(own.filter(|own| !recorders.shards.contains(own)));
        }
    }

    /// Whether the retain store can name a message's topic; if not, that is recorded.
    fn can_retain(&self, io: &impl LoopIo, message: &ApplicationMessage, source: &Source) -> bool {
        let fits = message.body.topic_bytes().len() <= STORED_NAME;
        if !fits && let Some(publisher) = SessionKey::from_bits(source.key) {
            self.base.drop_inbound(
                &self.clients,
                io,
                publisher.key(),
                message,
                Reason::RetainedLimit,
            );
        }
        fits
    }

    /// Asks those who keep a message to do so.
    fn keep(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        source: Source,
        recorders: Recorders,
        reason: ReasonCode,
        retain: bool,
    ) {
        let publisher = if recorders.shards.is_empty() {
            0
        } else {
            self.hash_of(&source)
        };
        let Source {
            key: source_key,
            once,
            awaiting,
            ..
        } = source;
        let is_numbered = needs_call(message.qos, once.as_ref());
        let call = (is_numbered && awaiting.is_some()).then(|| self.calls.begin());
        let publication = awaiting.map(|from| {
            self.base
                .pending
                .insert(Pending::Publish(Box::new(Publication {
                    from,
                    left: recorders.len() + usize::from(retain),
                    reason,
                    storing: Storing::Done,
                    not_retained: false,
                    receivers: Receivers {
                        others: recorders.others,
                        ..Receivers::default()
                    },
                    unsure: recorders.unsure,
                    message: Arc::clone(message),
                    once: once.clone(),
                    call,
                })))
        });
        self.base.stats.pending.set(self.base.pending.len() as u64);
        let ticket = publication.map_or(CorrelationId::NONE, |id| self.base.ticket(id.to_bits()));
        let store = self.base.node.store();
        if let Some(mut to_owner) = recorders.to_owner {
            let waits = call.is_some();
            let request = |shard| {
                let op = once::publish(Arc::clone(message), publisher, once.clone());
                let op = if waits { self.calls.once(op) } else { op };
                (shard, op)
            };
            let inboxes = recorders.shards.into_iter().map(request).collect();
            to_owner.asks = Asks {
                correlation_id: ticket,
                retain: retain.then(|| self.writer(source_key, once.as_ref()).into()),
                inboxes,
                needs_numbers: is_numbered && !waits,
            };
            io.send(
                Behind(to_owner.owned.by),
                BetweenLoops::ToOwner(to_owner).into(),
            );
        } else {
            if retain {
                let writer = self.writer(source_key, once.as_ref());
                store.retain(ticket, Arc::clone(message), writer);
            }
            for shard in recorders.shards {
                let op = once::publish(Arc::clone(message), publisher, once.clone());
                let op = if is_numbered { self.calls.once(op) } else { op };
                store.inboxes(shard, ticket, op);
            }
        }
        for (client, item) in recorders.members {
            self.give_to_inbox(&client, item, publication, once.clone());
        }
        if let Some(mut rest) = recorders.rest {
            rest.to.publication = publication;
            self.put_off_groups(io, message, rest);
        }
    }

    /// Who has a message retained. Alone, a node applies what its clients send in order, and no fence is needed.
    fn writer(&self, source: u64, once: Option<&Once>) -> Writer<'_> {
        if let Some(origin) = once.and_then(Once::of_broker) {
            return Writer::Will(origin.clone());
        }
        let publisher = SessionKey::from_bits(source);
        let client = publisher.and_then(|publisher| self.clients.get(publisher.key()));
        match client.filter(|client| client.number != 0) {
            Some(client) => Writer::Client {
                publisher: client.session.client_id(),
                connection: ConnectionNumber(client.number),
            },
            None => Writer::Anybody,
        }
    }

    /// Gives a message to the inbox of a member of a shared group. `publication`: whose acknowledgement
    /// waits for it.
    pub(crate) fn give_to_inbox(
        &mut self,
        client: &str,
        item: Item,
        publication: Option<Key>,
        once: Option<Once>,
    ) {
        let is_numbered = needs_call(item.qos, once.as_ref());
        let call = (is_numbered && publication.is_none()).then(|| self.calls.begin());
        let to_member = ToMember {
            item: item.clone(),
            publication,
            call,
            once: once.clone(),
        };
        let member = self.base.node.store().client_name(client);
        let op = once::deliver(member, item, once);
        let op = if is_numbered { self.calls.once(op) } else { op };
        self.ask_to_take(op, Pending::Member(Box::new(to_member)));
    }

    /// Asks the inbox of a member of a shared group to take a message.
    pub(crate) fn ask_to_take(&mut self, op: InboxOp, pending: Pending) {
        let ticket = self.base.ask(pending);
        self.base.node.store().inbox(ticket, op);
    }

    /// Gives a message to targets of this loop, all at once.
    pub(crate) fn deliver_targets(
        &mut self,
        io: &mut impl LoopIo,
        message: Arc<ApplicationMessage>,
        set: &MatchSet,
        range: Range<usize>,
    ) {
        let always = self.base.settings.limits.policy.qos0_inbox == Qos0Inbox::Always;
        let came = match set.len() {
            0 | 1 => Came::Alone,
            _ => Came::WithOthers,
        };
        let targets = set.targets.get(range).unwrap_or_default();
        let messages = repeat_n(message, targets.len());
        for (target, message) in targets.iter().zip(messages) {
            let stored =
                target.durable && (always || message.qos.min(target.qos) > QoS::AtMostOnce);
            if !stored
                && target.wants(|| {
                    let behind = Linger::behind_route(&self.base, &self.clients, target.session);
                    behind.to_bits() == message.publisher
                })
            {
                let key = target.session.key();
                if self.clients.get(key).is_some_and(Client::lingers) {
                    let shards = self.matching_shards(set, &message);
                    let delivery = delivery(message, target);
                    let (parts, mut turn) = self.turn(io);
                    let shards = Some((shards, &set.known));
                    let led = parts.linger.led_to(&mut turn, key, delivery, shards);
                    self.deliver_led(io, led, came);
                } else {
                    self.deliver_to_client(io, key, delivery(message, target), came);
                }
            }
        }
    }

    /// Gives a delivery to whom routes have led to.
    fn deliver_led(&mut self, io: &mut impl LoopIo, led: Led, came: Came) {
        match led {
            Led::To(key, delivery) => self.deliver_to_client(io, key, delivery, came),
            // It was chosen while it was connected.
            Led::Group(delivery) => self.redispatch(io, vec![delivery], None),
            Led::Kept => {}
        }
    }

    /// Gives a delivery to a session of this loop.
    pub(crate) fn deliver_to(&mut self, io: &mut impl LoopIo, key: Key, delivery: Delivery) {
        let (parts, mut turn) = self.turn(io);
        let led = parts.linger.led_to(&mut turn, key, delivery, None);
        self.deliver_led(io, led, Came::Alone);
    }

    /// Gives a delivery to a client of this loop.
    pub(crate) fn deliver_to_client(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        delivery: Delivery,
        came: Came,
    ) {
        let (parts, mut turn) = self.turn(io);
        let (rights, backpressure) = (&mut parts.rights, &mut parts.backpressure);
        Inboxes::handle_delivery(&mut turn, rights, backpressure, key, delivery, came);
    }

    /// Chooses a member of a group among those that are admitted. A message that several nodes may publish goes
    /// to the same one from all of them, as far as they see the same members.
    pub(crate) fn choose<'m>(
        &self,
        group: &Group,
        members: &'m [Member],
        message: &ApplicationMessage,
        once: Option<&Origin>,
        admits: impl Fn(&Member) -> bool,
    ) -> Option<&'m Member> {
        match once {
            Some(origin) => {
                let own = self
                    .base
                    .node
                    .peers()
                    .map_or(0, |_| self.base.node.store().node());
                group.choose_for_all_nodes(members, own, (origin, message.qos), admits)
            }
            None => group.choose(members, message.publisher_hash, admits),
        }
    }

    /// Gives a message to a member's connection, unless its inbox has to store it: then it is handed
    /// back. `once`: unless a member that is connected here has got it, from whichever node.
    pub(crate) fn give_directly(
        &mut self,
        io: &mut impl LoopIo,
        group: &Group,
        member: &Member,
        item: Item,
        once: Option<&Origin>,
    ) -> Option<(Arc<str>, Item)> {
        let session = match &member.who {
            Who::Session(session) => *session,
            Who::Node(node) => {
                self.forward_to_group(io, *node, group, &item.message, 0, once);
                return None;
            }
            Who::Durable(client) => {
                let qos0 = self.base.settings.limits.policy.qos0_inbox;
                let stored = item.qos > QoS::AtMostOnce || qos0 == Qos0Inbox::Always;
                match member.gauge.home() {
                    Some(home) if !stored => home,
                    None if !stored && qos0 == Qos0Inbox::Never => {
                        let (message, reason) = (item.message, DropReason::OfflineQos0);
                        let dropped = Dropped { message, reason };
                        record(&self.base.drops, io.now_ms(), client, &dropped);
                        return None;
                    }
                    _ => return Some((Arc::clone(client), item)),
                }
            }
        };
        if once.is_some_and(|origin| !self.base.node.direct.begin(origin, Some(group.filter()))) {
            return None;
        }
        let delivery = Delivery {
            message: item.message,
            qos: item.qos,
            retain: item.retain,
            subscription_ids: item.subscription_ids,
            group: Some(group.number()),
        };
        let to = session.loop_index();
        if to == self.base.index {
            self.deliver_to(io, session.key(), delivery);
        } else {
            io.send(to, BetweenLoops::DeliverTo(session, delivery).into());
        }
        None
    }

    /// Gives what one member of a shared group did not acknowledge to others.
    pub(crate) fn redispatch(
        &mut self,
        io: &mut impl LoopIo,
        deliveries: Vec<Delivery>,
        except: Option<SessionKey>,
    ) {
        io.charge(units(deliveries.len()));
        let except = except.map(Who::Session);
        for delivery in deliveries {
            let Some(number) = delivery.group else {
                continue;
            };
            let Some(group) = self.base.node.routes.group(number.get()) else {
                let (message, reason) = (&delivery.message, Reason::NoGroupMember);
                record_drop(&self.base.drops, io.now_ms(), message, reason);
                continue;
            };
            let (message, except) = (&delivery.message, except.as_ref());
            let given = self.give_to_other(io, &group, message, except, None, None);
            if let Some((client, item)) = given {
                self.give_to_inbox(&client, item, None, None);
            }
        }
    }

    /// Gives a message of a shared group, which a member's inbox never had, to another member.
    /// `publication`: whose acknowledgement waits for it. `once`: what it is known by, also when its publisher sends it
    /// again.
    pub(crate) fn redispatch_stored(
        &mut self,
        io: &mut impl LoopIo,
        item: &Item,
        publication: Option<Key>,
        once: Option<Once>,
    ) {
        let filter = item.group.as_deref().unwrap_or_default();
        let once = once.as_ref();
        let given = self.give_to_group(io, filter, &item.message, publication, once);
        self.give_to_inboxes(given.into_iter().collect(), publication, once);
    }

    /// Gives a message to a member of the group with this filter, unless its inbox has to store it: then
    /// it is handed back. `publication`: whose acknowledgement waits for it.
    pub(crate) fn give_to_group(
        &mut self,
        io: &mut impl LoopIo,
        filter: &str,
        message: &Arc<ApplicationMessage>,
        publication: Option<Key>,
        once: Option<&Once>,
    ) -> Option<(Arc<str>, Item)> {
        let Some(group) = self.base.node.routes.group_of(filter) else {
            self.nobody_is_known(io, filter, message, publication, once.cloned());
            return None;
        };
        self.give_to_other(io, &group, message, None, publication, once)
    }

    /// The same with a group, of which one member is not to have it.
    fn give_to_other(
        &mut self,
        io: &mut impl LoopIo,
        group: &Arc<Group>,
        message: &Arc<ApplicationMessage>,
        except: Option<&Who>,
        publication: Option<Key>,
        once: Option<&Once>,
    ) -> Option<(Arc<str>, Item)> {
        let members = self.base.node.routes.members(group);
        let others = |member: &Member| Some(&member.who) != except;
        let of_broker = once.and_then(Once::of_broker);
        let Some(member) = self.choose(group, &members, message, of_broker, others) else {
            self.nobody_is_known(io, group.filter(), message, publication, once.cloned());
            return None;
        };
        let item = item_for(group, member, message);
        self.give_directly(io, group, member, item, of_broker)
    }

    /// Arms the loop that publishes `$SYS`.
    pub(crate) fn start_sys(&mut self, io: &mut impl LoopIo) {
        if self.base.index == 0 && self.base.settings.sys_interval_ms != 0 && !self.sys_armed {
            self.sys_armed = true;
            io.arm(io.now_ms(), Timer::Sys.to_bits());
        }
    }

    pub(crate) fn publish_sys(&mut self, io: &mut impl LoopIo) {
        self.sys_armed = false;
        if self.base.settings.sys_interval_ms == 0 || self.base.closing {
            return;
        }
        for (topic, value) in self.base.node.rim.sys_topics(&self.base.node) {
            let message = Arc::new(ApplicationMessage {
                body: MessageBody::new(&topic, value.as_bytes()),
                qos: QoS::AtMostOnce,
                retain: true,
                publisher: sys::PUBLISHER,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            });
            self.base.node.retained.set(&message);
            let message = Arc::new(ApplicationMessage {
                retain: false,
                ..(*message).clone()
            });
            self.distribute(io, &message, Source::default());
        }
        self.sys_armed = true;
        io.arm(
            io.now_ms() + self.base.settings.sys_interval_ms,
            Timer::Sys.to_bits(),
        );
    }
}

/// The answer to whoever publishes a message that nobody has to keep.
fn answer_to(stats: &BrokerStats, message: &ApplicationMessage, set: &MatchSet) -> ReasonCode {
    if !set.is_empty() {
        return ReasonCode::Success;
    }
    if !sys::is_own(message.body.topic_bytes()) {
        stats.unmatched.add(1);
    }
    ReasonCode::NoMatchingSubscribers
}

fn delivery(message: Arc<ApplicationMessage>, target: &Target) -> Delivery {
    Delivery {
        qos: effective(message.qos, target.qos),
        // [MQTT-3.3.1-12] [MQTT-3.3.1-13] as published if asked for, else 0 for those who subscribed before
        retain: message.retain && target.retain_as_published,
        subscription_ids: match &target.ids {
            SubscriptionIdSet::None => SubscriptionIdSet::None,
            ids => ids.clone(),
        },
        group: None,
        message,
    }
}
