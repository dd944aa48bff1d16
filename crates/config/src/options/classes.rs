//! Classes of clients.

use std::num::NonZero;

use super::{Limits, QueueFull, U16, U32};
use crate::{
    declare::{Section, Slot, options},
    listed::Listed,
    overriding::{Override, blank},
};

/// The name of the class of clients that match no other.
pub const DEFAULT_CLASS: &str = "device";

blank! {
    u32 = 0,
    u64 = 0,
    NonZero<u16> = NonZero::<u16>::MIN,
    Option<NonZero<u32>> = None,
    Option<NonZero<u64>> = None,
    QueueFull = QueueFull::DropNewest,
}

options! {
    /// A class of clients: limits of their own for those that match. The first class that a client matches is its class; one
    /// that matches none is of the class `device`, to which `limits` apply as they are.
    /// A class counts for the sessions that exist, as soon as it is read: also for those whose clients are away, if they were
    /// of that class when they connected last.
    pub struct ClientClassConfig {
        /// Its name, 1 to 64 characters. It is stored with sessions, by a hash.
        live "name" => name: Option<String>;
        group "match" => matching: ClassMatchConfig;
        /// Size of the queues of all sessions of the class that are kept on a node, as `limits.session.queueBytes` counts it.
        /// If they have more, the oldest messages of the largest queue of the class are dropped, until they do not. 0: no
        /// limit.
        live "queuedBytes" => queued_bytes: Option<NonZero<u64>>, unit Bytes;
        group "limits" => limits: ClassLimitsConfig;
    }

    /// Which clients are of the class. Each option that is set must match; of several values, one. `*` stands for any
    /// characters, also none. A class without any of them takes all clients.
    pub struct ClassMatchConfig {
        /// The user that the client has authenticated as, such as `billing-*`. Anonymous clients have none.
        live "user" => user: Listed<String>;
        /// The client identifier.
        live "clientId" => client_id: Listed<String>;
        /// The name in the client's certificate, as `sslConfig.identity` makes it.
        live "certificate" => certificate: Listed<String>;
        /// The kind of the listener: tcp, tls, ws, wss or unix; outlet for the broker's own outlets.
        live "listener" => listener: Listed<String>;
    }

    /// Options of the group `limits` that are others for the class.
    pub struct ClassLimitsConfig {
        group "session" => session: ClassSessionLimits;
        group "connection" => connection: ClassConnectionLimits;
    }

    /// As `limits.session`, where they are set.
    pub struct ClassSessionLimits {
        /// As `limits.session.queueMessages`.
        live "queueMessages" => queue_messages: Override<u32>, range 1..=U32;
        /// As `limits.session.queueBytes`.
        live "queueBytes" => queue_bytes: Override<u64>, unit Bytes, range 1..=u64::MAX;
        /// As `limits.session.queueFull`.
        live "queueFull" => queue_full: Override<QueueFull>;
        /// As `limits.session.queueFullAwaySeconds`.
        live "queueFullAwaySeconds" => queue_full_away: Override<u32>, unit Seconds;
        /// As `limits.session.queueAgeSeconds`.
        live "queueAgeSeconds" => queue_age: Override<u32>, unit Seconds;
        /// As `limits.session.queueAgeWarnSeconds`.
        live "queueAgeWarnSeconds" => queue_age_warn: Override<u32>, unit Seconds;
        /// As `limits.session.queueDiskFree`.
        live "queueDiskFree" => queue_disk_free: Override<u64>, unit Bytes;
        /// As `limits.session.subscriptions`.
        live "subscriptions" => subscriptions: Override<u32>, range 1..=U32;
        /// As `limits.session.wildcardPatterns`.
        live "wildcardPatterns" => wildcard_patterns: Override<u32>, range 1..=U32;
        /// As `limits.session.subscriptionBytes`.
        live "subscriptionBytes" => subscription_bytes: Override<u64>, unit Bytes, range 1..=u64::MAX;
    }

    /// As `limits.connection`, where they are set.
    pub struct ClassConnectionLimits {
        /// As `limits.connection.bytesPerSecondIn`.
        live "bytesPerSecondIn" => bytes_per_second_in: Override<Option<NonZero<u64>>>, unit BytesPerSecond;
        /// As `limits.connection.bytesPerSecondOut`.
        live "bytesPerSecondOut" => bytes_per_second_out: Override<Option<NonZero<u64>>>, unit BytesPerSecond;
        /// As `limits.connection.publishesPerSecond`.
        live "publishesPerSecond" => publishes_per_second: Override<Option<NonZero<u32>>>;
        /// As `limits.connection.receiveMaximum`.
        live "receiveMaximum" => receive_maximum: Override<NonZero<u16>>, range 1..=U16;
        /// As `limits.connection.inflightMaximum`.
        live "inflightMaximum" => inflight_maximum: Override<NonZero<u16>>, range 1..=U16;
    }
}

impl ClientClassConfig {
    /// The limits that it has of its own: options from `limits` on, and their values.
    #[must_use]
    pub fn own_limits(&self) -> Vec<(String, String)> {
        let mut limits = self.limits.clone();
        let groups: [(&str, &mut dyn Section); 2] = [
            ("session", &mut limits.session),
            ("connection", &mut limits.connection),
        ];
        let mut own = Vec::new();
        for (group, options) in groups {
            for option in options.entries() {
                if let Slot::Setting(setting) = option.slot
                    && let Some(value) = setting.show(option.spec)
                {
                    own.push((format!("limits.{group}.{}", option.spec.key), value));
                }
            }
        }
        own
    }
}

impl ClassLimitsConfig {
    /// The limits of a client of the class.
    #[must_use]
    pub fn over(&self, limits: &Limits) -> Limits {
        let mut of = limits.clone();
        let (session, connection) = (&mut of.session, &mut of.connection);
        self.session
            .queue_messages
            .apply(&mut session.queue_messages);
        self.session.queue_bytes.apply(&mut session.queue_bytes);
        self.session.queue_full.apply(&mut session.queue_full);
        self.session
            .queue_full_away
            .apply(&mut session.queue_full_away);
        self.session.queue_age.apply(&mut session.queue_age);
        self.session
            .queue_age_warn
            .apply(&mut session.queue_age_warn);
        self.session
            .queue_disk_free
            .apply(&mut session.queue_disk_free);
        self.session.subscriptions.apply(&mut session.subscriptions);
        self.session
            .wildcard_patterns
            .apply(&mut session.wildcard_patterns);
        self.session
            .subscription_bytes
            .apply(&mut session.subscription_bytes);
        let own = &self.connection;
        own.bytes_per_second_in
            .apply(&mut connection.bytes_per_second_in);
        own.bytes_per_second_out
            .apply(&mut connection.bytes_per_second_out);
        own.publishes_per_second
            .apply(&mut connection.publishes_per_second);
        own.receive_maximum.apply(&mut connection.receive_maximum);
        own.inflight_maximum.apply(&mut connection.inflight_maximum);
        of
    }
}
