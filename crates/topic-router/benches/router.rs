//! Time and memory of the router and the retained index at a million entries.
//!
//! `cargo bench -p topic-router` prints the figures; with `--test`, or `HERALD_BENCH_SMOKE=1` in the
//! environment, a thousand entries only prove that it runs. Times are means over topics in random order,
//! so they include the cache misses of a large table.

#![expect(clippy::print_stdout, reason = "a benchmark reports by printing")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use topic_router::{RetainedIndex, Router};

/// Counts the bytes that are asked for.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[expect(
    unsafe_code,
    reason = "measuring memory takes an allocator, whose trait is unsafe"
)]
// SAFETY: each call is passed on unchanged to the system's allocator; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `memory` came from `System` through `alloc` or `realloc` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size, Relaxed);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as for `dealloc`; the caller keeps the contract of `size`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

type Options = [u32; 2];

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test")
        || std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    let n = if smoke { 1_000 } else { 1_000_000 };
    println!(
        "{n} filters, receiver and options of 8 bytes each; ns are means, match includes its callback\n"
    );
    println!(
        "{:<26} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "filters",
        "B/filter",
        "bytes()",
        "max ins",
        "insert",
        "remove",
        "match 0",
        "match 1",
        "1,000"
    );
    router(
        n,
        |i| format!("site/{:03}/dev/{i:07}", i % 1000),
        |i| format!("site/{:03}/dev/{i:07}", i % 1000),
    );
    router(
        n,
        |i| format!("dev/+/{i:07}/x"),
        |i| format!("dev/abc/{i:07}/x"),
    );
    router(
        n,
        |i| format!("dev/{i:07}/#"),
        |i| format!("dev/{i:07}/state/x"),
    );
    fan_out(if smoke { 1_000 } else { 100_000 });
    retained(n);
}

/// 0 … n - 1 in an order without pattern.
fn scattered(n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(move |i| i * 7_368_787 % n)
}

fn each(time: Duration, n: u64) -> f64 {
    time.as_nanos() as f64 / n as f64
}

fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// ns per match, after a check that each topic reaches as many receivers as it should.
fn match_time(router: &Router<u64, Options>, topics: &[String], expected: u64) -> f64 {
    let (took, found) = time(|| {
        let (mut found, mut sum) = (0u64, 0u64);
        for topic in topics {
            router.for_each_match(topic, |receiver, options| {
                found += 1;
                sum = sum.wrapping_add(receiver ^ u64::from(options[0]));
            });
        }
        black_box(sum);
        found
    });
    assert_eq!(found, expected * topics.len() as u64);
    each(took, topics.len() as u64)
}

fn router(n: u64, filter: impl Fn(u64) -> String, topic: impl Fn(u64) -> String) {
    let filters: Vec<String> = scattered(n).map(&filter).collect();
    let (name, hot) = (filter(0), filter(n + 1));
    let before = LIVE.load(Relaxed);
    let mut router = Router::with_seed(0x5EED);
    let mut longest = Duration::ZERO;
    let (insert, ()) = time(|| {
        for (receiver, filter) in filters.iter().enumerate() {
            let start = Instant::now();
            router.insert(filter, receiver as u64, [1; 2]);
            longest = longest.max(start.elapsed());
        }
    });
    let (bytes, accounted) = (LIVE.load(Relaxed) - before, router.bytes());
    let hits: Vec<String> = scattered(n).map(|i| topic((i * 31 + 7) % n)).collect();
    // One level differs, at the place that decides.
    let misses: Vec<String> = scattered(n).map(|i| topic(i + 2_000_000)).collect();
    let one = match_time(&router, &hits, 1);
    let none = match_time(&router, &misses, 0);
    (0..1000).for_each(|receiver| {
        black_box(router.insert(&hot, receiver, [1; 2]));
    });
    let thousand = match_time(
        &router,
        &vec![topic(n + 1); (n as usize / 100).max(10)],
        1000,
    );
    (0..1000).for_each(|receiver| {
        black_box(router.remove(&hot, &receiver));
    });
    let (remove, ()) = time(|| {
        for (receiver, filter) in filters.iter().enumerate() {
            router.remove(filter, &(receiver as u64));
        }
    });
    assert_eq!(
        LIVE.load(Relaxed) - before - kept(&hits) - kept(&misses),
        0,
        "removal of all frees all"
    );
    println!(
        "{name:<26} {:>8.1} {:>8.1} {:>6.1} ms {:>8.0} {:>8.0} {none:>8.0} {one:>8.0} {thousand:>8.0}",
        bytes as f64 / n as f64,
        accounted as f64 / n as f64,
        longest.as_secs_f64() * 1e3,
        each(insert, n),
        each(remove, n),
    );
}

