//! The worker of a shard: it has the queue served by this node while this node leads, else by the leader, else by nobody.
//!
//! Invariants: requests keep their order when the leader changes; a request waits for a leader for [`PATIENCE`] at most, but
//! those that nobody would retry.
//!
//! Deliberately absent: elections (`consensus`); batches (`proposer.rs`).
//!
//! Read next: `proposer.rs`, `forward.rs`.

use std::sync::Arc;
use std::time::Duration;

use consensus::{Condition, Group};
use store_state::Request;
use store_state::api::{Event, REQUEST_LIMIT};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, interval, sleep, sleep_until, timeout_at};

use crate::api::listener::Listener;
use crate::kinds::command::Command;
use crate::kinds::kind::Kind;
use crate::leadership::state::{LeaderHint, Leadership, LeadershipEpoch};
use crate::node::services::NodeServices;
use crate::node::shutdown::Stop;
use crate::peers::known::KnownPeers;
use crate::shard::deferred::Backlog;
use crate::shard::handle::Shard;
use crate::shard::proposer::{BATCH, BATCH_BYTES, Ended, Proposer};
use crate::shard::work::Work;

/// How long requests wait for a node to lead, or for its answer. A new leader is found well within it.
const PATIENCE: Duration = Duration::from_secs(8);

/// How often is looked for requests that have waited for too long.
const LOOK: Duration = Duration::from_secs(1);

/// Time until a leader that could not propose retries.
const RETRY_LEADERSHIP: Duration = Duration::from_millis(20);

/// How long the end of this node waits for a leader, and for answers of other nodes.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How often is looked for them.
const LAST_LOOK: Duration = Duration::from_millis(5);

/// Bytes of work on its way to the leader, above which no more is sent.
const WINDOW: usize = 8 << 20;

/// The task that has the queue of a shard served.
pub(crate) struct ShardWorker<M: Kind> {
    shard: Arc<Shard<M>>,
    listener: Arc<dyn Listener>,
    condition: watch::Receiver<Condition>,
    backlog: Backlog,
    known_peers: Arc<KnownPeers>,
    hint: watch::Receiver<LeaderHint>,
    leadership: watch::Receiver<Leadership>,
    stopping: watch::Receiver<Stop>,
    /// How often this node has begun to lead.
    attempts: u64,
    /// Until when the end of this node waits for others.
    last_answers_by: Option<Instant>,
}

enum Mode {
    Lead(Arc<Group<Command>>, Leadership),
    Follow(LeaderHint),
    Wait,
}

/// To be told when everything that was given is done.
type Done = oneshot::Sender<()>;

impl<M: Kind> ShardWorker<M> {
    pub(crate) fn new(shard: Arc<Shard<M>>, services: &NodeServices) -> Self {
        Self {
            hint: shard.routing.hint.subscribe(),
            leadership: shard.routing.leadership.subscribe(),
            shard,
            listener: Arc::clone(&services.listener),
            condition: services.log.watch(),
            backlog: services.backlog.clone(),
            known_peers: Arc::clone(&services.known_peers),
            stopping: services.stopping.clone(),
            attempts: 0,
            last_answers_by: None,
        }
    }

    /// Serves until it is told to stop.
    pub(crate) async fn run(mut self) {
        let done = loop {
            let done = match self.mode() {
                Mode::Lead(group, leadership) => self.lead(group, leadership).await,
                Mode::Follow(hint) => self.follow(hint).await,
                Mode::Wait => self.wait().await,
            };
            if let Some(done) = done {
                break done;
            }
        };
        // Whoever waits may be gone.
        let _ = done.send(());
    }

    fn mode(&mut self) -> Mode {
        let leadership = *self.leadership.borrow_and_update();
        let group = self.shard.routing.group.borrow().clone();
        if let Some(group) = group.filter(|_| leadership.leads) {
            return Mode::Lead(group, leadership);
        }
        let hint = *self.hint.borrow_and_update();
        if hint.is_reachable && hint.leader != self.shard.routing.node {
            Mode::Follow(hint)
        } else {
            Mode::Wait
        }
    }

