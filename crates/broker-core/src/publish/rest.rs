//! Shared groups that are still to get a message.
//!
//! Deliberately absent: how they get it (`to_groups.rs`), and in which turn (`distribute.rs`).

use std::ops::Range;
use std::sync::Arc;

use net_api::Key;
use store_state::inbox::Item;

use crate::publish::once::Once;
use crate::routes::MatchSet;

/// Groups of a match that get a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    All,
    /// Those without members that have got it directly: it has come before.
    Durable,
    /// Those with members that this node knows of by itself: another node does not know them.
    Own,
}

/// The groups that a message is given to, and what follows.
#[derive(Debug)]
pub(crate) struct ToGroups {
    pub(crate) which: Which,
    /// Not to these, by their numbers, which ascend.
    pub(crate) but: Box<[u32]>,
    /// Makes it happen once.
    pub(crate) once: Option<Once>,
    /// What is pending for its publisher, and counts these groups as one answer; `None`: nobody waits for it.
    pub(crate) publication: Option<Key>,
    /// The numbers of those that are done with, if it waits for members of the others.
    pub(crate) served: Option<Vec<u32>>,
}

impl ToGroups {
    /// Its bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        let served = self.served.as_ref().map_or(0, Vec::capacity);
        size_of::<Self>() + (self.but.len() + served) * size_of::<u32>()
    }
}

/// Messages for the inboxes of members.
pub(crate) type ForInboxes = Vec<(Arc<str>, Item)>;

/// Groups of a match that have not got its message.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) set: Arc<MatchSet>,
    /// Among the groups of the match.
    pub(crate) range: Range<usize>,
    pub(crate) to: ToGroups,
}
