//! Connections that have sent no CONNECT yet, in the order in which they came.

use std::collections::VecDeque;

use net_api::ConnectionId;

/// Of a full list this share is closed at once, so that a flood does not go through all of it for each
/// connection.
const CLOSED_AT_ONCE: usize = 8;

/// Connections in the order of their arrival. Those that have got further are dropped from it when it is
/// full.
#[derive(Default, Debug)]
pub(crate) struct AwaitingConnect(pub(super) VecDeque<ConnectionId>);

impl AwaitingConnect {
    /// Takes a connection in. Returns those that are to be closed.
    pub(super) fn push(
        &mut self,
        connection: ConnectionId,
        limit: usize,
        is_unheard: impl Fn(ConnectionId) -> bool,
    ) -> Vec<ConnectionId> {
        let mut oldest = Vec::new();
        if self.0.len() >= limit {
            self.0.retain(|&waiting| is_unheard(waiting));
            let room = limit.div_ceil(CLOSED_AT_ONCE);
            let too_many = (self.0.len() + room).saturating_sub(limit);
            oldest = self.0.drain(..too_many.min(self.0.len())).collect();
        }
        self.0.push_back(connection);
        oldest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId {
            slot,
            generation: 0,
        }
    }

    #[test]
    fn the_oldest_are_closed() {
        let mut unheard = AwaitingConnect::default();
        for slot in 0..16 {
            assert!(unheard.push(id(slot), 16, |_| true).is_empty());
        }
        assert_eq!(unheard.push(id(16), 16, |_| true), [id(0), id(1)]);
        assert!(unheard.push(id(17), 16, |_| true).is_empty());
        assert_eq!(unheard.push(id(18), 16, |_| true), [id(2), id(3)]);
    }

    #[test]
    fn who_was_heard_is_left_alone() {
        let mut unheard = AwaitingConnect::default();
        for slot in 0..10_000 {
            let oldest = unheard.push(id(slot), 16, |waiting| waiting == id(0));
            assert!(oldest.is_empty() && unheard.0.len() <= 16);
        }
    }

    #[test]
    fn no_more_than_the_limit_stay_open() {
        for limit in 1..40 {
            let (mut unheard, mut open) = (AwaitingConnect::default(), HashSet::new());
            for slot in 0..200 {
                open.insert(id(slot));
                for oldest in unheard.push(id(slot), limit, |waiting| open.contains(&waiting)) {
                    open.remove(&oldest);
                }
                assert!(open.len() <= limit && open.contains(&id(slot)), "{limit}");
            }
        }
    }
}
