//! A subscription and the times in which it was, or may have been, in force.

use mqtt_proto::QoS;

use super::{At, ClientIndex, Message, filter};

/// A time in which a subscription may have been in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// SUBSCRIBE was first sent: from here it may be.
    pub asked: At,
    /// SUBACK came: from here it is.
    pub granted: Option<At>,
    /// UNSUBSCRIBE was first sent: from here it may not be.
    pub leaving: Option<At>,
    /// UNSUBACK came, or the session was lost: from here it is not.
    pub ended: Option<At>,
}

/// A filter of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// Whose.
    pub client: ClientIndex,
    /// What for; of a shared subscription with `$share/…` in front.
    pub filter: String,
    /// Highest QoS.
    pub qos: QoS,
    /// In their order; all but the last have ended.
    pub periods: Vec<Period>,
}

impl Subscription {
    pub(super) fn new(client: ClientIndex, filter: &str, qos: QoS) -> Self {
        Self {
            client,
            filter: filter.to_owned(),
            qos,
            periods: Vec::new(),
        }
    }

    /// Whether members share its messages.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.filter.starts_with("$share/")
    }

    /// Whether it matches a topic.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        filter::matches(&self.filter, topic)
    }

    fn open(&mut self) -> Option<&mut Period> {
        self.periods
            .last_mut()
            .filter(|period| period.ended.is_none())
    }

    pub(super) fn ask(&mut self, at: At) {
        if self.open().is_none() {
            self.periods.push(Period {
                asked: at,
                granted: None,
                leaving: None,
                ended: None,
            });
        }
    }

    pub(super) fn grant(&mut self, at: At) {
        if let Some(period) = self.open() {
            period.granted.get_or_insert(at);
        }
    }

    pub(super) fn leave(&mut self, at: At) {
        if let Some(period) = self.open() {
            period.leaving.get_or_insert(at);
        }
    }

    pub(super) fn end(&mut self, at: At) {
        if let Some(period) = self.open() {
            period.leaving.get_or_insert(at);
            period.ended = Some(at);
        }
    }

    /// Whether a message must arrive: it was acknowledged, and the subscription in force before it was
    /// first sent and after it was routed.
    #[must_use]
    pub fn must_receive(&self, message: &Message) -> bool {
        message.acknowledged().is_some()
            && self.matches(&message.topic)
            && self.periods.iter().any(|period| {
                let routed_before = |leaving| message.routed().is_some_and(|at| at < leaving);
                period
                    .granted
                    .is_some_and(|granted| granted <= message.first_sent())
                    && period.leaving.is_none_or(routed_before)
            })
    }

    /// Whether a message may arrive: any of its sends may have met the subscription.
    #[must_use]
    pub fn may_receive(&self, message: &Message) -> bool {
        self.matches(&message.topic)
            && self.periods.iter().any(|period| {
                message.routed().is_none_or(|routed| period.asked <= routed)
                    && period
                        .ended
                        .is_none_or(|ended| message.first_sent() <= ended)
            })
    }
}
