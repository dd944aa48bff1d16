//! What requests and rows call clients and their sessions by.
//!
//! A client identifier may have 60,000 bytes, and a client that sends one with its CONNECT has each later packet of a
//! few bytes recorded on a majority of replicas. So what follows a CONNECT does not repeat the identifier: a session
//! that has an inbox is named by its number, and what has none, such as a publisher, by a hash if the identifier is long.
//!
//! Invariants: what this version writes by a name has [`LONGEST`] bytes at most. No client has the name of another: an
//! identifier has no NUL [MQTT-1.5.4-2], and the hash is one that nobody can find two identifiers for.

use std::borrow::Cow;
use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::{Level, NameHash};

/// Bytes of the longest identifier that is its own name.
const LONGEST: usize = 40;

/// What the name begins with that stands for a longer identifier. Behind it: the slot in four hexadecimal digits, and
/// 128 bits of SHA-256 in 32.
const HASHED: &str = "\0#";

/// Hexadecimal digits of a slot.
const SLOT_DIGITS: usize = 4;

/// Bytes of the hash.
const HASH_BYTES: usize = 16;

/// The first byte of a session's name that is a number. No identifier begins with it: it is no UTF-8.
const NUMBERED: u8 = 0xFF;

/// What requests and rows call a client by: its identifier, or what stands for it if that has more than 40 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientName(Box<str>);

impl ClientName {
    /// The name of a client, or of whatever else the broker publishes in the name of. `hash`: of the cluster.
    #[must_use]
    pub fn of(client: &str, hash: NameHash) -> Self {
        let level = Level::NEWEST;
        Self(Naming { hash, level }.name_of(client).into())
    }

    /// The name in text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The slot of the client.
    #[must_use]
    pub fn slot(&self, hash: NameHash) -> u16 {
        slot_of(&self.0, hash)
    }
}

/// The identifier itself, whatever its length: as earlier versions name clients in their requests.
impl From<&str> for ClientName {
    fn from(client: &str) -> Self {
        Self(client.into())
    }
}

impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a shard names clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Naming {
    pub(super) hash: NameHash,
    pub(super) level: Level,
}

impl Naming {
    /// The name of a client with this identifier or name.
    pub(super) fn name_of(self, client: &str) -> Cow<'_, str> {
        if self.is_long(client) {
            Cow::Owned(hashed(client, self.hash))
        } else {
            Cow::Borrowed(client)
        }
    }

    /// Whether an identifier is not its own name.
    pub(super) fn is_long(self, client: &str) -> bool {
        self.level.shortens_names() && is_long(client)
    }
}

/// What stands for a long identifier.
fn hashed(client: &str, hash: NameHash) -> String {
    let digest = Sha256::digest(client.as_bytes());
    let digits = digest.iter().take(HASH_BYTES);
    let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
    format!("{HASHED}{:04x}{digits}", hash.slot_of(client))
}

fn is_long(client: &str) -> bool {
    client.len() > LONGEST
}

/// The slot of a client by its identifier or name.
pub(super) fn slot_of(name: &str, hash: NameHash) -> u16 {
    let digits = name
        .strip_prefix(HASHED)
        .and_then(|rest| rest.get(..SLOT_DIGITS));
    let slot = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
    slot.unwrap_or_else(|| hash.slot_of(name))
}

/// The slot of a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot(pub u16);

/// The number of an inbox in its shard. None is given twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InboxNumber(pub u64);

/// An inbox of a shard, as [`Attached`](super::Attached) told of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InboxId {
    /// That of its client.
    pub slot: Slot,
    /// Its number.
    pub number: InboxNumber,
}

impl InboxId {
    /// The inbox of this number, of a client with this slot.
    #[must_use]
    pub const fn new(slot: u16, number: u64) -> Self {
        Self {
            slot: Slot(slot),
            number: InboxNumber(number),
        }
    }
}

/// What a request calls a session by.
///
/// Written as a byte string: the name of the client, or 0xFF, the slot in two bytes, and the number of the inbox in as
/// many as it takes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SessionName {
    /// By its inbox.
    Inbox(InboxId),
    /// By its client, of whichever inbox that has.
    Client(ClientName),
}

impl SessionName {
    /// The slot of the client.
    #[must_use]
    pub fn slot(&self, hash: NameHash) -> u16 {
        match self {
            Self::Inbox(id) => id.slot.0,
            Self::Client(name) => name.slot(hash),
        }
    }
}

impl From<ClientName> for SessionName {
    fn from(name: ClientName) -> Self {
        Self::Client(name)
    }
}

