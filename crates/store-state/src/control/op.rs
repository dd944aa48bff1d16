//! What the control shard can be asked, what it answers, and what it tells.

use ::control::{By, Change, ChangeId, Changed, Incarnation, Node, Refused, Revision};
use serde::{Deserialize, Serialize};

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
