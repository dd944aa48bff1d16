//! What is given of retained messages while shards are split, without any thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{Qos0Inbox, QueueFull};
use proptest::prelude::*;
use proptest::sample::Index;
use store_state::retain::{RetainMachine, RetainOp};
use store_state::{Header, Limits, Machine, Slots, Split, Table, TableError};

use super::*;

const HASH: NameHash = NameHash::with_seed(3);

fn base(shards: u16) -> ShardMap {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("SHARDS"), format!("{shards}\n")).unwrap();
    ShardMap::open(folder.path(), 1, HASH).unwrap()
}

fn message(topic: &str) -> Arc<ApplicationMessage> {
    Arc::new(ApplicationMessage {
        body: MessageBody::new(topic, b"x"),
        qos: QoS::AtMostOnce,
        retain: true,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    })
}

fn wanted(selections: Vec<Selection>, limit: u32) -> Wanted {
    Wanted {
        selections,
        limit,
        now_ms: 0,
    }
}

/// A table with nothing in it.
struct NoRows;

impl Table for NoRows {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(None)
    }

    fn range(
        &self,
        _: &[u8],
        _: &[u8],
        _: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        Ok(())
    }
}

/// The retain shards of a store, and which of them a node knows that asks them.
struct Cluster {
    base: ShardMap,
    /// By their first slots.
    shards: BTreeMap<u16, (SlotRange, RetainMachine)>,
    known: BTreeSet<u16>,
}

impl Cluster {
    fn new(base: ShardMap) -> Self {
        let ranges = (0..base.len()).map(|number| base.range(number));
        let machine = |range| {
            let slots = Slots {
                range,
                hash: HASH,
                level: store_state::Level::NEWEST,
            };
            RetainMachine::load(slots, &NoRows).unwrap()
        };
        let shards: BTreeMap<_, _> = ranges
            .map(|range| (range.first, (range, machine(range))))
            .collect();
        Self {
            known: shards.keys().copied().collect(),
            base,
            shards,
        }
    }

    fn retain(&mut self, topic: &str) {
        let (_, (_, machine)) = self
            .shards
            .range_mut(..=HASH.slot_of(topic))
            .next_back()
            .unwrap();
        let header = Header {
            now_ms: 0,
            limits: Limits {
                queue: store_state::QueueLimits {
                    messages: 0,
                    bytes: 0,
                    full: QueueFull::REFUSE,
                    is_closed: false,
                },
                qos0: Qos0Inbox::Never,
                retained_messages: u64::MAX,
                retained_bytes: u64::MAX,
                classes: store_state::ClassLimits::NONE,
            },
        };
        let message = message(topic);
        let op = RetainOp::Set { message };
        machine.apply(&header, &op, &NoRows, &mut ()).unwrap();
    }

    fn split(&mut self, at: u16) {
        let (_, (range, machine)) = self.shards.range_mut(..=at).next_back().unwrap();
        if range.first == at {
            return;
        }
        let upper = SlotRange {
            first: at,
            last: range.last,
        };
        range.last = at - 1;
        let child = machine.split_off(at);
        self.shards.insert(at, (upper, child));
    }

    /// The next pages of these filters, of so many messages at most, as the node asks for them.
    fn ask(&mut self, filters: &[(&str, Option<RetainedPlace>)], limit: u32) -> Vec<RetainedPage> {
        let selections = filters
            .iter()
            .map(|(filter, from)| Selection::new(filter, from.clone(), self.base));
        let wanted = wanted(selections.collect(), limit);
        loop {
            let slot = wanted.first_slot(self.base).unwrap();
            let number = self.known.range(..=slot).next_back().unwrap();
            let (own, machine) = &self.shards[number];
            let pages = wanted.pages(self.base, *own, |filter, cursor, budget| {
                Some(machine.page(filter, cursor, budget, wanted.now()))
            });
            match pages {
                Ok(pages) => return pages,
                Err(NoPage::SplitOff(last)) => {
                    assert!(self.known.insert(last.0 + 1), "it was known");
                }
                Err(NoPage::Misrouted) => panic!("slot {slot} of {own:?}"),
            }
        }
    }
}

