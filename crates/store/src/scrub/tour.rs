//! In which order a scrub reads what is on the disk, and how fast.
//!
//! A round visits the small files, then the files of the log, then the tables of each shard, beginning with another one at each node.
//! Which files a place has, the tour asks when it comes there: tables are merged, and files of the log deleted, at any time.
//!
//! | stage | input | then |
//! |---|---|---|
//! | `Paused` | a round is due | `Listing` the first place |
//! | `Listing` | the files of the place | `Reading` the first of them; none: `Listing` the next place |
//! | `Reading` | bytes were read | `Reading`, later |
//! | `Reading` | the file is read, damaged or gone | the next file, or `Listing` the next place |
//! | `Listing` | there is no other place | `Paused` until a round takes as long as it may |
//!
//! Invariants: each place is visited once in a round, and each of its files; bytes that are read are at most those of [`MOST_PER_SECOND`]
//! for the time since, but for one step; nothing is read while the disk is slow.
//!
//! Deliberately absent: files, clocks, what is damaged.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes read in a second, at most and at least: as many as take half of the time of a round.
pub(super) const MOST_PER_SECOND: u64 = 5_000_000;
const LEAST_PER_SECOND: u64 = 256 * 1024;

/// How long nothing is read when the disk is slow.
pub(super) const GIVE_WAY: Duration = Duration::from_secs(10);

/// Something that has files: `P`. Files are `F`.
#[derive(Debug)]
pub(super) struct Tour<P, F> {
    /// How long a round takes.
    every: Duration,
    /// When the round began; those before it are over.
    begun: Option<Duration>,
    places: VecDeque<P>,
    files: VecDeque<F>,
    stage: Stage,
    per_second: BytesPerSecond,
    /// Nothing is read before this.
    not_before: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Paused,
    Listing,
    Reading,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct BytesPerSecond(u64);

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step<P, F> {
    /// Nothing for so long.
    Wait(Duration),
    /// A round begins: [`Tour::begin`] wants its places.
    Begin,
    /// [`Tour::handle_files`] wants the files of this place.
    List(P),
    /// The file is opened and read from the beginning, part by part; [`Tour::handle_read`] hears of each part. It goes on with
    /// [`Step::Continue`].
    Open(F),
    /// The next part of the file is read.
    Continue,
    /// The round is over.
    End,
}

impl<P, F> Tour<P, F> {
    /// A tour whose rounds take `every` each; the first begins at once. Times are counted from any moment.
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            begun: None,
            places: VecDeque::new(),
            files: VecDeque::new(),
            stage: Stage::Paused,
            per_second: BytesPerSecond(LEAST_PER_SECOND),
            not_before: Duration::ZERO,
        }
    }

    /// What is next. `is_slow`: the disk has enough to do.
    pub(super) fn poll_step(&mut self, now: Duration, is_slow: bool) -> Step<P, F> {
        if self.stage == Stage::Paused {
            let due = self
                .begun
                .map_or(now, |begun| begun.saturating_add(self.every));
            return match now >= due {
                true => Step::Begin,
                false => Step::Wait(due.saturating_sub(now)),
            };
        }
        if is_slow {
            return Step::Wait(GIVE_WAY);
        }
        if now < self.not_before {
            return Step::Wait(self.not_before.saturating_sub(now));
        }
        match self.stage {
            Stage::Reading => Step::Continue,
            Stage::Paused | Stage::Listing => {
                match (self.files.pop_front(), self.places.pop_front()) {
                    (Some(file), place) => {
                        if let Some(place) = place {
                            self.places.push_front(place);
                        }
                        self.stage = Stage::Reading;
                        Step::Open(file)
                    }
                    (None, Some(place)) => Step::List(place),
                    (None, None) => {
                        self.stage = Stage::Paused;
                        Step::End
                    }
                }
            }
        }
    }

    /// A round begins with these places, the first of them at `first`, modulo their number. `bytes`: of all their files, about.
    pub(super) fn begin(&mut self, now: Duration, places: Vec<P>, first: u64, bytes: u64) {
        self.begun = Some(now);
        self.places = places.into();
        if !self.places.is_empty() {
            let first = first % self.places.len() as u64;
            self.places.rotate_left(first as usize);
        }
        let half = (self.every.as_secs() / 2).max(1);
        let wanted = (bytes / half).clamp(LEAST_PER_SECOND, MOST_PER_SECOND);
        self.per_second = BytesPerSecond(wanted);
        self.stage = Stage::Listing;
    }

    /// The place that was listed has these files.
    pub(super) fn handle_files(&mut self, files: Vec<F>) {
        self.files = files.into();
    }

    /// So many bytes of the file were read.
    pub(super) fn handle_read(&mut self, now: Duration, bytes: u64) {
        let nanoseconds = bytes.saturating_mul(1_000_000_000) / self.per_second.0;
        self.not_before = now.saturating_add(Duration::from_nanos(nanoseconds));
    }

    /// Nothing more is read of the file: it is read, damaged or gone.
    pub(super) fn handle_end_of_file(&mut self) {
        self.stage = Stage::Listing;
    }
}

