//! What clients may do, where they do it.
//!
//! A publication, a subscription and a delivery are each judged once, in the client's loop: a PUBLISH when
//! it comes, a will with its CONNECT, a delivery when the session is given it, also one that may have been sent
//! on an earlier connection: [MQTT-4.4.0-1] is about what the client may receive. When the rules change, what is
//! there already is judged anew (`rules.rs`).

use std::net::IpAddr;

use authentication_api::Identity;
use authorization::Action;
use mqtt_proto::{Connect, QoS};
use net_api::{ConnectionId, Key};

use crate::clients::LoopIo;
use crate::connect::login_stage::Admission;
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::rights::access::Access;
use crate::rim::Rim;
use crate::sys;

impl<R: Rim> ClientLoop<R> {
    /// From now on a client has the rights of this identity. Clients that were given none are anonymous.
    pub(crate) fn grant(&mut self, io: &impl LoopIo, key: Key, identity: Identity) {
        let nobody = identity.username.is_none() && identity.rules.is_none();
        if nobody && !identity.is_superuser {
            // Its access is made when something asks for it.
            return;
        }
        let address = self.address_of(io, key);
        if let Some(client) = self.clients.get_mut(key) {
            client.access = Some(self.decisions.access(identity, address));
        }
    }

    /// The address that a client is judged by.
    pub(crate) fn address_of(&self, io: &impl LoopIo, key: Key) -> Option<IpAddr> {
        self.base
            .judged_address(io, self.clients.get(key)?.connection?)
    }

    /// Whether an action could be denied to a client.
    pub(crate) fn is_restricted(&self, key: Key, action: Action) -> bool {
        let node = &self.base.settings.authorization;
        match self.clients.get(key).map(|client| &client.access) {
            Some(Some(access)) => access.is_restricted(node, action),
            Some(None) => node.restricts(action),
            None => false,
        }
    }

    /// What the rules say about a client's action. What is denied is counted.
    pub(crate) fn decide(
        &mut self,
        io: &impl LoopIo,
        key: Key,
        action: Action,
        topic: &str,
    ) -> bool {
        let allowed = self.allows(io, key, action, topic);
        if !allowed {
            self.base.count_denied(action);
        }
        allowed
    }

    /// Whether a client may subscribe to a filter, which stands without `$share/…/` here. What is denied is
    /// counted, and recorded.
    pub(crate) fn may_subscribe(
        &mut self,
        io: &impl LoopIo,
        key: Key,
        filter: &str,
        qos: QoS,
    ) -> bool {
        let action = Action::Subscribe;
        if self.decide(io, key, action, filter) {
            return true;
        }
        let client = self.clients.get(key);
        let client_id = client.map_or("", |client| client.session.client_id());
        let reason = Reason::Denied(action);
        self.base
            .drops
            .record(io.now_ms(), client_id, filter, reason, qos, 0);
        false
    }

    /// Whether the rules allow a client's action. Nothing is counted.
    pub(crate) fn allows(
        &mut self,
        io: &impl LoopIo,
        key: Key,
        action: Action,
        topic: &str,
    ) -> bool {
        if !self.is_restricted(key, action) {
            return true;
        }
        let is_unknown = self.clients.get(key).is_some_and(|c| c.access.is_none());
        let address = is_unknown.then(|| self.address_of(io, key)).flatten();
        let Some(client) = self.clients.get_mut(key) else {
            return true;
        };
        let decisions = &mut self.decisions;
        let access = client
            .access
            .get_or_insert_with(|| decisions.access(Identity::default(), address));
        let client_id = client.session.client_id();
        let node = &self.base.settings.authorization;
        decisions.allows(access, client_id, node, action, topic)
    }

    /// Whether a client may leave its will. What is denied is counted, and recorded.
    pub(crate) fn may_leave_will(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
        connect: &Connect<'_>,
        client_id: &str,
        admission: Option<&Admission>,
    ) -> bool {
        let Some(will) = &connect.will else {
            return true;
        };
        let node = &self.base.settings.authorization;
        let identity = admission.map_or_else(Identity::default, |a| a.identity().clone());
        let access = Access::new(identity, self.base.judged_address(io, connection));
        let denied = |action| !access.allows(client_id, node, action, will.topic);
        let reason = if sys::is_own(will.topic.as_bytes()) {
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
            self.base.count_denied(action);
        }
        let length = will.payload.len();
        self.base
            .drops
            .record(io.now_ms(), client_id, will.topic, reason, will.qos, length);
        false
    }
}
