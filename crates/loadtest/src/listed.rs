//! Groups of publishers and of subscribers whose topics, filters and client identifiers are sent as they stand.
//!
//! The topic of publisher n of a group is [`PublisherGroup::topic_prefix`] and its client identifier, which is
//! [`PublisherGroup::client_id_prefix`] and n.
//!
//! Invariant: the messages that a subscriber should receive follow from filters and topics alone.

use std::ops::Range;

use mqtt_proto::{QoS, SubscriptionFilter};
use serde::{Deserialize, Serialize};

use crate::qos_number;

/// Any groups.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Listed {
    /// In the order in which publishers are numbered.
    pub publishers: Vec<PublisherGroup>,
    /// In the order in which subscribers are numbered.
    pub subscribers: Vec<SubscriberGroup>,
    /// Keys of the JSON object that each payload is; empty: the payload begins with a binary stamp.
    pub telemetry_keys: Vec<String>,
}

/// Publishers whose topics begin alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PublisherGroup {
    /// How many.
    pub count: usize,
    /// The part of a topic before the client identifier.
    pub topic_prefix: String,
    /// The part of a client identifier before the publisher's number in the group, from 0.
    pub client_id_prefix: String,
}

/// Subscribers with the same filter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubscriberGroup {
    /// How many.
    pub count: usize,
    /// Each receives every message that matches; the members of a shared subscription together do.
    pub filter: String,
    /// The part of a client identifier before the subscriber's number in the group, from 0.
    pub client_id_prefix: String,
    /// Whether sessions end with their connections.
    pub clean_session: bool,
    /// Of subscriptions.
    #[serde(with = "qos_number")]
    pub qos: QoS,
}

impl PublisherGroup {
    fn client_id(&self, number: usize) -> String {
        format!("{}{number}", self.client_id_prefix)
    }

    /// The publishers, by number, whose topics match a filter (without `$share`). O(length of the filter): only
    /// the last level of a topic has the number.
    #[must_use]
    pub fn matched_by(&self, filter: &str) -> Range<usize> {
        let (all, none) = (0..self.count, 0..0);
        let stem = format!("{}{}", self.topic_prefix, self.client_id_prefix);
        let mut levels: Vec<&str> = stem.split('/').collect();
        // Splitting yields one piece at least.
        let last = levels.pop().unwrap_or_default();
        // A wildcard at the beginning does not match such topics [MQTT-4.7.2-1].
        let is_hidden = stem.starts_with('$');
        if is_hidden && filter.starts_with(['+', '#']) {
            return none;
        }
        let mut filter = filter.split('/');
        for level in levels {
            match filter.next() {
                Some("#") => return all,
                Some(wanted) if wanted == "+" || wanted == level => {}
                _ => return none,
            }
        }
        let matched = match filter.next() {
            Some("#") => return all,
            Some("+") => all,
            Some(wanted) => self.numbered(wanted.strip_prefix(last)),
            None => none.clone(),
        };
        // `a/#` matches `a` too.
        match (filter.next(), filter.next()) {
            (None | Some("#"), None) => matched,
            _ => none,
        }
    }

    /// The publisher with this number, if it is one of the group and written as in topics.
    fn numbered(&self, digits: Option<&str>) -> Range<usize> {
        let number = digits.and_then(|digits| {
            let number: usize = digits.parse().ok()?;
            (number < self.count && number.to_string() == digits).then_some(number)
        });
        number.map_or(0..0, |number| number..number + 1)
    }
}

impl SubscriberGroup {
    fn client_id(&self, number: usize) -> String {
        format!("{}{number}", self.client_id_prefix)
    }

    /// Whether the filter is one of a shared subscription.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        SubscriptionFilter::parse(&self.filter).is_ok_and(|filter| filter.shared.is_some())
    }

    /// The filter that topics are matched with: without `$share` and the name of the share.
    #[must_use]
    pub fn matching_filter(&self) -> &str {
        let parsed = SubscriptionFilter::parse(&self.filter);
        parsed.map_or(&self.filter, |parsed| parsed.filter)
    }
}

impl Listed {
    /// Connections that publish.
    pub(crate) fn publisher_count(&self) -> usize {
        self.publishers.iter().map(|group| group.count).sum()
    }

    /// Connections that subscribe.
    pub(crate) fn subscriber_count(&self) -> usize {
        self.subscribers.iter().map(|group| group.count).sum()
    }

    fn publisher(&self, number: usize) -> Option<(&PublisherGroup, usize)> {
        place(self.publishers.iter(), |group| group.count, number)
    }

    fn subscriber(&self, number: usize) -> Option<(&SubscriberGroup, usize)> {
        place(self.subscribers.iter(), |group| group.count, number)
    }

    /// Client identifier of a publisher.
    pub(crate) fn publisher_id(&self, number: usize) -> Option<String> {
        self.publisher(number)
            .map(|(group, number)| group.client_id(number))
    }

    /// Client identifier of a subscriber.
    pub(crate) fn subscriber_id(&self, number: usize) -> Option<String> {
        self.subscriber(number)
            .map(|(group, number)| group.client_id(number))
    }

    /// Topic of a publisher.
    pub(crate) fn topic(&self, number: usize) -> Option<String> {
        self.publisher(number)
            .map(|(group, number)| format!("{}{}", group.topic_prefix, group.client_id(number)))
    }