/// Times of syncs of the log at the end of each period of [`GIVE_WAY`].
#[derive(Debug, Default)]
pub(super) struct SyncTimes(VecDeque<Syncs>);

/// How many syncs there were, and what they took together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Syncs {
    pub(super) count: SyncCount,
    pub(super) time: Duration,
}

/// How many syncs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct SyncCount(pub(super) u64);

impl Syncs {
    fn since(self, before: Self) -> Self {
        Self {
            count: SyncCount(self.count.0.saturating_sub(before.count.0)),
            time: self.time.saturating_sub(before.time),
        }
    }

    /// Whether one took twice as long as one of the others.
    fn are_twice_as_slow_as(self, others: Self) -> bool {
        // a/b >= 2*c/d, without fractions.
        let product =
            |time: Duration, count: SyncCount| time.as_nanos().saturating_mul(count.0.into());
        product(self.time, others.count) >= 2 * product(others.time, self.count)
    }
}

/// Periods in an hour.
const PERIODS: usize = 360;

/// Fewer syncs in a period say nothing.
const FEW: SyncCount = SyncCount(8);

impl SyncTimes {
    /// A period is over; `all`: since the log was opened. Whether syncs took twice as long in it as in the hour before.
    pub(super) fn handle_period(&mut self, all: Syncs) -> bool {
        let is_slow = match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => {
                let (now, before) = (all.since(*last), last.since(*first));
                now.count >= FEW && before.count >= FEW && now.are_twice_as_slow_as(before)
            }
            (None, _) | (_, None) => false,
        };
        if self.0.len() > PERIODS {
            self.0.pop_front();
        }
        self.0.push_back(all);
        is_slow
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    type Place = usize;
    type File = (usize, usize);

    /// What a tour has read.
    #[derive(Default)]
    struct Log {
        listed: BTreeMap<Place, usize>,
        opened: BTreeMap<File, usize>,
        read: u64,
        parts: u128,
        /// When the last byte of the round was read.
        ended: Duration,
    }

    /// One round over places with files of so many parts of so many bytes each; a file of no parts has vanished. The disk is slow
    /// whenever `slow` says so at a second.
    fn round(
        tour: &mut Tour<Place, File>,
        now: &mut Duration,
        places: &[Vec<Vec<u64>>],
        first: u64,
        slow: impl Fn(u64) -> bool,
    ) -> Log {
        let mut log = Log::default();
        let bytes: u64 = places.iter().flatten().flatten().sum();
        let mut parts = VecDeque::new();
        let (mut has_begun, mut has_ended) = (false, false);
        let begun = *now;
        loop {
            let is_slow = slow(now.as_secs());
            let step = tour.poll_step(*now, is_slow);
            if is_slow {
                assert!(!matches!(
                    step,
                    Step::Open(_) | Step::Continue | Step::List(_)
                ));
            }
            let mut next = |tour: &mut Tour<Place, File>, parts: &mut VecDeque<u64>| {
                match parts.pop_front() {
                    None => tour.handle_end_of_file(),
                    Some(bytes) => {
                        // All parts before this one are paid for, to a byte each.
                        let since = (*now - begun).as_nanos();
                        let most = u128::from(MOST_PER_SECOND) * since / 1_000_000_000;
                        assert!(u128::from(log.read) <= most + log.parts);
                        log.read += bytes;
                        log.parts += 1;
                        log.ended = *now;
                        tour.handle_read(*now, bytes);
                    }
                }
            };
            match step {
                Step::Begin if has_begun => {
                    assert!(has_ended);
                    return log;
                }
                Step::End => has_ended = true,
                Step::Begin => {
                    has_begun = true;
                    tour.begin(*now, (0..places.len()).collect(), first, bytes);
                }
                Step::Wait(for_so_long) => {
                    assert!(for_so_long > Duration::ZERO);
                    *now += for_so_long;
                }
                Step::List(place) => {
                    *log.listed.entry(place).or_default() += 1;
                    tour.handle_files((0..places[place].len()).map(|file| (place, file)).collect());
                }
                Step::Open((place, file)) => {
                    *log.opened.entry((place, file)).or_default() += 1;
                    parts = places[place][file].clone().into();
                    next(tour, &mut parts);
                }
                Step::Continue => next(tour, &mut parts),
            }
        }
    }

