//! An application message and what became of it at its publisher.

use mqtt_proto::{QoS, ReasonCode};

use super::{At, ClientIndex};

/// Why a message was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// As load.
    Load,
    /// To see whether a subscription is still there.
    Probe,
    /// The server publishes it when a connection ends.
    Will,
}

/// What the publisher knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing: it may arrive.
    Pending,
    /// It must arrive.
    Acknowledged(At),
    /// It may arrive.
    Refused(At, ReasonCode),
    /// A will that must not arrive.
    Withdrawn(At),
}

/// An application message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Why it was sent.
    pub origin: Origin,
    /// By whom.
    pub publisher: ClientIndex,
    /// Where to.
    pub topic: String,
    /// Of publishing.
    pub qos: QoS,
    /// Whether the server is to keep it.
    pub retain: bool,
    /// Whether it has no payload, and so clears what is retained.
    pub clears: bool,
    /// When a PUBLISH with it left the publisher; of a will: CONNECT.
    pub sends: Vec<At>,
    /// What became of it.
    pub outcome: Outcome,
    /// At QoS 2: when PUBCOMP came.
    pub completed: Option<At>,
}

impl Message {
    /// One that was not sent yet.
    #[must_use]
    pub fn new(origin: Origin, publisher: ClientIndex, topic: String, qos: QoS) -> Self {
        Self {
            origin,
            publisher,
            topic,
            qos,
            retain: false,
            clears: false,
            sends: Vec::new(),
            outcome: Outcome::Pending,
            completed: None,
        }
    }

    /// When it was first sent.
    #[must_use]
    pub fn first_sent(&self) -> At {
        self.sends.first().copied().unwrap_or_default()
    }

    /// When it was acknowledged, if it was.
    #[must_use]
    pub fn acknowledged(&self) -> Option<At> {
        match self.outcome {
            Outcome::Acknowledged(at) => Some(at),
            _ => None,
        }
    }

    /// When the server had found its subscribers for sure. At QoS 2 it may do so at PUBREL only (5.0
    /// §4.3.3). Of a will nobody is told: the server publishes it after its delay, or when it runs again.
    #[must_use]
    pub fn routed(&self) -> Option<At> {
        match (self.origin, self.qos) {
            (Origin::Will, _) => None,
            (Origin::Load | Origin::Probe, QoS::ExactlyOnce) => self.completed,
            (Origin::Load | Origin::Probe, _) => self.acknowledged(),
        }
    }

    pub(super) fn facts(&self, publisher: &str) -> Vec<(At, String)> {
        let what = match self.origin {
            Origin::Will => "connected with it as will",
            Origin::Load | Origin::Probe => "published it",
        };
        let detail = format!(
            "{publisher} {what}: {}, QoS {}{}",
            self.topic,
            self.qos.as_u8(),
            if self.retain { ", retained" } else { "" }
        );
        let mut facts: Vec<(At, String)> =
            self.sends.iter().map(|at| (*at, detail.clone())).collect();
        match self.outcome {
            Outcome::Pending => {}
            Outcome::Acknowledged(at) if self.origin == Origin::Will => {
                facts.push((
                    at,
                    "its connection has ended; it must be published".to_owned(),
                ));
            }
            Outcome::Acknowledged(at) => facts.push((at, "acknowledged".to_owned())),
            Outcome::Refused(at, reason) => facts.push((at, format!("refused: {reason:?}"))),
            Outcome::Withdrawn(at) => facts.push((at, "must not be published".to_owned())),
        }
        facts.extend(self.completed.map(|at| (at, "completed".to_owned())));
        facts
    }
}
