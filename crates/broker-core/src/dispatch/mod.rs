//! One event loop's clients: frames in, packets to sessions, what sessions ask for to the rest of the
//! broker, and messages from everywhere to sessions.
//!
//! Invariant: all that concerns one session happens in its loop, under that loop's lock, one thing at a
//! time. Other loops reach a session only by [`LoopMessage`].
//!
//! `effects.rs`: what parts want done. `events.rs`: what the store tells. `redispatched.rs`: who gets what sessions have left. `answers.rs`: what goes on with its answers. `frames.rs`: bytes to packets, and packets to what handles them. `service.rs`:
//! what else happens to a loop. What all parts stand on is in `turn` and `clients`. The rest of a loop's methods stand with
//! their subjects: `connect`, `publish`, `shared`, `inspect`; what these remember stands beside them, in files that know
//! nothing of the loop.

mod answers;
mod effects;
mod events;
mod frames;
mod redispatched;
mod service;

use std::collections::VecDeque;
use std::sync::Arc;

use hashing::{HashMap, QualityHashBuilder};
use net_api::{ConnectionId, Key};
use store_state::api::Store as _;
use store_state::inbox::Caller;

use crate::backpressure::hold::Backpressure;
use crate::clients::{Clients, LoopIo};
use crate::connect::awaiting::AwaitingConnect;
use crate::connect::expiries::Expiries;
use crate::connect::login_stage::Login;
use crate::connect::registering::Registering;
use crate::connect::taking::Superseded;
use crate::handover::Legacies;
use crate::linger::Linger;
use crate::node::Node;
use crate::publish::calls::Calls;
use crate::publish::deliveries::Deliveries;
use crate::publish::forwarding::Forwarding;
use crate::rejudge::Rejudge;
use crate::reopening::Reopening;
use crate::retained::replay::Replays;
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::routes::MatchCache;
use crate::shared::awaited::Members;
use crate::subscribe::grant::Below;
use crate::traffic::Traffic;
use crate::turn::{Base, Turn};
use crate::will::Wills;

pub(crate) use frames::Violated;

/// Connections that are not read for a while.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// Because memory is scarce.
    pub(crate) for_memory: Vec<ConnectionId>,
    /// Because the store has enough to do.
    pub(crate) for_store: Vec<ConnectionId>,
}

/// The parts that work on a turn: each with its state, which the others do not see.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) backpressure: Backpressure,
    pub(crate) rights: Rights,
    pub(crate) replays: Replays,
    pub(crate) linger: Linger,
    pub(crate) wills: Wills,
    pub(crate) legacies: Legacies,
    pub(crate) rejudge: Rejudge,
    pub(crate) reopening: Reopening,
}

impl Parts {
    /// What subscriptions stand on.
    pub(crate) fn below_subscriptions(&mut self) -> Below<'_> {
        Below {
            rights: &mut self.rights,
            replays: &mut self.replays,
        }
    }

    /// What judges clients anew, and what that stands on.
    pub(crate) fn rejudge(&mut self) -> (&mut Rejudge, Below<'_>) {
        let below = Below {
            rights: &mut self.rights,
            replays: &mut self.replays,
        };
        (&mut self.rejudge, below)
    }
}

/// The clients of one loop.
#[derive(Debug)]
pub struct ClientLoop<R: Rim> {
    pub(crate) base: Base<R>,
    pub(crate) clients: Clients,
    pub(crate) parts: Parts,
    pub(crate) cache: MatchCache,
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
    /// What the directory of clients is to be told.
    pub(crate) registering: Registering,
    pub(crate) superseded: Vec<Superseded>,
    /// Connections that have sent no CONNECT yet.
    pub(crate) awaiting_connect: AwaitingConnect,
    /// Clients that are still to be looked at since the last ban was added.
    pub(crate) unchecked: Vec<Key>,
    pub(crate) traffic: Traffic,
    /// For identifiers that the broker assigns.
    pub(crate) identifiers: QualityHashBuilder,
    pub(crate) sys_armed: bool,
}

impl<R: Rim> ClientLoop<R> {
    /// The loop of this number, without clients. The node's store is open.
    pub fn new(node: Arc<Node<R>>, index: usize) -> Self {
        let calls = Calls::new(Caller {
            node: node.store().node(),
            loop_index: index as u16,
            incarnation: node.store().incarnation(),
        });
        Self {
            base: Base::new(node, index),
            clients: Clients::default(),
            parts: Parts::default(),
            cache: MatchCache::default(),
            unread: Unread::default(),
            logins: HashMap::default(),
            expiries: Expiries::default(),
            waiting_for_login: VecDeque::new(),
            forwarding: Forwarding::default(),
            deliveries: Deliveries::default(),
            members: Members::default(),
            calls,
            registering: Registering::default(),
            superseded: Vec::new(),
            awaiting_connect: AwaitingConnect::default(),
            unchecked: Vec::new(),
            traffic: Traffic::default(),
            identifiers: QualityHashBuilder::default(),
            sys_armed: false,
        }
    }

    /// The parts, and what they work with while they handle something.
    #[inline]
    pub(crate) fn turn<'a, Io: LoopIo>(
        &'a mut self,
        io: &'a mut Io,
    ) -> (&'a mut Parts, Turn<'a, R, Io>) {
        let turn = Turn {
            base: &mut self.base,
            clients: &mut self.clients,
            io,
        };
        (&mut self.parts, turn)
    }
}
