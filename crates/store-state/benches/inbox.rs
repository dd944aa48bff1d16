//! Time and memory of the inbox machine: messages that are queued and acknowledged, idle inboxes, and
//! loading them.
//!
//! `cargo bench -p herald-store-state --bench inbox`; with `HERALD_BENCH_SMOKE=1` each case runs a few
//! times only.

#![expect(clippy::print_stdout, reason = "a benchmark reports by printing")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mqtt_proto::{MessageBody, QoS, SubscriptionOptions};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use store_state::inbox::{
    Done, InboxDrop, InboxMachine, InboxOp, InboxOutlet, InboxReply, Item, Origin,
    StoredSubscription,
};
use store_state::{Changes, Header, Limits, Machine, Slots, Split, Table, TableError};

/// Counts what is asked for.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[expect(
    unsafe_code,
    reason = "measuring memory takes an allocator, whose trait is unsafe"
)]
// SAFETY: each call is passed on unchanged to the system's allocator; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        ALLOCATIONS.fetch_add(1, Relaxed);
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
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as for `dealloc`; the caller keeps the contract of `size`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const HEADER: Header = Header {
    now_ms: 1_000,
    limits: Limits {
        queue: store_state::QueueLimits {
            messages: 10_000,
            bytes: 1 << 24,
            full: QueueFull::DropNewest,
            is_closed: false,
        },
        qos0: Qos0Inbox::Offline,
        retained_messages: 0,
        retained_bytes: 0,
        classes: store_state::ClassLimits::NONE,
    },
};

/// Messages of a round before they are acknowledged.
const BATCH: usize = 100;

/// Nobody listens.
struct Silence;

impl InboxOutlet for Silence {
    fn queued(&mut self, _: u64, _: u64, _: &Item) {}
    fn dropped(&mut self, _: InboxDrop<'_>) {}
    fn filter(&mut self, _: &str, _: bool, _: bool) {}
    fn member(&mut self, _: &str, _: &str, _: Option<&StoredSubscription>) {}
    fn left_behind(&mut self, _: &str, _: u64) {}
}

/// Tables in memory.
#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

impl Rows {
    fn write(&mut self, changes: Changes) {
        for (key, value) in changes.entries {
            match value {
                Some(value) => self.0.insert(key, value),
                None => self.0.remove(&key),
            };
        }
    }
}

impl Table for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(self.0.get(key).cloned())
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        for (key, value) in self.0.range(from.to_vec()..to.to_vec()) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

struct Shard {
    machine: InboxMachine,
    rows: Rows,
}

impl Shard {
    fn new() -> Self {
        let rows = Rows::default();
        Self {
            machine: InboxMachine::load(Slots::ALL, &rows).expect("empty tables"),
            rows,
        }
    }

    fn apply(&mut self, op: &InboxOp) -> InboxReply {
        self.machine
            .apply(&HEADER, op, &self.rows, &mut Silence)
            .expect("tables in memory")
    }

    /// A session with one subscription.
    fn session(&mut self, client: &str, filter: &str, attached: bool) {
        let (client, epoch): (Box<str>, _) = (client.into(), 1);
        self.apply(&InboxOp::Attach {
            client: client.clone(),
            epoch,
            node: 1,
            node_incarnation: 1,
            resume: false,
        });
        let subscription = StoredSubscription {
            filter: filter.into(),
            options: SubscriptionOptions {
                qos: QoS::AtLeastOnce,
                ..SubscriptionOptions::default()
            },
            id: 0,
        };
        self.apply(&InboxOp::Subscribe {
            session: (&*client).into(),
            epoch,
            subscriptions: vec![subscription],
        });
        if !attached {
            self.apply(&InboxOp::Detach {
                session: (&*client).into(),
                epoch,
                sent: 0,
            });
        }
    }

    /// Applies an operation: into how many parts it falls, and how long they take.
    fn in_parts(&mut self, op: &InboxOp) -> String {
        let (mut parts, mut longest, mut in_all) = (0, Duration::ZERO, Duration::ZERO);
        loop {
            let begin = Instant::now();
            let reply = self
                .machine
                .apply_part(&HEADER, op, &self.rows, &mut Silence)
                .expect("tables in memory");
            let taken = begin.elapsed();
            parts += 1;
            longest = longest.max(taken);
            in_all += taken;
            if reply.is_some() {
                return format!("{parts} parts, the longest {longest:.2?}, all {in_all:.2?}");
            }
        }
    }

