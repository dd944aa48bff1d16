//! The other nodes of a cluster, which do what a script says, and the links to them, which write down what is sent.
//!
//! The others tell and apply routes by themselves, as real nodes do, unless they stand still. All else that they are
//! asked they answer when the script says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::{LINK_FULL, Links};
use mqtt_proto::{MessageBody, QoS};
use mqtt_session::ApplicationMessage;
use peer_protocol::{
    Control, DirectoryMessage, Encode as _, ForGroup, Forwarded, Older, PeerMessage, Publications,
    PublicationsFrame, Registered, Registration, Takeover, Whom,
};
use route_exchange::{
    Batch, Exports, Imports, Key, Message, NodeId, Receivers, State, Times, Value,
};

use super::store::AskedStore;

/// The node of the script.
pub(crate) const OWN: NodeId = 1;

/// What all nodes speak.
const VERSION: u16 = *peer_protocol::VERSIONS.end();

/// What is sent to the other nodes. Cloned, it is the same.
#[derive(Debug, Clone)]
pub(crate) struct Wires {
    /// Has the log.
    store: AskedStore,
    state: Arc<Mutex<Wired>>,
}

#[derive(Debug, Default)]
pub(crate) struct Wired {
    /// What has not arrived.
    pub(crate) sent: Vec<(NodeId, Vec<u8>)>,
    /// Nodes that there is no connection to.
    pub(crate) unreached: BTreeSet<NodeId>,
    /// Nodes that too much is on its way to.
    pub(crate) over_limit: BTreeSet<NodeId>,
}

