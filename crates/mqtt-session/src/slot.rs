//! The state of one packet identifier towards the client.
//!
//! Deliberately absent: the identifier itself, which `outbound.rs` knows by the slot's place.

use crate::Delivery;

/// The state of one packet identifier.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Done, but an older one is not.
    Acknowledged,
    /// PUBLISH was sent: waits for PUBACK or PUBREC.
    Publish(Delivery),
    /// PUBREC came, and the store records it: waits for that, then for PUBCOMP.
    Receipt,
    /// PUBREC came: waits for PUBCOMP.
    PubRel,
}

impl Slot {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Publish(delivery) => delivery.bytes(),
            Self::Acknowledged | Self::Receipt | Self::PubRel => 0,
        }
    }

    pub(crate) fn into_delivery(self) -> Option<Delivery> {
        match self {
            Self::Publish(delivery) => Some(delivery),
            Self::Acknowledged | Self::Receipt | Self::PubRel => None,
        }
    }
}
