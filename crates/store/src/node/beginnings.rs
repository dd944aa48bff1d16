//! How an entry of one store gives birth to the shard of another one.
//!
//! Purpose: shards are generic over their store, and know no other; what concerns two of them goes through here.

use std::sync::Arc;

use consensus::{Mark, Origin};
use store_state::Level;
use store_state::api::ShardNumber;

use crate::node::services::NodeServices;

/// The shard whose entry has made what a replica begins with. It writes no checkpoint before that is in a table.
pub(crate) trait Parent: Send + Sync {
    /// The child has a table of its own, or will never have one.
    fn is_seeded(&self);
}

/// What an entry says of the replica that begins.
pub(crate) struct Begin {
    /// The entry.
    pub(crate) by: Origin,
    /// The position that it begins with, and its members.
    pub(crate) mark: Mark,
    /// The level of the shard whose entry it is.
    pub(crate) level: Level,
    /// The node leads that shard, and is to lead the one that begins.
    pub(crate) is_parent_led_here: bool,
    pub(crate) parent: Arc<dyn Parent>,
}

/// The stores of which one begins the other.
pub(crate) trait Beginnings: Send + Sync {
    /// An entry of the session store begins the control store, and this node votes in it. True: the parent is told when the
    /// replica has a table; false: there is a replica already, or there was one.
    ///
    /// # Errors
    /// What is on the disk cannot be read.
    fn begin_control(&self, services: &NodeServices, begin: Begin) -> Result<bool, String>;

    /// The index of the last entry that the replica of a session shard here has applied; `None`: there is none, or it is applying
    /// one.
    fn applied_by_session(&self, shard: ShardNumber) -> Option<u64>;
}
