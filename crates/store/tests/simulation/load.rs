//! Clients, and what the broker of a node does for them: of `broker`, only what the store is asked.
//!
//! A client has one connection at a time, but an earlier one may linger at another node until that notices.
//! What a client was not told is done it does again on its next connection; the node of the earlier one may still
//! ask the store for it, and ask again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use consensus::simulation::Chance;
use mqtt_proto::{MessageBody, QoS, SubscriptionOptions};
use mqtt_session::{ApplicationMessage, SubscriptionIdSet, Timestamp};
use store_state::CorrelationId;
use store_state::api::{Event, Read};
use store_state::inbox::{
    Attached, Done, InboxOp, InboxReply, Item, Origin, Queued, StoredSubscription,
};
use store_state::retain::Writer;
use store_state::session::{
    ClaimRequest, Claimed, OfAnotherUser, SessionOp, SessionReply, StoredWill, TakenFrom,
    WillAtClose,
};

use crate::history::{Claim, History, Published, RetainedKind, RetainedOp, WillFate};
use crate::world::World;

/// The only event loop of a node, as correlation ids know it.
const LOOP: u16 = 1;

/// Messages that a session can take at first.
const CREDIT: u32 = 20;

/// Messages of one client on their way.
const OUTBOX: usize = 3;

/// Filters that a client subscribes to.
const FILTERS: usize = 8;

const TOPICS: usize = 3;

/// Topics of a shared group to which all clients belong that have a session. Behind it is the one that the
/// publisher's node has chosen.
pub(crate) const GROUP: &str = "g/";
const RETAINED_TOPICS: usize = 2;

/// Sessions last longer than any run.
const EXPIRY: u32 = 100_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Claiming,
    Attaching,
    Online,
}

/// What a connection is to do later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Todo {
    /// The client has acknowledged a message of QoS 1, or completed one of QoS 2.
    Acknowledge(u64),
    /// The client has received a message of QoS 2.
    Receipt(u64),
    /// The node notices that the client is gone.
    Close,
}

#[derive(Debug)]
struct Connection {
    client: usize,
    node: u64,
    stage: Stage,
    asked: u64,
    epoch: u64,
    will: Option<u64>,
    shard: u16,
    inbox: u64,
    incarnation: u64,
    next: u64,
    sent: u64,
    credit: u32,
    todo: Vec<(u64, Todo)>,
    /// Filters that are being subscribed to.
    subscribing: BTreeSet<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// To be published, perhaps again.
    Unsent,
    Publishing,
    /// Acknowledged; its origin is to be released.
    Received,
    Releasing,
}

/// A message that a client has in its hands.
#[derive(Debug)]
struct Publication {
    number: u64,
    topic: String,
    once: bool,
    /// Of QoS 2: the session, and the packet identifier.
    origin: Option<(u64, u16)>,
    phase: Phase,
}

struct Client {
    name: String,
    wanted: Vec<String>,
    current: Option<u64>,
    outbox: Vec<Publication>,
    /// It has had a session.
    has_session: bool,
    next_act: u64,
}

/// What an answer is waited for.
#[derive(Clone, Debug)]
enum Pending {
    Claim(u64),
    Attach(u64),
    Subscribe(u64, String),
    Routes(u64, String),
    Publish {
        connection: u64,
        number: u64,
        left: usize,
        failed: bool,
    },
    Release {
        connection: u64,
        number: u64,
        left: usize,
        failed: bool,
    },
    Receipt(u64, u64),
    Will {
        number: u64,
        client: Box<str>,
        epoch: u64,
        left: usize,
        failed: bool,
    },
    Fired {
        client: Box<str>,
        epoch: u64,
    },
    /// Of this epoch, with this will to be discarded.
    Disconnect(u64, Option<u64>),
    Retained(String, usize),
}

pub(crate) struct Load {
    clients: Vec<Client>,
    connections: BTreeMap<u64, Connection>,
    /// By token: the node, and what it waits for.
    pending: BTreeMap<u64, (u64, Pending)>,
    /// Nothing new is begun.
    is_ending: bool,
}

