//! Clients: what they wish, by chance; what MQTT asks of them does `mqtt-client`.
//!
//! A client has one connection at a time, but an earlier one may linger at another node until that notices. What was not
//! acknowledged it sends again on its next connection.
//!
//! Client 0 looks at wills and publishes nothing. The last three are special: a publisher whose sessions end with its
//! connections; a member of the shared group that comes and goes, and whose sessions end now and then; and one that
//! asks for retained messages on connection after connection. All others have sessions that outlive connections.

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::simulation::Chance;
use mqtt_client::{Acknowledgements, Client as Mqtt, Event};
use mqtt_proto::{
    Connect, ConnectProperties, Disconnect, DisconnectProperties, LastWill, PacketId,
    ProtocolVersion, Publish, PublishProperties, QoS, ReasonCode, SubscribeProperties,
    SubscriptionOptions, WillProperties,
};

use crate::history::{ConnectionNumber, Look, Published, Subscribed, Will, WillFate};
use crate::node::{LOOPS, Life, Node};
use crate::promises::{self, retained};
use crate::world::World;

/// Messages of one client that are not acknowledged.
const OUTBOX: usize = 3;

/// Filters that a client subscribes to.
const FILTERS: usize = 8;

const TOPICS: usize = 3;
const RETAINED_TOPICS: usize = 2;

/// The filter of the shared group, without its group, and the group.
pub(crate) const SHARED: &str = "s/+";
pub(crate) const GROUP: &str = "$share/group/s/+";

/// How long the reader waits for retained messages, in ms; and how much longer if it lacks one. A page that may be older
/// than what has come to the client before is read again for up to 10 s.
const READING: u64 = 3_000;
const READING_MORE: u64 = 10_000;

/// How long a client at least waits that asks for retained messages again, in ms.
const LOOK_AGAIN: u64 = 700;

/// Sessions last longer than any run, in s.
const EXPIRY_S: u32 = 100_000;

/// What a client knows a message by.
#[derive(Clone, Debug)]
struct Sent {
    number: u64,
    topic: String,
    qos: QoS,
    retain: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    Online,
    Leaving,
}

#[derive(Debug)]
struct Link {
    node: u64,
    life: u64,
    label: String,
    number: ConnectionNumber,
    stage: Stage,
    will: Option<u64>,
    subscribing: BTreeMap<PacketId, String>,
}

/// What a client does beside what all do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// It publishes, but for client 0.
    Usual,
    /// It is a member of the shared group; its session ends when it wishes, and what was queued for it goes to others.
    Leaver,
    /// It asks for retained messages, and when it did so before last and last on its connection.
    Looker { before: u64, asked: u64 },
}

struct Client {
    name: String,
    part: Part,
    is_durable: bool,
    mqtt: Mqtt<Sent>,
    link: Option<Link>,
    wanted: Vec<String>,
    /// It has been told of a session.
    has_session: bool,
    /// The message that it was given last with each packet identifier.
    given_as: BTreeMap<PacketId, u64>,
    /// When its node was last known to have heard no majority since its start.
    lacked_quorum_at: Option<u64>,
    next_act: u64,
}

/// A connection that its client has left, and its node does not know it.
struct Stale {
    client: usize,
    until: u64,
    node: u64,
    life: u64,
    label: String,
    will: Option<u64>,
    was_online: bool,
}

pub(crate) struct Clients {
    clients: Vec<Client>,
    stale: Vec<Stale>,
    /// Nothing new is begun.
    is_ending: bool,
    /// Who looks at retained messages at the end.
    reader: Option<Reader>,
}

/// A client without a session that looks at what is retained.
struct Reader {
    index: usize,
    found: BTreeMap<String, u64>,
    until: u64,
}

/// What came of bytes that a client received.
enum Told {
    Connected {
        session_present: bool,
    },
    Refused,
    Disconnected,
    Message {
        topic: String,
        number: u64,
        retain: bool,
        packet_id: Option<PacketId>,
    },
    Acknowledged {
        number: u64,
        is_refused: bool,
    },
    Discarded {
        number: u64,
    },
    Subscribed {
        packet_id: PacketId,
        is_granted: bool,
    },
}

