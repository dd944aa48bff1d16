//! What every part of a loop stands on: the node, the settings, the counters, the questions to the store that are not
//! answered, and what the client whose packets are handled may still have done in this turn.
//!
//! Invariant: nothing here calls a part; what happens to a client when it is answered is the dispatch's to say.
//!
//! `effect.rs`: what parts want done above them. `drained.rs`, `spread.rs`: where clients go of a node that is drained, or has more than its share. `log.rs`: what the log and those who watch are told of clients. `sources.rs`: where connections come from.

mod drained;
mod effect;
mod log;
mod sources;
mod spread;

use std::sync::Arc;

use authorization::Action;
use mqtt_proto::{ProtocolVersion, ReasonCode};
use mqtt_session::{ApplicationMessage, Outcome, Policy, Timestamp, encode_refusal};
use net_api::{Arena, ConnectionId, Key};
use store_state::CorrelationId;
use store_state::api::Store as _;
use store_state::inbox::InboxOp;

use crate::clients::{Clients, LoopIo, dismiss, record};
use crate::connect::refused::{Cause, Who};
use crate::drops::{Drops, Reason};
use crate::key::SessionKey;
use crate::node::Node;
use crate::pending::Pending;
use crate::publish::once::Once;
use crate::rim::Rim;
use crate::settings::Settings;
use crate::share::Share;

use crate::stats::BrokerStats;

pub(crate) use drained::Drained;
use drained::policy_with;
pub(crate) use effect::Effect;
use effect::Effects;
pub(crate) use log::version_name;
pub(crate) use sources::judged;
pub(crate) use spread::Spread;

/// What the parts of one loop have in common.
#[derive(Debug)]
pub(crate) struct Base<R: Rim> {
    pub(crate) node: Arc<Node<R>>,
    pub(crate) settings: Arc<Settings>,
    /// The loop's number.
    pub(crate) index: usize,
    pub(crate) stats: Arc<BrokerStats>,
    pub(crate) drops: Arc<Drops>,
    /// What the store was asked.
    pub(crate) pending: Arena<Pending>,
    /// What sessions dropped and timed in one call; empty between calls.
    pub(crate) outcome: Outcome,
    /// Of the client whose packets are handled.
    pub(crate) share: Share,
    /// The broker shuts down: nobody is let in.
    pub(crate) closing: bool,
    /// Clients are sent to other nodes.
    pub(crate) drained: Option<Drained>,
    /// Some clients are, because this node has more than its share.
    pub(crate) spread: Spread,
    /// What is to be done when what is being handled has been handled.
    effects: Effects,
}

/// What a part works with while it handles something.
#[derive(Debug)]
pub(crate) struct Turn<'a, R: Rim, Io> {
    pub(crate) base: &'a mut Base<R>,
    pub(crate) clients: &'a mut Clients,
    pub(crate) io: &'a mut Io,
}

impl<R: Rim> Base<R> {
    pub(crate) fn new(node: Arc<Node<R>>, index: usize) -> Self {
        let settings = Arc::clone(&node.settings.read());
        let own = |all: &[Arc<BrokerStats>]| all.get(index).cloned().unwrap_or_default();
        Self {
            settings,
            index,
            stats: own(&node.stats),
            drops: node
                .drops
                .get(index)
                .cloned()
                .unwrap_or_else(|| Drops::new(0)),
            pending: Arena::default(),
            outcome: Outcome::default(),
            share: Share::default(),
            closing: false,
            drained: None,
            spread: Spread::default(),
            effects: Effects::default(),
            node,
        }
    }

    /// Takes note of work for the client whose packets are handled.
    pub(crate) fn charge(&mut self, io: &mut impl LoopIo, units: u32) {
        self.share.charge(units);
        io.charge(units);
    }

    /// Has something done that lies above the part that asks for it.
    pub(crate) fn add(&mut self, effect: Effect) {
        self.effects.add(effect);
    }

    /// Has a client disconnected.
    pub(crate) fn end(&mut self, key: Key, reason: ReasonCode) {
        self.add(Effect::End(key, reason));
    }

    /// Whether there is anything to be done.
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Panics in debug builds if something was added and not carried out.
    #[inline]
    pub(crate) fn expect_no_effects(&self) {
        debug_assert!(
            self.effects.is_empty(),
            "what parts want done is carried out before the loop handles anything else"
        );
    }

