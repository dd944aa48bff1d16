//! The router against the statements of section 4.7, and at its limits.

use topic_router::{Inserted, Router};

/// The receivers that a topic reaches, one per filter, numbered in the order of the filters.
fn matched(filters: &[&str], topic: &str) -> Vec<usize> {
    let mut router = Router::with_seed(7);
    for (receiver, filter) in filters.iter().enumerate() {
        assert_eq!(router.insert(filter, receiver, ()), Inserted::New);
    }
    receivers(&router, topic)
}

fn receivers<R: Copy + Ord, O: Copy>(router: &Router<R, O>, topic: &str) -> Vec<R> {
    let mut found = Vec::new();
    router.for_each_match(topic, |receiver, _| found.push(*receiver));
    found.sort();
    found
}

fn check(filter: &str, matching: &[&str], others: &[&str]) {
    // A second filter with the same beginning makes the trie branch at each level in turn.
    let levels: Vec<&str> = filter.split('/').collect();
    for cut in 0..=levels.len() {
        let sibling = [&levels[..cut], &["elsewhere", "+"]].concat().join("/");
        for topic in matching {
            assert_eq!(
                matched(&[filter, &sibling], topic),
                [0],
                "{filter} matches {topic}"
            );
        }
        for topic in others {
            assert_eq!(
                matched(&[filter, &sibling], topic),
                [0; 0],
                "{filter} does not match {topic}"
            );
        }
    }
}

/// [MQTT-4.7.1-1] [MQTT3-4.7.1-2].
#[test]
fn multi_level_wildcard() {
    let player = [
        "sport/tennis/player1",
        "sport/tennis/player1/ranking",
        "sport/tennis/player1/score/wimbledon",
    ];
    check(
        "sport/tennis/player1/#",
        &player,
        &[
            "sport/tennis",
            "sport/tennis/player2",
            "sport/tennis/player10",
        ],
    );
    check(
        "sport/#",
        &["sport", "sport/", "sport//", "sport/a/b/c/d"],
        &["", "/", "spor", "sports", "/sport"],
    );
    check("#", &["a", "/", "", "a/b/c/d/e/f/g", "/a"], &[]);
    check("+/#", &["a", "", "/", "a/b", "/b/c"], &[]);
}

/// [MQTT-4.7.1-2] [MQTT3-4.7.1-3].
#[test]
fn single_level_wildcard() {
    check(
        "sport/tennis/+",
        &["sport/tennis/player1", "sport/tennis/"],
        &["sport/tennis", "sport/tennis/player1/x"],
    );
    check("sport/+", &["sport/", "sport/x"], &["sport", "sports/x"]);
    check("+", &["finance", ""], &["/finance", "a/b"]);
    check(
        "+/+",
        &["/finance", "a/b", "/", "a/"],
        &["a", "a/b/c", "//"],
    );
    check("/+", &["/finance", "/"], &["finance", "a/finance", "//"]);
    check(
        "+/tennis/#",
        &["a/tennis", "/tennis/b", "a/tennis/b/c"],
        &["tennis", "a/b/tennis"],
    );
    check(
        "sport/+/player1",
        &["sport/a/player1", "sport//player1"],
        &["sport/player1", "sport/a/b/player1"],
    );
}

/// [MQTT-4.7.2-1]
#[test]
fn leading_wildcards_do_not_match_dollar_topics() {
    check("#", &[], &["$SYS", "$SYS/monitor/Clients", "$", "$/x"]);
    check(
        "+/monitor/Clients",
        &["a/monitor/Clients"],
        &["$SYS/monitor/Clients"],
    );
    check("+", &[], &["$SYS"]);
    check(
        "$SYS/#",
        &["$SYS", "$SYS/monitor/Clients"],
        &["a$SYS", "SYS"],
    );
    check(
        "$SYS/monitor/+",
        &["$SYS/monitor/Clients", "$SYS/monitor/$a"],
        &["$SYS/monitor"],
    );
    check("a/#", &["a/$SYS"], &["$a/x"]);
}

/// [MQTT-4.7.3-4] each level that is no wildcard matches character for character.
#[test]
fn names_match_character_for_character() {
    check("a/b", &["a/b"], &["A/b", "a/b/", "/a/b", "a//b", "a"]);
    check(
        "ACCOUNTS",
        &["ACCOUNTS"],
        &["Accounts", "accounts", "/ACCOUNTS"],
    );
    check("/a/+", &["/a/b"], &["a/b", "//a/b"]);
    check("\u{212b}/+", &["\u{212b}/x"], &["\u{c5}/x", "A\u{30a}/x"]);
    // A level that only contains a wildcard character is none.
    check("a+/#b", &["a+/#b"], &["ax/#b", "a+/x"]);
}

#[test]
fn options_are_kept_replaced_and_returned() {
    for filter in [
        "a/b",
        "a/+",
        "a/#",
        "a rather long level/that is not kept in place/+",
    ] {
        let mut router = Router::with_seed(1);
        assert_eq!(router.insert(filter, 7u64, 'x'), Inserted::New);
        assert_eq!(router.insert(filter, 7, 'y'), Inserted::Replaced('x'));
        assert_eq!(router.insert(filter, 3, 'z'), Inserted::New);
        assert_eq!(router.len(), 2);
        assert_eq!(router.remove("b", &7), None);
        assert_eq!(router.remove("b/+", &7), None);
        assert_eq!(router.remove(filter, &8), None);
        assert_eq!(router.remove(filter, &7), Some('y'));
        assert_eq!(router.remove(filter, &7), None);
        assert_eq!(router.remove(filter, &3), Some('z'));
        assert!(router.is_empty());
        assert_eq!(router.bytes(), 0);
    }
}

