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
    /// The run that published it.
    pub run: Run,
    /// When it was due, in ns since the run's beginning; 48 bits, which is three days.
    pub due_ns: u64,
}

/// Tells the messages of a run from those that an earlier run has left in sessions, but for one in 65,536.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Run(u16);

impl Run {
    /// Of a run whose name differs from that of any other.
    #[must_use]
    pub fn named(name: &str) -> Self {
        // FNV-1a, folded.
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Self((hash >> 16 ^ hash) as u16)
    }
}

/// Bits of a due time in a stamp.
const DUE_BITS: u32 = 48;

impl Stamp {
    /// Bytes of a stamp, and so the shortest payload.
    pub const LEN: usize = 16;

    /// The stamp as it stands in the payload: its fields in order, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let numbers = u64::from(self.publisher) << 32 | u64::from(self.sequence);
        let due_ns = self.due_ns & ((1 << DUE_BITS) - 1);
        let time = u64::from(self.run.0) << DUE_BITS | due_ns;
        (u128::from(numbers) << 64 | u128::from(time)).to_be_bytes()
    }

    /// Reads the stamp of a payload; `None` if it is too short to have one.
    #[must_use]
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        payload.first_chunk().map(Self::from_bytes)
    }

    /// Reads a stamp.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let all = u128::from_be_bytes(*bytes);
        let (numbers, time) = ((all >> 64) as u64, all as u64);
        Self {
            publisher: (numbers >> 32) as u32,
            sequence: numbers as u32,
            run: Run((time >> DUE_BITS) as u16),
            due_ns: time & ((1 << DUE_BITS) - 1),
        }
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
    /// By shared subscription: what arrived at its members. What is lost can only be told when all members'
    /// are together.
    shares: Vec<Shared>,
}

/// What arrived at members of a shared subscription.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Shared {
    publishers: Publishers,
    /// In the order of `publishers`.
    arrived: Vec<Bitmap>,
}

impl Shared {
    fn new(publishers: Vec<Range<u32>>) -> Self {
        let publishers = Publishers::new(publishers);
        Self {
            arrived: vec![Bitmap::default(); publishers.iter().count()],
            publishers,
        }
    }
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
        let mut shares: Vec<Shared> = Vec::new();
        for findings in all {
            whole.stray += findings.stray;
            let tallies = whole.tallies.iter_mut();
            for (tally, other) in tallies
                .skip(findings.first_publisher as usize)
                .zip(&findings.tallies)
            {
                tally.add(other);
            }
            for (number, of_worker) in findings.shares.iter().enumerate() {
                let Some(union) = shares.get_mut(number) else {
                    shares.push(of_worker.clone());
                    continue;
                };
                let pairs = union.arrived.iter_mut().zip(&of_worker.arrived);
                for (publisher, (union, bitmap)) in of_worker.publishers.iter().zip(pairs) {
                    // Those of another worker's member too are duplicates that neither could see.
                    let twice = union.unite(bitmap);
                    whole.tallies[publisher as usize].duplicated += twice;
                }
            }
        }
        for share in &shares {
            for (publisher, arrived) in share.publishers.iter().zip(&share.arrived) {
                let sent = sent.get(publisher as usize).copied().unwrap_or(0);
                let tally = &mut whole.tallies[publisher as usize];
                tally.lost += u64::from(sent).saturating_sub(arrived.count());
            }
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

/// A subscriber.
#[derive(Debug)]
enum Receiver {
    /// Should get each message: a stream for each publisher.
    Alone(Publishers, Vec<Stream>),
    /// One of the members of a shared subscription, by its number.
    Member(usize),
}

/// Numbers of publishers; mostly in one piece.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    shared: Shared,
    /// Members overtake each other rightly, so order is judged by what each saw itself: by member and
    /// publisher, one more than the highest number.
    seen: HashMap<(u32, u32), u32>,
}

/// Follows every stream of a slice of a topology.
#[derive(Debug)]
pub struct Verifier {
    first_subscriber: usize,
    /// By subscriber of the slice.
    receivers: Vec<Receiver>,
    /// By shared subscription of the whole topology.
    groups: Vec<Group>,
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
        let own = slice.publishers.start as u32..slice.publishers.end as u32;
        let publishers = if topology.keeps_together() { own } else { all };
        let group = |publishers| Group {
            shared: Shared::new(publishers),
            seen: HashMap::new(),
        };
        let shares = topology.shares_of(slice.subscribers.clone());
        let receiver = |(subscriber, share)| match share {
            Some(share) => Receiver::Member(share),
            None => {
                let publishers = Publishers::new(topology.publishers_of(subscriber));
                let streams = vec![Stream::default(); publishers.iter().count()];
                Receiver::Alone(publishers, streams)
            }
        };
        let receivers = slice.subscribers.clone().zip(shares).map(receiver);
        let (receivers, groups) = (
            receivers.collect(),
            topology.shares().into_iter().map(group).collect(),
        );
        Self {
            first_subscriber: slice.subscribers.start,
            receivers,
            groups,
            tallies: vec![Tally::default(); publishers.len()],
            publishers,
            distinct: 0,
            stray: 0,
        }
    }