impl Wires {
    pub(crate) fn new(store: AskedStore) -> Self {
        Self {
            store,
            state: Arc::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Wired> {
        self.state.lock().unwrap()
    }

    fn write(&self, to: NodeId, bytes: &[u8]) -> bool {
        let mut state = self.state();
        if state.unreached.contains(&to) {
            return false;
        }
        let message = PeerMessage::decode(bytes, VERSION).unwrap();
        let lines = describe(&message).into_iter();
        let lines = lines.map(|line| format!("to node {to}: {line}"));
        self.store.state().log.extend(lines);
        state.sent.push((to, bytes.to_vec()));
        true
    }
}

impl Links for Wires {
    fn send(&self, to: NodeId, message: PeerMessage<'_>) -> bool {
        self.write(to, &message.encode(VERSION).unwrap())
    }

    fn forward(&self, to: NodeId, frame: PublicationsFrame) -> bool {
        self.write(to, &frame.encode(VERSION).unwrap())
    }

    fn queued_bytes(&self, to: NodeId) -> usize {
        match self.state().over_limit.contains(&to) {
            true => LINK_FULL + 1,
            false => 0,
        }
    }
}

/// Another node.
#[derive(Debug)]
struct Other {
    exports: Exports,
    imports: Imports,
    /// It has all but stopped: it reads nothing of routes, and tells nothing.
    stands_still: bool,
    /// What it has not read.
    unread: Vec<Message>,
    /// What it has not answered.
    asked: Vec<Question>,
    copies: u64,
    published: Option<Publications>,
}

#[derive(Debug)]
enum Question {
    Close(u64),
    Await(u64),
    Register(Vec<(u64, Registration)>),
}

/// The other nodes. Their methods return what they send.
#[derive(Debug, Default)]
pub(crate) struct Others(BTreeMap<NodeId, Other>);

pub(crate) type Sent = Vec<PeerMessage<'static>>;

impl Others {
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.0.keys().copied().collect()
    }

    pub(crate) fn add(&mut self, id: NodeId, times: Times, now_ms: u64) {
        let mut other = Other {
            exports: Exports::new(1, times),
            imports: Imports::new(times),
            stands_still: false,
            unread: Vec::new(),
            asked: Vec::new(),
            copies: 0,
            published: None,
        };
        other.exports.add_peer(OWN, now_ms);
        other.exports.connected(OWN);
        other.imports.add_peer(OWN);
        self.0.insert(id, other);
    }

    fn get(&mut self, id: NodeId) -> &mut Other {
        self.0.get_mut(&id).expect("a node of this cluster")
    }

    /// A node may have lost what it was told, and tells all.
    pub(crate) fn connected(&mut self, id: NodeId) {
        let other = self.get(id);
        other.imports.lost(OWN);
        other.exports.connected(OWN);
    }

    pub(crate) fn remove(&mut self, id: NodeId) {
        self.0.remove(&id);
    }

    pub(crate) fn stand_still(&mut self, id: NodeId) {
        self.get(id).stands_still = true;
    }

    pub(crate) fn go_on(&mut self, id: NodeId, now_ms: u64) -> Sent {
        let other = self.get(id);
        other.stands_still = false;
        let unread = std::mem::take(&mut other.unread);
        let read = unread.into_iter();
        let mut sent: Sent = read.flat_map(|message| other.routes(message)).collect();
        sent.extend(other.poll(now_ms));
        sent
    }

    /// What a node sends by itself: routes, and that it lives.
    pub(crate) fn beat(&mut self, id: NodeId, now_ms: u64) -> Sent {
        let other = self.get(id);
        if other.stands_still {
            return Vec::new();
        }
        let state = other.imports.state(OWN, Some(now_ms));
        let mut sent = vec![Message::State(state).into()];
        sent.extend(other.poll(now_ms));
        sent
    }

    /// Something has arrived.
    pub(crate) fn receive(&mut self, id: NodeId, bytes: &[u8], now_ms: u64) -> Sent {
        let Some(other) = self.0.get_mut(&id) else {
            return Vec::new();
        };
        match PeerMessage::decode(bytes, VERSION).unwrap() {
            PeerMessage::Routes(message) if other.stands_still => other.unread.push(message),
            PeerMessage::Routes(message) => {
                let mut sent = other.routes(message);
                sent.extend(other.poll(now_ms));
                return sent;
            }
            PeerMessage::Takeover(Takeover::Close { correlation_id, .. }) => {
                other.asked.push(Question::Close(correlation_id));
            }
            PeerMessage::Takeover(Takeover::Directory(DirectoryMessage::Register(new))) => {
                other.asked.push(Question::Register(new));
            }
            PeerMessage::Control(Control::Await { correlation_id, .. }) => {
                other.asked.push(Question::Await(correlation_id));
            }
            _ => {}
        }
        Vec::new()
    }

    /// A node answers what it was asked. `unreleased`: packet identifiers, for who asks it to close connections.
    /// `held_by`: who has a client, for who connects.
    pub(crate) fn answer(
        &mut self,
        id: NodeId,
        unreleased: &[u16],
        held_by: Option<NodeId>,
    ) -> Sent {
        let asked = std::mem::take(&mut self.get(id).asked);
        let answers = asked.into_iter().map(|question| match question {
            Question::Close(correlation_id) => Takeover::Closed {
                correlation_id,
                unreleased: unreleased.to_vec(),
            }
            .into(),
            Question::Await(correlation_id) => Control::Known { correlation_id }.into(),
            Question::Register(new) => {
                let answers = new.into_iter().map(|(question, new)| {
                    let alone = Registered::alone(new.number);
                    (question, Some(Registered { held_by, ..alone }))
                });
                let answers = answers.collect();
                Takeover::Directory(DirectoryMessage::Registered(answers)).into()
            }
        });
        answers.collect()
    }

    /// Clients of a node subscribe, or join a shared group.
    pub(crate) fn subscribe(&mut self, id: NodeId, filter: &str, now_ms: u64) -> Sent {
        let other = self.get(id);
        if filter.starts_with("$share/") {
            other.exports.join(filter);
            other.exports.show_room(filter, 1);
        } else {
            other.exports.subscribe(filter, Receivers::All);
        }
        other.poll(now_ms)
    }

    /// A node leads the inbox shard, in the second term.
    pub(crate) fn lead(&mut self, id: NodeId, now_ms: u64) -> Sent {
        let other = self.get(id);
        other.exports.lead(0, 2);
        other.exports.complete(0);
        other.poll(now_ms)
    }

    /// A publication of a client of a node; `group`: for a member of it, whose node keeps a copy.
    pub(crate) fn publish(
        &mut self,
        id: NodeId,
        (topic, payload, qos): (&str, &str, QoS),
        group: Option<&str>,
    ) -> Sent {
        let other = self.get(id);
        let whom = group.map_or(Whom::Sessions, |filter| {
            other.copies += 1;
            Whom::Group(ForGroup {
                filter: filter.into(),
                hops: 1,
                copy: other.copies,
            })
        });
        let forwarded = Forwarded {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new(topic, payload.as_bytes()),
                qos,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            publisher: peer_protocol::found_by(0, 5, 0),
            whom,
            origin: None,
        };
        let publications = Publications {
            from_loop: 0,
            messages: vec![forwarded],
        };
        other.published = Some(publications.clone());
        vec![PeerMessage::Publications(publications)]
    }

    /// The last publication of a node once more.
    pub(crate) fn send_again(&mut self, id: NodeId) -> Sent {
        let published = self.get(id).published.clone();
        published
            .map(PeerMessage::Publications)
            .into_iter()
            .collect()
    }
}

impl Other {
    fn routes(&mut self, message: Message) -> Sent {
        match message {
            Message::Batch(batch) => {
                self.imports.apply(OWN, batch).unwrap();
                let state = self.imports.state(OWN, None);
                vec![Message::State(state).into()]
            }
            Message::State(state) => {
                self.exports.handle_state(OWN, &state).unwrap();
                Vec::new()
            }
        }
    }

