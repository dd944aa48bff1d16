//! Who publishes to whom, over which topics, and how that is divided among workers.
//!
//! Invariant: each message has a known set of receivers, so that every loss can be told.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use text_table::units::{count, counted};

use crate::listed::Listed;

/// Who publishes to whom.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Topology {
    /// Publisher n to subscriber n, over a topic of their own.
    Pairs {
        /// How many of them.
        pairs: usize,
    },
    /// Every publisher to every subscriber.
    FanOut {
        /// Each with a topic of its own.
        publishers: usize,
        /// Each subscribed to all topics by one wildcard.
        subscribers: usize,
    },
    /// Every publisher to one of the members of a shared subscription.
    Shared {
        /// Each with a topic of its own.
        publishers: usize,
        /// Of one group.
        members: usize,
    },
    /// Every publisher to nobody: the broker only takes.
    FanIn {
        /// Each with a topic of its own.
        publishers: usize,
    },
    /// Publishers in groups of about the same size, each group to a subscriber of its own.
    Groups {
        /// Of all groups together, each with a topic of its own under its group's.
        publishers: usize,
        /// Groups, each with one subscriber.
        groups: usize,
    },
    /// Groups of publishers, each with topics of its own, and groups of subscribers, each with a filter.
    Listed(Listed),
    /// Subscribers to whom nobody publishes, each with a topic of its own.
    Idle {
        /// How many of them.
        connections: usize,
    },
}

impl Topology {
    /// Connections that publish.
    #[must_use]
    pub fn publishers(&self) -> usize {
        match *self {
            Self::Listed(ref listed) => listed.publisher_count(),
            Self::Pairs { pairs } => pairs,
            Self::FanOut { publishers, .. }
            | Self::Shared { publishers, .. }
            | Self::FanIn { publishers }
            | Self::Groups { publishers, .. } => publishers,
            Self::Idle { .. } => 0,
        }
    }

