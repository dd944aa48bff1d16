//! The load of a shard: what it costs the thread that it lives on and the log, and where in its range that is caused.
//!
//! Purpose: `cluster status` and the metrics show it; where it halves, the shard can be split.
//!
//! CPU time is measured around whole batches (`sampled_time.rs`), and given to groups of slots in proportion to what these put into the shard:
//! each operation counts in the slot that it names, and a publication, which has none, in the slot of each queue that it is
//! put in.
//!
//! Invariants: only the node that leads a shard counts its load; counters only grow; a window is a second, and what is shown is
//! the mean of the last [`WINDOWS`].
//!
//! Deliberately absent: what follows from a load.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use store_state::SlotRange;

use crate::api::listener::Listener;
use crate::shard::sampled_time::SampledTime;

/// Groups of slots that the load of a shard is counted in.
const GROUPS: usize = 256;

/// Seconds over which a load is smoothed.
pub(crate) const WINDOWS: usize = 10;

/// What an operation weighs beside its bytes.
const OPERATION: u64 = 64;

/// The load of a shard, per second: the mean of the last ten seconds, or of as many as this node has led it for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ShardLoad {
    /// CPU time for making batches of requests and proposing them.
    pub propose: Duration,
    /// CPU time for applying them.
    pub apply: Duration,
    /// CPU time for reading queues and retained messages.
    pub read: Duration,
    /// How long all requests together have waited for being proposed. Over a second, that is how many waited on average.
    pub wait: Duration,
    /// Requests proposed.
    pub requests: Rate,
    /// Bytes of these in the log, about.
    pub log_bytes: Rate,
    /// Where the load halves; `None`: there is no load, or no slot above the first.
    pub half: Option<HalfLoad>,
}

/// How often something happens in a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Rate(pub u64);

/// The boundary between two groups of slots that cuts the load most evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HalfLoad {
    /// The first slot of the upper part.
    pub at: HalfSlot,
    /// The share of the lower part.
    pub below: Percent,
}

/// A slot above the first one of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HalfSlot(pub u16);

/// Hundredths of the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Percent(pub u8);

/// What a shard has cost since this process began to lead it for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardCost {
    /// CPU time for making batches of requests and proposing them.
    pub propose: Duration,
    /// CPU time for applying them.
    pub apply: Duration,
    /// CPU time for reading queues and retained messages.
    pub read: Duration,
    /// How long all requests together have waited for being proposed.
    pub wait: Duration,
    /// Requests proposed.
    pub requests: Total,
    /// Bytes of these in the log, about.
    pub log_bytes: Total,
    /// Entries of the log that they were proposed in.
    pub entries: Total,
}

/// How often something has happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Total(pub u64);

impl ShardLoad {
    /// CPU time, whatever for. Another node may have said anything.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.propose
            .saturating_add(self.apply)
            .saturating_add(self.read)
    }
}

impl ShardCost {
    pub(crate) fn cpu(&self) -> Duration {
        self.propose + self.apply + self.read
    }

    fn scaled(self, scale: f64) -> Self {
        let scaled = |time| scaled(time, scale);
        Self {
            propose: scaled(self.propose),
            apply: scaled(self.apply),
            read: scaled(self.read),
            ..self
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            propose: self.propose.saturating_sub(earlier.propose),
            apply: self.apply.saturating_sub(earlier.apply),
            read: self.read.saturating_sub(earlier.read),
            wait: self.wait.saturating_sub(earlier.wait),
            requests: Total(self.requests.0.saturating_sub(earlier.requests.0)),
            log_bytes: Total(self.log_bytes.0.saturating_sub(earlier.log_bytes.0)),
            entries: Total(self.entries.0.saturating_sub(earlier.entries.0)),
        }
    }
}

/// How much more a shard has used than was counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct LoadScale {
    /// CPU time per second, times what was counted.
    pub(crate) cpu: f64,
    /// CPU time and time of waiting for a core, times that CPU time.
    pub(crate) busy: f64,
}

#[cfg(test)]
impl LoadScale {
    /// What was counted is all there was.
    const ONE: Self = Self {
        cpu: 1.0,
        busy: 1.0,
    };
}

fn scaled(time: Duration, scale: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * scale).unwrap_or(time)
}