impl Load {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        let count = 3 + chance.below(3);
        let client = |index: usize| Client {
            name: format!("client-{index}"),
            // One looks at wills.
            wanted: match index {
                0 => vec!["w/+".to_owned(), "t/#".to_owned()],
                _ => vec![["t/0", "t/1", "t/+", "t/#"][chance.below(4)].to_owned()],
            },
            current: None,
            outbox: Vec::new(),
            has_session: false,
            next_act: 3_000,
        };
        Self {
            clients: (0..count).map(client).collect(),
            connections: BTreeMap::new(),
            pending: BTreeMap::new(),
            is_ending: false,
        }
    }

    pub(crate) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Whether each client is connected, and has nothing in its hands; else, who has what.
    pub(crate) fn is_done(&self) -> Result<(), String> {
        for client in &self.clients {
            let connection = client.current.and_then(|id| self.connections.get(&id));
            let is_online = connection.is_some_and(|connection| {
                connection.stage == Stage::Online
                    && connection.todo.is_empty()
                    && connection.subscribing.is_empty()
            });
            if !is_online || !client.outbox.is_empty() {
                return Err(format!(
                    "{}: {connection:?}, {:?}",
                    client.name, client.outbox
                ));
            }
        }
        match self.pending.first_key_value() {
            None => Ok(()),
            Some((_, pending)) => Err(format!("not answered: {pending:?}")),
        }
    }

    /// What a node had is gone.
    pub(crate) fn life_ended(&mut self, history: &mut History, node: u64) {
        self.pending.retain(|_, (at, _)| *at != node);
        let gone = self.connections.extract_if(.., |_, c| c.node == node);
        for (id, connection) in gone.collect::<Vec<_>>() {
            // What comes back may not know of a claim that it had not been answered.
            if connection.stage == Stage::Online {
                will_is(history, connection.will, WillFate::Due);
            }
            self.disconnected(id, connection.client);
        }
    }

    fn disconnected(&mut self, id: u64, client: usize) {
        let client = &mut self.clients[client];
        if client.current == Some(id) {
            client.current = None;
            for publication in &mut client.outbox {
                publication.phase = match publication.phase {
                    Phase::Publishing | Phase::Unsent => Phase::Unsent,
                    Phase::Releasing | Phase::Received => Phase::Received,
                };
            }
        }
    }
}

fn will_is(history: &mut History, will: Option<u64>, fate: WillFate) {
    if let Some(number) = will {
        history.wills.insert(number, fate);
    }
}

fn message(topic: &str, number: u64, once: bool, retain: bool) -> Arc<ApplicationMessage> {
    Arc::new(ApplicationMessage {
        body: MessageBody::new(topic, &number.to_be_bytes()),
        qos: qos(once),
        retain,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
    })
}

fn qos(once: bool) -> QoS {
    if once {
        QoS::ExactlyOnce
    } else {
        QoS::AtLeastOnce
    }
}

/// The number of a message.
fn number_of(message: &ApplicationMessage) -> u64 {
    let payload = message.body.payload().try_into();
    u64::from_be_bytes(payload.expect("eight bytes"))
}

impl World {
    /// Asks something of a node's store, under a new token.
    fn ask(
        &mut self,
        node: u64,
        pending: Pending,
        ask: impl FnOnce(&store::Store, CorrelationId, u64),
    ) -> u64 {
        let token = self.number();
        self.load.pending.insert(token, (node, pending));
        self.tell_store(node, |store, now| {
            let correlation_id = CorrelationId {
                peer: 0,
                loop_number: LOOP,
                token,
            };
            ask(store, correlation_id, now);
        });
        token
    }

    fn tell_store(&self, node: u64, tell: impl FnOnce(&store::Store, u64)) {
        if let Some(life) = &self.nodes[&node].life {
            life.within(tell);
        }
    }

    fn ask_inbox(&mut self, node: u64, shard: u16, pending: Pending, op: InboxOp) {
        self.ask(node, pending, |store, correlation_id, _| {
            store.inbox(shard, correlation_id, op);
        });
    }

    /// What clients do by themselves.
    pub(crate) fn act(&mut self) {
        self.do_todos();
        for index in 0..self.load.clients.len() {
            if self.load.clients[index].next_act <= self.now {
                let pause = 20 + self.chance.below(200) as u64;
                self.load.clients[index].next_act = self.now + pause;
                self.act_as(index);
            }
        }
    }

    fn do_todos(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (id, connection) in &mut self.load.connections {
            let todo = connection.todo.extract_if(.., |(at, _)| *at <= now);
            due.extend(todo.map(|(_, todo)| (*id, todo)));
        }
        for (id, todo) in due {
            let Some(connection) = self.load.connections.get_mut(&id) else {
                continue;
            };
            let (node, shard, epoch) = (connection.node, connection.shard, connection.epoch);
            let client = self.load.clients[connection.client].name.clone().into();
            match todo {
                Todo::Close => self.close(id, WillAtClose::Keep),
                Todo::Acknowledge(sequence) => {
                    let inbox = connection.inbox;
                    let op = InboxOp::Acknowledge {
                        client,
                        epoch,
                        sent: connection.sent,
                        done: Done(vec![sequence]),
                    };
                    let mut more = 0;
                    if connection.credit < CREDIT / 2 {
                        more = CREDIT - connection.credit;
                        connection.credit = CREDIT;
                    }
                    self.tell_store(node, |store, _| {
                        store.acknowledge(shard, op);
                        if more > 0 {
                            store.read(shard, Read::Credit { inbox, epoch, more });
                        }
                    });
                }
                Todo::Receipt(sequence) => {
                    let op = InboxOp::Receipt {
                        client,
                        epoch,
                        sequence,
                    };
                    self.ask_inbox(node, shard, Pending::Receipt(id, sequence), op);
                }
            }
        }
    }