impl Clients {
    /// Takes note of clients whose nodes have heard no majority since their start. Only ticks of the nodes change that.
    pub(crate) fn note_quorums(&mut self, nodes: &BTreeMap<u64, Node>, now: u64) {
        for client in &mut self.clients {
            let node = client.link.as_ref().and_then(|link| nodes.get(&link.node));
            let life = node.and_then(|node| node.life.as_ref());
            if life.is_some_and(Life::lacks_quorum_since_start) {
                client.lacked_quorum_at = Some(now);
            }
        }
    }

    pub(crate) fn new(chance: &mut Chance) -> Self {
        let usual = 4 + chance.below(3);
        let client = |index: usize| Client {
            name: format!("client-{index}"),
            part: match index {
                _ if index < usual => Part::Usual,
                _ if index == usual => Part::Leaver,
                _ => Part::Looker {
                    before: 0,
                    asked: 0,
                },
            },
            is_durable: index + 1 < usual || index == usual,
            mqtt: Mqtt::new(Acknowledgements::Automatic),
            link: None,
            wanted: match index {
                0 => vec!["w/+".to_owned(), "t/#".to_owned()],
                1 | 2 => vec![GROUP.to_owned(), "t/0".to_owned()],
                _ if index == usual => vec![GROUP.to_owned()],
                _ if index > usual => Vec::new(),
                _ => vec![["t/0", "t/1", "t/+", "t/#"][chance.below(4)].to_owned()],
            },
            has_session: false,
            given_as: BTreeMap::new(),
            lacked_quorum_at: None,
            next_act: 3_000,
        };
        Self {
            clients: (0..usual + 2).map(client).collect(),
            stale: Vec::new(),
            is_ending: false,
            reader: None,
        }
    }

    /// The client of this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.clients.iter().position(|client| client.name == name)
    }

    pub(crate) fn name(&self, client: usize) -> &str {
        &self.clients[client].name
    }

    pub(crate) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Whether each client is connected, and has nothing in its hands; else, who has what.
    pub(crate) fn are_done(&self) -> Result<(), String> {
        for client in &self.clients {
            let link = client.link.as_ref();
            let is_idle =
                link.is_some_and(|link| link.stage == Stage::Online && link.subscribing.is_empty());
            let in_flight: Vec<_> = client.mqtt.messages_in_flight().collect();
            if !is_idle || !in_flight.is_empty() || client.mqtt.awaiting_release().next().is_some()
            {
                return Err(format!(
                    "{}: {link:?}, in flight {in_flight:?}",
                    client.name
                ));
            }
        }
        Ok(())
    }
}

pub(crate) fn number_of(payload: &[u8]) -> u64 {
    u64::from_be_bytes(payload.try_into().expect("eight bytes"))
}

/// What an event says, without the packet that it came of.
fn told(event: &Event<'_, Sent>) -> Option<Told> {
    Some(match event {
        Event::Connected(packet) => Told::Connected {
            session_present: packet.session_present,
        },
        Event::Refused(_) => Told::Refused,
        Event::Disconnected(_) => Told::Disconnected,
        Event::Message(incoming) => Told::Message {
            topic: incoming.publish.topic.to_owned(),
            number: number_of(incoming.publish.payload),
            retain: incoming.publish.retain,
            packet_id: incoming.publish.packet_id,
        },
        Event::Acknowledged(acknowledged) => Told::Acknowledged {
            number: acknowledged.message.number,
            is_refused: acknowledged.reason.is_error()
                && acknowledged.reason != ReasonCode::PacketIdentifierNotFound,
        },
        Event::Discarded(sent) => Told::Discarded {
            number: sent.number,
        },
        Event::Subscribed(packet) => Told::Subscribed {
            packet_id: packet.packet_id,
            is_granted: packet.reasons.iter().all(|reason| !reason.is_error()),
        },
        Event::Duplicate(_)
        | Event::Released { .. }
        | Event::Received(_)
        | Event::Unsubscribed(_)
        | Event::PingResp
        | Event::Stray { .. } => return None,
    })
}

