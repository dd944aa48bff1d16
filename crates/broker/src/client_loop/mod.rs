//! One event loop's clients: frames in, packets to sessions, what sessions ask for to the rest of the
//! broker, and messages from everywhere to sessions.
//!
//! Invariant: all that concerns one session happens in its loop, under that loop's lock, one thing at a
//! time. Other loops reach a session only by [`Mail`].
//!
//! `connect.rs`: from CONNECT to a session, and takeover. `publish.rs`: a message's way to its
//! receivers. `authorize.rs`: what clients may do. `rules.rs`: what they may not do any more. `subscribe.rs`:
//! subscriptions and retained messages. `deliveries.rs`: messages with many receivers. `parts.rs`: packets with
//! many filters. `share.rs`: what one client may have done in a turn. `lifecycle.rs`: the end of connections and
//! sessions. `login.rs`: who a client is. `expiry.rs`: logins that end. `guarded.rs`: who is
//! not let in, or not any more. `unheard.rs`: connections that have sent no CONNECT. `hold.rs`: full
//! queues that slow their publishers down. `forward.rs`: messages to and from other nodes. `takeover.rs`:
//! older connections of clients on other nodes. `registering.rs`: which node has a client. `drained.rs`:
//! clients that are sent to other nodes. `joining.rs`, `stored.rs` and `pending.rs`: sessions that the store
//! keeps, and what the loop asks of it. `linger.rs`: routes that outlive a connection. `legacies.rs`: what
//! sessions that have ended leave to shared groups.

mod authorize;
mod calls;
mod client_log;
mod connect;
mod deliveries;
mod drained;
mod expiry;
mod forward;
mod guarded;
mod hold;
mod joining;
mod legacies;
mod lifecycle;
mod linger;
mod login;
mod members;
mod once;
mod parts;
mod pending;
mod publish;
mod registering;
mod replay;
mod rules;
mod share;
mod stored;
mod subscribe;
mod takeover;
mod unheard;
mod wills;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use authentication::Verdict;
use foldhash::quality::RandomState;
use hashbrown::HashMap;
use mqtt_proto::{DecodeError, Packet, PacketType, QoS, ReasonCode, peek_frame};
use mqtt_session::{
    Action, ApplicationMessage, Delivery, Dropped, PacketIdSet, Session, Timestamp,
};
use net::{
    Arena, Arrival, Closed, ConnectionId, Io, Key, Next, PeerAddress, RateBucket, Received,
    Service, Transmit,
};
use route_exchange::{NodeId, ShardNumber};
use store_state::inbox::Caller;
use transport::Spoken;

use crate::access::{Access, Decisions};
use crate::drops::{Drops, Reason};
use crate::excerpt::excerpt;
use crate::grace::UnderWay;
use crate::groups::Gauge;
use crate::key::SessionKey;
use crate::node::{Node, Pressure};
use crate::peers::frame::Forwarded;
use crate::peers::{Asker, Older, Registered};
use crate::routes::{MatchCache, MatchSet};
use crate::settings::Settings;
use crate::stats::BrokerStats;
use crate::sys::SysTopics;
use calls::Calls;
use deliveries::Deliveries;
use drained::Drained;
use expiry::Expiries;
use forward::Forwarding;
use hold::{Hold, HoldLine, Wait};
use joining::{Inbox, Joining, Stored};
use legacies::Legacies;
use linger::{Kept, Lingerers};
use login::{LoggedIn, Login};
use members::Members;
use parts::Parts;
use pending::{Answer, Pending};
use registering::Registering;
use replay::{Replay, Slices};
use rules::Unjudged;
use share::Share;
use takeover::Superseded;
use unheard::Unheard;
use wills::Unpublished;

/// Unsent control packets (acknowledgements, ping responses) of a client at which its connection is no
/// longer read: it sends requests, and does not read the answers.
const CONTROL_LIMIT: usize = 64 * 1024;

/// A session's deadline that is further away is looked at again after this time.
const TIMER_HORIZON_MS: u64 = 10 * 60 * 1000;

/// The longest client identifier, and the longest topic of a retained message, in bytes: names in the
/// store's tables are shorter than 64 KiB with what stands before and behind them.
const STORED_NAME: usize = 60_000;

/// How soon connections that wait for the store look again.
const STORE_RETRY_MS: u64 = 2;

/// How soon connections that wait for other nodes look again.
const PEERS_RETRY_MS: u64 = 2;

/// How often connections that wait for memory look again.
const PRESSURE_RETRY_MS: u64 = 100;