    fn act_as(&mut self, index: usize) {
        let Some(id) = self.load.clients[index].current else {
            return self.connect_somewhere(index);
        };
        let Some(connection) = self.load.connections.get(&id) else {
            return;
        };
        if connection.stage != Stage::Online {
            return;
        }
        self.subscribe_next(index, id);
        self.go_on_publishing(index, id);
        if self.load.is_ending {
            return;
        }
        match self.chance.below(100) {
            0..35 => self.begin_publication(index),
            35..45 => self.write_retained(id),
            45..60 => self.read_retained(id),
            60..63 => self.close(id, WillAtClose::Discard),
            63..66 => self.close(id, WillAtClose::Keep),
            66..70 => self.hop(index, id),
            70..73 => self.want_more(index),
            _ => {}
        }
    }

    /// One more filter to subscribe to, whose route nobody has yet.
    fn want_more(&mut self, index: usize) {
        let filter = format!("x/{}", self.number());
        let wanted = &mut self.load.clients[index].wanted;
        if wanted.len() < FILTERS {
            wanted.push(filter);
        }
    }

    /// The client connects elsewhere while its connection lingers.
    fn hop(&mut self, index: usize, id: u64) {
        let until = self.now + self.chance.below(3_000) as u64;
        if let Some(connection) = self.load.connections.get_mut(&id) {
            connection.todo.push((until, Todo::Close));
        }
        self.load.disconnected(id, index);
        self.connect_somewhere(index);
    }

    fn connect_somewhere(&mut self, index: usize) {
        let alive: Vec<u64> = self.alive().into_iter().collect();
        if alive.is_empty() {
            return;
        }
        let node = alive[self.chance.below(alive.len())];
        let here = |connection: &Connection| connection.node == node && connection.client == index;
        let earlier = self.load.connections.iter().find(|(_, c)| here(c));
        match earlier.map(|(id, connection)| (*id, connection.stage)) {
            // The node waits until the store has answered for it.
            Some((_, Stage::Claiming | Stage::Attaching)) => return,
            Some((id, Stage::Online)) => self.close(id, WillAtClose::Keep),
            None => {}
        }
        let id = self.number();
        let will = (self.chance.below(2) == 0).then(|| self.number());
        will_is(&mut self.history, will, WillFate::Unknown);
        let client = self.load.clients[index].name.clone();
        let stored = will.map(|number| StoredWill {
            message: message(&format!("w/{client}"), number, true, false),
            message_expiry: None,
            delay: 0,
        });
        self.load.clients[index].current = Some(id);
        self.load.connections.insert(
            id,
            Connection {
                client: index,
                node,
                stage: Stage::Claiming,
                asked: self.now,
                epoch: 0,
                will,
                shard: 0,
                inbox: 0,
                incarnation: 0,
                next: 0,
                sent: 0,
                credit: 0,
                todo: Vec::new(),
                subscribing: BTreeSet::new(),
            },
        );
        self.note(&format!("{client} connects to {node}"));
        self.ask(node, Pending::Claim(id), |store, correlation_id, now| {
            let request = ClaimRequest {
                client: client.as_str().into(),
                node,
                node_incarnation: store.incarnation(),
                clean_start: false,
                expiry: EXPIRY,
                will: stored,
                asked_ms: now,
            };
            let op = SessionOp::claim(request, None, OfAnotherUser::Refuse);
            store.session(&client, correlation_id, op);
        });
    }

    /// A connection ends, as its node sees it.
    fn close(&mut self, id: u64, will: WillAtClose) {
        let Some(connection) = self.load.connections.remove(&id) else {
            return;
        };
        self.load.disconnected(id, connection.client);
        if connection.stage == Stage::Claiming {
            // It is disconnected when the answer comes.
            self.load.connections.insert(id, connection);
            return;
        }
        let client: Box<str> = self.load.clients[connection.client].name.clone().into();
        let (node, epoch, shard) = (connection.node, connection.epoch, connection.shard);
        self.note(&format!("{client} is closed at {node}, epoch {epoch}"));
        let fate = match will {
            // Until the answer.
            WillAtClose::Discard => WillFate::Unknown,
            WillAtClose::Keep => WillFate::Due,
        };
        if connection.stage == Stage::Online {
            // An earlier end has decided.
            let before = connection
                .will
                .and_then(|will| self.history.wills.get(&will));
            if before == Some(&WillFate::Connected(epoch)) {
                will_is(&mut self.history, connection.will, fate);
            }
            let inbox = connection.inbox;
            let detach = InboxOp::Detach {
                client: client.clone(),
                epoch,
                sent: connection.sent,
            };
            self.tell_store(node, |store, _| {
                store.read(shard, Read::Close { inbox, epoch });
                store.inbox(shard, CorrelationId::NONE, detach);
            });
        }
        self.disconnect(node, client, epoch, connection.will, will);
    }

