//! What the control shard can be asked, what it answers, and what it tells.

use ::control::{AuditNote, By, Change, ChangeId, Changed, Incarnation, Node, Refused, Revision};
use serde::{Deserialize, Serialize};

use crate::Level;

/// A request to the control shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ControlOp {
    /// Changes records, all of them or none.
    Change {
        /// What it is recognised by if it comes again.
        id: ChangeId,
        /// Who asks.
        by: By,
        /// In this order: a later one finds what those before it have made.
        changes: Vec<Change>,
    },
    /// Changes nothing: the answer has the revision that this process of this node has to know until it knows whatever was
    /// changed before it began.
    NodeUp {
        /// The node.
        node: Node,
        /// Its process.
        incarnation: Incarnation,
    },
    /// Adds to the audit what was done at a node. Changes no record.
    Note {
        /// Later than that of the node's notes before: what comes again is recognised by it. The answer does not say whether it was new.
        id: ChangeId,
        /// In this order.
        notes: Vec<AuditNote>,
    },
}

impl ControlOp {
    /// The operation as a log of a level can have it; `None`: no log of that level has anything like it.
    #[must_use]
    pub fn lowered(mut self, level: Level) -> Option<Self> {
        if level.has_people() {
            return Some(self);
        }
        match &mut self {
            Self::Change { by, changes, .. } => {
                by.means = by.means.before_people()?;
                let can_be = changes.iter().all(Change::is_before_people);
                can_be.then_some(self)
            }
            Self::NodeUp { .. } => Some(self),
            Self::Note { .. } => None,
        }
    }
}

/// What the shard answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ControlReply {
    /// All is as it was asked for, as of this revision.
    Changed {
        /// The revision: that of the operation, or that of before if all was so already.
        revision: Revision,
    },
    /// Nothing was changed.
    Refused(Refused),
}

/// Who is told on every replica what has changed.
pub trait ControlOutlet {
    /// An operation has changed something. The machine has it already.
    fn changed(&mut self, changed: Changed);
}