    fn checkpoint(&mut self) {
        let mut changes = Changes::default();
        self.machine.collect(&mut changes);
        self.rows.write(changes);
        self.machine.saved();
    }
}

fn publish(topic: &str) -> InboxOp {
    InboxOp::Publish {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new(topic, &[7; 256]),
            qos: QoS::AtLeastOnce,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        }),
        publisher: 0,
        origin: None,
    }
}

fn acknowledge(client: &str, from: u64) -> InboxOp {
    let done: Vec<u64> = (from..).take(BATCH).collect();
    InboxOp::Acknowledge {
        session: client.into(),
        epoch: 1,
        sent: from + BATCH as u64 - 1,
        done: Done(done),
    }
}

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test")
        || std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    one_to_one(if smoke { 10 } else { 10_000 }, if smoke { 2 } else { 100 });
    one_to_many(if smoke { 10 } else { 1_000 }, if smoke { 2 } else { 20 });
    idle(if smoke { 1_000 } else { 1_000_000 });
    parts(if smoke { 1_000 } else { 1_000_000 });
    ends(if smoke { 2_000 } else { 200_000 });
    filters(if smoke { 100 } else { 10_000 });
    split(if smoke { 1_000 } else { 100_000 }, 10);
    split(if smoke { 1_000 } else { 1_000_000 }, 0);
    copies(if smoke { 1_000 } else { 100_000 });
}

/// Each of many sessions has a topic of its own, and its client acknowledges in batches.
fn one_to_one(sessions: usize, rounds: usize) {
    let mut shard = Shard::new();
    let clients: Vec<String> = (0..sessions).map(|n| format!("client-{n}")).collect();
    for (n, client) in clients.iter().enumerate() {
        shard.session(client, &format!("site/dev/{n}"), true);
    }
    // Made outside the measurement: the messages come decoded.
    let publications: Vec<InboxOp> = (0..sessions)
        .map(|n| publish(&format!("site/dev/{n}")))
        .collect();
    let per_client = BATCH / 10;
    let mut publish_ns = f64::INFINITY;
    let mut both_ns = f64::INFINITY;
    for round in 0..rounds as u64 {
        let from = 1 + round * per_client as u64;
        let acknowledgements: Vec<InboxOp> = clients
            .iter()
            .map(|client| {
                let mut op = acknowledge(client, from);
                if let InboxOp::Acknowledge { done, .. } = &mut op {
                    done.0.truncate(per_client);
                }
                op
            })
            .collect();
        let begin = Instant::now();
        for _ in 0..per_client {
            for op in &publications {
                shard.apply(op);
            }
        }
        let published = begin.elapsed();
        for op in &acknowledgements {
            shard.apply(op);
        }
        let messages = (sessions * per_client) as f64;
        publish_ns = publish_ns.min(published.as_nanos() as f64 / messages);
        both_ns = both_ns.min(begin.elapsed().as_nanos() as f64 / messages);
        assert_eq!(shard.machine.counts().messages, 0);
        shard.checkpoint();
    }
    println!(
        "1:1, {sessions} sessions: publish {publish_ns:.0} ns, with acknowledgement {both_ns:.0} ns"
    );
}

/// Each message is for all of many sessions that sleep.
fn one_to_many(sessions: usize, rounds: usize) {
    let mut shard = Shard::new();
    let clients: Vec<String> = (0..sessions).map(|n| format!("client-{n}")).collect();
    for client in &clients {
        shard.session(client, "news", false);
    }
    let op = publish("news");
    let mut publish_ns = f64::INFINITY;
    let mut both_ns = f64::INFINITY;
    let mut allocations = usize::MAX;
    for round in 0..rounds as u64 {
        let acknowledgements: Vec<InboxOp> = clients
            .iter()
            .map(|client| acknowledge(client, 1 + round * BATCH as u64))
            .collect();
        let before = ALLOCATIONS.load(Relaxed);
        let begin = Instant::now();
        for _ in 0..BATCH {
            shard.apply(&op);
        }
        let published = begin.elapsed();
        allocations = allocations.min(ALLOCATIONS.load(Relaxed) - before);
        for op in &acknowledgements {
            shard.apply(op);
        }
        let targets = (sessions * BATCH) as f64;
        publish_ns = publish_ns.min(published.as_nanos() as f64 / targets);
        both_ns = both_ns.min(begin.elapsed().as_nanos() as f64 / targets);
        assert_eq!(shard.machine.counts().messages, 0);
        shard.checkpoint();
    }
    let targets = (sessions * BATCH) as f64;
    println!(
        "1:{sessions}, per session: publish {publish_ns:.0} ns, with acknowledgement {both_ns:.0} ns, \
         {:.3} allocations",
        allocations as f64 / targets
    );
}