fn topics(pages: &[RetainedPage]) -> Vec<String> {
    let messages = pages.iter().flat_map(|page| &page.messages);
    let topics = messages.map(|message| message.0.body.topic().to_owned());
    topics.collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// Of so many messages at most.
    Page(u32),
    Split(Index),
    /// The node hears of a shard.
    Learn(Index),
    /// Another node goes on, which has heard of no split.
    MoveOn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..6_u32).prop_map(Step::Page),
        2 => any::<Index>().prop_map(Step::Split),
        1 => any::<Index>().prop_map(Step::Learn),
        1 => Just(Step::MoveOn),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn each_topic_is_given_once_whenever_shards_are_split(
        shards in 1..4_u16,
        steps in steps(),
    ) {
        let base = base(shards);
        let mut cluster = Cluster::new(base);
        let mut expected: Vec<String> = (0..80).map(|n| format!("t/{}/{n}", n % 7)).collect();
        expected.iter().for_each(|topic| cluster.retain(topic));
        let (mut place, mut is_over, mut found) = (None, false, Vec::new());
        let mut page = |cluster: &mut Cluster, limit| {
            if is_over {
                return;
            }
            let pages = cluster.ask(&[("t/#", place.clone())], limit);
            assert!(topics(&pages).len() <= limit as usize);
            found.extend(topics(&pages));
            // As it is kept.
            let bytes = pages[0].next.as_ref().map(RetainedPlace::to_bytes);
            place = bytes.map(|bytes| RetainedPlace::from_bytes(&bytes).unwrap());
            is_over = place.is_none();
        };
        for step in steps {
            match step {
                Step::Page(limit) => page(&mut cluster, limit),
                Step::Split(at) => cluster.split(1 + at.index(usize::from(u16::MAX)) as u16),
                Step::Learn(which) => {
                    let numbers: Vec<u16> = cluster.shards.keys().copied().collect();
                    cluster.known.insert(*which.get(&numbers));
                }
                Step::MoveOn => {
                    let first = (0..shards).map(|number| base.range(number).first);
                    cluster.known = first.collect();
                }
            }
        }
        for _ in 0..1_000 {
            page(&mut cluster, 3);
        }
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
        prop_assert!(is_over);
    }
}

#[test]
fn a_topic_is_found_wherever_its_slot_is_by_now() {
    let mut cluster = Cluster::new(base(2));
    let list: Vec<String> = (0..40).map(|n| format!("t{n}")).collect();
    list.iter().for_each(|topic| cluster.retain(topic));
    for at in [10_000, 20_000, 40_000, 50_000] {
        cluster.split(at);
    }
    // All at once, as the node takes them for topics of two shards.
    let mut left: Vec<_> = list.iter().map(|topic| (topic.as_str(), None)).collect();
    let mut found = Vec::new();
    while !left.is_empty() {
        let pages = cluster.ask(&left, 64);
        assert!(pages.iter().all(|page| page.next.is_none()));
        assert_eq!(topics(&pages).len(), pages.len());
        found.extend(topics(&pages));
        left.drain(..pages.len());
    }
    assert_eq!(found, list);
}

/// Nodes of earlier versions make these places, and go on from them; rows of the inbox store have them.
#[test]
fn places_in_a_store_that_was_never_split_are_those_of_earlier_versions() {
    let base = base(3);
    let mut cluster = Cluster::new(base);
    let list: Vec<String> = (0..60).map(|n| format!("t{n:02}")).collect();
    list.iter().for_each(|topic| cluster.retain(topic));
    let mut place = None;
    let mut shard = 0;
    loop {
        let pages = cluster.ask(&[("#", place)], 2);
        place = pages[0].next.clone();
        let Some(RetainedPlace::Base { shard: next, .. }) = place else {
            break;
        };
        assert!(next == shard || next == shard + 1, "{next} behind {shard}");
        shard = next;
    }
    assert_eq!((place, shard), (None, 2));
    // A question: filter, shard, cursor, the last shard that can have a topic.
    let sent = |filter: &str, from| {
        let selection = Selection::new(filter, from, base);
        postcard::to_stdvec(&selection).unwrap()
    };
    assert_eq!(sent("#", None), b"\x01#\0\0\x02");
    let cursor = Some(Cursor::from_bytes(b"t7"));
    let from = RetainedPlace::Base { shard: 1, cursor };
    assert_eq!(sent("#", Some(from)), b"\x01#\x01\x02t7\x02");
    let of_shard_1 = list
        .iter()
        .find(|topic| base.of_slot(HASH.slot_of(topic)) == 1);
    let topic = of_shard_1.unwrap();
    let bytes = [b"\x03", topic.as_bytes(), b"\x01\0\x01"].concat();
    assert_eq!(sent(topic, None), bytes);
}

