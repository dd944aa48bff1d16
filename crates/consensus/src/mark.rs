//! How far a state machine's tables reach.

use std::fmt;
use std::sync::Arc;

use crate::encoding::{Reader, put_optional_log_id, put_stored_membership};
use crate::standing::Members;
use crate::types::{LogId, SnapshotMeta, StoredMembership};

/// First byte of an encoded mark.
const VERSION: u8 = 1;

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
    use std::collections::BTreeSet;

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
