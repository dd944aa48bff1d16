//! Takes what a shard is given and proposes it in batches, of which a few are on their way at once.
//!
//! On a full disk nothing is proposed, and nothing waits for what has been: reads are served, barriers are
//! passed, requests are refused. Those that nobody would say again wait (`later.rs`), and are recorded
//! before anything else of this node when there is space.
//!
//! Invariant: what is proposed is in the order in which it was given.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use consensus::{Condition, Group, ProposeError};
use store_state::{Batch, Header, Request, Ticket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::command::Command;
use crate::kind::Kind;
use crate::later::{Debt, Debts, Later, Weighed, Weight};
use crate::node::is_full;
use crate::shard::{Shard, Work};
use crate::{Failure, Listener, Read};

/// Requests in one batch at most.
const BATCH: usize = 1024;

/// Bytes in one batch, above which the next request begins another one.
const BATCH_BYTES: usize = 512 * 1024;

/// Batches of one shard on their way at once. More would make batches smaller, not answers quicker.
const IN_FLIGHT: usize = 4;

/// The task that serves a shard's queue.
pub(crate) struct Proposer<M: Kind> {
    shard: Arc<Shard<M>>,
    group: Arc<Group<Command>>,
    listener: Arc<dyn Listener>,
    condition: watch::Receiver<Condition>,
    in_flight: Arc<Semaphore>,
    later: Later<M>,
    debts: Debts,
}

/// What was taken from the queue, by its kinds.
struct Taken<O> {
    requests: Vec<Weighed<O>>,
    reads: Vec<Read>,
    barriers: Vec<Ticket>,
    stop: Option<oneshot::Sender<()>>,
}

impl<M: Kind> Proposer<M> {
    pub(crate) fn new(
        shard: Arc<Shard<M>>,
        group: Arc<Group<Command>>,
        listener: Arc<dyn Listener>,
        condition: watch::Receiver<Condition>,
        debts: Debts,
    ) -> Self {
        Self {
            shard,
            group,
            listener,
            condition,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT)),
            later: Later::new(debts.clone()),
            debts,
        }
    }

    /// Serves the queue until it is told to stop.
    pub(crate) async fn run(mut self) {
        loop {
            let permit = self.permit().await;
            let permit = match permit {
                Some(permit) if !self.later.is_empty() => {
                    self.propose_later(permit).await;
                    continue;
                }
                other => other,
            };
            let taken = self.take().await;
            if !taken.reads.is_empty() {
                self.shard.read(&*self.listener, &taken.reads);
            }
            self.take_on(taken.requests, permit).await;
            if !taken.barriers.is_empty() || taken.stop.is_some() {
                self.settle().await;
                self.shard.pass(&*self.listener, &taken.barriers);
            }
            if let Some(done) = taken.stop {
                let _ = done.send(());
                return;
            }
        }
    }

    /// Waits until one more batch may be on its way; `None`: the disk is full.
    async fn permit(&mut self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            _ = self.condition.wait_for(is_full) => None,
            permit = Arc::clone(&self.in_flight).acquire_owned() => permit.ok(),
        }
    }

    /// Waits until everything that was on its way has been applied and answered, or the disk is full.
    async fn settle(&mut self) {
        tokio::select! {
            biased;
            _ = self.condition.wait_for(is_full) => {}
            _ = self.in_flight.acquire_many(IN_FLIGHT as u32) => {}
        }
    }

    /// Waits for work, or for another condition of the log: then there may be none.
    async fn take(&mut self) -> Taken<M::Op> {
        let mut work = Vec::new();
        tokio::select! {
            biased;
            _ = self.condition.changed() => {}
            () = self.shard.queue.take(BATCH, BATCH_BYTES, &mut work) => {}
        }
        let mut taken = Taken {
            requests: Vec::with_capacity(work.len()),
            reads: Vec::new(),
            barriers: Vec::new(),
            stop: None,
        };
        for (bytes, work) in work {
            match work {
                Work::Propose { request, must_wait } => {
                    taken.requests.push((Weight { bytes, must_wait }, request));
                }
                Work::Read(read) => taken.reads.push(read),
                Work::Barrier(ticket) => taken.barriers.push(ticket),
                Work::Stop(done) => taken.stop = Some(done),
            }
        }
        taken
    }

    /// Proposes requests, if there is a permit, as far as the disk has room for new ones.
    async fn take_on(
        &mut self,
        mut requests: Vec<Weighed<M::Op>>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let Some(permit) = permit else {
            return self.put_off(requests);
        };
        if self.debts.is_any() {
            let new = requests.extract_if(.., |(weight, _)| !weight.must_wait);
            let new: Vec<_> = new.map(|(_, request)| request).collect();
            self.shard.refuse(&*self.listener, &new, Failure::Full);
        }
        if !requests.is_empty()
            && let Err(requests) = self.propose(requests, None, permit).await
        {
            self.put_off(requests);
        }
    }

    /// Proposes what has waited for space.
    async fn propose_later(&mut self, permit: OwnedSemaphorePermit) {
        let (requests, debt) = self.later.take(BATCH, BATCH_BYTES);
        if let Err(requests) = self.propose(requests, debt, permit).await {
            self.later.put_back(requests);
        }
        self.count_later();
    }

    /// The disk is full: requests that nobody would say again wait, others are refused.
    fn put_off(&mut self, requests: Vec<Weighed<M::Op>>) {
        let mut refused = Vec::new();
        for (weight, request) in requests {
            if !weight.must_wait {
                refused.push(request);
            } else if !self.later.put((weight, request)) {
                self.shard.stats.finished.fetch_add(1, Ordering::Release);
            }
        }
        self.count_later();
        self.shard.refuse(&*self.listener, &refused, Failure::Full);
    }

    fn count_later(&self) {
        let stats = &self.shard.stats;
        stats.owed.store(self.later.len(), Ordering::Relaxed);
        stats
            .owed_bytes
            .store(self.later.bytes(), Ordering::Relaxed);
    }

    /// Proposes one batch; the answers follow when it is applied. Gives the requests back if the disk is
    /// full.
    async fn propose(
        &self,
        requests: Vec<Weighed<M::Op>>,
        debt: Option<Debt>,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), Vec<Weighed<M::Op>>> {
        let (weights, requests): (Vec<Weight>, Vec<Request<M::Op>>) = requests.into_iter().unzip();
        let batch = Arc::new(Batch {
            header: Header {
                now_ms: self.listener.now_ms(),
                limits: self.listener.limits(),
            },
            requests,
            bytes: weights.iter().map(|weight| weight.bytes).sum(),
        });
        let proposal = self.group.propose(M::command(Arc::clone(&batch))).await;
        if let Err(ProposeError::Full) = proposal {
            let Batch { requests, .. } = Arc::unwrap_or_clone(batch);
            return Err(weights.into_iter().zip(requests).collect());
        }
        let (shard, listener) = (Arc::clone(&self.shard), Arc::clone(&self.listener));
        tokio::spawn(async move {
            let outcome = match proposal {
                Ok(proposal) => proposal.await,
                Err(error) => Err(error),
            };
            if outcome.is_err() {
                shard.refuse(&*listener, &batch.requests, Failure::Stopped);
            } else {
                let count = batch.requests.len() as u64;
                shard.stats.finished.fetch_add(count, Ordering::Release);
            }
            drop((debt, permit));
        });
        Ok(())
    }
}
