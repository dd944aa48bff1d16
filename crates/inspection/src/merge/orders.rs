//! The first of all nodes, in an order.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::{BusyClient, BusyOrder, BusyRates, BusyTopic, FailedLoginsRow, QueueOrder, QueueRow};

/// The first queues.
#[must_use]
pub fn queues(mut rows: Vec<QueueRow>, by: QueueOrder, limit: usize) -> Vec<QueueRow> {
    match by {
        QueueOrder::Bytes => rows.sort_by_key(|row| Reverse(row.bytes)),
        QueueOrder::Messages => rows.sort_by_key(|row| Reverse(row.messages)),
        // Those of which it is not known come last.
        QueueOrder::Age => rows.sort_by_key(|row| (row.oldest_at.is_none(), row.oldest_at.clone())),
    }
    rows.truncate(limit);
    rows
}

/// The first clients.
#[must_use]
pub fn busy_clients(mut rows: Vec<BusyClient>, by: BusyOrder, limit: usize) -> Vec<BusyClient> {
    let rank = |row: &BusyClient| match by {
        BusyOrder::Messages => row.rates.messages_per_s,
        BusyOrder::Bytes => row.rates.bytes_per_s,
        BusyOrder::Delay => row.delay_max_ms.unwrap_or_default(),
    };
    rows.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    rows.truncate(limit);
    rows
}

/// The first topics: what is published to one on several nodes is one row.
#[must_use]
pub fn busy_topics(
    rows: impl IntoIterator<Item = BusyTopic>,
    by: BusyOrder,
    limit: usize,
) -> Vec<BusyTopic> {
    let mut all: BTreeMap<String, BusyRates> = BTreeMap::new();
    for row in rows {
        let rates = all.entry(row.topic).or_default();
        rates.messages_per_s = rounded(rates.messages_per_s + row.rates.messages_per_s);
        rates.bytes_per_s = rounded(rates.bytes_per_s + row.rates.bytes_per_s);
        rates.uncounted_per_s = rounded(rates.uncounted_per_s + row.rates.uncounted_per_s);
    }
    let rows = all.into_iter();
    let mut rows: Vec<_> = rows
        .map(|(topic, rates)| BusyTopic { topic, rates })
        .collect();
    let rank = |row: &BusyTopic| match by {
        BusyOrder::Messages | BusyOrder::Delay => row.rates.messages_per_s,
        BusyOrder::Bytes => row.rates.bytes_per_s,
    };
    rows.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    rows.truncate(limit);
    rows
}

/// A rate in thousandths.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Addresses from which logins fail, those that failed most first.
#[must_use]
pub fn failed_logins(mut rows: Vec<FailedLoginsRow>) -> Vec<FailedLoginsRow> {
    rows.sort_by_key(|row| Reverse(row.denied.saturating_add(row.refused)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(topic: &str, messages_per_s: f64, bytes_per_s: f64) -> BusyTopic {
        BusyTopic {
            topic: topic.to_owned(),
            rates: BusyRates {
                messages_per_s,
                bytes_per_s,
                uncounted_per_s: 0.1,
            },
        }
    }

    #[test]
    fn a_topic_of_several_nodes_is_one_row_with_the_sum() {
        let rows = || {
            [
                topic("a", 1.1, 30.0),
                topic("b", 2.0, 20.0),
                topic("a", 1.2, 0.0),
            ]
        };
        for (by, limit, expected) in [
            (BusyOrder::Messages, 9, vec![("a", 2.3), ("b", 2.0)]),
            (BusyOrder::Delay, 1, vec![("a", 2.3)]),
            (BusyOrder::Bytes, 9, vec![("a", 2.3), ("b", 2.0)]),
        ] {
            let found = busy_topics(rows(), by, limit);
            let found: Vec<(&str, f64)> = found
                .iter()
                .map(|row| (row.topic.as_str(), row.rates.messages_per_s))
                .collect();
            assert_eq!(found, expected);
        }
    }
}
