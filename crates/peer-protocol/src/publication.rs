//! Messages of clients on their way to another node.

use std::sync::Arc;

use bytes::Bytes;
use mqtt_session::ApplicationMessage;
use serde::{Deserialize, Serialize};
use store_state::inbox::Origin;

use crate::message::{Encode, write};
use crate::publisher::{Foreign, Slot, hash_in};
use crate::{Kind, Violation};

/// Bytes of the largest message of a client that is sent to other nodes.
pub const LARGEST: usize = 32 << 20;

/// Bytes of messages at which a frame is sent without waiting for more.
pub const FULL_BYTES: usize = 256 * 1024;

/// Room of a new frame, in bytes: for a short message.
const FIRST_ROOM: usize = 512;

/// Messages of one event loop of a peer, in the order of their publishers.
#[derive(Clone, Debug)]
pub struct Publications {
    /// The event loop.
    pub from_loop: u8,
    /// The messages.
    pub messages: Vec<Forwarded>,
}

/// A message of a client of another node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forwarded {
    /// The message.
    #[serde(with = "store_state::wire::message")]
    pub message: Arc<ApplicationMessage>,
    /// What its node finds the publisher by, and a hash of its client identifier; see
    /// [`found_by`](crate::found_by) and [`with_hash`](crate::with_hash).
    pub publisher: u64,
    /// Its receivers.
    pub whom: Whom,
    /// Of a message that the broker publishes: two nodes may send it, and sessions get it once.
    pub origin: Option<Origin>,
}

/// Whom a message of another node is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Whom {
    /// All connected sessions that match.
    Sessions,
    /// These, and one member of each shared group that matches, but for those that got it already: the sender
    /// does not know what this node wants.
    Anybody {
        /// The groups that got it already.
        served: Vec<Box<str>>,
    },
    /// One member of a group.
    Group(ForGroup),
}

/// A message for one member of a shared group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ForGroup {
    /// The group, as in SUBSCRIBE.
    pub filter: Box<str>,
    /// Nodes that it was sent to so far, this one included.
    pub hops: u8,
    /// The sender's number for it; 0: it does not wait to hear what becomes of it.
    pub copy: u64,
}

/// Messages of one event loop that are written one after the other, and sent at once.
#[derive(Debug)]
pub struct PublicationsFrame(Vec<u8>);

impl PublicationsFrame {
    /// Begins a frame of an event loop.
    #[must_use]
    pub fn new(from_loop: usize) -> Self {
        let mut bytes = Vec::with_capacity(FIRST_ROOM);
        bytes.extend([Kind::Publications.tag(), from_loop as u8]);
        Self(bytes)
    }

    /// Appends a message.
    pub fn push(&mut self, forwarded: &Forwarded) {
        self.0 = forwarded.append(std::mem::take(&mut self.0));
    }

    /// Appends what [`Forwarded::append`] has written: once for all nodes.
    pub fn push_encoded(&mut self, encoded: &[u8]) {
        self.0.extend_from_slice(encoded);
    }

    /// Whether it is to be sent without waiting for more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() >= FULL_BYTES
    }
}

impl Encode for PublicationsFrame {
    fn encode(self, version: u16) -> Result<Bytes, Violation> {
        Kind::Publications.check(self.0.len(), version)?;
        Ok(self.0.into())
    }
}

impl Publications {
    /// Reads what stands behind the tag.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let malformed = Violation::Encoding(Kind::Publications);
        let (from_loop, mut rest) = bytes.split_first().ok_or(malformed)?;
        let mut messages: Vec<Forwarded> = Vec::new();
        while !rest.is_empty() {
            let (forwarded, after) = postcard::take_from_bytes(rest).map_err(|_| malformed)?;
            messages.push(forwarded);
            rest = after;
        }
        Ok(Self {
            from_loop: *from_loop,
            messages,
        })
    }

    /// Appends all behind the tag.
    pub(crate) fn append(&self, mut to: Vec<u8>) -> Vec<u8> {
        to.push(self.from_loop);
        self.messages
            .iter()
            .fold(to, |to, forwarded| forwarded.append(to))
    }
}

