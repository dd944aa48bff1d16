//! A small broker in threads, right unless told to do wrong, which remembers what it did.
//!
//! Wrongs go by publisher and number of a message, which its payload says, so that they hit the same message
//! whatever the number of workers. Each happens once: a message that is sent again is handled rightly.
//!
//! Deliberately absent: sessions that outlast connections.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use loadtest::verify::Stamp;
use mqtt_proto::{
    AckProperties, ConnAck, ConnAckProperties, Packet, PacketId, ProtocolVersion, PubAck, PubComp,
    PubRec, PubRel, Publish, PublishProperties, QoS, ReasonCode, SubAck, peek_frame,
};

pub(crate) const VERSION: ProtocolVersion = ProtocolVersion::V5;

/// What the broker grants: few enough that a stall fills it.
const RECEIVE_MAXIMUM: Option<NonZeroU16> = NonZeroU16::new(10);

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the broker does with a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrong {
    Drop,
    Duplicate,
    /// Delivers it after the publisher's next one.
    Swap,
    /// Delivers it to everybody who subscribes to anything.
    Stray,
    /// The whole broker does nothing for this long, then handles it.
    Stall(Duration),
    /// Closes the publisher's connection as if the message had not come.
    CutBefore,
    /// Delivers it, and closes the publisher's connection without an answer.
    CutUnanswered,
    /// Delivers and answers it, and closes the publisher's connection.
    CutAnswered,
    /// Closes the connections of those who should get it.
    CutReceivers,
}

/// The `sequence`-th message of a publisher, both from 0.
pub(crate) type Which = (u32, u32);

/// What a client said of its session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Session {
    pub(crate) subscribes: bool,
    pub(crate) clean_start: bool,
    pub(crate) expiry: Option<u32>,
    /// Whether it sent DISCONNECT.
    pub(crate) took_leave: bool,
    /// Of its DISCONNECT.
    pub(crate) expiry_at_end: Option<u32>,
}

/// What the broker saw and did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// By topic: messages that came, those sent again included.
    pub(crate) published: BTreeMap<String, u64>,
    /// By client identifier: messages delivered.
    pub(crate) delivered: BTreeMap<String, u64>,
    /// Messages for which there was no subscription.
    pub(crate) unclaimed: u64,
    /// Topics with a retained message, now.
    pub(crate) retained: usize,
    /// Connections that are open.
    pub(crate) open: usize,
    /// Of the connections that have ended.
    pub(crate) sessions: Vec<Session>,
}

struct Connection {
    stream: TcpStream,
    client_id: String,
    session: Session,
    will: Option<Message>,
    next_id: PacketId,
    /// Cut off: what still comes is not looked at.
    is_cut: bool,
}

struct Subscription {
    filter: String,
    is_shared: bool,
    /// The connection's number.
    connection: usize,
}

#[derive(Clone)]
struct Message {
    topic: String,
    qos: QoS,
    payload: Vec<u8>,
}

#[derive(Default)]
struct State {
    connections: HashMap<usize, Connection>,
    subscriptions: Vec<Subscription>,
    wrongs: HashMap<Which, Wrong>,
    /// By publisher: what goes after its next message.
    held: HashMap<u32, Message>,
    /// By topic.
    retained: BTreeMap<String, Message>,
    /// Members of shared subscriptions take turns.
    turn: usize,
    seen: Seen,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Broker {
    pub(crate) fn start(wrongs: &[(Which, Wrong)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                wrongs: wrongs.iter().copied().collect(),
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (stream, shared) = (stream.unwrap(), serving.clone());
                shared.state().open(number, &stream);
                thread::spawn(move || shared.serve(number, stream));
            }
        });
        Self { address, shared }
    }

    /// What it saw, as soon as all clients have left.
    pub(crate) fn seen_when_empty(&self) -> Seen {
        let state = self.shared.state();
        let (state, timeout) = self
            .shared
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.seen.open > 0)
            .unwrap();
        assert!(!timeout.timed_out(), "{} stay", state.seen.open);
        state.seen.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// One connection until the client closes it.
    fn serve(&self, number: usize, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            bytes.extend_from_slice(&chunk[..count]);
            while let Some(header) = peek_frame(&bytes, Some(VERSION)).unwrap()
                && header.len() <= bytes.len()
            {
                let frame: Vec<u8> = bytes.drain(..header.len()).collect();
                let packet = Packet::decode(&frame, VERSION).unwrap();
                self.state().handle(number, &packet);
            }
        }
        self.state().leave(number);
        self.changed.notify_all();
    }
}