    fn disconnect(
        &mut self,
        node: u64,
        client: Box<str>,
        epoch: u64,
        number: Option<u64>,
        will: WillAtClose,
    ) {
        let discarded = number.filter(|_| matches!(will, WillAtClose::Discard));
        let op = SessionOp::Disconnect {
            client: client.clone(),
            epoch,
            expiry: EXPIRY,
            will,
        };
        self.ask(
            node,
            Pending::Disconnect(epoch, discarded),
            |store, correlation_id, _| {
                store.session(&client, correlation_id, op);
            },
        );
    }

    fn subscribe_next(&mut self, index: usize, id: u64) {
        let connection = &self.load.connections[&id];
        let known = self.history.subscribed.get(&index);
        let is_new = |filter: &&String| {
            known.is_none_or(|known| !known.contains_key(*filter))
                && !connection.subscribing.contains(*filter)
        };
        let mut wanted = self.load.clients[index].wanted.iter();
        let Some(filter) = wanted.find(is_new).cloned() else {
            return;
        };
        let op = InboxOp::Subscribe {
            client: self.load.clients[index].name.as_str().into(),
            epoch: connection.epoch,
            subscriptions: vec![StoredSubscription {
                filter: filter.as_str().into(),
                options: SubscriptionOptions {
                    qos: QoS::ExactlyOnce,
                    ..SubscriptionOptions::default()
                },
                id: 0,
            }],
        };
        let (node, shard) = (connection.node, connection.shard);
        if let Some(connection) = self.load.connections.get_mut(&id) {
            connection.subscribing.insert(filter.clone());
        }
        self.ask_inbox(node, shard, Pending::Subscribe(id, filter), op);
    }

    fn begin_publication(&mut self, index: usize) {
        if self.load.clients[index].outbox.len() >= OUTBOX {
            return;
        }
        let number = self.number();
        let topic = match self.member() {
            Some(member) if self.chance.below(4) == 0 => format!("{GROUP}{member}"),
            _ => format!("t/{}", self.chance.below(TOPICS)),
        };
        let once = self.chance.below(2) == 0;
        let published = Published {
            publisher: Some(index),
            topic: topic.clone(),
            once,
            begun: self.now,
            acknowledged: None,
        };
        self.history.published.insert(number, published);
        self.load.clients[index].outbox.push(Publication {
            number,
            topic,
            once,
            origin: None,
            phase: Phase::Unsent,
        });
    }

    /// A member of the shared group.
    fn member(&mut self) -> Option<usize> {
        let clients = self.load.clients.iter().enumerate();
        let members = clients.filter(|(_, client)| client.has_session);
        let members: Vec<usize> = members.map(|(index, _)| index).collect();
        let chosen = self.chance.below(members.len().max(1));
        members.get(chosen).copied()
    }

    fn go_on_publishing(&mut self, index: usize, id: u64) {
        let connection = &self.load.connections[&id];
        let Connection {
            node,
            incarnation,
            epoch,
            ..
        } = *connection;
        let client = &mut self.load.clients[index];
        let used: BTreeSet<u16> = client
            .outbox
            .iter()
            .filter_map(|publication| Some(publication.origin?.1))
            .collect();
        let mut free = (1..).filter(|id| !used.contains(id));
        let mut publish = Vec::new();
        let mut release = Vec::new();
        for publication in &mut client.outbox {
            if publication.once && publication.origin.is_none() {
                publication.origin = free.next().map(|packet_id| (incarnation, packet_id));
            }
            let origin = publication.origin.map(|(incarnation, packet_id)| Origin {
                client: client.name.as_str().into(),
                incarnation,
                packet_id,
            });
            let number = publication.number;
            match publication.phase {
                Phase::Unsent => {
                    publication.phase = Phase::Publishing;
                    publish.push((number, publication.topic.clone(), publication.once, origin));
                }
                Phase::Received => {
                    publication.phase = Phase::Releasing;
                    release.extend(origin.map(|origin| (number, origin)));
                }
                Phase::Publishing | Phase::Releasing => {}
            }
        }
        for (number, topic, once, origin) in publish {
            let own = connection_shard(self, id).filter(|_| once);
            let message = message(&topic, number, once, false);
            let pending = |left| Pending::Publish {
                connection: id,
                number,
                left,
                failed: false,
            };
            let origin = origin.map(|origin| (origin, Some(epoch)));
            self.distribute(node, &message, origin, own, pending);
        }
        for (number, origin) in release {
            let shards = self.shards.inbox;
            self.note(&format!("{node} releases {origin:?} of {number}"));
            let pending = Pending::Release {
                connection: id,
                number,
                left: usize::from(shards),
                failed: false,
            };
            self.ask(node, pending, |store, correlation_id, _| {
                for shard in 0..shards {
                    let origin = origin.clone();
                    store.inbox(
                        shard,
                        correlation_id,
                        InboxOp::ReleaseFenced { origin, epoch },
                    );
                }
            });
        }
    }

