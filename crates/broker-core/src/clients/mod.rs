//! One event loop's clients: frames in, packets to sessions, what sessions ask for to the rest of the
//! broker, and messages from everywhere to sessions.
//!
//! Invariant: all that concerns one session happens in its loop, under that loop's lock, one thing at a
//! time. Other loops reach a session only by [`LoopMessage`].
//!
//! `answers.rs`: what the store answers. `client.rs`: a client's state. `frames.rs`: bytes to packets, and packets to
//! what handles them. `service.rs`: what else happens to a loop. The rest of a loop's methods stand with their subjects:
//! `connect`, `publish`, `subscribe`, `shared`, `retained`, `session`, `rights`, `backpressure`, `drain`, `will`; what
//! these remember stands beside them, in files that know nothing of the loop.

mod answers;
mod client;
mod dropped;
mod frames;
pub(crate) mod io;
pub(crate) mod message;
mod service;
pub(crate) mod timer;

use std::collections::VecDeque;
use std::sync::Arc;

use hashing::{HashMap, QualityHashBuilder};
use mqtt_proto::QoS;
use mqtt_session::{Outcome, Timestamp};
use net_api::{Arena, ConnectionId, Key};
use store_state::api::Store as _;
use store_state::inbox::Caller;

use crate::backpressure::remote_pauses::RemotePauses;
use crate::connect::awaiting::AwaitingConnect;
use crate::connect::expiries::Expiries;
use crate::connect::login_stage::Login;
use crate::connect::registering::Registering;
use crate::connect::taking::Superseded;
use crate::drain::drained::Drained;
use crate::drops::Drops;
use crate::key::SessionKey;
use crate::node::Node;
use crate::pending::Pending;
use crate::publish::calls::Calls;
use crate::publish::deliveries::Deliveries;
use crate::publish::forwarding::Forwarding;
use crate::retained::backlog::Slices;
use crate::rights::access::Decisions;
use crate::rights::unjudged::Unjudged;
use crate::rim::Rim;
use crate::routes::MatchCache;
use crate::session::lingering::Lingerers;
use crate::session::reopening::Reopening;
use crate::settings::Settings;
use crate::share::Share;
use crate::shared::awaited::Members;
use crate::shared::handover::Legacies;
use crate::stats::BrokerStats;
use crate::traffic::Traffic;
use crate::will::unpublished::Unpublished;

pub(crate) use client::Client;
pub(crate) use dropped::{record, record_drop};
pub(crate) use frames::Violated;
pub(crate) use io::LoopIo;
pub(crate) use message::BetweenLoops;
pub use message::{Done, FromLoop, LoopMessage};
pub(crate) use timer::Timer;

/// A session's deadline that is further away is looked at again after this time.
pub(crate) const TIMER_HORIZON_MS: u64 = 10 * 60 * 1000;

/// The longest topic of a retained message, in bytes: names in the store's tables are shorter than 64 KiB with what stands
/// before and behind them.
pub const STORED_NAME: usize = 60_000;

/// How soon connections that wait for the store look again.
pub(crate) const STORE_RETRY_MS: u64 = 2;

/// How often connections that wait for memory look again.
pub(crate) const PRESSURE_RETRY_MS: u64 = 100;

/// Marks the tag of a connection that has a session; the rest of the tag is the session's key.
pub(crate) const HAS_SESSION: u64 = 1 << 56;

/// The tag of a connection that is not heard any more: refused, or let go by its session.
pub(crate) const DONE: u64 = 1 << 57;

/// Connections that are not read for a while.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// Because memory is scarce.
    pub(crate) for_memory: Vec<ConnectionId>,
    /// Because the store has enough to do.
    pub(crate) for_store: Vec<ConnectionId>,
}

