//! The table of a session's subscriptions.
//!
//! Invariants: sorted by filter, each filter once. Most sessions have one subscription, and its filter has no `+`: it
//! stands in place, without an allocation beside that of its filter.

use std::num::NonZeroU32;

use mqtt_proto::SubscriptionOptions;

use crate::patterns::{Patterns, pattern_of};

/// One subscription of a session.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// The filter as the client wrote it, a `$share/…` prefix included.
    pub filter: Box<str>,
    /// The options as granted.
    pub options: SubscriptionOptions,
    /// The Subscription Identifier.
    pub id: Option<u32>,
    /// The shared group it makes the session a member of.
    pub group: Option<NonZeroU32>,
}

/// The subscriptions of a session.
#[derive(Debug, Default)]
pub(crate) enum Subscriptions {
    #[default]
    None,
    /// The only one, whose filter has no pattern.
    One(Subscription),
    /// At least one.
    Several(Box<Several>),
}

#[derive(Debug, Default)]
pub(crate) struct Several {
    /// Sorted by filter.
    list: Vec<Subscription>,
    /// Of their wildcards.
    patterns: Patterns,
    /// Bytes of their filters.
    bytes: u64,
}

/// The patterns of a session that has none.
static NO_PATTERNS: Patterns = Patterns::EMPTY;

impl Subscriptions {
    pub(crate) fn as_slice(&self) -> &[Subscription] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => &several.list,
        }
    }

    pub(crate) fn get(&self, filter: &str) -> Option<&Subscription> {
        let list = self.as_slice();
        let index = position_of(list, filter).ok()?;
        list.get(index)
    }

    pub(crate) fn patterns(&self) -> &Patterns {
        match self {
            Self::None | Self::One(_) => &NO_PATTERNS,
            Self::Several(several) => &several.patterns,
        }
    }

    /// Bytes of the filters.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::One(one) => one.filter.len() as u64,
            Self::Several(several) => several.bytes,
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let table = match self {
            Self::None | Self::One(_) => 0,
            Self::Several(several) => {
                size_of::<Several>()
                    + several.list.capacity() * size_of::<Subscription>()
                    + several.patterns.heap_len()
            }
        };
        table + self.bytes() as usize
    }

    /// Adds subscriptions, or replaces those with the same filters. Of several with the same filter the last one
    /// counts. The work is linear in all subscriptions, once for each call.
    pub(crate) fn add(&mut self, added: Vec<Subscription>) {
        let added = match <[Subscription; 1]>::try_from(added) {
            Ok([one]) if self.is_whole(&one) => return *self = Self::One(one),
            Ok([one]) => vec![one],
            Err(several) => several,
        };
        let mut several = self.take_several();
        several.add(added);
        self.put(several);
    }

    /// Removes the subscriptions with exactly these filters, in work that is linear in all subscriptions, once for each
    /// call. Returns those that were there.
    pub(crate) fn remove(&mut self, filters: &[&str]) -> Vec<Subscription> {
        if filters.iter().all(|filter| self.get(filter).is_none()) {
            return Vec::new();
        }
        let mut several = self.take_several();
        let removed = several.remove(filters);
        self.put(several);
        removed
    }

    /// Whether a subscription that is added is all that there is then, and can stand in place.
    fn is_whole(&self, added: &Subscription) -> bool {
        let is_only = match self {
            Self::None => true,
            Self::One(one) => one.filter == added.filter,
            Self::Several(_) => false,
        };
        is_only && pattern_of(&added.filter).is_none()
    }

    fn take_several(&mut self) -> Box<Several> {
        match std::mem::take(self) {
            Self::None => Box::default(),
            Self::One(one) => Box::new(Several {
                bytes: one.filter.len() as u64,
                patterns: Patterns::default(),
                list: vec![one],
            }),
            Self::Several(several) => several,
        }
    }

    fn put(&mut self, mut several: Box<Several>) {
        *self = match several.list.len() {
            0 => Self::None,
            1 if several.patterns.len() == 0 => several.list.pop().map_or(Self::None, Self::One),
            _ => Self::Several(several),
        };
    }
}

