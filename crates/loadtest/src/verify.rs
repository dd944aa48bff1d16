//! What arrived: exact counts of lost, duplicated and reordered messages, for each publisher.
//!
//! Each publisher numbers its messages from 0 and writes the number into the payload ([`Stamp`]). A
//! *receiver* is whoever should get each message once: a subscriber, or the members of a shared
//! subscription together, who may belong to several workers.
//!
//! Call order: [`Verifier::arrive`] for each message; [`Verifier::findings`] of every worker once all know
//! what was sent; [`Findings::merge`].
//!
//! Invariant: memory grows with the gaps in what arrived, not with what arrived; of a shared subscription,
//! whose every member sees gaps, it is one bit for each message.

use std::ops::Range;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::topology::{Slice, Topology};

/// What a message says of itself: the first [`Stamp::LEN`] bytes of its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Who published it.
    pub publisher: u32,
    /// Its number among the publisher's messages, from 0.
    pub sequence: u32,
    /// When it was due, in ns since the run's beginning.
    pub due_ns: u64,
}

impl Stamp {
    /// Bytes of a stamp, and so the shortest payload.
    pub const LEN: usize = 16;

    /// The stamp as it stands in the payload: its fields in order, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let numbers = u64::from(self.publisher) << 32 | u64::from(self.sequence);
        (u128::from(numbers) << 64 | u128::from(self.due_ns)).to_be_bytes()
    }

    /// Reads the stamp of a payload; `None` if it is too short to have one.
    #[must_use]
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        let all = u128::from_be_bytes(*payload.first_chunk()?);
        let numbers = (all >> 64) as u64;
        Some(Self {
            publisher: (numbers >> 32) as u32,
            sequence: numbers as u32,
            due_ns: all as u64,
        })
    }
}

/// How a message stands among those of its publisher at one receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// After all that arrived before it.
    InOrder,
    /// For the first time, but a later message was here already.
    Late,
    /// Not for the first time.
    Duplicate,
}

/// One publisher's messages at one receiver.
#[derive(Debug, Clone, Default)]
struct Stream {
    /// One more than the highest number that arrived.
    next: u32,
    /// The numbers below `next` that did not arrive, ascending.
    missing: Vec<Range<u32>>,
}

impl Stream {
    fn arrive(&mut self, sequence: u32) -> Arrival {
        if sequence >= self.next {
            if sequence > self.next {
                self.missing.push(self.next..sequence);
            }
            self.next = sequence.saturating_add(1);
            return Arrival::InOrder;
        }
        let at = self.missing.partition_point(|gap| gap.end <= sequence);
        let Some(gap) = self
            .missing
            .get_mut(at)
            .filter(|gap| gap.contains(&sequence))
        else {
            return Arrival::Duplicate;
        };
        let rest = sequence + 1..gap.end;
        gap.end = sequence;
        if gap.start == gap.end {
            self.missing.remove(at);
            if rest.start < rest.end {
                self.missing.insert(at, rest);
            }
        } else if rest.start < rest.end {
            self.missing.insert(at + 1, rest);
        }
        Arrival::Late
    }

    fn lost(&self, sent: u32) -> u64 {
        let gaps: u64 = self
            .missing
            .iter()
            .map(|gap| u64::from(gap.end - gap.start))
            .sum();
        gaps + u64::from(sent.saturating_sub(self.next))
    }
}

/// What went wrong, in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Faults {
    /// Sent and never received, counted at each receiver that should have it.
    pub lost: u64,
    /// Received again.
    pub duplicated: u64,
    /// Received after a later message of the same publisher by the same subscriber.
    pub reordered: u64,
    /// Received by a subscriber that should not have it, or without a stamp.
    pub stray: u64,
}

/// One publisher's messages at all their receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Duplicates included.
    pub delivered: u64,
    /// Sent and never received, counted at each receiver that should have it.
    pub lost: u64,
    /// Received again.
    pub duplicated: u64,
    /// Received late.
    pub reordered: u64,
}

