//! The kinds of messages: the one table of tags, limits and versions.

use std::fmt;
use std::ops::RangeInclusive;

use store_state::LEVELS;

use crate::{FULL_BYTES, LARGEST, Violation};

/// The versions of the protocol that this program speaks: up to that which goes with the newest level that it knows.
pub const VERSIONS: RangeInclusive<u16> = 1..=LEVELS[LEVELS.len() - 1].protocol.0;

/// The version since which requests to inbox shards may name a session by the number of its inbox, and a client by a
/// hash of its identifier.
pub const SESSION_NAMES_SINCE: u16 = 3;

/// The version since which nodes tell each other the loads of the shards that they lead.
pub const LOADS_SINCE: u16 = 4;

/// The version since which shards can be split: nodes tell each other since which change a shard has fewer slots.
pub const SPLITS_SINCE: u16 = 5;

/// The version since which nodes answer what people ask of all nodes.
pub const INSPECTION_SINCE: u16 = 6;

/// The version since which nodes read operations of the log that empty a queue.
pub const PURGES_SINCE: u16 = 7;

/// The version since which nodes know levels (`store_state::LEVELS`): admissions have a note, and stores tell each other what replicas
/// hold.
pub const LEVELS_SINCE: u16 = 8;

/// The version since which nodes have the control store begin, and ask it for each other.
pub const CONTROL_SINCE: u16 = 10;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// What a message is about: which part of a node takes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Routes, and what is known of them.
    Routes,
    /// Route barriers, copies for shared groups, holds of publishers.
    Control,
    /// Messages of clients.
    Publications,
    /// What stores say to each other.
    Store,
    /// What people ask of a cluster, passed on to the node that can do it.
    Node,
    /// Client identifiers that another node has.
    Takeover,
    /// The clocks of a node.
    Clock,
    /// Bans.
    Bans,
    /// What people ask of all nodes.
    Inspection,
}

/// How a message travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carriage {
    /// One way.
    Message,
    /// With an answer.
    Request,
}

/// How messages of one kind are told from others, and what they may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// The kind.
    pub kind: Kind,
    /// The first byte of each.
    pub tag: u8,
    /// Its name in logs.
    pub name: &'static str,
    /// How it travels.
    pub carriage: Carriage,
    /// The longest one, in bytes with the tag. Links take 64 MiB.
    ///
    /// Limit: a message between nodes, by its kind | `crates/peer-protocol/tests/golden/kinds.txt`: publications 32.25 MiB,
    /// of stores 49 MiB, others 1 MiB at most, answers to questions of people 2 MiB | not sent, or not carried out;
    /// the log says so
    pub limit: usize,
    /// The longest answer to a request, in bytes.
    pub answer_limit: usize,
    /// The first version of the protocol that has it.
    pub since: u16,
}

/// All kinds, in the order of [`Kind`].
pub const FORMATS: [Format; 9] = [
    // A batch is sent at 64 KiB, with one route more, whose filter has up to 64 KiB.
    message(Kind::Routes, 1, "routes", MIB),
    message(Kind::Control, 3, "control", MIB),
    message(
        Kind::Publications,
        4,
        "publications",
        LARGEST + FULL_BYTES + 2,
    ),
    // A store's longest part is 48 MiB (`store/src/peers/wire_size.rs`).
    message(Kind::Store, 16, "store", 49 * MIB),
    request(Kind::Node, 33, "node", KIB, 64 * KIB),
    message(Kind::Takeover, 34, "takeover", MIB),
    request(Kind::Clock, 35, "clock", 1, 25),
    since(2, message(Kind::Bans, 36, "bans", MIB)),
    // A question names a client identifier and a topic at most; an answer is one page.
    since(
        INSPECTION_SINCE,
        request(Kind::Inspection, 37, "inspection", 512 * KIB, 2 * MIB),
    ),
];

/// Tags that messages of earlier programs had; no message ever gets one of them.
pub const RETIRED_TAGS: [u8; 2] = [2, 32];

const fn message(kind: Kind, tag: u8, name: &'static str, limit: usize) -> Format {
    Format {
        kind,
        tag,
        name,
        carriage: Carriage::Message,
        limit,
        answer_limit: 0,
        since: 1,
    }
}

const fn request(
    kind: Kind,
    tag: u8,
    name: &'static str,
    limit: usize,
    answer_limit: usize,
) -> Format {
    Format {
        carriage: Carriage::Request,
        answer_limit,
        ..message(kind, tag, name, limit)
    }
}

