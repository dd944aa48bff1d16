//! Which connections of a loop wait, why, since when, and for what share of the last minute: for people who look for
//! the reason why a publisher is slow.
//!
//! A wait begins when packets of a client are first kept aside or its connection is first not read, and ends with its
//! release, when the connection is resumed, or at a time that is known when it begins. A client that does not wait has no
//! entry, and nothing is looked up for it.
//!
//! Invariant: no millisecond is counted twice, and none that has not passed. There are at most twice as many entries as
//! clients that have waited within the last minute, or [`FEW`].
//!
//! Deliberately absent: the decision who waits. `hold.rs`, `dispatch/frames.rs` and the event loop make it.

use std::hash::BuildHasher as _;

use hashing::{HashBuilder, HashMap};
use mqtt_session::Timestamp;
use net_api::Key;

use crate::stats::BrokerStats;

/// Entries up to which none is looked through.
const FEW: usize = 256;

/// The time over which the share is taken, in ms.
const MINUTE_MS: u64 = 60_000;

/// A part of it that is counted as one, in ms.
const SLICE_MS: u64 = 20_000;

/// The slices of a minute, and the one that is not over.
const SLICES: usize = 4;

/// A wait that begins within this time after another one for the same reason continues it, in ms: a connection over its
/// rate is read 50 times a second.
const CONTINUES_MS: u64 = 1_000;

/// The share of the last minute from which the log says that a client waits, in thousandths.
const SAID_FROM: u16 = 500;

/// How often the log says so of one client, in ms.
const SAID_EVERY_MS: u64 = 3_600_000;

/// Clients of which it is remembered that the log has said so. Beyond that, the log says nothing of further ones.
const SAID: usize = 4_096;

/// Why packets of a client wait, or its connection is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldReason {
    /// It has sent as many bytes as it may.
    BytesPerSecond,
    /// It has sent as many PUBLISH packets as it may.
    PublishesPerSecond,
    /// Memory is scarce.
    Memory,
    /// The stores have as much to do as they may.
    Store,
    /// As much as may be is on its way to another node.
    OtherNodes,
    /// The queue of a subscriber is filling up.
    SubscriberQueue,
    /// The queues of durable sessions are filling up.
    DurableQueues,
    /// Its messages have many receivers, which have not got them yet.
    ManyReceivers,
    /// It does not read what it is answered.
    UnreadAnswers,
}

impl HeldReason {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::BytesPerSecond,
        Self::PublishesPerSecond,
        Self::Memory,
        Self::Store,
        Self::OtherNodes,
        Self::SubscriberQueue,
        Self::DurableQueues,
        Self::ManyReceivers,
        Self::UnreadAnswers,
    ];

    /// Whether a subscriber or a durable session is the cause.
    fn is_of_subscriber(self) -> bool {
        matches!(self, Self::SubscriberQueue | Self::DurableQueues)
    }

    /// As in metrics, in the log and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BytesPerSecond => "bytes_per_second",
            Self::PublishesPerSecond => "publishes_per_second",
            Self::Memory => "memory",
            Self::Store => "store",
            Self::OtherNodes => "other_nodes",
            Self::SubscriberQueue => "subscriber_queue",
            Self::DurableQueues => "durable_queues",
            Self::ManyReceivers => "many_receivers",
            Self::UnreadAnswers => "unread_answers",
        }
    }
}

/// When a wait ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// When all who hold the publisher back have let it go.
    Released,
    /// When its connection is resumed.
    Resumed,
    /// At this time.
    Time(Timestamp),
}

/// How a client waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Why it waits, or has waited last.
    pub reason: HeldReason,
    /// The subscriber whose queue is filling up, if it is known.
    pub subscriber: Option<Box<str>>,
    /// Since when; `None`: it does not wait any more.
    pub since: Option<Timestamp>,
    /// For how much of the last minute it has waited, in thousandths.
    pub share: Share,
}

/// A part of a minute, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Share(pub u16);

/// Time within the last minute.
#[derive(Clone, Copy, Debug, Default)]
struct LastMinute {
    /// In ms, of the slices up to the current one, which is the first.
    slices: [u16; SLICES],
    /// The number of the current slice.
    current: Slice,
}

/// The number of a slice of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Slice(u64);

impl Slice {
    fn of(ms: u64) -> Self {
        Self(ms / SLICE_MS)
    }
}