    /// Asks all shards that may have sessions that match to keep a message. With the origin, the epoch of the
    /// publisher's connection; a will has none.
    fn distribute(
        &mut self,
        node: u64,
        message: &Arc<ApplicationMessage>,
        origin: Option<(Origin, Option<u64>)>,
        own: Option<u16>,
        pending: impl FnOnce(usize) -> Pending,
    ) {
        let Some(life) = &self.nodes[&node].life else {
            return;
        };
        let topic = message.body.topic();
        let mut shards = life.with_routes(|routes, now| routes.matching(topic, now));
        shards.extend(own);
        let number = number_of(message);
        self.note(&format!(
            "{node} gives {number} to {shards:?} as {origin:?}"
        ));
        let member = topic.strip_prefix(GROUP).map(|index| {
            let index: usize = index.parse().expect("a number");
            self.load.clients[index].name.clone()
        });
        let pending = pending(shards.len() + usize::from(member.is_some()));
        if shards.is_empty() && member.is_none() {
            return self.publication_answered(node, pending);
        }
        self.ask(node, pending, |store, correlation_id, _| {
            for shard in shards {
                let message = Arc::clone(message);
                let op = match origin.clone() {
                    Some((origin, Some(epoch))) => InboxOp::PublishFenced {
                        message,
                        publisher: 0,
                        origin,
                        epoch,
                    },
                    origin => InboxOp::Publish {
                        message,
                        publisher: 0,
                        origin: origin.map(|(origin, _)| origin),
                    },
                };
                store.inbox(shard, correlation_id, op);
            }
            if let Some(client) = member {
                let shard = store.inbox_shard(&client);
                store.inbox(shard, correlation_id, deliver(&client, message, origin));
            }
        });
    }

    fn write_retained(&mut self, id: u64) {
        let node = self.load.connections[&id].node;
        let topic = format!("r/{}", self.chance.below(RETAINED_TOPICS));
        let number = self.number();
        let pending = self.retained_begins(&topic, RetainedKind::Write(number));
        let message = message(&topic, number, false, true);
        self.ask(node, pending, |store, correlation_id, _| {
            store.retain(correlation_id, message, Writer::Anybody);
        });
    }

    fn read_retained(&mut self, id: u64) {
        let node = self.load.connections[&id].node;
        let topic = format!("r/{}", self.chance.below(RETAINED_TOPICS));
        let pending = self.retained_begins(&topic, RetainedKind::Read(None));
        self.ask(node, pending, |store, correlation_id, now| {
            let shard = store.retained_shard(&topic, None);
            store.ask_retained(correlation_id, shard, [(&*topic, None)], 10, Timestamp(now));
        });
    }

    fn retained_begins(&mut self, topic: &str, kind: RetainedKind) -> Pending {
        let ops = self.history.retained.entry(topic.to_owned()).or_default();
        ops.push(RetainedOp {
            asked: self.now,
            answered: None,
            kind,
        });
        Pending::Retained(topic.to_owned(), ops.len() - 1)
    }

    fn retained_answered(&mut self, topic: &str, at: usize, read: Option<Option<u64>>) {
        let ops = self.history.retained.get_mut(topic).expect("it began");
        let op = &mut ops[at];
        op.answered = Some(self.now);
        if let Some(value) = read {
            op.kind = RetainedKind::Read(value);
        }
    }

    /// An event for the loop of a node.
    pub(crate) fn event(&mut self, node: u64, event: Event) {
        self.note(&format!("{node}: {}", shown(&event)));
        match event {
            Event::Session { token, reply } => self.session_answered(token, reply),
            Event::Inbox { token, reply } => self.inbox_answered(token, Some(reply)),
            Event::Failed { token, .. } => self.failed(token),
            Event::Retain { token, .. } => {
                if let Some((_, Pending::Retained(topic, at))) = self.load.pending.remove(&token) {
                    self.retained_answered(&topic, at, None);
                }
            }
            Event::Retained { token, pages } => {
                if let Some((_, Pending::Retained(topic, at))) = self.load.pending.remove(&token) {
                    let first = pages.first().and_then(|page| page.messages.first());
                    let value = first.map(|retained| number_of(&retained.0));
                    self.retained_answered(&topic, at, Some(value));
                }
            }
            Event::Reopen { shard } => {
                self.history.reopened(node, shard, self.now);
                self.reopen(node, shard);
            }
            Event::Page {
                home,
                epoch,
                from,
                items,
            } => self.page(home, epoch, from, items),
            Event::Fire {
                client,
                epoch,
                will,
            } => self.fire(node, client, epoch, &will),
            Event::Fenced => self.fenced(node),
            Event::Passed { .. } | Event::Ended { .. } | Event::LeftBehind { .. } => {
                self.history.wrong(format!("nobody asked for {event:?}"));
            }
        }
    }