/// Counts the cost of a shard; the waiting time is counted by its queue.
#[derive(Debug, Default)]
pub(crate) struct CostCounters {
    propose: SampledTime,
    apply: SampledTime,
    read: SampledTime,
    requests: AtomicU64,
    log_bytes: AtomicU64,
    entries: AtomicU64,
}

/// What CPU time is spent for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    Propose,
    Apply,
    Read,
}

impl CostCounters {
    /// Does something, and counts its CPU time.
    pub(crate) fn during<R>(
        &self,
        effort: Effort,
        listener: &dyn Listener,
        work: impl FnOnce() -> R,
    ) -> R {
        let time = match effort {
            Effort::Propose => &self.propose,
            Effort::Apply => &self.apply,
            Effort::Read => &self.read,
        };
        time.during(|| listener.thread_cpu(), work)
    }

    /// The same for what may wait in between: only its own turns count.
    pub(crate) async fn during_turns<F: Future>(
        &self,
        effort: Effort,
        listener: &dyn Listener,
        work: F,
    ) -> F::Output {
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            self.during(effort, listener, || match work.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending => Poll::Pending,
            })
        })
        .await
    }

    /// A batch is proposed.
    pub(crate) fn proposed(&self, requests: usize, log_bytes: usize) {
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
        self.log_bytes
            .fetch_add(log_bytes as u64, Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    /// All of it. `wait`: as the queue has counted it.
    pub(crate) fn cost(&self, wait: Duration) -> ShardCost {
        let total = |counter: &AtomicU64| Total(counter.load(Ordering::Relaxed));
        ShardCost {
            propose: self.propose.total(),
            apply: self.apply.total(),
            read: self.read.total(),
            wait,
            requests: total(&self.requests),
            log_bytes: total(&self.log_bytes),
            entries: total(&self.entries),
        }
    }
}

/// How the slots of a shard are dealt to groups: contiguous ones, of equal size or as equal as can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Groups {
    range: SlotRange,
    /// Groups per slot, times 2^16.
    scale: Scale,
}

/// A fixed-point number with 16 binary digits behind the point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Scale(u32);

impl Groups {
    fn new(range: SlotRange) -> Self {
        let width = u32::from(range.last - range.first) + 1;
        let scale = Scale(((GROUPS as u32) << 16) / width);
        Self { range, scale }
    }

    /// The group of a slot of the range.
    #[inline]
    fn of(self, slot: u16) -> usize {
        let offset = u32::from(slot.wrapping_sub(self.range.first));
        ((u64::from(offset) * u64::from(self.scale.0)) >> 16) as usize
    }

    /// The first slot of a group or, if none belongs to it, of the next one that has any; `None`: none has.
    fn first_of(self, group: usize) -> Option<u16> {
        let offset = ((group as u64) << 16).div_ceil(u64::from(self.scale.0));
        let slot = u64::from(self.range.first) + offset;
        let slot = u16::try_from(slot).ok()?;
        self.range.contains(slot).then_some(slot)
    }
}

/// What the operations of a shard weigh, by groups of slots, since this was last asked.
#[derive(Debug)]
pub(crate) struct SlotWeights {
    groups: Groups,
    weights: Box<[u64]>,
    /// How many there were.
    count: Total,
    /// A group whose slots are looked at one by one.
    close_up: Option<CloseUp>,
}

/// The weights of the slots of one group.
#[derive(Debug)]
struct CloseUp {
    group: GroupIndex,
    first: HalfSlot,
    weights: Box<[u64]>,
}

/// The place of a group among those of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct GroupIndex(usize);

/// What was asked for.
#[derive(Debug, Default)]
struct TakenWeights {
    /// By group; empty: there are none.
    by_group: Box<[u64]>,
    count: Total,
    close_up: Option<CloseUp>,
}

impl SlotWeights {
    pub(crate) fn new(range: SlotRange) -> Self {
        Self {
            groups: Groups::new(range),
            weights: vec![0; GROUPS].into(),
            count: Total::default(),
            close_up: None,
        }
    }

    /// An operation is carried out that concerns a slot of the range.
    #[inline]
    pub(crate) fn add(&mut self, slot: u16, bytes: u64) {
        let group = self.groups.of(slot);
        let weight = self.weights.get_mut(group);
        debug_assert!(weight.is_some(), "slot {slot} of {:?}", self.groups.range);
        if let Some(weight) = weight {
            *weight += bytes + OPERATION;
        }
        self.count.0 += 1;
        if let Some(close_up) = &mut self.close_up
            && close_up.group.0 == group
        {
            let place = usize::from(slot.wrapping_sub(close_up.first.0));
            if let Some(weight) = close_up.weights.get_mut(place) {
                *weight += bytes + OPERATION;
            }
        }
    }

