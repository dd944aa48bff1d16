//! Requests go to the node that leads a shard, and answers come back.
//!
//! Invariants: requests arrive in the order in which they were given; after an interruption of the link they are sent again in
//! that order; each request is answered once.
//!
//! Deliberately absent: the decision where requests go (`worker.rs`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use store_state::api::{Event, LastSlot};
use store_state::{CorrelationId, Request};
use tokio::time::Instant;

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::leadership::state::LeaderHint;
use crate::peers::message::{Forwarded, ForwardedWork, Mail};
use crate::peers::wire_size::{MESSAGE_BYTES, parts};
use crate::shard::handle::Shard;
use crate::shard::outbox::{Outbox, SplitOff};
use crate::shard::outstanding::Sent;
use crate::shard::request::weigh;
use crate::shard::retained::PageRequest;
use crate::shard::work::Work;

/// The loop number of what came from another node, which knows it by its token.
const OF_PEER: u16 = 1;

impl<M: Kind> Shard<M> {
    /// Sends work to the leader. What is answered is kept until then.
    pub(crate) fn forward(&self, hint: LeaderHint, work: Vec<(usize, Work<M::Op>)>) {
        let now = Instant::now();
        let mut sent = self.routing.sent.lock();
        let mut out = Vec::with_capacity(work.len());
        for (bytes, work) in work {
            if let Work::Read(_, read) = work {
                out.push((bytes, ForwardedWork::Read(read)));
                continue;
            }
            let id = sent.put(work, bytes, now);
            let written = sent.get(id).and_then(|sent| written::<M>(id, sent));
            out.extend(written.map(|written| (bytes, written)));
        }
        self.count_sent(sent.bytes());
        self.send(hint, out);
    }

    /// Sends all requests again that are not answered, to the leader of `hint`. They stay marked as repetitions: an earlier
    /// leader may have carried them out, also when the answer of this one is that another shard has their slot. What must not
    /// be carried out twice, and cannot be told from another request, is refused.
    pub(crate) fn retry_forwarded(&self, listener: &dyn Listener, hint: LeaderHint) {
        let mut sent = self.routing.sent.lock();
        let lost = sent.take(|sent| sent.work.is_at_most_once::<M>());
        sent.change(retried_work::<M>);
        let out: Vec<_> = sent
            .iter()
            .filter_map(|(id, sent)| Some((sent.bytes, written::<M>(id, sent)?)))
            .collect();
        self.count_sent(sent.bytes());
        self.send(hint, out);
        drop(sent);
        self.refuse_work(listener, lost.into_iter().map(|sent| sent.work));
    }

    /// Sends work, with what it weighs, in messages that are not longer than they must be.
    fn send(&self, hint: LeaderHint, work: Vec<(usize, ForwardedWork<M::Op>)>) {
        let Some(peers) = &self.routing.peers else {
            debug_assert!(work.is_empty(), "a node that is alone follows nobody");
            return;
        };
        let requests = work.len() as u64;
        self.stats.forwarded.fetch_add(requests, Ordering::Relaxed);
        for part in parts(work, MESSAGE_BYTES, |(bytes, _)| *bytes) {
            let message = M::message(Forwarded {
                shard: self.number,
                leadership_epoch: hint.leadership_epoch,
                work: part.into_iter().map(|(_, work)| work).collect(),
            });
            peers.send(hint.leader, message.encode());
        }
    }