impl Client {
    /// Asks for all retained messages. False: it cannot now.
    fn ask_retained(&mut self) -> bool {
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            ..SubscriptionOptions::default()
        };
        let asked = self
            .mqtt
            .subscribe(&[("r/+", options)], SubscribeProperties::default());
        if let (Ok(packet_id), Some(link)) = (&asked, &mut self.link) {
            link.subscribing.insert(*packet_id, "r/+".to_owned());
        }
        asked.is_ok()
    }

    /// Sends what is owed from earlier connections, and says which messages these are.
    fn send_again(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(sent) = self.mqtt.poll_resend().cloned() {
            let payload = sent.number.to_be_bytes();
            let packet = packet(&sent, &payload);
            self.mqtt.resend(packet).expect("there is room");
            numbers.push(sent.number);
        }
        numbers
    }
}

fn packet<'a>(sent: &'a Sent, payload: &'a [u8]) -> Publish<'a> {
    Publish {
        dup: false,
        qos: sent.qos,
        retain: sent.retain,
        topic: &sent.topic,
        packet_id: None,
        properties: PublishProperties::default(),
        payload,
    }
}

impl World {
    /// What clients do.
    pub(crate) fn act(&mut self) {
        self.notice_stale();
        for index in 0..self.clients.clients.len() {
            self.receive(index);
            if self.clients.clients[index].next_act <= self.now {
                let pause = 20 + self.chance.below(200) as u64;
                self.clients.clients[index].next_act = self.now + pause;
                self.act_as(index);
            }
            self.transmit(index);
        }
    }

    /// Nodes notice that clients have left their connections.
    fn notice_stale(&mut self) {
        let now = self.now;
        let due: Vec<Stale> = self
            .clients
            .stale
            .extract_if(.., |s| s.until <= now)
            .collect();
        for stale in due {
            if let Some(life) = self.life(stale.node, stale.life) {
                life.lose(&stale.label);
            }
            if stale.was_online {
                self.history.has_fate(stale.will, WillFate::Due);
            }
        }
    }

    fn receive(&mut self, index: usize) {
        let client = &self.clients.clients[index];
        let Some(link) = &client.link else {
            return;
        };
        let (node, life, label) = (link.node, link.life, link.label.clone());
        let received = match self.life(node, life) {
            Some(life) => life.take_from(&label),
            None => crate::node::Received {
                closed: Some(false),
                ..Default::default()
            },
        };
        self.record(&received.bytes);
        let client = &mut self.clients.clients[index];
        let mut all = Vec::new();
        let mut arrival = client.mqtt.handle_bytes(&received.bytes);
        loop {
            match client.mqtt.poll_event(&mut arrival) {
                Ok(Some(event)) => all.extend(told(&event)),
                Ok(None) => break,
                Err(error) => {
                    let what = format!("a broker breaks the protocol: {error:?}");
                    self.history.wrong(what);
                    break;
                }
            }
        }
        for told in all {
            self.told(index, told);
        }
        if let Some(in_order) = received.closed {
            self.closed(index, in_order);
        }
    }

