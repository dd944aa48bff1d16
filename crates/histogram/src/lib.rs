//! How long something took: a histogram of fixed, logarithmic buckets.
//!
//! Deliberately absent: clocks, and how metrics are written.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets for each doubling of the time: schema 2 of native histograms of Prometheus.
const PER_OCTAVE: usize = 4;

/// The first bucket ends at so many doublings of a second: at 15 µs.
const FIRST: i32 = -16;

/// Doublings from there on that have buckets: up to 64 s.
const OCTAVES: usize = 22;

/// One before them, one behind them.
const BUCKETS: usize = OCTAVES * PER_OCTAVE + 2;

/// The longest time of each bucket but the last, in whole µs.
const ENDS_US: [u64; BUCKETS - 1] = ends_us();

const fn ends_us() -> [u64; BUCKETS - 1] {
    // 2^(0/4) to 2^(3/4), in 2^-32.
    const QUARTERS: [u128; PER_OCTAVE] = [1 << 32, 5_107_605_667, 6_074_000_999, 7_223_145_246];
    let mut ends = [0; BUCKETS - 1];
    let mut at = 0;
    while at < ends.len() {
        let scaled = (QUARTERS[at % PER_OCTAVE] * 1_000_000) << (at / PER_OCTAVE);
        ends[at] = (scaled >> (32 - FIRST)) as u64;
        at += 1;
    }
    ends
}

/// A time in µs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Micros(pub u64);

impl From<Duration> for Micros {
    fn from(time: Duration) -> Self {
        Self(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Micros {
    /// In seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// Times that are counted by one thread at a time, or by several, and read by anybody. A bucket is a quarter of a doubling wide: what is
/// read from it is at most a fifth too large. 728 bytes.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: array::from_fn(|_| AtomicU64::new(0)),
            sum_us: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Counts one that took this long. Only one thread at a time calls it: a plain load and store, no locked instruction.
    pub fn record(&self, took: Micros) {
        let add = |to: &AtomicU64, n| to.store(to.load(Relaxed).wrapping_add(n), Relaxed);
        if let Some(bucket) = self.buckets.get(bucket_of(took)) {
            add(bucket, 1);
        }
        add(&self.sum_us, took.0);
    }

    /// The same for several threads at once.
    pub fn record_shared(&self, took: Micros) {
        if let Some(bucket) = self.buckets.get(bucket_of(took)) {
            bucket.fetch_add(1, Relaxed);
        }
        self.sum_us.fetch_add(took.0, Relaxed);
    }

    /// Adds what it has counted so far to a snapshot.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        for (sum, bucket) in snapshot.counts.iter_mut().zip(&self.buckets) {
            *sum = sum.wrapping_add(bucket.load(Relaxed));
        }
        snapshot.sum.0 = snapshot.sum.0.wrapping_add(self.sum_us.load(Relaxed));
    }
}

/// What histograms had counted at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    counts: [u64; BUCKETS],
    sum: Micros,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum: Micros(0),
        }
    }
}

impl Snapshot {
    /// What was counted since an earlier snapshot of the same histograms.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.counts.iter().zip(&earlier.counts);
        let mut counts = [0; BUCKETS];
        for (count, (now, then)) in counts.iter_mut().zip(pairs) {
            *count = now.wrapping_sub(*then);
        }
        let sum = Micros(self.sum.0.wrapping_sub(earlier.sum.0));
        Self { counts, sum }
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All times together.
    #[must_use]
    pub fn sum(&self) -> Micros {
        self.sum
    }

    /// The time that a share of all, from 0 to 1, did not exceed: the end of the bucket in which that share is reached.
    /// `None`: nothing was counted.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Micros> {
        let rank = (share.clamp(0.0, 1.0) * self.count() as f64)
            .ceil()
            .max(1.0);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen as f64 >= rank
        });
        at.map(end_of)
    }

    /// Buckets of one doubling each: where each ends, in s, and what it counts, the shortest first. The last one has no end.
    pub fn doublings(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let [first, others @ ..] = &self.counts;
        let counts = others.chunks(PER_OCTAVE).map(|counts| counts.iter().sum());
        let ends = (FIRST..=FIRST + OCTAVES as i32).map(|power| 2_f64.powi(power));
        let ends = ends.chain(std::iter::once(f64::INFINITY));
        ends.zip(std::iter::once(*first).chain(counts))
    }

    /// The longest time of the first bucket, in s, and how many took no longer.
    #[must_use]
    pub fn shortest(&self) -> (f64, u64) {
        let [first, ..] = &self.counts;
        (2_f64.powi(FIRST), *first)
    }

    /// The other buckets: the index i of one that ends at 2^(i/4) s, and the count of each from there on. The last one has no
    /// end.
    #[must_use]
    pub fn quarters(&self) -> (i32, &[u64]) {
        let [_, others @ ..] = &self.counts;
        (FIRST * PER_OCTAVE as i32 + 1, others)
    }

    /// Together with what others have counted.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        for (count, more) in self.counts.iter_mut().zip(&others.counts) {
            *count = count.wrapping_add(*more);
        }
        self.sum.0 = self.sum.0.wrapping_add(others.sum.0);
        self
    }
}