/// What loops, and other threads, send a loop.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A message for some of the targets of a match, all of this loop.
    Deliver {
        message: Arc<ApplicationMessage>,
        set: Arc<MatchSet>,
        range: Range<usize>,
        /// Of a RETAIN message.
        retaining: Option<UnderWay>,
    },
    /// A delivery for one session, chosen by a shared group.
    DeliverTo(SessionKey, Delivery),
    /// A queue of a subscriber is full: do not read this publisher / go on.
    Hold(SessionKey, Option<Box<HoldLine>>),
    Release(SessionKey),
    /// A subscriber of another node holds a publisher of this loop back; see [`SessionKey::found_by`].
    HoldFor(NodeId, u64),
    /// One less does.
    ReleaseFor(NodeId, u64),
    /// Whom this node and another hold back for each other may be unknown there.
    HoldsLost(NodeId),
    /// The chain of authenticators has judged the client of a connection.
    Verdict(ConnectionId, Verdict),
    /// Comes with a connection that another loop handed over: who its client is, and when its CONNECT came.
    Entering(Login),
    /// Events of the store.
    Store(Vec<store::Event>),
    /// Messages of clients of another node, and the length of their frame.
    FromPeer {
        from: NodeId,
        messages: Vec<Forwarded>,
        bytes: usize,
    },
    /// Messages for shared groups that a node that is gone may not have given to its members.
    Undelivered {
        gone: NodeId,
        copies: Vec<Forwarded>,
    },
    /// At the end of a turn: what is for other nodes is to be sent.
    FlushPeers,
    /// All live nodes know the routes that this question is about.
    RoutesKnown(u64),
    /// This node is cut off from most others.
    CutOff,
    /// Another node wants older connections of a client closed.
    CloseOlder(Asker, Older),
    /// The answer of a node to that, by the question's token: publications of QoS 2 that came on these connections
    /// and are not released. `None`: it is not waited for.
    ClosedElsewhere(u64, Option<(NodeId, PacketIdSet)>),
    /// Who else has clients that connect, by the questions' tokens.
    Registered(Vec<(u64, Registered)>),
    /// Others lead these session shards: they are to be told of the clients here.
    RegisterAgain(Arc<[ShardNumber]>),
    /// There are new bans: clients that they concern are to be disconnected.
    Bans,
    /// The configuration has been read again.
    Reload(Arc<Settings>, Done),
    /// The node is drained, or stops: nobody is let in any more, and for each permit one client is
    /// disconnected. `elsewhere`: host and port of another node's TCP listener.
    SendAway {
        permits: Arc<AtomicUsize>,
        elsewhere: Option<String>,
        done: Done,
    },
    /// Shutdown, first step: nobody is let in any more.
    LetNobodyIn(Done),
    /// Shutdown, second step: the wills of all connected clients are due.
    PublishWills(Done),
    /// Shutdown, third step: all connections are closed.
    Disconnect(Done),
}

/// Tells that a step is done by being dropped.
pub(crate) type Done = std::sync::mpsc::SyncSender<()>;

/// A session in its loop.
#[derive(Debug)]
struct Client {
    session: Session,
    connection: Option<ConnectionId>,
    /// When its CONNECT came to this node, in µs of the node's clock.
    came_us: u64,
    /// The deadline that the loop is armed for; 0: none.
    armed_ms: u64,
    publish_rate: RateBucket,
    /// Shows shared groups the session's room; only with shared subscriptions.
    gauge: Option<Arc<Gauge>>,
    /// What rules know of it. `None`: it is anonymous, and nobody has asked yet.
    access: Option<Box<Access>>,
    /// Retained messages still to be sent.
    replay: Option<Box<Replay>>,
    hold: Option<Box<Hold>>,
    /// Messages that it has acknowledged, since it last held publishers back in vain.
    acknowledged: u32,
    /// What the store knows it by.
    stored: Option<Box<Stored>>,
    /// What the client has authenticated as; anonymous clients have none.
    login: Option<Box<LoggedIn>>,
    /// The CONNECT still waits for the store.
    joining: Option<Box<Joining>>,
    /// A SUBSCRIBE or UNSUBSCRIBE waits for the store or for other nodes: nothing more is read meanwhile.
    waits: bool,
    /// Changes of its subscriptions that the inbox has not answered, or has not made as far as is known: it may
    /// have other subscriptions than the session.
    unanswered: u32,
    /// A SUBSCRIBE or UNSUBSCRIBE that is not answered.
    parts: Option<Box<Parts>>,
    /// It publishes to a node to which too much is on its way.
    crowds: bool,
    /// It is among the loop's sessions; the others are counted by the store.
    counted: bool,
    /// Routes that outlive connections.
    kept: Option<Box<Kept>>,
    /// Of the connection, among those of the cluster; 0: it is not registered.
    number: u64,
    /// The rules by which what is queued for it was judged, as [`ClientLoop::rules`] counts them.
    judged: u32,
}

impl Client {
    /// Whether filters of its last packet are in no part yet: the packet is to be offered again.
    fn has_parts_left(&self) -> bool {
        let parts = self.parts.as_ref();
        parts.is_some_and(|parts| parts.bytes_left > 0)
    }

    /// A durable session's inbox.
    fn inbox(&mut self) -> Option<&mut Inbox> {
        self.stored.as_mut()?.inbox.as_mut()
    }
}

