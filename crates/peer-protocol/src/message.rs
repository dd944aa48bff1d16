//! What a link carries one way.

use bytes::Bytes;
use postcard::ser_flavors::Flavor;
use route_exchange::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Bans, Carriage, Control, Kind, Publications, Takeover, Violation};

/// A message between two nodes on their common channel.
#[derive(Clone, Debug)]
pub enum PeerMessage<'a> {
    /// About routes.
    Routes(Message),
    /// Messages of clients. Event loops write them with [`PublicationsFrame`](crate::PublicationsFrame).
    Publications(Publications),
    /// Barriers, copies, holds.
    Control(Control),
    /// Client identifiers that another node has.
    Takeover(Takeover),
    /// Bans that were made and lifted.
    Bans(Bans),
    /// What a store tells another: its own encoding, without the tag.
    Store(&'a [u8]),
}

/// What can be sent to a peer.
pub trait Encode {
    /// The bytes of it in a version that both nodes speak.
    ///
    /// # Errors
    /// That version does not have it, or it is longer than its kind may be: it cannot be sent.
    fn encode(self, version: u16) -> Result<Bytes, Violation>;
}

impl<'a> PeerMessage<'a> {
    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Routes(_) => Kind::Routes,
            Self::Publications(_) => Kind::Publications,
            Self::Control(_) => Kind::Control,
            Self::Takeover(_) => Kind::Takeover,
            Self::Bans(_) => Kind::Bans,
            Self::Store(_) => Kind::Store,
        }
    }

    /// Reads a message of a peer. `version`: of the link that it came on.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &'a [u8], version: u16) -> Result<Self, Violation> {
        let (kind, rest) = Kind::read(bytes, Carriage::Message, version)?;
        match kind {
            Kind::Routes => Ok(Self::Routes(Message::decode(rest)?)),
            Kind::Publications => Publications::decode(rest).map(Self::Publications),
            Kind::Control => read(kind, rest).map(Self::Control),
            Kind::Takeover => read(kind, rest).map(Self::Takeover),
            Kind::Bans => read(kind, rest).map(Self::Bans),
            Kind::Store => Ok(Self::Store(rest)),
            Kind::Node | Kind::Clock | Kind::Inspection => Err(Violation::Misplaced(kind)),
        }
    }
}

impl Encode for PeerMessage<'_> {
    fn encode(self, version: u16) -> Result<Bytes, Violation> {
        let kind = self.kind();
        let begun = kind.begin();
        let bytes = match &self {
            Self::Routes(message) => message.encode(begun),
            Self::Publications(publications) => publications.append(begun),
            Self::Control(control) => write(control, begun),
            Self::Takeover(takeover) => write(takeover, begun),
            Self::Bans(bans) => write(bans, begun),
            Self::Store(bytes) => [&begun, *bytes].concat(),
        };
        kind.check(bytes.len(), version)?;
        Ok(bytes.into())
    }
}

impl From<Message> for PeerMessage<'_> {
    fn from(message: Message) -> Self {
        Self::Routes(message)
    }
}

impl From<Control> for PeerMessage<'_> {
    fn from(control: Control) -> Self {
        Self::Control(control)
    }
}

impl From<Bans> for PeerMessage<'_> {
    fn from(bans: Bans) -> Self {
        Self::Bans(bans)
    }
}

impl From<Takeover> for PeerMessage<'_> {
    fn from(takeover: Takeover) -> Self {
        Self::Takeover(takeover)
    }
}

/// Appends a value to bytes.
pub(crate) fn write<T: Serialize>(value: &T, to: Vec<u8>) -> Vec<u8> {
    // Postcard refuses only a sequence that does not know its length.
    postcard::serialize_with_flavor(value, Appended(to))
        .expect("every sequence in a message knows its length")
}

/// Bytes that postcard appends to. Its own flavors copy a slice byte by byte.
struct Appended(Vec<u8>);

impl Flavor for Appended {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Self::Output> {
        Ok(self.0)
    }
}

/// A value that takes all of the bytes.
pub(crate) fn read<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, Violation> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, trailing)) => Err(Violation::Trailing {
            kind,
            bytes: trailing.len(),
        }),
        Err(_) => Err(Violation::Encoding(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_a_message_or_missing_from_it_are_named() {
        let control = Control::Settled { copies: vec![1, 2] };
        let bytes = PeerMessage::from(control.clone()).encode(1).unwrap();
        let read = PeerMessage::decode(&bytes, 1).unwrap();
        assert!(matches!(read, PeerMessage::Control(read) if read == control));
        let kind = Kind::Control;
        let longer = [&bytes[..], &[0, 0]].concat();
        let trailing = Violation::Trailing { kind, bytes: 2 };
        assert_eq!(PeerMessage::decode(&longer, 1).unwrap_err(), trailing);
        for cut in 1..bytes.len() {
            let cut = PeerMessage::decode(&bytes[..cut], 1).unwrap_err();
            assert_eq!(cut, Violation::Encoding(kind));
        }
    }

    #[test]
    fn what_a_version_lacks_or_a_kind_forbids_is_not_sent() {
        let hold = || PeerMessage::from(Control::Hold { publisher: 1 });
        let kind = Kind::Control;
        let version = 0;
        let lacking = Violation::NotInVersion { kind, version };
        assert_eq!(hold().encode(0), Err(lacking));
        assert!(hold().encode(1).is_ok());
        let copies = vec![u64::MAX; 200_000];
        let long = PeerMessage::from(Control::Settled { copies }).encode(1);
        assert!(matches!(long, Err(Violation::TooLong { .. })), "{long:?}");
    }

    #[test]
    fn a_stores_bytes_stay_as_they_are() {
        let bytes = PeerMessage::Store(b"abc").encode(1).unwrap();
        assert_eq!(&bytes[..], b"\x10abc");
        let read = PeerMessage::decode(&bytes, 1);
        assert!(matches!(read, Ok(PeerMessage::Store(b"abc"))));
    }
}