    fn told(&mut self, index: usize, told: Told) {
        let client = &mut self.clients.clients[index];
        match told {
            Told::Connected { session_present } => {
                let Some(link) = &mut client.link else {
                    return;
                };
                link.stage = Stage::Online;
                let (will, node) = (link.will, link.node);
                self.history.has_fate(will, WillFate::Connected);
                if client.has_session && !session_present {
                    let what = format!("client {index} has lost its session (P4)");
                    self.history.wrong(what);
                }
                client.has_session |= client.is_durable;
                if let Part::Looker { before, asked } = &mut client.part {
                    (*before, *asked) = (0, 0);
                }
                self.note(&format!("client {index} is connected to {node}"));
                self.check_owner(index);
                // A client that leaves wills says on their topic that it is there, as the first thing on a connection.
                let client = &self.clients.clients[index];
                let link = client
                    .link
                    .as_ref()
                    .filter(|_| index > 0 && client.is_durable);
                let topic = format!("w/{}", client.name);
                if let Some(number) = link
                    .map(|link| link.number)
                    .filter(|_| !self.clients.is_ending)
                    && let Some(presence) = self.publish_to(index, topic, QoS::AtLeastOnce, false)
                {
                    self.history.presences.insert(presence, number);
                }
            }
            Told::Refused | Told::Disconnected => {}
            Told::Message {
                topic,
                number,
                retain,
                packet_id,
            } => {
                self.note(&format!(
                    "client {index} is given {number} of {topic} as {packet_id:?}, retained: {retain}"
                ));
                // What was asked for before may still be on its way.
                if let Part::Looker { before, .. } = self.clients.clients[index].part
                    && retain
                {
                    let look = Look {
                        asked: before,
                        given: self.now,
                        topic: topic.clone(),
                        number,
                    };
                    self.history.looks.push(look);
                }
                let client = &self.clients.clients[index];
                if client.is_durable {
                    self.history.give(index, number);
                    if let Some(since) = self.settled_since() {
                        promises::p04_once::check_unconfirmed(
                            &mut self.history,
                            (index, number),
                            since,
                        );
                    }
                }
                let client = &self.clients.clients[index];
                let is_leaving = |link: &Link| matches!(link.stage, Stage::Leaving);
                if client.link.as_ref().is_some_and(is_leaving) && !client.has_session {
                    // It came before the DISCONNECT that ends the session had arrived, if that ever does.
                    self.history.is_left_unreleased(index, &[number]);
                }
                if let Some(packet_id) = packet_id {
                    let given_as = &mut self.clients.clients[index].given_as;
                    given_as.insert(packet_id, number);
                }
                if let Some(reader) = self.clients.reader.as_mut().filter(|r| r.index == index) {
                    reader.found.insert(topic, number);
                }
            }
            Told::Acknowledged { number, is_refused } => {
                self.clients.note_quorums(&self.nodes, self.now);
                let now = self.now;
                let client = &self.clients.clients[index];
                if let Some(published) = self.history.published.get_mut(&number) {
                    if is_refused {
                        published.is_refused = true;
                    } else {
                        published.acknowledged.get_or_insert(now);
                        published.is_for_own_node |=
                            !client.is_durable && client.lacked_quorum_at >= Some(published.begun);
                    }
                }
                self.note(&format!("{number} is acknowledged, refused: {is_refused}"));
            }
            Told::Discarded { number } => {
                if client.is_durable {
                    let what = format!("client {index} has lost its session with {number} (P4)");
                    self.history.wrong(what);
                }
            }
            Told::Subscribed {
                packet_id,
                is_granted,
            } => {
                let link = client.link.as_mut();
                let filter = link.and_then(|link| link.subscribing.remove(&packet_id));
                if let Some(filter) = filter.filter(|_| is_granted && client.is_durable) {
                    self.note(&format!("client {index} has subscribed to {filter}"));
                    let since = self.now;
                    let filters = self.history.subscribed.entry(index).or_default();
                    filters.entry(filter).or_insert(Subscribed { since });
                }
            }
        }
    }

    /// P5: when CONNACK comes, no node serves an earlier connection of the session. A node that is down, or that others
    /// may take for down, is not waited for. Nor are connections of clean sessions while the leader that has taken over
    /// their directory is told of them (P10).
    fn check_owner(&mut self, index: usize) {
        if !self.clients.clients[index].is_durable || self.settled_since().is_none() {
            return;
        }
        let mut earlier = self.clients.stale.iter();
        let is_served = |stale: &&Stale| {
            let life = self.nodes[&stale.node].life.as_ref();
            stale.client == index
                && stale.was_online
                && life.is_some_and(|l| l.number == stale.life && l.serves(&stale.label))
        };
        if let Some(stale) = earlier.find(is_served) {
            let what = format!(
                "client {index} is connected, and node {} serves its connection {} (P5)",
                stale.node, stale.label
            );
            self.history.wrong(what);
        }
    }

