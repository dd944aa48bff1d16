//! How an inbox shard is cut in two.
//!
//! Each half gets the inboxes of its slots, with their queues, what they are owed, and the rows of theirs that have yet to
//! be written. Both get what prevents that something is done twice, since a publication, a call or a fence reaches both:
//! the origins, the calls, the fences, the incarnations of nodes. Both get all bodies.
//!
//! The route index and the filters are made anew in parts: see `matching` and `filters`. Then the references to bodies are
//! counted anew: see `recount`.

use super::ending::UnderWay;
use super::machine::InboxMachine;
use super::stock::Stock;
use super::tables::{INBOX, LEGACY, OWED, PENDING_FILTER, PENDING_OF_CLIENT, QUEUE};
use crate::{SlotRange, Split, Table, TableError, row};

impl Split for InboxMachine {
    fn split_off(&mut self, at: u16) -> Self {
        let SlotRange { first, last } = self.range;
        assert!(
            first < at && at <= last,
            "a shard of the slots {first} to {last} is not split at {at}"
        );
        assert!(
            self.under_way.is_nothing(),
            "a shard is split between two operations"
        );
        let (mut stock, mut attached) = (Stock::new(self.naming.level), 0);
        let inboxes = self.inboxes.split_off(at, |inbox| {
            stock.count(inbox);
            attached += usize::from(inbox.is_attached());
        });
        self.range.last = at - 1;
        self.attached -= attached;
        Self {
            range: SlotRange { first: at, last },
            naming: self.naming,
            nodes: self.nodes.clone(),
            next_inbox: self.next_inbox,
            next_body: self.next_body,
            matching: self.matching.split_off(&self.inboxes, &inboxes),
            filters: self.filters.split_off(),
            members: self.members.split_off(|number| inboxes.has(number)),
            origins: self.origins.split(),
            fences: self.fences.split(),
            owed: self.owed.split_off(at, |number| inboxes.has(number)),
            calls: self.calls.split(),
            stock: self.stock.split_off(at, &inboxes, stock, self.next_body),
            attached,
            under_way: UnderWay::default(),
            recorded: self.recorded.clone(),
            inboxes,
        }
    }

    fn rebuild_part(
        &mut self,
        entries: usize,
        table: &dyn Table,
        outlet: &mut Self::Outlet,
    ) -> Result<bool, TableError> {
        let (inboxes, filters) = (&mut self.inboxes, &mut self.filters);
        let is_routed = self.matching.take_over_part(entries, inboxes, filters)
            && filters.narrow_part(entries, outlet);
        Ok(is_routed && self.stock.recount_part(entries, self.range, table)?)
    }

    fn has_to_rebuild(&self) -> bool {
        self.stock.bodies.has_bounds_to_correct()
    }

    fn keeps(key: &[u8], range: SlotRange) -> bool {
        let is_cut = [
            INBOX,
            LEGACY,
            QUEUE,
            OWED,
            PENDING_OF_CLIENT,
            PENDING_FILTER,
        ];
        match (key.first(), row::slot(key)) {
            (Some(kind), Some(slot)) if is_cut.contains(kind) => range.contains(slot),
            _ => true,
        }
    }
}
