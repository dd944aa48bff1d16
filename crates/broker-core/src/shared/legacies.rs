//! What sessions that have ended, or are away, leave to their shared groups: this node hands over what the inbox shards that
//! it leads have.
//!
//! Invariant: the shard keeps a message until a member of the group has it, or nobody is in the group. Until
//! then it tells whoever leads it; by their origin, messages that two nodes hand over reach an inbox shard once.

use net_api::Key;
use store_state::api::Store as _;
use store_state::inbox::{InboxReply, Item, Origin};

use crate::clients::{LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::pending::{Answer, Pending};
use crate::publish::once;
use crate::publish::once::Once;
use crate::rim::Rim;
use crate::shared::handover::{Handover, Legacy};

/// Legacies that a loop hands over at the same time, of as many clients: of each, a page is in memory.
const AT_ONCE: usize = 64;

/// How long a legacy waits of which something could not be handed over.
const RETRY_MS: u64 = 1_000;

impl<R: Rim> ClientLoop<R> {
    /// A session has left something.
    pub(crate) fn left_behind(&mut self, client: Box<str>, inbox: u64) {
        if self.legacies.handle_told(Legacy { client, inbox }) {
            self.begin_handovers();
        }
    }

    fn begin_handovers(&mut self) {
        self.base.stats.legacies.set(self.legacies.known() as u64);
        while self.legacies.under_way() < AT_ONCE
            && let Some(legacy) = self.legacies.begin()
        {
            self.ask_for_page(legacy, Vec::new());
        }
    }

    /// Tells the shard what others have, and asks for what they are to have next.
    fn ask_for_page(&mut self, legacy: Legacy, done: Vec<u64>) {
        let op = legacy.hand_over(self.base.node.store(), done);
        let handover = Handover {
            legacy,
            messages: 0,
            done: Vec::new(),
            asked: 0,
        };
        self.base
            .ask_inbox(Pending::Handover(Box::new(handover)), op);
    }

    /// The shard has said what others are to have next.
    pub(crate) fn page_answered(&mut self, io: &mut impl LoopIo, id: Key, answer: Answer) {
        let Some(Pending::Handover(handover)) = self.base.pending.get_mut(id) else {
            return;
        };
        match answer {
            Answer::Inbox(InboxReply::LeftBehind(items)) if items.is_empty() => {
                let legacy = handover.legacy.clone();
                self.base.pending.remove(id);
                self.handed_over(&legacy);
            }
            Answer::Inbox(InboxReply::LeftBehind(items)) => {
                handover.messages = items.len();
                let legacy = handover.legacy.clone();
                for (sequence, item) in items {
                    self.give_to_heir(
                        io,
                        id,
                        legacy.origin(self.base.node.store(), sequence),
                        item,
                    );
                }
                self.go_on_handing_over(io, id);
            }
            _ => self.go_on_handing_over(io, id),
        }
    }

    /// Gives a message of a legacy to a member of its group. It stays, if it is not known whether there is one.
    fn give_to_heir(&mut self, io: &mut impl LoopIo, id: Key, origin: Origin, item: Item) {
        let filter = item.group.unwrap_or_default();
        if self.may_have_unknown_members(io, &filter) {
            return;
        }
        let sequence = origin.incarnation;
        let once = Once::Broker(origin);
        let given = self.give_to_group(io, &filter, &item.message, None, Some(&once));
        if let Some(Pending::Handover(handover)) = self.base.pending.get_mut(id) {
            match given {
                None => handover.done.push(sequence),
                Some(_) => handover.asked += 1,
            }
        }
        if let Some((client, item)) = given {
            let pending = Pending::Heir {
                handover: id,
                sequence,
            };
            let member = self.base.node.store().client_name(&client);
            let op = once::deliver(member, item, Some(once));
            self.ask_to_take(op, pending);
        }
    }

    /// Whether a group has no members, as far as this node knows, which does not know all.
    fn may_have_unknown_members(&self, io: &impl LoopIo, filter: &str) -> bool {
        if let Some(peers) = self.base.node.peers() {
            peers.check_leases(&*self.base.node, io.now_ms());
        }
        let routes = &self.base.node.routes;
        let group = routes.group_of(filter);
        group.is_none_or(|group| routes.members(&group).is_empty()) && routes.unsure() != (0, 0)
    }

    /// A member's inbox has answered.
    pub(crate) fn heir_answered(
        &mut self,
        io: &mut impl LoopIo,
        id: Key,
        sequence: u64,
        answer: &Answer,
    ) {
        let Some(Pending::Handover(handover)) = self.base.pending.get_mut(id) else {
            return;
        };
        handover.asked -= 1;
        if let Answer::Inbox(InboxReply::Published { .. }) = answer {
            handover.done.push(sequence);
        }
        self.go_on_handing_over(io, id);
    }

    /// Goes on with the next page when nobody is to answer for this one any more.
    fn go_on_handing_over(&mut self, io: &mut impl LoopIo, id: Key) {
        if !matches!(self.base.pending.get(id), Some(Pending::Handover(h)) if h.asked == 0) {
            return;
        }
        let Some(Pending::Handover(handover)) = self.base.pending.remove(id) else {
            return;
        };
        let Handover {
            legacy,
            messages,
            done,
            ..
        } = *handover;
        if messages > 0 && done.len() == messages {
            self.ask_for_page(legacy, done);
            return;
        }
        if !done.is_empty() {
            let op = legacy.hand_over(self.base.node.store(), done);
            self.base.tell_inbox(op);
        }
        if self.legacies.handle_stuck(legacy) {
            io.arm(io.now_ms() + RETRY_MS, Timer::Legacies.to_bits());
        }
        self.begin_handovers();
    }

    /// Tries again with what could not be handed over. What another node leads by now is its business.
    pub(crate) fn retry_handovers(&mut self) {
        let node = &self.base.node;
        self.legacies.retry(|client| {
            let store = node.store();
            let shard = store.inbox_shard(store.inbox_slot(client));
            let peers = node.peers();
            peers.is_some_and(|peers| peers.is_led_elsewhere(&**node, shard))
        });
        self.begin_handovers();
    }

    /// Nothing is left of a legacy: all shards are to forget its messages, in a while.
    fn handed_over(&mut self, legacy: &Legacy) {
        self.legacies.handle_done(legacy);
        self.base.forget_everywhere(&legacy.publisher(), u64::MAX);
        self.begin_handovers();
    }
}
