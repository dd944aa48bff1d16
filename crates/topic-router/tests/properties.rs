//! Router and retained index against naive models, under random changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use proptest::prelude::*;
use proptest::sample::select;
use topic_router::change::{bucket_of_filter, buckets_of_topic};
use topic_router::{Inserted, RetainedIndex, Router};

/// Section 4.7, level by level.
fn matches(filter: &str, topic: &str) -> bool {
    fn levels(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            (["#"], _) | ([], []) => true,
            (["+", filter @ ..], [_, topic @ ..]) => levels(filter, topic),
            ([wanted, filter @ ..], [found, topic @ ..]) => {
                wanted == found && levels(filter, topic)
            }
            _ => false,
        }
    }
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    levels(
        &filter.split('/').collect::<Vec<_>>(),
        &topic.split('/').collect::<Vec<_>>(),
    )
}

const LONG: &str = "a level that is too long to be kept in place";

/// Few levels, so that names collide, share beginnings and nest; the first has the special ones.
fn name(first: Vec<&'static str>, other: Vec<&'static str>) -> impl Strategy<Value = String> {
    (select(first), prop::collection::vec(select(other), 0..5)).prop_map(|(first, mut other)| {
        other.insert(0, first);
        other.join("/")
    })
}

fn topic() -> impl Strategy<Value = String> {
    name(
        vec!["", "a", "b", "$", "$a", LONG],
        vec!["", "a", "b", "a!", "$a", LONG],
    )
}

