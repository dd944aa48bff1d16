//! What nodes send each other about routes and messages.
//!
//! Invariant: bytes of a peer never panic; what makes no sense is [`Malformed`], and the connection with the
//! peer is to be broken.

use std::sync::Arc;

use bytes::Bytes;
use mqtt_session::ApplicationMessage;
use route_exchange::{Malformed, Message, ShardNumber};
use serde::{Deserialize, Serialize};
use store_state::inbox::Origin;

use crate::key::{Foreign, Slot, hash_in};

/// Frames of these formats begin with their number. A change is a new one.
const ROUTES: u8 = 1;
const CONTROL: u8 = 3;
const MESSAGES: u8 = 4;

/// What comes from a peer.
#[derive(Debug)]
pub(crate) enum Frame {
    Routes(Message),
    Messages(Messages),
    Control(Control),
}

/// Messages of one event loop of a peer, in the order of their publishers.
#[derive(Debug)]
pub(crate) struct Messages {
    /// The event loop.
    pub(crate) from_loop: u8,
    pub(crate) messages: Vec<Forwarded>,
}

/// A message of a client of another node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Forwarded {
    #[serde(with = "store_state::wire::message")]
    pub(crate) message: Arc<ApplicationMessage>,
    /// What its node finds the publisher by, and a hash of its client identifier; see
    /// [`SessionKey::found_by`] and [`with_hash`](crate::key::with_hash).
    pub(crate) publisher: u64,
    pub(crate) whom: Whom,
    /// Of a message that the broker publishes: two nodes may send it, and sessions get it once.
    pub(crate) origin: Option<Origin>,
}

/// Whom a message of another node is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Whom {
    /// All connected sessions that match.
    Sessions,
    /// These, and one member of each shared group that matches, but for those that got it already: the sender
    /// does not know what this node wants.
    Anybody { served: Vec<Box<str>> },
    /// One member of a group.
    Group(ForGroup),
}

/// A message for one member of a shared group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ForGroup {
    /// The group, as in SUBSCRIBE.
    pub(crate) filter: Box<str>,
    /// Nodes that it was sent to so far, this one included.
    pub(crate) hops: u8,
    /// The sender's number for it; 0: it does not wait to hear what becomes of it.
    pub(crate) copy: u64,
}

/// What is neither routes nor messages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Control {
    /// Tell me when all live nodes know the routes of this inbox shard, which you lead.
    Await { shard: ShardNumber, token: u64 },
    /// They do.
    Known { token: u64 },
    /// These messages for groups are acknowledged, dropped with a record, or with somebody else.
    Settled { copies: Vec<u64> },
    /// A publisher of yours is held back by one more subscriber here, until [`Control::Release`] or the end of
    /// this connection. See [`Forwarded::publisher`].
    Hold { publisher: u64 },
    /// By one less.
    Release { publisher: u64 },
}

impl Frame {
    pub(crate) fn routes(message: &Message) -> Bytes {
        message.encode(vec![ROUTES]).into()
    }

    pub(crate) fn control(control: &Control) -> Bytes {
        // Writing to memory fails for no value of this type.
        postcard::to_extend(control, vec![CONTROL])
            .unwrap_or_default()
            .into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes {
            [ROUTES, rest @ ..] => Message::decode(rest).map(Self::Routes),
            [MESSAGES, from_loop, rest @ ..] => decode_messages(*from_loop, rest),
            [CONTROL, rest @ ..] => match postcard::take_from_bytes(rest) {
                Ok((control, [])) => Ok(Self::Control(control)),
                _ => Err(Malformed::Bytes),
            },
            _ => Err(Malformed::Bytes),
        }
    }
}

/// Begins a frame of messages, which [`Forwarded::append`] fills.
pub(crate) fn begin_messages(from_loop: usize) -> Vec<u8> {
    vec![MESSAGES, from_loop as u8]
}

fn decode_messages(from_loop: u8, mut rest: &[u8]) -> Result<Frame, Malformed> {
    let mut messages: Vec<Forwarded> = Vec::new();
    while !rest.is_empty() {
        let (forwarded, after) = postcard::take_from_bytes(rest).map_err(|_| Malformed::Bytes)?;
        messages.push(forwarded);
        rest = after;
    }
    Ok(Frame::Messages(Messages {
        from_loop,
        messages,
    }))
}

impl Forwarded {
    /// The sender's number, if it waits to hear what becomes of the message.
    pub(crate) fn copy(&self) -> Option<u64> {
        match &self.whom {
            Whom::Group(group) => Some(group.copy).filter(|copy| *copy != 0),
            _ => None,
        }
    }

    /// Appends it to bytes.
    pub(crate) fn append(&self, to: Vec<u8>) -> Vec<u8> {
        // Writing to memory fails for no value of this type.
        postcard::to_extend(self, to).unwrap_or_default()
    }

    /// Writes the publisher into the message, where it was not written. `from`: the node that sent it.
    pub(crate) fn came_from(&mut self, from: Slot) {
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
    use crate::key::{Publisher, SessionKey, with_hash};

    fn forwarded(whom: Whom) -> Forwarded {
        Forwarded {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new("a/b", b"payload"),
                qos: QoS::AtLeastOnce,
                retain: true,
                publisher: 5,
                publisher_hash: 0,
                expires_at: None,
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
        let frame = forwarded(Whom::Sessions).append(begin_messages(3));
        let frame = forwarded(group.clone()).append(frame);
        let Ok(Frame::Messages(mut read)) = Frame::decode(&frame) else {
            panic!("a frame is read as it was written");
        };
        assert_eq!(read.from_loop, 3);
        let whom: Vec<_> = read.messages.iter().map(|m| m.whom.clone()).collect();
        assert_eq!(whom, [Whom::Sessions, group]);
        read.messages[0].came_from(Slot(1));
        let message = &read.messages[0].message;
        assert_eq!(message.body.topic(), "a/b");
        assert_eq!((message.qos, message.retain), (QoS::AtLeastOnce, true));
        assert_eq!(SessionKey::from_bits(message.publisher), None);
        let publisher = Publisher::from_bits(message.publisher);
        assert!(matches!(publisher, Some(Publisher::Elsewhere(_))));
        let mut named = forwarded(Whom::Sessions);
        named.publisher = with_hash(7, 0xA_BCDE);
        named.came_from(Slot(1));
        assert_eq!(named.message.publisher_hash, 0xA_BCDE);
        let found_by = Foreign::from_bits(named.message.publisher).map(Foreign::found_by);
        assert_eq!(found_by, Some(7));
        for cut in 3..frame.len() {
            // A cut between the two messages is none.
            if let Ok(Frame::Messages(read)) = Frame::decode(&frame[..cut]) {
                assert_eq!(read.messages.len(), 1);
            }
        }
    }

    #[test]
    fn garbage_is_refused() {
        for bytes in [
            &[][..],
            &[0],
            &[ROUTES],
            &[MESSAGES, 0, 1],
            &[CONTROL, 9],
            &[2, 0],
            &[5, 5],
        ] {
            assert!(Frame::decode(bytes).is_err(), "{bytes:?}");
        }
        let control = Control::Settled { copies: vec![1, 2] };
        let bytes = Frame::control(&control);
        assert!(matches!(Frame::decode(&bytes), Ok(Frame::Control(read)) if read == control));
        assert!(Frame::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}