#[test]
fn overlapping_filters_report_a_receiver_each_time() {
    let mut router = Router::with_seed(1);
    ["a/b", "a/+", "a/#", "#"]
        .iter()
        .zip(1..)
        .for_each(|(filter, id)| {
            router.insert(filter, 'r', id);
        });
    let mut ids = Vec::new();
    router.for_each_match("a/b", |receiver, id| ids.push((*receiver, *id)));
    ids.sort();
    assert_eq!(ids, [('r', 1), ('r', 2), ('r', 3), ('r', 4)]);
}

/// The deepest topic that fits the protocol: 65,535 separators.
#[test]
fn depth_is_not_limited_by_the_stack() {
    let deep = "/".repeat(65_535);
    let single = format!("+{}", "/+".repeat(65_535));
    let mut router = Router::with_seed(1);
    let mut filters = vec![
        deep.clone(),
        single,
        format!("{deep}#"),
        format!("{deep}+"),
        "#".to_owned(),
    ];
    // Branches all the way down: each shares its levels with the one above and leaves it there.
    filters.extend((0..600).map(|n| format!("{}+/x", "/".repeat(n * 100))));
    for (receiver, filter) in filters.iter().enumerate() {
        router.insert(filter, receiver, ());
    }
    assert_eq!(receivers(&router, &deep), [0, 1, 2, 3, 4]);
    // Assigning drops the full router.
    router = Router::with_seed(2);
    for (receiver, filter) in filters.iter().enumerate() {
        router.insert(filter, receiver, ());
    }
    for (receiver, filter) in filters.iter().enumerate() {
        assert_eq!(router.remove(filter, &receiver), Some(()));
    }
    assert_eq!(router.bytes(), 0);
}

/// All 4,096 filters of `+` and `a` in 12 levels, none of which matches in the 13th: each node of the trie
/// is visited once. The depth of 128 levels adds levels, not branches.
#[test]
fn arranging_wildcards_does_not_multiply_work() {
    let mut router = Router::with_seed(1);
    for bits in 0..4096 {
        let levels: Vec<&str> = (0..12)
            .map(|i| if bits >> i & 1 == 0 { "+" } else { "a" })
            .collect();
        router.insert(&format!("{}/x", levels.join("/")), bits, ());
    }
    for depth in 1..128 {
        router.insert(&format!("{}z", "+/".repeat(depth)), depth, ());
    }
    assert_eq!(receivers(&router, &["a"; 128].join("/")), []);
    assert_eq!(
        receivers(&router, &format!("{}/x", ["a"; 12].join("/"))).len(),
        4096
    );
}

#[test]
fn memory_per_filter_and_its_return() {
    type Form = fn(u32) -> String;
    let forms: [(Form, usize); 3] = [
        (|i| format!("site/{:03}/dev/{i:07}", i % 997), 60),
        (|i| format!("dev/+/{i:07}/x"), 76),
        (|i| format!("dev/{i:07}/#"), 76),
    ];
    for (form, limit) in forms {
        let mut router = Router::with_seed(1);
        let n = 60_000;
        (0..n).for_each(|i| {
            assert_eq!(
                router.insert(&form(i), u64::from(i), [0u32; 2]),
                Inserted::New
            )
        });
        let each = router.bytes() / n as usize;
        assert!(each <= limit, "{}: {each} bytes", form(0));
        for i in 0..n {
            assert_eq!(
                receivers(&router, &form(i).replace(['+', '#'], "y")),
                [u64::from(i)]
            );
            assert_eq!(router.remove(&form(i), &u64::from(i)), Some([0; 2]));
        }
        assert_eq!(router.bytes(), 0);
    }
}

/// 10,000 filters of 128 levels that nearly match: all but the last level, with `+` in few patterns.
#[test]
fn a_match_costs_by_the_patterns_of_wildcards_and_not_by_the_filters() {
    const LEVELS: usize = 128;
    const PATTERNS: usize = 64;
    let mut router = Router::with_seed(1);
    for number in 0..10_000u64 {
        let mut levels = vec!["a"; LEVELS - 1];
        let pattern = number as usize % PATTERNS;
        (0..6)
            .filter(|bit| pattern >> bit & 1 == 1)
            .for_each(|bit| levels[bit * 20] = "+");
        let last = format!("n{number}");
        levels.push(&last);
        router.insert(&levels.join("/"), number, ());
    }
    let topic = vec!["a"; LEVELS].join("/");
    let mut found = 0;
    let compared = router.for_each_match(&topic, |_, ()| found += 1);
    assert_eq!(found, 0);
    assert!(
        compared > LEVELS && compared <= (PATTERNS + 1) * (LEVELS + 1),
        "{compared}"
    );
}

#[test]
fn a_router_that_is_not_used_any_more_is_freed_in_parts() {
    let mut router = Router::with_seed(0);
    for n in 0..10_000u32 {
        router.insert(&format!("site/{n}"), n, ());
        router.insert(&format!("site/{n}/+"), n, ());
    }
    let mut retired = router.retire();
    let mut parts = 1;
    while !retired.free_part(1) {
        parts += 1;
    }
    assert!(parts > 5, "{parts}");
    assert!(retired.free_part(1), "nothing is left");
}
