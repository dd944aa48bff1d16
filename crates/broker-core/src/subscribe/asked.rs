//! What an operator wants to become of a subscription.

use std::fmt;

use mqtt_proto::ReasonCode;
use store_state::inbox::StoredSubscription;

use crate::key::SessionKey;

/// What is to become of one subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is made, or replaced.
    Subscribe(StoredSubscription),
    /// That with this filter, as it was given at SUBSCRIBE, is removed.
    Unsubscribe(Box<str>),
}

/// Changes a subscription of a connected client.
pub struct ChangeSubscription {
    /// The session, of the asked loop.
    pub session: SessionKey,
    /// Whose it was when this was asked: the slot may have another one since.
    pub client_id: Box<str>,
    /// What is to be done.
    pub change: Change,
    /// Takes what was done. Called on the loop's thread: it must not wait. It is dropped if the connection ends first.
    pub answer: Box<dyn FnOnce(Changed) + Send>,
}

impl fmt::Debug for ChangeSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeSubscription")
            .field("session", &self.session)
            .field("change", &self.change)
            .finish_non_exhaustive()
    }
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// The client is not connected here.
    NotHere,
    /// It waits for an answer to something that it has sent itself.
    Busy,
    /// The reason code that SUBACK or UNSUBACK would have.
    Answered(ReasonCode),
}