/// What a loop's timer is about. The kind stands in bits 56 to 62 of the timer's number.
enum Timer {
    /// A session's keep alive, will delay or expiry.
    Session(Key),
    /// The time by which a connection must have sent its CONNECT.
    Connect(ConnectionId),
    /// A connection over its publish rate may be read again.
    Resume(ConnectionId),
    /// A subscriber may hold back publishers no longer.
    Hold(Key),
    /// A moment has passed for which a publisher was held back for durable sessions.
    Pressed(Key),
    /// See whether there is memory again.
    Pressure,
    /// See whether the store can take more again.
    Store,
    /// See whether other nodes can take more again.
    Peers,
    /// See whether there are fewer logins under way.
    Login,
    /// Logins may have expired.
    LoginExpiry,
    /// Go on looking for banned clients.
    Bans,
    /// Go on judging what clients have, after rules have changed.
    Rules,
    /// Try again to hand over what ended sessions have left.
    Legacies,
    /// Ask again for wills that could not be published.
    Wills,
    /// Connections that other nodes take over may have been read.
    Superseded,
    /// Publish `$SYS`.
    Sys,
    /// Go on looking for retained messages.
    Replay(Key),
    /// Go on with deliveries that were put off.
    Deliveries,
    /// Routes may have stayed long enough that a connection left.
    Linger(Key),
    /// A CONNECT has waited long enough for other nodes, by what is pending.
    TakeOver(Key),
    /// See whether the members of all shared groups are known.
    Members,
    /// A client that has sent DISCONNECT has waited long enough for the record of it, by what is pending.
    Leaving(Key),
}

const TIMER_KIND: u32 = 56;

impl Timer {
    fn to_bits(&self) -> u64 {
        let (kind, bits) = match self {
            Self::Session(key) => (1, key.to_bits()),
            Self::Connect(id) => (2, id.to_bits()),
            Self::Resume(id) => (3, id.to_bits()),
            Self::Hold(key) => (4, key.to_bits()),
            Self::Pressure => (5, 0),
            Self::Sys => (6, 0),
            Self::Store => (7, 0),
            Self::Pressed(key) => (8, key.to_bits()),
            Self::Login => (9, 0),
            Self::LoginExpiry => (10, 0),
            Self::Bans => (11, 0),
            Self::Peers => (12, 0),
            Self::Replay(key) => (13, key.to_bits()),
            Self::Legacies => (14, 0),
            Self::Deliveries => (15, 0),
            Self::TakeOver(id) => (16, id.to_bits()),
            Self::Rules => (17, 0),
            Self::Members => (18, 0),
            Self::Leaving(id) => (19, id.to_bits()),
            Self::Linger(key) => (20, key.to_bits()),
            Self::Wills => (21, 0),
            Self::Superseded => (22, 0),
        };
        kind << TIMER_KIND | bits
    }

    fn from_bits(bits: u64) -> Option<Self> {
        let key = Key::from_bits(bits & ((1 << TIMER_KIND) - 1));
        Some(match bits >> TIMER_KIND {
            1 => Self::Session(key),
            2 => Self::Connect(key),
            3 => Self::Resume(key),
            4 => Self::Hold(key),
            5 => Self::Pressure,
            6 => Self::Sys,
            7 => Self::Store,
            8 => Self::Pressed(key),
            9 => Self::Login,
            10 => Self::LoginExpiry,
            11 => Self::Bans,
            12 => Self::Peers,
            13 => Self::Replay(key),
            14 => Self::Legacies,
            15 => Self::Deliveries,
            16 => Self::TakeOver(key),
            17 => Self::Rules,
            18 => Self::Members,
            19 => Self::Leaving(key),
            20 => Self::Linger(key),
            21 => Self::Wills,
            22 => Self::Superseded,
            _ => return None,
        })
    }
}

/// Marks the tag of a connection that has a session; the rest of the tag is the session's key.
const HAS_SESSION: u64 = 1 << 56;

/// The tag of a connection that is not heard any more: refused, or let go by its session.
const DONE: u64 = 1 << 57;

/// The clients of one loop.
pub(crate) struct ClientLoop {
    node: Arc<Node>,
    settings: Arc<Settings>,
    index: usize,
    clients: Arena<Client>,
    cache: MatchCache,
    decisions: Decisions,
    /// How often the rules have been read.
    rules: u32,
    /// Clients to be judged anew since then.
    unjudged: Unjudged,
    stats: Arc<BrokerStats>,
    drops: Arc<Drops>,
    /// Connections that are not read because memory is scarce.
    waiting_for_memory: Vec<ConnectionId>,
    /// Connections whose clients are about to be let in or not.
    logins: HashMap<ConnectionId, Login, RandomState>,
    /// Clients whose logins end at a time.
    expiries: Expiries,
    /// Connections whose CONNECT is not read because there are too many logins under way.
    waiting_for_login: VecDeque<ConnectionId>,
    /// Connections that are not read because the store has enough to do.
    waiting_for_store: Vec<ConnectionId>,
    /// What goes to other nodes.
    forwarding: Forwarding,
    /// What its receivers get in later turns.
    deliveries: Deliveries,
    members: Members,
    calls: Calls,
    /// Publishers that subscribers of other nodes hold back, and how many of these.
    held_for: HashMap<(NodeId, Key), u32, RandomState>,
    /// How many entries there are when it is looked through for sessions that have ended.
    held_for_most: usize,
    /// Sessions without a connection whose routes stay.
    lingerers: Lingerers,
    /// What the directory of clients is to be told.
    registering: Registering,
    /// What the store was asked.
    pending: Arena<Pending>,
    /// What sessions may look at of retained messages.
    slices: Slices,
    /// Questions for pages of retained messages so far.
    questions: u64,
    /// What ended sessions have left.
    legacies: Legacies,
    unpublished: Unpublished,
    superseded: Vec<Superseded>,
    /// Connections that have sent no CONNECT yet.
    unheard: Unheard,
    /// Clients that are still to be looked at since the last ban was added.
    unchecked: Vec<Key>,
    /// What sessions dropped in one call; empty between calls.
    dropped: Vec<Dropped>,
    /// Of the client whose packets are handled.
    share: Share,
    /// The broker shuts down: nobody is let in.
    closing: bool,
    /// Clients are sent to other nodes.
    drained: Option<Drained>,
    /// For identifiers that the broker assigns.
    identifiers: RandomState,
    sys: SysTopics,
    sys_armed: bool,
}

