//! What arrived: exact counts of lost, duplicated and reordered messages.
//!
//! Each publisher numbers its messages from 0 and writes the number into the payload ([`Stamp`]). A
//! *receiver* is whoever should get each message once: a subscriber, or a group of a shared
//! subscription with several members.
//!
//! Invariant: memory grows with the gaps in what arrived, not with what arrived.

use std::ops::Range;

use crate::Topology;

/// What a message says of itself: the first [`Stamp::LEN`] bytes of its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Who published it.
    pub publisher: u32,
    /// Its number among the publisher's messages, from 0.
    pub sequence: u32,
    /// When it was due, in ns of [`monotonic_ns`](crate::monotonic_ns).
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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

/// The streams of one receiver.
#[derive(Debug)]
struct Receiver {
    publishers: Range<u32>,
    streams: Vec<Stream>,
}

/// Follows every stream of a topology.
#[derive(Debug)]
pub struct Verifier {
    receivers: Vec<Receiver>,
    /// The receiver that a subscriber is, or is a member of.
    receiver_of: Vec<usize>,
    /// In a shared subscription, members overtake each other rightly; so order is judged by what each
    /// member saw itself: per member and publisher, one more than the highest number.
    seen_by_member: Option<Vec<Vec<u32>>>,
    distinct: u64,
    faults: Faults,
}

impl Verifier {
    /// Nothing has arrived yet.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let receivers = (0..topology.receivers())
            .map(|receiver| {
                let publishers = topology.publishers_of(receiver);
                let streams = vec![Stream::default(); publishers.len()];
                Receiver {
                    publishers,
                    streams,
                }
            })
            .collect();
        let shared = topology.receivers() < topology.subscribers();
        let seen = || vec![vec![0; topology.publishers()]; topology.subscribers()];
        Self {
            receivers,
            receiver_of: (0..topology.subscribers())
                .map(|s| topology.receiver_of(s))
                .collect(),
            seen_by_member: shared.then(seen),
            distinct: 0,
            faults: Faults::default(),
        }
    }

    /// Counts a message that a subscriber received; `None` if it should not have received it.
    pub fn arrive(&mut self, subscriber: usize, stamp: Stamp) -> Option<Arrival> {
        let receiver = self
            .receiver_of
            .get(subscriber)
            .and_then(|&r| self.receivers.get_mut(r));
        let stream = receiver
            .filter(|receiver| receiver.publishers.contains(&stamp.publisher))
            .and_then(|receiver| {
                let offset = stamp.publisher - receiver.publishers.start;
                receiver.streams.get_mut(offset as usize)
            });
        let Some(stream) = stream else {
            self.stray();
            return None;
        };
        let mut arrival = stream.arrive(stamp.sequence);
        if arrival != Arrival::Duplicate
            && let Some(seen) = &mut self.seen_by_member
        {
            let seen = &mut seen[subscriber][stamp.publisher as usize];
            arrival = if stamp.sequence < *seen {
                Arrival::Late
            } else {
                Arrival::InOrder
            };
            *seen = (*seen).max(stamp.sequence.saturating_add(1));
        }
        match arrival {
            Arrival::Duplicate => self.faults.duplicated += 1,
            Arrival::InOrder => self.distinct += 1,
            Arrival::Late => {
                self.distinct += 1;
                self.faults.reordered += 1;
            }
        }
        Some(arrival)
    }

    /// Counts a message that nobody can place.
    pub fn stray(&mut self) {
        self.faults.stray += 1;
    }

    /// Messages received, duplicates aside.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// All faults, given how many messages each publisher has sent.
    #[must_use]
    pub fn faults(&self, sent: &[u32]) -> Faults {
        let lost_by = |receiver: &Receiver| -> u64 {
            let publishers = receiver.publishers.clone();
            let sent = publishers.map(|p| sent.get(p as usize).copied().unwrap_or(0));
            receiver
                .streams
                .iter()
                .zip(sent)
                .map(|(stream, sent)| stream.lost(sent))
                .sum()
        };
        Faults {
            lost: self.receivers.iter().map(lost_by).sum(),
            ..self.faults
        }
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

    fn check(arrivals: &[u32], sent: u32, expected: Faults) {
        let mut verifier = Verifier::new(&Topology::Pairs { pairs: 1 });
        for &sequence in arrivals {
            verifier.arrive(0, stamp(0, sequence));
        }
        assert_eq!(verifier.faults(&[sent]), expected, "{arrivals:?} of {sent}");
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
        let mut verifier = Verifier::new(&Topology::Shared {
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
        assert_eq!(verifier.faults(&[3, 4]), expected);
    }

    #[test]
    fn a_message_for_somebody_else_is_stray() {
        let mut verifier = Verifier::new(&Topology::Pairs { pairs: 2 });
        assert_eq!(verifier.arrive(0, stamp(1, 0)), None);
        assert_eq!(verifier.arrive(2, stamp(0, 0)), None);
        assert_eq!(
            verifier.faults(&[0, 0]),
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