impl Tally {
    /// Whether anything went wrong.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        self.lost + self.duplicated + self.reordered > 0
    }

    fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
    }
}

/// What a verifier, or several together, found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    /// By publisher, from [`Findings::first_publisher`].
    pub tallies: Vec<Tally>,
    /// Number of the publisher whose tally is the first.
    pub first_publisher: u32,
    /// Messages that nobody should have received.
    pub stray: u64,
    /// By publisher: what arrived at members of a shared subscription. What is lost can only be told
    /// when all members' are together.
    group: Option<Vec<Bitmap>>,
}

impl Findings {
    /// All workers' findings as those of the whole part; `sent` is by publisher.
    #[must_use]
    pub fn merge(all: &[Self], sent: &[u32]) -> Self {
        let ends = all
            .iter()
            .map(|findings| findings.first_publisher as usize + findings.tallies.len());
        let publishers = ends.chain([sent.len()]).max().unwrap_or(0);
        let mut whole = Self {
            tallies: vec![Tally::default(); publishers],
            ..Self::default()
        };
        let mut group: Option<Vec<Bitmap>> = None;
        for findings in all {
            whole.stray += findings.stray;
            let tallies = whole.tallies.iter_mut();
            for (tally, other) in tallies
                .skip(findings.first_publisher as usize)
                .zip(&findings.tallies)
            {
                tally.add(other);
            }
            for (publisher, bitmap) in findings.group.iter().flatten().enumerate() {
                let union = group.get_or_insert_with(|| vec![Bitmap::default(); sent.len()]);
                // Those of another worker's member too are duplicates that neither could see.
                let twice = union[publisher].unite(bitmap);
                whole.tallies[publisher].duplicated += twice;
            }
        }
        for ((tally, union), &sent) in whole
            .tallies
            .iter_mut()
            .zip(group.iter().flatten())
            .zip(sent)
        {
            tally.lost += u64::from(sent).saturating_sub(union.count());
        }
        whole
    }

    /// Of all publishers together.
    #[must_use]
    pub fn faults(&self) -> Faults {
        let mut all = Tally::default();
        for tally in &self.tallies {
            all.add(tally);
        }
        Faults {
            lost: all.lost,
            duplicated: all.duplicated,
            reordered: all.reordered,
            stray: self.stray,
        }
    }
}

/// A set of numbers, one bit for each up to the highest.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Bitmap(Vec<u64>);

impl Bitmap {
    /// `false` if it was in already.
    fn insert(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Puts in all of `other`; returns how many were in already.
    fn unite(&mut self, other: &Self) -> u64 {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut twice = 0;
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            twice += u64::from((*word & other).count_ones());
            *word |= other;
        }
        twice
    }
}

/// The streams of one receiver, one for each publisher whose messages it should get.
#[derive(Debug)]
struct Receiver {
    publishers: Publishers,
    streams: Vec<Stream>,
}

/// Numbers of publishers; mostly in one piece.
#[derive(Debug)]
enum Publishers {
    One(Range<u32>),
    Several(Vec<Range<u32>>),
}

impl Publishers {
    fn new(mut ranges: Vec<Range<u32>>) -> Self {
        match (ranges.pop(), ranges.is_empty()) {
            (Some(only), true) => Self::One(only),
            (last, _) => {
                ranges.extend(last);
                Self::Several(ranges)
            }
        }
    }

