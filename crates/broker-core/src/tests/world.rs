//! A node with two event loops, its clients, and a clock that moves when a script says so.
//!
//! | line | what happens |
//! |---|---|
//! | `a connects [on N] [v3] [durable] [resume] [will TOPIC PAYLOAD [DELAY]] [inflight N]` | a connection on loop N, and CONNECT |
//! | `a PUBLISH t hello 1 #5` … | the client sends a packet (`packets.rs`) |
//! | `at once a PUBLISH t hello 1 #5` … | the same, which its loop handles with what the next line sends |
//! | `a opens a connection` | without CONNECT |
//! | `a is lost` | its connection breaks |
//! | `a stops reading`, `a reads` | its socket takes nothing, and everything again |
//! | `after 1000 ms` | time passes |
//! | `the process is stopped for 1000 ms` | time passes, and nobody acts |
//! | `a turn passes` | each deadline that has come is met once |
//! | `a joins N groups of TOPIC` | SUBSCRIBE #1 to `$share/0/TOPIC` … with QoS 0 |
//! | `a leaves N groups of TOPIC` | UNSUBSCRIBE #2 from them |
//! | `a node tells of a in FILTER` | a durable session is in a shared group, says the leader of its inbox shard |
//! | `a shard is unknown`, `all shards are known` | groups may have members that the node does not know, or not |
//! | `a node publishes TOPIC PAYLOAD but to FILTER …` | one that does not know the groups here: those are served |
//! | `the store waits`, `the store answers`, `the store fails` | what is asked of the store is answered later; now; refused |
//! | `the store is over its limit`, `the store has room` | publishers wait |
//! | `the store resumes` | the next claim finds a session |
//! | `the store refuses` | the next publication finds full queues |
//! | `the store ends a session` | the next message for a member of a group finds no inbox |
//! | `the inbox gives N TOPIC PAYLOAD QOS` | a queued message of the inbox that was opened last |
//! | `the inboxes have another leader` | it knows of no open inbox |
//! | `the will of a is due` | its session shard wants it published |
//! | `memory is scarce`, `memory is free` | |
//! | `nobody is let in`, `wills are published`, `everybody is disconnected` | the steps of a shutdown |
//! | `clients are sent to HOST` | the node is drained |
//!
//! In a cluster, this is node 1; beside what nodes do by themselves (`others.rs`):
//!
//! | line | what happens |
//! |---|---|
//! | `node 7 answers [unreleased 3 …]`, `node 7 answers that node 8 has it` | all that it was asked |
//! | `node 7 asks to close a [epoch N] [number N] [resumes]` | of a client that connects to it |
//! | `node 7 asks when shard 0 is known` | for a SUBSCRIBE there |
//! | `node 7 registers a` | a client connects there, and this node has the directory |
//! | `node 7 publishes t x 1 [to GROUP]` | a client of it does |
//! | `node 7 sends that again` | its last publication |
//! | `node 7 subscribes t` | a client of it does, or joins a group |
//! | `node 7 has settled N` | the copy of a message for a group |
//! | `node 7 holds p`, `node 7 releases p` | a subscriber there, a publisher here |
//! | `node 7 leads the sessions`, `node 7 leads the inboxes` | the shard of the store; `nobody` does: none is known |
//! | `node 7 stands still`, `node 7 goes on` | it reads and tells no routes |
//! | `node 7 is over its limit`, `node 7 has room` | too much is on its way to it |
//! | `node 7 does not take anything` | its connection is about to break |
//! | `node 7 is cut`, `node 7 is linked` | the connections with it |
//! | `node 7 is down`, `node 7 is up` | it is taken for dead |
//! | `node 7 restarts`, `node 7 is evicted` | |
//! | `the store takes it from node 7`, `the store takes it from anybody` | the next claim says who had the client |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::classes::{ClassLimits, DiskBytes};
use crate::{
    ClientLoop, Done, LoopMessage, Node, NodeOptions, PeerEvent, Peers, Place, Pressure,
    RoutesUnknown, Settings, TICK_MS,
};
use authentication_api::{Identity, Source, UserNow};
use authorization::Rules;
use mqtt_proto::{MessageBody, ProtocolVersion, QoS, SubscriptionOptions};
use mqtt_session::{ApplicationMessage, Policy, SubscriptionIdSet};
use net_api::{Arrival, Closed, ConnectionId, Kind, Next, Rates, Service, Transmit};
use peer_protocol::{
    Control, DirectoryMessage, Encode as _, Forwarded, PeerMessage, Registration, Takeover, Whom,
};
use route_exchange::{Key, NodeId, Times, Value};
use store_state::Limits;
use store_state::api::ShardRefs;
use store_state::api::{Event, Failure};
use store_state::inbox::{Item, Queued};
use store_state::session::{OfAnotherUser, StoredWill, TakenFrom};