    #[test]
    fn a_round_goes_through_all_places_from_a_place_of_its_own() {
        let mut tour: Tour<Place, File> = Tour::new(HOUR);
        let at = Duration::from_secs;
        assert_eq!(tour.poll_step(at(0), false), Step::Begin);
        tour.begin(at(0), vec![0, 1, 2], 4, 0);
        assert_eq!(tour.poll_step(at(0), false), Step::List(1));
        tour.handle_files(vec![(1, 0), (1, 1)]);
        assert_eq!(tour.poll_step(at(0), false), Step::Open((1, 0)));
        tour.handle_read(at(0), 2 * LEAST_PER_SECOND);
        assert_eq!(tour.poll_step(at(0), false), Step::Wait(at(2)));
        assert_eq!(tour.poll_step(at(2), true), Step::Wait(GIVE_WAY));
        assert_eq!(tour.poll_step(at(2), false), Step::Continue);
        tour.handle_end_of_file();
        assert_eq!(tour.poll_step(at(2), false), Step::Open((1, 1)));
        // It is gone.
        tour.handle_end_of_file();
        assert_eq!(tour.poll_step(at(2), false), Step::List(2));
        tour.handle_files(Vec::new());
        assert_eq!(tour.poll_step(at(3), false), Step::List(0));
        tour.handle_files(Vec::new());
        assert_eq!(tour.poll_step(at(4), false), Step::End);
        assert_eq!(tour.poll_step(at(600), false), Step::Wait(at(3_000)));
        assert_eq!(tour.poll_step(at(3_600), false), Step::Begin);
    }

    #[test]
    fn syncs_are_slow_if_they_take_twice_as_long_as_in_the_last_hour() {
        let mut times = SyncTimes::default();
        let mut all = Syncs::default();
        let mut period = |count: u64, each_ms: u64| {
            all.count.0 += count;
            all.time += Duration::from_millis(count * each_ms);
            times.handle_period(all)
        };
        assert!(!period(100, 2));
        assert!(!period(100, 50), "nothing is known yet");
        assert!(!period(100, 50));
        assert!(period(100, 100));
        assert!(!period(3, 900), "too few");
        assert!(!period(0, 0));
        // What is always slow is not slow for long.
        for _ in 0..400 {
            period(100, 100);
        }
        assert!(!period(100, 199));
        assert!(period(100, 210));
    }

    fn places() -> impl Strategy<Value = Vec<Vec<Vec<u64>>>> {
        let parts = proptest::collection::vec(1..2_000_000u64, 0..4);
        proptest::collection::vec(proptest::collection::vec(parts, 0..4), 0..6)
    }

    proptest! {
        #[test]
        fn each_file_is_read_once_in_a_round_and_never_too_fast(
            places in places(),
            first: u64,
            slow_every in 2..9u64,
            hours in 1..30u32,
        ) {
            let every = HOUR * hours;
            let mut tour = Tour::new(every);
            let mut now = Duration::from_secs(7);
            for number in 0..2 {
                let begun = now;
                let log = round(&mut tour, &mut now, &places, first, |second| (second / 7).is_multiple_of(slow_every));
                let files = places.iter().map(Vec::len).sum::<usize>();
                prop_assert_eq!(log.listed.len(), places.len());
                prop_assert!(log.listed.values().all(|times| *times == 1));
                prop_assert_eq!(log.opened.len(), files);
                prop_assert!(log.opened.values().all(|times| *times == 1));
                prop_assert_eq!(log.read, places.iter().flatten().flatten().sum::<u64>());
                prop_assert!(log.ended <= begun + every, "{number}");
                prop_assert!(now >= begun + every);
            }
        }
    }
}