impl Several {
    fn add(&mut self, added: Vec<Subscription>) {
        let mut new = Vec::new();
        for subscription in added {
            match position_of(&self.list, &subscription.filter) {
                Ok(index) => {
                    if let Some(known) = self.list.get_mut(index) {
                        *known = subscription;
                    }
                }
                Err(_) => new.push(subscription),
            }
        }
        if new.is_empty() {
            return;
        }
        // Stable: of several with the same filter the last one stays.
        new.sort_by(|a, b| a.filter.cmp(&b.filter));
        new.dedup_by(|later, kept| {
            let same = later.filter == kept.filter;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        self.bytes += new.iter().map(|s| s.filter.len() as u64).sum::<u64>();
        for subscription in &new {
            self.patterns.add(&subscription.filter);
        }
        if self.list.is_empty() {
            // Most clients never add others.
            self.list.reserve_exact(new.len());
        }
        match <[Subscription; 1]>::try_from(new) {
            Ok([one]) => {
                let index = position_of(&self.list, &one.filter).unwrap_or_else(|at| at);
                self.list.insert(index, one);
            }
            Err(several) => merge(&mut self.list, several),
        }
    }

    fn remove(&mut self, filters: &[&str]) -> Vec<Subscription> {
        let mut found: Vec<usize> = filters
            .iter()
            .filter_map(|filter| position_of(&self.list, filter).ok())
            .collect();
        let removed: Vec<Subscription> = if let [index] = found[..] {
            vec![self.list.remove(index)]
        } else {
            found.sort_unstable();
            found.dedup();
            let mut found = found.into_iter().peekable();
            let mut index = 0;
            let is_found = |_: &mut Subscription| {
                index += 1;
                found.next_if_eq(&(index - 1)).is_some()
            };
            self.list.extract_if(.., is_found).collect()
        };
        self.bytes -= removed.iter().map(|s| s.filter.len() as u64).sum::<u64>();
        for subscription in &removed {
            self.patterns.remove(&subscription.filter);
        }
        removed
    }
}

/// The place of the subscription with exactly this filter among sorted ones; `Err`: the place where it would stand.
fn position_of(subscriptions: &[Subscription], filter: &str) -> Result<usize, usize> {
    subscriptions.binary_search_by(|subscription| (*subscription.filter).cmp(filter))
}

/// Adds subscriptions to sorted ones. Both lists are sorted, and no filter is in both. A place is searched for each
/// subscription that is added: a sort would compare all filters of the session, once for each part of a SUBSCRIBE.
fn merge(known: &mut Vec<Subscription>, added: Vec<Subscription>) {
    let place_of = |known: &[Subscription], one: &Subscription| {
        known.partition_point(|subscription| subscription.filter < one.filter)
    };
    let first = added
        .first()
        .map_or(known.len(), |one| place_of(known, one));
    let mut behind = known.split_off(first).into_iter();
    known.reserve(behind.len() + added.len());
    for one in added {
        let before = place_of(behind.as_slice(), &one);
        known.extend(behind.by_ref().take(before));
        known.push(one);
    }
    known.extend(behind);
}

#[cfg(test)]
mod tests {
    use mqtt_proto::QoS;

    use super::*;

    fn subscription(filter: &str) -> Subscription {
        Subscription {
            filter: filter.into(),
            options: SubscriptionOptions::default(),
            id: None,
            group: None,
        }
    }

    fn filters(subscriptions: &Subscriptions) -> Vec<&str> {
        let list = subscriptions.as_slice();
        list.iter()
            .map(|subscription| &*subscription.filter)
            .collect()
    }

    #[test]
    fn one_without_a_pattern_stands_in_place() {
        let mut table = Subscriptions::default();
        table.add(vec![subscription("a")]);
        assert!(matches!(table, Subscriptions::One(_)));
        assert_eq!((table.bytes(), table.heap_bytes()), (1, 1));
        let mut again = subscription("a");
        again.options.qos = QoS::ExactlyOnce;
        table.add(vec![again]);
        assert_eq!(
            table.get("a").map(|s| s.options.qos),
            Some(QoS::ExactlyOnce)
        );
        table.add(vec![
            subscription("c/+"),
            subscription("b"),
            subscription("b"),
        ]);
        assert_eq!(filters(&table), ["a", "b", "c/+"]);
        assert_eq!((table.bytes(), table.patterns().len()), (5, 1));
        assert!(table.remove(&["x"]).is_empty());
        assert_eq!(table.remove(&["a", "b", "a", "y"]).len(), 2);
        // Its pattern is known to the session.
        assert!(matches!(table, Subscriptions::Several(_)));
        assert_eq!((table.bytes(), table.patterns().len()), (3, 1));
        table.add(vec![subscription("d")]);
        assert_eq!(table.remove(&["c/+"]).len(), 1);
        assert!(matches!(table, Subscriptions::One(_)));
        assert_eq!(table.patterns().len(), 0);
        assert_eq!(table.remove(&["d"]).len(), 1);
        assert!(matches!(table, Subscriptions::None));
        assert_eq!(table.heap_bytes(), 0);
    }
}
