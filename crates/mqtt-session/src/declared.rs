//! What the client of a network connection has declared about itself in CONNECT, and what follows for its subscriptions.

use mqtt_proto::{Connect, SubscriptionFilter, SubscriptionOptions};

/// Flags that CONNECT has set, for as long as its network connection lasts; in one byte, for each session has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared(u8);

const PROBLEM_INFORMATION: u8 = 1;
const IS_BRIDGE: u8 = 1 << 1;
const WANTS_EXPIRY: u8 = 1 << 2;
const ENHANCED: u8 = 1 << 3;

impl Declared {
    /// What a client is taken for that has declared nothing.
    pub(crate) const NOTHING: Self = Self(PROBLEM_INFORMATION);

    /// `requested_expiry`: the session expiry interval that the client asked for, in seconds.
    pub(crate) fn by(connect: &Connect<'_>, requested_expiry: u32) -> Self {
        let properties = &connect.properties;
        let flags = [
            (
                PROBLEM_INFORMATION,
                properties.request_problem_information.unwrap_or(true),
            ),
            (IS_BRIDGE, connect.is_bridge),
            (WANTS_EXPIRY, requested_expiry != 0),
            (ENHANCED, properties.authentication_method.is_some()),
        ];
        let set = flags.iter().filter(|(_, is_set)| *is_set);
        Self(set.map(|(flag, _)| flag).sum())
    }

    /// Reason strings and user properties may be sent with every packet.
    pub(crate) fn problem_information(self) -> bool {
        self.0 & PROBLEM_INFORMATION != 0
    }

    /// It is a bridge to another broker.
    pub(crate) fn is_bridge(self) -> bool {
        self.0 & IS_BRIDGE != 0
    }

    /// It asked for a session that outlives the network connection.
    pub(crate) fn wants_expiry(self) -> bool {
        self.0 & WANTS_EXPIRY != 0
    }

    /// It named an authentication method.
    pub(crate) fn enhanced(self) -> bool {
        self.0 & ENHANCED != 0
    }

    /// The options to grant a subscription with. A bridge forwards to another broker: its own messages would go round in
    /// a circle, and what is retained here is to be retained there. Before 5.0 it cannot ask for that.
    pub(crate) fn granted(
        self,
        filter: &SubscriptionFilter<'_>,
        options: SubscriptionOptions,
    ) -> SubscriptionOptions {
        if !self.is_bridge() {
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
