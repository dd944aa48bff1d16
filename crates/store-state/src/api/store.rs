//! The requests themselves.

use std::fmt::Debug;
use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};

use crate::CorrelationId;
use crate::api::{Read, RetainMark, RetainedPlace, ShardNumber, ShardRef, ShardRefs, Slot};
use crate::inbox::{ClientName, InboxOp, SessionName};
use crate::retain::{PageBudget, Writer};
use crate::session::SessionOp;

/// Requests to the sharded stores. Those with a [`CorrelationId`] are answered by an [`Event`](crate::api::Event) that
/// bears its token, in their order for each shard.
pub trait Store: Debug {
    /// This node.
    fn node(&self) -> u64;

    /// The number of this process among those of the node.
    fn incarnation(&self) -> u64;

    /// Whether it has so much to do that publishers are not to be read.
    fn is_over_limit(&self) -> bool;

    /// Sessions that it knows here.
    fn sessions(&self) -> u64;

    /// Whether there are other nodes.
    fn has_peers(&self) -> bool;

    /// The session shard of a client.
    fn session_shard(&self, client: &str) -> ShardNumber;

    /// The session shards, in the order of their slots.
    fn session_shards(&self) -> ShardRefs;

    /// The node that leads a session shard, if it can be reached, and the term in which it does.
    fn session_leader(&self, shard: ShardNumber) -> Option<(u64, u64)>;

    /// Asks the session shard of a client.
    fn session(&self, client: &str, correlation_id: CorrelationId, op: SessionOp);

    /// Whether the session store knows a client, as far as this node can tell.
    fn knows(&self, client: &str) -> bool;

    /// Whether a client's session belongs to another user than this one, as far as this node knows; `None`: an
    /// anonymous client.
    fn is_of_another_user(&self, client: &str, user: Option<&str>) -> bool;

    /// The inbox shards, in the order of their slots.
    fn inbox_shards(&self) -> ShardRefs;

    /// Another node has said that there is an inbox shard with this first slot. Before what that shard has is gone by.
    fn learn_inbox_shard(&self, first: Slot);

    /// All who route to an inbox shard know what the shards want that were split off it: it tells no more of filters that
    /// only they have. For one that was not split, nothing comes of it.
    fn narrow_inbox_shard(&self, shard: ShardNumber);

    /// The node that leads an inbox shard, as far as it is known.
    fn inbox_leader(&self, shard: ShardNumber) -> Option<u64>;

    /// What a request to an inbox shard is to call a client by.
    fn client_name(&self, client: &str) -> ClientName;

    /// What a request to an inbox shard is to call the session of a client by, of which
    /// [`Attached`](crate::inbox::Attached) told the number of the inbox.
    fn session_name(&self, client: &str, inbox: u64) -> SessionName;

    /// The slot of the inbox of a client.
    fn inbox_slot(&self, client: &str) -> Slot;

    /// The inbox shard that has a slot.
    fn inbox_shard(&self, slot: Slot) -> ShardNumber;

    /// Asks the inbox shard of a session.
    fn inbox(&self, correlation_id: CorrelationId, op: InboxOp);

    /// Asks an inbox shard something that concerns all of its sessions; those that have these sessions by now are asked
    /// together, and one answer comes.
    fn inboxes(&self, shard: ShardRef, correlation_id: CorrelationId, op: InboxOp);

    /// Tells an inbox shard what a client has acknowledged; nobody is answered.
    fn acknowledge(&self, op: InboxOp);

    /// Opens, feeds or closes the queue of an inbox of this slot.
    fn read(&self, slot: Slot, read: Read);

    /// Answered when the session shard of a client has done all that it was asked before.
    fn session_barrier(&self, client: &str, correlation_id: CorrelationId);

    /// Answered for each of these inbox shards when all that it was asked before is done.
    fn inbox_barrier(&self, shards: &[ShardRef], correlation_id: CorrelationId);

    /// The retain shards, in the order of their slots.
    fn retain_shards(&self) -> ShardRefs;

    /// Has a message retained.
    fn retain(
        &self,
        correlation_id: CorrelationId,
        message: Arc<ApplicationMessage>,
        writer: Writer<'_>,
    );

    /// Answered for each of these retain shards when all that it was asked before is done.
    fn retain_barrier(&self, shards: &[ShardRef], correlation_id: CorrelationId);

    /// Whether the retain store has nothing to do here.
    fn is_retain_idle(&self) -> bool;

    /// What has been given to the retain store here until now.
    fn retain_mark(&self) -> RetainMark;

    /// Whether all that was given to the retain store here by then is applied, or refused.
    fn has_reached(&self, mark: &RetainMark) -> bool;

    /// A page of the retained messages that a filter selects, and where the next one begins; only if this node is
    /// alone. `None`: the shard that has it does not serve yet, and is to be asked for it.
    fn retained(
        &self,
        filter: &str,
        from: Option<RetainedPlace>,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> Option<(Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>)>;

    /// The shard that such a page comes from.
    fn retained_shard(&self, filter: &str, from: Option<&RetainedPlace>) -> ShardNumber;

    /// Asks a shard for such pages, of `limit` messages together at most.
    fn ask_retained<'a>(
        &self,
        correlation_id: CorrelationId,
        shard: ShardNumber,
        wanted: impl IntoIterator<Item = (&'a str, Option<RetainedPlace>)>,
        limit: usize,
        now: Timestamp,
    );
}