use super::connections::{Connection, Memory};
use super::others::{self, OWN, Others, Sent, Wires};
use super::packets;
use super::process::{Process, START_MS};
use super::store::Route;

const LOOPS: usize = 2;

/// Another node of the cluster.
const OTHER_NODE: u64 = 7;

/// How often everybody may act before nobody has anything to do.
const ROUNDS: usize = 10_000;

pub(crate) struct World {
    node: Arc<Node<Process>>,
    loops: Vec<(ClientLoop<Process>, Memory)>,
    versions: BTreeMap<String, ProtocolVersion>,
    drops_seen: u64,
    others: Others,
    wires: Option<Wires>,
    /// When the node looks after the others next.
    tick_ms: u64,
    /// Numbers what the others ask.
    questions: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With other settings than those by default.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::among(&[], change)
    }

    /// Node 1 of a cluster with these others, which leads all shards.
    pub(crate) fn in_cluster(others: &[NodeId]) -> Self {
        Self::among(others, |_| {})
    }

    /// The same with other settings; without others, the node is alone.
    pub(crate) fn among(others: &[NodeId], change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        let options = NodeOptions {
            settings: Arc::new(settings),
            guard: Arc::new(guard::Guard::new(&config::Config::default().abuse)),
            listener_kinds: Box::new([Kind::Tcp]),
            loops: LOOPS,
            recent_drops: 16,
            seed: 1,
        };
        let process = Process::new();
        let store = process.store.clone();
        let mut node = Node::new(options, process);
        let wires = (!others.is_empty()).then(|| Wires::new(store));
        if let Some(wires) = &wires {
            node = node.among(Place {
                node: OWN,
                incarnation: 1,
                times: Times::default(),
                links: wires.clone(),
            });
        }
        node.inbox_shards_changed();
        let node = Arc::new(node);
        let loops = (0..LOOPS)
            .map(|index| {
                let clients = ClientLoop::new(Arc::clone(&node), index);
                (clients, Memory::new(index, LOOPS, START_MS))
            })
            .collect();
        let mut world = Self {
            node,
            loops,
            versions: BTreeMap::new(),
            drops_seen: 0,
            others: Others::default(),
            wires,
            tick_ms: u64::MAX,
            questions: 0,
        };
        if world.wires.is_some() {
            world.join(others);
        }
        world
    }

    fn join(&mut self, others: &[NodeId]) {
        let mut state = self.node.rim.store.state();
        state.has_peers = true;
        state.session_leader = Some(OWN);
        state.inbox_leader = Some(OWN);
        drop(state);
        self.tick_ms = START_MS + TICK_MS;
        for other in others {
            self.others.add(*other, Times::default(), START_MS);
        }
        self.tell(|peers, node| {
            peers.members(node, others);
            peers.lead(node, 0, 1);
            peers.complete(node, 0);
            for other in others {
                peers.connected(node, *other);
            }
        });
        self.beat();
        self.settle();
        // All are told all, and each is answered.
        self.tick();
        self.settle();
        self.effects();
        assert_eq!(self.node.routes.unsure(), (0, 0));
    }

    fn tell(&self, event: impl FnOnce(&Peers<Wires>, &Node<Process>)) {
        self.node.with_peers(event);
    }

    /// The others tell that they live.
    fn beat(&mut self) {
        let now_ms = self.loops[0].1.now_ms;
        for other in self.others.ids() {
            let sent = self.others.beat(other, now_ms);
            self.arrive(other, sent);
        }
    }

    fn tick(&mut self) {
        self.beat();
        self.tell(|peers, node| peers.tick(node));
    }

    /// What another node has sent, unless there is no connection.
    fn arrive(&mut self, from: NodeId, sent: Sent) {
        let wires = self.wires.as_ref().expect("the node is in a cluster");
        if wires.state().unreached.contains(&from) {
            return;
        }
        for message in sent {
            let version = *peer_protocol::VERSIONS.end();
            let bytes = message.encode(version).unwrap();
            let message = PeerMessage::decode(&bytes, version).unwrap();
            self.tell(|peers, node| peers.message(node, from, message, bytes.len()).unwrap());
        }
    }

    fn other(&mut self, id: NodeId, what: &[&str]) {
        let now_ms = self.loops[0].1.now_ms;
        let wires = self.wires.clone().expect("the node is in a cluster");
        self.questions += 1;
        let question = self.questions;
        let sent = match what {
            ["answers", "that", "node", node, "has", "it"] => {
                self.others.answer(id, &[], Some(node.parse().unwrap()))
            }
            ["answers"] => self.others.answer(id, &[], None),
            ["answers", "unreleased", ids @ ..] => {
                let ids: Vec<u16> = ids.iter().map(|id| id.parse().unwrap()).collect();
                self.others.answer(id, &ids, None)
            }
            ["asks", "to", "close", client, which @ ..] => {
                vec![others::close(question, client, which)]
            }
            ["asks", "when", "shard", "0", "is", "known"] => {
                let correlation_id = question;
                let shard = 0;
                vec![
                    Control::Await {
                        shard,
                        correlation_id,
                    }
                    .into(),
                ]
            }
            ["registers", client] => {
                let registration = Registration {
                    shard: 0,
                    client: (*client).into(),
                    number: now_ms * 1_000,
                    user: None,
                    of_another_user: OfAnotherUser::Refuse,
                };
                let new = vec![(question, registration)];
                vec![Takeover::Directory(DirectoryMessage::Register(new)).into()]
            }
            ["publishes", topic, payload, qos, rest @ ..] => {
                let group = match rest {
                    ["to", group] => Some(*group),
                    _ => None,
                };
                let qos = quality(qos);
                self.others.publish(id, (topic, payload, qos), group)
            }
            ["sends", "that", "again"] => self.others.send_again(id),
            ["subscribes", filter] => self.others.subscribe(id, filter, now_ms),
            ["has", "settled", copy] => {
                let copies = vec![copy.parse().unwrap()];
                vec![Control::Settled { copies }.into()]
            }
            ["holds", client] => {
                let publisher = self.node.home_of(client).unwrap().found_by();
                vec![Control::Hold { publisher }.into()]
            }
            ["releases", client] => {
                let publisher = self.node.home_of(client).unwrap().found_by();
                vec![Control::Release { publisher }.into()]
            }
            ["leads", "the", "sessions"] => {
                self.node.rim.store.state().session_leader = Some(id);
                Vec::new()
            }
            ["leads", "the", "inboxes"] => {
                self.node.rim.store.state().inbox_leader = Some(id);
                self.tell(|peers, node| peers.resign(node, 0));
                self.others.lead(id, now_ms)
            }
            ["stands", "still"] => {
                self.others.stand_still(id);
                Vec::new()
            }
            ["goes", "on"] => self.others.go_on(id, now_ms),
            ["is", "over", "its", "limit"] => {
                wires.state().over_limit.insert(id);
                Vec::new()
            }
            ["has", "room"] => {
                wires.state().over_limit.remove(&id);
                Vec::new()
            }
            ["does", "not", "take", "anything"] => {
                wires.state().unreached.insert(id);
                Vec::new()
            }
            ["is", "cut"] => {
                wires.state().unreached.insert(id);
                self.tell(|peers, node| {
                    peers.disconnected(node, id);
                    peers.lost(node, id);
                });
                Vec::new()
            }
            ["is", "linked"] => {
                wires.state().unreached.remove(&id);
                self.others.connected(id);
                self.tell(|peers, node| {
                    peers.connected(node, id);
                    peers.heard_again(id);
                });
                self.others.beat(id, now_ms)
            }
            ["is", "down"] => {
                self.tell(|peers, node| peers.down(node, &[id]));
                Vec::new()
            }
            ["is", "up"] => {
                self.tell(|peers, node| peers.down(node, &[]));
                Vec::new()
            }
            ["restarts"] => {
                self.tell(|peers, node| peers.restarted(node, id));
                Vec::new()
            }
            ["is", "evicted"] => {
                self.others.remove(id);
                let left = self.others.ids();
                self.tell(|peers, node| peers.members(node, &left));
                Vec::new()
            }
            other => panic!("a node cannot {}", other.join(" ")),
        };
        self.arrive(id, sent);
    }

    /// What is on its way to other nodes arrives. Whether there was anything.
    fn carry(&mut self) -> bool {
        let Some(wires) = self.wires.clone() else {
            return false;
        };
        let now_ms = self.loops[0].1.now_ms;
        let sent = std::mem::take(&mut wires.state().sent);
        let is_busy = !sent.is_empty();
        for (to, bytes) in sent {
            let answers = self.others.receive(to, &bytes, now_ms);
            self.arrive(to, answers);
        }
        is_busy
    }

    /// What the broker does about a line of a script.
    pub(crate) fn play(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["the", "store", ref what @ ..] => self.store(what),
            ["node", id, ref what @ ..] => self.other(id.parse().unwrap(), what),
            ["nobody", "leads", "the", "sessions"] => {
                self.node.rim.store.state().session_leader = None;
            }
            ["the", "inbox", "gives", sequence, topic, payload, qos] => {
                self.inbox_gives(sequence.parse().unwrap(), topic, payload, qos);
            }
            ["the", "inboxes", "have", "another", "leader"] => self.reopen(),
            ["the", "will", "of", client, "is", "due"] => self.will_is_due(client),
            ["memory", "is", "scarce"] => self.node.set_pressure(Pressure::StopReading),
            ["memory", "is", "free"] => self.node.set_pressure(Pressure::None),
            ["nobody", "is", "let", "in"] => self.tell_all(LoopMessage::LetNobodyIn),
            ["wills", "are", "published"] => self.tell_all(LoopMessage::PublishWills),
            ["everybody", "is", "disconnected"] => self.tell_all(LoopMessage::Disconnect),
            ["clients", "are", "sent", "to", host] => {
                self.tell_all(|done| LoopMessage::SendAway {
                    why: crate::SendAway::Drain,
                    permits: Arc::new(AtomicUsize::new(1_000)),
                    elsewhere: Some(host.to_owned()),
                    done,
                });
            }
            ["the", "drain", "ends"] => self.tell_all(LoopMessage::EndDrain),
            ["nobody", "leads", "the", "inboxes"] => {
                self.node.rim.store.state().inbox_leader = None;
                self.tell(|peers, node| peers.resign(node, 0));
            }
            ["the", "process", "is", "stopped", "for", ms, "ms"] => {
                self.set_clock(self.loops[0].1.now_ms + ms.parse::<u64>().unwrap());
            }
            ["a", "turn", "passes"] => self.meet_deadlines(),
            ["a", "shard", "is", "unknown"] => self.know_all_but(&[0]),
            ["all", "shards", "are", "known"] => self.know_all_but(&[]),
            [
                "a",
                "node",
                "publishes",
                topic,
                payload,
                "but",
                "to",
                ref served @ ..,
            ] => {
                self.node_publishes(topic, payload, served);
            }
            [client, "joins", groups, "groups", "of", topic] => {
                self.join_groups(client, groups.parse().unwrap(), topic);
            }
            [client, "leaves", groups, "groups", "of", topic] => {
                self.leave_groups(client, groups.parse().unwrap(), topic);
            }
            ["a", "node", "tells", "of", client, "in", filter] => self.node_tells(client, filter),
            [
                client,
                "logs",
                "in",
                "as",
                "a",
                "user",
                "of",
                "the",
                "store",
            ] => {
                self.log_in(client);
            }
            ["the", "users", "of", "the", "store", ref what @ ..] => self.change_users(what),
            ["after", ms, "ms"] => return self.pass(ms.parse().unwrap()),
            [client, "connects", ref how @ ..] => self.connect(client, how),
            // Its loop handles it with what comes by the next line.
            ["at", "once", client, ref packet @ ..] => {
                self.send(client, packet);
                return Vec::new();
            }
            [client, "opens", "a", "connection"] => self.open(client, 0, Vec::new()),
            [client, "is", "lost"] => self.lose(client),
            [client, "stops", "reading"] => self.block(client, true),
            [client, "reads"] => self.block(client, false),
            [client, ref packet @ ..] => self.send(client, packet),
            [] => {}
        }
        self.settle();
        self.effects()
    }

    fn log_in(&mut self, client_id: &str) {
        for (clients, memory) in &mut self.loops {
            let mut keys = clients.clients.keys();
            if let Some(key) = keys.find(|key| clients.clients.client_id(*key) == client_id) {
                drop(keys);
                clients.logged_in(memory, key, None, user_of_the_store(None));
            }
        }
    }

    fn change_users(&mut self, what: &[&str]) {
        *self.node.rim.user_now.lock().unwrap() = match what {
            ["are", "gone"] => || UserNow::Gone,
            ["may", "not", "use", "secret"] => {
                || UserNow::Identity(Box::new(user_of_the_store(Some("deny all secret"))))
            }
            what => panic!("{what:?}"),
        };
        let settings = Arc::clone(&self.node.settings.read());
        self.tell_all(|done| LoopMessage::Reload(Arc::clone(&settings), done));
    }

    fn tell_all(&mut self, messages: impl Fn(Done) -> LoopMessage) {
        for (clients, memory) in &mut self.loops {
            clients.mail(memory, messages(Arc::new(())));
        }
    }

    fn store(&mut self, what: &[&str]) {
        let mut state = self.node.rim.store.state();
        match what {
            ["waits"] => state.waits = true,
            ["answers"] => {
                state.waits = false;
                state.answer_all(None);
            }
            ["answers", "so", "far"] => state.answer_all(None),
            ["takes", "the", "node", "for", "dead"] => state.answers.push((0, Event::Fenced)),
            ["fails"] => {
                state.waits = false;
                state.answer_all(Some(Failure::Stopped));
            }
            ["is", "over", "its", "limit"] => state.is_over_limit = true,
            ["has", "room"] => state.is_over_limit = false,
            ["resumes"] => state.resumes = true,
            ["refuses"] => state.refuses = true,
            ["ends", "a", "session"] => state.has_ended = true,
            ["knows", "a", "later", "connection"] => state.knows_later = true,
            ["takes", "it", "from", "anybody"] => state.taken_from = Some(TakenFrom::Unknown),
            ["takes", "it", "from", "node", node, rest @ ..] => {
                let node = node.parse().unwrap();
                let will = match rest {
                    ["with", "will", epoch] => epoch.parse().unwrap(),
                    _ => 0,
                };
                state.taken_from = Some(TakenFrom::Node { node, will });
            }
            other => panic!("the store cannot {}", other.join(" ")),
        }
    }

    fn inbox_gives(&mut self, sequence: u64, topic: &str, payload: &str, qos: &str) {
        let item = Item {
            message: message(topic, payload),
            qos: quality(qos),
            retain: false,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        };
        let mut state = self.node.rim.store.state();
        let (to, home, epoch) = state.reader.expect("an inbox is open");
        let page = Event::Page {
            home,
            epoch,
            from: sequence,
            items: vec![(sequence, Queued::Message(item))],
        };
        state.answers.push((to, page));
    }

    fn reopen(&mut self) {
        let reopen = (0..LOOPS).map(|index| (index, Event::Reopen { shard: 0 }));
        self.node.rim.store.state().answers.extend(reopen);
    }

    /// The inboxes that were opened since this was last called.
    pub(crate) fn opened(&self) -> Vec<u64> {
        std::mem::take(&mut self.node.rim.store.state().opened)
    }

    fn will_is_due(&mut self, client: &str) {
        let fire = Event::Fire {
            client: client.into(),
            epoch: 1,
            will: StoredWill {
                message: message(&format!("will/{client}"), "gone"),
                message_expiry: None,
                delay: 0,
            },
        };
        self.node.rim.store.state().answers.push((0, fire));
    }

    fn connect(&mut self, client: &str, words: &[&str]) {
        let (on, words) = match words {
            ["on", number, rest @ ..] => (number.parse().unwrap(), rest),
            rest => (0, rest),
        };
        let (version, bytes) = packets::connect(client, words);
        self.versions.insert(client.to_owned(), version);
        self.open(client, on, bytes);
    }

    fn open(&mut self, client: &str, on: usize, unread: Vec<u8>) {
        self.versions
            .entry(client.to_owned())
            .or_insert(ProtocolVersion::V5);
        let (clients, memory) = &mut self.loops[on];
        let id = memory.connections.insert(Connection {
            client: client.to_owned(),
            unread,
            ..Connection::default()
        });
        let peer = net_api::Connections::peer(memory, id).unwrap();
        clients.arrived(memory, id, peer, Arrival::Accepted);
    }

    /// The latest connection of a client, and its loop.
    fn connection_of(&self, client: &str) -> (usize, ConnectionId) {
        let mut found = None;
        for (index, (_, memory)) in self.loops.iter().enumerate() {
            for id in memory.connections.keys() {
                let c = memory.connections.get(id).unwrap();
                if c.client == client && !c.is_closing {
                    found = Some((index, id));
                }
            }
        }
        found.unwrap_or_else(|| panic!("{client} has no connection"))
    }

    fn send(&mut self, client: &str, words: &[&str]) {
        let (index, id) = self.connection_of(client);
        let bytes = packets::packet(self.versions[client], words);
        let connection = self.loops[index].1.connections.get_mut(id).unwrap();
        connection.unread.extend_from_slice(&bytes);
    }

    fn lose(&mut self, client: &str) {
        let (index, id) = self.connection_of(client);
        let (clients, memory) = &mut self.loops[index];
        clients.closed(memory, id, Closed::ByPeer);
        memory.connections.remove(id);
    }

    fn block(&mut self, client: &str, is_blocked: bool) {
        let (index, id) = self.connection_of(client);
        let connection = self.loops[index].1.connections.get_mut(id).unwrap();
        connection.is_blocked = is_blocked;
        connection.is_touched = true;
    }

    fn pass(&mut self, ms: u64) -> Vec<String> {
        let until = self.loops[0].1.now_ms + ms;
        for _ in 0..ROUNDS {
            let next = self.loops.iter().filter_map(|(_, memory)| {
                let (at, _) = memory.timers.keys().next()?;
                Some(*at)
            });
            let next = next.chain([self.tick_ms]).min();
            let now = next.filter(|at| *at <= until).unwrap_or(until);
            self.set_clock(now.max(self.loops[0].1.now_ms));
            for (clients, memory) in &mut self.loops {
                while let Some(due) = memory.timers.first_entry()
                    && due.key().0 <= now
                {
                    let timer = due.remove();
                    clients.timer(memory, timer);
                }
            }
            self.settle();
            if now >= self.tick_ms {
                self.tick_ms += TICK_MS;
                self.tick();
                self.settle();
            }
            if now == until {
                return self.effects();
            }
        }
        panic!("time stands still");
    }

    fn meet_deadlines(&mut self) {
        for (clients, memory) in &mut self.loops {
            let later = memory.timers.split_off(&(memory.now_ms + 1, 0));
            let due = std::mem::replace(&mut memory.timers, later);
            for timer in due.into_values() {
                clients.timer(memory, timer);
            }
        }
    }

    fn know_all_but(&mut self, shards: &[u16]) {
        let unsure = RoutesUnknown {
            shards: shards.to_vec(),
            ..RoutesUnknown::default()
        };
        let known = store_state::api::Store::inbox_shards(self.node.store());
        self.node.routes.import(OTHER_NODE, &[], unsure, &known);
    }

    fn node_publishes(&mut self, topic: &str, payload: &str, served: &[&str]) {
        let forwarded = Forwarded {
            message: message(topic, payload),
            publisher: 0,
            whom: Whom::Anybody {
                served: served.iter().map(|filter| (*filter).into()).collect(),
            },
            origin: None,
        };
        let (clients, memory) = &mut self.loops[0];
        let publications = PeerEvent::Publications {
            from: OTHER_NODE,
            messages: vec![forwarded],
            bytes: 0,
        };
        clients.mail(memory, publications.into());
    }

    fn node_tells(&mut self, client: &str, filter: &str) {
        let member = Value::Member {
            options: SubscriptionOptions::default().to_byte(),
            id: 0,
        };
        let change = (Key::Member(0, client.into(), filter.into()), Some(member));
        let routes = &self.node.routes;
        routes.import(
            OTHER_NODE,
            &[change],
            RoutesUnknown::default(),
            &ShardRefs::default(),
        );
    }

    fn leave_groups(&mut self, client: &str, groups: usize, topic: &str) {
        let filters = groups_of(groups, topic);
        let filters = filters.iter().map(String::as_str);
        let words: Vec<&str> = ["UNSUBSCRIBE", "#2"].into_iter().chain(filters).collect();
        self.send(client, &words);
    }

    fn join_groups(&mut self, client: &str, groups: usize, topic: &str) {
        let filters = groups_of(groups, topic);
        let subscriptions = filters.iter().flat_map(|filter| [filter.as_str(), "0"]);
        let words: Vec<&str> = ["SUBSCRIBE", "#1"]
            .into_iter()
            .chain(subscriptions)
            .collect();
        self.send(client, &words);
    }

    fn set_clock(&mut self, now_ms: u64) {
        self.node.rim.now_ms.store(now_ms, Ordering::Relaxed);
        for (_, memory) in &mut self.loops {
            memory.now_ms = now_ms;
        }
    }

    /// Everybody acts until nobody has anything to do.
    fn settle(&mut self) {
        for _ in 0..ROUNDS {
            let mut is_busy = self.carry();
            self.route();
            let answers = std::mem::take(&mut self.node.rim.store.state().answers);
            let mut messages: Vec<(usize, LoopMessage)> = answers
                .into_iter()
                .map(|(to, event)| (to, LoopMessage::Store(vec![event])))
                .collect();
            messages.append(&mut self.node.rim.messages.lock().unwrap());
            for (_, memory) in &mut self.loops {
                memory.turn += 1;
                memory.append_messages(&mut messages);
            }
            for (to, message) in messages {
                is_busy = true;
                let (clients, memory) = &mut self.loops[to];
                clients.mail(memory, message);
            }
            for index in 0..self.loops.len() {
                is_busy |= self.read(index);
                is_busy |= self.transmit(index);
            }
            is_busy |= !self.node.rim.store.state().answers.is_empty();
            if !is_busy {
                return;
            }
        }
        panic!("the broker does not come to rest");
    }

    /// The leader of the inbox shard tells the node of its routes.
    fn route(&mut self) {
        let routes = std::mem::take(&mut self.node.rim.store.state().routes);
        for Route {
            client,
            filter,
            is_subscribed,
            is_detached,
        } in routes
        {
            if filter.starts_with("$share/") {
                let options = SubscriptionOptions {
                    qos: QoS::AtLeastOnce,
                    ..SubscriptionOptions::default()
                };
                let subscription = is_subscribed.then_some((options, 0));
                self.node
                    .routes
                    .set_member(0, &client, &filter, subscription);
            } else {
                self.node
                    .routes
                    .set_shard(0, &filter, is_subscribed, is_detached);
            }
        }
    }

    fn read(&mut self, index: usize) -> bool {
        let mut is_busy = false;
        let ids: Vec<_> = self.loops[index].1.connections.keys().collect();
        for id in ids {
            let (clients, memory) = &mut self.loops[index];
            let Some(c) = memory.connections.get_mut(id) else {
                continue;
            };
            if c.is_paused || c.is_closing || c.unread.is_empty() {
                continue;
            }
            let bytes = std::mem::take(&mut c.unread);
            let received = clients.received(memory, id, &bytes);
            // A packet that is worked off in parts is consumed with the last one.
            is_busy |= received.consumed > 0 || matches!(received.next, Next::Yield);
            let Some(c) = memory.connections.get_mut(id) else {
                continue;
            };
            c.unread
                .splice(0..0, bytes[received.consumed..].iter().copied());
            match received.next {
                Next::Read | Next::Yield => {}
                Next::Pause => c.is_paused = true,
                Next::Close => net_api::Connections::close(memory, id),
                Next::HandOver(to) => {
                    is_busy = true;
                    self.hand_over(index, id, to);
                }
            }
        }
        is_busy
    }

    fn hand_over(&mut self, from: usize, id: ConnectionId, to: usize) {
        let memory = &mut self.loops[from].1;
        let mut connection = memory.connections.remove(id).unwrap();
        let messages = memory.accompanying.take();
        connection.tag = 0;
        let (clients, memory) = &mut self.loops[to];
        let id = memory.connections.insert(connection);
        let peer = net_api::Connections::peer(memory, id).unwrap();
        clients.arrived(memory, id, peer, Arrival::HandedOver);
        if let Some(messages) = messages {
            clients.accompanied(memory, id, messages);
        }
    }

    fn transmit(&mut self, index: usize) -> bool {
        let mut is_busy = false;
        let ids: Vec<_> = self.loops[index].1.connections.keys().collect();
        for id in ids {
            let (clients, memory) = &mut self.loops[index];
            let Some(c) = memory.connections.get_mut(id) else {
                continue;
            };
            if !c.is_touched || c.is_blocked {
                continue;
            }
            c.is_touched = false;
            is_busy = true;
            let mut out = Vec::new();
            let next = clients.transmit(memory, id, &mut out, 64 * 1024);
            if let Some(c) = memory.connections.get_mut(id) {
                c.sent.extend_from_slice(&out);
                c.is_touched |= next == Transmit::More;
            }
            if next == Transmit::Close {
                net_api::Connections::close(memory, id);
            }
        }
        is_busy
    }

    /// What the store was asked, and what clients were sent, since this was last called.
    fn effects(&mut self) -> Vec<String> {
        let mut effects = std::mem::take(&mut self.node.rim.store.state().log);
        let mut by_client: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, memory) in &mut self.loops {
            for closed in std::mem::take(&mut memory.closed) {
                let lines = by_client.entry(closed.client.clone()).or_default();
                let version = self.versions[&closed.client];
                for packet in packets::describe(version, &closed.sent) {
                    lines.push(format!("{} {packet}", closed.client));
                }
                lines.push(format!("{} is closed", closed.client));
            }
            let ids: Vec<_> = memory.connections.keys().collect();
            for id in ids {
                let c = memory.connections.get_mut(id).unwrap();
                let sent = std::mem::take(&mut c.sent);
                for packet in packets::describe(self.versions[&c.client], &sent) {
                    let lines = by_client.entry(c.client.clone()).or_default();
                    lines.push(format!("{} {packet}", c.client));
                }
            }
        }
        effects.extend(by_client.into_values().flatten());
        let total = self
            .node
            .drops
            .iter()
            .map(|drops| drops.total())
            .sum::<u64>();
        let new = (total - self.drops_seen) as usize;
        self.drops_seen = total;
        let dropped = crate::Drops::recent(&self.node.drops, new, |_| true);
        let lines = dropped.iter().rev();
        effects.extend(lines.map(|drop| format!("dropped: {} {}", drop.topic, drop.reason)));
        counted(&effects)
    }
}

