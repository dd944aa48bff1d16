//! Who serves the queue of a shard: this node while it leads, else the node that does, else nobody.

use std::sync::Arc;
use std::time::Duration;

use consensus::{Condition, Group};
use store_state::Request;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, interval, sleep, sleep_until, timeout_at};

use crate::command::Command;
use crate::kind::Kind;
use crate::later::Debts;
use crate::neighbours::Neighbours;
use crate::node::Stop;
use crate::proposer::{BATCH, BATCH_BYTES, Ended, Proposer};
use crate::shard::{Duty, Reign, Seat, Shard, Work};
use crate::size::REQUEST_LIMIT;
use crate::starting::Means;
use crate::{Event, Listener};

/// How long requests wait for a node to lead, or for its answer. A new leader is found well within it.
const PATIENCE: Duration = Duration::from_secs(8);

/// How often is looked for requests that have waited for too long.
const LOOK: Duration = Duration::from_secs(1);

/// Until a leader that could not propose tries again.
const PROPOSE_AGAIN: Duration = Duration::from_millis(20);

/// How long the end of this node waits for a leader, and for answers of other nodes.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How often is looked for them.
const LAST_LOOK: Duration = Duration::from_millis(5);

/// Bytes of work on its way to the leader, above which no more is sent.
const WINDOW: usize = 8 << 20;

/// The task that has the queue of a shard served.
pub(crate) struct Server<M: Kind> {
    shard: Arc<Shard<M>>,
    listener: Arc<dyn Listener>,
    condition: watch::Receiver<Condition>,
    debts: Debts,
    neighbours: Arc<Neighbours>,
    seat: watch::Receiver<Seat>,
    duty: watch::Receiver<Duty>,
    stopping: watch::Receiver<Stop>,
    /// How often this node has begun to lead.
    attempts: u64,
    /// Until when the end of this node waits for others.
    last_answers_by: Option<Instant>,
}

enum Role {
    Lead(Arc<Group<Command>>, Duty),
    Follow(Seat),
    Wait,
}

/// To be told when everything that was given is done.
type Done = oneshot::Sender<()>;

impl<M: Kind> Server<M> {
    pub(crate) fn new(shard: Arc<Shard<M>>, means: &Means) -> Self {
        Self {
            seat: shard.place.seat.subscribe(),
            duty: shard.place.duty.subscribe(),
            shard,
            listener: Arc::clone(&means.listener),
            condition: means.log.watch(),
            debts: means.debts.clone(),
            neighbours: Arc::clone(&means.neighbours),
            stopping: means.stopping.clone(),
            attempts: 0,
            last_answers_by: None,
        }
    }

    /// Serves until it is told to stop.
    pub(crate) async fn run(mut self) {
        let done = loop {
            let done = match self.role() {
                Role::Lead(group, duty) => self.lead(group, duty).await,
                Role::Follow(seat) => self.follow(seat).await,
                Role::Wait => self.wait().await,
            };
            if let Some(done) = done {
                break done;
            }
        };
        // Whoever waits may be gone.
        let _ = done.send(());
    }

    fn role(&mut self) -> Role {
        let duty = *self.duty.borrow_and_update();
        let group = self.shard.place.group.borrow().clone();
        if let Some(group) = group.filter(|_| duty.leads) {
            return Role::Lead(group, duty);
        }
        let seat = *self.seat.borrow_and_update();
        if seat.is_reachable && seat.leader != self.shard.place.node {
            Role::Follow(seat)
        } else {
            Role::Wait
        }
    }

    /// Serves as long as this node leads, and can.
    async fn lead(&mut self, group: Arc<Group<Command>>, duty: Duty) -> Option<Done> {
        let node = self.shard.place.node;
        let term = duty.term;
        self.attempts += 1;
        let reign = Reign {
            term,
            attempt: self.attempts,
        };
        self.shard.give_up(&*self.listener, PATIENCE);
        self.shard.take_back();
        M::led(&*self.listener, self.shard.number, Some(node), term);
        self.shard.live(|machine, outlet| machine.announce(outlet));
        M::announced(&*self.listener, self.shard.number);
        self.shard.place.seat.send_replace(Seat {
            leader: node,
            reign,
            is_reachable: true,
            way: 0,
        });
        self.shard.send_out(&*self.listener);
        self.reopen();
        self.neighbours.tell();
        let proposer = Proposer::new(
            Arc::clone(&self.shard),
            Arc::clone(&group),
            duty,
            Arc::clone(&self.listener),
            self.condition.clone(),
            self.debts.clone(),
        );
        if let Ended::Stopped(done) = proposer.run().await {
            return Some(done);
        }
        self.shard.quiet();
        M::led(&*self.listener, self.shard.number, None, term);
        self.shard.place.seat.send_if_modified(|seat| {
            let was_here = seat.leader == node;
            if was_here {
                *seat = Seat {
                    reign,
                    ..Seat::default()
                };
            }
            was_here
        });
        self.shard.drop_foreign();
        self.await_majority(&group, duty).await;
        None
    }

