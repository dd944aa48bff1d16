//! What clients may do, where they do it.
//!
//! A publication, a subscription and a delivery are each judged once, in the client's loop: a PUBLISH when
//! it comes, a will with its CONNECT, a delivery when the session is given it, also one that may have been sent
//! on an earlier connection: [MQTT-4.4.0-1] is about what the client may receive. When the rules change, what is
//! there already is judged anew (`rejudge`).

use std::net::IpAddr;

use authentication_api::Identity;
use authorization::Action;
use mqtt_proto::{Connect, QoS};
use mqtt_session::Delivery;
use net_api::{ConnectionId, Key};

use crate::clients::{Client, LoopIo};
use crate::connect::login_stage::Admission;
use crate::connect::own_clients;
use crate::drops::Reason;
use crate::rights::access::{Access, Decisions};
use crate::rim::Rim;
use crate::sys;
use crate::turn::Turn;

/// The rights of a loop's clients: what was decided about each is in its [`Access`], the rest is remembered here.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    decisions: Decisions,
}

impl Rights {
    /// The rules have been read again: whatever is asked from here on is judged by the new ones.
    pub(crate) fn handle_rules_changed(&mut self) {
        self.decisions.forget();
    }

    /// From now on a client has the rights of this identity. Clients that were given none are anonymous.
    pub(crate) fn grant<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        identity: Identity,
    ) {
        let nobody = identity.username.is_none() && identity.rules.is_none();
        if nobody && !identity.is_superuser {
            // Its access is made when something asks for it.
            return;
        }
        let address = address_of(turn, key);
        if let Some(client) = turn.clients.get_mut(key) {
            client.access = Some(self.decisions.access(identity, address));
        }
    }

    /// Whether an action could be denied to a client.
    pub(crate) fn is_restricted<R: Rim, Io>(
        &self,
        turn: &Turn<'_, R, Io>,
        key: Key,
        action: Action,
    ) -> bool {
        let node = &turn.base.settings.authorization;
        match turn.clients.get(key).map(|client| &client.access) {
            Some(Some(access)) => access.is_restricted(node, action),
            Some(None) => node.restricts(action),
            None => false,
        }
    }

    /// What the rules say about a client's action. What is denied is counted.
    pub(crate) fn decide<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        action: Action,
        topic: &str,
    ) -> bool {
        let allowed = self.allows(turn, key, action, topic);
        if !allowed {
            turn.base.count_denied(action);
        }
        allowed
    }

    /// Whether a client may subscribe to a filter, which stands without `$share/…/` here: by the rules, and none but outlets
    /// to internal topics. What is denied is counted, and recorded.
    pub(crate) fn may_subscribe<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        filter: &str,
        qos: QoS,
    ) -> bool {
        let action = Action::Subscribe;
        let is_closed = sys::is_internal(filter.as_bytes()) && !is_outlet(turn, key);
        if is_closed {
            turn.base.count_denied(action);
        } else if self.decide(turn, key, action, filter) {
            return true;
        }
        let client = turn.clients.get(key);
        let client_id = client.map_or("", |client| client.session.client_id());
        let reason = Reason::Denied(action);
        turn.base
            .drops
            .record(turn.io.now_ms(), client_id, filter, reason, qos, 0);
        false
    }

    /// Whether the rules allow a client's action. Nothing is counted.
    pub(crate) fn allows<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        action: Action,
        topic: &str,
    ) -> bool {
        if !self.is_restricted(turn, key, action) {
            return true;
        }
        let is_unknown = turn.clients.get(key).is_some_and(|c| c.access.is_none());
        let address = is_unknown.then(|| address_of(turn, key)).flatten();
        let Some(client) = turn.clients.get_mut(key) else {
            return true;
        };
        let decisions = &mut self.decisions;
        let access = client
            .access
            .get_or_insert_with(|| decisions.access(Identity::default(), address));
        let client_id = client.session.client_id();
        let node = &turn.base.settings.authorization;
        decisions.allows(access, client_id, node, action, topic)
    }

    /// Whether a client may leave its will. What is denied is counted, and recorded.
    pub(crate) fn may_leave_will<R: Rim, Io: LoopIo>(
        &self,
        turn: &Turn<'_, R, Io>,
        connection: ConnectionId,
        connect: &Connect<'_>,
        client_id: &str,
        admission: Option<&Admission>,
    ) -> bool {
        let Some(will) = &connect.will else {
            return true;
        };
        let node = &turn.base.settings.authorization;
        let identity = admission.map_or_else(Identity::default, |a| a.identity().clone());
        let access = Access::new(identity, turn.base.judged_address(turn.io, connection));
        let denied = |action| !access.allows(client_id, node, action, will.topic);
        let reason = if sys::is_closed_to(client_id, will.topic.as_bytes()) {
            // [MQTT-4.7.2-1] as for a PUBLISH
            Reason::ReservedTopic
        } else if denied(Action::Publish) {
            Reason::Denied(Action::Publish)
        } else if will.retain && denied(Action::Retain) {
            Reason::Denied(Action::Retain)
        } else {
            return true;
        };
        if let Reason::Denied(action) = reason {
            turn.base.count_denied(action);
        }
        let length = will.payload.len();
        turn.base.drops.record(
            turn.io.now_ms(),
            client_id,
            will.topic,
            reason,
            will.qos,
            length,
        );
        false
    }

    /// Takes out of a client's queue what it may not receive any more. Cost: a decision for each message.
    pub(crate) fn take_denied<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) -> Vec<Delivery> {
        let is_unknown = turn.clients.get(key).is_some_and(|c| c.access.is_none());
        let address = is_unknown.then(|| address_of(turn, key)).flatten();
        let node = &turn.base.settings.authorization;
        let Some(client) = turn.clients.get_mut(key) else {
            return Vec::new();
        };
        let Client {
            session, access, ..
        } = client;
        let decisions = &mut self.decisions;
        let access = access.get_or_insert_with(|| decisions.access(Identity::default(), address));
        let client_id = Box::<str>::from(session.client_id());
        session.drop_waiting(|message| {
            let topic = message.body.topic();
            decisions.allows(access, &client_id, node, Action::Receive, topic)
        })
    }
}

/// Whether a client is an outlet of the broker.
fn is_outlet<R: Rim, Io>(turn: &Turn<'_, R, Io>, key: Key) -> bool {
    let client = turn.clients.get(key);
    client.is_some_and(|client| own_clients::is_outlet(client.session.client_id()))
}

/// The address that a client is judged by.
fn address_of<R: Rim, Io: LoopIo>(turn: &Turn<'_, R, Io>, key: Key) -> Option<IpAddr> {
    turn.base
        .judged_address(turn.io, turn.clients.get(key)?.connection?)
}