    fn session_answered(&mut self, token: u64, reply: SessionReply) {
        let Some((node, pending)) = self.load.pending.remove(&token) else {
            return;
        };
        match (pending, reply) {
            (Pending::Claim(id), SessionReply::Claimed(claimed)) => self.claimed(id, claimed),
            (Pending::Claim(id), _) => self.refused(id),
            (Pending::Fired { client, epoch }, _) => self.will_is_recorded(node, client, epoch),
            (Pending::Disconnect(epoch, will), SessionReply::Done) => {
                // Another node may have taken this one for dead before.
                let will = will.filter(|will| !self.history.has_fired(*will, epoch));
                will_is(&mut self.history, will, WillFate::Discarded(epoch));
            }
            _ => {}
        }
    }

    /// A connection that joined is refused.
    fn refused(&mut self, id: u64) {
        if let Some(connection) = self.load.connections.remove(&id) {
            self.load.disconnected(id, connection.client);
        }
    }

    fn claimed(&mut self, id: u64, claimed: Claimed) {
        let Some(connection) = self.load.connections.get_mut(&id) else {
            return;
        };
        let (index, node) = (connection.client, connection.node);
        self.history.claims.push(Claim {
            client: index,
            asked: connection.asked,
            answered: self.now,
            epoch: claimed.epoch,
        });
        connection.epoch = claimed.epoch;
        connection.stage = Stage::Attaching;
        self.take_over(index, &claimed.taken_from);
        let client = self.load.clients[index].name.clone();
        if self.load.clients[index].current != Some(id) {
            return self.close(id, WillAtClose::Discard);
        }
        if self.load.clients[index].has_session && !claimed.resumed {
            self.history.wrong(format!("{client} has lost its session"));
        }
        let Some(life) = &self.nodes[&node].life else {
            return;
        };
        let shard = life.store.inbox_shard(&client);
        let op = InboxOp::Attach {
            client: client.into(),
            epoch: claimed.epoch,
            node,
            node_incarnation: life.store.incarnation(),
            resume: claimed.resumed,
        };
        if let Some(connection) = self.load.connections.get_mut(&id) {
            connection.shard = shard;
        }
        self.ask_inbox(node, shard, Pending::Attach(id), op);
    }

    /// Who had the client before is told, and closes its connection.
    fn take_over(&mut self, index: usize, from: &TakenFrom) {
        let TakenFrom::Node { node, epoch } = *from else {
            return;
        };
        let at = self.now + self.chance.below(100) as u64;
        let is = |c: &&mut Connection| c.client == index && c.node == node && c.epoch == epoch;
        if let Some(connection) = self.load.connections.values_mut().find(is) {
            connection.todo.push((at, Todo::Close));
        }
    }

    fn attached(&mut self, id: u64, attached: Attached) {
        let Some(connection) = self.load.connections.get_mut(&id) else {
            return;
        };
        let (index, node, shard) = (connection.client, connection.node, connection.shard);
        connection.stage = Stage::Online;
        connection.inbox = attached.inbox;
        connection.incarnation = attached.incarnation;
        connection.next = attached.first;
        connection.sent = attached.sent - 1;
        connection.credit = CREDIT;
        let open = Read::Open {
            loop_index: 0,
            home: id,
            inbox: attached.inbox,
            epoch: connection.epoch,
            from: attached.first,
            credit: CREDIT,
        };
        let (will, epoch) = (connection.will, connection.epoch);
        if self.load.clients[index].current != Some(id) {
            return self.close(id, WillAtClose::Discard);
        }
        will_is(&mut self.history, will, WillFate::Connected(epoch));
        self.check_subscriptions(index, &attached);
        self.load.clients[index].has_session = true;
        self.tell_store(node, |store, _| store.read(shard, open));
    }

    /// What was subscribed to is there.
    fn check_subscriptions(&mut self, index: usize, attached: &Attached) {
        let Some(expected) = self.history.subscribed.get(&index) else {
            return;
        };
        let has = |filter: &String| attached.subscriptions.iter().any(|s| *s.filter == **filter);
        if let Some(lost) = expected.keys().find(|filter| !has(filter)) {
            let what = format!("client {index} has lost its subscription to {lost}");
            self.history.wrong(what);
        }
    }