    /// The connection of a client is gone.
    fn closed(&mut self, index: usize, in_order: bool) {
        let client = &mut self.clients.clients[index];
        client.mqtt.handle_connection_closed();
        if let Some(link) = client.link.take() {
            let fate = match link.stage {
                Stage::Connecting => return,
                Stage::Online => WillFate::Due,
                Stage::Leaving if in_order => WillFate::Discarded,
                Stage::Leaving => WillFate::Unknown,
            };
            self.history.has_fate(link.will, fate);
        }
    }

    fn transmit(&mut self, index: usize) {
        let now = Duration::from_millis(self.now);
        let client = &mut self.clients.clients[index];
        for number in client.send_again() {
            if let Some(published) = self.history.published.get_mut(&number) {
                published.is_sent_again = true;
            }
        }
        let client = &mut self.clients.clients[index];
        let bytes = client.mqtt.poll_transmit().to_vec();
        let Some(link) = client.link.as_ref().filter(|_| !bytes.is_empty()) else {
            return;
        };
        let (node, life, label) = (link.node, link.life, link.label.clone());
        client.mqtt.handle_transmitted(bytes.len(), now);
        self.record(&bytes);
        if let Some(life) = self.life(node, life) {
            life.push(&label, &bytes);
        }
    }

    fn act_as(&mut self, index: usize) {
        match self.clients.clients[index]
            .link
            .as_ref()
            .map(|link| link.stage)
        {
            None => return self.connect_somewhere(index),
            Some(Stage::Connecting | Stage::Leaving) => return,
            Some(Stage::Online) => {}
        }
        self.subscribe_next(index);
        if self.clients.is_ending {
            return self.read_slowly(index, false);
        }
        match self.clients.clients[index].part {
            Part::Usual => {}
            Part::Leaver => return self.act_as_leaver(index),
            Part::Looker { asked, .. } => return self.act_as_looker(index, asked),
        }
        match self.chance.below(100) {
            0..40 if index > 0 => self.publish(index),
            40..45 if index > 0 => self.retain(index),
            60..63 => self.disconnect(index, None),
            63..66 => self.leave(index, 0),
            66..71 => {
                let lingers = self.chance.below(3_000) as u64;
                self.leave(index, lingers);
                self.connect_somewhere(index);
            }
            71..74 => self.want_more(index),
            74..76 => self.read_slowly(index, true),
            76..84 => self.read_slowly(index, false),
            _ => {}
        }
    }

    /// A member of the shared group that comes and goes.
    fn act_as_leaver(&mut self, index: usize) {
        match self.chance.below(100) {
            0..4 => self.disconnect(index, Some(0)),
            4..8 => self.disconnect(index, None),
            8..12 => self.leave(index, 0),
            12..30 => self.read_slowly(index, true),
            30..50 => self.read_slowly(index, false),
            _ => {}
        }
    }

    /// A client that asks for retained messages again and again, and goes now and then. `asked`: when it did so last.
    fn act_as_looker(&mut self, index: usize, asked: u64) {
        let now = self.now;
        if self.chance.below(60) == 0 {
            return self.leave(index, 0);
        }
        let client = &mut self.clients.clients[index];
        let is_answered = client
            .link
            .as_ref()
            .is_some_and(|l| l.subscribing.is_empty());
        if asked + LOOK_AGAIN <= now && is_answered && client.ask_retained() {
            let before = if asked == 0 { now } else { asked };
            client.part = Part::Looker { before, asked: now };
        }
    }