/// The clients of one loop.
#[derive(Debug)]
pub struct ClientLoop<R: Rim> {
    pub(crate) node: Arc<Node<R>>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) index: usize,
    pub(crate) clients: Arena<Client>,
    pub(crate) cache: MatchCache,
    pub(crate) decisions: Decisions,
    /// How often the rules have been read.
    pub(crate) rules: u32,
    /// Clients to be judged anew since then.
    pub(crate) unjudged: Unjudged,
    pub(crate) stats: Arc<BrokerStats>,
    pub(crate) drops: Arc<Drops>,
    pub(crate) unread: Unread,
    /// Connections whose clients are about to be let in or not.
    pub(crate) logins: HashMap<ConnectionId, Login>,
    /// Clients whose logins end at a time.
    pub(crate) expiries: Expiries,
    /// Connections whose CONNECT is not read because there are too many logins under way.
    pub(crate) waiting_for_login: VecDeque<ConnectionId>,
    /// What goes to other nodes.
    pub(crate) forwarding: Forwarding,
    /// What its receivers get in later turns.
    pub(crate) deliveries: Deliveries,
    pub(crate) members: Members,
    pub(crate) calls: Calls,
    /// Publishers that subscribers of other nodes hold back.
    pub(crate) remote_pauses: RemotePauses,
    /// Sessions without a connection whose routes stay.
    pub(crate) lingerers: Lingerers,
    /// What the directory of clients is to be told.
    pub(crate) registering: Registering,
    /// Shards that another node leads, until all clients have been visited for them.
    pub(crate) reopening: Reopening,
    /// What the store was asked.
    pub(crate) pending: Arena<Pending>,
    /// What sessions may look at of retained messages.
    pub(crate) slices: Slices,
    /// Questions for pages of retained messages so far.
    pub(crate) questions: u64,
    /// What ended sessions have left.
    pub(crate) legacies: Legacies,
    pub(crate) unpublished: Unpublished,
    pub(crate) superseded: Vec<Superseded>,
    /// Connections that have sent no CONNECT yet.
    pub(crate) unheard: AwaitingConnect,
    /// Clients that are still to be looked at since the last ban was added.
    pub(crate) unchecked: Vec<Key>,
    /// What sessions dropped and timed in one call; empty between calls.
    pub(crate) outcome: Outcome,
    pub(crate) traffic: Traffic,
    /// Of the client whose packets are handled.
    pub(crate) share: Share,
    /// The broker shuts down: nobody is let in.
    pub(crate) closing: bool,
    /// Clients are sent to other nodes.
    pub(crate) drained: Option<Drained>,
    /// For identifiers that the broker assigns.
    pub(crate) identifiers: QualityHashBuilder,
    pub(crate) sys_armed: bool,
}

impl<R: Rim> ClientLoop<R> {
    /// The loop of this number, without clients. The node's store is open.
    pub fn new(node: Arc<Node<R>>, index: usize) -> Self {
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
            unread: Unread::default(),
            logins: HashMap::default(),
            expiries: Expiries::default(),
            waiting_for_login: VecDeque::new(),
            forwarding: Forwarding::default(),
            deliveries: Deliveries::default(),
            members: Members::default(),
            calls,
            remote_pauses: RemotePauses::default(),
            lingerers: Lingerers::default(),
            registering: Registering::default(),
            reopening: Reopening::default(),
            pending: Arena::default(),
            slices: Slices::default(),
            questions: 0,
            legacies: Legacies::default(),
            unpublished: Unpublished::default(),
            superseded: Vec::new(),
            unheard: AwaitingConnect::default(),
            unchecked: Vec::new(),
            outcome: Outcome::default(),
            traffic: Traffic::default(),
            share: Share::default(),
            closing: false,
            drained: None,
            identifiers: QualityHashBuilder::default(),
            sys_armed: false,
            node,
        }
    }

    /// Takes note of work for the client whose packets are handled.
    pub(crate) fn charge(&mut self, io: &mut impl LoopIo, units: u32) {
        self.share.charge(units);
        io.charge(units);
    }

    pub(crate) fn session_key(&self, key: Key) -> SessionKey {
        SessionKey::new(self.index, key)
    }

    /// Now, in the time by which messages expire: the cluster's.
    pub(crate) fn expiry_now(&self, io: &impl LoopIo) -> Timestamp {
        Timestamp(self.node.rim.cluster_time_ms(io.now_ms()))
    }

    /// The session of a connection.
    pub(crate) fn key_of(io: &impl LoopIo, connection: ConnectionId) -> Option<Key> {
        let tag = io.tag(connection)?;
        (tag & HAS_SESSION != 0).then(|| Key::from_bits(tag & !HAS_SESSION))
    }

    /// Arms the loop for the session's next deadline, unless it is armed for an earlier time already.
    pub(crate) fn arm_deadline(&mut self, io: &mut impl LoopIo, key: Key) {
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
    pub(crate) fn show_room(&mut self, key: Key) {
        if let Some(client) = self.clients.get_mut(key)
            && let Some(gauge) = &client.gauge
        {
            let session = &client.session;
            let free = i64::from(session.window()) - session.in_flight() as i64;
            gauge.show(free - session.queue_len() as i64, session.is_online());
        }
    }

    /// Records what a session has dropped.
    pub(crate) fn report_dropped(&mut self, io: &impl LoopIo, key: Key) {
        if self.outcome.dropped.is_empty() {
            return;
        }
        let id = self
            .clients
            .get(key)
            .map_or("", |client| client.session.client_id());
        for dropped in self.outcome.dropped.drain(..) {
            record(&self.drops, io.now_ms(), id, &dropped);
        }
    }

    /// Sends a connection its last bytes, and hears no more of it.
    pub(crate) fn dismiss(io: &mut impl LoopIo, connection: ConnectionId, last: Vec<u8>) {
        io.set_tag(connection, DONE);
        io.send_last(connection, last);
    }
}

/// The QoS that a message published with one QoS reaches a subscription of another with.
pub(crate) fn effective(published: QoS, granted: QoS) -> QoS {
    // [MQTT-3.8.4-8] the lesser of the two
    published.min(granted)
}
