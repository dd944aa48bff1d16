//! What a loop asks the store, and what goes on when the store has answered.

use net_api::Key;
use store_state::inbox::InboxReply;

use crate::clients::LoopIo;
use crate::dispatch::ClientLoop;
use crate::end::Ends;
use crate::handover::asked::Asked as HandoverAsked;
use crate::inbox::Inboxes;
use crate::pending::{Answer, Pending, ToMember};
use crate::rejudge::Rejudge;
use crate::rim::Rim;
use crate::subscribe::grant::Subscriptions;
use crate::will::Wills;

impl<R: Rim> ClientLoop<R> {
    /// This node is cut off from most others: publications of transient sessions that only wait for shards of
    /// which nobody knows whether they are to keep them go on (P10).
    pub(crate) fn cut_off(&mut self, io: &mut impl LoopIo) {
        self.members_may_be_known(io);
        let unsure =
            |id: &Key| matches!(self.base.pending.get(*id), Some(Pending::Publish(p)) if p.unsure);
        let going_on: Vec<Key> = self.base.pending.keys().filter(unsure).collect();
        for id in going_on {
            if let Some(Pending::Publish(publication)) = self.base.pending.remove(id) {
                self.publication_done(io, *publication);
            }
        }
        self.base.stats.pending.set(self.base.pending.len() as u64);
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self, io: &mut impl LoopIo, token: u64, answer: Answer) {
        let id = Key::from_bits(token);
        let waits_for_others = match self.base.pending.get_mut(id) {
            Some(Pending::Inbox(asked)) => {
                asked.waits_for_others(matches!(answer, Answer::Failed(_)))
            }
            Some(Pending::Settle(settling)) => settling.waits_for_others(),
            Some(Pending::Subscribe(asked)) => asked.waits_for_others(),
            _ => false,
        };
        if waits_for_others {
            return;
        }
        if let Some(Pending::Publish(_)) = self.base.pending.get(id) {
            self.publication_answered(io, id, answer);
            return;
        }
        if let Some(Pending::TakeOver(taking)) = self.base.pending.get_mut(id) {
            taking.handle_answer(&answer);
            self.take_if_closed(io, id);
            return;
        }
        let Some(pending) = self.base.pending.remove(id) else {
            return;
        };
        self.go_on(io, pending, answer);
        self.base.stats.pending.set(self.base.pending.len() as u64);
    }

    /// What a question was asked for goes on.
    fn go_on(&mut self, io: &mut impl LoopIo, pending: Pending, answer: Answer) {
        match pending {
            Pending::Claim(key) => self.claim_answered(io, key, answer),
            Pending::Attach { key, epoch } => self.attach_answered(io, key, epoch, answer),
            Pending::Discard { key, epoch } => self.discard_answered(io, key, epoch, &answer),
            Pending::Subscribe(asked) => {
                let (parts, mut turn) = self.turn(io);
                let mut below = parts.below_subscriptions();
                Subscriptions::handle_answer(&mut turn, &mut below, asked, answer);
            }
            Pending::Revoke(asked) => {
                let (parts, mut turn) = self.turn(io);
                let mut below = parts.below_subscriptions();
                Rejudge::handle_answer(&mut turn, &mut below, asked, &answer);
            }
            Pending::Inbox(asked) => {
                let (parts, mut turn) = self.turn(io);
                let lower = (&mut parts.rights, &mut parts.backpressure);
                Inboxes::handle_answer(&mut turn, lower, asked, &answer);
            }
            Pending::Settle(settling) => self.settled(settling),
            Pending::Retained(asked) => {
                let (parts, mut turn) = self.turn(io);
                parts
                    .replays
                    .handle_answer(&mut turn, &mut parts.rights, asked, answer);
            }
            Pending::Will(asked) => Wills::handle_answer(&mut self.base, asked, &answer),
            Pending::Disconnect(asked) => Ends::handle_answer(io, asked, &answer),
            Pending::Member(to_member) => {
                let ToMember {
                    item,
                    publication,
                    call,
                    once,
                } = *to_member;
                if let Some(call) = call {
                    self.calls.end(call);
                }
                if let Answer::Inbox(InboxReply::Stale) = answer {
                    // Its session ended while the message was on its way: another member gets it.
                    self.redispatch_stored(io, &item, publication, once);
                }
                if let Some(publication) = publication {
                    self.publication_answered(io, publication, answer);
                }
            }
            Pending::Linger(asked) => {
                let (parts, mut turn) = self.turn(io);
                let lower = (&mut parts.rights, &mut parts.backpressure);
                parts.linger.handle_answer(&mut turn, lower, asked, &answer);
            }
            Pending::Handover(HandoverAsked::Page(page)) => self.page_answered(io, page, answer),
            Pending::Handover(HandoverAsked::Target(page, sequence)) => {
                let (parts, mut turn) = self.turn(io);
                parts
                    .legacies
                    .handle_target(&mut turn, (page, sequence), &answer);
            }
            Pending::Publish(_) | Pending::Register(_) | Pending::TakeOver(_) => {}
        }
    }
}