impl LastMinute {
    /// Takes in a time that has passed.
    fn add(&mut self, from: Timestamp, to: Timestamp) {
        // What is more than a minute ago counts no more.
        let mut from_ms = from.0.max(to.0.saturating_sub(SLICES as u64 * SLICE_MS));
        while from_ms < to.0 {
            let end_ms = ((from_ms / SLICE_MS + 1) * SLICE_MS).min(to.0);
            self.begin_slice(Slice::of(from_ms));
            if let Some(slice) = self.slices.first_mut() {
                *slice += (end_ms - from_ms) as u16;
            }
            from_ms = end_ms;
        }
    }

    fn begin_slice(&mut self, slice: Slice) {
        for _ in 0..slice.0.saturating_sub(self.current.0).min(SLICES as u64) {
            self.slices.rotate_right(1);
            if let Some(first) = self.slices.first_mut() {
                *first = 0;
            }
        }
        self.current = self.current.max(slice);
    }

    /// The share of the minute before `now`. Of the oldest slice counts the part that is within it.
    fn share(mut self, now: Timestamp) -> Share {
        self.begin_slice(Slice::of(now.0));
        let [current, .., oldest] = self.slices;
        let whole: u64 = self.slices.iter().map(|slice| u64::from(*slice)).sum();
        debug_assert!(u64::from(current) <= SLICE_MS, "a slice is not overfull");
        let gone = u64::from(oldest) * (now.0 % SLICE_MS) / SLICE_MS;
        let held = (whole - gone).min(MINUTE_MS);
        Share(((held * 1_000 + MINUTE_MS / 2) / MINUTE_MS) as u16)
    }
}

/// A reason, since when.
#[derive(Clone, Copy, Debug)]
struct Began {
    reason: HeldReason,
    since: Timestamp,
}

/// The waits of a client.
#[derive(Clone, Debug)]
struct Waits {
    until_released: Option<Began>,
    until_resumed: Option<Began>,
    until_time: Option<(Began, Timestamp)>,
    subscriber: Option<Box<str>>,
    latest: HeldReason,
    /// Up to here the waits are counted.
    counted_to: Timestamp,
    counted: LastMinute,
    /// The log need not be asked before this time.
    said_until: Timestamp,
}

impl Waits {
    fn new(reason: HeldReason, now: Timestamp) -> Self {
        Self {
            until_released: None,
            until_resumed: None,
            until_time: None,
            subscriber: None,
            latest: reason,
            counted_to: now,
            counted: LastMinute::default(),
            said_until: Timestamp(0),
        }
    }

    /// Counts what has passed since it was last called; how many ms that were, and why.
    fn pass_time(&mut self, now: Timestamp) -> (HeldReason, u64) {
        let open = self.until_released.or(self.until_resumed);
        let (reason, end) = match (open, self.until_time) {
            (Some(began), _) => (began.reason, now),
            (None, Some((began, until))) => (began.reason, until.min(now)),
            (None, None) => (self.latest, self.counted_to),
        };
        let ms = end.saturating_since(self.counted_to);
        self.counted.add(self.counted_to, end);
        self.counted_to = self.counted_to.max(now);
        (reason, ms)
    }

    /// What it waits for now. A wait that has just ended by its time may go on with the next read.
    fn current(&self, now: Timestamp) -> Option<Began> {
        let open = self.until_released.or(self.until_resumed);
        let timed = self
            .until_time
            .filter(|(_, until)| now.0 < until.0.saturating_add(CONTINUES_MS))
            .map(|(began, _)| began);
        open.or(timed)
    }

    fn held(&self, now: Timestamp) -> Option<Held> {
        let mut seen = self.clone();
        seen.pass_time(now);
        let current = seen.current(now);
        let share = seen.counted.share(now);
        if current.is_none() && share == Share(0) {
            return None;
        }
        let reason = current.map_or(seen.latest, |began| began.reason);
        Some(Held {
            reason,
            subscriber: seen.subscriber.filter(|_| reason.is_of_subscriber()),
            since: current.map(|began| began.since),
            share,
        })
    }
}

/// The waits of a loop's clients.
#[derive(Debug, Default)]
pub(crate) struct HeldTimes {
    clients: HashMap<Key, Waits>,
    /// How many entries there are when they are looked through for clients that have not waited lately.
    most: usize,
    /// Clients that the log has named, by the hashes of their identifiers, and until when it does not name them again.
    said: HashMap<u64, Timestamp>,
    hasher: HashBuilder,
}

