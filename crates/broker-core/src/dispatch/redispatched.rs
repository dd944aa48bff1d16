//! Messages of legacies are given to members of their groups.

use store_state::api::Store as _;
use store_state::inbox::{Item, Origin};

use super::ClientLoop;
use crate::clients::LoopIo;
use crate::handover::Given;
use crate::handover::asked::{Asked, PageNumber};
use crate::inbox::Sequence;
use crate::pending::{Answer, Pending};
use crate::publish::once;
use crate::publish::once::Once;
use crate::rim::Rim;

impl<R: Rim> ClientLoop<R> {
    /// A shard has said what others are to have next.
    pub(super) fn page_answered(&mut self, io: &mut impl LoopIo, page: PageNumber, answer: Answer) {
        let legacies = &mut self.parts.legacies;
        for (sequence, origin, item) in legacies.handle_page(&mut self.base, page, answer) {
            let given = self.give_to_target(io, (page, sequence), origin, item);
            self.parts.legacies.handle_given(page, sequence, given);
        }
        let (parts, mut turn) = self.turn(io);
        parts.legacies.handle_all_given(&mut turn, page);
    }

    /// Gives a message of a legacy to a member of its group. It stays, if it is not known whether there is one.
    fn give_to_target(
        &mut self,
        io: &mut impl LoopIo,
        (page, sequence): (PageNumber, Sequence),
        origin: Origin,
        item: Item,
    ) -> Given {
        let filter = item.group.unwrap_or_default();
        if self.may_have_unknown_members(io, &filter) {
            return Given::Stays;
        }
        let once = Once::Broker(origin);
        let given = self.give_to_group(io, &filter, &item.message, None, Some(&once));
        let Some((client, item)) = given else {
            return Given::Done;
        };
        let member = self.base.node.store().client_name(&client);
        let op = once::deliver(member, item, Some(once));
        let asked = Pending::Handover(Asked::Target(page, sequence));
        self.base.ask_inbox(asked, op);
        Given::Asked
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
}
