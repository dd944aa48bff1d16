//! The policy `bifromq`: what BifroMQ's `RangeSplitBalancer` asks, with its limits.
//!
//! A shard is split if all of this holds: its members are not being changed and can be reached, the process uses less of the
//! machine's CPU than a limit, an operation takes less than a limit on average, and an entry of the log has more operations
//! than a limit on average. What BifroMQ counts as an I/O of its key-value store is an operation here: a request that concerns one
//! slot, or a message that is put in one queue.

use store_state::api::Slot;

use crate::shard::load::Operations;
use crate::splitting::options::SplitOptions;
use crate::splitting::policy::{Candidate, Hold, NodeView, SplitPolicy, Verdict};

/// BifroMQ's.
pub(crate) struct AsBifromq {
    pub(crate) options: SplitOptions,
}

impl SplitPolicy for AsBifromq {
    fn decide(&self, shard: &Candidate, node: &NodeView) -> Verdict {
        let Some(busyness) = shard.busyness else {
            return Verdict::Hold(Hold::New);
        };
        let options = &self.options;
        let Operations {
            count,
            entries,
            time,
        } = busyness.operations;
        let latency = time.as_nanos().checked_div(count.0.into());
        let density = count.0.checked_div(entries.0).map(|whole| {
            let is_whole = count.0.is_multiple_of(entries.0);
            whole + u64::from(!is_whole)
        });
        let hold = if !node.has_all_members {
            Hold::MemberDown
        } else if node.process_cpu >= options.cpu_usage_most {
            Hold::ProcessBusy
        } else if latency.is_none_or(|latency| latency >= options.operation_limit.as_nanos()) {
            Hold::SlowOperations
        } else if density.is_none_or(|density| density <= options.density_most.0) {
            Hold::SmallEntries
        } else {
            return match busyness.half {
                Some(half) => Verdict::Split {
                    at: Slot(half.at.0),
                    why: None,
                },
                None => Verdict::Hold(Hold::Narrow),
            };
        };
        Verdict::Hold(hold)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store_state::SlotRange;
    use store_state::api::{PerStore, StoreId};

    use super::*;
    use crate::shard::load::{Busyness, HalfLoad, HalfSlot, Percent, Total};

    struct Case {
        operations: u64,
        entries: u64,
        nanos: u64,
        process_cpu: f64,
        has_all_members: bool,
    }

    const SPLIT: Case = Case {
        operations: 1_001,
        entries: 10,
        nanos: 1_001 * 29_999,
        process_cpu: 0.79,
        has_all_members: true,
    };

    fn decide(case: &Case) -> Verdict {
        let shard = Candidate {
            id: (StoreId::Inbox, 0),
            thread: 0,
            busyness: Some(Busyness {
                range: SlotRange {
                    first: 0,
                    last: u16::MAX,
                },
                // It does not matter.
                least: Duration::ZERO,
                least_cpu: Duration::ZERO,
                half: Some(HalfLoad {
                    at: HalfSlot(5),
                    below: Percent(1),
                }),
                hottest: None,
                operations: Operations {
                    count: Total(case.operations),
                    entries: Total(case.entries),
                    time: Duration::from_nanos(case.nanos),
                },
            }),
        };
        let node = NodeView {
            threads: Vec::new(),
            led_here: Duration::ZERO,
            led_elsewhere: Vec::new(),
            replicas: PerStore::default(),
            process_cpu: case.process_cpu,
            has_all_members: case.has_all_members,
        };
        let options = SplitOptions::default();
        AsBifromq { options }.decide(&shard, &node)
    }

    #[test]
    fn each_limit_holds_a_split_back() {
        assert_eq!(
            decide(&SPLIT),
            Verdict::Split {
                at: Slot(5),
                why: None
            }
        );
        for (case, hold) in [
            (
                Case {
                    process_cpu: 0.8,
                    ..SPLIT
                },
                Hold::ProcessBusy,
            ),
            (
                Case {
                    nanos: 1_001 * 30_000,
                    ..SPLIT
                },
                Hold::SlowOperations,
            ),
            (
                Case {
                    operations: 1_000,
                    nanos: 1_000,
                    ..SPLIT
                },
                Hold::SmallEntries,
            ),
            (
                Case {
                    has_all_members: false,
                    ..SPLIT
                },
                Hold::MemberDown,
            ),
            (
                Case {
                    operations: 0,
                    entries: 0,
                    ..SPLIT
                },
                Hold::SlowOperations,
            ),
        ] {
            assert_eq!(decide(&case), Verdict::Hold(hold));
        }
    }
}