/// Heap memory of a list of names.
fn kept(names: &Vec<String>) -> usize {
    names.capacity() * size_of::<String>() + names.iter().map(String::capacity).sum::<usize>()
}

fn fan_out(n: u64) {
    let before = LIVE.load(Relaxed);
    let mut router = Router::with_seed(0x5EED);
    let (insert, ()) = time(|| {
        scattered(n).for_each(|i| {
            black_box(router.insert("news", i, [1; 2]));
        })
    });
    let bytes = LIVE.load(Relaxed) - before;
    let rounds = vec!["news".to_owned(); 100];
    let matching = match_time(&router, &rounds, n);
    let (remove, ()) = time(|| {
        scattered(n).for_each(|i| {
            black_box(router.remove("news", &i));
        })
    });
    println!(
        "\none filter, {n} receivers: {:.1} B/receiver, insert {:.0} ns, remove {:.0} ns, match {:.2} ns/receiver",
        bytes as f64 / n as f64,
        each(insert, n),
        each(remove, n),
        matching / n as f64,
    );
}

fn retained(n: u64) {
    let topics: Vec<String> = scattered(n)
        .map(|i| format!("a/{:07}/{}", i / 4, char::from(b'a' + (i % 4) as u8)))
        .collect();
    let before = LIVE.load(Relaxed);
    let mut index = RetainedIndex::new();
    let (insert, ()) = time(|| {
        topics.iter().zip(0u64..).for_each(|(topic, value)| {
            black_box(index.insert(topic, value));
        });
    });
    let (bytes, accounted) = (LIVE.load(Relaxed) - before, index.bytes());
    let (get, found) = time(|| {
        topics
            .iter()
            .rev()
            .filter(|topic| index.get(topic).is_some())
            .count() as u64
    });
    assert_eq!(found, n);
    let (mut pages, mut found, mut cursor) = (0, 0, None);
    let (paging, ()) = time(|| {
        loop {
            let (mut work, mut left) = (usize::MAX, 100);
            cursor = index.page("a/+/c", cursor.as_ref(), &mut work, |_, value| {
                found += u64::from(*value < n);
                left -= 1;
                match left {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            });
            pages += 1;
            if cursor.is_none() {
                break;
            }
        }
    });
    assert_eq!(found, n / 4);
    let mut work = usize::MAX;
    let (looking, next) =
        time(|| index.page("a/+/z", None, &mut work, |_, _| ControlFlow::Continue(())));
    assert!(next.is_none());
    let worked = (usize::MAX - work) as u64;
    let (remove, ()) = time(|| {
        topics.iter().for_each(|topic| {
            black_box(index.remove(topic));
        })
    });
    assert_eq!(LIVE.load(Relaxed), before, "removal of all frees all");
    println!(
        "{n} retained topics like {}: {:.1} B/topic (bytes() {:.1}), insert {:.0} ns, get {:.0} ns, \
         page of 100 over a/+/c {:.0} ns, a/+/z {:.1} ns per work, remove {:.0} ns",
        topics[0],
        bytes as f64 / n as f64,
        accounted as f64 / n as f64,
        each(insert, n),
        each(get, n),
        each(paging, pages),
        each(looking, worked),
        each(remove, n),
    );
}
