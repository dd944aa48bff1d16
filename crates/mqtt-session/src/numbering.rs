//! What a client is told of how the store numbers its connections and messages, if it is one that asks for it: an outlet of
//! the broker, which has to know which messages its target has already.
//!
//! | User Property | in | value, in decimal |
//! |---|---|---|
//! | `hmq-epoch` | CONNACK | the epoch of the network connection |
//! | `hmq-position` | PUBLISH with QoS 1 or 2, of a durable session | the incarnation of the inbox, a full stop, the sequence number |
//!
//! Invariant: a message has the same position each time that it is sent, on whatever network connection; positions of one
//! incarnation ascend with the sequence numbers.
//!
//! Deliberately absent: who is told.

use std::num::NonZeroU64;

use mqtt_proto::UserProperties;

/// The User Property that holds an [`Epoch`].
const EPOCH: &str = "hmq-epoch";

/// The User Property that holds a position.
pub(crate) const POSITION: &str = "hmq-position";

/// The epoch that the store has given a network connection: higher than that of each earlier one of the client identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u64);

/// What tells an inbox from all others that a client identifier has had: the epoch that its session began with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Incarnation(pub NonZeroU64);

impl Epoch {
    /// The User Properties of CONNACK, laid out in `buffer`.
    pub(crate) fn lay_out(self, buffer: &mut Vec<u8>) -> UserProperties<'_> {
        let laid_out = UserProperties::encode_from(&[(EPOCH, &self.0.to_string())], buffer);
        laid_out.expect("digits are a text of MQTT")
    }
}

impl Incarnation {
    /// The position of a message of the inbox, by its sequence number.
    pub(crate) fn position_of(self, sequence: u64) -> String {
        format!("{}.{sequence}", self.0)
    }
}