type LoopIo = Io<Mail>;

impl ClientLoop {
    pub(crate) fn new(node: Arc<Node>, index: usize) -> Self {
        let settings = Arc::clone(&node.settings.read());
        let calls = Calls::new(Caller {
            node: node.store().node(),
            loop_index: index as u16,
            incarnation: node.store().incarnation(),
        });
        let own = |all: &[Arc<BrokerStats>]| all.get(index).cloned().unwrap_or_default();
        Self {
            settings,
            index,
            clients: Arena::default(),
            cache: MatchCache::default(),
            decisions: Decisions::default(),
            rules: 0,
            unjudged: Unjudged::default(),
            stats: own(&node.stats),
            drops: node
                .drops
                .get(index)
                .cloned()
                .unwrap_or_else(|| Drops::new(0)),
            waiting_for_memory: Vec::new(),
            logins: HashMap::default(),
            expiries: Expiries::default(),
            waiting_for_login: VecDeque::new(),
            waiting_for_store: Vec::new(),
            forwarding: Forwarding::default(),
            deliveries: Deliveries::default(),
            members: Members::default(),
            calls,
            held_for: HashMap::default(),
            held_for_most: 0,
            lingerers: Lingerers::default(),
            registering: Registering::default(),
            pending: Arena::default(),
            slices: Slices::default(),
            questions: 0,
            legacies: Legacies::default(),
            unpublished: Unpublished::default(),
            superseded: Vec::new(),
            unheard: Unheard::default(),
            unchecked: Vec::new(),
            dropped: Vec::new(),
            share: Share::default(),
            closing: false,
            drained: None,
            identifiers: RandomState::default(),
            sys: SysTopics::default(),
            sys_armed: false,
            node,
        }
    }

    /// Takes note of work for the client whose packets are handled.
    fn charge(&mut self, io: &mut LoopIo, units: u32) {
        self.share.charge(units);
        io.charge(units);
    }

    fn session_key(&self, key: Key) -> SessionKey {
        SessionKey::new(self.index, key)
    }

    /// Now, in the time by which messages expire: the cluster's.
    fn expiry_now(&self, io: &LoopIo) -> Timestamp {
        Timestamp(self.node.cluster_time.at_ms(io.now_ms()))
    }

    /// The session of a connection.
    fn key_of(io: &LoopIo, connection: ConnectionId) -> Option<Key> {
        let tag = io.tag(connection)?;
        (tag & HAS_SESSION != 0).then(|| Key::from_bits(tag & !HAS_SESSION))
    }

    /// One frame of a client that has a session. `Err`: what the connection is closed for.
    fn handle_frame(&mut self, io: &mut LoopIo, key: Key, frame: &[u8]) -> Result<Next, Violated> {
        let now = Timestamp(io.now_ms());
        let session_key = self.session_key(key);
        let Some(client) = self.clients.get_mut(key) else {
            return Ok(Next::Close);
        };
        let packet =
            Packet::decode(frame, client.session.version()).map_err(Violated::by_decoding)?;
        self.stats.packets_in.add(1);
        let action = client
            .session
            .handle_packet(&packet, session_key.to_bits(), &self.settings.policy, now)
            .map_err(|v| Violated {
                reason: v.reason_code(),
                statement: v.statement(),
                what: v.to_string(),
            })?;
        if let Packet::Publish(publish) = &packet {
            if let Some(count) = self.stats.publishes_in.get(publish.qos as usize) {
                count.add(1);
            }
            self.stats
                .publish_bytes_in
                .add(publish.payload.len() as u64);
        }
        let mut next = Next::Read;
        match action {
            Action::None => {}
            Action::Publish {
                mut message,
                packet_id,
            } => {
                let time = &self.node.cluster_time;
                message.expires_at = message.expires_at.map(|at| Timestamp(time.at_ms(at.0)));
                let done = self.publish_if_allowed(io, message, key, packet_id);
                if let (Some(packet_id), Some(reason), Some(client)) =
                    (packet_id, done, self.clients.get_mut(key))
                {
                    client.session.complete_publish(packet_id, reason);
                }
            }
            Action::Subscribe(subscribe) => next = self.subscribe(io, key, &subscribe),
            Action::Unsubscribe(unsubscribe) => next = self.unsubscribe(io, key, &unsubscribe),
            Action::Receipt { sequence } => self.record_receipt(key, sequence),
            Action::Release { packet_id } => self.record_release(key, packet_id),
            Action::Acknowledged => {
                if let Some(client) = self.clients.get_mut(key) {
                    client.acknowledged = client.acknowledged.saturating_add(1);
                }
                self.show_room(key);
                self.relax_hold(io, key);
            }
            Action::Refused(dropped) => self.dropped.push(dropped),
            Action::Authenticate => {
                if let Packet::Auth(auth) = &packet {
                    self.authenticate_again(io, key, auth)?;
                }
            }
            Action::Disconnect => {
                if let Packet::Disconnect(disconnect) = &packet {
                    self.log_disconnected(io, key, disconnect.reason);
                }
                return Ok(self.leave(io, key));
            }
        }
        self.report_dropped(io, key);
        if let Some(client) = self.clients.get_mut(key)
            && let Some(connection) = client.connection
            && client.session.wants_transmit()
        {
            io.touch(connection);
        }
        Ok(next)
    }

