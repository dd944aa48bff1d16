//! What a shard sends to event loops and other nodes: replies, pages of queues, answers to questions.
//!
//! Invariant: pages and replies leave in the order of the batches.

use std::sync::atomic::Ordering;

use store_state::CorrelationId;
use store_state::api::{Event, Failure, LastSlot, Read};
use store_state::control::ControlReply;

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::peers::message::Message;
use crate::shard::handle::{Shard, State};
use crate::shard::load::Effort;
use crate::shard::outbox::{Outbox, SplitOff, give};
use crate::shard::request::weigh;
use crate::shard::retained::{NoPage, PageRequest};
use crate::shard::work::Work;

/// Messages and bytes read from an inbox at once.
const PAGE: u32 = 128;

const PAGE_BYTES: usize = 256 * 1024;

impl<M: Kind> Shard<M> {
    /// Event loops take mail from now on: sends out what was found at the start.
    pub(crate) fn begin(&self, listener: &dyn Listener) {
        self.begun.store(true, Ordering::Release);
        self.send_out(listener);
    }

    /// Sends out replies and pages.
    pub(crate) fn send_out(&self, listener: &dyn Listener) {
        if !self.has_begun() {
            return;
        }
        let (outbox, unaddressed) = {
            let mut state = self.state.write();
            // The shard was closed meanwhile: replies of a closed replica go to nobody, and requests to its successor.
            let Some(state) = &mut *state else {
                return;
            };
            let State {
                effects, outbox, ..
            } = &mut *state;
            effects
                .cursors
                .take_pages(|peer, loop_index, event| outbox.put(peer, loop_index, event));
            (
                std::mem::take(&mut state.outbox),
                std::mem::take(&mut state.effects.events),
            )
        };
        // Before the answers: a client that hears an answer can rely on it that its effects are in the mail.
        if !unaddressed.is_empty() {
            // Whichever loop: what is to be done can be done by any.
            listener.mail(usize::from(self.number) % listener.loops(), unaddressed);
        }
        self.give_out(listener, outbox);
    }

    /// Sends out mail.
    pub(super) fn give_out(&self, listener: &dyn Listener, outbox: Outbox<M::Op>) {
        give(listener, outbox.loops);
        for answer in outbox.threads {
            match answer {
                Event::Control {
                    token: CorrelationId::NODE_UP,
                    reply: ControlReply::Changed { revision },
                } => listener.control_confirmed(revision),
                answer => listener.control_answered(answer),
            }
        }
        let for_store = !outbox.own.is_empty() || !outbox.split_off.is_empty();
        if for_store && let Some(shards) = self.shards() {
            shards.send_on(listener, self.number, outbox.own, outbox.split_off);
        }
        let Some(peers) = &self.routing.peers else {
            debug_assert!(
                outbox.peers.is_empty(),
                "a node that is alone has no requests of other nodes"
            );
            return;
        };
        for (peer, mail) in outbox.peers {
            for mail in mail.parts(M::STORE, self.number) {
                peers.send(peer, Message::Mail(mail).encode());
            }
        }
    }

    /// Opens, refills and closes inbox cursors, and reads the pages that these want.
    pub(crate) fn read(&self, listener: &dyn Listener, asked: &[(u64, Read)]) {
        let cost = &self.stats.cost;
        cost.during(Effort::Read, listener, || self.read_pages(asked));
        self.send_out(listener);
    }

    fn read_pages(&self, asked: &[(u64, Read)]) {
        let mut guard = self.state.write();
        if let Some(state) = &mut *guard {
            let settles = state.level.settles_qos0();
            for (peer, read) in asked {
                // Nothing to read now: the cursor has no credit, is closed, or belongs to a later connection.
                let Some(mut want) = state.effects.cursors.ask(*peer, *read, settles) else {
                    continue;
                };
                loop {
                    let (inbox, from, credit) = want;
                    let mut items = Vec::new();
                    let page = M::page(
                        &mut state.machine,
                        inbox,
                        from,
                        credit.min(PAGE),
                        PAGE_BYTES,
                        &*state.table,
                        &mut items,
                    );
                    match page {
                        Ok((next, end)) => state.effects.cursors.read(inbox, items, next, end),
                        // Else the session would get nothing, and the shard would count as served.
                        Err(error) => return self.damage.meet(guard, &error),
                    }
                    match state.effects.cursors.wants(inbox) {
                        Some((next, credit)) => want = (inbox, next, credit),
                        None => break,
                    }
                }
            }
            state.effects.tell_settled();
        }
    }

    /// Tells that barriers are passed.
    pub(crate) fn pass(&self, listener: &dyn Listener, barriers: &[(CorrelationId, LastSlot)]) {
        let mut outbox = Outbox::default();
        for (correlation_id, until) in barriers {
            self.passed(*correlation_id, *until, &mut outbox);
        }
        self.give_out(listener, outbox);
    }

    /// A barrier is passed here; if this node has put it, shards that were split off meanwhile are to pass it, too.
    pub(super) fn passed(
        &self,
        correlation_id: CorrelationId,
        until: LastSlot,
        outbox: &mut Outbox<M::Op>,
    ) {
        let shards = self.shards().filter(|_| correlation_id.peer == 0);
        match shards.map(|shards| shards.last_of(self.number)) {
            Some(last) if last.0 < until.0 => outbox.split_off.push(SplitOff {
                work: Work::Barrier(correlation_id, until),
                bytes: 0,
                reply: Some(Event::passed(correlation_id.token)),
                last,
            }),
            _ => outbox.address(correlation_id, Event::passed),
        }
    }

    /// Answers a question for pages of retained messages, or says that it is for slots that the shard does not have any more.
    pub(crate) fn answer_page(&self, listener: &dyn Listener, request: &PageRequest) {
        let wanted = &request.wanted;
        let find = |machine: &M, own, base| {
            wanted.pages(base, own, |filter, cursor, budget| {
                machine.retained(filter, cursor, budget, wanted.now())
            })
        };
        let base = self.shards().map(|shards| shards.base());
        let pages = self.stats.cost.during(Effort::Read, listener, || {
            let base = base?;
            self.look_within(|machine, own| find(machine, own, base))
        });
        let mut outbox = Outbox::default();
        let correlation_id = request.correlation_id;
        match pages {
            Some(Ok(pages)) => {
                outbox.address(correlation_id, |token| Event::Retained { token, pages });
            }
            Some(Err(NoPage::SplitOff(last))) if correlation_id.peer == 0 => {
                outbox.split_off.push(SplitOff {
                    work: Work::Page(request.clone()),
                    bytes: weigh(wanted),
                    reply: None,
                    last,
                });
            }
            Some(Err(NoPage::SplitOff(last))) => {
                outbox.address(correlation_id, |token| Event::SplitOff {
                    token,
                    reply: None,
                    last,
                });
            }
            Some(Err(NoPage::Misrouted)) | None => {
                outbox.address(correlation_id, Event::failed(Failure::Stopped));
            }
        }
        self.give_out(listener, outbox);
    }
}
