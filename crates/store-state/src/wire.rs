//! How types of other crates are written into batches and tables, and sent to other nodes.
//!
//! Invariant: what is written here stands on disks. A change of it is a new format number.

use std::sync::Arc;

use mqtt_proto::{MessageBody, PacketId, ProtocolVersion, QoS, SubscriptionOptions};
use mqtt_session::{
    ApplicationMessage, ClassId, NEVER_EXPIRES, PacketIdSet, Qos0Inbox, QueueFull,
    SubscriptionIdSet, Timestamp,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares how a type without serde of its own is written: as another one that has it.
macro_rules! through {
    ($name:ident: $of:ty as $through:ty, $write:expr, $read:expr) => {
        pub(crate) mod $name {
            use crate::wire::*;

            pub(crate) fn serialize<S: Serializer>(value: &$of, to: S) -> Result<S::Ok, S::Error> {
                let written: $through = $write(value);
                written.serialize(to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$of, D::Error> {
                let read: Option<$of> = $read(<$through>::deserialize(from)?);
                read.ok_or_else(|| D::Error::custom(concat!("no ", stringify!($name))))
            }
        }
    };
}

through!(qos: QoS as u8, |qos: &QoS| qos.as_u8(), QoS::from_u8);

through!(options: SubscriptionOptions as u8, |options: &SubscriptionOptions| options.to_byte(),
    |byte| SubscriptionOptions::from_byte(byte, ProtocolVersion::V5).ok());

through! {
    class: ClassId as u32,
    |class: &ClassId| class.0, |class| Some(ClassId(class))
}

/// The limits of a queue as they are written: messages, bytes, and the rest.
#[derive(Serialize, Deserialize)]
pub(crate) struct QueueLimits(u32, u64, #[serde(with = "queue_full")] WhenFull);

/// What happens when a queue is full, and whether it is closed.
struct WhenFull {
    full: QueueFull,
    is_closed: bool,
}

impl From<crate::QueueLimits> for QueueLimits {
    fn from(limits: crate::QueueLimits) -> Self {
        let (full, is_closed) = (limits.full, limits.is_closed);
        Self(limits.messages, limits.bytes, WhenFull { full, is_closed })
    }
}

impl From<QueueLimits> for crate::QueueLimits {
    fn from(written: QueueLimits) -> Self {
        let QueueLimits(messages, bytes, WhenFull { full, is_closed }) = written;
        Self {
            messages,
            bytes,
            full,
            is_closed,
        }
    }
}

/// A byte, and seconds if they follow. Earlier versions do not read that of a closed queue.
mod queue_full {
    use std::fmt;

    use serde::de::{SeqAccess, Visitor};

    use super::*;

    const REFUSE_FOR: u8 = 3;

    /// Added for a closed queue.
    const CLOSED: u8 = 4;

    pub(super) fn serialize<S: Serializer>(when: &WhenFull, to: S) -> Result<S::Ok, S::Error> {
        let closed = if when.is_closed { CLOSED } else { 0 };
        let byte = match when.full {
            QueueFull::DropOldest => 0u8,
            QueueFull::DropNewest => 1,
            QueueFull::Refuse {
                away_secs: NEVER_EXPIRES,
            } => 2,
            QueueFull::Refuse { away_secs } => {
                return (REFUSE_FOR + closed, away_secs).serialize(to);
            }
        };
        (byte + closed).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<WhenFull, D::Error> {
        from.deserialize_tuple(2, Read)
    }

    struct Read;

    impl<'de> Visitor<'de> for Read {
        type Value = WhenFull;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("what happens when a queue is full")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<WhenFull, A::Error> {
            let byte = from.next_element::<u8>()?.unwrap_or(u8::MAX);
            let (is_closed, policy) = match byte.checked_sub(CLOSED) {
                Some(policy) => (true, policy),
                None => (false, byte),
            };
            let full = match policy {
                0 => QueueFull::DropOldest,
                1 => QueueFull::DropNewest,
                2 => QueueFull::REFUSE,
                REFUSE_FOR => match from.next_element()? {
                    Some(away_secs) => QueueFull::Refuse { away_secs },
                    None => return Err(A::Error::custom("the seconds are missing")),
                },
                _ => return Err(A::Error::custom("no queue_full")),
            };
            Ok(WhenFull { full, is_closed })
        }
    }
}

through!(qos0_inbox: Qos0Inbox as u8, |qos0: &Qos0Inbox| match qos0 {
    Qos0Inbox::Offline => 0,
    Qos0Inbox::Always => 1,
    Qos0Inbox::Never => 2,
}, |byte| match byte {
    0 => Some(Qos0Inbox::Offline),
    1 => Some(Qos0Inbox::Always),
    2 => Some(Qos0Inbox::Never),
    _ => None,
});

through!(subscription_ids: SubscriptionIdSet as Vec<u32>, |ids: &SubscriptionIdSet| ids.as_slice().to_vec(),
    |ids: Vec<u32>| Some(ids.into_iter().collect()));

through!(packet_ids: PacketIdSet as Vec<u16>, |ids: &PacketIdSet| ids.iter().map(PacketId::get).collect(),
    |ids: Vec<u16>| ids.into_iter().map(PacketId::new).collect());

/// A message: its flags in one byte, expiry, and its bytes as they were laid out once. Who published it
/// is not written: that is a matter of the process.
pub mod message {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Written<'a> {
        /// QoS in bits 0 and 1, RETAIN in bit 2.
        flags: u8,
        /// Unix time in ms; 0: never.
        expires_at: u64,
        properties_len: u32,
        #[serde(borrow)]
        bytes: Bytes<'a>,
    }

    /// Bytes at once instead of one by one.
    struct Bytes<'a>(&'a [u8]);

    impl Serialize for Bytes<'_> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_bytes(self.0)
        }
    }

    impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            <&[u8]>::deserialize(from).map(Bytes)
        }
    }

    /// Writes a message.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        message: &Arc<ApplicationMessage>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        Written {
            flags: message.qos.as_u8() | u8::from(message.retain) << 2,
            expires_at: message.expires_at.map_or(0, |at| at.0),
            properties_len: message.body.forwarded_properties_len() as u32,
            bytes: Bytes(message.body.as_bytes()),
        }
        .serialize(to)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// There is none.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Arc<ApplicationMessage>, D::Error> {
        let written = Written::deserialize(from)?;
        let qos = QoS::from_u8(written.flags & 0b11);
        let body = MessageBody::from_bytes(written.bytes.0.into(), written.properties_len);
        let (Some(qos), Some(body)) = (qos, body) else {
            return Err(D::Error::custom("no message"));
        };
        Ok(Arc::new(ApplicationMessage {
            body,
            qos,
            retain: written.flags & 0b100 != 0,
            publisher: 0,
            publisher_hash: 0,
            expires_at: Some(Timestamp(written.expires_at)).filter(|at| at.0 != 0),
            taken_up: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Holder(#[serde(with = "message")] Arc<ApplicationMessage>);

    #[test]
    fn a_message_comes_back_as_it_was() {
        let before = ApplicationMessage {
            body: MessageBody::new("a/b", b"payload"),
            qos: QoS::ExactlyOnce,
            retain: true,
            publisher: 77,
            publisher_hash: 0,
            expires_at: Some(Timestamp(5)),
            taken_up: None,
        };
        let bytes = postcard::to_stdvec(&Holder(Arc::new(before.clone()))).unwrap();
        let Holder(after) = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(after.body, before.body);
        assert_eq!(
            (after.qos, after.retain, after.expires_at, after.publisher),
            (before.qos, before.retain, before.expires_at, 0)
        );
        for cut in 0..bytes.len() {
            assert!(postcard::from_bytes::<Holder>(&bytes[..cut]).is_err());
        }
    }
}