    /// The frames among bytes that came.
    fn frames(&mut self, io: &mut LoopIo, connection: ConnectionId, bytes: &[u8]) -> Received {
        let mut consumed = 0;
        self.share = Share::default();
        loop {
            if io.tag(connection) == Some(DONE) {
                // Refused or kicked: whatever else came with the same bytes is not heard.
                return Received {
                    consumed: bytes.len(),
                    next: Next::Read,
                };
            }
            let rest = bytes.get(consumed..).unwrap_or_default();
            let key = Self::key_of(io, connection);
            if key.is_none()
                && let Some(spoken) = rest.first().copied().and_then(Spoken::by)
                && spoken != Spoken::Mqtt
            {
                self.log_other_protocol(io, connection, spoken);
                Self::dismiss(io, connection, Vec::new());
                return Received {
                    consumed: bytes.len(),
                    next: Next::Read,
                };
            }
            let client = key.and_then(|key| self.clients.get(key));
            if client.is_some_and(|client| client.waits || client.joining.is_some()) {
                return Received {
                    consumed,
                    next: Next::Pause,
                };
            }
            let goes_on = client.is_some_and(Client::has_parts_left);
            let version = client.map(|client| client.session.version());
            let limit = match version {
                Some(_) => self.settings.policy.maximum_packet_size,
                None => self.settings.maximum_connect_size,
            };
            let frame = match peek_frame(rest, version) {
                Ok(None) => {
                    return Received {
                        consumed,
                        next: Next::Read,
                    };
                }
                Ok(Some(frame)) => frame,
                Err(error) => {
                    self.close_violator(io, connection, &Violated::by_decoding(error));
                    return Received {
                        consumed: bytes.len(),
                        next: Next::Read,
                    };
                }
            };
            if frame.len() > limit as usize {
                // [MQTT-3.1.2-24] the limit that CONNACK announced; judged by what is announced, so
                // that nobody makes us wait for, or keep, what will be refused anyway
                let violated = Violated {
                    reason: ReasonCode::PacketTooLarge,
                    statement: Some("MQTT-3.2.2-15"),
                    what: format!(
                        "a packet of {} bytes is larger than the limit of {limit}",
                        frame.len()
                    ),
                };
                self.close_violator(io, connection, &violated);
                return Received {
                    consumed: bytes.len(),
                    next: Next::Read,
                };
            }
            let Some(whole) = rest.get(..frame.len()) else {
                return Received {
                    consumed,
                    next: Next::Read,
                };
            };
            let result = match key {
                None => {
                    io.charge(share::CONNECT);
                    let Some(next) = self.connect(io, connection, frame.packet_type, whole) else {
                        return Received {
                            consumed,
                            next: Next::Pause,
                        };
                    };
                    if let Next::HandOver(_) = next {
                        return Received { consumed, next };
                    }
                    Ok(next)
                }
                Some(key) if goes_on => {
                    Ok(self.go_on_with_parts(io, key, frame.packet_type, whole))
                }
                Some(key) => {
                    self.share.charge(share::cost_to_client(&frame));
                    io.charge(share::cost_to_loop(&frame));
                    match self.must_wait(io, connection, key, frame.packet_type, whole) {
                        Wait::No => {}
                        Wait::Kept => {
                            consumed += frame.len();
                            continue;
                        }
                        Wait::Pause => {
                            return Received {
                                consumed,
                                next: Next::Pause,
                            };
                        }
                    }
                    self.handle_frame(io, key, whole)
                }
            };
            let has_filters = matches!(
                frame.packet_type,
                PacketType::Subscribe | PacketType::Unsubscribe
            );
            if !(has_filters && key.is_some_and(|key| self.has_parts_left(key))) {
                consumed += frame.len();
            }
            match result {
                Ok(Next::Read) if self.share.is_spent() || io.has_done_enough() => {
                    return Received {
                        consumed,
                        next: Next::Yield,
                    };
                }
                Ok(Next::Read) => {}
                Ok(next) => return Received { consumed, next },
                Err(violated) => {
                    self.close_violator(io, connection, &violated);
                    return Received {
                        consumed: bytes.len(),
                        next: Next::Read,
                    };
                }
            }
        }
    }

