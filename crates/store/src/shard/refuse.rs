//! Requests that a shard does not carry out.
//!
//! Invariant: each request is answered, or its messages are counted as lost if nobody waits for the answer.

use std::sync::atomic::Ordering;

use store_state::api::{Event, Failure, REQUEST_LIMIT};
use store_state::{CorrelationId, Request};

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::shard::handle::Shard;
use crate::shard::outbox::Outbox;
use crate::shard::retained::PageRequest;
use crate::shard::work::Work;

impl<M: Kind> Shard<M> {
    /// Refuses requests.
    pub(crate) fn refuse(
        &self,
        listener: &dyn Listener,
        requests: &[Request<M::Op>],
        failure: Failure,
    ) {
        let count = requests.len() as u64;
        // In this order: whoever sees that a request is finished sees that it was refused.
        self.stats.refused.fetch_add(count, Ordering::Relaxed);
        self.stats.finished.fetch_add(count, Ordering::Release);
        let mut outbox = Outbox::default();
        for request in requests {
            if request.correlation_id == CorrelationId::NONE {
                M::lost(&request.op, listener);
            }
            outbox.address(request.correlation_id, Event::failed(failure));
        }
        self.give_out(listener, outbox);
    }

    /// Refuses requests that are too long for a batch, so that the others go on.
    pub(crate) fn refuse_too_long(&self, listener: &dyn Listener, requests: &[Request<M::Op>]) {
        if !requests.is_empty() {
            tracing::error!(
                store = M::NAME,
                shard = self.number,
                requests = requests.len(),
                limit = REQUEST_LIMIT,
                "requests are too long for the store; they are refused"
            );
            self.refuse(listener, requests, Failure::TooLong);
        }
    }

    /// Refuses whatever is asked.
    pub(crate) fn refuse_work(
        &self,
        listener: &dyn Listener,
        work: impl Iterator<Item = Work<M::Op>>,
    ) {
        let mut requests = Vec::new();
        let mut outbox = Outbox::default();
        for work in work {
            match work {
                Work::Propose { request, .. } => requests.push(request),
                Work::Barrier(correlation_id, _)
                    if correlation_id.loop_number == CorrelationId::STORE =>
                {
                    outbox.address(correlation_id, Event::failed(Failure::Stopped));
                }
                Work::Barrier(correlation_id, until) => {
                    self.passed(correlation_id, until, &mut outbox);
                }
                Work::Page(PageRequest { correlation_id, .. }) => {
                    outbox.address(correlation_id, Event::failed(Failure::Stopped));
                }
                Work::Read(..) => {}
                Work::Stop(done) => {
                    let _ = done.send(());
                }
            }
        }
        self.give_out(listener, outbox);
        self.refuse(listener, &requests, Failure::Stopped);
    }

    /// Counts requests that wait for a leader, as those that wait for space are.
    pub(crate) fn count_deferred(&self, kept: &[(usize, Work<M::Op>)]) {
        let bytes = kept.iter().map(|(bytes, _)| bytes).sum();
        self.stats.deferred.store(kept.len(), Ordering::Relaxed);
        self.stats.deferred_bytes.store(bytes, Ordering::Relaxed);
    }
}
