//! Who publishes to whom, over which topics, and how that is divided among workers.
//!
//! Invariant: each message has a known set of receivers, so that every loss can be told.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Who publishes to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    pub(crate) fn publishers_of(&self, receiver: usize) -> Range<u32> {
        match *self {
            Self::Pairs { .. } => receiver as u32..receiver as u32 + 1,
            Self::Groups { publishers, groups } => {
                // The first publisher whose group, rounded down, is this one.
                let first = |group: usize| {
                    (group as u128 * publishers as u128).div_ceil(groups as u128) as u32
                };
                first(receiver)..first(receiver + 1)
            }
            _ => 0..self.publishers() as u32,
        }
    }

    /// The part that worker number `index` of `of` plays. Pairs and groups stay whole.
    pub(crate) fn slice(&self, index: usize, of: usize) -> Slice {
        let subscribers = share(self.subscribers(), index, of);
        let publishers = match *self {
            Self::Groups { .. } if subscribers.is_empty() => {
                let start = match subscribers.start {
                    0 => 0,
                    after => self.publishers_of(after - 1).end as usize,
                };
                start..start
            }
            Self::Groups { .. } => {
                let first = self.publishers_of(subscribers.start).start as usize;
                first..self.publishers_of(subscribers.end - 1).end as usize
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

    /// Receivers of each message.
    #[must_use]
    pub fn receivers_per_message(&self) -> u64 {
        match *self {
            Self::FanOut { subscribers, .. } => subscribers as u64,
            Self::FanIn { .. } => 0,
            _ => 1,
        }
    }

    /// The topic that a publisher publishes to.
    pub(crate) fn topic(&self, prefix: &str, publisher: usize) -> String {
        match *self {
            Self::Groups { publishers, groups } => {
                let group = publisher as u128 * groups as u128 / publishers as u128;
                format!("{prefix}/{group}/{publisher}")
            }
            _ => format!("{prefix}/{publisher}"),
        }
    }

    /// The filter that a subscriber subscribes to.
    pub(crate) fn filter(&self, prefix: &str, subscriber: usize) -> String {
        match *self {
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

/// What one worker plays of a topology, by the numbers of the whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slice {
    pub(crate) subscribers: Range<usize>,
    pub(crate) publishers: Range<usize>,
}

/// The `index`-th of `of` about equal shares of `0..count`.
pub(crate) fn share(count: usize, index: usize, of: usize) -> Range<usize> {
    let bound = |index: usize| (count as u128 * index as u128 / of as u128) as usize;
    bound(index)..bound(index + 1)
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Pairs { pairs } => write!(f, "{pairs} pairs"),
            Self::FanOut {
                publishers,
                subscribers,
            } => write!(f, "fan-out, {publishers} to {subscribers}"),
            Self::Shared {
                publishers,
                members,
            } => write!(f, "shared subscription, {publishers} to {members} members"),
            Self::FanIn { publishers } => write!(f, "fan-in, {publishers} publishers"),
            Self::Groups { publishers, groups } => {
                write!(f, "groups, {publishers} publishers to {groups} subscribers")
            }
            Self::Idle { connections } => write!(f, "{connections} idle connections"),
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
                let of =
                    |group: &usize| topology.publishers_of(*group).contains(&(publisher as u32));
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
                            let publishers = topology.publishers_of(subscriber);
                            assert!(slice.publishers.start <= publishers.start as usize);
                            assert!(slice.publishers.end >= publishers.end as usize);
                        }
                    }
                }
                assert_eq!(subscribers, topology.subscribers(), "{topology} {of}");
                assert_eq!(publishers, topology.publishers(), "{topology} {of}");
            }
        }
    }
}