impl Forwarded {
    /// The sender's number, if it waits to hear what becomes of the message.
    #[must_use]
    pub fn copy(&self) -> Option<u64> {
        match &self.whom {
            Whom::Group(group) => Some(group.copy).filter(|copy| *copy != 0),
            _ => None,
        }
    }

    /// Appends it to bytes.
    #[must_use]
    pub fn append(&self, to: Vec<u8>) -> Vec<u8> {
        write(self, to)
    }

    /// Writes the publisher into the message, where it was not written. `from`: the node that sent it.
    pub fn came_from(&mut self, from: Slot) {
        if let Some(message) = Arc::get_mut(&mut self.message) {
            message.publisher = Foreign::new(from, self.publisher).to_bits();
            message.publisher_hash = hash_in(self.publisher);
        }
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use super::*;
    use crate::{PeerMessage, with_hash};

    fn forwarded(whom: Whom) -> Forwarded {
        Forwarded {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new("a/b", b"payload"),
                qos: QoS::AtLeastOnce,
                retain: true,
                publisher: 5,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            publisher: u64::MAX,
            whom,
            origin: None,
        }
    }

    #[test]
    fn messages_come_back_in_their_order() {
        let group = Whom::Group(ForGroup {
            filter: "$share/g/a/b".into(),
            hops: 1,
            copy: 7,
        });
        let mut frame = PublicationsFrame::new(3);
        frame.push(&forwarded(Whom::Sessions));
        frame.push_encoded(&forwarded(group.clone()).append(Vec::new()));
        let frame = frame.encode(1).unwrap();
        let Ok(PeerMessage::Publications(mut read)) = PeerMessage::decode(&frame, 1) else {
            panic!("a frame is read as it was written");
        };
        assert_eq!(read.from_loop, 3);
        let whom: Vec<_> = read.messages.iter().map(|m| m.whom.clone()).collect();
        assert_eq!(whom, [Whom::Sessions, group]);
        read.messages[0].came_from(Slot(1));
        let message = &read.messages[0].message;
        assert_eq!(message.body.topic(), "a/b");
        assert_eq!((message.qos, message.retain), (QoS::AtLeastOnce, true));
        assert!(Foreign::from_bits(message.publisher).is_some());
        let mut named = forwarded(Whom::Sessions);
        named.publisher = with_hash(7, 0xA_BCDE);
        named.came_from(Slot(1));
        assert_eq!(named.message.publisher_hash, 0xA_BCDE);
        let found_by = Foreign::from_bits(named.message.publisher).map(Foreign::found_by);
        assert_eq!(found_by, Some(7));
        for cut in 3..frame.len() {
            // A cut between the two messages is none.
            if let Ok(PeerMessage::Publications(read)) = PeerMessage::decode(&frame[..cut], 1) {
                assert_eq!(read.messages.len(), 1);
            }
        }
    }

    #[test]
    fn a_full_frame_has_room_for_the_largest_message() {
        let mut frame = PublicationsFrame::new(0);
        frame.push_encoded(&vec![0; FULL_BYTES - 3]);
        assert!(!frame.is_full());
        frame.push_encoded(&vec![0; LARGEST]);
        assert!(frame.is_full());
        assert!(frame.encode(1).is_ok());
        let mut frame = PublicationsFrame::new(0);
        frame.push_encoded(&vec![0; LARGEST + FULL_BYTES + 1]);
        assert!(matches!(frame.encode(1), Err(Violation::TooLong { .. })));
    }

    #[test]
    fn a_frame_without_a_loop_is_malformed() {
        for bytes in [&[4][..], &[4, 0, 1]] {
            let read = PeerMessage::decode(bytes, 1);
            let malformed = Violation::Encoding(Kind::Publications);
            assert_eq!(read.unwrap_err(), malformed);
        }
    }
}