    /// What is to be done next.
    #[inline]
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.next()
    }

    pub(crate) fn session_key(&self, key: Key) -> SessionKey {
        SessionKey::new(self.index, key)
    }

    /// Now, in the time by which messages expire: the cluster's.
    pub(crate) fn expiry_now(&self, io: &impl LoopIo) -> Timestamp {
        Timestamp(self.node.rim.cluster_time_ms(io.now_ms()))
    }

    /// Remembers what is asked; the ticket goes with the question.
    pub(crate) fn ask(&mut self, pending: Pending) -> CorrelationId {
        let token = self.pending.insert(pending).to_bits();
        self.stats.pending.set(self.pending.len() as u64);
        self.ticket(token)
    }

    pub(crate) fn ticket(&self, token: u64) -> CorrelationId {
        CorrelationId {
            peer: 0,
            loop_number: self.index as u16 + 1,
            token,
        }
    }

    /// Asks the inbox shard of a client.
    pub(crate) fn ask_inbox(&mut self, pending: Pending, op: InboxOp) {
        let ticket = self.ask(pending);
        self.node.store().inbox(ticket, op);
    }

    /// Tells the inbox shard of a client something that nobody waits for.
    pub(crate) fn tell_inbox(&self, op: InboxOp) {
        self.node.store().inbox(CorrelationId::NONE, op);
    }

    /// Tells all inbox shards that a publication is released.
    pub(crate) fn release_everywhere(&self, once: &Once) {
        let store = self.node.store();
        for &shard in store.inbox_shards().iter() {
            store.inboxes(shard, CorrelationId::NONE, once.release());
        }
    }

    /// All shards forget what was published under this name, up to this incarnation.
    pub(crate) fn forget_everywhere(&self, publisher: &str, incarnation: u64) {
        let store = self.node.store();
        let name = store.client_name(publisher);
        for &shard in store.inbox_shards().iter() {
            let op = InboxOp::Forget {
                client: name.clone(),
                incarnation,
            };
            store.inboxes(shard, CorrelationId::NONE, op);
        }
    }

    /// Records what a session has dropped.
    pub(crate) fn report_dropped(&mut self, clients: &Clients, io: &impl LoopIo, key: Key) {
        if self.outcome.dropped.is_empty() {
            return;
        }
        let id = clients.client_id(key);
        for dropped in self.outcome.dropped.drain(..) {
            record(&self.drops, io.now_ms(), id, &dropped);
        }
    }

    /// Records a client's message that is not accepted.
    pub(crate) fn drop_inbound(
        &self,
        clients: &Clients,
        io: &impl LoopIo,
        from: Key,
        message: &ApplicationMessage,
        reason: Reason,
    ) {
        let id = clients.client_id(from);
        let (topic, length) = (message.body.topic(), message.body.payload().len());
        self.drops
            .record(io.now_ms(), id, topic, reason, message.qos, length);
    }

    pub(crate) fn count_denied(&self, action: Action) {
        if let Some(count) = self.stats.denied.get(action as usize) {
            count.add(1);
        }
    }

    /// The reason code for a client too many.
    pub(crate) fn full(&self) -> ReasonCode {
        if self.settings.limits.policy.server_reference.is_some() {
            ReasonCode::UseAnotherServer
        } else {
            ReasonCode::QuotaExceeded
        }
    }

    /// The policy for the last packet on a connection.
    pub(crate) fn last_policy(&self, is_plain: bool) -> &Policy {
        let drained = self.drained.as_ref().filter(|_| is_plain);
        let elsewhere = drained.and_then(|drained| drained.elsewhere.as_deref());
        let elsewhere = elsewhere.or_else(|| self.spread.policy().filter(|_| is_plain));
        elsewhere.unwrap_or(&self.settings.limits.policy)
    }

    /// Answers with a CONNACK, if there is a version to answer in, and closes.
    pub(crate) fn refuse(
        &self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        answer: Option<(ProtocolVersion, ReasonCode)>,
        (who, cause): (Who<'_>, Cause),
    ) {
        self.stats.refused.add(1);
        self.tell_refused(io, connection, who, cause);
        let mut bytes = Vec::new();
        if let Some((version, reason)) = answer {
            let is_plain = self.is_plain(io, connection);
            encode_refusal(version, reason, self.last_policy(is_plain), &mut bytes);
        }
        // [MQTT-3.1.4-2] [MQTT-3.2.2-7] [MQTT3-3.2.2-5] after a refusal the connection is closed
        dismiss(io, connection, bytes);
    }
}