    /// The group that a subscriber belongs to.
    pub(crate) fn group_of(&self, subscriber: usize) -> Option<&SubscriberGroup> {
        self.subscriber(subscriber).map(|(group, _)| group)
    }

    /// Whose messages a group of subscribers should receive: ascending, apart.
    pub(crate) fn expected_of(&self, group: &SubscriberGroup) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        let mut first = 0;
        for publishers in &self.publishers {
            let Range { start, end } = publishers.matched_by(group.matching_filter());
            let range = first + start as u32..first + end as u32;
            first += publishers.count as u32;
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ if range.is_empty() => {}
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Shared subscriptions: one of the groups of subscribers of each, which may be several.
    pub(crate) fn shares(&self) -> Vec<&SubscriberGroup> {
        let mut shares: Vec<&SubscriberGroup> = Vec::new();
        for group in &self.subscribers {
            let is_new = shares.iter().all(|share| share.filter != group.filter);
            if group.count > 0 && group.is_shared() && is_new {
                shares.push(group);
            }
        }
        shares
    }

    /// Receivers of each message, by publisher.
    pub(crate) fn receivers(&self) -> Vec<u32> {
        // Where the count changes, and by how much; then the running sum.
        let mut steps = vec![0_i64; self.publisher_count() + 1];
        let mut add = |group: &SubscriberGroup, receivers: usize| {
            for range in self.expected_of(group) {
                steps[range.start as usize] += receivers as i64;
                steps[range.end as usize] -= receivers as i64;
            }
        };
        let alone = self.subscribers.iter().filter(|group| !group.is_shared());
        alone.for_each(|group| add(group, group.count));
        self.shares().into_iter().for_each(|group| add(group, 1));
        steps.pop();
        let mut now = 0;
        let sum = |step: i64| {
            now += step;
            now as u32
        };
        steps.into_iter().map(sum).collect()
    }
}

/// The group of a member, and the member's number in it.
fn place<'a, G>(
    groups: impl Iterator<Item = &'a G>,
    count: impl Fn(&G) -> usize,
    mut number: usize,
) -> Option<(&'a G, usize)> {
    for group in groups {
        if number < count(group) {
            return Some((group, number));
        }
        number -= count(group);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publishers(count: usize, topic_prefix: &str, client_id_prefix: &str) -> PublisherGroup {
        PublisherGroup {
            count,
            topic_prefix: topic_prefix.to_owned(),
            client_id_prefix: client_id_prefix.to_owned(),
        }
    }

    fn subscribers(count: usize, filter: &str) -> SubscriberGroup {
        SubscriberGroup {
            count,
            filter: filter.to_owned(),
            client_id_prefix: "s".to_owned(),
            clean_session: true,
            qos: QoS::AtLeastOnce,
        }
    }

    #[test]
    fn a_filter_matches_all_of_a_group_or_one_or_none() {
        let group = publishers(12, "usa/a/1/", "pub_");
        for (filter, matched) in [
            ("usa/a/1/+", 0..12),
            ("usa/a/1/#", 0..12),
            ("#", 0..12),
            ("usa/+/1/+", 0..12),
            ("usa/a/1/+/#", 0..12),
            ("+/+/+/+", 0..12),
            ("usa/a/1/pub_7", 7..8),
            ("usa/a/1/pub_7/#", 7..8),
            ("usa/a/1/pub_11", 11..12),
            ("usa/a/1/pub_12", 0..0),
            ("usa/a/1/pub_07", 0..0),
            ("usa/a/1/pub_+7", 0..0),
            ("usa/a/1", 0..0),
            ("usa/a/1/+/+", 0..0),
            ("usa/a/2/+", 0..0),
            ("usa/a/+", 0..0),
            ("", 0..0),
        ] {
            assert_eq!(group.matched_by(filter), matched, "{filter}");
        }
        let plain = publishers(3, "t", "");
        assert_eq!(plain.matched_by("+"), 0..3);
        assert_eq!(plain.matched_by("t2"), 2..3);
        let hidden = publishers(3, "$x/", "");
        assert_eq!(hidden.matched_by("#"), 0..0);
        assert_eq!(hidden.matched_by("+/+"), 0..0);
        assert_eq!(hidden.matched_by("$x/+"), 0..3);
    }

    #[test]
    fn receivers_are_subscribers_that_match_and_shares_that_match() {
        let listed = Listed {
            publishers: vec![publishers(2, "a/x/", "p"), publishers(3, "a/y/", "p")],
            subscribers: vec![
                subscribers(4, "a/#"),
                subscribers(5, "$share/g/a/x/+"),
                subscribers(6, "$share/g/a/x/+"),
                subscribers(7, "$share/h/a/x/+"),
                subscribers(1, "a/y/p1"),
                subscribers(9, "b/#"),
            ],
            telemetry_keys: Vec::new(),
        };
        assert_eq!(listed.receivers(), [6, 6, 4, 5, 4]);
        let expected = |group: usize| listed.expected_of(&listed.subscribers[group]);
        // In one piece, although they are of two groups.
        assert!(matches!(&expected(0)[..], [all] if *all == (0..5)));
        assert!(matches!(&expected(4)[..], [one] if *one == (3..4)));
        assert_eq!(listed.topic(4).as_deref(), Some("a/y/p2"));
        assert_eq!(listed.subscriber_id(9).as_deref(), Some("s0"));
    }
}