    /// The weights, which begin anew. `next`: the group whose slots are looked at one by one from now on.
    fn take(&mut self) -> TakenWeights {
        if self.count == Total::default() {
            return TakenWeights::default();
        }
        let empty = vec![0; GROUPS].into();
        TakenWeights {
            by_group: std::mem::replace(&mut self.weights, empty),
            count: std::mem::take(&mut self.count),
            close_up: self.close_up.take(),
        }
    }

    /// From now on the slots of this group are looked at one by one.
    fn look_closely(&mut self, group: Option<GroupIndex>) {
        self.close_up = group.and_then(|group| {
            let first = self.groups.first_of(group.0)?;
            let next = self.groups.first_of(group.0 + 1);
            let last = next.map_or(self.groups.range.last, |next| next - 1);
            let slots = usize::from(last.checked_sub(first)?) + 1;
            Some(CloseUp {
                group,
                first: HalfSlot(first),
                weights: vec![0; slots].into(),
            })
        });
    }
}

/// Makes the load of a shard out of its cost, window by window.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    groups: Groups,
    /// At the end of the last window; `None`: there was none.
    last: Option<ShardCost>,
    windows: VecDeque<Window>,
}

#[derive(Debug)]
struct Window {
    cost: ShardCost,
    /// CPU time and time of waiting for a core.
    busy: Duration,
    /// CPU time that was counted for applying operations.
    applied: Duration,
    /// CPU time by group of slots, in ns; empty: none was spent for any.
    by_group: Box<[u64]>,
    operations: Total,
    close_up: Option<CloseUp>,
}

/// How busy a shard has been in each of the last ten seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Busyness {
    /// The slots of the shard.
    pub range: SlotRange,
    /// CPU time, and time of waiting for a core, of the second in which it was least busy.
    pub least: Duration,
    /// CPU time of the second in which that was least.
    pub least_cpu: Duration,
    /// Where its load halves.
    pub half: Option<HalfLoad>,
    /// A slot that has more than half of it.
    pub hottest: Option<HotSlot>,
    /// All that was done.
    pub operations: Operations,
}

/// A slot with most of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotSlot {
    /// The slot.
    pub slot: HalfSlot,
    /// Its share of the load.
    pub share: Percent,
}

/// Requests that concern a slot, and messages put in queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operations {
    /// How many.
    pub count: Total,
    /// Entries of the log that they came in.
    pub entries: Total,
    /// CPU time that was counted for applying them.
    pub time: Duration,
}

impl LoadMeter {
    pub(crate) fn new(range: SlotRange) -> Self {
        Self {
            groups: Groups::new(range),
            last: None,
            windows: VecDeque::new(),
        }
    }

    /// A second has passed, at whose end the shard has this cost; `None`: another node leads it, and what was counted
    /// meanwhile is no load. The first second with a cost only begins a window.
    pub(crate) fn roll(
        &mut self,
        cost: Option<ShardCost>,
        weights: &mut SlotWeights,
        scale: LoadScale,
    ) {
        let taken = weights.take();
        match (cost, std::mem::replace(&mut self.last, cost)) {
            (Some(cost), Some(last)) => self.end_window(cost.since(&last), taken, scale),
            (Some(_), None) => {}
            (None, _) => self.windows = VecDeque::new(),
        }
        weights.look_closely(self.hottest_group());
    }

    fn end_window(&mut self, cost: ShardCost, taken: TakenWeights, scale: LoadScale) {
        let applied = cost.apply;
        let cost = cost.scaled(scale.cpu);
        if self.windows.len() == WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back(Window {
            cost,
            busy: scaled(cost.cpu(), scale.busy),
            applied,
            by_group: shares(cost.cpu(), taken.by_group),
            operations: taken.count,
            close_up: taken.close_up,
        });
    }

    /// A group that has more than half of the load.
    fn hottest_group(&self) -> Option<GroupIndex> {
        let sums = self.sums();
        let total: u64 = sums.iter().sum();
        let hot = sums.iter().position(|sum| *sum > total / 2);
        hot.filter(|_| total > 0).map(GroupIndex)
    }