/// By the identifier itself, whatever its length.
impl From<&str> for SessionName {
    fn from(client: &str) -> Self {
        Self::Client(client.into())
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inbox(InboxId { slot, number }) => {
                write!(f, "inbox {} of slot {}", number.0, slot.0)
            }
            Self::Client(name) => name.fmt(f),
        }
    }
}

impl Serialize for SessionName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let id = match self {
            Self::Client(name) => return name.serialize(to),
            Self::Inbox(id) => id,
        };
        let [high, low] = id.slot.0.to_be_bytes();
        let mut bytes = [0; 1 + 2 + size_of::<u64>()];
        let number = id.number.0.to_be_bytes();
        let significant = number.len() - id.number.0.leading_zeros() as usize / 8;
        let (head, rest) = bytes.split_at_mut(3);
        head.copy_from_slice(&[NUMBERED, high, low]);
        let written = number.iter().skip(number.len() - significant);
        for (place, byte) in rest.iter_mut().zip(written) {
            *place = *byte;
        }
        to.serialize_bytes(bytes.get(..3 + significant).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for SessionName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = <&[u8]>::deserialize(from)?;
        if let [NUMBERED, high, low, number @ ..] = bytes {
            let is_shortest = number.first().is_some_and(|first| *first != 0);
            if !is_shortest || number.len() > size_of::<u64>() {
                return Err(D::Error::custom("no number of an inbox"));
            }
            let number = number
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            let slot = u16::from_be_bytes([*high, *low]);
            return Ok(Self::Inbox(InboxId::new(slot, number)));
        }
        match std::str::from_utf8(bytes) {
            Ok(client) => Ok(client.into()),
            Err(_) => Err(D::Error::custom("no name of a session")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: NameHash = NameHash::with_seed(7);

    #[test]
    fn a_short_identifier_is_its_name_and_a_long_one_has_one_of_forty_bytes() {
        for len in [0, 1, LONGEST] {
            let client = "c".repeat(len);
            assert_eq!(ClientName::of(&client, HASH).as_str(), client);
        }
        for len in [LONGEST + 1, 60_000] {
            let client = "c".repeat(len);
            let name = ClientName::of(&client, HASH);
            assert!(name.as_str().len() <= LONGEST, "{len}");
            assert_eq!(name.slot(HASH), HASH.slot_of(&client), "{len}");
            assert_eq!(ClientName::of(name.as_str(), HASH), name, "{len}");
            let other = ClientName::of(&format!("{}d", "c".repeat(len - 1)), HASH);
            assert_ne!(name, other, "{len}");
        }
    }

    #[test]
    fn a_name_says_its_slot_and_text_that_looks_like_one_is_no_panic() {
        for name in ["c", "\0#", "\0#00", "\0#zzzz", "\0#00ü", "\0#+123abc"] {
            let _ = slot_of(name, HASH);
        }
        assert_eq!(slot_of("\0#12ab00", HASH), 0x12ab);
        assert_eq!(slot_of("c", HASH), HASH.slot_of("c"));
    }

    #[test]
    fn names_come_back_as_they_were_written() {
        let numbers = [1, 0xFF, 0x100, 1 << 40, u64::MAX];
        let inboxes = numbers.map(|number| SessionName::Inbox(InboxId::new(0xABCD, number)));
        let clients = ["", "c", "ü/x"].map(SessionName::from);
        for name in inboxes.into_iter().chain(clients) {
            let bytes = postcard::to_stdvec(&name).unwrap();
            assert_eq!(postcard::from_bytes::<SessionName>(&bytes), Ok(name));
        }
        let small = SessionName::Inbox(InboxId::new(9, 200));
        assert_eq!(postcard::to_stdvec(&small).unwrap(), [4, 0xFF, 0, 9, 200]);
    }

    /// Versions before this one read a string: what they cannot understand must not look like one.
    #[test]
    fn a_client_is_written_as_a_string_and_an_inbox_as_none() {
        let name = postcard::to_stdvec(&SessionName::from("c")).unwrap();
        assert_eq!(postcard::from_bytes::<&str>(&name), Ok("c"));
        let inbox = SessionName::Inbox(InboxId::new(0x4141, 0x41));
        let inbox = postcard::to_stdvec(&inbox).unwrap();
        assert!(postcard::from_bytes::<&str>(&inbox).is_err());
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let bad = [
            &[NUMBERED][..],
            &[NUMBERED, 0, 1],
            &[NUMBERED, 0, 1, 0],
            &[NUMBERED, 0, 1, 0, 5],
            &[NUMBERED, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            &[b'c', NUMBERED],
        ];
        for bytes in bad {
            let written = postcard::to_stdvec(&bytes.to_vec()).unwrap();
            assert!(
                postcard::from_bytes::<SessionName>(&written).is_err(),
                "{bytes:?}"
            );
        }
    }
}
