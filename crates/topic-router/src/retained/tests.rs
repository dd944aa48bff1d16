use super::*;

/// All that a filter selects, in pages of `limit`.
fn all<M: Copy>(index: &RetainedIndex<M>, filter: &str, limit: usize) -> Vec<(String, M)> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let (mut work, mut left) = (1_000, limit);
        cursor = index.page(filter, cursor.as_ref(), &mut work, |topic, m| {
            found.push((topic.to_owned(), *m));
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
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
    let (mut found, mut work) = (0, 1_000);
    let next = index.page("a/+/c", None, &mut work, |_, _| {
        found += 1;
        ControlFlow::Continue(())
    });
    assert!(next.is_none() && work > 0, "{work} left");
    assert_eq!(found, 5);
}

#[test]
fn a_page_without_matches_ends_when_its_work_is_used_up() {
    let mut index = RetainedIndex::new();
    (0..10_000).for_each(|i| assert_eq!(index.insert(&format!("a/{i}/b"), ()), None));
    let (mut pages, mut used, mut cursor) = (0, 0, None);
    loop {
        let mut work = 500;
        cursor = index.page("+/+/z", cursor.as_ref(), &mut work, |_, ()| {
            panic!("nothing matches")
        });
        used += 500 - 8 - work;
        pages += 1;
        if cursor.is_none() {
            break;
        }
        assert_eq!(work, 0);
    }
    // Each topic once; and some are read again where a page begins.
    assert!((10_000..12_000).contains(&used), "{used}");
    assert!((20..=24).contains(&pages), "{pages}");
}

#[test]
fn a_page_reads_one_topic_at_least() {
    let mut index = RetainedIndex::new();
    (0..100).for_each(|i| assert_eq!(index.insert(&format!("a/{i}/b"), ()), None));
    let (mut pages, mut cursor) = (0, None);
    loop {
        let mut work = 0;
        cursor = index.page("+/+/z", cursor.as_ref(), &mut work, |_, ()| {
            panic!("nothing matches")
        });
        pages += 1;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, 101);
}

#[test]
fn long_topics_are_more_work_than_short_ones() {
    let mut index = RetainedIndex::new();
    let long = "x".repeat(6_400);
    (0..10).for_each(|i| assert_eq!(index.insert(&format!("{i}{long}/b"), ()), None));
    let mut work = 10_000;
    let next = index.page("+/z", None, &mut work, |_, ()| panic!("nothing matches"));
    assert!(next.is_none());
    assert!(work < 10_000 - 10 * 100, "{work} left");
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
fn a_cut_leaves_chunks_and_memory_right_in_both_halves() {
    let name = |i: u32| match i % 500 {
        // Some that fill a chunk alone, or with few others.
        0 => format!("site/{}", "x/".repeat(i as usize % 30_000)) + &i.to_string(),
        _ => format!("site/{}/dev/{i}/temp", i % 7),
    };
    let n = 20_000;
    for share in [0, 1, 10, 19, 20] {
        let mut index = RetainedIndex::new();
        (0..n).for_each(|i| assert_eq!(index.insert(&name(i), i), None));
        let bytes = index.bytes();
        let leaves = |i: u32| i * 7919 % 20 < share;
        let leaving: Vec<String> = (0..n).filter(|i| leaves(*i)).map(name).collect();
        let leaving: std::collections::HashSet<String> = leaving.into_iter().collect();
        let mut asked = Vec::new();
        let mut other = index.split_off(|topic| {
            asked.push(order::of_topic(topic));
            leaving.contains(topic)
        });
        assert!(asked.len() == n as usize && asked.is_sorted());
        assert_eq!(index.len() + other.len(), n as usize);
        assert!(index.bytes() + other.bytes() <= bytes + bytes / 10);
        for (half, is_own) in [(&mut index, false), (&mut other, true)] {
            let heap = |half: &RetainedIndex<u32>| -> usize {
                let chunks = half.chunks.iter();
                let of =
                    |(bound, chunk): (&Text, &Chunk<u32>)| bound.heap_bytes() + chunk.heap_bytes();
                chunks.map(of).sum()
            };
            assert_eq!(half.heap, heap(half));
            assert!(half.chunks.values().all(|chunk| !chunk.is_over()));
            let own: Vec<u32> = (0..n).filter(|i| leaves(*i) == is_own).collect();
            assert_eq!((half.len(), half.is_empty()), (own.len(), own.is_empty()));
            assert_eq!(half.bytes() == 0, own.is_empty());
            let mut values: Vec<u32> = half.values().copied().collect();
            values.sort_unstable();
            assert_eq!(values, own);
            for i in 0..n {
                let is_here = leaves(i) == is_own;
                assert_eq!(half.get(&name(i)), is_here.then_some(&i));
            }
            for i in &own {
                assert_eq!(half.insert(&format!("{}/more", name(*i)), *i), None);
                assert_eq!(half.remove(&name(*i)), Some(*i));
            }
            assert_eq!(half.heap, heap(half));
            assert_eq!(all(half, "#", 50).len(), own.len());
            for i in own {
                assert_eq!(half.remove(&format!("{}/more", name(i))), Some(i));
            }
            assert_eq!((half.len(), half.bytes()), (0, 0));
        }
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