fn quality(qos: &str) -> QoS {
    match qos {
        "0" => QoS::AtMostOnce,
        "1" => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    }
}

/// What SUBSCRIBE names so many shared groups by.
fn groups_of(groups: usize, topic: &str) -> Vec<String> {
    (0..groups)
        .map(|number| format!("$share/{number}/{topic}"))
        .collect()
}

/// Many equal lines behind each other as one.
fn counted(lines: &[String]) -> Vec<String> {
    let runs = lines.chunk_by(|a, b| a == b);
    runs.flat_map(|run| match run {
        [line, ..] if run.len() >= packets::MANY => vec![format!("{line}, {} times", run.len())],
        _ => run.to_vec(),
    })
    .collect()
}

fn message(topic: &str, payload: &str) -> Arc<ApplicationMessage> {
    Arc::new(ApplicationMessage {
        body: MessageBody::new(topic, payload.as_bytes()),
        qos: QoS::ExactlyOnce,
        retain: false,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    })
}

fn user_of_the_store(rule: Option<&str>) -> Identity {
    let rules = rule.map(|rule| Arc::new(Rules::from_lines([rule]).unwrap()));
    Identity {
        username: Some("ann".into()),
        rules,
        source: Source::Control {
            since: Default::default(),
        },
        ..Identity::default()
    }
}