    fn count_sent(&self, bytes: usize) {
        self.stats.sent_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Puts everything that is not answered back into the queue: this node leads now.
    pub(crate) fn requeue_sent(&self, listener: &dyn Listener) {
        let mut sent = self.routing.sent.lock();
        let lost = sent.take(|sent| sent.work.is_at_most_once::<M>());
        let back = sent.take(|_| true);
        self.count_sent(0);
        drop(sent);
        self.refuse_work(listener, lost.into_iter().map(|sent| sent.work));
        let again = |sent: Sent<Work<M::Op>>| (sent.bytes, retried_work::<M>(sent.work));
        self.queue.put_first(back.into_iter().map(again).collect());
    }

    /// Refuses a request that has timed out, and all requests behind it: a publisher that is refused one message may publish
    /// it again, behind its next ones. Requests that nobody would retry stay. To be called before requests are sent again or
    /// proposed here: a shard knows for a limited time that a connection is over whose publications may be among them.
    pub(crate) fn time_out(&self, listener: &dyn Listener, patience: Duration) {
        let mut sent = self.routing.sent.lock();
        let is_old = |sent: &Sent<_>| sent.since.elapsed() >= patience && !must_wait(&sent.work);
        if !sent.iter().any(|(_, sent)| is_old(sent)) {
            return;
        }
        let taken = sent.take(|sent| !must_wait(&sent.work));
        self.count_sent(sent.bytes());
        let waiting = self.queue.remove_if(can_be_refused);
        drop(sent);
        let taken = taken.into_iter().map(|sent| sent.work);
        self.refuse_work(listener, taken.chain(waiting));
    }

    /// Refuses what waits behind something that was refused: a publisher may publish that again.
    pub(super) fn refuse_waiting(&self, listener: &dyn Listener) {
        let waiting = self.queue.remove_if(can_be_refused);
        self.refuse_work(listener, waiting.into_iter());
    }

    /// Refuses what clients can have done on other nodes meanwhile: these have taken this one for dead.
    pub(crate) fn refuse_fenced(&self, listener: &dyn Listener) {
        let ends = |work: &Work<M::Op>| matches!(work, Work::Propose { request, .. } if M::is_fenced(&request.op));
        let mut void = self.queue.remove_if(ends);
        let mut sent = self.routing.sent.lock();
        let taken = sent.take(|sent| ends(&sent.work));
        self.count_sent(sent.bytes());
        drop(sent);
        void.extend(taken.into_iter().map(|sent| sent.work));
        self.refuse_work(listener, void.into_iter());
    }

    /// Accepts requests that another node has sent because this one leads.
    pub(crate) fn accept_forwarded(&self, from: u64, forwarded: Forwarded<M::Op>) {
        // Held until all is in the queue: what is there when this node leads no more is dropped.
        let hint = self.routing.hint.borrow();
        if hint.leader != self.routing.node || hint.leadership_epoch != forwarded.leadership_epoch {
            // A late request for an older leadership: the sender retries it with the leader of now.
            self.stats
                .stale
                .fetch_add(forwarded.work.len() as u64, Ordering::Relaxed);
            return;
        }
        let correlation_id = |token| CorrelationId {
            peer: from,
            loop_number: OF_PEER,
            token,
        };
        for work in forwarded.work {
            match work {
                ForwardedWork::Propose {
                    id,
                    until,
                    bytes: _,
                    must_wait,
                    op,
                } => {
                    // Not as the sender says: batches are cut here.
                    let bytes = weigh(&op);
                    let is_patient = M::is_patient(&op);
                    let request = Request {
                        until,
                        correlation_id: correlation_id(id),
                        op,
                    };
                    let work = Work::Propose { request, must_wait };
                    if is_patient {
                        self.give_patient(work, bytes);
                    } else {
                        self.give(work, bytes);
                    }
                }
                ForwardedWork::Barrier { id } => {
                    self.give(Work::Barrier(correlation_id(id), LastSlot(0)), 0);
                }
                ForwardedWork::Page { id, wanted } => {
                    let correlation_id = correlation_id(id);
                    let bytes = weigh(&wanted);
                    self.give(
                        Work::Page(PageRequest {
                            correlation_id,
                            wanted,
                        }),
                        bytes,
                    );
                }
                ForwardedWork::Read(read) => self.give(Work::Read(from, read), 0),
            }
        }
    }

    /// Answers and pages have come from the leader.
    pub(crate) fn delivered(&self, listener: &dyn Listener, mail: Mail) {
        let mut outbox = Outbox::default();
        let mut sent = self.routing.sent.lock();
        let mut finished = 0;
        for mut event in mail.answers {
            // A peer sends answers here and nothing else; what is none is ignored, as input of a peer never panics.
            let Some(token) = event.token_mut() else {
                self.stats.stale.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            // Answered by an earlier leader, timed out, or requeued here.
            let Some(Sent { work, bytes, .. }) = sent.answered(*token) else {
                self.stats.stale.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            if let Work::Propose { request, .. } = &work {
                finished += 1;
                if request.correlation_id == CorrelationId::NONE
                    && matches!(event, Event::Failed { .. })
                {
                    M::lost(&request.op, listener);
                }
            }
            match (event, work) {
                (Event::SplitOff { reply, last, .. }, work) => outbox.split_off.push(SplitOff {
                    work,
                    bytes,
                    reply: reply.map(|reply| *reply).filter(is_answer),
                    last,
                }),
                (Event::Passed { .. }, Work::Barrier(correlation_id, until)) => {
                    self.passed(correlation_id, until, &mut outbox);
                }
                (mut event, work) => outbox.address(work.correlation_id(), |token| {
                    if let Some(known) = event.token_mut() {
                        *known = token;
                    }
                    event
                }),
            }
        }
        self.count_sent(sent.bytes());
        drop(sent);
        for (loop_index, event) in mail.pages {
            outbox.put(0, loop_index, event);
        }
        self.give_out(listener, outbox);
        // What is sent on has been given to another shard by now.
        self.stats.finished.fetch_add(finished, Ordering::Release);
    }
}

/// A request as it is sent.
fn written<M: Kind>(id: u64, sent: &Sent<Work<M::Op>>) -> Option<ForwardedWork<M::Op>> {
    Some(match &sent.work {
        Work::Propose { request, must_wait } => ForwardedWork::Propose {
            id,
            until: request.until,
            bytes: u32::try_from(sent.bytes).unwrap_or(u32::MAX),
            must_wait: *must_wait,
            op: request.op.clone(),
        },
        Work::Barrier(..) => ForwardedWork::Barrier { id },
        Work::Page(request) => ForwardedWork::Page {
            id,
            wanted: request.wanted.clone(),
        },
        Work::Read(..) | Work::Stop(_) => return None,
    })
}

/// The same work, of which this node does not know whether it was done.
fn retried_work<M: Kind>(work: Work<M::Op>) -> Work<M::Op> {
    match work {
        Work::Propose {
            mut request,
            must_wait,
        } => {
            request.op = M::retried(request.op);
            Work::Propose { request, must_wait }
        }
        other => other,
    }
}

fn must_wait<O>(work: &Work<O>) -> bool {
    matches!(
        work,
        Work::Propose {
            must_wait: true,
            ..
        }
    )
}

fn can_be_refused<O>(work: &Work<O>) -> bool {
    matches!(
        work,
        Work::Propose {
            must_wait: false,
            ..
        }
    )
}

/// Whether this can be the answer of a shard to a request: a peer may send anything.
fn is_answer(event: &Event) -> bool {
    matches!(
        event,
        Event::Session { .. } | Event::Inbox { .. } | Event::Retain { .. } | Event::Failed { .. }
    )
}
