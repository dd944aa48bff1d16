//! Messages about clients that the session store does not know: clean sessions without a will.

use route_exchange::{NodeId, ShardNumber};
use serde::{Deserialize, Serialize};
use store_state::session::OfAnotherUser;

/// A client and the number of its connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// The session shard of the client.
    pub shard: ShardNumber,
    /// The client identifier.
    pub client: Box<str>,
    /// The number of the connection.
    pub number: u64,
    /// The user that authentication has confirmed the client to be.
    pub user: Option<Box<str>>,
    /// Whether it gets the client identifier of another user.
    pub of_another_user: OfAnotherUser,
}

/// What a CONNECT is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registered {
    /// The number of the connection; 0: it is refused.
    pub number: u64,
    /// Who has an older one.
    pub held_by: Option<NodeId>,
    /// The session store has a record of the client.
    pub is_known: bool,
    /// It is refused: another user has the client, on another node.
    pub is_anothers: bool,
}

impl Registered {
    /// Nobody leads who could know of others.
    #[must_use]
    pub fn alone(number: u64) -> Self {
        Self {
            number,
            held_by: None,
            is_known: false,
            is_anothers: false,
        }
    }
}

/// Registrations of which a leader is told in one message at most.
///
/// Limit: registrations of clients, and copies that are not needed any more, in one message | {} with {PART_BYTES} of
/// names; {control::SETTLED_AT_ONCE} | the rest follows in a further one
const PART: usize = 4096;

/// Bytes of names in one message, beyond which the rest goes in a further one.
const PART_BYTES: usize = 256 * 1024;

/// Cuts registrations into parts that fit a message, and whose answers do. `of`: the registration in an item.
#[must_use]
pub fn in_parts<T>(items: Vec<T>, of: impl Fn(&T) -> &Registration) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let Registration { client, user, .. } = of(&item);
        let names = client.len() + user.as_ref().map_or(0, |user| user.len());
        match parts.last_mut() {
            Some(part) if part.len() < PART && bytes + names <= PART_BYTES => {
                bytes += names;
                part.push(item);
            }
            _ => {
                bytes = names;
                parts.push(vec![item]);
            }
        }
    }
    parts
}

/// What nodes say to each other about the directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DirectoryMessage {
    /// CONNECTs, by the correlation ids of the answers.
    Register(Vec<(u64, Registration)>),
    /// The answers. `None`: the sender does not lead.
    Registered(Vec<(u64, Option<Registered>)>),
    /// What the sender has, and another leader may have known.
    Again(Vec<Registration>),
    /// What the sender has no more.
    Forget(Vec<Registration>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encode as _, PeerMessage, Takeover};

    fn registration(name: usize) -> Registration {
        Registration {
            shard: u16::MAX,
            client: "c".repeat(name).into(),
            number: u64::MAX,
            user: Some("u".repeat(name).into()),
            of_another_user: OfAnotherUser::Refuse,
        }
    }

    fn fits(message: DirectoryMessage) -> bool {
        let message = PeerMessage::from(Takeover::Directory(message));
        message.encode(1).is_ok()
    }

    #[test]
    fn parts_of_registrations_and_their_answers_fit_a_message() {
        for (count, name) in [(0, 0), (1, 65_535), (20, 65_535), (10_000, 1), (10_000, 23)] {
            let new: Vec<_> = (0..count).map(|id| (id, registration(name))).collect();
            let parts = in_parts(new.clone(), |(_, registration)| registration);
            assert_eq!(parts.concat(), new, "{count} of {name} bytes");
            for part in parts {
                let answer = Registered {
                    held_by: Some(u64::MAX),
                    ..Registered::alone(u64::MAX)
                };
                let answers = part.iter().map(|_| (u64::MAX, Some(answer))).collect();
                assert!(fits(DirectoryMessage::Registered(answers)));
                assert!(fits(DirectoryMessage::Register(part)));
            }
        }
    }
}