    /// Connections that subscribe, each with one subscription.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        match *self {
            Self::Listed(ref listed) => listed.subscriber_count(),
            Self::Pairs { pairs } => pairs,
            Self::FanOut { subscribers, .. } => subscribers,
            Self::Shared { members, .. } => members,
            Self::FanIn { .. } => 0,
            Self::Groups { groups, .. } => groups,
            Self::Idle { connections } => connections,
        }
    }

    /// Connections that publish or subscribe.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.subscribers().saturating_add(self.publishers())
    }

    /// Whose messages a subscriber, or the group of which it is a member, should get.
    pub(crate) fn publishers_of(&self, subscriber: usize) -> Vec<Range<u32>> {
        match self {
            Self::Listed(listed) => listed
                .group_of(subscriber)
                .map_or_else(Vec::new, |group| listed.expected_of(group)),
            Self::Pairs { .. } => one(subscriber as u32..subscriber as u32 + 1),
            Self::Groups { .. } => one(self.publishers_of_group(subscriber)),
            _ => one(0..self.publishers() as u32),
        }
    }

    /// By shared subscription: whose messages its members should get together.
    pub(crate) fn shares(&self) -> Vec<Vec<Range<u32>>> {
        match self {
            Self::Listed(listed) => {
                let shares = listed.shares().into_iter();
                shares.map(|group| listed.expected_of(group)).collect()
            }
            Self::Shared { publishers, .. } => vec![one(0..*publishers as u32)],
            _ => Vec::new(),
        }
    }

    /// The shared subscription, by its place in [`Topology::shares`], of which each of these subscribers is a
    /// member.
    pub(crate) fn shares_of(&self, subscribers: Range<usize>) -> Vec<Option<usize>> {
        match self {
            Self::Listed(listed) => {
                let shares = listed.shares();
                let of = |subscriber| {
                    let group = listed.group_of(subscriber)?;
                    shares.iter().position(|share| share.filter == group.filter)
                };
                subscribers.map(of).collect()
            }
            Self::Shared { .. } => vec![Some(0); subscribers.len()],
            _ => vec![None; subscribers.len()],
        }
    }

    /// The publishers of one of several groups of about the same size.
    fn publishers_of_group(&self, group: usize) -> Range<u32> {
        let Self::Groups { publishers, groups } = *self else {
            return 0..0;
        };
        // The first publisher whose group, rounded down, is this one.
        let first =
            |group: usize| (group as u128 * publishers as u128).div_ceil(groups as u128) as u32;
        first(group)..first(group + 1)
    }

    /// The same in small, with at least one of each kind. The publishers of a fan-out stay as many as they
    /// are, so that the messages per second shrink as the connections do.
    #[must_use]
    pub fn scaled(&self, share: f64) -> Self {
        let mut small = self.clone();
        let shrink = |count: &mut usize| *count = few(*count, share);
        match &mut small {
            Self::Pairs { pairs: count }
            | Self::FanOut {
                subscribers: count, ..
            }
            | Self::FanIn { publishers: count }
            | Self::Idle { connections: count } => shrink(count),
            Self::Shared {
                publishers,
                members: others,
            }
            | Self::Groups {
                publishers,
                groups: others,
            } => {
                shrink(publishers);
                shrink(others);
            }
            Self::Listed(listed) => {
                listed
                    .publishers
                    .iter_mut()
                    .for_each(|group| shrink(&mut group.count));
                listed
                    .subscribers
                    .iter_mut()
                    .for_each(|group| shrink(&mut group.count));
            }
        }
        small
    }

    /// The part that worker number `index` of `of` plays. Pairs and groups stay whole.
    pub(crate) fn slice(&self, index: usize, of: usize) -> Slice {
        let subscribers = share(self.subscribers(), index, of);
        let publishers = match *self {
            Self::Groups { .. } if subscribers.is_empty() => {
                let start = match subscribers.start {
                    0 => 0,
                    after => self.publishers_of_group(after - 1).end as usize,
                };
                start..start
            }
            Self::Groups { .. } => {
                let first = self.publishers_of_group(subscribers.start).start as usize;
                first..self.publishers_of_group(subscribers.end - 1).end as usize
            }
            _ => share(self.publishers(), index, of),
        };
        Slice {
            subscribers,
            publishers,
        }
    }

    /// Whether a slice has all publishers of its subscribers, and the other way round.
    pub(crate) fn keeps_together(&self) -> bool {
        matches!(self, Self::Pairs { .. } | Self::Groups { .. })
    }

    /// Receivers of each message, on average over the publishers.
    #[must_use]
    pub fn receivers_per_message(&self) -> f64 {
        match self {
            Self::Listed(listed) => {
                let receivers = listed.receivers();
                let all: u64 = receivers.iter().map(|&count| u64::from(count)).sum();
                all as f64 / receivers.len().max(1) as f64
            }
            _ => f64::from(self.receivers_of_any()),
        }
    }

    /// Receivers of each message of these publishers.
    pub(crate) fn receivers_of(&self, publishers: Range<usize>) -> Vec<u32> {
        match self {
            Self::Listed(listed) => listed.receivers()[publishers].to_vec(),
            _ => vec![self.receivers_of_any(); publishers.len()],
        }
    }

    /// Receivers of each message, where these are as many for all publishers.
    fn receivers_of_any(&self) -> u32 {
        match *self {
            Self::FanOut { subscribers, .. } => subscribers as u32,
            Self::FanIn { .. } => 0,
            _ => 1,
        }
    }

    /// The topic that a publisher publishes to. `prefix` is the first level of topics that nobody has listed.
    pub(crate) fn topic(&self, prefix: &str, publisher: usize) -> String {
        match *self {
            Self::Listed(ref listed) => {
                let topic = listed.topic(publisher);
                topic.expect("a publisher that is numbered is in a group")
            }
            Self::Groups { publishers, groups } => {
                let group = publisher as u128 * groups as u128 / publishers as u128;
                format!("{prefix}/{group}/{publisher}")
            }
            _ => format!("{prefix}/{publisher}"),
        }
    }

    /// The filter that a subscriber subscribes to; `prefix` likewise.
    pub(crate) fn filter(&self, prefix: &str, subscriber: usize) -> String {
        match *self {
            Self::Listed(ref listed) => {
                let group = listed.group_of(subscriber);
                let group = group.expect("a subscriber that is numbered is in a group");
                group.filter.clone()
            }
            Self::Pairs { .. } | Self::FanIn { .. } | Self::Idle { .. } => {
                format!("{prefix}/{subscriber}")
            }
            Self::FanOut { publishers: 1, .. } => format!("{prefix}/0"),
            Self::FanOut { .. } => format!("{prefix}/+"),
            Self::Groups { .. } => format!("{prefix}/{subscriber}/+"),
            Self::Shared { .. } => format!("$share/group/{prefix}/+"),
        }
    }
}