    fn ranges(&self) -> &[Range<u32>] {
        match self {
            Self::One(range) => std::slice::from_ref(range),
            Self::Several(ranges) => ranges,
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        self.ranges().iter().cloned().flatten()
    }

    /// The place of a publisher among them.
    fn position(&self, publisher: u32) -> Option<usize> {
        let mut before = 0;
        for range in self.ranges() {
            if range.contains(&publisher) {
                return Some(before + (publisher - range.start) as usize);
            }
            before += range.len();
        }
        None
    }
}

/// The members of a shared subscription, or those of them that belong to a worker.
#[derive(Debug)]
struct Group {
    /// By publisher.
    arrived: Vec<Bitmap>,
    /// Members overtake each other rightly, so order is judged by what each saw itself: by member and
    /// publisher, one more than the highest number.
    seen: HashMap<(u32, u32), u32>,
}

#[derive(Debug)]
enum Receivers {
    Each(Vec<Receiver>),
    Group(Group),
}

/// Follows every stream of a slice of a topology.
#[derive(Debug)]
pub struct Verifier {
    first_subscriber: usize,
    receivers: Receivers,
    /// The publishers whose messages may rightly arrive; `tallies` are theirs.
    publishers: Range<u32>,
    tallies: Vec<Tally>,
    distinct: u64,
    stray: u64,
}

impl Verifier {
    /// Nothing has arrived yet.
    pub(crate) fn new(topology: &Topology, slice: &Slice) -> Self {
        let all = 0..topology.publishers() as u32;
        let (receivers, publishers) = match topology {
            Topology::Shared { .. } => {
                let group = Group {
                    arrived: vec![Bitmap::default(); all.len()],
                    seen: HashMap::new(),
                };
                (Receivers::Group(group), all)
            }
            _ => {
                let each = slice.subscribers.clone().map(|subscriber| {
                    let publishers = Publishers::new(topology.publishers_of(subscriber));
                    let streams = vec![Stream::default(); publishers.iter().count()];
                    Receiver {
                        publishers,
                        streams,
                    }
                });
                let own = slice.publishers.start as u32..slice.publishers.end as u32;
                let publishers = if topology.keeps_together() { own } else { all };
                (Receivers::Each(each.collect()), publishers)
            }
        };
        Self {
            first_subscriber: slice.subscribers.start,
            receivers,
            tallies: vec![Tally::default(); publishers.len()],
            publishers,
            distinct: 0,
            stray: 0,
        }
    }

    /// Counts a message that a subscriber received; `None` if it should not have received it.
    pub fn arrive(&mut self, subscriber: usize, stamp: Stamp) -> Option<Arrival> {
        let arrival = match &mut self.receivers {
            Receivers::Each(receivers) => subscriber
                .checked_sub(self.first_subscriber)
                .and_then(|index| receivers.get_mut(index))
                .and_then(|receiver| {
                    let place = receiver.publishers.position(stamp.publisher)?;
                    receiver.streams.get_mut(place)
                })
                .map(|stream| stream.arrive(stamp.sequence)),
            Receivers::Group(group) => group.arrive(subscriber as u32, stamp),
        };
        let (Some(arrival), true) = (arrival, self.publishers.contains(&stamp.publisher)) else {
            self.stray();
            return None;
        };
        let tally = &mut self.tallies[(stamp.publisher - self.publishers.start) as usize];
        tally.delivered += 1;
        match arrival {
            Arrival::Duplicate => tally.duplicated += 1,
            Arrival::InOrder => self.distinct += 1,
            Arrival::Late => {
                self.distinct += 1;
                tally.reordered += 1;
            }
        }
        Some(arrival)
    }

    /// Counts a message that nobody can place.
    pub fn stray(&mut self) {
        self.stray += 1;
    }

