//! The two properties that may stand more than once: user property and subscription identifier.
//!
//! Invariant: a list refers to a property block whose every entry was checked, so that walking it again
//! cannot fail. Other properties may stand between its entries; the walk passes over them.

use super::Property;
use crate::EncodeError;
use crate::codec::Reader;

const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
const USER_PROPERTY: u8 = 0x26;

/// User properties of a packet, in order; names may repeat.
#[derive(Clone, Copy, Default)]
pub struct UserProperties<'a> {
    entries: Entries<'a, USER_PROPERTY>,
}

impl<'a> UserProperties<'a> {
    /// No user property.
    pub const NONE: Self = Self {
        entries: Entries {
            block: &[],
            count: 0,
        },
    };

    /// Lays `pairs` out at the end of `buffer`.
    ///
    /// # Errors
    /// A name or value with U+0000 or of more than 65,535 bytes; `buffer` is then unchanged.
    pub fn encode_from(
        pairs: &[(&str, &str)],
        buffer: &'a mut Vec<u8>,
    ) -> Result<Self, EncodeError> {
        let properties = pairs
            .iter()
            .map(|(name, value)| Property::UserPair(name, value));
        Entries::encode_from(properties, buffer).map(|entries| Self { entries })
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.entries
            .values()
            .filter_map(|mut value| Some((value.string().ok()?, value.string().ok()?)))
    }

    /// Number of pairs.
    pub const fn len(&self) -> usize {
        self.entries.count as usize
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.entries.count == 0
    }

    pub(super) fn extend_to(&mut self, block: &'a [u8]) {
        self.entries.extend_to(block);
    }

    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.entries.encode(out);
    }

    /// Bytes that [`encode`](Self::encode) appends.
    #[inline]
    pub(crate) fn encoded_len(&self) -> usize {
        if self.is_empty() {
            0
        } else {
            self.entries.raw().map(<[u8]>::len).sum()
        }
    }
}

impl PartialEq for UserProperties<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for UserProperties<'_> {}

impl std::fmt::Debug for UserProperties<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Subscription identifiers of a PUBLISH, in order: each 1..=268,435,455.
#[derive(Clone, Copy, Default)]
pub struct SubscriptionIds<'a> {
    entries: Entries<'a, SUBSCRIPTION_IDENTIFIER>,
}

impl<'a> SubscriptionIds<'a> {
    /// No subscription identifier.
    pub const NONE: Self = Self {
        entries: Entries {
            block: &[],
            count: 0,
        },
    };

    /// Lays `ids` out at the end of `buffer`.
    ///
    /// # Errors
    /// An identifier outside 1..=268,435,455; `buffer` is then unchanged.
    pub fn encode_from(ids: &[u32], buffer: &'a mut Vec<u8>) -> Result<Self, EncodeError> {
        let properties = ids.iter().map(|id| Property::SubscriptionIdentifier(*id));
        Entries::encode_from(properties, buffer).map(|entries| Self { entries })
    }

    /// The identifiers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.entries
            .values()
            .filter_map(|mut value| value.variable_byte_integer().ok())
    }

    /// Number of identifiers.
    pub const fn len(&self) -> usize {
        self.entries.count as usize
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.entries.count == 0
    }

    pub(super) fn extend_to(&mut self, block: &'a [u8]) {
        self.entries.extend_to(block);
    }

    #[inline]
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.entries.encode(out);
    }
}

impl PartialEq for SubscriptionIds<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for SubscriptionIds<'_> {}

impl std::fmt::Debug for SubscriptionIds<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The entries with identifier `ID` in a checked property block.
#[derive(Clone, Copy, Default)]
struct Entries<'a, const ID: u8> {
    block: &'a [u8],
    count: u32,
}

impl<'a, const ID: u8> Entries<'a, ID> {
    fn encode_from<'p>(
        properties: impl Iterator<Item = Property<'p>>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Self, EncodeError> {
        let start = buffer.len();
        let mut count = 0;
        for property in properties {
            if let Err(error) = property.encode(buffer) {
                buffer.truncate(start);
                return Err(error);
            }
            count += 1;
        }
        Ok(Self {
            block: buffer.get(start..).unwrap_or_default(),
            count,
        })
    }

    /// Notes one more entry in `block`, the same block at each call.
    #[inline]
    fn extend_to(&mut self, block: &'a [u8]) {
        self.block = block;
        self.count += 1;
    }

    /// Each entry with its identifier.
    fn raw(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, ID> {
        let mut reader = Reader::new(self.block);
        std::iter::from_fn(move || {
            let start = reader.rest();
            let id = reader.u8().ok()?;
            skip_value(id, &mut reader)?;
            start.get(..start.len() - reader.rest().len())
        })
        .filter(|entry| entry.first() == Some(&ID))
    }

    /// Each entry without its identifier.
    fn values(&self) -> impl Iterator<Item = Reader<'a>> + use<'a, ID> {
        self.raw()
            .filter_map(|entry| entry.get(1..))
            .map(Reader::new)
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        if self.count > 0 {
            for entry in self.raw() {
                out.extend_from_slice(entry);
            }
        }
    }
}

/// Passes over the value of the property `id`; `None` if the block was never checked.
fn skip_value(id: u8, reader: &mut Reader<'_>) -> Option<()> {
    match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2A => reader.take(1).ok()?,
        0x13 | 0x21..=0x23 => reader.take(2).ok()?,
        0x02 | 0x11 | 0x18 | 0x27 => reader.take(4).ok()?,
        SUBSCRIPTION_IDENTIFIER => {
            reader.variable_byte_integer().ok()?;
            return Some(());
        }
        USER_PROPERTY => {
            reader.binary().ok()?;
            reader.binary().ok()?
        }
        _ => reader.binary().ok()?,
    };
    Some(())
}