impl State {
    fn open(&mut self, number: usize, stream: &TcpStream) {
        self.seen.open += 1;
        let connection = Connection {
            stream: stream.try_clone().unwrap(),
            client_id: String::new(),
            session: Session::default(),
            will: None,
            next_id: PacketId::FIRST,
            is_cut: false,
        };
        self.connections.insert(number, connection);
    }

    fn leave(&mut self, number: usize) {
        self.seen.open -= 1;
        self.subscriptions.retain(|s| s.connection != number);
        let connection = self.connections.remove(&number).unwrap();
        if let (Some(will), false) = (&connection.will, connection.session.took_leave) {
            self.deliver(will, 1);
        }
        self.seen.sessions.push(connection.session);
    }

    fn handle(&mut self, number: usize, packet: &Packet<'_>) {
        let connection = self.connections.get_mut(&number).unwrap();
        if connection.is_cut {
            return;
        }
        match packet {
            Packet::Connect(connect) => {
                connection.client_id = connect.client_id.to_owned();
                connection.session.clean_start = connect.clean_start;
                connection.will = connect.will.as_ref().map(|will| Message {
                    topic: will.topic.to_owned(),
                    qos: will.qos,
                    payload: will.payload.to_vec(),
                });
                connection.session.expiry = connect.properties.session_expiry_interval;
            }
            Packet::Disconnect(disconnect) => {
                connection.session.took_leave = true;
                connection.session.expiry_at_end = disconnect.properties.session_expiry_interval;
            }
            Packet::Subscribe(subscribe) => {
                connection.session.subscribes = true;
                self.answer(number, packet);
                for (filter, _) in subscribe.filters.iter() {
                    self.subscribe(number, filter);
                }
                return;
            }
            Packet::Publish(publish) => return self.handle_publish(number, publish),
            _ => {}
        }
        self.answer(number, packet);
    }

    fn subscribe(&mut self, number: usize, filter: &str) {
        let plain = filter.strip_prefix("$share/group/");
        let subscription = Subscription {
            filter: plain.unwrap_or(filter).to_owned(),
            is_shared: plain.is_some(),
            connection: number,
        };
        let retained = self.retained.values();
        let matching = retained.filter(|message| subscription.matches(&message.topic));
        for message in matching.cloned().collect::<Vec<_>>() {
            self.send(&message, vec![number], 1);
        }
        self.subscriptions.push(subscription);
    }

    fn handle_publish(&mut self, number: usize, publish: &Publish<'_>) {
        let message = Message {
            topic: publish.topic.to_owned(),
            qos: publish.qos,
            payload: publish.payload.to_vec(),
        };
        if publish.retain {
            self.retain(&message);
        }
        if message.payload.is_empty() {
            return self.answer(number, &Packet::Publish(*publish));
        }
        let Stamp {
            publisher,
            sequence,
            ..
        } = Stamp::from_payload(publish.payload).unwrap();
        let published = self.seen.published.entry(message.topic.clone());
        *published.or_default() += 1;
        let wrong = self.wrongs.remove(&(publisher, sequence));
        let after = self.held.remove(&publisher);
        match wrong {
            None | Some(Wrong::CutUnanswered | Wrong::CutAnswered) => self.deliver(&message, 1),
            Some(Wrong::Drop | Wrong::CutBefore) => {}
            Some(Wrong::Duplicate) => self.deliver(&message, 2),
            Some(Wrong::Stray) => {
                let everybody = self.subscriptions.iter().map(|s| s.connection).collect();
                self.send(&message, everybody, 1);
            }
            Some(Wrong::Stall(time)) => {
                thread::sleep(time);
                self.deliver(&message, 1);
            }
            Some(Wrong::Swap) => drop(self.held.insert(publisher, message)),
            Some(Wrong::CutReceivers) => {
                self.seen.unclaimed += 1;
                for receiver in self.receivers(&message.topic) {
                    self.cut(receiver);
                }
            }
        }
        if let Some(message) = after {
            self.deliver(&message, 1);
        }
        if !matches!(wrong, Some(Wrong::CutBefore | Wrong::CutUnanswered)) {
            self.answer(number, &Packet::Publish(*publish));
        }
        if let Some(Wrong::CutBefore | Wrong::CutUnanswered | Wrong::CutAnswered) = wrong {
            self.cut(number);
        }
    }

