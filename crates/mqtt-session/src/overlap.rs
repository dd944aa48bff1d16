//! Overlapping subscriptions: what a session gets of a message that several of its subscriptions match.
//!
//! Invariant: a session gets a message once, with the highest QoS and all subscription identifiers of the
//! subscriptions that match.
//!
//! Deliberately absent: which subscriptions match; shared subscriptions, whose messages each come by
//! themselves.

use mqtt_proto::{QoS, SubscriptionOptions};

use crate::SubscriptionIdSet;

/// What a subscription asks for, beside its filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Subscription Identifier; 0: none.
    pub id: u32,
    /// The QoS granted.
    pub qos: QoS,
    /// Not what the session itself publishes.
    pub no_local: bool,
    /// With the RETAIN flag of the publication.
    pub retain_as_published: bool,
    /// The session is a durable one.
    pub durable: bool,
}

impl Wanted {
    /// Of a session that is not durable. `id`: Subscription Identifier; 0: none.
    #[must_use]
    pub fn new(options: SubscriptionOptions, id: u32) -> Self {
        Self {
            id,
            qos: options.qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            durable: false,
        }
    }

    /// The same of a durable session.
    #[must_use]
    pub fn of_durable(self) -> Self {
        Self {
            durable: true,
            ..self
        }
    }

    /// The Subscription Identifier, for a message of this subscription alone.
    #[must_use]
    pub fn ids(self) -> SubscriptionIdSet {
        if self.id == 0 {
            SubscriptionIdSet::None
        } else {
            SubscriptionIdSet::One(self.id)
        }
    }
}

/// A session that gets a message, once. `S`: what names it.
#[derive(Clone, Debug)]
pub struct Target<S> {
    /// The session.
    pub session: S,
    /// Identifiers of the subscriptions that match.
    pub ids: SubscriptionIdSet,
    /// The highest QoS granted to these.
    pub qos: QoS,
    /// One of these asks for the RETAIN flag of the publication.
    pub retain_as_published: bool,
    /// The session is a durable one.
    pub durable: bool,
    publishers: Publishers,
}

/// Whose messages a target gets. With overlapping subscriptions of which some are No Local, a session
/// has two targets: one for its own messages and one for all others'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Publishers {
    Anybody,
    Others,
    ItselfOnly,
}

impl<S: Copy + Ord> Target<S> {
    /// Makes targets of the subscriptions that match, given with the sessions that have them: in the order
    /// of the sessions.
    #[must_use]
    pub fn merge(mut matching: Vec<(S, Wanted)>) -> Vec<Self> {
        matching.sort_unstable_by_key(|(session, wanted)| (*session, wanted.id));
        let mut targets = Vec::with_capacity(matching.len());
        for same in matching.chunk_by(|a, b| a.0 == b.0) {
            if same.iter().any(|(_, wanted)| wanted.no_local) {
                targets.extend(Self::of(same.iter(), Publishers::Others));
                let own = same.iter().filter(|(_, wanted)| !wanted.no_local);
                targets.extend(Self::of(own, Publishers::ItselfOnly));
            } else {
                targets.extend(Self::of(same.iter(), Publishers::Anybody));
            }
        }
        targets
    }

    /// The target that subscriptions of one session come to; `None`: there are none.
    fn of<'a>(same: impl Iterator<Item = &'a (S, Wanted)>, publishers: Publishers) -> Option<Self>
    where
        S: 'a,
    {
        let mut merged: Option<Self> = None;
        for (session, wanted) in same {
            let target = merged.get_or_insert(Self {
                session: *session,
                ids: SubscriptionIdSet::None,
                qos: wanted.qos,
                retain_as_published: false,
                durable: wanted.durable,
                publishers,
            });
            // [MQTT-3.3.4-2] the highest QoS of all matching subscriptions
            target.qos = target.qos.max(wanted.qos);
            target.retain_as_published |= wanted.retain_as_published;
            // [MQTT-3.3.4-3] [MQTT-3.3.4-4] one copy carries the identifiers of all of them
            if wanted.id != 0 {
                target.ids.push(wanted.id);
            }
        }
        merged
    }

    /// Whether a message is for the target. `is_own`: the session itself published it.
    pub fn wants(&self, is_own: impl FnOnce() -> bool) -> bool {
        match self.publishers {
            Publishers::Anybody => true,
            // [MQTT-3.8.3-3] not to the client that published it, if No Local is set
            Publishers::Others => !is_own(),
            Publishers::ItselfOnly => is_own(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(qos: QoS, no_local: bool, id: u32) -> Wanted {
        Wanted {
            id,
            qos,
            no_local,
            retain_as_published: id == 9,
            durable: false,
        }
    }

    #[test]
    fn overlapping_subscriptions_are_one_target() {
        // [MQTT-3.3.4-2] [MQTT-3.3.4-4]
        let matching = vec![
            (2, wanted(QoS::AtMostOnce, false, 0)),
            (1, wanted(QoS::AtMostOnce, false, 9)),
            (1, wanted(QoS::ExactlyOnce, false, 7)),
            (1, wanted(QoS::AtLeastOnce, false, 0)),
        ];
        let targets = Target::merge(matching);
        let [first, second] = &*targets else {
            panic!("{targets:?}")
        };
        assert_eq!((first.session, second.session), (1, 2));
        assert_eq!(first.qos, QoS::ExactlyOnce);
        assert_eq!(first.ids.as_slice(), [7, 9]);
        assert!(first.retain_as_published && !second.retain_as_published);
        assert!(first.wants(|| true) && first.wants(|| false));
    }

    #[test]
    fn no_local_on_one_of_two_subscriptions_spares_the_other() {
        // [MQTT-3.8.3-3]
        let targets = Target::merge(vec![
            (1, wanted(QoS::ExactlyOnce, true, 7)),
            (1, wanted(QoS::AtLeastOnce, false, 9)),
        ]);
        let qos_for = |publisher| {
            let wanting = targets
                .iter()
                .filter(|t| t.wants(|| t.session == publisher));
            wanting.map(|t| t.qos).collect::<Vec<_>>()
        };
        assert_eq!(qos_for(2), [QoS::ExactlyOnce]);
        assert_eq!(qos_for(1), [QoS::AtLeastOnce]);
    }
}