    fn inbox_answered(&mut self, token: u64, reply: Option<InboxReply>) {
        let Some((node, pending)) = self.load.pending.get_mut(&token) else {
            return;
        };
        let node = *node;
        if let Pending::Publish { left, failed, .. }
        | Pending::Release { left, failed, .. }
        | Pending::Will { left, failed, .. } = pending
        {
            *left -= 1;
            *failed |= matches!(reply, None | Some(InboxReply::Fenced | InboxReply::Stale));
            if *left > 0 {
                return;
            }
        }
        let Some((_, pending)) = self.load.pending.remove(&token) else {
            return;
        };
        match (pending, reply) {
            (Pending::Attach(id), Some(InboxReply::Attached(attached))) => {
                self.attached(id, *attached);
            }
            (Pending::Attach(id), _) => self.close(id, WillAtClose::Discard),
            (Pending::Subscribe(id, filter), Some(InboxReply::Subscribed(_))) => {
                self.await_routes(id, filter);
            }
            (Pending::Subscribe(id, filter), _) => self.not_subscribing(id, &filter),
            (Pending::Receipt(id, sequence), Some(InboxReply::Done)) => {
                self.acknowledge_later(id, sequence);
            }
            (Pending::Receipt(id, _), _) => self.close(id, WillAtClose::Keep),
            (pending, _) => self.publication_answered(node, pending),
        }
    }

    fn failed(&mut self, token: u64) {
        match self.load.pending.get(&token) {
            Some((_, Pending::Claim(id))) => {
                let id = *id;
                self.load.pending.remove(&token);
                self.refused(id);
            }
            Some((_, Pending::Fired { .. } | Pending::Retained(..) | Pending::Disconnect(..))) => {
                self.load.pending.remove(&token);
            }
            _ => self.inbox_answered(token, None),
        }
    }

    fn await_routes(&mut self, id: u64, filter: String) {
        let Some(connection) = self.load.connections.get(&id) else {
            return;
        };
        let (node, shard) = (connection.node, connection.shard);
        let token = self.number();
        let pending = Pending::Routes(id, filter);
        self.load.pending.insert(token, (node, pending));
        if let Some(life) = &self.nodes[&node].life {
            let leader = life.store.inbox_leader(shard);
            life.with_routes(|routes, now| routes.await_shard(shard, token, leader, now));
        }
    }

    /// All live nodes know a route: SUBACK.
    pub(crate) fn route_known(&mut self, token: u64) {
        let Some((_, Pending::Routes(id, filter))) = self.load.pending.remove(&token) else {
            return;
        };
        self.not_subscribing(id, &filter);
        let Some(connection) = self.load.connections.get(&id) else {
            return;
        };
        let index = connection.client;
        if self.load.clients[index].current == Some(id) {
            self.note(&format!("client {index} has subscribed to {filter}"));
            let now = self.now;
            let filters = self.history.subscribed.entry(index).or_default();
            filters.entry(filter).or_insert(now);
        }
    }

    fn not_subscribing(&mut self, id: u64, filter: &str) {
        if let Some(connection) = self.load.connections.get_mut(&id) {
            connection.subscribing.remove(filter);
        }
    }

    /// All shards have answered for a publication, or its release.
    fn publication_answered(&mut self, node: u64, pending: Pending) {
        match pending {
            Pending::Publish {
                connection,
                failed: true,
                ..
            }
            | Pending::Release {
                connection,
                failed: true,
                ..
            } => self.close(connection, WillAtClose::Keep),
            Pending::Publish {
                connection, number, ..
            } => self.published(connection, number),
            Pending::Release {
                connection, number, ..
            } => {
                if let Some(client) = self.client_of(connection) {
                    client.outbox.retain(|p| p.number != number);
                }
            }
            Pending::Will {
                number,
                client,
                epoch,
                failed: false,
                ..
            } => {
                let op = SessionOp::Fired {
                    client: client.clone(),
                    epoch,
                };
                self.note(&format!("will {number} is published"));
                self.is_acknowledged(number);
                let pending = Pending::Fired {
                    client: client.clone(),
                    epoch,
                };
                self.ask(node, pending, |store, correlation_id, _| {
                    store.session(&client, correlation_id, op);
                });
            }
            _ => {}
        }
    }

    /// The client of a connection, if it still has that.
    fn client_of(&mut self, id: u64) -> Option<&mut Client> {
        let index = self.load.connections.get(&id)?.client;
        let client = &mut self.load.clients[index];
        (client.current == Some(id)).then_some(client)
    }

    fn published(&mut self, connection: u64, number: u64) {
        let Some(client) = self.client_of(connection) else {
            return;
        };
        let is = |p: &&mut Publication| p.number == number;
        let Some(publication) = client.outbox.iter_mut().find(is) else {
            return;
        };
        publication.phase = Phase::Received;
        if !publication.once {
            client.outbox.retain(|p| p.number != number);
        }
        self.note(&format!("{number} is acknowledged"));
        self.is_acknowledged(number);
    }

    fn is_acknowledged(&mut self, number: u64) {
        let now = self.now;
        let published = self.history.published.get_mut(&number);
        let published = published.expect("it was published");
        published.acknowledged.get_or_insert(now);
    }

