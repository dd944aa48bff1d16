//! UNSUBSCRIBE (§3.10): topic filters to give up.
//!
//! Invariant: a decoded list has at least one entry and every entry was checked, so that walking it
//! again cannot fail. As in SUBSCRIBE, a filter is only a UTF-8
//! string here that is not empty.

use crate::codec::{Reader, put_frame, put_string, put_u16};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, ProtocolVersion, UnsubscribeProperties,
};

/// Gives subscriptions up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsubscribe<'a> {
    /// Identifier that UNSUBACK repeats.
    pub packet_id: PacketId,
    /// Empty before 5.0.
    pub properties: UnsubscribeProperties<'a>,
    /// Topic filters, at least one.
    pub filters: UnsubscribeFilters<'a>,
}

/// The topic filters of an UNSUBSCRIBE, in order.
#[derive(Clone, Copy)]
pub struct UnsubscribeFilters<'a> {
    payload: &'a [u8],
    count: u32,
}

impl<'a> UnsubscribeFilters<'a> {
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let mut count = 0;
        while !reader.is_empty() {
            // [MQTT-3.10.3-1] [MQTT3-3.10.3-1] UTF-8 strings.
            let filter = reader.string()?;
            // [MQTT-4.7.3-1] [MQTT3-4.7.3-1] at least one character.
            if filter.is_empty() {
                return Err(DecodeError::TopicFilterEmpty(PacketType::Unsubscribe));
            }
            count += 1;
        }
        // [MQTT-3.10.3-2] [MQTT3-3.10.3-2] at least one.
        if count == 0 {
            return Err(DecodeError::NoTopicFilter(PacketType::Unsubscribe));
        }
        Ok(Self { payload, count })
    }

    /// Lays `filters` out at the end of `buffer`.
    ///
    /// # Errors
    /// No filter, a filter that is empty, has U+0000 or more than 65,535 bytes; `buffer` is then unchanged.
    pub fn encode_from(filters: &[&str], buffer: &'a mut Vec<u8>) -> Result<Self, EncodeError> {
        let start = buffer.len();
        if filters.is_empty() {
            return Err(EncodeError::NoTopicFilter);
        }
        for filter in filters {
            let appended = if filter.is_empty() {
                Err(EncodeError::TopicFilterEmpty)
            } else {
                put_string(filter, buffer)
            };
            if let Err(error) = appended {
                buffer.truncate(start);
                return Err(error);
            }
        }
        let count = filters.len() as u32;
        Ok(Self {
            payload: buffer.get(start..).unwrap_or_default(),
            count,
        })
    }

    /// The filters, in order.
    pub fn iter(&self) -> UnsubscribeFiltersIter<'a> {
        UnsubscribeFiltersIter {
            reader: Reader::new(self.payload),
        }
    }

    /// Number of filters.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one filter")]
    pub const fn len(&self) -> usize {
        self.count as usize
    }
}

/// Walks the filters of an UNSUBSCRIBE. The walk can be interrupted and taken up again.
#[derive(Clone)]
pub struct UnsubscribeFiltersIter<'a> {
    reader: Reader<'a>,
}

impl<'a> UnsubscribeFiltersIter<'a> {
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

impl<'a> Iterator for UnsubscribeFiltersIter<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        self.reader.string().ok()
    }
}

impl std::fmt::Debug for UnsubscribeFiltersIter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl PartialEq for UnsubscribeFilters<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.payload == other.payload
    }
}

impl Eq for UnsubscribeFilters<'_> {}

impl std::fmt::Debug for UnsubscribeFilters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Unsubscribe<'a> {
    pub(crate) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        let properties = if version.is_v5() {
            UnsubscribeProperties::decode(&mut reader)?
        } else {
            UnsubscribeProperties::default()
        };
        let filters = UnsubscribeFilters::decode(reader.rest())?;
        Ok(Self {
            packet_id,
            properties,
            filters,
        })
    }

    /// Appends the packet to `out`. Before 5.0, properties are left out.
    ///
    /// # Errors
    /// A packet that is too large; `out` is then unchanged.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_frame(
            PacketType::Unsubscribe.first_byte(),
            self.filters.payload,
            out,
            |out| {
                put_u16(self.packet_id.get(), out);
                if version.is_v5() {
                    self.properties.encode(out)
                } else {
                    Ok(())
                }
            },
        )
    }
}

#[cfg(test)]
mod tests;