    /// Whether the next frame must wait although it has come: the publisher is held back, over its
    /// rate, or memory is scarce; or the client does not read what it is answered.
    fn must_wait(
        &mut self,
        io: &mut LoopIo,
        connection: ConnectionId,
        key: Key,
        packet: PacketType,
        frame: &[u8],
    ) -> Wait {
        let Some(client) = self.clients.get_mut(key) else {
            return Wait::No;
        };
        if client.session.control_len() > CONTROL_LIMIT {
            // Transmitting, which becomes possible when the client reads, resumes the connection.
            io.touch(connection);
            return Wait::Pause;
        }
        if let Some(hold) = &mut client.hold
            && hold.is_held()
        {
            return hold.wait(packet, frame);
        }
        if packet != PacketType::Publish {
            return Wait::No;
        }
        if self.node.pressure() != Pressure::None {
            self.stats.pressure_pauses.add(1);
            if self.waiting_for_memory.is_empty() {
                io.arm(io.now_ms() + PRESSURE_RETRY_MS, Timer::Pressure.to_bits());
            }
            self.waiting_for_memory.push(connection);
            return Wait::Pause;
        }
        if self.node.store().is_crowded() {
            if self.waiting_for_store.is_empty() {
                io.arm(io.now_ms() + STORE_RETRY_MS, Timer::Store.to_bits());
            }
            self.stats.store_pauses.add(1);
            self.waiting_for_store.push(connection);
            return Wait::Pause;
        }
        if client.crowds {
            client.crowds = self.forwarding.wait(io, &self.node, connection);
            if client.crowds {
                self.stats.peer_pauses.add(1);
                return Wait::Pause;
            }
        }
        let rate = self.settings.publishes_per_s;
        if rate != 0 {
            if client.publish_rate.available(rate, io.now_ms()) == 0 {
                self.stats.throttled_publishes.add(1);
                io.arm(
                    client.publish_rate.resumes_at(io.now_ms()),
                    Timer::Resume(connection).to_bits(),
                );
                return Wait::Pause;
            }
            client.publish_rate.take(1, rate, io.now_ms());
        }
        Wait::No
    }

    /// Arms the loop for the session's next deadline, unless it is armed for an earlier time already.
    fn arm_deadline(&mut self, io: &mut LoopIo, key: Key) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if let Some(Timestamp(at)) = client.session.poll_deadline() {
            // Timers cannot be taken back. A distant one would outlive the reason for it by days.
            let at = at.min(io.now_ms() + TIMER_HORIZON_MS);
            if client.armed_ms != 0 && client.armed_ms <= at {
                return;
            }
            client.armed_ms = at;
            io.arm(at, Timer::Session(key).to_bits());
        }
    }

    /// Shows the session's shared groups how much it can take.
    fn show_room(&mut self, key: Key) {
        if let Some(client) = self.clients.get_mut(key)
            && let Some(gauge) = &client.gauge
        {
            let session = &client.session;
            let free = i64::from(session.window()) - session.in_flight() as i64;
            gauge.show(free - session.queue_len() as i64, session.is_online());
        }
    }

    /// Records what a session has dropped.
    fn report_dropped(&mut self, io: &LoopIo, key: Key) {
        if self.dropped.is_empty() {
            return;
        }
        let id = self
            .clients
            .get(key)
            .map_or("", |client| client.session.client_id());
        for dropped in self.dropped.drain(..) {
            record(&self.drops, io.now_ms(), id, &dropped);
        }
    }

    /// Sends a connection its last bytes, and hears no more of it.
    fn dismiss(io: &mut LoopIo, connection: ConnectionId, last: Vec<u8>) {
        io.set_tag(connection, DONE);
        io.send_last(connection, last);
    }

    /// Closes a connection for what its client did.
    fn close_violator(&mut self, io: &mut LoopIo, connection: ConnectionId, violated: &Violated) {
        self.stats.violations.add(1);
        let peer = io.peer(connection).map(tracing::field::display);
        let Some(key) = Self::key_of(io, connection) else {
            tracing::debug!(
                peer,
                reason = violated.what,
                statement = violated.statement,
                "closed before CONNECT"
            );
            Self::dismiss(io, connection, Vec::new());
            return;
        };
        if let Some(client) = self.clients.get(key)
            && let Some(left_out) = self.node.refusal_lines.take(io.now_ms())
        {
            tracing::info!(
                client_id = &*excerpt(client.session.client_id()),
                peer,
                reason = violated.what,
                statement = violated.statement,
                left_out,
                "a client broke the protocol and is disconnected"
            );
        }
        self.kick(io, key, violated.reason);
    }
}

/// What a connection is closed for.
struct Violated {
    reason: ReasonCode,
    statement: Option<&'static str>,
    what: String,
}

impl Violated {
    fn by_decoding(error: DecodeError) -> Self {
        Self {
            reason: error.reason_code(),
            statement: error.statement(),
            what: error.to_string(),
        }
    }
}

