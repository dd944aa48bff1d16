//! How far a state machine's tables reach.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::encoding::{Reader, put_optional_log_id, put_stored_membership};
use crate::standing::Members;
use crate::types::{LogId, Membership, SnapshotMeta, StoredMembership, log_id};

/// First byte of an encoded mark.
const VERSION: u8 = 1;

/// The index that a seeded state stands for. The first entry of a group that was founded has index 0: no position
/// of such a group is taken for a seed.
const SEED_INDEX: u64 = 5;

/// The position of the state that a child begins with.
pub(crate) fn seed_id() -> LogId {
    log_id(0, SEED_INDEX)
}

/// A position in a group's log and the group's members there: what a checkpoint has to keep beside the
/// tables, and what the log is replayed from. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    pub(crate) log_id: Option<LogId>,
    pub(crate) membership: Arc<StoredMembership>,
}

impl Mark {
    /// The index of the last entry that it covers.
    pub fn index(&self) -> Option<u64> {
        self.log_id.as_ref().map(|id| id.index)
    }

    /// The members there.
    pub fn members(&self) -> Members {
        Members::of(self.membership.membership())
    }

    /// The position of the state that a group is seeded with, which has these members from the beginning. They
    /// should be those of the parent before the entry that cuts its state.
    pub fn seed(members: &Members) -> Self {
        let all = members.all();
        let membership = Membership::new_with_defaults(members.voters.clone(), all);
        Self {
            log_id: Some(seed_id()),
            membership: Arc::new(StoredMembership::new(Some(seed_id()), membership)),
        }
    }

    /// Whether a group with voters can begin with it.
    pub(crate) fn is_seed(&self) -> bool {
        let voters = self.members().voters;
        let is_empty = voters.is_empty() || voters.iter().any(BTreeSet::is_empty);
        self.log_id == Some(seed_id()) && !is_empty
    }

    pub(crate) fn of_snapshot(meta: &SnapshotMeta) -> Self {
        Self {
            log_id: meta.last_log_id,
            membership: Arc::new(meta.last_membership.clone()),
        }
    }

    pub(crate) fn to_snapshot(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.log_id,
            last_membership: (*self.membership).clone(),
        }
    }

    /// The first index that it does not cover.
    pub(crate) fn next_index(&self) -> u64 {
        self.index().map_or(0, |index| index + 1)
    }

    /// Bytes to keep beside the tables: about 60.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_optional_log_id(self.log_id.as_ref(), &mut out);
        put_stored_membership(&self.membership, &mut out);
        out
    }

    /// The mark that [`Mark::encode`] made these bytes of.
    pub fn decode(bytes: &[u8]) -> Result<Self, CorruptMark> {
        let mut reader = Reader(bytes);
        let mark = read(&mut reader).ok_or(CorruptMark)?;
        if reader.0.is_empty() {
            Ok(mark)
        } else {
            Err(CorruptMark)
        }
    }
}

fn read(reader: &mut Reader<'_>) -> Option<Mark> {
    if reader.u8()? != VERSION {
        return None;
    }
    Some(Mark {
        log_id: reader.optional_log_id()?,
        membership: Arc::new(reader.stored_membership()?),
    })
}

/// Bytes that no mark has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CorruptMark;

impl fmt::Display for CorruptMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a mark of this version")
    }
}

impl std::error::Error for CorruptMark {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Membership, log_id};

    fn mark() -> Mark {
        let voters = vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])];
        let membership = Membership::new_with_defaults(voters, [1, 2, 3, 4]);
        Mark {
            log_id: Some(log_id(7, 1_000)),
            membership: Arc::new(StoredMembership::new(Some(log_id(3, 9)), membership)),
        }
    }

    #[test]
    fn is_the_same_after_encoding() {
        for mark in [mark(), Mark::default()] {
            assert_eq!(Mark::decode(&mark.encode()), Ok(mark));
        }
    }

    #[test]
    fn a_seed_has_the_members_and_the_position_before_the_first_entry_of_a_child() {
        let members = mark().members();
        assert_eq!(members.voters, [[1, 2].into(), [2, 3].into()]);
        assert_eq!(members.learners, [4].into());
        let seed = Mark::seed(&members);
        assert_eq!((seed.index(), seed.members()), (Some(5), members));
        assert_eq!(*seed.membership.log_id(), seed.log_id);
        assert_eq!(Mark::decode(&seed.encode()), Ok(seed.clone()));
        assert!(seed.is_seed() && !mark().is_seed());
        assert!(!Mark::seed(&Members::default()).is_seed(), "nobody votes");
    }

    #[test]
    fn cut_or_longer_or_of_another_version_it_is_corrupt() {
        let bytes = mark().encode();
        for end in 0..bytes.len() {
            assert_eq!(Mark::decode(&bytes[..end]), Err(CorruptMark), "{end} bytes");
        }
        assert_eq!(Mark::decode(&[&bytes[..], &[0]].concat()), Err(CorruptMark));
        let mut newer = bytes;
        newer[0] += 1;
        assert_eq!(Mark::decode(&newer), Err(CorruptMark));
    }
}
