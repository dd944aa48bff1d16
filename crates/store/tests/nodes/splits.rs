//! A shard is split while it is used.

use std::path::Path;
use std::sync::atomic::Ordering;

use store::SplitError;
use store_state::NameHash;
use store_state::api::{RetainedPlace, Store as _, StoreId};
use store_state::inbox::{InboxOp, InboxReply, Origin};
use store_state::retain::RetainReply;

use crate::node::{Node, RetainedMessages, message, survey, until};
use crate::restart::copy_folder;

pub(crate) const AT: u16 = 30_000;

/// Asks a node for a split.
pub(crate) fn try_split(
    node: &Node,
    store: StoreId,
    shard: u16,
    at: u16,
) -> Result<(), SplitError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let split = node.store.splits().split(store, shard, at);
    runtime.unwrap().block_on(split)
}

/// The same, when the last split is over.
pub(crate) fn split(node: &Node, store: StoreId, shard: u16, at: u16) -> Result<(), SplitError> {
    let mut outcome = try_split(node, store, shard, at);
    until("the last split to be over", || {
        if matches!(outcome, Err(SplitError::Unfinished { .. })) {
            outcome = try_split(node, store, shard, at);
        }
        !matches!(outcome, Err(SplitError::Unfinished { .. }))
    });
    outcome
}

/// The formats of a data folder before a shard was split in it, and since.
pub(crate) const FORMAT_BEFORE: &str = "heraldmq data folder, format 2";
pub(crate) const FORMAT_SINCE: &str = "heraldmq data folder, format 3";

pub(crate) fn format(at: &Path) -> String {
    let text = std::fs::read_to_string(at.join("FORMAT")).unwrap();
    text.lines().next().unwrap().to_owned()
}

fn numbers(node: &Node) -> Vec<u16> {
    let shards = node.store.inbox_shards();
    shards.iter().map(|shard| shard.number).collect()
}

/// Names on both sides of a split.
pub(crate) fn names() -> Vec<String> {
    let names: Vec<String> = (0..40).map(|n| format!("name-{n}")).collect();
    let is_upper = |name: &&String| NameHash::default().slot_of(name) >= AT;
    let upper = names.iter().filter(is_upper).count();
    assert!((5..35).contains(&upper));
    names
}

/// Each session is away, and has been given what was published for it and for all.
pub(crate) fn fill(node: &Node, names: &[String]) {
    for name in names {
        node.sleeper(name, name);
        let epoch = node.connect(name).0;
        node.subscribe(name, epoch, "all");
        node.detach(name, epoch);
    }
    for name in names {
        assert_eq!(node.publish(name, b"own"), Ok(1));
    }
    assert_eq!(node.publish("all", b"before"), Ok(40));
}

/// Each session is there, with all of its messages in order.
pub(crate) fn check(node: &Node, names: &[String], payloads: &[&[u8]]) {
    for name in names {
        let (epoch, attached) = node.connect(name);
        assert!(attached.present, "{name}");
        let filters: Vec<_> = attached.subscriptions.iter().map(|s| &*s.filter).collect();
        assert!(
            filters == ["all", name] || filters == [name.as_str(), "all"],
            "{filters:?}"
        );
        let first = attached.first;
        let read = node.read(name, &(epoch, attached), payloads.len());
        assert_eq!(read, payloads, "{name} from {first}");
        node.detach(name, epoch);
    }
}

pub(crate) fn has_tables(at: &Path, shard: u16) -> bool {
    at.join(format!("inbox/shard-{shard:016x}")).is_dir()
}