    /// One more filter to subscribe to, whose route nobody has yet.
    fn want_more(&mut self, index: usize) {
        let filter = format!("x/{}", self.number());
        let wanted = &mut self.clients.clients[index].wanted;
        if wanted.len() < FILTERS {
            wanted.push(filter);
        }
    }

    fn read_slowly(&mut self, index: usize, is_slow: bool) {
        if let Some(link) = &self.clients.clients[index].link {
            let (node, life, label) = (link.node, link.life, link.label.clone());
            if let Some(life) = self.life(node, life) {
                life.block(&label, is_slow);
            }
        }
    }

    /// A client sends DISCONNECT. `expiry`: with this session expiry interval, in s; if it is 0, its session ends.
    fn disconnect(&mut self, index: usize, expiry: Option<u32>) {
        let client = &mut self.clients.clients[index];
        if expiry == Some(0) {
            // It may have ended, or not: whether DISCONNECT arrives nobody knows.
            client.has_session = false;
            let unreleased = client.mqtt.awaiting_release();
            let numbers = unreleased.filter_map(|id| client.given_as.get(&id).copied());
            self.history
                .is_left_unreleased(index, &numbers.collect::<Vec<_>>());
            self.history.subscribed.remove(&index);
            self.history.ended_members += 1;
            self.note(&format!("client {index} ends its session"));
        }
        let client = &mut self.clients.clients[index];
        if let Some(link) = &mut client.link {
            link.stage = Stage::Leaving;
            let will = link.will;
            let packet = Disconnect {
                reason: ReasonCode::Success,
                properties: DisconnectProperties {
                    session_expiry_interval: expiry,
                    ..DisconnectProperties::default()
                },
            };
            client.mqtt.disconnect(&packet).expect("it is connected");
            self.history.has_fate(will, WillFate::Unknown);
        }
        self.read_slowly(index, false);
    }

    /// A client is gone without a word; its node notices after a while.
    fn leave(&mut self, index: usize, lingers: u64) {
        let client = &mut self.clients.clients[index];
        client.mqtt.handle_connection_closed();
        if let Some(link) = client.link.take() {
            self.clients.stale.push(Stale {
                client: index,
                until: self.now + lingers,
                node: link.node,
                life: link.life,
                label: link.label,
                will: link.will,
                was_online: link.stage == Stage::Online,
            });
            // A later connection may end it before its node notices.
            if link.stage == Stage::Online {
                self.history.has_fate(link.will, WillFate::Due);
            }
        }
    }

    fn connect_somewhere(&mut self, index: usize) {
        let alive: Vec<u64> = self.alive().into_iter().collect();
        if alive.is_empty() {
            return;
        }
        let node = alive[self.chance.below(alive.len())];
        let at = self.chance.below(LOOPS);
        let connection = self.number();
        let label = format!("{}#{connection}", self.clients.clients[index].name);
        let has_will = self.clients.clients[index].is_durable && self.chance.below(2) == 0;
        let will = has_will.then(|| self.number());
        let (client, now) = (&mut self.clients.clients[index], self.now);
        let will_topic = format!("w/{}", client.name);
        let payload = will.unwrap_or(0).to_be_bytes();
        let connect = Connect {
            version: ProtocolVersion::V5,
            is_bridge: false,
            clean_start: !client.is_durable,
            keep_alive: 0,
            client_id: &client.name,
            will: will.map(|_| LastWill {
                topic: &will_topic,
                payload: &payload,
                qos: QoS::ExactlyOnce,
                retain: false,
                properties: WillProperties::default(),
            }),
            username: None,
            password: None,
            properties: ConnectProperties {
                session_expiry_interval: client.is_durable.then_some(EXPIRY_S),
                ..ConnectProperties::default()
            },
        };
        client.mqtt.connect(&connect).expect("it can be written");
        if let Some(number) = will {
            let (topic, fate) = (will_topic, WillFate::Unknown);
            let will = Will {
                topic,
                connection: ConnectionNumber(connection),
                begun: now,
                fate,
            };
            self.history.wills.insert(number, will);
        }
        self.note(&format!("client {index} connects to {node}"));
        let Some(life) = self.nodes.get_mut(&node).and_then(|n| n.life.as_mut()) else {
            return;
        };
        life.open(&label, at);
        let life = life.number;
        self.clients.clients[index].link = Some(Link {
            node,
            life,
            label,
            number: ConnectionNumber(connection),
            stage: Stage::Connecting,
            will,
            subscribing: BTreeMap::new(),
        });
    }

