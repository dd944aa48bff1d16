//! What can be wrong with bytes of a peer.

use std::{error, fmt};

use route_exchange::Malformed;

use crate::Kind;

/// How a peer has broken the protocol. Nothing of the message is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// There is no byte.
    Empty,
    /// No kind of message has this tag.
    UnknownTag(u8),
    /// A message came as a request, or a request as a message.
    Misplaced(Kind),
    /// The version that was agreed on does not have this kind.
    NotInVersion {
        /// The kind.
        kind: Kind,
        /// The version of the link.
        version: u16,
    },
    /// It is longer than its kind may be.
    TooLong {
        /// The kind.
        kind: Kind,
        /// How long it is.
        bytes: usize,
    },
    /// The bytes end before the value does, or are none of its type.
    Encoding(Kind),
    /// There are bytes behind the value.
    Trailing {
        /// The kind.
        kind: Kind,
        /// How many.
        bytes: usize,
    },
    /// Routes that cannot follow those before.
    Routes(Malformed),
    /// It is about a shard that no store of the cluster has.
    NoSuchShard {
        /// The store's number.
        store: u8,
        /// The shard.
        shard: u16,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a message is empty"),
            Self::UnknownTag(tag) => write!(f, "no message has the tag {tag}"),
            Self::Misplaced(kind) => write!(
                f,
                "a message about {kind} came as a request, or a request as a message"
            ),
            Self::NotInVersion { kind, version } => write!(
                f,
                "version {version} of the protocol has no messages about {kind}"
            ),
            Self::TooLong { kind, bytes } => {
                write!(f, "{bytes} bytes are too many for a message about {kind}")
            }
            Self::Encoding(kind) => write!(f, "the bytes are no message about {kind}"),
            Self::Trailing { kind, bytes } => {
                write!(f, "a message about {kind} has {bytes} bytes behind its end")
            }
            Self::Routes(malformed) => malformed.fmt(f),
            Self::NoSuchShard { store, shard } => {
                write!(f, "there is no shard {shard} of store {store}")
            }
        }
    }
}

impl error::Error for Violation {}

impl From<Malformed> for Violation {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Bytes => Self::Encoding(Kind::Routes),
            other => Self::Routes(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_violation_says_what_is_wrong() {
        let kind = Kind::Control;
        for (violation, text) in [
            (Violation::UnknownTag(9), "no message has the tag 9"),
            (
                Violation::TooLong {
                    kind,
                    bytes: 2_000_000,
                },
                "2000000 bytes are too many for a message about control",
            ),
            (
                Violation::NotInVersion { kind, version: 3 },
                "version 3 of the protocol has no messages about control",
            ),
            (
                Violation::Trailing { kind, bytes: 2 },
                "a message about control has 2 bytes behind its end",
            ),
            (
                Malformed::Bytes.into(),
                "the bytes are no message about routes",
            ),
            (
                Malformed::Sequence.into(),
                "a batch of routes does not follow the one before it",
            ),
        ] {
            assert_eq!(violation.to_string(), text);
        }
    }
}