impl HeldTimes {
    /// A client begins to wait, or goes on to. `subscriber`: for whose queue. True: the log is to say that it has waited
    /// for much of the last minute.
    pub(super) fn begin(
        &mut self,
        key: Key,
        client_id: &str,
        (reason, subscriber): (HeldReason, Option<&str>),
        until: Until,
        (now, stats): (Timestamp, &BrokerStats),
    ) -> bool {
        if self.clients.len() >= FEW.max(self.most) && !self.clients.contains_key(&key) {
            self.clients.retain(|_, waits| waits.held(now).is_some());
            self.most = 2 * self.clients.len();
        }
        let waits = self
            .clients
            .entry(key)
            .or_insert_with(|| Waits::new(reason, now));
        let (passed, ms) = waits.pass_time(now);
        stats.count_held(passed, ms);
        let began = Began { reason, since: now };
        match until {
            Until::Released => {
                waits.until_released.get_or_insert(began);
            }
            Until::Resumed => waits.until_resumed = Some(began),
            Until::Time(until) => {
                let goes_on = waits.until_time.filter(|(before, until)| {
                    before.reason == reason && now.0 <= until.0.saturating_add(CONTINUES_MS)
                });
                waits.until_time = Some((goes_on.map_or(began, |(began, _)| began), until));
            }
        }
        waits.latest = reason;
        if reason.is_of_subscriber() {
            waits.subscriber = subscriber.map(Into::into);
        }
        if now < waits.said_until || waits.counted.share(now) < Share(SAID_FROM) {
            return false;
        }
        let hash = self.hasher.hash_one(client_id);
        let said_until = self.said.get(&hash).copied().unwrap_or_default();
        if now < said_until {
            waits.said_until = said_until;
            return false;
        }
        if self.said.len() >= SAID {
            self.said.retain(|_, until| *until > now);
        }
        if self.said.len() >= SAID {
            waits.said_until = Timestamp(now.0 + MINUTE_MS);
            return false;
        }
        waits.said_until = Timestamp(now.0 + SAID_EVERY_MS);
        self.said.insert(hash, waits.said_until);
        true
    }

    /// A wait of a client ends that does not end by its time.
    pub(super) fn end(&mut self, key: Key, until: Until, now: Timestamp, stats: &BrokerStats) {
        // A connection that is over has none.
        if let Some(waits) = self.clients.get_mut(&key) {
            let (reason, ms) = waits.pass_time(now);
            stats.count_held(reason, ms);
            match until {
                Until::Released => waits.until_released = None,
                Until::Resumed => waits.until_resumed = None,
                Until::Time(_) => unreachable!("such a wait ends by itself"),
            }
        }
    }

    /// A connection is over.
    pub(super) fn forget(&mut self, key: Key) {
        self.clients.remove(&key);
    }

    /// How a client waits, or has within the last minute.
    pub(crate) fn of(&self, key: Key, now: Timestamp) -> Option<Held> {
        self.clients.get(&key)?.held(now)
    }