    /// Serves as long as this node leads, and can.
    async fn lead(&mut self, group: Arc<Group<Command>>, leadership: Leadership) -> Option<Done> {
        let node = self.shard.routing.node;
        let term = leadership.term;
        self.attempts += 1;
        let leadership_epoch = LeadershipEpoch {
            term,
            attempt: self.attempts,
        };
        self.shard.time_out(&*self.listener, PATIENCE);
        self.shard.requeue_sent(&*self.listener);
        M::led(&*self.listener, self.shard.number, Some(node), term);
        self.shard.live(|machine, outlet| machine.announce(outlet));
        M::announced(&*self.listener, self.shard.number);
        self.shard.routing.hint.send_replace(LeaderHint {
            leader: node,
            leadership_epoch,
            is_reachable: true,
            link_generation: 0,
        });
        self.shard.send_out(&*self.listener);
        self.reopen();
        self.known_peers.tell();
        let proposer = Proposer::new(
            Arc::clone(&self.shard),
            Arc::clone(&group),
            leadership,
            Arc::clone(&self.listener),
            self.condition.clone(),
            self.backlog.clone(),
        );
        if let Ended::Stopped(done) = proposer.run().await {
            return Some(done);
        }
        self.shard.quiet();
        M::led(&*self.listener, self.shard.number, None, term);
        self.shard.routing.hint.send_if_modified(|hint| {
            let was_here = hint.leader == node;
            if was_here {
                *hint = LeaderHint {
                    leadership_epoch,
                    ..LeaderHint::default()
                };
            }
            was_here
        });
        self.shard.drop_forwarded();
        self.await_majority(&group, leadership).await;
        None
    }

    /// This node leads, and could not propose: waits until a majority answers it, or it leads no more. To
    /// begin anew earlier would only fire wills and open inbox cursors again, for nothing.
    async fn await_majority(&mut self, group: &Group<Command>, leadership: Leadership) {
        let answered = async {
            loop {
                sleep(RETRY_LEADERSHIP).await;
                if group.linearize().await.is_ok() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            // Errors: the shard, or the store, is gone.
            _ = self.leadership.wait_for(|now| *now != leadership) => {}
            _ = self.stopping.wait_for(|stop| *stop != Stop::No) => {}
            () = answered => {}
        }
    }

    /// Sends what is given to the node that leads.
    async fn follow(&mut self, hint: LeaderHint) -> Option<Done> {
        M::led(
            &*self.listener,
            self.shard.number,
            Some(hint.leader),
            hint.leadership_epoch.term,
        );
        self.reopen();
        self.shard.time_out(&*self.listener, PATIENCE);
        self.shard.retry_forwarded(&*self.listener, hint);
        let mut look = interval(LOOK);
        loop {
            let mut work = Vec::new();
            let has_room = self.shard.routing.sent.lock().bytes() < WINDOW;
            tokio::select! {
                biased;
                () = changed(&mut self.hint, &mut self.leadership) => return None,
                _ = look.tick() => self.shard.time_out(&*self.listener, PATIENCE),
                () = self.shard.queue.take(BATCH, BATCH_BYTES, &mut work), if has_room => {}
                () = sleep(LAST_LOOK), if !has_room => {}
            }
            let stop = take_stop(&mut work);
            let too_long = take_too_long(&mut work);
            self.shard.refuse_too_long(&*self.listener, &too_long);
            self.shard.forward(hint, work);
            if let Some(done) = stop {
                if self.await_answers().await {
                    return Some(done);
                }
                // Behind the requests that are retried with the next leader.
                self.shard.queue.put_first(vec![(0, Work::Stop(done))]);
                return None;
            }
        }
    }

    /// Waits until another node has answered what it was sent. False: it leads no more.
    async fn await_answers(&mut self) -> bool {
        let end = self.last_answers_by();
        while self.shard.routing.sent.lock().len() > 0 && Instant::now() < end {
            tokio::select! {
                biased;
                () = changed(&mut self.hint, &mut self.leadership) => return false,
                () = sleep(LAST_LOOK) => {}
            }
        }
        true
    }

    /// Until when the end of this node waits for others; to be called when it has begun.
    fn last_answers_by(&mut self) -> Instant {
        let end = self.last_answers_by;
        *self
            .last_answers_by
            .insert(end.unwrap_or_else(|| Instant::now() + LAST_ANSWERS))
    }

    /// Whether no node will ever lead the shard while this process runs: the only replica is damaged.
    fn is_lost(&self) -> bool {
        self.shard.routing.peers.is_none() && self.shard.damage.is_found()
    }

    /// Nobody leads: what is given waits, and is refused after a while; at once, if nobody will ever lead.
    async fn wait(&mut self) -> Option<Done> {
        let is_lost = self.is_lost();
        let patience = if is_lost { Duration::ZERO } else { PATIENCE };
        let end = Instant::now() + patience;
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            () = changed(&mut self.hint, &mut self.leadership) => return None,
            // An error: the store itself is gone.
            _ = timeout_at(end, stopping.wait_for(|stop| *stop != Stop::No)) => {}
        }
        let is_asked = self.shard.queue.len() + self.shard.routing.sent.lock().len() > 0;
        if is_asked && self.shard.routing.peers.is_some() && *stopping.borrow() != Stop::No {
            let end = self.last_answers_by().min(end);
            tokio::select! {
                biased;
                () = changed(&mut self.hint, &mut self.leadership) => return None,
                () = sleep_until(end) => {}
            }
        }
        // A store that has not begun has no leader, and nobody asks it.
        let has_begun = !M::BEGINS_LATER
            || self.shard.routing.group.borrow().is_some()
            || self.hint.borrow().leader != 0;
        if has_begun {
            tracing::warn!(
                store = M::NAME,
                shard = self.shard.number,
                "no node leads the shard; its requests are refused"
            );
        }
        let mut kept = Vec::new();
        let mut look = interval(LOOK);
        let stop = loop {
            let mut work = Vec::new();
            tokio::select! {
                biased;
                () = changed(&mut self.hint, &mut self.leadership) => break None,
                _ = look.tick() => self.shard.time_out(&*self.listener, PATIENCE),
                () = self.shard.queue.take(BATCH, BATCH_BYTES, &mut work) => {}
            }
            let stop = take_stop(&mut work);
            kept.extend(work.extract_if(.., |(_, work)| {
                matches!(work, Work::Propose { must_wait, .. } if *must_wait && !is_lost)
            }));
            let refused = work.into_iter().map(|(_, work)| work);
            self.shard.refuse_work(&*self.listener, refused);
            self.shard.count_deferred(&kept);
            if stop.is_some() {
                break stop;
            }
        };
        self.shard.queue.put_first(kept);
        self.shard.count_deferred(&[]);
        stop
    }

