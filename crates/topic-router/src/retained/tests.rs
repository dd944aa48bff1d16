use super::*;

fn all<M: Copy>(index: &RetainedIndex<M>, filter: &str, limit: usize) -> Vec<(String, M)> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        cursor = index.page(filter, cursor.as_ref(), limit, |topic, m| {
            found.push((topic.to_owned(), *m))
        });
        if cursor.is_none() {
            return found;
        }
    }
}

fn names(topics: &[&str], filter: &str) -> Vec<String> {
    let mut index = RetainedIndex::new();
    topics
        .iter()
        .for_each(|topic| assert_eq!(index.insert(topic, ()), None));
    let found = all(&index, filter, 2);
    found.into_iter().map(|(topic, ())| topic).collect()
}

/// [MQTT-4.7.1-1] [MQTT3-4.7.1-2].
#[test]
fn multi_level_wildcard_takes_the_parent_and_all_below() {
    let topics = [
        "sport",
        "sport/",
        "sport/tennis",
        "sport/tennis/player1/ranking",
        "sports",
        "spor",
        "sport!/x",
    ];
    assert_eq!(
        names(&topics, "sport/#"),
        [
            "sport",
            "sport/",
            "sport/tennis",
            "sport/tennis/player1/ranking"
        ]
    );
    assert_eq!(names(&topics, "#").len(), topics.len());
}

/// [MQTT-4.7.1-2] [MQTT3-4.7.1-3].
#[test]
fn single_level_wildcard_takes_one_level() {
    let topics = [
        "a", "a/", "a/b", "a/b/c", "a/c/c", "a/c/d", "a//c", "a!/c/c", "/a",
    ];
    assert_eq!(names(&topics, "a/+"), ["a/", "a/b"]);
    assert_eq!(names(&topics, "a/+/c"), ["a//c", "a/b/c", "a/c/c"]);
    assert_eq!(names(&topics, "+/+"), ["/a", "a/", "a/b"]);
    assert_eq!(names(&topics, "+"), ["a"]);
}

/// [MQTT-4.7.2-1]
#[test]
fn leading_wildcards_skip_dollar_topics() {
    let topics = ["$SYS", "$SYS/uptime", "%x", "#x", "a/$SYS"];
    assert_eq!(names(&topics, "#"), ["#x", "%x", "a/$SYS"]);
    assert_eq!(names(&topics, "+/uptime"), [""; 0]);
    assert_eq!(names(&topics, "$SYS/#"), ["$SYS", "$SYS/uptime"]);
    assert_eq!(names(&topics, "a/#"), ["a/$SYS"]);
}

#[test]
fn siblings_that_cannot_match_are_leapt_over() {
    let mut index = RetainedIndex::new();
    for sibling in 0..5 {
        (0..10_000).for_each(|i| assert_eq!(index.insert(&format!("a/{sibling}/b/{i}"), i), None));
        index.insert(&format!("a/{sibling}/c"), sibling);
    }
    // One page examines little more than 1,000 topics; it finds all five beyond 50,000 others.
    let mut found = 0;
    assert!(index.page("a/+/c", None, 100, |_, _| found += 1).is_none());
    assert_eq!(found, 5);
}

#[test]
fn a_page_without_matches_ends() {
    let mut index = RetainedIndex::new();
    (0..10_000).for_each(|i| assert_eq!(index.insert(&format!("a/{i}/b"), ()), None));
    let mut pages = 1;
    let mut cursor = index.page("+/+/z", None, 1, |_, ()| panic!("nothing matches"));
    while let Some(after) = cursor {
        cursor = index.page("+/+/z", Some(&after), 1, |_, ()| panic!("nothing matches"));
        pages += 1;
    }
    assert!((9..=40).contains(&pages), "{pages}");
}

#[test]
fn any_order_of_changes_keeps_chunks_and_memory_right() {
    let name = |i: u32| format!("site/{}/dev/{}/temp", i % 7, i);
    let n = 20_000;
    let ascending: Vec<u32> = (0..n).collect();
    let descending: Vec<u32> = (0..n).rev().collect();
    let scattered: Vec<u32> = (0..n).map(|i| i * 7919 % n).collect();
    for order in [&ascending, &descending, &scattered] {
        let mut index = RetainedIndex::new();
        order
            .iter()
            .for_each(|&i| assert_eq!(index.insert(&name(i), u64::from(i)), None));
        assert_eq!(index.insert(&name(5), 5), Some(5));
        assert_eq!(index.len(), n as usize);
        let each = index.bytes() / n as usize;
        assert!(each < 40, "{each} bytes per topic");
        let heap: usize = index
            .chunks
            .iter()
            .map(|(bound, chunk)| bound.heap_bytes() + chunk.heap_bytes())
            .sum();
        assert_eq!(index.heap, heap);
        let chunks = index.chunks.len();
        assert!(chunks * 20 < n as usize, "{chunks} chunks");
        for &i in &scattered {
            assert_eq!(index.get(&name(i)), Some(&u64::from(i)));
            if i % 50 != 0 {
                assert_eq!(index.remove(&name(i)), Some(u64::from(i)));
                assert_eq!(index.remove(&name(i)), None);
            }
        }
        assert!(index.chunks.len() < chunks / 5);
        assert_eq!(all(&index, "site/+/dev/+/temp", 7).len(), n as usize / 50);
        scattered
            .iter()
            .filter(|i| *i % 50 == 0)
            .for_each(|&i| assert_eq!(index.remove(&name(i)), Some(u64::from(i))));
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }
}

#[test]
fn long_topics_and_deep_ones_stay_within_the_stack() {
    let mut index = RetainedIndex::new();
    let deep: Vec<String> = (65_400..65_535).map(|n| "/".repeat(n)).collect();
    deep.iter()
        .for_each(|topic| assert_eq!(index.insert(topic, topic.len()), None));
    assert_eq!(all(&index, "#", 10).len(), deep.len());
    assert_eq!(
        all(&index, &format!("{}+", "+/".repeat(65_500)), 10).len(),
        1
    );
    assert_eq!(index.get(&deep[7]), Some(&deep[7].len()));
    deep.iter()
        .for_each(|topic| assert_eq!(index.remove(topic), Some(topic.len())));
    assert!(index.is_empty());
}