    /// Messages received, duplicates aside (of a shared subscription: those this verifier saw).
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// All that was found, given how many messages each publisher of the whole topology has sent.
    #[must_use]
    pub fn findings(&self, sent: &[u32]) -> Findings {
        let mut findings = Findings {
            tallies: self.tallies.clone(),
            first_publisher: self.publishers.start,
            stray: self.stray,
            group: None,
        };
        match &self.receivers {
            Receivers::Group(group) => findings.group = Some(group.arrived.clone()),
            Receivers::Each(receivers) => {
                for receiver in receivers {
                    for (publisher, stream) in receiver.publishers.iter().zip(&receiver.streams) {
                        let sent = sent.get(publisher as usize).copied().unwrap_or(0);
                        let offset = publisher - self.publishers.start;
                        findings.tallies[offset as usize].lost += stream.lost(sent);
                    }
                }
            }
        }
        findings
    }
}

impl Group {
    fn arrive(&mut self, member: u32, stamp: Stamp) -> Option<Arrival> {
        let arrived = self.arrived.get_mut(stamp.publisher as usize)?;
        if !arrived.insert(stamp.sequence) {
            return Some(Arrival::Duplicate);
        }
        let next = self.seen.entry((member, stamp.publisher)).or_insert(0);
        if stamp.sequence < *next {
            return Some(Arrival::Late);
        }
        *next = stamp.sequence.saturating_add(1);
        Some(Arrival::InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(publisher: u32, sequence: u32) -> Stamp {
        Stamp {
            publisher,
            sequence,
            due_ns: 0,
        }
    }

    fn verifier(topology: Topology) -> Verifier {
        Verifier::new(&topology, &topology.slice(0, 1))
    }

    fn faults(verifier: &Verifier, sent: &[u32]) -> Faults {
        Findings::merge(&[verifier.findings(sent)], sent).faults()
    }

    fn check(arrivals: &[u32], sent: u32, expected: Faults) {
        let mut verifier = verifier(Topology::Pairs { pairs: 1 });
        for &sequence in arrivals {
            verifier.arrive(0, stamp(0, sequence));
        }
        assert_eq!(
            faults(&verifier, &[sent]),
            expected,
            "{arrivals:?} of {sent}"
        );
        assert_eq!(verifier.distinct() + expected.lost, u64::from(sent));
    }

    #[test]
    fn each_fault_is_counted_exactly() {
        let none = Faults::default();
        check(&[], 0, none);
        check(&[0, 1, 2, 3], 4, none);
        check(&[0, 1], 4, Faults { lost: 2, ..none });
        check(&[2, 3], 4, Faults { lost: 2, ..none });
        check(
            &[0, 1, 1, 2, 0],
            3,
            Faults {
                duplicated: 2,
                ..none
            },
        );
        check(
            &[0, 2, 1, 3],
            4,
            Faults {
                reordered: 1,
                ..none
            },
        );
        check(
            &[3, 1, 1, 2, 0],
            4,
            Faults {
                reordered: 3,
                duplicated: 1,
                ..none
            },
        );
        check(
            &[9, 5, 4, 6],
            10,
            Faults {
                lost: 6,
                reordered: 3,
                ..none
            },
        );
    }

    #[test]
    fn whatever_the_order_the_set_is_known() {
        // 0..101 in the order of a generator of the group modulo 101, twice.
        let mut sequence = 1;
        let mut stream = Stream::default();
        for round in 0..2 {
            for _ in 0..100 {
                sequence = sequence * 2 % 101;
                assert_eq!(stream.arrive(sequence) == Arrival::Duplicate, round == 1);
            }
        }
        assert_eq!(stream.missing.len(), 1);
        assert_eq!(stream.lost(101), 1);
    }

    #[test]
    fn members_of_a_group_may_overtake_each_other_but_not_themselves() {
        let mut verifier = verifier(Topology::Shared {
            publishers: 2,
            members: 2,
        });
        for (member, sequence) in [(0, 1), (1, 0), (1, 3), (1, 2), (0, 3)] {
            verifier.arrive(member, stamp(1, sequence));
        }
        let expected = Faults {
            lost: 3,
            duplicated: 1,
            reordered: 1,
            stray: 0,
        };
        assert_eq!(faults(&verifier, &[3, 4]), expected);
    }

    #[test]
    fn members_of_several_workers_make_one_group() {
        let topology = Topology::Shared {
            publishers: 2,
            members: 4,
        };
        let mut workers: Vec<Verifier> = (0..2)
            .map(|index| Verifier::new(&topology, &topology.slice(index, 2)))
            .collect();
        for (worker, member, sequence) in [(0, 0, 0), (1, 2, 1), (0, 1, 2), (1, 3, 2), (1, 2, 70)] {
            workers[worker].arrive(member, stamp(1, sequence));
        }
        let sent = [0, 72];
        let findings: Vec<Findings> = workers.iter().map(|w| w.findings(&sent)).collect();
        let whole = Findings::merge(&findings, &sent);
        let expected = Tally {
            delivered: 5,
            lost: 68,
            duplicated: 1,
            reordered: 0,
        };
        assert_eq!(whole.tallies, [Tally::default(), expected]);
    }

    #[test]
    fn each_publisher_has_its_own_tally_whatever_worker_receives() {
        let topology = Topology::FanOut {
            publishers: 2,
            subscribers: 3,
        };
        let mut workers: Vec<Verifier> = (0..2)
            .map(|index| Verifier::new(&topology, &topology.slice(index, 2)))
            .collect();
        for (worker, subscriber, sequence) in
            [(0, 0, 0), (1, 1, 0), (1, 1, 0), (1, 2, 1), (1, 2, 0)]
        {
            assert!(
                workers[worker]
                    .arrive(subscriber, stamp(1, sequence))
                    .is_some()
            );
        }
        let sent = [1, 2];
        let findings: Vec<Findings> = workers.iter().map(|w| w.findings(&sent)).collect();
        let whole = Findings::merge(&findings, &sent);
        assert_eq!(whole.tallies[0].lost, 3);
        let expected = Tally {
            delivered: 5,
            lost: 2,
            duplicated: 1,
            reordered: 1,
        };
        assert_eq!(whole.tallies[1], expected);
    }

    #[test]
    fn listed_groups_expect_what_their_filters_match() {
        use crate::topology::{Listed, PublisherGroup, SubscriberGroup};
        let publishers = |count, topic_prefix: &str| PublisherGroup {
            count,
            topic_prefix: topic_prefix.to_owned(),
        };
        let subscribers = |count, filter: &str, expected: &[usize]| SubscriberGroup {
            count,
            filter: filter.to_owned(),
            expected: expected.to_vec(),
        };
        let topology = Topology::Listed(Listed {
            publishers: vec![
                publishers(2, "a/x/"),
                publishers(1, "b/"),
                publishers(3, "a/"),
            ],
            subscribers: vec![subscribers(1, "a/#", &[0, 2]), subscribers(2, "b/+", &[1])],
        });
        assert_eq!(topology.topic("p", 4), "p/a/1");
        assert_eq!(topology.filter("p", 2), "p/b/+");
        assert_eq!(topology.receivers_per_message(), 7.0 / 6.0);
        let mut verifier = verifier(topology);
        for (subscriber, publisher) in [(0, 0), (0, 5), (1, 2), (2, 2)] {
            assert!(verifier.arrive(subscriber, stamp(publisher, 0)).is_some());
        }
        assert!(verifier.arrive(0, stamp(2, 0)).is_none());
        assert!(verifier.arrive(1, stamp(0, 0)).is_none());
        let found = faults(&verifier, &[1; 6]);
        assert_eq!((found.lost, found.stray), (3, 2));
    }

    #[test]
    fn a_message_for_somebody_else_is_stray() {
        let mut verifier = verifier(Topology::Pairs { pairs: 2 });
        assert_eq!(verifier.arrive(0, stamp(1, 0)), None);
        assert_eq!(verifier.arrive(2, stamp(0, 0)), None);
        assert_eq!(
            faults(&verifier, &[0, 0]),
            Faults {
                stray: 2,
                ..Faults::default()
            }
        );
    }

    #[test]
    fn a_stamp_survives_the_payload() {
        let stamp = Stamp {
            publisher: 7,
            sequence: u32::MAX,
            due_ns: u64::MAX - 1,
        };
        let mut payload = stamp.to_bytes().to_vec();
        payload.push(9);
        assert_eq!(Stamp::from_payload(&payload), Some(stamp));
        assert_eq!(Stamp::from_payload(&payload[..15]), None);
    }
}