/// Whole packets, and how many of them are PUBLISH.
fn count_packets(mut bytes: &[u8]) -> (u64, u64) {
    let (mut packets, mut publishes) = (0, 0);
    while let Ok(Some(frame)) = peek_frame(bytes, None) {
        packets += 1;
        publishes += u64::from(frame.packet_type == PacketType::Publish);
        bytes = bytes.get(frame.len()..).unwrap_or_default();
    }
    (packets, publishes)
}

fn record(drops: &Drops, now_ms: u64, client_id: &str, dropped: &Dropped) {
    let Dropped { message, reason } = dropped;
    let length = message.body.payload().len();
    drops.record(
        now_ms,
        client_id,
        message.body.topic(),
        Reason::Session(*reason),
        message.qos,
        length,
    );
}

/// Records a message that was dropped on its way to nobody in particular.
fn record_drop(drops: &Drops, now_ms: u64, message: &ApplicationMessage, reason: Reason) {
    let (topic, length) = (message.body.topic(), message.body.payload().len());
    drops.record(now_ms, "", topic, reason, message.qos, length);
}

impl Service for ClientLoop {
    type Mail = Mail;

    fn accept_budget(&mut self, io: &mut LoopIo) -> usize {
        if self.closing {
            return 0;
        }
        let available = self
            .node
            .connection_rate
            .lock()
            .available(self.settings.connections_per_s, io.now_ms());
        usize::try_from(available).unwrap_or(usize::MAX)
    }

    fn admits(&mut self, io: &mut LoopIo, listener: u16, peer: PeerAddress) -> bool {
        let trusted = self.node.trusted_peers.get(usize::from(listener));
        let Some(Some(trusted)) = trusted else {
            return true;
        };
        let is_trusted = |ip| trusted.iter().any(|network| network.contains(ip));
        let admitted = peer.ip().is_some_and(is_trusted);
        if !admitted && let Some(left_out) = self.node.refusal_lines.take(io.now_ms()) {
            tracing::info!(%peer, left_out, "closed: only trusted peers may connect to this listener");
        }
        admitted
    }

    fn arrived(
        &mut self,
        io: &mut LoopIo,
        connection: ConnectionId,
        peer: PeerAddress,
        how: Arrival,
    ) {
        if how == Arrival::Accepted {
            if self.settings.connections_per_s != 0 {
                self.node.connection_rate.lock().take(
                    1,
                    self.settings.connections_per_s,
                    io.now_ms(),
                );
            }
            // Whom a proxy connects for is known when its header has come.
            let is_let_in = self.is_proxied(io, connection) || self.is_let_in(io, connection, peer);
            if self.closing || !is_let_in {
                io.close(connection);
                return;
            }
        }
        io.set_tag(connection, 0);
        self.await_connect(io, connection);
        io.arm(
            io.now_ms() + self.settings.connect_timeout_ms,
            Timer::Connect(connection).to_bits(),
        );
    }

    fn received(&mut self, io: &mut LoopIo, connection: ConnectionId, bytes: &[u8]) -> Received {
        let received = self.frames(io, connection, bytes);
        if let Some(key) = Self::key_of(io, connection) {
            self.settle(key);
        }
        received
    }