    fn poll(&mut self, now_ms: u64) -> Sent {
        if self.stands_still {
            return Vec::new();
        }
        let batches = std::iter::from_fn(|| self.exports.poll(OWN, now_ms));
        batches.map(|batch| Message::Batch(batch).into()).collect()
    }
}

/// What a node asks another one to close.
pub(crate) fn close(correlation_id: u64, client: &str, words: &[&str]) -> PeerMessage<'static> {
    let after = |word: &str| {
        let at = words.iter().position(|w| *w == word)?;
        words.get(at + 1)?.parse().ok()
    };
    let what = Older {
        client: client.into(),
        epoch: after("epoch").unwrap_or(0),
        number: after("number").unwrap_or(0),
        resumes: words.contains(&"resumes"),
    };
    Takeover::Close {
        correlation_id,
        what,
    }
    .into()
}

fn describe(message: &PeerMessage<'_>) -> Vec<String> {
    match message {
        PeerMessage::Routes(Message::Batch(Batch { routes, .. })) if !routes.is_empty() => {
            let routes: Vec<String> = routes.iter().map(describe_route).collect();
            vec![format!("routes {}", routes.join(" "))]
        }
        PeerMessage::Routes(Message::Batch(_) | Message::State(State { .. })) => Vec::new(),
        PeerMessage::Publications(publications) => {
            let messages = publications.messages.iter();
            messages.map(describe_forwarded).collect()
        }
        PeerMessage::Control(control) => vec![match control {
            Control::Await { shard, .. } => format!("when do all know inbox shard {shard}?"),
            Control::Known { .. } => "all know it".to_owned(),
            Control::Settled { copies } => format!("done with copies {copies:?}"),
            Control::Hold { publisher } => format!("hold publisher {}", place(*publisher)),
            Control::Release { publisher } => format!("release publisher {}", place(*publisher)),
        }],
        PeerMessage::Takeover(Takeover::Close { what, .. }) => {
            let Older {
                client,
                epoch,
                number,
                resumes,
            } = what;
            let resumes = if *resumes { ", resumes" } else { "" };
            vec![match epoch {
                0 => format!("close older of {client}, number {number}{resumes}"),
                _ => format!("close older of {client}, epoch {epoch}{resumes}"),
            }]
        }
        PeerMessage::Takeover(Takeover::Closed { unreleased, .. }) => vec![match &unreleased[..] {
            [] => "closed".to_owned(),
            ids => format!("closed, unreleased {ids:?}"),
        }],
        PeerMessage::Takeover(Takeover::Directory(message)) => describe_directory(message),
        PeerMessage::Store(_) | PeerMessage::Bans(_) => panic!("that is not broker-core's"),
    }
}

fn describe_route((key, value): &(Key, Option<Value>)) -> String {
    let sign = if value.is_some() { '+' } else { '-' };
    match key {
        Key::Filter(filter) | Key::Group(filter) => format!("{sign}{filter}"),
        Key::Lead(shard) => format!("{sign}shard:{shard}"),
        Key::Range(shard) => match value {
            Some(Value::Range { last, covers }) => {
                format!("{sign}shard:{shard}:up to {last}, covers more: {covers}")
            }
            _ => format!("{sign}shard:{shard}:range"),
        },
        Key::ShardFilter(shard, filter) => format!("{sign}shard:{shard}:{filter}"),
        Key::Member(shard, client, filter) => format!("{sign}shard:{shard}:{client}:{filter}"),
    }
}

fn describe_forwarded(forwarded: &Forwarded) -> String {
    let message = &forwarded.message;
    let whom = match &forwarded.whom {
        Whom::Sessions => "sessions".to_owned(),
        Whom::Anybody { .. } => "anybody".to_owned(),
        Whom::Group(group) => format!("{}, copy {}", group.filter, group.copy),
    };
    let payload = String::from_utf8_lossy(message.body.payload());
    format!(
        "{} {payload} {} for {whom}",
        message.body.topic(),
        message.qos.as_u8()
    )
}

fn describe_directory(message: &DirectoryMessage) -> Vec<String> {
    let each = |clients: &[Registration], what: &str| {
        let clients = clients.iter();
        clients.map(|of| format!("{} {what}", of.client)).collect()
    };
    match message {
        DirectoryMessage::Register(new) => {
            let new = new.iter();
            new.map(|(_, new)| format!("who has {}?", new.client))
                .collect()
        }
        DirectoryMessage::Registered(answers) => {
            let answers = answers.iter().map(|(_, answer)| match answer {
                None => "who knows?".to_owned(),
                Some(Registered { number: 0, .. }) => "it is refused".to_owned(),
                Some(Registered {
                    number, held_by, ..
                }) => match held_by {
                    Some(node) => format!("node {node} has it, number {number}"),
                    None => format!("nobody has it, number {number}"),
                },
            });
            answers.collect()
        }
        DirectoryMessage::Again(clients) => each(clients, "is here"),
        DirectoryMessage::Forget(clients) => each(clients, "is gone"),
    }
}

/// Where a node finds a publisher.
fn place(publisher: u64) -> String {
    match peer_protocol::place_of(publisher) {
        Some((index, slot)) => format!("{slot} of loop {index}"),
        None => "of nobody".to_owned(),
    }
}