#[test]
fn sessions_and_their_messages_are_in_one_of_both_halves() {
    let at = tempfile::tempdir().unwrap();
    let names = names();
    let node = Node::start(at.path(), 1);
    fill(&node, &names);
    assert_eq!(split(&node, StoreId::Inbox, 0, AT), Ok(()));
    assert_eq!(split(&node, StoreId::Session, 0, AT), Ok(()));
    assert_eq!(numbers(&node), [0, AT]);
    assert_eq!(node.publish("all", b"after"), Ok(40));
    check(&node, &names, &[b"own", b"before", b"after"]);
    // The halves are split again.
    until("the child to be split", || {
        split(&node, StoreId::Inbox, AT, 50_000).is_ok()
    });
    assert_eq!(split(&node, StoreId::Inbox, 0, 10_000), Ok(()));
    assert_eq!(numbers(&node), [0, 10_000, AT, 50_000]);
    assert_eq!(node.publish("all", b"last"), Ok(40));
    let all: [&[u8]; 4] = [b"own", b"before", b"after", b"last"];
    check(&node, &names, &all);
    node.stop();

    let node = Node::start(at.path(), 1);
    assert_eq!(numbers(&node), [0, 10_000, AT, 50_000]);
    check(&node, &names, &all);
    until("each has tables", || {
        [10_000, AT, 50_000]
            .iter()
            .all(|shard| has_tables(at.path(), *shard))
    });
    node.stop();
    let found = survey(at.path());
    assert_eq!(found.findings, []);
    let ranges = found.stores[1].shards.iter();
    let ranges: Vec<_> = ranges
        .map(|shard| (shard.first_slot, shard.last_slot))
        .collect();
    assert_eq!(
        ranges,
        [
            (0, 9_999),
            (10_000, AT - 1),
            (AT, 49_999),
            (50_000, u16::MAX)
        ]
    );
    let node = Node::start(at.path(), 1);
    check(&node, &names, &all);
    node.stop();
}

#[test]
fn a_split_that_is_impossible_or_late_does_nothing() {
    let at = tempfile::tempdir().unwrap();
    let at_path = at.path();
    let node = Node::start(at_path, 2);
    node.sleeper("ann", "a");
    for (shard, at) in [(0, 0), (0, 1), (0, 32_768), (1, 32_768), (1, 7), (5, 9)] {
        assert!(
            split(&node, StoreId::Inbox, shard, at).is_err(),
            "{shard} at {at}"
        );
    }
    assert_eq!(numbers(&node), [0, 1]);
    assert_eq!(format(at_path), FORMAT_BEFORE);
    assert_eq!(split(&node, StoreId::Inbox, 1, 40_000), Ok(()));
    assert_eq!(format(at_path), FORMAT_SINCE);
    assert!(
        split(&node, StoreId::Inbox, 1, 40_000).is_err(),
        "a second time"
    );
    assert!(
        split(&node, StoreId::Inbox, 1, 50_000).is_err(),
        "it has the slot no more"
    );
    assert_eq!(numbers(&node), [0, 1, 40_000]);
    assert_eq!(node.publish("a", b"x"), Ok(1));
    node.stop();
}

