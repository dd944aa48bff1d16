//! Where a shard is served, as this node knows it.

use std::sync::Arc;

use consensus::Group;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::kinds::command::Command;
use crate::leadership::state::{LeaderHint, Leadership};
use crate::peers::network::Peers;
use crate::shard::outstanding::Outstanding;
use crate::shard::work::Work;

/// Where a shard is served, as this node knows it.
pub(crate) struct ShardRouting<O> {
    /// This node.
    pub(crate) node: u64,
    /// The other nodes; `None`: there are none.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    /// Who leads.
    pub(crate) hint: watch::Sender<LeaderHint>,
    /// What the leader was sent and has not answered.
    pub(crate) sent: Mutex<Outstanding<Work<O>>>,
    /// The replica here.
    pub(crate) group: watch::Sender<Option<Arc<Group<Command>>>>,
    /// What it is to do.
    pub(crate) leadership: watch::Sender<Leadership>,
}

impl<O> ShardRouting<O> {
    pub(crate) fn new(node: u64, peers: Option<Arc<dyn Peers>>) -> Self {
        Self {
            node,
            peers,
            hint: watch::Sender::default(),
            sent: Mutex::new(Outstanding::new()),
            group: watch::Sender::new(None),
            leadership: watch::Sender::default(),
        }
    }

    /// Does something if this node leads the shard, before it can lead no more: what is in the queue of the shard then is
    /// dropped, if others have sent it or the leader itself has found it (`CorrelationId::LEADER`).
    pub(crate) fn while_here(&self, work: impl FnOnce()) {
        let hint = self.hint.borrow();
        if hint.leader == self.node {
            work();
        }
    }

    /// Whether the shard is served here.
    pub(crate) fn is_here(&self) -> bool {
        self.hint.borrow().leader == self.node
    }
}