    /// This node leads, and could not propose: waits until a majority answers it, or it leads no more. To
    /// begin anew before would only have wills fired and readers opened again, for nothing.
    async fn await_majority(&mut self, group: &Group<Command>, duty: Duty) {
        let answered = async {
            loop {
                sleep(PROPOSE_AGAIN).await;
                if group.linearize().await.is_ok() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            // Errors: the shard, or the store, is gone.
            _ = self.duty.wait_for(|now| *now != duty) => {}
            _ = self.stopping.wait_for(|stop| *stop != Stop::No) => {}
            () = answered => {}
        }
    }

    /// Sends what is given to the node that leads.
    async fn follow(&mut self, seat: Seat) -> Option<Done> {
        M::led(
            &*self.listener,
            self.shard.number,
            Some(seat.leader),
            seat.reign.term,
        );
        self.reopen();
        self.shard.give_up(&*self.listener, PATIENCE);
        self.shard.forward_again(seat);
        let mut look = interval(LOOK);
        loop {
            let mut work = Vec::new();
            let has_room = self.shard.place.sent.lock().bytes() < WINDOW;
            tokio::select! {
                biased;
                () = changed(&mut self.seat, &mut self.duty) => return None,
                _ = look.tick() => self.shard.give_up(&*self.listener, PATIENCE),
                () = self.shard.queue.take(BATCH, BATCH_BYTES, &mut work), if has_room => {}
                () = sleep(LAST_LOOK), if !has_room => {}
            }
            let stop = take_stop(&mut work);
            let too_long = take_too_long(&mut work);
            self.shard.refuse_too_long(&*self.listener, &too_long);
            self.shard.forward(seat, work);
            if let Some(done) = stop {
                if self.await_answers().await {
                    return Some(done);
                }
                // Behind what is to be said again to whoever leads now.
                self.shard.queue.put_first(vec![(0, Work::Stop(done))]);
                return None;
            }
        }
    }

    /// Waits until another node has answered what it was sent. False: it leads no more.
    async fn await_answers(&mut self) -> bool {
        let end = self.last_answers_by();
        while self.shard.place.sent.lock().len() > 0 && Instant::now() < end {
            tokio::select! {
                biased;
                () = changed(&mut self.seat, &mut self.duty) => return false,
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

    /// Nobody leads: what is given waits, and is refused after a while.
    async fn wait(&mut self) -> Option<Done> {
        let end = Instant::now() + PATIENCE;
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            () = changed(&mut self.seat, &mut self.duty) => return None,
            // An error: the store itself is gone.
            _ = timeout_at(end, stopping.wait_for(|stop| *stop != Stop::No)) => {}
        }
        let is_asked = self.shard.queue.len() + self.shard.place.sent.lock().len() > 0;
        if is_asked && self.shard.place.peers.is_some() && *stopping.borrow() != Stop::No {
            let end = self.last_answers_by().min(end);
            tokio::select! {
                biased;
                () = changed(&mut self.seat, &mut self.duty) => return None,
                () = sleep_until(end) => {}
            }
        }
        tracing::warn!(
            store = M::NAME,
            shard = self.shard.number,
            "no node leads the shard; what is asked of it is refused"
        );
        let mut kept = Vec::new();
        let mut look = interval(LOOK);
        let stop = loop {
            let mut work = Vec::new();
            tokio::select! {
                biased;
                () = changed(&mut self.seat, &mut self.duty) => break None,
                _ = look.tick() => self.shard.give_up(&*self.listener, PATIENCE),
                () = self.shard.queue.take(BATCH, BATCH_BYTES, &mut work) => {}
            }
            let stop = take_stop(&mut work);
            kept.extend(work.extract_if(.., |(_, work)| {
                matches!(
                    work,
                    Work::Propose {
                        must_wait: true,
                        ..
                    }
                )
            }));
            let refused = work.into_iter().map(|(_, work)| work);
            self.shard.refuse_work(&*self.listener, refused);
            self.shard.count_owed(&kept);
            if stop.is_some() {
                break stop;
            }
        };
        self.shard.queue.put_first(kept);
        self.shard.count_owed(&[]);
        stop
    }

    /// Another replica serves readers from now on: they are to come again.
    fn reopen(&self) {
        // Before event loops take mail there are no readers.
        if M::HAS_READERS && self.shard.place.peers.is_some() && self.shard.has_begun() {
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
async fn changed(seat: &mut watch::Receiver<Seat>, duty: &mut watch::Receiver<Duty>) {
    tokio::select! {
        biased;
        _ = duty.wait_for(|duty| duty.leads) => {}
        _ = seat.changed() => {}
    }
}