#[test]
fn places_of_a_topic_are_those_of_earlier_versions_after_splits_too() {
    let mut cluster = Cluster::new(base(1));
    cluster.retain("t");
    cluster.split(HASH.slot_of("t"));
    // The budget ends with the message.
    let pages = cluster.ask(&[("t", None)], 1);
    assert!(
        matches!(
            pages[0].next,
            Some(RetainedPlace::Base {
                shard: 0,
                cursor: Some(_)
            })
        ),
        "{pages:?}"
    );
}

#[test]
fn a_place_that_says_nothing_of_a_filter_is_that_of_its_first_message() {
    let base = base(2);
    let mut cluster = Cluster::new(base);
    cluster.retain("t");
    let slot = HASH.slot_of("t");
    let other = 1 - base.of_slot(slot);
    for shard in [other, 9] {
        let place = RetainedPlace::Base {
            shard,
            cursor: None,
        };
        // Behind the shard 0 are the slots of shard 1.
        let pages = cluster.ask(&[("t", Some(place))], 9);
        assert_eq!(topics(&pages), ["t"]);
        assert_eq!(pages[0].next, None);
    }
}

/// A node that starts has a shard as it was before a split, until it has read its log.
#[test]
fn messages_of_other_slots_than_those_asked_for_are_not_given() {
    let base = base(1);
    let mut cluster = Cluster::new(base);
    let list: Vec<String> = (0..40).map(|n| format!("t{n}")).collect();
    list.iter().for_each(|topic| cluster.retain(topic));
    let slots = SlotRange {
        first: 20_000,
        last: 39_999,
    };
    let part = RetainedPart {
        slots,
        cursor: None,
    };
    let place = RetainedPlace::Parts(RetainedParts::new([part]).unwrap());
    let pages = cluster.ask(&[("#", Some(place))], 100);
    let mut expected = list;
    expected.retain(|topic| slots.contains(HASH.slot_of(topic)));
    expected.sort();
    let mut found = topics(&pages);
    found.sort();
    assert_eq!(found, expected);
    assert!(expected.len() > 5 && pages[0].next.is_none());
}

#[test]
fn pages_are_given_as_far_as_the_budget_goes_and_one_in_any_case() {
    let base = base(1);
    let selection = Selection::new("t", None, base);
    let mut wanted = wanted(vec![selection; 5], 3);
    let one = |_: &str, _: Option<&Cursor>, budget: &mut PageBudget| {
        budget.messages = budget.messages.saturating_sub(1);
        Some((vec![message("t")], None))
    };
    let pages = |wanted: &Wanted| wanted.pages(base, SlotRange::ALL, one).unwrap();
    assert_eq!(pages(&wanted).len(), 3);
    wanted.limit = 0;
    let pages = pages(&wanted);
    assert_eq!((pages.len(), pages[0].messages.len()), (1, 1));
    let none = wanted.pages(base, SlotRange::ALL, |_, _, _| None);
    assert_eq!(none.unwrap_err(), NoPage::Misrouted);
    // A peer that takes a shard for another one.
    let upper = SlotRange {
        first: u16::MAX,
        last: u16::MAX,
    };
    let misrouted = wanted.pages(base, upper, one);
    assert_eq!(misrouted.unwrap_err(), NoPage::Misrouted);
}