    /// CPU time by group, in ns.
    fn sums(&self) -> [u64; GROUPS] {
        let mut sums = [0_u64; GROUPS];
        for window in &self.windows {
            for (sum, time) in sums.iter_mut().zip(&window.by_group) {
                *sum += time;
            }
        }
        sums
    }

    /// The weights of the slots of a group, and the first of these, as far as they were looked at one by one.
    fn close_up(&self, group: GroupIndex) -> Option<(u16, Vec<u64>)> {
        let close_ups = self.windows.iter().filter_map(|window| {
            let close_up = window.close_up.as_ref();
            close_up.filter(|close_up| close_up.group == group)
        });
        let mut found: Option<(u16, Vec<u64>)> = None;
        for close_up in close_ups {
            let (_, sums) =
                found.get_or_insert_with(|| (close_up.first.0, vec![0; close_up.weights.len()]));
            for (sum, weight) in sums.iter_mut().zip(&close_up.weights) {
                *sum += weight;
            }
        }
        found.filter(|(_, sums)| sums.iter().any(|sum| *sum > 0))
    }

    /// How busy the shard has been; `None`: the node has not led it, as it is now, for [`WINDOWS`] seconds.
    pub(crate) fn busyness(&self) -> Option<Busyness> {
        if self.windows.len() < WINDOWS {
            return None;
        }
        let sum = |pick: fn(&Window) -> u64| Total(self.windows.iter().map(pick).sum());
        Some(Busyness {
            range: self.groups.range,
            least: self.windows.iter().map(|window| window.busy).min()?,
            least_cpu: self.windows.iter().map(|window| window.cost.cpu()).min()?,
            half: self.half(),
            hottest: self.hottest(),
            operations: Operations {
                count: sum(|window| window.operations.0),
                entries: sum(|window| window.cost.entries.0),
                time: self.windows.iter().map(|window| window.applied).sum(),
            },
        })
    }

    /// A slot that has more than half of the load.
    fn hottest(&self) -> Option<HotSlot> {
        let group = self.hottest_group()?;
        let sums = self.sums();
        let of_group = u128::from(*sums.get(group.0)?);
        let total: u128 = sums.iter().map(|sum| u128::from(*sum)).sum();
        let (first, slots) = self.close_up(group)?;
        let weight: u128 = slots.iter().map(|slot| u128::from(*slot)).sum();
        let (place, most) = slots.iter().enumerate().max_by_key(|(_, slot)| **slot)?;
        let percent = of_group * u128::from(*most) * 100 / weight.max(1) / total.max(1);
        (percent > 50).then(|| HotSlot {
            slot: HalfSlot(first + place as u16),
            share: Percent(percent as u8),
        })
    }

    /// The load; `None`: the node has not led the shard for a whole window.
    pub(crate) fn load(&self) -> Option<ShardLoad> {
        let windows = u32::try_from(self.windows.len()).ok()?;
        let costs = || self.windows.iter().map(|window| &window.cost);
        let time = |pick: fn(&ShardCost) -> Duration| {
            let sum: Duration = costs().map(pick).sum();
            sum.checked_div(windows)
        };
        let rate = |pick: fn(&ShardCost) -> Total| {
            let sum: u64 = costs().map(|cost| pick(cost).0).sum();
            sum.checked_div(windows.into()).map(Rate)
        };
        Some(ShardLoad {
            propose: time(|cost| cost.propose)?,
            apply: time(|cost| cost.apply)?,
            read: time(|cost| cost.read)?,
            wait: time(|cost| cost.wait)?,
            requests: rate(|cost| cost.requests)?,
            log_bytes: rate(|cost| cost.log_bytes)?,
            half: self.half(),
        })
    }

    /// The first slot of a group, or one within a group that has most of the load, such that what is below and what is not differ
    /// least.
    fn half(&self) -> Option<HalfLoad> {
        let sums = self.sums();
        let total: u64 = sums.iter().sum();
        let close_up = self.hottest_group().and_then(|group| {
            let (first, slots) = self.close_up(group)?;
            Some((group, first, slots))
        });
        let mut best: Option<(u64, HalfLoad)> = None;
        let mut consider = |at: u16, below: u64| {
            let difference = below.abs_diff(total.saturating_sub(below));
            if at > self.groups.range.first
                && total > 0
                && best.is_none_or(|(least, _)| difference < least)
            {
                let half = HalfLoad {
                    at: HalfSlot(at),
                    below: Percent((u128::from(below) * 100 / u128::from(total)) as u8),
                };
                best = Some((difference, half));
            }
        };
        let mut below = 0_u64;
        for (group, sum) in sums.iter().enumerate() {
            if let Some(at) = self.groups.first_of(group) {
                consider(at, below);
            }
            if let Some((_, first, slots)) = close_up.as_ref().filter(|(hot, ..)| hot.0 == group) {
                let whole: u128 = slots.iter().map(|slot| u128::from(*slot)).sum();
                let mut within = 0_u128;
                for (at, slot) in (*first..=self.groups.range.last).zip(slots) {
                    let share = u128::from(*sum) * within / whole.max(1);
                    consider(at, below + u64::try_from(share).unwrap_or(u64::MAX));
                    within += u128::from(*slot);
                }
            }
            below += sum;
        }
        best.map(|(_, half)| half)
    }
}

