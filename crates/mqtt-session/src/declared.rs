//! What the client of a network connection has declared about itself in CONNECT, and what follows for its subscriptions.

use mqtt_proto::{Connect, SubscriptionFilter, SubscriptionOptions};

/// Flags that CONNECT has set, for as long as its network connection lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    /// Reason strings and user properties may be sent with every packet.
    pub(crate) problem_information: bool,
    /// It is a bridge to another broker.
    pub(crate) is_bridge: bool,
    /// It asked for a session that outlives the network connection.
    pub(crate) wants_expiry: bool,
    /// It named an authentication method.
    pub(crate) enhanced: bool,
}

impl Declared {
    /// What a client is taken for that has declared nothing.
    pub(crate) const NOTHING: Self = Self {
        problem_information: true,
        is_bridge: false,
        wants_expiry: false,
        enhanced: false,
    };

    /// `requested_expiry`: the session expiry interval that the client asked for, in seconds.
    pub(crate) fn by(connect: &Connect<'_>, requested_expiry: u32) -> Self {
        let properties = &connect.properties;
        Self {
            problem_information: properties.request_problem_information.unwrap_or(true),
            is_bridge: connect.is_bridge,
            wants_expiry: requested_expiry != 0,
            enhanced: properties.authentication_method.is_some(),
        }
    }

    /// The options to grant a subscription with. A bridge forwards to another broker: its own messages would go round in
    /// a circle, and what is retained here is to be retained there. Before 5.0 it cannot ask for that.
    pub(crate) fn granted(
        self,
        filter: &SubscriptionFilter<'_>,
        options: SubscriptionOptions,
    ) -> SubscriptionOptions {
        if !self.is_bridge {
            return options;
        }
        SubscriptionOptions {
            // [MQTT-3.8.3-4] not for shared subscriptions.
            no_local: filter.shared.is_none(),
            retain_as_published: true,
            ..options
        }
    }
}