pub(crate) fn settings() -> Settings {
    let policy = Policy::default();
    Settings {
        store_limits: Limits {
            queue: store_state::QueueLimits {
                messages: policy.queue_messages,
                bytes: policy.queue_bytes,
                full: policy.queue_full,
                is_closed: false,
            },
            qos0: policy.qos0_inbox,
            retained_messages: 1_000,
            retained_bytes: 1 << 20,
            classes: store_state::ClassLimits::NONE,
        },
        retention: Arc::default(),
        beyond_limit: Policy {
            queue_messages: u32::MAX,
            queue_bytes: u64::MAX,
            ..policy.clone()
        },
        limits: ClassLimits {
            policy,
            rates: Rates::default(),
            publishes_per_s: 0,
            subscription_bytes: 1 << 20,
            queue_disk_free: DiskBytes::default(),
        },
        classes: Vec::new(),
        allow_anonymous: Some(true),
        of_another_user: OfAnotherUser::Refuse,
        authorization: crate::Authorization::new(
            authorization::Effect::Allow,
            false,
            16,
            Rules::default(),
        ),
        maximum_connect_size: 65_536,
        connect_timeout_ms: 10_000,
        handshake_timeout_ms: 5_000,
        hold_publisher_ms: 5_000,
        hold_unearned_ms: 0,
        connections: 0,
        unheard_connections: 64,
        connections_per_s: 0,
        sessions: 1_000,
        node_subscription_bytes: 1 << 30,
        node_wildcard_patterns: 1_000,
        node_user_share: 25,
        sys_interval_ms: 0,
        recheck: None,
        memory_high_water: 0,
        memory_refuse: 0,
    }
}
