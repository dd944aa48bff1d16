//! Which calls have been carried out: requests that a node may say again, because it does not know whether they
//! were, and that would queue a message a second time.
//!
//! A QoS 2 message of a session that the store knows has an [`Origin`](super::Origin) until PUBREL. One of a
//! session that ends with its connection has no name that outlives it, and needs none: only the loop that it came
//! in by says it again. Nor has one of QoS 0. So each loop numbers its calls, and says with each which is the oldest
//! that it still waits for.
//!
//! Invariant: a call is carried out once, in whatever order calls come. What is remembered of a loop is as much as
//! it waits for, and [`LIMIT`] at most: beyond that the oldest may be carried out again, since a message that is
//! acknowledged must not be lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Call, Caller, InboxReply};
use crate::row;

/// Calls of a loop that are remembered.
///
/// Limit: calls of a loop that an inbox shard remembers, so that none is carried out twice | those that the loop
/// waits for; {} | the oldest may be carried out again
const LIMIT: usize = 65_536;

/// The calls of all loops.
#[derive(Debug, Default)]
pub(super) struct Calls {
    loops: BTreeMap<(u64, u16), Loop>,
    changed: bool,
}

/// What is remembered of a loop.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Loop {
    incarnation: u64,
    /// Calls below this are not waited for.
    oldest: u64,
    /// Those that were carried out, and how many sessions refused them.
    done: BTreeMap<u64, u32>,
}

/// The row of all of them.
pub(super) type CallsRow = Vec<(u64, u16, LoopRow)>;

/// A loop in the row.
#[derive(Serialize, Deserialize)]
pub(super) struct LoopRow(Loop);

impl Calls {
    /// Takes note of a call. `Some`: it was carried out, or is not waited for; this is the answer.
    pub(super) fn begin(&mut self, call: &Call) -> Option<InboxReply> {
        let Caller {
            node,
            loop_index,
            incarnation,
        } = call.caller;
        let caller = self.loops.entry((node, loop_index)).or_default();
        if incarnation < caller.incarnation {
            return Some(answer(0));
        }
        if incarnation > caller.incarnation {
            *caller = Loop {
                incarnation,
                ..Loop::default()
            };
            self.changed = true;
        }
        if call.oldest > caller.oldest {
            caller.oldest = call.oldest;
            caller.done = caller.done.split_off(&call.oldest);
            self.changed = true;
        }
        if call.number < caller.oldest {
            return Some(answer(0));
        }
        caller
            .done
            .get(&call.number)
            .map(|refused| answer(*refused))
    }

    /// A call was carried out.
    pub(super) fn done(&mut self, call: &Call, reply: &InboxReply) {
        // What nobody matched has changed nothing.
        let InboxReply::Published {
            matched: 1..,
            refused,
            ..
        } = reply
        else {
            return;
        };
        let place = (call.caller.node, call.caller.loop_index);
        let caller = self.loops.entry(place).or_default();
        caller.done.insert(call.number, *refused);
        if caller.done.len() > LIMIT {
            caller.done.pop_first();
        }
        self.changed = true;
    }

    /// The same for the other half of a shard that is split: a call may be made again at both. Both write their rows.
    pub(super) fn split(&mut self) -> Self {
        self.changed = true;
        Self {
            loops: self.loops.clone(),
            changed: true,
        }
    }

    /// Calls that are remembered.
    pub(super) fn len(&self) -> usize {
        self.loops.values().map(|caller| caller.done.len()).sum()
    }

    pub(super) fn load(&mut self, row: CallsRow) {
        let loops = row.into_iter();
        self.loops = loops
            .map(|(node, index, LoopRow(of))| ((node, index), of))
            .collect();
    }

    /// The row, if it has changed since it was taken last.
    pub(super) fn take_changed(&mut self) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let loops = self.loops.iter();
        let rows: CallsRow = loops
            .map(|((node, index), of)| (*node, *index, LoopRow(of.clone())))
            .collect();
        Some(row::encode(&rows))
    }
}

fn answer(refused: u32) -> InboxReply {
    InboxReply::Published {
        matched: 1,
        refused,
        pressing: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, oldest: u64, incarnation: u64) -> Call {
        Call {
            caller: Caller {
                node: 7,
                loop_index: 1,
                incarnation,
            },
            number,
            oldest,
        }
    }

    fn carry_out(calls: &mut Calls, call: &Call, refused: u32) -> bool {
        let is_new = calls.begin(call).is_none();
        if is_new {
            let reply = InboxReply::Published {
                matched: 1 + refused,
                refused,
                pressing: 0,
            };
            calls.done(call, &reply);
        }
        is_new
    }

    #[test]
    fn a_call_is_carried_out_once_in_whatever_order() {
        let mut calls = Calls::default();
        for number in [3, 1, 2] {
            assert!(carry_out(&mut calls, &call(number, 1, 5), 0));
        }
        for number in [1, 2, 3] {
            assert!(!carry_out(&mut calls, &call(number, 1, 5), 0));
        }
        // Another start of the node, and the one before it.
        assert!(carry_out(&mut calls, &call(1, 1, 6), 0));
        assert!(!carry_out(&mut calls, &call(9, 1, 5), 0));
    }

    #[test]
    fn a_refusal_is_told_again() {
        let mut calls = Calls::default();
        assert!(carry_out(&mut calls, &call(1, 1, 5), 2));
        assert_eq!(calls.begin(&call(1, 1, 5)), Some(answer(2)));
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten_and_not_carried_out_any_more() {
        let mut calls = Calls::default();
        for number in 1..100 {
            assert!(carry_out(
                &mut calls,
                &call(number, number.max(3) - 2, 5),
                0
            ));
        }
        assert_eq!(calls.loops[&(7, 1)].done.len(), 3);
        assert!(!carry_out(&mut calls, &call(96, 97, 5), 0));
        let mut limited = Calls::default();
        for number in 0..2 * LIMIT as u64 {
            carry_out(&mut limited, &call(number, 0, 5), 0);
        }
        assert_eq!(limited.loops[&(7, 1)].done.len(), LIMIT);
        // It is waited for: it must not be answered without being carried out.
        assert!(carry_out(&mut limited, &call(1, 0, 5), 0));
    }

    #[test]
    fn what_nobody_matched_may_be_carried_out_again() {
        let mut calls = Calls::default();
        let nobody = InboxReply::Published {
            matched: 0,
            refused: 0,
            pressing: 0,
        };
        let call = call(1, 1, 5);
        for _ in 0..2 {
            assert_eq!(calls.begin(&call), None);
            calls.done(&call, &nobody);
        }
    }

    #[test]
    fn they_are_the_same_after_a_restart() {
        let mut calls = Calls::default();
        carry_out(&mut calls, &call(4, 2, 5), 1);
        let row = calls.take_changed().unwrap();
        assert!(calls.take_changed().is_none());
        let mut loaded = Calls::default();
        loaded.load(row::decode(b"U", &row).unwrap());
        assert_eq!(loaded.begin(&call(4, 2, 5)), Some(answer(1)));
    }
}