/// Publications that are on their way while the shard is split arrive once each, in their order.
#[test]
fn what_is_on_its_way_arrives_once_and_in_order() {
    let at = tempfile::tempdir().unwrap();
    let names = names();
    let node = Node::start(at.path(), 1);
    for name in &names {
        node.sleeper(name, "all");
    }
    let whole = node.first_shard();
    let publish = |n: u32| {
        // Routed by what was known before all splits.
        let correlation_id = node.correlation_id();
        let op = InboxOp::Publish {
            message: message("all", &n.to_be_bytes()),
            publisher: 0,
            origin: Some(Origin {
                client: "publisher".into(),
                incarnation: 1,
                packet_id: 1 + n as u16,
            }),
        };
        node.store.inboxes(whole, correlation_id, op);
        correlation_id
    };
    let mut waiting = Vec::new();
    for n in 0..600 {
        waiting.push(publish(n));
        if n % 150 == 100 {
            let at = 10_000 + (n as u16) * 50;
            let shard = node.store.inbox_shard(store_state::api::Slot(at));
            // A shard that has just been split off may not serve yet.
            until("the shard to be split", || {
                split(&node, StoreId::Inbox, shard, at).is_ok()
            });
        }
    }
    for correlation_id in waiting {
        match node.inbox_reply(correlation_id) {
            Ok(InboxReply::Published { matched: 40, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(numbers(&node).len(), 5);
    let expected: Vec<Vec<u8>> = (0..100_u32).map(|n| n.to_be_bytes().to_vec()).collect();
    for name in &names {
        let (epoch, attached) = node.connect(name);
        let read = node.read(name, &(epoch, attached), 100);
        assert_eq!(read, expected, "{name}");
    }
    node.stop();
}

/// A thousand topics, each with a retained message.
pub(crate) fn retain_many(node: &Node) -> Vec<String> {
    let mut topics: Vec<String> = (0..1_000).map(|n| format!("t/{}/{n}", n % 30)).collect();
    let given: Vec<_> = topics
        .iter()
        .map(|topic| node.give_retained(topic, b"x"))
        .collect();
    for correlation_id in given {
        assert_eq!(node.retain_reply(correlation_id), Ok(RetainReply::Done));
    }
    topics.sort();
    topics
}

/// A replay of retained messages, page by page.
#[derive(Default)]
pub(crate) struct Replay {
    found: Vec<String>,
    /// Where it goes on, as it is kept for a session.
    place: Option<Box<[u8]>>,
}

impl Replay {
    fn place(&self) -> Option<RetainedPlace> {
        let place = self.place.as_ref();
        place.map(|place| RetainedPlace::from_bytes(place).unwrap())
    }

    /// False: it was the last page.
    fn took(&mut self, (messages, next): RetainedMessages) -> bool {
        let topics = messages.iter().map(|message| message.body.topic());
        self.found.extend(topics.map(str::to_owned));
        self.place = next.map(|place| place.to_bytes());
        self.place.is_some()
    }

    fn look(&mut self, node: &Node) -> bool {
        self.took(node.look_retained("t/#", self.place(), 25))
    }

    pub(crate) fn ask(&mut self, node: &Node) -> bool {
        let place = self.place();
        let shard = node.store.retained_shard("t/#", place.as_ref());
        self.took(node.ask_retained(shard, "t/#", place, 25))
    }

    pub(crate) fn has_each_once(&self, topics: &[String]) {
        let mut found = self.found.clone();
        found.sort();
        assert_eq!(found.len(), topics.len());
        assert_eq!(found, topics);
    }
}

/// Also by a node that starts anew in between, from the place that was kept.
#[test]
fn retained_messages_are_replayed_once_each_while_their_shards_are_split() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    let topics = retain_many(&node);
    let [mut looked, mut asked] = [Replay::default(), Replay::default()];
    let pages = |node: &Node, looked: &mut Replay, asked: &mut Replay, count| {
        for _ in 0..count {
            assert!(looked.look(node) && asked.ask(node));
        }
    };
    pages(&node, &mut looked, &mut asked, 6);
    assert_eq!(split(&node, StoreId::Retain, 0, AT), Ok(()));
    // At once, as the child may not serve yet.
    pages(&node, &mut looked, &mut asked, 6);
    until("the child to be split", || {
        split(&node, StoreId::Retain, AT, 50_000).is_ok()
    });
    assert_eq!(split(&node, StoreId::Retain, 0, 10_000), Ok(()));
    pages(&node, &mut looked, &mut asked, 6);
    node.stop();
    let node = Node::start(at.path(), 1);
    pages(&node, &mut looked, &mut asked, 1);
    while looked.look(&node) {}
    while asked.ask(&node) {}
    looked.has_each_once(&topics);
    asked.has_each_once(&topics);
    node.stop();
}

#[test]
fn a_question_for_retained_messages_finds_the_shard_that_has_them_by_now() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    let topics = retain_many(&node);
    let is_upper = |topic: &&String| NameHash::default().slot_of(topic) >= AT;
    let upper = topics.iter().find(is_upper).unwrap();
    assert_eq!(split(&node, StoreId::Retain, 0, AT), Ok(()));
    // Of the shard that had it before.
    let (messages, _) = node.ask_retained(0, upper, None, 5);
    assert_eq!(messages[0].body.topic(), upper);
    let (messages, _) = node.look_retained(upper, None, 5);
    assert_eq!(messages[0].body.topic(), upper);
    node.stop();
}

#[test]
fn the_halves_of_a_retain_shard_share_what_it_may_keep() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    node.told.retained_messages.store(100, Ordering::Relaxed);
    let mut topics = (0..).map(|n| format!("t{n}"));
    let mut fill = |count: usize| {
        let topics = topics.by_ref().take(count);
        let kept = topics.filter(|topic| node.retain(topic, b"x") == Ok(RetainReply::Done));
        kept.count()
    };
    assert_eq!(fill(60), 60);
    assert_eq!(split(&node, StoreId::Retain, 0, 1 << 15), Ok(()));
    // Until both halves are full.
    assert_eq!(fill(200), 40);
    let of = |is_upper: bool| {
        let kept = node.retained();
        let slots = kept
            .iter()
            .map(|(topic, _)| NameHash::default().slot_of(topic));
        slots.filter(|slot| (*slot >= 1 << 15) == is_upper).count()
    };
    assert_eq!([of(false), of(true)], [50, 50]);
    node.stop();
}

/// What the disk has if the process dies now.
fn crash(at: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(at, copy.path());
    copy
}

/// Programs that know of no splits refuse the folder before it has anything that they would misread.
#[test]
fn nothing_is_split_before_the_format_of_the_folder_says_so() {
    let at = tempfile::tempdir().unwrap();
    let names = names();
    let node = Node::start(at.path(), 1);
    fill(&node, &names);
    let in_the_way = at.path().join("FORMAT.new");
    std::fs::create_dir(&in_the_way).unwrap();
    assert_eq!(format(at.path()), FORMAT_BEFORE);
    std::thread::scope(|scope| {
        let splitting = scope.spawn(|| split(&node, StoreId::Inbox, 0, AT));
        until("the entry to be in the log", || {
            let copy = crash(at.path());
            std::fs::remove_dir(copy.path().join("FORMAT.new")).unwrap();
            let again = Node::start(copy.path(), 1);
            let is_split = numbers(&again) == [0, AT];
            let expected = if is_split {
                FORMAT_SINCE
            } else {
                FORMAT_BEFORE
            };
            assert_eq!(format(copy.path()), expected);
            check(&again, &names, &[b"own", b"before"]);
            again.stop();
            is_split
        });
        assert_eq!(numbers(&node), [0]);
        assert_eq!(format(at.path()), FORMAT_BEFORE);
        assert!(!has_tables(at.path(), AT));
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(splitting.join().unwrap(), Ok(()));
    });
    assert_eq!(node.publish("all", b"after"), Ok(40));
    assert_eq!(format(at.path()), FORMAT_SINCE);
    check(&node, &names, &[b"own", b"before", b"after"]);
    node.stop();
}

#[test]
fn a_crash_before_the_child_has_tables_has_it_born_again_with_its_own_log() {
    let at = tempfile::tempdir().unwrap();
    let names = names();
    let node = Node::start(at.path(), 1);
    fill(&node, &names);
    // No table of the child can be made.
    let in_the_way = format!("inbox/seeding-shard-{AT:016x}");
    std::fs::write(at.path().join(&in_the_way), b"").unwrap();
    assert_eq!(split(&node, StoreId::Inbox, 0, AT), Ok(()));
    let (store, child) = (StoreId::Inbox, AT);
    for (other, shard) in [(StoreId::Inbox, 0), (StoreId::Session, 0)] {
        let refused = Err(SplitError::Unfinished { store, child });
        assert_eq!(try_split(&node, other, shard, 7_000), refused);
    }
    let payloads: [&[u8]; 3] = [b"own", b"before", b"after"];
    assert_eq!(node.publish("all", b"after"), Ok(40));
    check(&node, &names, &payloads);
    for _ in 0..2 {
        assert!(!has_tables(at.path(), AT));
        let copy = crash(at.path());
        std::fs::remove_file(copy.path().join(&in_the_way)).unwrap();
        let again = Node::start(copy.path(), 1);
        assert_eq!(numbers(&again), [0, AT]);
        check(&again, &names, &payloads);
        assert_eq!(again.publish("all", b"then"), Ok(40));
        let more: [&[u8]; 4] = [b"own", b"before", b"after", b"then"];
        check(&again, &names, &more);
        again.stop();
        assert_eq!(survey(copy.path()).findings, []);
        let again = Node::start(copy.path(), 1);
        check(&again, &names, &more);
        again.stop();
    }
    // The parent keeps in its log what the child begins with.
    let found = survey(crash(at.path()).path());
    assert_eq!(found.stores[1].shards[1].checkpoint, None);
    assert!(found.stores[1].shards[0].log.unwrap().replay_entries > 0);
    // An end in order changes nothing of that.
    std::fs::remove_file(at.path().join(&in_the_way)).unwrap();
    until("the child to have tables", || has_tables(at.path(), AT));
    node.stop();
    let node = Node::start(at.path(), 1);
    check(&node, &names, &payloads);
    node.stop();
}

#[test]
fn a_crash_when_the_child_has_tables_and_the_parent_no_checkpoint_splits_it_once() {
    let at = tempfile::tempdir().unwrap();
    let names = names();
    let node = Node::start(at.path(), 1);
    fill(&node, &names);
    assert_eq!(split(&node, StoreId::Inbox, 0, AT), Ok(()));
    until("the child to have tables", || has_tables(at.path(), AT));
    assert_eq!(node.publish("all", b"after"), Ok(40));
    let copy = crash(at.path());
    let payloads: [&[u8]; 3] = [b"own", b"before", b"after"];
    let again = Node::start(copy.path(), 1);
    assert_eq!(numbers(&again), [0, AT]);
    check(&again, &names, &payloads);
    assert_eq!(again.publish("all", b"then"), Ok(40));
    again.stop();
    assert_eq!(survey(copy.path()).findings, []);
    node.stop();
}

/// Shared messages that the tables of an inbox shard have.
fn bodies(at: &Path, shard: u16) -> u64 {
    let found = survey(at);
    assert_eq!(found.findings, []);
    let mut shards = found.stores[1].shards.iter();
    let shard = shards.find(|of| of.number == shard).unwrap();
    let rows = shard
        .rows
        .iter()
        .find(|rows| rows.kind == "shared messages");
    rows.map_or(0, |rows| rows.rows)
}

/// Both halves have the messages that sessions of both had; each lets go of them when its own sessions have taken them.
#[test]
fn messages_that_only_the_other_half_has_queued_take_no_space() {
    let at = tempfile::tempdir().unwrap();
    let names = names();
    let node = Node::start(at.path(), 1);
    fill(&node, &names);
    assert_eq!(split(&node, StoreId::Inbox, 0, AT), Ok(()));
    let is_upper = |name: &&String| NameHash::default().slot_of(name) >= AT;
    for name in names.iter().filter(is_upper) {
        let (epoch, attached) = node.connect(name);
        let all = attached.first..attached.first + 2;
        node.acknowledge(name, epoch, all.collect());
        node.detach(name, epoch);
    }
    node.stop();
    // Those that sessions of the other half refer to are found some time after the start.
    until("the messages to be gone", || {
        Node::start(at.path(), 1).stop();
        bodies(at.path(), AT) == 0
    });
    assert_eq!(bodies(at.path(), 0), 1);
    let node = Node::start(at.path(), 1);
    let lower: Vec<_> = names
        .iter()
        .filter(|name| !is_upper(name))
        .cloned()
        .collect();
    check(&node, &lower, &[b"own", b"before"]);
    node.stop();
}
