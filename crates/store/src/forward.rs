//! The way of work to the node that leads a shard, and of answers back.
//!
//! Invariants: work arrives in the order in which it was given, as long as the way is not interrupted, and
//! is sent again in that order when it was; each piece is answered once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use store_state::{Request, Ticket};
use tokio::time::Instant;

use crate::kind::Kind;
use crate::outstanding::Sent;
use crate::peers::{Forwarded, ForwardedWork, Mail};
use crate::retained::PageRequest;
use crate::shard::{Outbox, Seat, Shard, Work, give};
use crate::size::{MESSAGE_BYTES, parts};
use crate::starting::weigh;
use crate::{Event, Listener};

/// The loop number of what came from another node, which knows it by its token.
const OF_PEER: u16 = 1;

impl<M: Kind> Shard<M> {
    /// Sends work to the leader. What is answered is kept until then.
    pub(crate) fn forward(&self, seat: Seat, work: Vec<(usize, Work<M::Op>)>) {
        let now = Instant::now();
        let mut sent = self.place.sent.lock();
        let mut out = Vec::with_capacity(work.len());
        for (bytes, work) in work {
            if let Work::Read(_, read) = work {
                out.push((bytes, ForwardedWork::Read(read)));
                continue;
            }
            let id = sent.put(work, bytes, now);
            let written = sent.get(id).and_then(|sent| written::<M>(id, sent, false));
            out.extend(written.map(|written| (bytes, written)));
        }
        self.count_sent(sent.bytes());
        self.send(seat, out);
    }

    /// Sends everything again that is not answered.
    pub(crate) fn forward_again(&self, seat: Seat) {
        let sent = self.place.sent.lock();
        let out: Vec<_> = sent
            .iter()
            .filter_map(|(id, sent)| Some((sent.bytes, written::<M>(id, sent, true)?)))
            .collect();
        self.send(seat, out);
    }

    /// Sends work, with what it weighs, in messages that are not longer than they must be.
    fn send(&self, seat: Seat, work: Vec<(usize, ForwardedWork<M::Op>)>) {
        let Some(peers) = &self.place.peers else {
            return;
        };
        let requests = work.len() as u64;
        self.stats.forwarded.fetch_add(requests, Ordering::Relaxed);
        for part in parts(work, MESSAGE_BYTES, |(bytes, _)| *bytes) {
            let message = M::message(Forwarded {
                shard: self.number,
                reign: seat.reign,
                work: part.into_iter().map(|(_, work)| work).collect(),
            });
            peers.send(seat.leader, message.encode());
        }
    }

