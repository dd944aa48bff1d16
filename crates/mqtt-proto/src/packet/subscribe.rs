//! SUBSCRIBE (§3.8): topic filters and their options.
//!
//! Invariant: a decoded list has at least one entry and every entry was checked, so that walking it
//! again cannot fail.
//!
//! Deliberately absent: whether a filter is a topic filter. The server answers that filter by filter in
//! SUBACK; here a filter is a UTF-8 string that is not empty.

use crate::codec::{Reader, put_frame, put_string, put_u16};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, ProtocolVersion, QoS, SharedKind,
    SubscribeProperties,
};

const QOS: u8 = 0b0000_0011;
const NO_LOCAL: u8 = 0b0000_0100;
const RETAIN_AS_PUBLISHED: u8 = 0b0000_1000;
const RESERVED: u8 = 0b1100_0000;

/// Asks for subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscribe<'a> {
    /// Identifier that SUBACK repeats.
    pub packet_id: PacketId,
    /// Empty before 5.0.
    pub properties: SubscribeProperties<'a>,
    /// Topic filters with options, at least one.
    pub filters: SubscribeFilters<'a>,
}

/// When retained messages are sent for a new subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum RetainHandling {
    /// At each SUBSCRIBE.
    #[default]
    SendAtSubscribe = 0,
    /// Only if the subscription did not exist.
    SendIfNew = 1,
    /// Never.
    DoNotSend = 2,
}

/// Options of one subscription. Before 5.0 there is only `qos`, and the rest is as in `default()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct SubscriptionOptions {
    /// Highest QoS of deliveries.
    pub qos: QoS,
    /// Whether the client's own messages are left out.
    pub no_local: bool,
    /// Whether deliveries keep the RETAIN flag they were published with.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

impl SubscriptionOptions {
    /// These options as a byte of 5.0 (§3.8.3.1).
    pub const fn to_byte(self) -> u8 {
        self.qos.as_u8()
            | if self.no_local { NO_LOCAL } else { 0 }
            | if self.retain_as_published {
                RETAIN_AS_PUBLISHED
            } else {
                0
            }
            | (self.retain_handling as u8) << 4
    }

    /// Reads the byte that follows a topic filter.
    ///
    /// # Errors
    /// Reserved bits, QoS 3, retain handling 3.
    pub const fn from_byte(byte: u8, version: ProtocolVersion) -> Result<Self, DecodeError> {
        // [MQTT-3.8.3-5] [MQTT3-3.8.3-4] reserved bits are 0; before 5.0 all but QoS are reserved.
        let reserved = if version.is_v5() { RESERVED } else { !QOS };
        if byte & reserved != 0 {
            return Err(DecodeError::ReservedSubscriptionOptions);
        }
        // [MQTT3-3.8.3-4] no QoS 3 (5.0 §3.8.3.1).
        let Some(qos) = QoS::from_u8(byte & QOS) else {
            return Err(DecodeError::SubscriptionQosInvalid);
        };
        let retain_handling = match byte >> 4 & 0b11 {
            0 => RetainHandling::SendAtSubscribe,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(DecodeError::RetainHandlingInvalid),
        };
        Ok(Self {
            qos,
            no_local: byte & NO_LOCAL != 0,
            retain_as_published: byte & RETAIN_AS_PUBLISHED != 0,
            retain_handling,
        })
    }
}

/// The topic filters of a SUBSCRIBE with their options, in order.
#[derive(Clone, Copy)]
pub struct SubscribeFilters<'a> {
    /// As in the payload of 5.0; the byte of earlier versions is read the same.
    payload: &'a [u8],
    count: u32,
}

impl<'a> SubscribeFilters<'a> {
    fn decode(payload: &'a [u8], version: ProtocolVersion) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let mut count = 0;
        while !reader.is_empty() {
            // [MQTT-3.8.3-1] [MQTT3-3.8.3-1] UTF-8 strings.
            let filter = reader.string()?;
            let options = SubscriptionOptions::from_byte(reader.u8()?, version)?;
            // [MQTT-4.7.3-1] [MQTT3-4.7.3-1] at least one character.
            if filter.is_empty() {
                return Err(DecodeError::TopicFilterEmpty(PacketType::Subscribe));
            }
            // [MQTT-3.8.3-4] no local has no meaning among members of a group.
            if options.no_local && filter.starts_with(SharedKind::Share.prefix()) {
                return Err(DecodeError::NoLocalOnSharedSubscription);
            }
            count += 1;
        }
        // [MQTT-3.8.3-2] [MQTT3-3.8.3-3] at least one.
        if count == 0 {
            return Err(DecodeError::NoTopicFilter(PacketType::Subscribe));
        }
        Ok(Self { payload, count })
    }