    fn subscribe_next(&mut self, index: usize) {
        let client = &mut self.clients.clients[index];
        let Some(link) = &mut client.link else {
            return;
        };
        let known = self.history.subscribed.get(&index);
        let is_new = |filter: &&String| {
            known.is_none_or(|known| !known.contains_key(*filter))
                && !link.subscribing.values().any(|f| f == *filter)
        };
        // Without a session, once for each connection.
        if !client.is_durable {
            return;
        }
        let Some(filter) = client.wanted.iter().find(is_new).cloned() else {
            return;
        };
        let options = SubscriptionOptions {
            qos: QoS::ExactlyOnce,
            ..SubscriptionOptions::default()
        };
        let asked = client
            .mqtt
            .subscribe(&[(&filter, options)], SubscribeProperties::default());
        if let Ok(packet_id) = asked {
            link.subscribing.insert(packet_id, filter);
        }
    }

    fn publish(&mut self, index: usize) {
        let topic = match self.chance.below(4) {
            0 => format!("s/{index}"),
            _ => format!("t/{}", self.chance.below(TOPICS)),
        };
        let all = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
        let qos = all[self.chance.below(all.len())];
        self.publish_to(index, topic, qos, false);
    }

    fn retain(&mut self, index: usize) {
        let topic = format!("r/{}", self.chance.below(RETAINED_TOPICS));
        self.publish_to(index, topic, QoS::AtLeastOnce, true);
    }

    /// The number of the message; `None`: too much is not acknowledged.
    fn publish_to(&mut self, index: usize, topic: String, qos: QoS, retain: bool) -> Option<u64> {
        let number = self.number();
        let client = &mut self.clients.clients[index];
        if client.mqtt.in_flight() >= OUTBOX || !client.mqtt.has_room(qos) {
            return None;
        }
        let sent = Sent {
            number,
            topic,
            qos,
            retain,
        };
        let payload = number.to_be_bytes();
        let published = client.mqtt.publish(packet(&sent, &payload), sent.clone());
        published.expect("there is room");
        let published = Published {
            publisher: Some(index),
            connection: client.link.as_ref().map(|link| link.number),
            topic: sent.topic,
            qos,
            is_of_session: client.is_durable,
            is_sent_again: false,
            begun: self.now,
            acknowledged: None,
            is_for_own_node: false,
            is_refused: false,
        };
        self.history.published.insert(number, published);
        Some(number)
    }

    /// The last client looks at all that is retained. False: it still does.
    pub(crate) fn read_retained(&mut self) -> bool {
        let index = self.clients.clients.len() - 1;
        let until = self.now + READING;
        match &self.clients.reader {
            None => {
                if self.clients.clients[index].ask_retained() {
                    self.clients.reader = Some(Reader {
                        index,
                        found: BTreeMap::new(),
                        until,
                    });
                }
                false
            }
            Some(reader) if self.now < reader.until => false,
            Some(reader)
                if self.now < reader.until + READING_MORE
                    && retained::lacks(&self.history, &reader.found).is_some() =>
            {
                false
            }
            Some(reader) => {
                self.history.retained = Some(reader.found.clone());
                true
            }
        }
    }

    /// What a node had is gone.
    pub(crate) fn life_ended(&mut self, node: u64) {
        let lost: Vec<usize> = self
            .clients
            .clients
            .iter()
            .enumerate()
            .filter(|(_, client)| client.link.as_ref().is_some_and(|link| link.node == node))
            .map(|(index, _)| index)
            .collect();
        for index in lost {
            self.closed(index, false);
        }
    }
}