/// CPU time of this thread. Others' load does not count; steps of a few milliseconds.
fn cpu() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = schedstat.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or_default())
}

/// Inboxes whose clients sleep, with one subscription and an empty queue.
fn idle(inboxes: usize) {
    let mut shard = Shard::new();
    let begin = cpu();
    for n in 0..inboxes {
        shard.session(
            &format!("client-{n:07}"),
            &format!("site/dev/{n:07}"),
            false,
        );
    }
    let made = cpu() - begin;
    let begin = cpu();
    shard.checkpoint();
    let saved = cpu() - begin;
    let rows = std::mem::take(&mut shard.rows);
    drop(shard);
    let before = LIVE.load(Relaxed);
    let begin = cpu();
    let mut machine = InboxMachine::load(Slots::ALL, &rows).expect("good tables");
    let loaded = cpu() - begin;
    let bytes = (LIVE.load(Relaxed) - before) / inboxes;
    let begin = cpu();
    let (node, incarnation) = (1, 2);
    machine
        .apply(
            &HEADER,
            &InboxOp::NodeUp { node, incarnation },
            &rows,
            &mut Silence,
        )
        .expect("tables in memory");
    let node_up = cpu() - begin;
    println!(
        "{inboxes} idle inboxes: {bytes} bytes each; CPU to make {made:.2?}, save {saved:.2?}, \
         load {loaded:.2?}, for a node's restart {node_up:.2?}"
    );
}

/// A message for all of very many sessions that sleep: how long its parts take.
fn parts(sessions: usize) {
    let mut shard = Shard::new();
    for n in 0..sessions {
        shard.session(&format!("client-{n}"), "news", false);
    }
    shard.checkpoint();
    let op = publish("news");
    // The first has to look for the targets, the second knows them.
    for name in ["first", "second"] {
        let parts = shard.in_parts(&op);
        println!("{name} message for {sessions} sessions that sleep: {parts}");
    }
}

/// A session with a long queue ends, by a request or because its client begins a new one: how long the parts take, and how
/// long if the tables have what is queued.
fn ends(messages: usize) {
    let header = &HEADER;
    let limits = store_state::QueueLimits {
        messages: u32::MAX,
        bytes: u64::MAX,
        ..header.limits.queue
    };
    let header = Header {
        limits: Limits {
            queue: limits,
            ..header.limits.clone()
        },
        ..*header
    };
    let remove = InboxOp::Remove {
        session: "client".into(),
        epoch: 1,
    };
    let anew = InboxOp::Attach {
        client: "client".into(),
        epoch: 2,
        node: 1,
        node_incarnation: 1,
        resume: false,
    };
    for (how, op) in [("removed", &remove), ("begun anew", &anew)] {
        for (place, is_saved) in [("memory", false), ("the tables", true)] {
            let mut shard = Shard::new();
            shard.session("client", "news", false);
            for _ in 0..messages {
                let reply =
                    shard
                        .machine
                        .apply(&header, &publish("news"), &shard.rows, &mut Silence);
                reply.expect("tables in memory");
            }
            if is_saved {
                shard.checkpoint();
            }
            let parts = shard.in_parts(op);
            println!("a session with {messages} messages in {place} is {how}: {parts}");
        }
    }
}

/// A session that has many filters gets as many with one request, which stand before, between and behind the
/// others, and loses them with one.
fn filters(count: usize) {
    let client: store_state::inbox::SessionName = "client".into();
    let subscriptions = |prefix: &str, from: usize| -> Vec<StoredSubscription> {
        (0..count)
            // In an order of its own, as requests have it.
            .map(|n| (n * 7_919) % count)
            .map(|n| StoredSubscription {
                filter: format!("{prefix}/{:07}", 2 * n + from).into(),
                options: SubscriptionOptions::default(),
                id: 0,
            })
            .collect()
    };
    let subscribe = |subscriptions| InboxOp::Subscribe {
        session: client.clone(),
        epoch: 1,
        subscriptions,
    };
    let mut shard = Shard::new();
    shard.session("client", "news", true);
    shard.apply(&subscribe(subscriptions("site", 0)));
    let new = subscriptions("site", 1);
    let unsubscribe = InboxOp::Unsubscribe {
        session: client.clone(),
        epoch: 1,
        filters: new.iter().map(|of| of.filter.clone()).collect(),
    };
    let subscribe = subscribe(new);
    let (mut in_ns, mut out_ns) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..10 {
        let begin = Instant::now();
        shard.apply(&subscribe);
        in_ns = in_ns.min(begin.elapsed().as_nanos() as f64 / count as f64);
        let begin = Instant::now();
        shard.apply(&unsubscribe);
        out_ns = out_ns.min(begin.elapsed().as_nanos() as f64 / count as f64);
    }
    println!(
        "{count} filters of a session that has {count}: subscribe {in_ns:.0} ns, unsubscribe {out_ns:.0} ns each"
    );
}