/// A share of a count, but none becomes nothing by it.
pub(crate) fn few(count: usize, share: f64) -> usize {
    match count {
        0 => 0,
        _ => ((count as f64 * share).round() as usize).max(1),
    }
}

/// What one worker plays of a topology, by the numbers of the whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slice {
    pub(crate) subscribers: Range<usize>,
    pub(crate) publishers: Range<usize>,
}

/// A list of one range.
fn one(range: Range<u32>) -> Vec<Range<u32>> {
    std::iter::once(range).collect()
}

/// The `index`-th of `of` about equal shares of `0..count`.
pub(crate) fn share(count: usize, index: usize, of: usize) -> Range<usize> {
    let bound = |index: usize| (count as u128 * index as u128 / of as u128) as usize;
    bound(index)..bound(index + 1)
}

fn publishers(number: usize) -> String {
    counted(number as u64, "publisher", "publishers")
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Listed(ref listed) => write!(
                f,
                "{} in {} to {} in {}",
                publishers(self.publishers()),
                counted(listed.publishers.len() as u64, "group", "groups"),
                counted(self.subscribers() as u64, "subscriber", "subscribers"),
                listed.subscribers.len()
            ),
            Self::Pairs { pairs } => f.write_str(&counted(pairs as u64, "pair", "pairs")),
            Self::FanOut {
                publishers,
                subscribers,
            } => write!(
                f,
                "fan-out, {} to {}",
                count(publishers as u64),
                count(subscribers as u64)
            ),
            Self::Shared {
                publishers,
                members,
            } => write!(
                f,
                "shared subscription, {} to {}",
                count(publishers as u64),
                counted(members as u64, "member", "members")
            ),
            Self::FanIn { publishers: from } => write!(f, "fan-in, {}", publishers(from)),
            Self::Groups {
                publishers: from,
                groups,
            } => write!(
                f,
                "groups, {} to {}",
                publishers(from),
                counted(groups as u64, "subscriber", "subscribers")
            ),
            Self::Idle { connections } => f.write_str(&counted(
                connections as u64,
                "idle connection",
                "idle connections",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_publisher_of_groups_has_one_receiver_which_its_topic_names() {
        for (publishers, groups) in [(1, 1), (7, 3), (6, 3), (500, 1), (2, 5), (1_000, 7)] {
            let topology = Topology::Groups { publishers, groups };
            for publisher in 0..publishers {
                let of = |group: &usize| {
                    let publishers = topology.publishers_of(*group);
                    publishers
                        .iter()
                        .any(|range| range.contains(&(publisher as u32)))
                };
                let receivers: Vec<usize> = (0..groups).filter(of).collect();
                let [receiver] = *receivers.as_slice() else {
                    panic!("{publisher} of {topology}: {receivers:?}");
                };
                let filter = topology.filter("p", receiver);
                let topic = topology.topic("p", publisher);
                assert_eq!(
                    filter.strip_suffix("+"),
                    topic.strip_suffix(&publisher.to_string())
                );
            }
        }
    }

    #[test]
    fn slices_are_disjoint_and_together_the_whole() {
        for topology in [
            Topology::Pairs { pairs: 10 },
            Topology::FanOut {
                publishers: 1,
                subscribers: 7,
            },
            Topology::Shared {
                publishers: 10,
                members: 2,
            },
            Topology::FanIn { publishers: 4 },
            Topology::Groups {
                publishers: 11,
                groups: 3,
            },
            Topology::Idle { connections: 5 },
        ] {
            for of in 1..=5 {
                let (mut subscribers, mut publishers) = (0, 0);
                for index in 0..of {
                    let slice = topology.slice(index, of);
                    assert_eq!(slice.subscribers.start, subscribers, "{topology} {of}");
                    assert_eq!(slice.publishers.start, publishers, "{topology} {of}");
                    (subscribers, publishers) = (slice.subscribers.end, slice.publishers.end);
                    if topology.keeps_together() {
                        for subscriber in slice.subscribers {
                            for publishers in topology.publishers_of(subscriber) {
                                assert!(slice.publishers.start <= publishers.start as usize);
                                assert!(slice.publishers.end >= publishers.end as usize);
                            }
                        }
                    }
                }
                assert_eq!(subscribers, topology.subscribers(), "{topology} {of}");
                assert_eq!(publishers, topology.publishers(), "{topology} {of}");
            }
        }
    }
}
