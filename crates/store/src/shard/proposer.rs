//! The proposer takes the requests of a shard that this node leads and proposes them in batches, a few of them at once.
//!
//! On a full disk the proposer proposes nothing: it serves reads, passes barriers and refuses requests. Requests that nobody
//! would retry are deferred (`deferred.rs`), and are recorded before any other request of this node when there is space.
//!
//! When this node does not lead any more, the proposer requeues the requests that are in flight, to be retried: whether they
//! were applied is not known. Requests of other nodes are dropped: those nodes retry them.
//!
//! Invariant: requests are proposed in the order in which they were given.
//!
//! Deliberately absent: what happens while another node leads (`worker.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consensus::{Condition, Group, ProposeError};
use store_state::api::{Failure, LastSlot, REQUEST_LIMIT, Read};
use store_state::{
    Attempts, Batch, CorrelationId, Header, Level, ProposedHere, Request, Requeued, Written,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::api::listener::Listener;
use crate::kinds::command::Command;
use crate::kinds::kind::Kind;
use crate::leadership::state::Leadership;
use crate::node::disk::is_full;
use crate::shard::deferred::{Backlog, BacklogShare, DeferredRequests, Weighed, Weight};
use crate::shard::handle::Shard;
use crate::shard::in_flight::{InFlight, Underway};
use crate::shard::load::Effort;
use crate::shard::request::OVERHEAD;
use crate::shard::retained::PageRequest;
use crate::shard::work::Work;

/// Requests in one batch at most.
pub(crate) const BATCH: usize = 1024;

/// Bytes in one batch, above which the next request begins another one.
pub(crate) const BATCH_BYTES: usize = 512 * 1024;

/// Batches of one shard on their way at once. More would make batches smaller, not answers quicker.
///
/// Limit: batches of a shard under way | {} of at most {BATCH} requests or {BATCH_BYTES}, as they are written |
/// requests wait
const IN_FLIGHT: usize = 4;

/// How long batches on their way are waited for when the shard is not led here any more.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

/// Time until a question for retained messages is retried that this node could not answer for sure.
const RETRY_PAGE: Duration = Duration::from_millis(20);

/// What serves the queue of a shard while this node leads it.
pub(crate) struct Proposer<M: Kind> {
    shard: Arc<Shard<M>>,
    group: Arc<Group<Command>>,
    /// What this node leads by, as long as it stays that.
    leadership: Leadership,
    leadership_changes: watch::Receiver<Leadership>,
    listener: Arc<dyn Listener>,
    condition: watch::Receiver<Condition>,
    permits: Arc<Semaphore>,
    in_flight: Arc<InFlight<M::Op>>,
    deferred: DeferredRequests<M>,
    backlog: Backlog,
    compression: Arc<Attempts>,
}

/// Why a proposer ends.
pub(crate) enum Ended {
    /// It was told to.
    Stopped(oneshot::Sender<()>),
    /// This node does not lead the shard, or cannot go on leading it.
    Interrupted,
}

/// What was taken from the queue, by its kinds.
struct Taken<O> {
    requests: Vec<Weighed<O>>,
    reads: Vec<(u64, Read)>,
    barriers: Vec<(CorrelationId, LastSlot)>,
    pages: Vec<PageRequest>,
    stop: Option<oneshot::Sender<()>>,
}

/// Something else comes first.
struct Interrupted;

impl<M: Kind> Proposer<M> {
    pub(crate) fn new(
        shard: Arc<Shard<M>>,
        group: Arc<Group<Command>>,
        leadership: Leadership,
        listener: Arc<dyn Listener>,
        condition: watch::Receiver<Condition>,
        backlog: Backlog,
    ) -> Self {
        Self {
            leadership,
            leadership_changes: shard.routing.leadership.subscribe(),
            shard,
            group,
            listener,
            condition,
            permits: Arc::new(Semaphore::new(IN_FLIGHT)),
            in_flight: Arc::new(InFlight::new()),
            deferred: DeferredRequests::new(backlog.clone()),
            backlog,
            compression: Arc::default(),
        }
    }

    /// Serves the queue until it is told to stop, or another node has to.
    pub(crate) async fn run(mut self) -> Ended {
        loop {
            match self.step().await {
                Ok(None) => {}
                Ok(Some(done)) => return Ended::Stopped(done),
                Err(Interrupted) => {
                    self.requeue().await;
                    return Ended::Interrupted;
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Option<oneshot::Sender<()>>, Interrupted> {
        let permit = match self.permit().await? {
            Some(permit) if !self.deferred.is_empty() => {
                self.propose_deferred(permit).await;
                return Ok(None);
            }
            other => other,
        };
        let mut taken = self.take().await?;
        if !taken.reads.is_empty() {
            self.shard.read(&*self.listener, &taken.reads);
        }
        self.accept(std::mem::take(&mut taken.requests), permit)
            .await;
        let Taken {
            barriers,
            pages,
            stop,
            ..
        } = taken;
        if barriers.is_empty() && pages.is_empty() && stop.is_none() {
            return Ok(None);
        }
        if let Err(interrupted) = self.settle().await {
            let barriers = barriers
                .into_iter()
                .map(|(correlation_id, until)| Work::Barrier(correlation_id, until));
            let again = barriers.chain(pages.into_iter().map(Work::Page));
            let again = again.chain(stop.map(Work::Stop));
            self.shard
                .queue
                .put_first(again.map(|work| (0, work)).collect());
            return Err(interrupted);
        }
        self.shard.pass(&*self.listener, &barriers);
        self.answer(pages);
        match stop {
            // There is space, which was not heard of yet: what has waited for it comes before the end.
            Some(done) if !self.deferred.is_empty() && !is_full(&self.condition.borrow()) => {
                self.shard.queue.put_first(vec![(0, Work::Stop(done))]);
                Ok(None)
            }
            stop => Ok(stop),
        }
    }

    /// Waits until one more batch may be on its way; `None`: the disk is full.
    async fn permit(&mut self) -> Result<Option<OwnedSemaphorePermit>, Interrupted> {
        tokio::select! {
            biased;
            _ = is_over(&mut self.leadership_changes, self.leadership) => Err(Interrupted),
            () = self.in_flight.failed.notified() => Err(Interrupted),
            _ = self.condition.wait_for(is_full) => Ok(None),
            permit = Arc::clone(&self.permits).acquire_owned() => Ok(permit.ok()),
        }
    }

    /// Waits until everything that was on its way has been applied and answered, or the disk is full.
    async fn settle(&mut self) -> Result<(), Interrupted> {
        tokio::select! {
            biased;
            _ = is_over(&mut self.leadership_changes, self.leadership) => Err(Interrupted),
            () = self.in_flight.failed.notified() => Err(Interrupted),
            _ = self.condition.wait_for(is_full) => Ok(()),
            _ = self.permits.acquire_many(IN_FLIGHT as u32) => Ok(()),
        }
    }

    /// Answers questions for retained messages, if this node still leads.
    fn answer(&self, pages: Vec<PageRequest>) {
        if pages.is_empty() {
            return;
        }
        let (shard, group) = (Arc::clone(&self.shard), Arc::clone(&self.group));
        let listener = Arc::clone(&self.listener);
        tokio::spawn(async move {
            let linearized = tokio::select! {
                biased;
                // Then nothing is applied here any more, and the question would wait for ever.
                _ = shard.damage.found() => None,
                linearized = group.linearize() => linearized.ok(),
            };
            if linearized.is_some() {
                for page in &pages {
                    shard.answer_page(&*listener, page);
                    // What else the thread has to do comes between two pages.
                    tokio::task::yield_now().await;
                }
            } else {
                // A leader that lacks a majority is told so at once, and may go on leading for a while.
                sleep(RETRY_PAGE).await;
                let own = pages
                    .into_iter()
                    .filter(|page| page.correlation_id.peer == 0);
                let again = own.map(|page| (0, Work::Page(page)));
                shard.queue.put_first(again.collect());
            }
        });
    }

    /// Waits for work, or for another condition of the log: then there may be none.
    async fn take(&mut self) -> Result<Taken<M::Op>, Interrupted> {
        let mut work = Vec::new();
        tokio::select! {
            biased;
            _ = is_over(&mut self.leadership_changes, self.leadership) => return Err(Interrupted),
            () = self.in_flight.failed.notified() => return Err(Interrupted),
            _ = self.condition.changed() => {}
            () = self.shard.queue.take(BATCH, BATCH_BYTES, &mut work) => {}
        }
        // An earlier batch need not wait until these are proposed.
        self.group.hand_over();
        let mut taken = Taken {
            requests: Vec::with_capacity(work.len()),
            reads: Vec::new(),
            barriers: Vec::new(),
            pages: Vec::new(),
            stop: None,
        };
        for (bytes, work) in work {
            match work {
                Work::Propose { request, must_wait } => {
                    taken.requests.push((Weight { bytes, must_wait }, request));
                }
                Work::Read(peer, read) => taken.reads.push((peer, read)),
                Work::Barrier(correlation_id, until) => {
                    taken.barriers.push((correlation_id, until))
                }
                Work::Page(request) => taken.pages.push(request),
                Work::Stop(done) => taken.stop = Some(done),
            }
        }
        Ok(taken)
    }

    /// Proposes requests, if there is a permit, as far as the disk has room for new ones.
    async fn accept(
        &mut self,
        mut requests: Vec<Weighed<M::Op>>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let too_long = requests.extract_if(.., |(weight, _)| weight.bytes > REQUEST_LIMIT);
        let too_long: Vec<_> = too_long.map(|(_, request)| request).collect();
        self.shard.refuse_too_long(&*self.listener, &too_long);
        // No permit: the disk is full.
        let Some(permit) = permit else {
            return self.defer(requests);
        };
        if self.backlog.is_pending() {
            let new = requests.extract_if(.., |(weight, _)| !weight.must_wait);
            let new: Vec<_> = new.map(|(_, request)| request).collect();
            self.shard.refuse(&*self.listener, &new, Failure::Full);
        }
        if !requests.is_empty()
            && let Err(requests) = self.propose(requests, None, permit).await
        {
            self.defer(requests);
        }
    }

    /// Proposes what has waited for space.
    async fn propose_deferred(&mut self, permit: OwnedSemaphorePermit) {
        let (requests, backlog_share) = self.deferred.take(BATCH, BATCH_BYTES);
        if let Err(requests) = self.propose(requests, backlog_share, permit).await {
            self.deferred.put_back(requests);
        }
        self.count_deferred();
    }

    /// The disk is full: requests that nobody would retry are deferred, others are refused.
    fn defer(&mut self, requests: Vec<Weighed<M::Op>>) {
        let mut refused = Vec::new();
        for (weight, request) in requests {
            if !weight.must_wait {
                refused.push(request);
            } else if !self.deferred.put((weight, request)) {
                self.shard.stats.finished.fetch_add(1, Ordering::Release);
            }
        }
        self.count_deferred();
        self.shard.refuse(&*self.listener, &refused, Failure::Full);
    }

    fn count_deferred(&self) {
        let stats = &self.shard.stats;
        stats.deferred.store(self.deferred.len(), Ordering::Relaxed);
        stats
            .deferred_bytes
            .store(self.deferred.bytes(), Ordering::Relaxed);
    }

    /// Proposes one batch; the answers follow when it is applied. Gives the requests back if the disk is
    /// full.
    async fn propose(
        &self,
        requests: Vec<Weighed<M::Op>>,
        backlog_share: Option<BacklogShare>,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), Vec<Weighed<M::Op>>> {
        let (limits, level) = self.shard.limits(&*self.listener);
        let requests = match M::is_lowered(level) {
            true => self.lowered(requests, level),
            false => requests,
        };
        let (weights, requests): (Vec<Weight>, Vec<Request<M::Op>>) = requests.into_iter().unzip();
        let batch = Arc::new(Batch {
            header: Header {
                now_ms: self.listener.now_ms(),
                limits,
            },
            requests,
            bytes: weights.iter().map(|weight| weight.bytes).sum(),
            requeued: Requeued::default(),
            proposed_here: ProposedHere(true),
            level,
            written: self.written(level),
        });
        let cost = &self.shard.stats.cost;
        let propose = self.group.propose(M::command(Arc::clone(&batch)));
        let proposal = cost
            .during_turns(Effort::Propose, &*self.listener, propose)
            .await;
        if let Err(ProposeError::Full) = proposal {
            return Err(weights.into_iter().zip(taken_out(batch)).collect());
        }
        let count = batch.requests.len();
        cost.proposed(count, batch.bytes.saturating_sub(OVERHEAD * count));
        let number = self.in_flight.add(Arc::clone(&batch), weights);
        let (shard, listener) = (Arc::clone(&self.shard), Arc::clone(&self.listener));
        let in_flight = Arc::clone(&self.in_flight);
        tokio::spawn(async move {
            let outcome = match proposal {
                Ok(proposal) => proposal.await,
                Err(error) => Err(error),
            };
            if outcome.is_ok() {
                in_flight.remove(number);
                let count = batch.requests.len() as u64;
                shard.stats.finished.fetch_add(count, Ordering::Release);
            } else if shard.routing.peers.is_some() {
                in_flight.failed.notify_one();
            } else if in_flight.remove(number) {
                shard.refuse(&*listener, &batch.requests, Failure::Stopped);
            }
            drop((backlog_share, permit));
        });
        Ok(())
    }

    /// A lone replica compresses and keeps nothing: it encodes an entry once, and its disk is the only one.
    fn written(&self, level: Level) -> Written {
        match self.group.is_alone() {
            true => Written::for_one(),
            false if level.compresses() => Written::compressible(Arc::clone(&self.compression)),
            false => Written::default(),
        }
    }

    /// The requests as a log of this level can have them. Those that it cannot have are refused.
    fn lowered(&self, requests: Vec<Weighed<M::Op>>, level: Level) -> Vec<Weighed<M::Op>> {
        let mut lowered = Vec::with_capacity(requests.len());
        let mut refused = Vec::new();
        for (weight, request) in requests {
            let op = request.op.clone();
            // None: it is being closed.
            let op = self
                .shard
                .look(|machine| machine.lowered(op, level))
                .flatten();
            match op {
                Some(op) => lowered.push((weight, Request { op, ..request })),
                None => refused.push(request),
            }
        }
        if !refused.is_empty() {
            tracing::warn!(
                store = M::NAME,
                shard = self.shard.number,
                requests = refused.len(),
                %level,
                "requests are refused, because the level of the shard does not have them"
            );
            self.shard.refuse(&*self.listener, &refused, Failure::Moved);
        }
        lowered
    }

    /// Requeues the requests in flight, and the deferred ones.
    async fn requeue(&mut self) {
        // Most of it is answered at once: it was committed, or never will be.
        let _ = timeout(LAST_ANSWERS, self.permits.acquire_many(IN_FLIGHT as u32)).await;
        let mut back = Vec::new();
        for Underway { batch, weights } in self.in_flight.take() {
            batch.requeued.set();
            back.extend(weights.into_iter().zip(taken_out(batch)));
        }
        while !self.deferred.is_empty() {
            back.extend(self.deferred.take(BATCH, BATCH_BYTES).0);
        }
        self.count_deferred();
        let (own, foreign): (Vec<_>, Vec<_>) = back
            .into_iter()
            .partition(|(_, request)| request.correlation_id.peer == 0);
        let finished = &self.shard.stats.finished;
        finished.fetch_add(foreign.len() as u64, Ordering::Release);
        let (lost, own): (Vec<_>, Vec<_>) = own
            .into_iter()
            .partition(|(_, request)| M::is_at_most_once(&request.op));
        let lost: Vec<_> = lost.into_iter().map(|(_, request)| request).collect();
        self.shard.refuse(&*self.listener, &lost, Failure::Stopped);
        self.shard
            .queue
            .put_first(own.into_iter().map(retried_work::<M>).collect());
    }
}

/// Waits until this node does not lead any more, or anew.
async fn is_over(leadership_changes: &mut watch::Receiver<Leadership>, leadership: Leadership) {
    // An error: the shard is gone.
    let _ = leadership_changes.wait_for(|now| *now != leadership).await;
}

/// A request that is retried, as work.
fn retried_work<M: Kind>((weight, mut request): Weighed<M::Op>) -> (usize, Work<M::Op>) {
    request.op = M::retried(request.op);
    let must_wait = weight.must_wait;
    (weight.bytes, Work::Propose { request, must_wait })
}

fn taken_out<O: Clone>(batch: Arc<Batch<O>>) -> Vec<Request<O>> {
    match Arc::try_unwrap(batch) {
        Ok(batch) => batch.requests,
        Err(shared) => shared.requests.clone(),
    }
}
