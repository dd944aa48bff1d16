//! The three values that nearly every packet carries: protocol version, quality of service, packet
//! identifier.
//!
//! Invariant: none of them can hold a value that the wire could not.

use std::num::NonZeroU16;

/// The protocol versions a network connection may speak; the numbers are the protocol levels of
/// CONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ProtocolVersion {
    /// MQTT 3.1 (`MQIsdp`, level 3).
    V3_1 = 3,
    /// MQTT 3.1.1 (`MQTT`, level 4).
    V3_1_1 = 4,
    /// MQTT 5.0 (`MQTT`, level 5).
    V5 = 5,
}

impl ProtocolVersion {
    /// Whether packets of this version carry properties and reason codes.
    #[inline]
    pub const fn is_v5(self) -> bool {
        matches!(self, Self::V5)
    }

    /// The protocol name that CONNECT of this version carries.
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::V3_1 => "MQIsdp",
            Self::V3_1_1 | Self::V5 => "MQTT",
        }
    }
}

/// Quality of service of an application message or a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum QoS {
    /// QoS 0.
    #[default]
    AtMostOnce = 0,
    /// QoS 1.
    AtLeastOnce = 1,
    /// QoS 2.
    ExactlyOnce = 2,
}

impl QoS {
    /// The level with this number; `None` above 2.
    #[inline]
    pub const fn from_u8(level: u8) -> Option<Self> {
        match level {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }

    /// The number of this level.
    #[inline]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

/// A packet identifier: 1..=65,535.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The lowest packet identifier.
    pub const FIRST: Self = Self(NonZeroU16::MIN);

    /// `None` for 0, which identifies no packet.
    #[inline]
    pub const fn new(id: u16) -> Option<Self> {
        match NonZeroU16::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The identifier as it stands on the wire.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// The identifier after this one; 65,535 is followed by 1.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(id) => Self(id),
            None => Self::FIRST,
        }
    }
}

impl std::fmt::Display for PacketId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_identifier_is_never_zero() {
        assert_eq!(PacketId::new(0), None);
        assert_eq!(PacketId::new(65_535).map(|id| id.next().get()), Some(1));
        assert_eq!(PacketId::new(7).map(|id| id.next().get()), Some(8));
    }

    #[test]
    fn qos_orders_by_strength() {
        assert_eq!(QoS::ExactlyOnce.min(QoS::AtLeastOnce), QoS::AtLeastOnce);
        assert_eq!(QoS::from_u8(3), None);
        for level in 0..=2 {
            assert_eq!(QoS::from_u8(level).map(QoS::as_u8), Some(level));
        }
    }
}