fn filter() -> impl Strategy<Value = String> {
    let base = name(
        vec!["", "a", "b", "$a", "+", "+", LONG],
        vec!["", "a", "b", "a!", "+", "+", LONG],
    );
    (base, 0..4).prop_map(|(base, end)| match end {
        0 => format!("{base}/#"),
        1 if base == "+" => "#".to_owned(),
        _ => base,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn router_equals_naive_matcher(
        changes in prop::collection::vec((filter(), 0u64..4, any::<bool>(), topic()), 1..120),
        seed: u64,
    ) {
        let mut router = Router::with_seed(seed);
        let mut model = BTreeMap::new();
        for (at, (filter, receiver, insert, topic)) in changes.into_iter().enumerate() {
            if insert {
                let old = model.insert((filter.clone(), receiver), at);
                let expected = old.map_or(Inserted::New, Inserted::Replaced);
                prop_assert_eq!(router.insert(&filter, receiver, at), expected);
            } else {
                // Most random removals find nothing: remove what is there instead, every other time.
                let key = match model.keys().nth(at / 2) {
                    Some(key) if at % 2 == 0 => key.clone(),
                    _ => (filter, receiver),
                };
                prop_assert_eq!(router.remove(&key.0, &key.1), model.remove(&key));
            }
            prop_assert_eq!(router.len(), model.len());
            let mut found = Vec::new();
            router.for_each_match(&topic, |receiver, options| found.push((*receiver, *options)));
            found.sort_unstable();
            let mut expected: Vec<_> = model
                .iter()
                .filter(|((filter, _), _)| matches(filter, &topic))
                .map(|((_, receiver), options)| (*receiver, *options))
                .collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected, "{}", topic);
        }
        for ((filter, receiver), options) in model {
            prop_assert_eq!(router.remove(&filter, &receiver), Some(options));
        }
        prop_assert_eq!(router.bytes(), 0);
    }

    #[test]
    fn pages_equal_a_scan_while_topics_change(
        before in prop::collection::btree_map(topic(), any::<u32>(), 0..150),
        changes in prop::collection::vec((topic(), any::<bool>()), 0..60),
        filter in filter(),
        limit in 1usize..6,
    ) {
        let mut index = RetainedIndex::new();
        for (topic, value) in &before {
            prop_assert_eq!(index.insert(topic, *value), None);
        }
        let mut now = before.clone();
        let mut throughout = before.clone();
        let mut ever = before;
        let mut found = Vec::new();
        let mut cursor = None;
        let mut changes = changes.into_iter();
        loop {
            let mut visits = 0;
            let mut work = limit;
            cursor = index.page(&filter, cursor.as_ref(), &mut work, |topic, value| {
                visits += 1;
                found.push((topic.to_owned(), *value));
                if visits < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            prop_assert!(visits <= limit);
            if cursor.is_none() {
                break;
            }
            for (topic, insert) in changes.by_ref().take(3) {
                if insert {
                    prop_assert_eq!(index.insert(&topic, 1), now.insert(topic.clone(), 1));
                    ever.insert(topic, 1);
                } else {
                    prop_assert_eq!(index.remove(&topic), now.remove(&topic));
                    throughout.remove(&topic);
                }
            }
            prop_assert_eq!(index.len(), now.len());
        }
        let mut once = found.clone();
        once.sort();
        once.dedup_by(|a, b| a.0 == b.0);
        prop_assert_eq!(once.len(), found.len(), "each topic at most once");
        for (topic, _) in &found {
            prop_assert!(matches(&filter, topic) && ever.contains_key(topic));
        }
        for topic in throughout.keys().filter(|topic| matches(&filter, topic)) {
            prop_assert!(found.iter().any(|(found, _)| found == topic), "{} is missing", topic);
        }
        for (topic, value) in &now {
            prop_assert_eq!(index.get(topic), Some(value));
        }
    }

    #[test]
    fn a_matching_filter_changes_a_bucket_of_the_topic(filter in filter(), topic in topic()) {
        prop_assert!(!matches(&filter, &topic) || buckets_of_topic(&topic).contains(&bucket_of_filter(&filter)));
        prop_assert!(buckets_of_topic(&topic).contains(&bucket_of_filter(&topic)));
    }

    /// Names that no validation let through: anything may match, nothing may panic, memory comes back.
    #[test]
    fn invalid_names_do_no_harm(names in prop::collection::vec("[/+#$a\0é]{0,9}", 1..40)) {
        let (mut router, mut index) = (Router::with_seed(3), RetainedIndex::new());
        for name in &names {
            router.insert(name, 1u64, ());
            index.insert(name, ());
        }
        for name in &names {
            router.for_each_match(name, |_, ()| {});
            let mut cursor = index.page(name, None, &mut 0, |_, ()| ControlFlow::Continue(()));
            while let Some(after) = cursor {
                cursor = index.page(name, Some(&after), &mut 2, |_, ()| ControlFlow::Continue(()));
            }
            buckets_of_topic(name);
            bucket_of_filter(name);
        }
        for name in &names {
            router.remove(name, &1);
            index.remove(name);
        }
        prop_assert_eq!((router.len(), router.bytes(), index.len(), index.bytes()), (0, 0, 0, 0));
    }

    /// A topic of either half is visited once, by the pages of its half from where the pages of the whole ended.
    #[test]
    fn pages_go_on_in_both_halves_of_a_cut(
        topics in prop::collection::btree_map(topic(), any::<bool>(), 0..60),
        filter in filter(),
        before in 0..5usize,
        limit in 1..4usize,
    ) {
        let mut whole = RetainedIndex::new();
        for (topic, leaves) in &topics {
            whole.insert(topic, *leaves);
        }
        let page = |index: &RetainedIndex<bool>, after: Option<&_>, found: &mut Vec<String>| {
            let mut visits = 0;
            index.page(&filter, after, &mut 10_000, |topic, _| {
                visits += 1;
                found.push(topic.to_owned());
                if visits < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        };
        let (mut found, mut cursor) = (Vec::new(), None);
        let mut begun = 0;
        while begun < before {
            cursor = page(&whole, cursor.as_ref(), &mut found);
            begun += 1;
            if cursor.is_none() {
                break;
            }
        }
        let is_done = begun > 0 && cursor.is_none();
        let other = whole.split_off(|name| topics.get(name) == Some(&true));
        for half in [&whole, &other] {
            let mut next = cursor.clone();
            let mut is_half_done = is_done;
            while !is_half_done {
                next = page(half, next.as_ref(), &mut found);
                is_half_done = next.is_none();
            }
        }
        found.sort();
        let expected = topics.keys().filter(|topic| matches(&filter, topic));
        prop_assert_eq!(found, expected.cloned().collect::<Vec<_>>());
        prop_assert_eq!(other.len(), topics.values().filter(|leaves| **leaves).count());
    }

    /// However filters are made of `+` and names that many share.
    #[test]
    fn no_filters_cost_a_match_more_than_their_patterns(
        filters in prop::collection::vec(prop::collection::vec(0..5usize, 1..12), 1..200),
        topic in prop::collection::vec(0..3usize, 1..12),
    ) {
        const NAMES: [&str; 5] = ["a", "b", "+", "+", "+"];
        let filters: Vec<Vec<&str>> = filters
            .iter()
            .map(|levels| levels.iter().map(|level| NAMES[*level]).collect())
            .collect();
        let patterns: BTreeSet<Vec<usize>> = filters
            .iter()
            .map(|levels| (0..levels.len()).filter(|at| levels[*at] == "+").collect())
            .collect();
        let mut router = Router::with_seed(2);
        for (number, levels) in (0u64..).zip(&filters) {
            router.insert(&levels.join("/"), number, ());
        }
        let topic: Vec<&str> = topic.iter().map(|level| ["a", "b", "c"][*level]).collect();
        let compared = router.for_each_match(&topic.join("/"), |_, ()| {});
        prop_assert!(compared <= (patterns.len() + 1) * topic.len() * 2);
    }
}