/// The machine of a shard is cut in half: how long that takes, and what is left to be rebuilt; and what a publication to
/// one session costs before, in between and afterwards.
fn split(inboxes: usize, messages: usize) {
    let mut shard = Shard::new();
    for n in 0..inboxes {
        let (client, filter) = (format!("client-{n}"), format!("site/dev/{n}"));
        shard.session(&client, &filter, false);
    }
    let publications: Vec<InboxOp> = (0..inboxes)
        .step_by(inboxes.div_ceil(20_000))
        .map(|n| publish(&format!("site/dev/{n}")))
        .collect();
    for n in 0..inboxes {
        let op = publish(&format!("site/dev/{n}"));
        for _ in 0..messages {
            shard.apply(&op);
        }
    }
    shard.checkpoint();
    let per_publication = |machine: &mut InboxMachine, rows: &Rows| {
        // The second time, the memory of matches answers.
        [(); 2].map(|()| {
            let begin = Instant::now();
            for op in &publications {
                let reply = machine.apply(&HEADER, op, rows, &mut Silence);
                reply.expect("tables in memory");
            }
            begin.elapsed().as_nanos() / publications.len() as u128
        })
    };
    let Shard { mut machine, rows } = shard;
    let before = per_publication(&mut machine, &rows);
    let begin = Instant::now();
    let mut upper = machine.split_off(1 << 15);
    let taken = begin.elapsed();
    let between = per_publication(&mut machine, &rows);
    println!(
        "split of {inboxes} inboxes with {messages} messages each: {taken:.2?}; a publication to one session takes \
         {before:?} ns before, {between:?} ns in between, the second time in each"
    );
    for (half, machine) in [("lower", &mut machine), ("upper", &mut upper)] {
        let (mut parts, mut longest, mut in_all) = (0, Duration::ZERO, Duration::ZERO);
        loop {
            let begin = Instant::now();
            let is_done = machine.rebuild_part(256, &rows, &mut Silence);
            let is_done = is_done.expect("the table is read");
            let taken = begin.elapsed();
            parts += 1;
            longest = longest.max(taken);
            in_all += taken;
            if is_done {
                break;
            }
        }
        println!(
            "the {half} half rebuilds in {parts} parts, the longest {longest:.2?}, all {in_all:.2?}"
        );
    }
    let after = per_publication(&mut machine, &rows);
    println!("afterwards: {after:?} ns");
}

/// What both halves of a shard that is split have: origins of QoS 2 publications, and fences.
fn copies(publishers: usize) {
    let origin = |n: usize| Origin {
        client: format!("publisher-{n}").as_str().into(),
        incarnation: 1,
        packet_id: 1,
    };
    let message = Arc::new(ApplicationMessage {
        body: MessageBody::new("news", b"x"),
        qos: QoS::ExactlyOnce,
        retain: false,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    });
    let publish = |n| InboxOp::Publish {
        message: Arc::clone(&message),
        publisher: 0,
        origin: Some(origin(n)),
    };
    let release = |n| InboxOp::ReleaseFenced {
        origin: origin(n),
        epoch: 1,
    };
    for (name, op) in [
        ("origins", &publish as &dyn Fn(usize) -> InboxOp),
        ("fences", &release),
    ] {
        let mut shard = Shard::new();
        shard.session("sleeper", "news", false);
        for n in 0..publishers {
            shard.apply(&op(n));
        }
        for (at, is_saved) in [(2, false), (1, true)] {
            if is_saved {
                shard.checkpoint();
            }
            let begin = Instant::now();
            let upper = shard.machine.split_off(at);
            let taken = begin.elapsed();
            drop(upper);
            println!("split with {publishers} {name}, saved: {is_saved}: {taken:.2?}");
        }
    }
}