/// Deals CPU time to groups in proportion to their weights: ns.
fn shares(cpu: Duration, mut weights: Box<[u64]>) -> Box<[u64]> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    for weight in &mut weights {
        let share = (cpu.as_nanos() * u128::from(*weight)).checked_div(total);
        *weight = share.map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX));
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: SlotRange = SlotRange {
        first: 1_000,
        last: 2_023,
    };

    /// A second that costs so many ms of CPU for applying.
    struct Second<'a> {
        apply_ms: u64,
        /// Slots and bytes of operations.
        operations: &'a [(u16, u64)],
    }

    fn metered(range: SlotRange, seconds: &[Second<'_>]) -> LoadMeter {
        let (mut meter, mut weights) = (LoadMeter::new(range), SlotWeights::new(range));
        let mut cost = ShardCost::default();
        meter.roll(Some(cost), &mut weights, LoadScale::ONE);
        for second in seconds {
            cost.apply += Duration::from_millis(second.apply_ms);
            cost.wait += Duration::from_millis(7);
            cost.requests.0 += second.operations.len() as u64;
            for (slot, bytes) in second.operations {
                cost.log_bytes.0 += bytes;
                weights.add(*slot, *bytes);
            }
            meter.roll(Some(cost), &mut weights, LoadScale::ONE);
        }
        meter
    }

    fn half(range: SlotRange, seconds: &[Second<'_>]) -> Option<(u16, u8)> {
        let half = metered(range, seconds).half()?;
        Some((half.at.0, half.below.0))
    }

    #[test]
    fn each_slot_has_a_group_and_each_group_contiguous_slots() {
        for (first, last) in [(0, 65_535), (0, 0), (7, 9), (5, 305), (1_000, 22_845)] {
            let range = SlotRange { first, last };
            let groups = Groups::new(range);
            let mut next = 0;
            for slot in first..=last {
                let group = groups.of(slot);
                assert!(group >= next && group < GROUPS, "{range:?} {slot}");
                assert!(groups.first_of(group).unwrap() <= slot);
                if group > next || slot == first {
                    assert_eq!(groups.first_of(group), Some(slot), "{range:?}");
                }
                next = group;
            }
            let width = usize::from(last - first) + 1;
            let mut used: Vec<_> = (first..=last).map(|slot| groups.of(slot)).collect();
            used.dedup();
            assert_eq!(used.len(), width.min(GROUPS), "{range:?}");
        }
    }

    #[test]
    fn a_load_is_the_mean_of_the_last_ten_seconds() {
        let second = |apply_ms, operations| Second {
            apply_ms,
            operations,
        };
        assert_eq!(metered(RANGE, &[]).load(), None);
        let operations = [(1_000, 100), (2_000, 300)];
        let load = metered(RANGE, &[second(30, &operations), second(10, &[])]).load();
        let load = load.unwrap();
        assert_eq!(
            (load.cpu(), load.wait),
            (Duration::from_millis(20), Duration::from_millis(7))
        );
        assert_eq!((load.requests, load.log_bytes), (Rate(1), Rate(200)));
        let mut seconds = vec![second(900, &operations)];
        seconds.extend((0..10).map(|_| second(5, &[])));
        let load = metered(RANGE, &seconds).load().unwrap();
        assert_eq!(
            (load.cpu(), load.requests, load.half),
            (Duration::from_millis(5), Rate(0), None)
        );
    }

    #[test]
    fn what_happens_while_another_node_leads_is_no_load() {
        let mut meter = metered(RANGE, &[]);
        let mut weights = SlotWeights::new(RANGE);
        weights.add(1_000, 1);
        meter.roll(None, &mut weights, LoadScale::ONE);
        let cost = ShardCost {
            apply: Duration::from_secs(5),
            ..ShardCost::default()
        };
        meter.roll(Some(cost), &mut weights, LoadScale::ONE);
        assert_eq!(meter.load(), None);
        meter.roll(Some(cost), &mut weights, LoadScale::ONE);
        let load = meter.load().unwrap();
        assert_eq!((load.cpu(), load.half), (Duration::ZERO, None));
    }

    #[test]
    fn the_load_halves_where_both_parts_are_most_alike() {
        let second = |operations| Second {
            apply_ms: 100,
            operations,
        };
        // Four slots make a group.
        let even: Vec<_> = (1_000..=2_023).map(|slot| (slot, 0)).collect();
        assert_eq!(half(RANGE, &[second(&even)]), Some((1_512, 50)));
        let skewed = [(1_004, 136), (1_800, 136), (1_900, 336)];
        assert_eq!(half(RANGE, &[second(&skewed)]), Some((1_804, 50)));
        // A group that has most of it goes to the part that has less without it.
        let hot = [(1_100, 36), (1_500, 736), (1_900, 136)];
        assert_eq!(half(RANGE, &[second(&hot)]), Some((1_504, 81)));
        assert_eq!(half(RANGE, &[second(&[])]), None);
        // The last slot of all is looked at one by one.
        let all = SlotRange {
            first: 0,
            last: u16::MAX,
        };
        let last = [(1, 36), (u16::MAX, 836)];
        let seconds = [second(&last), second(&last)];
        assert_eq!(half(all, &seconds), Some((256, 10)));
        // A second counts by its CPU time, whatever it has put in.
        let seconds = [
            Second {
                apply_ms: 10,
                operations: &[(1_100, 9_000)],
            },
            Second {
                apply_ms: 500,
                operations: &[(1_700, 1), (1_900, 1)],
            },
        ];
        assert_eq!(half(RANGE, &seconds), Some((1_704, 50)));
    }

    #[test]
    fn a_range_of_few_slots_halves_between_two_of_them_and_one_of_one_slot_nowhere() {
        let of = |first, last, operations| {
            let apply_ms = 10;
            let seconds = [Second {
                apply_ms,
                operations,
            }];
            half(SlotRange { first, last }, &seconds)
        };
        assert_eq!(of(7, 9, &[(7, 0), (9, 0)]), Some((8, 50)));
        assert_eq!(of(7, 9, &[(9, 0)]), Some((8, 0)));
        assert_eq!(of(7, 7, &[(7, 0)]), None);
        assert_eq!(of(65_534, 65_535, &[(65_535, 0)]), Some((65_535, 0)));
    }

    #[test]
    fn a_slot_with_most_of_the_load_is_found() {
        // Four slots make a group: 1100 to 1103 are one.
        let operations = [(1_100, 0), (1_102, 1_800), (1_103, 36), (2_000, 36)];
        let second = || Second {
            apply_ms: 400,
            operations: &operations,
        };
        let seconds: Vec<_> = (0..9).map(|_| second()).collect();
        assert_eq!(metered(RANGE, &seconds).busyness(), None);
        let seconds: Vec<_> = (0..10).map(|_| second()).collect();
        let busyness = metered(RANGE, &seconds).busyness().unwrap();
        assert_eq!(busyness.least, Duration::from_millis(400));
        assert_eq!(busyness.least_cpu, Duration::from_millis(400));
        let (slot, share) = (HalfSlot(1_102), Percent(87));
        assert_eq!(busyness.hottest, Some(HotSlot { slot, share }));
        assert_eq!(busyness.half.unwrap().at, HalfSlot(1_103));
        assert_eq!(busyness.operations.count, Total(40));
        assert_eq!(busyness.operations.time, Duration::from_secs(4));
    }

    #[test]
    fn a_hot_group_is_divided_between_its_slots() {
        let operations = [(1_100, 936), (1_101, 936), (2_000, 36)];
        let second = || Second {
            apply_ms: 400,
            operations: &operations,
        };
        let seconds: Vec<_> = (0..10).map(|_| second()).collect();
        let busyness = metered(RANGE, &seconds).busyness().unwrap();
        assert_eq!(busyness.hottest, None);
        let half = busyness.half.unwrap();
        assert_eq!((half.at, half.below), (HalfSlot(1_101), Percent(47)));
    }
}
