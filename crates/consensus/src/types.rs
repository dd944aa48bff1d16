//! The types that openraft is used with: nodes are numbers, and their addresses are known elsewhere.

use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use openraft::impls::{InlineBatch, leader_id_std};
use openraft::raft::responder::Responder;
use openraft::type_config::alias::CommittedLeaderIdOf;
use openraft::{EmptyNode, EntryPayload, OptionalSend, RaftTypeConfig, TokioRuntime};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::command::Command;

pub(crate) type LeaderId = leader_id_std::LeaderId<u64, u64>;
pub(crate) type CommittedLeaderId = <LeaderId as openraft::vote::RaftLeaderId>::Committed;
pub(crate) type LogId = openraft::LogId<CommittedLeaderId>;
pub(crate) type Vote = openraft::Vote<LeaderId>;
pub(crate) type Membership = openraft::Membership<u64, EmptyNode>;
pub(crate) type StoredMembership = openraft::StoredMembership<CommittedLeaderId, u64, EmptyNode>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<CommittedLeaderId, u64, EmptyNode>;
pub(crate) type Payload<C> = EntryPayload<C, u64, EmptyNode>;
pub(crate) type Entry<C> = openraft::Entry<CommittedLeaderIdOf<Types<C>>, Payload<C>>;

/// Entries and terms beyond are not reached in the life of a group; they would overflow when counted on.
pub(crate) const MAX_NUMBER: u64 = u64::MAX >> 1;

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term), index)
}

/// The index of the entry behind this one.
pub(crate) fn next_index(last: Option<LogId>) -> u64 {
    last.map_or(0, |id| id.index + 1)
}

/// More terms than a group had between two copies of the folders of its members.
pub(crate) const TERMS_OF_COPIES: u64 = 1_000_000;

/// openraft's parameters for groups that agree on `C`.
pub(crate) struct Types<C>(PhantomData<fn() -> C>);

impl<C: Command> RaftTypeConfig for Types<C> {
    type D = C;
    type R = ();
    type NodeId = u64;
    type Node = EmptyNode;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload<C>;
    type Entry = Entry<C>;
    type AsyncRuntime = TokioRuntime;
    type Responder<T>
        = Reply<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = openraft::AnyError;
}

/// Where the outcome of a proposal goes. The room that the proposal takes is given back with it.
pub(crate) struct Reply<T> {
    pub(crate) outcome: oneshot::Sender<T>,
    pub(crate) _room: OwnedSemaphorePermit,
}

impl<C: Command, T: OptionalSend + 'static> Responder<Types<C>, T> for Reply<T> {
    fn on_complete(self, result: T) {
        // Whoever does not wait for the outcome has dropped the other end.
        drop(self.outcome.send(result));
    }
}

// openraft asks for these of its parameters; derived, they would ask for them of `C`.
impl<C> Clone for Types<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Types<C> {}

impl<C> Default for Types<C> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<C> fmt::Debug for Types<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Types")
    }
}

impl<C> PartialEq for Types<C> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<C> Eq for Types<C> {}

impl<C> Hash for Types<C> {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl<C> PartialOrd for Types<C> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> Ord for Types<C> {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}