    /// Clients that have waited within the last minute, those that waited longest first.
    pub(crate) fn first(&self, limit: usize, now: Timestamp) -> Vec<Key> {
        let held = |(key, waits): (&Key, &Waits)| Some((waits.held(now)?.share, *key));
        let mut all: Vec<(Share, Key)> = self.clients.iter().filter_map(held).collect();
        all.sort_unstable_by_key(|(share, key)| (std::cmp::Reverse(*share), key.to_bits()));
        all.truncate(limit);
        all.into_iter().map(|(_, key)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Key = Key {
        slot: 1,
        generation: 0,
    };

    /// A client, its waits, and the time in ms.
    #[derive(Default)]
    struct Script {
        times: HeldTimes,
        stats: BrokerStats,
        now: u64,
        lines: Vec<u64>,
    }

    impl Script {
        fn begin(&mut self, reason: HeldReason, until: Until) {
            let now = (Timestamp(self.now), &self.stats);
            if self.times.begin(P, "p", (reason, Some("s")), until, now) {
                self.lines.push(self.now);
            }
        }

        fn end(&mut self, until: Until) {
            self.times.end(P, until, Timestamp(self.now), &self.stats);
        }

        fn held(&self) -> Option<(HeldReason, Option<u64>, u16)> {
            let held = self.times.of(P, Timestamp(self.now))?;
            Some((held.reason, held.since.map(|since| since.0), held.share.0))
        }

        /// Over its rate for a time, read each 20 ms, which is 2 ms late.
        fn throttle_for(&mut self, ms: u64) {
            let end = self.now + ms;
            while self.now < end {
                self.begin(
                    HeldReason::BytesPerSecond,
                    Until::Time(Timestamp(self.now + 20)),
                );
                self.now += 22;
            }
        }
    }

    #[test]
    fn the_share_is_of_the_last_minute() {
        let mut script = Script {
            now: 1_000_003,
            ..Script::default()
        };
        assert_eq!(script.held(), None);
        script.begin(HeldReason::Memory, Until::Resumed);
        let since = Some(script.now);
        for (after, share) in [(0, 0), (15_000, 250), (30_000, 500), (60_000, 1_000)] {
            script.now = 1_000_003 + after;
            assert_eq!(script.held(), Some((HeldReason::Memory, since, share)));
        }
        script.now += 600_000;
        script.end(Until::Resumed);
        assert_eq!(script.held(), Some((HeldReason::Memory, None, 1_000)));
        let ended = script.now;
        for (after, share) in [(15_000, 750), (30_000, 500), (45_000, 250)] {
            script.now = ended + after;
            let (.., found) = script.held().expect("it waited within the minute");
            assert!(found.abs_diff(share) <= 2, "{after}: {found}");
        }
        script.now = ended + 80_000;
        assert_eq!(script.held(), None);
        let counted = script.stats.held_ms[HeldReason::Memory as usize].get();
        assert_eq!(counted, 660_000);
    }

    #[test]
    fn time_to_come_is_not_counted_and_a_rate_goes_on_without_a_new_beginning() {
        let mut script = Script {
            now: 40_000,
            ..Script::default()
        };
        let long = Until::Time(Timestamp(10_000_000));
        script.begin(HeldReason::BytesPerSecond, long);
        let rate = HeldReason::BytesPerSecond;
        assert_eq!(script.held(), Some((rate, Some(40_000), 0)));
        script.now += 6_000;
        assert_eq!(script.held(), Some((rate, Some(40_000), 100)));

        let mut script = Script::default();
        script.throttle_for(60_000);
        let (_, since, share) = script.held().expect("it waits");
        assert_eq!(since, Some(0));
        assert!((900..=920).contains(&share), "{share}");
        // Half a second later it has not begun anew, and a second later it is over.
        script.now += 500;
        assert_eq!(script.held().expect("it waits").1, Some(0));
        script.now += 600;
        assert_eq!(script.held().expect("it has waited").1, None);
    }

    #[test]
    fn waits_that_overlap_are_counted_once_and_the_longer_one_is_named() {
        let mut script = Script::default();
        script.begin(HeldReason::SubscriberQueue, Until::Released);
        script.begin(HeldReason::BytesPerSecond, Until::Time(Timestamp(3_000)));
        script.begin(HeldReason::UnreadAnswers, Until::Resumed);
        script.now = 6_000;
        let held = Some((HeldReason::SubscriberQueue, Some(0), 100));
        assert_eq!(script.held(), held);
        let of = script.times.of(P, Timestamp(6_000)).expect("it waits");
        assert_eq!(of.subscriber.as_deref(), Some("s"));
        script.end(Until::Released);
        let held = Some((HeldReason::UnreadAnswers, Some(0), 100));
        assert_eq!(script.held(), held);
        script.end(Until::Resumed);
        script.now = 12_000;
        assert_eq!(script.held(), Some((HeldReason::UnreadAnswers, None, 100)));
    }

    #[test]
    fn the_log_names_a_client_once_an_hour_also_if_it_comes_again() {
        let mut script = Script::default();
        script.throttle_for(20_000);
        assert_eq!(script.lines, []);
        script.throttle_for(100_000);
        assert_eq!(script.lines.len(), 1);
        script.times.forget(P);
        script.throttle_for(100_000);
        assert_eq!(script.lines.len(), 1);
        script.now = script.lines[0] + SAID_EVERY_MS;
        script.throttle_for(100_000);
        assert_eq!(script.lines.len(), 2);
    }

    #[test]
    fn those_that_do_not_wait_any_more_are_forgotten() {
        let mut times = HeldTimes::default();
        let stats = BrokerStats::default();
        for slot in 0..20_000_u32 {
            let key = Key {
                slot,
                generation: 0,
            };
            let now = Timestamp(u64::from(slot) * 1_000);
            let until = Until::Time(Timestamp(now.0 + 500));
            let reason = (HeldReason::PublishesPerSecond, None);
            times.begin(key, "c", reason, until, (now, &stats));
            assert!(times.clients.len() <= FEW + 1);
        }
        let first = times.first(10, Timestamp(20_000_000));
        assert_eq!(first.len(), 10);
    }

    #[test]
    fn those_that_waited_longest_are_first() {
        let mut times = HeldTimes::default();
        let stats = BrokerStats::default();
        let key = |slot| Key {
            slot,
            generation: 0,
        };
        for (slot, ms) in [(1, 500), (2, 900), (3, 100)] {
            let until = Until::Time(Timestamp(ms));
            let reason = (HeldReason::BytesPerSecond, None);
            times.begin(key(slot), "c", reason, until, (Timestamp(0), &stats));
        }
        let now = Timestamp(2_000);
        assert_eq!(times.first(2, now), [key(2), key(1)]);
    }
}