    /// Counts a message that a subscriber received; `None` if it should not have received it.
    pub fn arrive(&mut self, subscriber: usize, stamp: Stamp) -> Option<Arrival> {
        let place = subscriber.checked_sub(self.first_subscriber);
        let receiver = place.and_then(|place| self.receivers.get_mut(place));
        let arrival = match receiver {
            Some(Receiver::Alone(publishers, streams)) => {
                let place = publishers.position(stamp.publisher);
                let stream = place.and_then(|place| streams.get_mut(place));
                stream.map(|stream| stream.arrive(stamp.sequence))
            }
            Some(Receiver::Member(group)) => self.groups[*group].arrive(subscriber as u32, stamp),
            None => None,
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
            shares: self.groups.iter().map(|g| g.shared.clone()).collect(),
        };
        let alone = self.receivers.iter().filter_map(|receiver| match receiver {
            Receiver::Alone(publishers, streams) => Some((publishers, streams)),
            Receiver::Member(_) => None,
        });
        for (publishers, streams) in alone {
            for (publisher, stream) in publishers.iter().zip(streams) {
                let sent = sent.get(publisher as usize).copied().unwrap_or(0);
                let offset = publisher - self.publishers.start;
                findings.tallies[offset as usize].lost += stream.lost(sent);
            }
        }
        findings
    }
}

impl Group {
    fn arrive(&mut self, member: u32, stamp: Stamp) -> Option<Arrival> {
        let place = self.shared.publishers.position(stamp.publisher)?;
        let arrived = &mut self.shared.arrived[place];
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
            run: Run::default(),
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

    fn listed(publishers: &[(usize, &str)], subscribers: &[(usize, &str)]) -> Topology {
        use crate::listed::{Listed, PublisherGroup, SubscriberGroup};
        let publishers = publishers.iter().map(|&(count, prefix)| PublisherGroup {
            count,
            topic_prefix: prefix.to_owned(),
            client_id_prefix: "p".to_owned(),
        });
        let subscribers = subscribers.iter().map(|&(count, filter)| SubscriberGroup {
            count,
            filter: filter.to_owned(),
            client_id_prefix: "s".to_owned(),
            clean_session: true,
            qos: mqtt_proto::QoS::AtLeastOnce,
        });
        Topology::Listed(Listed {
            publishers: publishers.collect(),
            subscribers: subscribers.collect(),
            telemetry_keys: Vec::new(),
        })
    }

    #[test]
    fn listed_groups_expect_what_their_filters_match() {
        let groups = [(2, "a/x/"), (1, "b/"), (3, "a/")];
        let topology = listed(&groups, &[(1, "a/#"), (2, "b/+")]);
        assert_eq!(topology.topic("p", 4), "a/p1");
        assert_eq!(topology.filter("p", 2), "b/+");
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
    fn members_of_a_listed_share_get_each_message_once_together() {
        let filters = [(2, "$share/g/a/+"), (1, "a/#"), (1, "$share/g/a/+")];
        let topology = listed(&[(1, "b/"), (2, "a/")], &filters);
        assert_eq!(topology.receivers_of(0..3), [0, 2, 2]);
        let mut workers: Vec<Verifier> = (0..2)
            .map(|index| Verifier::new(&topology, &topology.slice(index, 2)))
            .collect();
        // Subscribers 0 and 1 belong to the first worker; 2 is not a member.
        for (worker, subscriber, publisher, sequence) in
            [(0, 0, 1, 0), (0, 1, 1, 1), (1, 2, 1, 0), (1, 3, 2, 0)]
        {
            let stamp = stamp(publisher, sequence);
            let arrived = workers[worker].arrive(subscriber, stamp);
            assert_eq!(arrived, Some(Arrival::InOrder));
        }
        assert_eq!(workers[1].arrive(3, stamp(1, 1)), Some(Arrival::InOrder));
        assert_eq!(workers[0].arrive(0, stamp(0, 0)), None);
        let sent = [9, 2, 1];
        let findings: Vec<Findings> = workers.iter().map(|w| w.findings(&sent)).collect();
        let expected = Faults {
            // To the subscriber that is not a member.
            lost: 2,
            duplicated: 1,
            reordered: 0,
            stray: 1,
        };
        assert_eq!(Findings::merge(&findings, &sent).faults(), expected);
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
            run: Run::named("bench-1"),
            due_ns: (1 << DUE_BITS) - 2,
        };
        let mut payload = stamp.to_bytes().to_vec();
        payload.push(9);
        assert_eq!(Stamp::from_payload(&payload), Some(stamp));
        assert_eq!(Stamp::from_payload(&payload[..15]), None);
        assert_ne!(Run::named("bench-1"), Run::named("bench-2"));
    }
}