    fn transmit(
        &mut self,
        io: &mut LoopIo,
        connection: ConnectionId,
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Transmit {
        let now = self.expiry_now(io);
        let Some(key) = Self::key_of(io, connection) else {
            return Transmit::Idle;
        };
        self.judge_queued(io, key);
        let Some(client) = self.clients.get_mut(key).filter(|c| c.joining.is_none()) else {
            return Transmit::Idle;
        };
        let congested = client.session.control_len() > CONTROL_LIMIT;
        let mut result = client.session.poll_transmit(
            out,
            budget,
            &mut self.dropped,
            &self.settings.policy,
            now,
        );
        let (packets, publishes) = count_packets(out);
        self.stats.packets_out.add(packets);
        self.stats.publishes_out.add(publishes);
        if congested {
            io.resume(connection);
        }
        if result == mqtt_session::Transmit::Idle
            && client.replay.is_some()
            && self.replay_page(io, key)
        {
            result = mqtt_session::Transmit::More;
        }
        self.report_dropped(io, key);
        self.settle(key);
        self.relax_hold(io, key);
        self.show_room(key);
        match result {
            mqtt_session::Transmit::Idle => Transmit::Idle,
            mqtt_session::Transmit::More => Transmit::More,
            mqtt_session::Transmit::Close => {
                self.detach(io, key);
                Transmit::Close
            }
        }
    }

    fn closed(&mut self, io: &mut LoopIo, connection: ConnectionId, cause: Closed) {
        if let Some(key) = Self::key_of(io, connection) {
            self.log_lost(io, key, &cause);
            self.take_kept(io, key, true);
            self.detach(io, key);
        } else {
            self.log_failed_handshake(io, connection, &cause);
            self.logins.remove(&connection);
        }
    }

    fn accompanied(&mut self, _: &mut LoopIo, connection: ConnectionId, mail: Mail) {
        if let Mail::Entering(login) = mail {
            self.logins.insert(connection, login);
        }
    }

    fn timer(&mut self, io: &mut LoopIo, timer: u64) {
        match Timer::from_bits(timer) {
            Some(Timer::Session(key)) => self.session_deadline(io, key),
            Some(Timer::Connect(connection)) if io.tag(connection) == Some(0) => {
                tracing::debug!(
                    peer = io.peer(connection).map(tracing::field::display),
                    "no CONNECT in time"
                );
                self.logins.remove(&connection);
                io.close(connection);
            }
            Some(Timer::Resume(connection)) => io.resume(connection),
            Some(Timer::Hold(key)) => self.end_hold(io, key),
            Some(Timer::Pressed(key)) => self.end_press(io, key),
            Some(Timer::Pressure) => {
                if self.node.pressure() == Pressure::None {
                    for connection in std::mem::take(&mut self.waiting_for_memory) {
                        io.resume(connection);
                    }
                } else {
                    io.arm(io.now_ms() + PRESSURE_RETRY_MS, Timer::Pressure.to_bits());
                }
            }
            Some(Timer::Store) => {
                if self.node.store().is_crowded() {
                    io.arm(io.now_ms() + STORE_RETRY_MS, Timer::Store.to_bits());
                } else {
                    for connection in std::mem::take(&mut self.waiting_for_store) {
                        io.resume(connection);
                    }
                }
            }
            Some(Timer::Peers) => self.forwarding.resume(io, &self.node),
            Some(Timer::Login) => self.log_in_later(io),
            Some(Timer::LoginExpiry) => self.end_logins(io),
            Some(Timer::Rules) => self.go_on_judging(io),
            Some(Timer::Bans) => self.go_on_checking_bans(io),
            Some(Timer::Legacies) => self.retry_handovers(),
            Some(Timer::Wills) => self.retry_wills(),
            Some(Timer::Superseded) => self.close_superseded(io),
            Some(Timer::Sys) => self.publish_sys(io),
            Some(Timer::Replay(key)) => self.replay_resumes(io, key),
            Some(Timer::Deliveries) => self.go_on_delivering(io),
            Some(Timer::Members) => self.look_for_members(io),
            Some(Timer::TakeOver(id)) => self.end_take_over(io, id),
            Some(Timer::Leaving(id)) => self.end_leaving(io, id),
            Some(Timer::Linger(key)) => self.linger_timer(io, key),
            Some(Timer::Connect(_)) | None => {}
        }
    }

    fn mail(&mut self, io: &mut LoopIo, mail: Mail) {
        match mail {
            Mail::Deliver {
                message,
                set,
                range,
                retaining,
            } => {
                self.deliver_range(io, &message, &set, range);
                // Until here a session of this loop could be given an older message than it has.
                drop(retaining);
            }
            Mail::DeliverTo(session, delivery) => self.deliver_to(io, session.key(), delivery),
            Mail::Verdict(connection, verdict) => self.login_answered(io, connection, verdict),
            // Comes with its connection only.
            Mail::Entering(_) => {}
            Mail::Store(events) => self.store_events(io, events),
            Mail::FromPeer {
                from,
                messages,
                bytes,
            } => self.receive_from_peer(io, from, messages, bytes),
            Mail::Undelivered { gone, copies } => self.give_to_others(io, gone, copies),
            Mail::FlushPeers => self.flush_peers(io),
            Mail::RoutesKnown(token) => self.answered(io, token, Answer::Passed),
            Mail::CutOff => self.cut_off(io),
            Mail::Registered(answers) => self.registered(io, answers),
            Mail::RegisterAgain(shards) => self.register_again(&shards),
            Mail::CloseOlder(asker, older) => self.close_older(io, asker, older, false),
            Mail::ClosedElsewhere(token, told) => self.closed_elsewhere(io, token, told),
            Mail::Hold(publisher, line) => self.held(publisher.key(), line),
            Mail::Release(publisher) => self.released(io, publisher.key()),
            Mail::HoldFor(node, publisher) => self.held_for(node, publisher),
            Mail::ReleaseFor(node, publisher) => self.released_for(io, node, publisher),
            Mail::HoldsLost(node) => self.holds_lost(io, node),
            Mail::Bans => self.check_bans(io),
            Mail::Reload(settings, done) => {
                io.set_rates(settings.bytes_per_s_in, settings.bytes_per_s_out);
                io.set_handshake_limit(settings.handshake_timeout_ms);
                self.settings = settings;
                self.rules_changed(io);
                self.start_sys(io);
                drop(done);
            }
            Mail::SendAway {
                permits,
                elsewhere,
                done,
            } => {
                self.send_away(io, &permits, elsewhere.as_deref());
                drop(done);
            }
            Mail::LetNobodyIn(done) => {
                self.closing = true;
                drop(done);
            }
            Mail::PublishWills(done) => {
                self.publish_all_wills(&done);
                drop(done);
            }
            Mail::Disconnect(done) => {
                self.disconnect_all(io);
                drop(done);
            }
        }
    }
}

/// The QoS that a message published with one QoS reaches a subscription of another with.
fn effective(published: QoS, granted: QoS) -> QoS {
    // [MQTT-3.8.4-8] the lesser of the two
    published.min(granted)
}