    /// Lays `filters` out at the end of `buffer`.
    ///
    /// # Errors
    /// No filter, a filter that is empty, has U+0000 or more than 65,535 bytes, no local on a shared
    /// subscription; `buffer` is then unchanged.
    pub fn encode_from(
        filters: &[(&str, SubscriptionOptions)],
        buffer: &'a mut Vec<u8>,
    ) -> Result<Self, EncodeError> {
        let start = buffer.len();
        if filters.is_empty() {
            return Err(EncodeError::NoTopicFilter);
        }
        for (filter, options) in filters {
            let appended = if options.no_local && filter.starts_with(SharedKind::Share.prefix()) {
                Err(EncodeError::NoLocalOnSharedSubscription)
            } else if filter.is_empty() {
                Err(EncodeError::TopicFilterEmpty)
            } else {
                put_string(filter, buffer)
            };
            if let Err(error) = appended {
                buffer.truncate(start);
                return Err(error);
            }
            buffer.push(options.to_byte());
        }
        let count = filters.len() as u32;
        Ok(Self {
            payload: buffer.get(start..).unwrap_or_default(),
            count,
        })
    }

    /// Filters and options, in order.
    pub fn iter(&self) -> SubscribeFiltersIter<'a> {
        SubscribeFiltersIter {
            reader: Reader::new(self.payload),
        }
    }

    /// Number of filters.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one filter")]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version.is_v5() {
            out.extend_from_slice(self.payload);
            return Ok(());
        }
        for (filter, options) in self.iter() {
            put_string(filter, out)?;
            out.push(options.qos.as_u8());
        }
        Ok(())
    }
}

/// Walks the filters of a SUBSCRIBE. The walk can be interrupted and taken up again.
#[derive(Clone)]
pub struct SubscribeFiltersIter<'a> {
    reader: Reader<'a>,
}

impl<'a> SubscribeFiltersIter<'a> {
    /// Takes up the walk through `packet` where [`Self::bytes_left`] said `bytes_left`. The packet was decoded
    /// before.
    pub fn resume(packet: &'a [u8], bytes_left: usize) -> Self {
        let start = packet.len().saturating_sub(bytes_left);
        Self {
            reader: Reader::new(packet.get(start..).unwrap_or_default()),
        }
    }

    /// How many bytes at the end of the packet hold the filters that are still to come.
    pub fn bytes_left(&self) -> usize {
        self.reader.rest().len()
    }
}

impl<'a> Iterator for SubscribeFiltersIter<'a> {
    type Item = (&'a str, SubscriptionOptions);

    fn next(&mut self) -> Option<Self::Item> {
        let filter = self.reader.string().ok()?;
        let options = SubscriptionOptions::from_byte(self.reader.u8().ok()?, ProtocolVersion::V5);
        Some((filter, options.ok()?))
    }
}

impl std::fmt::Debug for SubscribeFiltersIter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl PartialEq for SubscribeFilters<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.payload == other.payload
    }
}

impl Eq for SubscribeFilters<'_> {}

impl std::fmt::Debug for SubscribeFilters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Subscribe<'a> {
    pub(crate) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        let properties = if version.is_v5() {
            SubscribeProperties::decode(&mut reader)?
        } else {
            SubscribeProperties::default()
        };
        let filters = SubscribeFilters::decode(reader.rest(), version)?;
        Ok(Self {
            packet_id,
            properties,
            filters,
        })
    }

    /// Appends the packet to `out`. Before 5.0, properties and all options but QoS are left out.
    ///
    /// # Errors
    /// A subscription identifier out of range, a packet that is too large; `out` is then unchanged.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_frame(PacketType::Subscribe.first_byte(), &[], out, |out| {
            put_u16(self.packet_id.get(), out);
            if version.is_v5() {
                self.properties.encode(out)?;
            }
            self.filters.encode(version, out)
        })
    }
}

#[cfg(test)]
mod tests;