/// The bucket of a time; a bucket includes its end.
fn bucket_of(took: Micros) -> usize {
    ENDS_US.partition_point(|end| *end < took.0)
}

/// The longest time of a bucket; the last one has none, and tells where it begins.
fn end_of(bucket: usize) -> Micros {
    let end = ENDS_US.get(bucket).or(ENDS_US.last());
    Micros(end.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(times: impl IntoIterator<Item = u64>) -> Snapshot {
        let histogram = Histogram::default();
        times
            .into_iter()
            .for_each(|us| histogram.record(Micros(us)));
        let mut snapshot = Snapshot::default();
        histogram.add_to(&mut snapshot);
        snapshot
    }

    #[test]
    fn a_bucket_ends_where_the_next_one_begins() {
        for bucket in 0..BUCKETS - 1 {
            let end = end_of(bucket);
            assert_eq!(bucket_of(end), bucket, "{end:?}");
            assert_eq!(bucket_of(Micros(end.0 + 1)), bucket + 1, "{end:?}");
        }
        assert_eq!(bucket_of(Micros(0)), 0);
        assert_eq!(bucket_of(Micros(u64::MAX)), BUCKETS - 1);
        assert_eq!(end_of(BUCKETS - 1), Micros(64_000_000));
    }

    #[test]
    fn a_quantile_is_at_most_a_fifth_too_large() {
        let times = snapshot(1..=10_000);
        let largest = |us: u64| (us as f64 * 2_f64.powf(0.25)) as u64;
        for (share, exact) in [(0.5, 5_000), (0.99, 9_900), (1.0, 10_000)] {
            let Micros(told) = times.quantile(share).unwrap();
            assert!((exact..=largest(exact)).contains(&told), "{share}: {told}");
        }
        assert_eq!((times.count(), times.sum()), (10_000, Micros(50_005_000)));
        assert_eq!(times.quantile(0.0), Some(Micros(15)));
        assert_eq!(Snapshot::default().quantile(0.99), None);
        // Beyond the last bucket nothing is known but that it was longer.
        let Some(Micros(longest)) = snapshot([u64::MAX / 2]).quantile(1.0) else {
            panic!("one was counted");
        };
        assert_eq!(longest, 64_000_000);
    }

    #[test]
    fn several_threads_count_all() {
        let histogram = Histogram::default();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..10_000 {
                        histogram.record_shared(Micros::from(Duration::from_millis(1)));
                    }
                });
            }
        });
        let mut all = Snapshot::default();
        histogram.add_to(&mut all);
        assert_eq!((all.count(), all.sum()), (40_000, Micros(40_000_000)));
    }

    #[test]
    fn what_was_counted_between_two_snapshots() {
        let (earlier, later) = (snapshot([20, 3_000]), snapshot([20, 3_000, 100, 1 << 40]));
        let between = later.since(&earlier);
        assert_eq!(between.count(), 2);
        assert_eq!(between.sum(), Micros(100 + (1 << 40)));
        assert_eq!(between.quantile(0.5), snapshot([100]).quantile(0.5));
    }

    #[test]
    fn buckets_of_a_doubling_count_what_their_quarters_do() {
        let times = snapshot([15, 16, 30, 31, 64_000_000, 1 << 40]);
        let told: Vec<_> = times.doublings().collect();
        let second = 65_536.0;
        let short = [(1.0 / second, 1), (2.0 / second, 2), (4.0 / second, 1)];
        assert_eq!(told.get(..3), Some(&short[..]));
        let long = [(64.0, 1), (f64::INFINITY, 1)];
        assert_eq!(told.get(OCTAVES..), Some(&long[..]));
    }

    #[test]
    fn buckets_are_those_of_native_histograms() {
        // What is in the bucket with the index i took no longer than 2^(i/4) s, and longer than the one before ends.
        for us in [17, 1_000, 999_999, 1_000_000, 1_000_001, 63_000_000] {
            let times = snapshot([us]);
            let (first, counts) = times.quarters();
            let at = counts.iter().position(|count| *count == 1).unwrap();
            let index = f64::from(first + i32::try_from(at).unwrap());
            let (start, end) = ((index - 1.0) / 4.0, index / 4.0);
            let took = us as f64 / 1e6;
            assert!(start.exp2() < took && took <= end.exp2(), "{us}: {index}");
        }
        let times = snapshot([3, 15]);
        assert_eq!(times.shortest(), (1.0 / 65_536.0, 2));
        assert_eq!(times.clone().and(&times).count(), 4);
    }
}