    fn retain(&mut self, message: &Message) {
        if message.payload.is_empty() {
            self.retained.remove(&message.topic);
        } else {
            self.retained.insert(message.topic.clone(), message.clone());
        }
        self.seen.retained = self.retained.len();
    }

    /// Connections to which a message on this topic goes.
    fn receivers(&mut self, topic: &str) -> Vec<usize> {
        let all = self.subscriptions.iter().filter(|s| s.matches(topic));
        let (members, mut receivers): (Vec<_>, Vec<_>) = all.partition(|s| s.is_shared);
        if !members.is_empty() {
            receivers.push(members[self.turn % members.len()]);
            self.turn += 1;
        }
        receivers.iter().map(|s| s.connection).collect()
    }

    fn deliver(&mut self, message: &Message, copies: usize) {
        let receivers = self.receivers(&message.topic);
        if receivers.is_empty() {
            self.seen.unclaimed += 1;
        }
        self.send(message, receivers, copies);
    }

    fn send(&mut self, message: &Message, receivers: Vec<usize>, copies: usize) {
        for receiver in receivers {
            let connection = self.connections.get_mut(&receiver).unwrap();
            let packet_id = (message.qos > QoS::AtMostOnce).then_some(connection.next_id);
            connection.next_id = connection.next_id.next();
            let publish = Publish {
                dup: false,
                qos: message.qos,
                retain: false,
                topic: &message.topic,
                packet_id,
                properties: PublishProperties::default(),
                payload: &message.payload,
            };
            // One write: the client finds copies of a message side by side.
            let mut frames = Vec::new();
            for _ in 0..copies {
                publish.encode(VERSION, &mut frames).unwrap();
            }
            let delivered = self.seen.delivered.entry(connection.client_id.clone());
            *delivered.or_default() += copies as u64;
            connection.write(&frames);
        }
    }

    fn answer(&mut self, number: usize, packet: &Packet<'_>) {
        self.connections[&number].write(&answer(packet));
    }

    /// Closes a connection so that all that was written before still arrives.
    fn cut(&mut self, number: usize) {
        let connection = self.connections.get_mut(&number).unwrap();
        connection.stream.shutdown(Shutdown::Write).unwrap();
        connection.is_cut = true;
        self.subscriptions.retain(|s| s.connection != number);
    }
}

impl Subscription {
    fn matches(&self, topic: &str) -> bool {
        let (parent, _) = topic.rsplit_once('/').unwrap();
        self.filter == topic || self.filter.strip_suffix("/+") == Some(parent)
    }
}

impl Connection {
    fn write(&self, bytes: &[u8]) {
        // A client may have left meanwhile.
        let _ = (&self.stream).write_all(bytes);
    }
}

/// What a broker that takes everything answers.
fn answer(packet: &Packet<'_>) -> Vec<u8> {
    let reason = ReasonCode::Success;
    let properties = AckProperties::default();
    let mut out = Vec::new();
    match *packet {
        Packet::Connect(_) => ConnAck {
            session_present: false,
            reason,
            properties: ConnAckProperties {
                receive_maximum: RECEIVE_MAXIMUM,
                ..ConnAckProperties::default()
            },
        }
        .encode(VERSION, &mut out),
        Packet::Subscribe(subscribe) => SubAck {
            packet_id: subscribe.packet_id,
            properties,
            reasons: [reason].as_slice().into(),
        }
        .encode(VERSION, &mut out),
        Packet::Publish(Publish {
            qos: QoS::AtLeastOnce,
            packet_id: Some(packet_id),
            ..
        }) => PubAck {
            packet_id,
            reason,
            properties,
        }
        .encode(VERSION, &mut out),
        Packet::Publish(Publish {
            packet_id: Some(packet_id),
            ..
        }) => PubRec {
            packet_id,
            reason,
            properties,
        }
        .encode(VERSION, &mut out),
        Packet::PubRel(PubRel { packet_id, .. }) => PubComp {
            packet_id,
            reason,
            properties,
        }
        .encode(VERSION, &mut out),
        Packet::PubRec(PubRec { packet_id, .. }) => PubRel {
            packet_id,
            reason,
            properties,
        }
        .encode(VERSION, &mut out),
        _ => Ok(()),
    }
    .unwrap();
    out
}