const fn since(version: u16, format: Format) -> Format {
    Format {
        since: version,
        ..format
    }
}

impl Kind {
    /// Its line of the table.
    #[must_use]
    pub const fn format(self) -> &'static Format {
        &FORMATS[self as usize]
    }

    /// The first byte of its messages.
    #[must_use]
    pub const fn tag(self) -> u8 {
        self.format().tag
    }

    /// A message that begins with the tag, for what is appended to it.
    #[must_use]
    pub fn begin(self) -> Vec<u8> {
        vec![self.tag()]
    }

    /// Whether a message may be sent to, or come from, a peer.
    ///
    /// # Errors
    /// It is longer than the limit, or the link's version does not have it.
    pub fn check(self, bytes: usize, version: u16) -> Result<(), Violation> {
        let format = self.format();
        if version < format.since {
            return Err(Violation::NotInVersion {
                kind: self,
                version,
            });
        }
        if bytes > format.limit {
            return Err(Violation::TooLong { kind: self, bytes });
        }
        Ok(())
    }

    /// Whether an answer is not longer than it may be.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn check_answer(self, bytes: usize) -> Result<(), Violation> {
        match bytes <= self.format().answer_limit {
            true => Ok(()),
            false => Err(Violation::TooLong { kind: self, bytes }),
        }
    }

    /// The kind of a message that has come, and what stands behind its tag.
    ///
    /// # Errors
    /// No kind of that tag is carried so, or [`Kind::check`] fails.
    pub fn read(
        bytes: &[u8],
        carriage: Carriage,
        version: u16,
    ) -> Result<(Self, &[u8]), Violation> {
        let (tag, rest) = bytes.split_first().ok_or(Violation::Empty)?;
        let format = FORMATS.iter().find(|format| format.tag == *tag);
        let format = format.ok_or(Violation::UnknownTag(*tag))?;
        if format.carriage != carriage {
            return Err(Violation::Misplaced(format.kind));
        }
        format.kind.check(bytes.len(), version)?;
        Ok((format.kind, rest))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format().name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What a frame of a link has at most, without its head (`cluster/src/protocol/frame.rs`).
    const LINK_LIMIT: usize = 64 * MIB - 13;

    #[test]
    fn each_tag_is_one_kind_and_none_is_used_again() {
        let tags: BTreeSet<u8> = FORMATS.iter().map(|format| format.tag).collect();
        assert_eq!(tags.len(), FORMATS.len(), "{tags:?}");
        assert!(RETIRED_TAGS.iter().all(|retired| !tags.contains(retired)));
        let names: BTreeSet<&str> = FORMATS.iter().map(|format| format.name).collect();
        assert_eq!(names.len(), FORMATS.len(), "{names:?}");
        for format in &FORMATS {
            assert_eq!(format.kind.format(), format, "the order is that of Kind");
        }
    }

    #[test]
    fn each_kind_fits_a_link_and_a_version_that_is_spoken() {
        for format in &FORMATS {
            assert!(format.limit <= LINK_LIMIT, "{}", format.name);
            assert!(VERSIONS.contains(&format.since), "{}", format.name);
        }
    }

    #[test]
    fn what_is_wrong_with_the_head_of_a_message_is_named() {
        use Carriage::{Message, Request};
        assert_eq!(Kind::read(&[], Message, 1), Err(Violation::Empty));
        for tag in [0, 2, 32, 255] {
            let unknown = Err(Violation::UnknownTag(tag));
            assert_eq!(Kind::read(&[tag, 1], Message, 1), unknown);
        }
        let control = [3, 7];
        assert_eq!(
            Kind::read(&control, Message, 1),
            Ok((Kind::Control, &[7][..]))
        );
        let misplaced = Err(Violation::Misplaced(Kind::Control));
        assert_eq!(Kind::read(&control, Request, 1), misplaced);
        let kind = Kind::Control;
        let early = Err(Violation::NotInVersion { kind, version: 0 });
        assert_eq!(Kind::read(&control, Message, 0), early);
        let mut long = vec![3; MIB];
        assert!(Kind::read(&long, Message, 1).is_ok());
        long.push(0);
        let bytes = MIB + 1;
        let too_long = Err(Violation::TooLong { kind, bytes });
        assert_eq!(Kind::read(&long, Message, 1), too_long);
    }
}
