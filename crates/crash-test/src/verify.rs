//! Judges a [`Model`]: what must have arrived and has not, what must not have and has.
//!
//! Invariant: a violation is reported only where no order of events that the clients could not see would
//! make it right. What a crash leaves open (unacknowledged messages, a will whose DISCONNECT was on its
//! way) may come out either way.
//!
//! Order is judged by first receipts, per subscriber, publisher and QoS of publishing; not among members
//! of a shared subscription, and not for what was first sent before the subscription was in force.

mod delivery;
mod loss;
mod service;

#[cfg(test)]
mod tests;

use std::fmt::{self, Write};

use crate::model::{At, ClientIndex, MessageIndex, Model};

pub use loss::missing;

/// A promise that was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// An acknowledged message did not arrive.
    Lost,
    /// A message that a subscription must bring did not come at all after a drain: the subscription is
    /// gone.
    SubscriptionLost,
    /// A will that must be published was not.
    WillLost,
    /// A message came more often than it may.
    Duplicate,
    /// A will came more often than once.
    WillTwice,
    /// A will of a client that disconnected normally, or whose delay is not over.
    WillWithdrawn,
    /// A message came before one that was sent earlier.
    Reordered,
    /// A message that was sent again to a client came without DUP.
    DupMissing,
    /// A packet identifier was used for another message before PUBREL.
    IdentifierReused,
    /// A message that no subscription of the client can have brought.
    Stray,
    /// CONNACK said that there is no session although there was.
    SessionLost,
    /// PUBREL for a message that the client holds never came.
    ReleaseMissing,
    /// A message was never acknowledged although the server was there.
    NeverAcknowledged,
    /// A retained message that is not the last one.
    RetainedWrong,
    /// A message was acknowledged while the disk took nothing.
    AcknowledgedOnFullDisk,
    /// While the disk was full, clients without a session were not served.
    NotServedOnFullDisk,
    /// After the disk was full, nothing was acknowledged any more.
    NotRecoveredFromFullDisk,
    /// The broker ended by itself, or not in order when it was told to.
    BrokerEnded,
    /// The broker sent something that it must not send.
    ProtocolBroken,
}

impl Kind {
    /// In words.
    #[must_use]
    pub const fn statement(self) -> &'static str {
        match self {
            Self::Lost => "an acknowledged message was lost",
            Self::SubscriptionLost => "a subscription was lost",
            Self::WillLost => "a will was not published",
            Self::Duplicate => "a message arrived too often",
            Self::WillTwice => "a will was published twice",
            Self::WillWithdrawn => "a will was published that must not be",
            Self::Reordered => "a message overtook another",
            Self::DupMissing => "a message was sent again without DUP",
            Self::IdentifierReused => "a packet identifier was used again before PUBREL",
            Self::Stray => "a message arrived without a subscription",
            Self::SessionLost => "a session was lost",
            Self::ReleaseMissing => "an owed PUBREL never came",
            Self::NeverAcknowledged => "a message was never acknowledged",
            Self::RetainedWrong => "a retained message is wrong",
            Self::AcknowledgedOnFullDisk => "a message was acknowledged while the disk was full",
            Self::NotServedOnFullDisk => "clients without a session were not served on a full disk",
            Self::NotRecoveredFromFullDisk => "nothing was acknowledged after the disk was full",
            Self::BrokerEnded => "the broker ended by itself or in disorder",
            Self::ProtocolBroken => "the broker sent what it must not send",
        }
    }
}

/// A broken promise, where and when.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Violation {
    /// Which promise.
    pub kind: Kind,
    /// To whom.
    pub client: Option<ClientIndex>,
    /// About what.
    pub message: Option<MessageIndex>,
    /// When it was seen, or when what was lost was acknowledged.
    pub at: At,
    /// More, for people.
    pub detail: String,
}

impl Violation {
    fn new(kind: Kind, client: ClientIndex, message: MessageIndex, at: At) -> Self {
        Self {
            kind,
            client: Some(client),
            message: Some(message),
            at,
            detail: String::new(),
        }
    }

    fn with(mut self, detail: String) -> Self {
        self.detail = detail;
        self
    }

    /// With the message's history.
    #[must_use]
    pub fn describe(&self, model: &Model) -> String {
        let mut text = self.to_string();
        if let Some(client) = self.client {
            let _ = write!(text, ", client {}", model.clients[client].name);
        }
        if let Some(message) = self.message {
            let _ = write!(text, ", message {message}");
        }
        if !self.detail.is_empty() {
            let _ = write!(text, ": {}", self.detail);
        }
        text.push('\n');
        if let Some(message) = self.message {
            text.push_str(&model.history(message));
        }
        text
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [{:?}], {}",
            self.kind.statement(),
            self.kind,
            self.at
        )
    }
}

/// All violations of a run so far, after a drain.
#[must_use]
pub fn verify(model: &Model) -> Vec<Violation> {
    let mut found = delivery::check(model);
    found.extend(loss::check(model));
    found.extend(service::check(model));
    found.sort_by_key(|violation| violation.at);
    found
}
