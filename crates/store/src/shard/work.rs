//! What a shard can be given to do.

use store_state::api::{LastSlot, Read};
use store_state::{CorrelationId, Request};
use tokio::sync::oneshot;

use crate::kinds::kind::Kind;
use crate::shard::retained::PageRequest;

/// What a shard can be given to do.
#[derive(Debug)]
pub(crate) enum Work<O> {
    /// To be agreed on, synced and applied.
    Propose {
        request: Request<O>,
        /// On a full disk it waits, and is not refused.
        must_wait: bool,
    },
    /// To be read, by an event loop of a node (0: this one).
    Read(u64, Read),
    /// To be answered when all that was given before is applied, by the shards that have slots up to this one by then, if
    /// this node has asked.
    Barrier(CorrelationId, LastSlot),
    /// To be answered with retained messages, when all that was given before is applied.
    Page(PageRequest),
    /// The last: to be told when all that was given before is applied.
    Stop(oneshot::Sender<()>),
}

impl<O> Work<O> {
    /// Who waits for the answer.
    pub(super) fn correlation_id(&self) -> CorrelationId {
        match self {
            Self::Propose { request, .. } => request.correlation_id,
            Self::Barrier(correlation_id, _) => *correlation_id,
            Self::Page(request) => request.correlation_id,
            Self::Read(..) | Self::Stop(_) => CorrelationId::NONE,
        }
    }

    /// Whether it is refused, and not retried, by a node that does not know whether it was done.
    pub(super) fn is_at_most_once<M: Kind<Op = O>>(&self) -> bool {
        matches!(self, Self::Propose { request, .. } if M::is_at_most_once(&request.op))
    }

    /// Whether another node has sent it.
    pub(super) fn is_forwarded(&self) -> bool {
        let peer = match self {
            Self::Propose { request, .. } => request.correlation_id.peer,
            Self::Read(peer, _) => *peer,
            Self::Barrier(correlation_id, _) => correlation_id.peer,
            Self::Page(request) => request.correlation_id.peer,
            Self::Stop(_) => 0,
        };
        peer != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_another_node_is_forwarded_work() {
        let of = |peer| CorrelationId {
            peer,
            loop_number: 1,
            token: 1,
        };
        let close = Read::Close { inbox: 1, epoch: 1 };
        for (peer, is_forwarded) in [(0, false), (7, true)] {
            assert_eq!(
                Work::<()>::Barrier(of(peer), LastSlot(9)).is_forwarded(),
                is_forwarded
            );
            assert_eq!(Work::<()>::Read(peer, close).is_forwarded(), is_forwarded);
        }
        let (done, _) = oneshot::channel();
        assert!(!Work::<()>::Stop(done).is_forwarded());
    }
}
