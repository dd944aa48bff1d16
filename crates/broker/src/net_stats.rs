//! Sums of what the event loops count.

use net::LoopStats;
use net_api::Counter;

/// Sums one counter of the event loops.
pub(crate) fn sum_net<'a>(
    stats: &'a [std::sync::Arc<LoopStats>],
    pick: impl Fn(&'a LoopStats) -> &'a Counter,
) -> u64 {
    stats.iter().map(|s| pick(s).get()).sum()
}
