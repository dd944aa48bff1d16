//! Reading and writing the few numbers of what goes to disks and to other nodes: little-endian, fixed
//! length.

use std::collections::BTreeSet;

use openraft::EmptyNode;

use crate::types::{LogId, Membership, StoredMembership, Vote, log_id};

/// Takes numbers from the front of a slice; `None` when it is too short.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    /// Bytes that follow their number.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn log_id(&mut self) -> Option<LogId> {
        let term = self.u64()?;
        Some(log_id(term, self.u64()?))
    }

    pub(crate) fn optional_log_id(&mut self) -> Option<Option<LogId>> {
        Some(if self.flag()? {
            Some(self.log_id()?)
        } else {
            None
        })
    }

    pub(crate) fn vote(&mut self) -> Option<Vote> {
        let (term, node) = (self.u64()?, self.u64()?);
        Some(if self.flag()? {
            Vote::new_committed(term, node)
        } else {
            Vote::new(term, node)
        })
    }

    /// One or, while it changes, two sets of voters, then all nodes.
    pub(crate) fn membership(&mut self) -> Option<Membership> {
        let voters = (0..self.u32()?)
            .map(|_| self.node_ids())
            .collect::<Option<Vec<_>>>()?;
        let nodes = self.node_ids()?;
        Some(Membership::new_with_defaults(voters, nodes))
    }

    pub(crate) fn stored_membership(&mut self) -> Option<StoredMembership> {
        let log_id = self.optional_log_id()?;
        Some(StoredMembership::new(log_id, self.membership()?))
    }

    fn node_ids(&mut self) -> Option<BTreeSet<u64>> {
        (0..self.u32()?).map(|_| self.u64()).collect()
    }
}

pub(crate) fn put_log_id(id: &LogId, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.leader_id.term.to_le_bytes());
    out.extend_from_slice(&id.index.to_le_bytes());
}

pub(crate) fn put_optional_log_id(id: Option<&LogId>, out: &mut Vec<u8>) {
    out.push(u8::from(id.is_some()));
    if let Some(id) = id {
        put_log_id(id, out);
    }
}

pub(crate) fn put_vote(vote: &Vote, out: &mut Vec<u8>) {
    out.extend_from_slice(&vote.leader_id.term.to_le_bytes());
    out.extend_from_slice(&vote.leader_id.voted_for.to_le_bytes());
    out.push(u8::from(vote.committed));
}

pub(crate) fn put_membership(membership: &Membership, out: &mut Vec<u8>) {
    let voters = membership.get_joint_config();
    put_count(voters.len(), out);
    for set in voters {
        put_node_ids(set.len(), set.iter(), out);
    }
    let nodes: Vec<(&u64, &EmptyNode)> = membership.nodes().collect();
    put_node_ids(nodes.len(), nodes.into_iter().map(|(id, _)| id), out);
}

pub(crate) fn put_stored_membership(stored: &StoredMembership, out: &mut Vec<u8>) {
    put_optional_log_id(stored.log_id().as_ref(), out);
    put_membership(stored.membership(), out);
}

fn put_node_ids<'a>(count: usize, ids: impl Iterator<Item = &'a u64>, out: &mut Vec<u8>) {
    put_count(count, out);
    for id in ids {
        out.extend_from_slice(&id.to_le_bytes());
    }
}

/// Bytes after their number. They are far fewer than 4 GB; more would be found when they are read.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_count(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// What is counted is few; a count that does not fit is cut, and found when it is read.
pub(crate) fn put_count(count: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

pub(crate) fn encoded(id: &LogId) -> Vec<u8> {
    let mut out = Vec::new();
    put_log_id(id, &mut out);
    out
}

pub(crate) fn encoded_vote(vote: &Vote) -> Vec<u8> {
    let mut out = Vec::new();
    put_vote(vote, &mut out);
    out
}