    /// Another replica has the inbox cursors from now on: event loops are to open theirs again.
    fn reopen(&self) {
        // Before event loops take events there are no cursors. On a node that is alone only a split moves any.
        let may_move = self.shard.routing.peers.is_some() || !self.shard.is_first();
        if M::HAS_CURSORS && may_move && self.shard.has_begun() {
            for loop_index in 0..self.listener.loops() {
                let shard = self.shard.number;
                self.listener
                    .mail(loop_index, vec![Event::Reopen { shard }]);
            }
        }
    }
}

fn take_stop<O>(work: &mut Vec<(usize, Work<O>)>) -> Option<Done> {
    let mut stops = work.extract_if(.., |(_, work)| matches!(work, Work::Stop(_)));
    match stops.next() {
        Some((_, Work::Stop(done))) => Some(done),
        _ => None,
    }
}

/// What no batch has room for at whichever node.
fn take_too_long<O>(work: &mut Vec<(usize, Work<O>)>) -> Vec<Request<O>> {
    let requests = work
        .extract_if(.., |(bytes, work)| {
            *bytes > REQUEST_LIMIT && matches!(work, Work::Propose { .. })
        })
        .filter_map(|(_, work)| match work {
            Work::Propose { request, .. } => Some(request),
            _ => None,
        });
    requests.collect()
}

/// Waits until another node leads, the way to it was interrupted, or this one leads.
async fn changed(
    hint: &mut watch::Receiver<LeaderHint>,
    leadership: &mut watch::Receiver<Leadership>,
) {
    tokio::select! {
        biased;
        _ = leadership.wait_for(|leadership| leadership.leads) => {}
        _ = hint.changed() => {}
    }
}