    fn count_sent(&self, bytes: usize) {
        self.stats.sent_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Puts everything that is not answered back into the queue: this node leads now.
    pub(crate) fn take_back(&self) {
        let back = self.place.sent.lock().take(|_| true);
        self.count_sent(0);
        let again = |sent: Sent<Work<M::Op>>| (sent.bytes, said_again::<M>(sent.work));
        self.queue.put_first(back.into_iter().map(again).collect());
    }

    /// If something has not been answered for too long, refuses that and everything behind it: a publisher that is
    /// refused one message may send it again, behind its next ones. What nobody would say again stays. To be called
    /// before anything is sent again, or carried out here: shards know for a limited time that a connection is over
    /// whose publications may be among it.
    pub(crate) fn give_up(&self, listener: &dyn Listener, patience: Duration) {
        let mut sent = self.place.sent.lock();
        let is_old = |sent: &Sent<_>| sent.since.elapsed() >= patience && !must_wait(&sent.work);
        if !sent.iter().any(|(_, sent)| is_old(sent)) {
            return;
        }
        let taken = sent.take(|sent| !must_wait(&sent.work));
        self.count_sent(sent.bytes());
        let behind = |work: &Work<M::Op>| {
            matches!(
                work,
                Work::Propose {
                    must_wait: false,
                    ..
                }
            )
        };
        let waiting = self.queue.remove_if(behind);
        drop(sent);
        let taken = taken.into_iter().map(|sent| sent.work);
        self.refuse_work(listener, taken.chain(waiting));
    }

    /// Refuses what clients can have done on other nodes meanwhile: these have taken this one for dead.
    pub(crate) fn end_with_node(&self, listener: &dyn Listener) {
        let ends = |work: &Work<M::Op>| matches!(work, Work::Propose { request, .. } if M::ends_with_its_node(&request.op));
        let mut void = self.queue.remove_if(ends);
        let mut sent = self.place.sent.lock();
        let taken = sent.take(|sent| ends(&sent.work));
        self.count_sent(sent.bytes());
        drop(sent);
        void.extend(taken.into_iter().map(|sent| sent.work));
        self.refuse_work(listener, void.into_iter());
    }

    /// Takes on what another node has sent because this one leads.
    pub(crate) fn take_on(&self, from: u64, forwarded: Forwarded<M::Op>) {
        // Held until all is in the queue: what is there when this node leads no more is dropped.
        let seat = self.place.seat.borrow();
        if seat.leader != self.place.node || seat.reign != forwarded.reign {
            // It is sent again to whoever leads.
            return;
        }
        let ticket = |token| Ticket {
            peer: from,
            loop_number: OF_PEER,
            token,
        };
        for work in forwarded.work {
            match work {
                ForwardedWork::Propose {
                    id,
                    map_version,
                    bytes: _,
                    must_wait,
                    op,
                } => {
                    // Not as the sender says: batches are cut here.
                    let bytes = weigh(&op);
                    let is_patient = M::is_patient(&op);
                    let request = Request {
                        map_version,
                        ticket: ticket(id),
                        op,
                    };
                    let work = Work::Propose { request, must_wait };
                    if is_patient {
                        self.give_patient(work, bytes);
                    } else {
                        self.give(work, bytes);
                    }
                }
                ForwardedWork::Barrier { id } => self.give(Work::Barrier(ticket(id)), 0),
                ForwardedWork::Page { id, wanted } => {
                    let ticket = ticket(id);
                    let bytes = weigh(&wanted);
                    self.give(Work::Page(PageRequest { ticket, wanted }), bytes);
                }
                ForwardedWork::Read(read) => self.give(Work::Read(from, read), 0),
            }
        }
    }

    /// Answers and pages have come from the leader.
    pub(crate) fn delivered(&self, listener: &dyn Listener, mail: Mail) {
        let mut outbox = Outbox::default();
        let mut sent = self.place.sent.lock();
        for mut event in mail.answers {
            let Some(token) = event.token_mut() else {
                continue;
            };
            let Some(Sent { work, .. }) = sent.answered(*token) else {
                continue;
            };
            if let Work::Propose { request, .. } = &work {
                self.stats.finished.fetch_add(1, Ordering::Release);
                if request.ticket == Ticket::NONE && matches!(event, Event::Failed { .. }) {
                    M::lost(&request.op, listener);
                }
            }
            outbox.address(ticket_of(&work), |token| {
                if let Some(known) = event.token_mut() {
                    *known = token;
                }
                event
            });
        }
        self.count_sent(sent.bytes());
        drop(sent);
        for (loop_index, event) in mail.pages {
            outbox.put(0, loop_index, event);
        }
        give(listener, outbox.loops);
    }
}

/// Work as it is sent; `again`: it may have been sent before.
fn written<M: Kind>(
    id: u64,
    sent: &Sent<Work<M::Op>>,
    again: bool,
) -> Option<ForwardedWork<M::Op>> {
    Some(match &sent.work {
        Work::Propose { request, must_wait } => ForwardedWork::Propose {
            id,
            map_version: request.map_version,
            bytes: u32::try_from(sent.bytes).unwrap_or(u32::MAX),
            must_wait: *must_wait,
            op: if again {
                M::again(request.op.clone())
            } else {
                request.op.clone()
            },
        },
        Work::Barrier(_) => ForwardedWork::Barrier { id },
        Work::Page(request) => ForwardedWork::Page {
            id,
            wanted: request.wanted.clone(),
        },
        Work::Read(..) | Work::Stop(_) => return None,
    })
}

fn said_again<M: Kind>(work: Work<M::Op>) -> Work<M::Op> {
    match work {
        Work::Propose {
            mut request,
            must_wait,
        } => {
            request.op = M::again(request.op);
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

fn ticket_of<O>(work: &Work<O>) -> Ticket {
    match work {
        Work::Propose { request, .. } => request.ticket,
        Work::Barrier(ticket) => *ticket,
        Work::Page(request) => request.ticket,
        Work::Read(..) | Work::Stop(_) => Ticket::NONE,
    }
}
