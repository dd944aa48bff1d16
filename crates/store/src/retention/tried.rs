//! What was tried to be dropped by its age, and may have stayed.
//!
//! Messages of QoS 2 that a connected client may hold stay however old they are. To try again makes no sense before there are more
//! that are too old.

use std::collections::BTreeMap;

use crate::retention::found::Overdue;

/// Looks after which it is tried again all the same: an operation may have been refused.
const LOOKS: u32 = 30;

/// The queues of the last look whose messages were too old.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// By the numbers of their inboxes: the end of what was too old, and how many looks have found the same since.
    by_inbox: BTreeMap<u64, (u64, u32)>,
}

impl Tried {
    /// Leaves out the queues of which the same messages were too old when they were looked at last.
    pub(super) fn leave_out_again(&mut self, overdue: &mut Vec<Overdue>) {
        let before = std::mem::take(&mut self.by_inbox);
        overdue.retain(|overdue| {
            let (inbox, end) = (overdue.inbox.number.0, overdue.sequences.end);
            let same = before.get(&inbox).filter(|(of, _)| *of == end);
            let looks = same.map_or(0, |(_, looks)| (looks + 1) % LOOKS);
            self.by_inbox.insert(inbox, (end, looks));
            looks == 0
        });
    }

    /// Not all was tried.
    pub(super) fn forget(&mut self) {
        self.by_inbox.clear();
    }
}

#[cfg(test)]
mod tests {
    use store_state::inbox::InboxId;

    use super::*;

    #[test]
    fn what_has_stayed_is_tried_again_when_there_is_more() {
        let overdue = |number, below| Overdue {
            inbox: InboxId::new(1, number),
            sequences: 1..below,
        };
        let mut tried = Tried::default();
        for (found, left) in [
            (vec![overdue(1, 5), overdue(2, 7)], vec![(1, 5), (2, 7)]),
            (vec![overdue(2, 7), overdue(1, 5)], vec![]),
            (vec![overdue(1, 6), overdue(2, 7)], vec![(1, 6)]),
            (vec![overdue(2, 7)], vec![]),
            (vec![overdue(1, 6)], vec![(1, 6)]),
        ] {
            let mut found = found;
            tried.leave_out_again(&mut found);
            let found: Vec<_> = found
                .iter()
                .map(|of| (of.inbox.number.0, of.sequences.end))
                .collect();
            assert_eq!(found, left);
        }
        let looks = (1..=LOOKS).find(|_| {
            let mut found = vec![overdue(1, 6)];
            tried.leave_out_again(&mut found);
            !found.is_empty()
        });
        assert_eq!(looks, Some(LOOKS));
        tried.leave_out_again(&mut vec![overdue(1, 6)]);
        tried.forget();
        let mut found = vec![overdue(1, 6)];
        tried.leave_out_again(&mut found);
        assert_eq!(found.len(), 1);
    }
}