    fn reopen(&mut self, node: u64, shard: u16) {
        let is_there = |c: &Connection| c.node == node && c.shard == shard;
        for (id, connection) in &self.load.connections {
            if connection.stage == Stage::Online && is_there(connection) {
                let open = Read::Open {
                    loop_index: 0,
                    home: *id,
                    inbox: connection.inbox,
                    epoch: connection.epoch,
                    from: connection.next,
                    credit: connection.credit,
                };
                self.tell_store(node, |store, _| store.read(shard, open));
            }
        }
    }

    fn page(&mut self, home: u64, epoch: u64, from: u64, items: Vec<(u64, Queued)>) {
        let Some(connection) = self.load.connections.get_mut(&home) else {
            return;
        };
        if connection.epoch != epoch || connection.stage != Stage::Online || from > connection.next
        {
            return;
        }
        let index = connection.client;
        connection.credit = connection.credit.saturating_sub(items.len() as u32);
        for (sequence, queued) in items {
            if sequence < connection.next {
                continue;
            }
            connection.next = sequence + 1;
            let after = self.now + self.chance.below(600) as u64;
            let todo = match queued {
                Queued::Released => Todo::Acknowledge(sequence),
                Queued::Message(item) => {
                    connection.sent = connection.sent.max(sequence);
                    let given = (index, number_of(&item.message));
                    self.history
                        .given
                        .entry(given)
                        .or_default()
                        .insert(sequence);
                    match item.qos {
                        QoS::ExactlyOnce => Todo::Receipt(sequence),
                        _ => Todo::Acknowledge(sequence),
                    }
                }
            };
            connection.todo.push((after, todo));
        }
    }

    fn acknowledge_later(&mut self, id: u64, sequence: u64) {
        let after = self.now + self.chance.below(300) as u64;
        if let Some(connection) = self.load.connections.get_mut(&id) {
            connection.todo.push((after, Todo::Acknowledge(sequence)));
        }
    }

    /// The others have taken the node for dead.
    fn fenced(&mut self, node: u64) {
        let there = |c: &Connection| c.node == node;
        let connections = self.load.connections.iter();
        let ids: Vec<u64> = connections
            .filter(|(_, connection)| there(connection))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.close(id, WillAtClose::Keep);
        }
    }

    fn fire(&mut self, node: u64, client: Box<str>, epoch: u64, will: &StoredWill) {
        let number = number_of(&will.message);
        let published = Published {
            publisher: None,
            topic: will.message.body.topic().to_owned(),
            once: true,
            begun: self.now,
            acknowledged: None,
        };
        self.history.published.entry(number).or_insert(published);
        self.history.fired.entry(number).or_default().push(epoch);
        let origin = origin_of_will(&client, epoch);
        let pending = |left| Pending::Will {
            number,
            client,
            epoch,
            left,
            failed: false,
        };
        self.distribute(node, &will.message, Some((origin, None)), None, pending);
    }

    fn will_is_recorded(&self, node: u64, client: Box<str>, epoch: u64) {
        let shards = self.shards.inbox;
        self.tell_store(node, |store, _| {
            for shard in 0..shards {
                let origin = origin_of_will(&client, epoch);
                store.inbox(shard, CorrelationId::NONE, InboxOp::Release { origin });
            }
        });
    }
}

/// The request to the inbox of a member of a shared group. Wills are not for such.
fn deliver(
    client: &str,
    message: &Arc<ApplicationMessage>,
    origin: Option<(Origin, Option<u64>)>,
) -> InboxOp {
    let item = Item {
        message: Arc::clone(message),
        qos: message.qos,
        retain: false,
        subscription_ids: SubscriptionIdSet::None,
        group: Some("$share/group/g/+".into()),
    };
    let (client, items) = (client.into(), vec![item]);
    match origin {
        Some((origin, Some(epoch))) => InboxOp::DeliverFenced {
            client,
            items,
            origin,
            epoch,
        },
        _ => InboxOp::Deliver {
            client,
            items,
            origin: None,
        },
    }
}

fn connection_shard(world: &World, id: u64) -> Option<u16> {
    Some(world.load.connections.get(&id)?.shard)
}

fn origin_of_will(client: &str, epoch: u64) -> Origin {
    Origin {
        // So that it makes no publication of the client void.
        client: format!("\0{epoch}/{client}").into(),
        incarnation: epoch,
        packet_id: 0,
    }
}

/// An event in short.
fn shown(event: &Event) -> String {
    match event {
        Event::Page {
            home, epoch, items, ..
        } => {
            let number = |queued: &Queued| match queued {
                Queued::Message(item) => Some(number_of(&item.message)),
                Queued::Released => None,
            };
            let items = items
                .iter()
                .map(|(sequence, queued)| (*sequence, number(queued)));
            let items: Vec<(u64, Option<u64>)> = items.collect();
            format!("page for {home} of epoch {epoch}: {items:?}")
        }
        Event::Fire {
            client,
            epoch,
            will,
        } => {
            format!(
                "will {} of {client}, epoch {epoch}",
                number_of(&will.message)
            )
        }
        other => format!("{other:?}"),
    }
}
