//! The filters of all receivers, and how many patterns of wildcards they have.

use hashing::HashMap;
use mqtt_session::{Pattern, Wanted, pattern_of};
use topic_router::{Inserted, Router};

use crate::key::Receiver;

/// A router that counts the patterns of its filters.
#[derive(Debug)]
pub(crate) struct RouteTable {
    router: Router<Receiver, Wanted>,
    /// How many routes have each.
    patterns: HashMap<Pattern, u32>,
}

impl RouteTable {
    /// `seed` protects the hash tables from chosen collisions.
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self {
            router: Router::with_seed(seed),
            patterns: HashMap::default(),
        }
    }

    /// As [`Router::insert`].
    pub(crate) fn insert(
        &mut self,
        filter: &str,
        receiver: Receiver,
        wanted: Wanted,
    ) -> Inserted<Wanted> {
        let inserted = self.router.insert(filter, receiver, wanted);
        if !matches!(inserted, Inserted::Replaced(_))
            && let Some(pattern) = pattern_of(filter)
        {
            *self.patterns.entry(pattern).or_default() += 1;
        }
        inserted
    }

    /// As [`Router::remove`].
    pub(crate) fn remove(&mut self, filter: &str, receiver: &Receiver) -> Option<Wanted> {
        let removed = self.router.remove(filter, receiver)?;
        if let Some(pattern) = pattern_of(filter)
            && let Some(count) = self.patterns.get_mut(&pattern)
        {
            *count -= 1;
            if *count == 0 {
                self.patterns.remove(&pattern);
            }
        }
        Some(removed)
    }

    /// As [`Router::for_each_match`].
    pub(crate) fn for_each_match(&self, topic: &str, f: impl FnMut(&Receiver, &Wanted)) -> usize {
        self.router.for_each_match(topic, f)
    }

    /// Heap memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.router.bytes() + self.patterns.capacity() * size_of::<(Pattern, u32)>()
    }

    /// Patterns of all filters.
    pub(crate) fn patterns(&self) -> usize {
        self.patterns.len()
    }

    /// Whether a filter has this pattern.
    pub(crate) fn has_pattern(&self, pattern: &Pattern) -> bool {
        self.patterns.contains_key(pattern)
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{QoS, SubscriptionOptions};

    use super::*;

    #[test]
    fn a_pattern_is_there_as_long_as_a_route_has_it() {
        let mut table = RouteTable::with_seed(1);
        let options = SubscriptionOptions {
            qos: QoS::AtMostOnce,
            ..SubscriptionOptions::default()
        };
        let wanted = Wanted::new(options, 0);
        let receivers = [1, 2].map(|shard| Receiver::shard(shard, peer_protocol::Slot::OWN));
        for receiver in receivers {
            for filter in ["a/+", "b/+", "+/a", "a/#", "a"] {
                table.insert(filter, receiver, wanted);
                table.insert(filter, receiver, wanted);
            }
        }
        let pattern = pattern_of("x/+").unwrap();
        assert_eq!((table.patterns(), table.has_pattern(&pattern)), (2, true));
        for receiver in receivers {
            table.remove("a/+", &receiver);
            table.remove("a/+", &receiver);
        }
        assert!(table.has_pattern(&pattern));
        for receiver in receivers {
            table.remove("b/+", &receiver);
        }
        assert_eq!((table.patterns(), table.has_pattern(&pattern)), (1, false));
    }
}
