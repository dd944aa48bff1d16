//! The policy `load`: a shard is split that has been busy for a while, if its half finds a place with less to do.
//!
//! It does not ask how busy the machine is: a shard that is short of CPU gets more of it by being served from two threads, also
//! beside other programs. So time that a shard's thread has waited for a core counts as if it had run, if it has run for some of it:
//! on a machine with too few cores each thread waits, also one with next to nothing to do. A shard that is waited for, but takes little CPU, is not split: the disk is what it waits for, and
//! all shards of a node have the same.

use std::time::Duration;

use store_state::api::Slot;

use crate::placement::rules::LOAD_FLOOR;
use crate::shard::load::{Busyness, HalfLoad, Percent};
use crate::splitting::policy::{Candidate, Hold, NodeView, SplitPolicy, Verdict};

/// CPU time, and time of waiting for a core, per second from which on a shard is busy.
const BUSY: Duration = Duration::from_millis(250);

/// CPU time alone that it uses at least.
const BUSY_CPU: Duration = Duration::from_millis(100);

/// Each half is to have so much of the load, in percent: a fifth.
const LEAST_HALF: u8 = 20;

/// A shard is split when it has been busy for ten seconds, and its half would find a place with less to do.
pub(crate) struct ByLoad;

impl SplitPolicy for ByLoad {
    fn decide(&self, shard: &Candidate, node: &NodeView) -> Verdict {
        let Some(busyness) = shard.busyness else {
            return Verdict::Hold(Hold::New);
        };
        if busyness.least < BUSY || busyness.least_cpu < BUSY_CPU {
            return Verdict::Hold(Hold::NotBusy);
        }
        if !has_room(shard, &busyness, node) {
            return Verdict::Hold(Hold::NoRoom);
        }
        boundary(&busyness).map_or_else(Verdict::Hold, |at| Verdict::Split { at, why: None })
    }
}

/// Where the load is divided.
fn boundary(busyness: &Busyness) -> Result<Slot, Hold> {
    match busyness.half {
        Some(HalfLoad {
            at,
            below: Percent(below),
        }) if (LEAST_HALF..=100 - LEAST_HALF).contains(&below) => Ok(Slot(at.0)),
        _ => Err(busyness.hottest.map_or(Hold::Narrow, |hot| Hold::OneSlot {
            slot: Slot(hot.slot.0),
            share: hot.share,
        })),
    }
}

/// Whether the half of the shard, on another thread of the node or led by another node, would leave that with less to do than there
/// is now where the shard is.
fn has_room(shard: &Candidate, busyness: &Busyness, node: &NodeView) -> bool {
    let own = node.threads.get(shard.thread).copied().unwrap_or_default();
    let most = own * 9 / 10;
    let others = node.threads.iter().enumerate();
    let mut threads = others.filter(|(number, _)| *number != shard.thread);
    let mut nodes = node.led_elsewhere.iter();
    threads.any(|(_, load)| *load + busyness.least / 2 <= most)
        || nodes.any(|load| {
            let with_half = load.saturating_add(busyness.least_cpu / 2);
            with_half.saturating_add(LOAD_FLOOR) <= node.led_here
        })
}

#[cfg(test)]
mod tests {
    use store_state::SlotRange;
    use store_state::api::{PerStore, StoreId};

    use super::*;
    use crate::shard::load::{HalfSlot, HotSlot, Operations};

    const MS: Duration = Duration::from_millis(1);

    fn half(below: u8) -> Option<HalfLoad> {
        Some(HalfLoad {
            at: HalfSlot(700),
            below: Percent(below),
        })
    }

    fn busy(least: u32, half: Option<HalfLoad>) -> Option<Busyness> {
        Some(Busyness {
            range: SlotRange {
                first: 0,
                last: u16::MAX,
            },
            least: MS * least,
            least_cpu: MS * 100,
            half,
            hottest: None,
            operations: Operations::default(),
        })
    }

    /// A shard on the first thread, and what threads and other nodes use in ms.
    fn decide(busyness: Option<Busyness>, threads: &[u32], nodes: &[u32]) -> Verdict {
        let shard = Candidate {
            id: (StoreId::Inbox, 0),
            thread: 0,
            busyness,
        };
        let node = NodeView {
            threads: threads.iter().map(|load| MS * *load).collect(),
            led_here: MS * 400,
            led_elsewhere: nodes.iter().map(|load| MS * *load).collect(),
            replicas: PerStore::default(),
            // It does not matter.
            process_cpu: 1.0,
            has_all_members: true,
        };
        ByLoad.decide(&shard, &node)
    }

    #[test]
    fn what_is_decided() {
        let split = Verdict::Split {
            at: Slot(700),
            why: None,
        };
        let hold = Verdict::Hold;
        for (busyness, threads, nodes, verdict) in [
            (busy(300, half(50)), &[400, 0][..], &[][..], split.clone()),
            (busy(250, half(20)), &[400, 199], &[], split.clone()),
            (busy(250, half(80)), &[400, 199], &[], split.clone()),
            (busy(249, half(50)), &[400, 0], &[], hold(Hold::NotBusy)),
            (None, &[400, 0], &[], hold(Hold::New)),
            // One thread, or all of them busy.
            (busy(900, half(50)), &[900], &[], hold(Hold::NoRoom)),
            (busy(900, half(50)), &[900, 361], &[], hold(Hold::NoRoom)),
            (busy(900, half(50)), &[900, 360], &[], split.clone()),
            // One of several shards of its thread.
            (busy(300, half(50)), &[900, 661], &[], hold(Hold::NoRoom)),
            (busy(300, half(50)), &[900, 660], &[], split.clone()),
            // Another node has room.
            (busy(300, half(50)), &[900], &[500, 250], split.clone()),
            (busy(300, half(50)), &[900], &[500, 251], hold(Hold::NoRoom)),
            (busy(300, half(19)), &[400, 0], &[], hold(Hold::Narrow)),
            (busy(300, half(81)), &[400, 0], &[], hold(Hold::Narrow)),
            (busy(300, None), &[400, 0], &[], hold(Hold::Narrow)),
        ] {
            assert_eq!(
                decide(busyness, threads, nodes),
                verdict,
                "{busyness:?} {threads:?} {nodes:?}"
            );
        }
    }

    #[test]
    fn a_thread_that_only_waits_for_a_core_is_not_busy() {
        let waits = Busyness {
            least_cpu: MS * 99,
            ..busy(900, half(50)).unwrap()
        };
        let verdict = decide(Some(waits), &[900, 0], &[]);
        assert_eq!(verdict, Verdict::Hold(Hold::NotBusy));
    }

    #[test]
    fn a_single_slot_is_named() {
        let hot = HotSlot {
            slot: HalfSlot(9),
            share: Percent(97),
        };
        for half in [None, half(3), half(98)] {
            let busyness = Busyness {
                hottest: Some(hot),
                ..busy(600, half).unwrap()
            };
            assert_eq!(
                decide(Some(busyness), &[600, 0], &[]),
                Verdict::Hold(Hold::OneSlot {
                    slot: Slot(9),
                    share: Percent(97)
                })
            );
        }
        // A boundary beside it that leaves enough on both sides is one.
        let busyness = Busyness {
            hottest: Some(hot),
            ..busy(600, half(30)).unwrap()
        };
        assert_eq!(
            decide(Some(busyness), &[600, 0], &[]),
            Verdict::Split {
                at: Slot(700),
                why: None
            }
        );
    }
}
