//! How long messages are kept in queues, and how many bytes queues may have together; and which retained messages are kept.
//!
//! No replica goes by these: whoever leads a shard proposes what is dropped ([`InboxOp::Trim`](crate::inbox::InboxOp::Trim)).

use std::num::NonZero;

use mqtt_session::ClassId;

use crate::retain::RetainedRules;

/// What is kept in the queues of the sessions of each class, and of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// Of sessions that are of no class, or of one that is not known.
    pub device: QueueRetention,
    /// Of those of a class.
    pub classes: Vec<(ClassId, QueueRetention)>,
    /// How long a member of a shared group may be away before what waits for it goes to others of the group, in ms; `None`: for
    /// ever ([`RetentionLimit::Away`](crate::inbox::RetentionLimit::Away)).
    pub handover_away_ms: Option<NonZero<u64>>,
    /// Accounted bytes of all queues that a node keeps, as the leader of their shard or not; `None`: no limit.
    pub node_bytes: Option<NonZero<u64>>,
    /// Which retained messages are kept.
    pub retained: RetainedRules,
}

/// What is kept in the queues of the sessions of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueRetention {
    /// How long a message is kept, in ms; `None`: no limit.
    pub age_ms: Option<NonZero<u64>>,
    /// Accounted bytes of all queues of the class that a node keeps; `None`: no limit.
    pub class_bytes: Option<NonZero<u64>>,
    /// The age of the oldest message at which the log says that a session lags, in ms; `None`: at none.
    pub warn_ms: Option<NonZero<u64>>,
}

impl Retention {
    /// Of the sessions of a class.
    #[must_use]
    pub fn of(&self, class: ClassId) -> QueueRetention {
        let found = self.classes.iter().find(|(known, _)| *known == class);
        found.map_or(self.device, |(_, own)| *own)
    }
}
