//! A shard that is split: each half does as plain lists do that are cut at the same slot, however far a replica has
//! rebuilt what a split leaves to be rebuilt.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::property::{CLIENTS, Run, Step, step};
use super::*;
use crate::inbox::tables::{body_of, number_of};
use crate::inbox::{Call, Caller};
use crate::{NameHash, SlotRange, Split, row};

/// The shards that one has been split into, by their slots.
struct Shards(Vec<Run>);

/// What happens to them.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Step(Step),
    /// One of the shards is split: which, and how the slot is chosen.
    Split(u8, u8, u16),
    /// Each replica rebuilds so many entries.
    Rebuild(u8, u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        80 => step().prop_map(Happening::Step),
        1 => any::<(u8, u8, u16)>().prop_map(|(of, how, slot)| Happening::Split(of, how, slot)),
        8 => (0..6u8, 0..6u8).prop_map(|(one, other)| Happening::Rebuild(one, other)),
    ]
}

impl Shards {
    fn of(&mut self, slot: u16) -> &mut Run {
        let mut shards = self.0.iter_mut();
        let shard = shards.find(|run| run.slots.range.contains(slot));
        shard.expect("all slots belong to a shard")
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step(Step::Op(dice)) => {
                let client = CLIENTS[usize::from(dice.1[0]) % CLIENTS.len()];
                let hash = NameHash::default();
                let (header, op) = self.of(hash.slot_of(client)).next(dice);
                let clock = self.0.iter().max_by_key(|run| run.progress()).unwrap();
                let clock = clock.progress();
                for run in &mut self.0 {
                    run.follow(clock);
                }
                match InboxMachine::slot(&op, hash) {
                    Some(slot) => drop(self.of(slot).apply(header, op)),
                    None => {
                        for run in &mut self.0 {
                            run.apply(header.clone(), op.clone());
                        }
                    }
                }
            }
            Happening::Step(step) => {
                for run in &mut self.0 {
                    run.step(&step);
                }
            }
            Happening::Split(of, how, slot) if self.0.len() < 4 => {
                let place = usize::from(of) % self.0.len();
                let run = &mut self.0[place];
                let SlotRange { first, last } = run.slots.range;
                let client = CLIENTS[usize::from(how / 4) % CLIENTS.len()];
                let at = match how % 4 {
                    0 => first.saturating_add(1),
                    1 => last,
                    2 => NameHash::default()
                        .slot_of(client)
                        .saturating_add(u16::from(how / 16 % 2)),
                    _ => slot,
                };
                if first < at && at <= last {
                    let upper = run.split_off(at);
                    self.0.push(upper);
                }
            }
            Happening::Split(..) => {}
            Happening::Rebuild(one, other) => {
                for run in &mut self.0 {
                    run.rebuild(one.into(), other.into());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn halves_do_as_plain_lists_do(happenings in prop::collection::vec(happening(), 1..250)) {
        let mut shards = Shards(vec![Run::new()]);
        for happening in happenings {
            shards.happen(happening);
        }
        for mut run in shards.0 {
            run.end();
        }
    }
}

/// The clients of these tests, in the order of their slots.
fn by_slot() -> [&'static str; 4] {
    let mut clients = ["ann", "bob", "cyd", "dan"];
    clients.sort_by_key(|client| NameHash::default().slot_of(client));
    clients
}

/// The first two clients stay, the others move.
fn halves_of(mut lower: Shard) -> (Shard, Shard) {
    let at = NameHash::default().slot_of(by_slot()[2]);
    let mut upper = Shard {
        machine: lower.machine.split_off(at),
        table: lower.table.clone(),
        header: lower.header.clone(),
        events: Vec::new(),
    };
    for (half, range) in [
        (
            &mut lower,
            SlotRange {
                first: 0,
                last: at - 1,
            },
        ),
        (
            &mut upper,
            SlotRange {
                first: at,
                last: u16::MAX,
            },
        ),
    ] {
        half.table
            .rows
            .retain(|key, _| InboxMachine::keeps(key, range));
    }
    (lower, upper)
}

/// A session of each client with a filter that all have.
fn four() -> Shard {
    let mut shard = Shard::new();
    for client in by_slot() {
        shard.sleeper(client, "news");
    }
    shard
}

#[test]
fn a_publication_is_for_the_sessions_of_both_halves_once() {
    let mut shard = four();
    let origin = Some(Origin {
        client: "pub".into(),
        incarnation: 1,
        packet_id: 1,
    });
    let before = publish(message("news", "1", QoS::ExactlyOnce), origin.clone());
    assert_eq!(shard.apply(&before), published(4, 0));
    let call = InboxOp::PublishOnce {
        call: Call {
            caller: Caller {
                node: 1,
                loop_index: 0,
                incarnation: 1,
            },
            number: 1,
            oldest: 1,
        },
        message: Arc::new(message("news", "2", QoS::AtLeastOnce)),
        publisher: 0,
    };
    assert_eq!(shard.apply(&call), published(4, 0));
    shard.checkpoint();
    let (mut lower, mut upper) = halves_of(shard);
    for half in [&mut lower, &mut upper] {
        for again in [&before, &call] {
            assert_eq!(half.apply(again), published(1, 0));
        }
        assert_eq!(half.machine.counts().messages, 4);
        assert_eq!(half.publish("news", "3", QoS::AtLeastOnce), published(2, 0));
        half.checkpoint();
        let range = half.machine.range;
        half.machine = InboxMachine::load(
            Slots {
                range,
                ..Slots::ALL
            },
            &half.table,
        )
        .unwrap();
        for again in [&before, &call] {
            assert_eq!(half.apply(again), published(1, 0));
        }
        assert_eq!(half.machine.counts().messages, 6);
    }
}

#[test]
fn a_filter_that_only_the_other_half_has_is_told_until_all_is_counted() {
    let mut shard = four();
    shard.subscribe(by_slot()[0], 1, "own", QoS::AtLeastOnce);
    let (mut lower, mut upper) = halves_of(shard);
    let filters = |machine: &InboxMachine| {
        let mut recorder = Recorder::default();
        machine.tell_routes(&mut recorder);
        recorder.0.sort();
        recorder.0
    };
    let [own, news] = ["own", "news"].map(|filter| Event::Filter(filter.into(), true, true));
    for (half, has_own) in [(&mut lower, true), (&mut upper, false)] {
        assert_eq!(filters(&half.machine), [news.clone(), own.clone()]);
        let mut recorder = Recorder::default();
        while !half
            .machine
            .rebuild_part(1, &half.table, &mut recorder)
            .unwrap()
        {}
        let gone = Event::Filter("own".into(), false, false);
        let (told, known) = match has_own {
            true => (vec![], vec![news.clone(), own.clone()]),
            false => (vec![gone], vec![news.clone()]),
        };
        assert_eq!((recorder.0, filters(&half.machine)), (told, known));
    }
}

/// It is told that nobody has a filter any more, while other filters have yet to be compared; then the shard is split
/// again, and somebody subscribes.
#[test]
fn a_filter_that_comes_again_after_a_second_split_is_told() {
    let mut shard = four();
    let [first, .., last] = by_slot();
    for n in 0..100 {
        shard.subscribe(last, 1, &format!("only/{n}"), QoS::AtLeastOnce);
    }
    let at = NameHash::default().slot_of(last);
    let _upper = shard.machine.split_off(at);
    let mut recorder = Recorder::default();
    while recorder.0.is_empty() {
        let is_all = shard.machine.rebuild_part(1, &shard.table, &mut recorder);
        assert_eq!(is_all, Ok(false));
    }
    let Some(Event::Filter(filter, false, false)) = recorder.0.pop() else {
        panic!("{recorder:?}");
    };
    let _upper = shard.machine.split_off(at - 1);
    shard.take_events();
    shard.subscribe(first, 1, &filter, QoS::AtLeastOnce);
    let told = shard.take_events();
    assert!(
        told.contains(&Event::Filter(filter, true, true)),
        "{told:?}"
    );
}

#[test]
fn rows_of_inboxes_are_kept_by_slot_and_all_others_by_both_halves() {
    let range = SlotRange {
        first: 10,
        last: 20,
    };
    let key = |kind: u8, slot: u16| [&[kind][..], &slot.to_be_bytes(), b"x"].concat();
    for kind in *b"ILQPFG" {
        for (slot, is_kept) in [(9, false), (10, true), (20, true), (21, false)] {
            assert_eq!(InboxMachine::keeps(&key(kind, slot), range), is_kept);
        }
    }
    for kind in *b"MUBCNKEOR" {
        for slot in [0, 15, u16::MAX] {
            assert!(InboxMachine::keeps(&key(kind, slot), range));
        }
    }
    assert!(InboxMachine::keeps(b"M", range) && InboxMachine::keeps(b"", range));
}

#[test]
fn an_empty_shard_is_split_at_its_second_slot_and_at_its_last_one() {
    let mut shard = Shard::new();
    let last = shard.machine.split_off(u16::MAX);
    let rest = shard.machine.split_off(1);
    let ranges = [&shard.machine, &rest, &last].map(|half| (half.range.first, half.range.last));
    assert_eq!(ranges, [(0, 0), (1, u16::MAX - 1), (u16::MAX, u16::MAX)]);
    for mut half in [shard.machine, rest, last] {
        assert_eq!(half.counts(), InboxCounts::default());
        let table = TestTable::default();
        while !half
            .rebuild_part(1, &table, &mut Recorder::default())
            .unwrap()
        {}
        assert!(!half.has_to_rebuild());
    }
}

#[test]
#[should_panic(expected = "is not split at 0")]
fn a_shard_is_not_split_at_its_first_slot() {
    let _upper = Shard::new().machine.split_off(0);
}

#[test]
#[should_panic(expected = "between two operations")]
fn a_shard_is_not_split_in_the_middle_of_a_publication() {
    let mut shard = four();
    let op = publish(message("news", "1", QoS::AtLeastOnce), None);
    let part = shard
        .machine
        .apply_part(&HEADER, &op, &shard.table, &mut Recorder::default());
    assert_eq!(part, Ok(None));
    let _upper = shard.machine.split_off(1);
}

#[test]
#[should_panic(expected = "no split within a checkpoint")]
fn a_shard_is_not_split_during_a_checkpoint() {
    let mut shard = four();
    shard.collect();
    let _upper = shard.machine.split_off(1);
}

/// Numbers of bodies and how often each is referred to, as the rows of queues say and as counts do.
fn references(table: &TestTable) -> [BTreeMap<u64, u32>; 2] {
    let (mut queued, mut counted) = (BTreeMap::new(), BTreeMap::new());
    for (key, value) in &table.rows {
        match key[0] {
            b'Q' => *queued.entry(body_of(key, value).unwrap()).or_default() += 1,
            b'C' => drop(counted.insert(number_of(key).unwrap(), row::decode(key, value).unwrap())),
            _ => {}
        }
    }
    assert_eq!(table.rows_of(b'B'), counted.len());
    [queued, counted]
}

impl Shard {
    /// So many parts, of one row each. True: no more before the next checkpoint.
    fn recount(&mut self, parts: usize) -> bool {
        let mut recorder = Recorder::default();
        let mut parts = (0..parts).map(|_| {
            let part = self.machine.rebuild_part(1, &self.table, &mut recorder);
            part.unwrap()
        });
        parts.any(|is_all| is_all)
    }

    fn reload(&mut self) {
        let slots = Slots {
            range: self.machine.range,
            ..Slots::ALL
        };
        self.machine = InboxMachine::load(slots, &self.table).unwrap();
    }
}

/// Six messages for all four sessions; each has taken another number of them before the split.
fn halves_with_bodies() -> [Shard; 2] {
    let mut shard = four();
    for n in 1..=6 {
        assert_eq!(
            shard.publish("news", &n.to_string(), QoS::AtLeastOnce),
            published(4, 0)
        );
    }
    shard.checkpoint();
    for (client, taken) in by_slot().into_iter().zip([&[1, 2][..], &[1], &[], &[6]]) {
        shard.acknowledge(client, 1, 6, taken);
    }
    let (lower, upper) = halves_of(shard);
    [lower, upper]
}

#[test]
fn each_half_counts_the_references_to_bodies_again() {
    // After so many parts a session takes messages, some of which were counted and some not; then the process ends or not.
    for (parts, is_crash) in (0..32).flat_map(|parts| [(parts, false), (parts, true)]) {
        for (mut half, client) in halves_with_bodies()
            .into_iter()
            .zip([by_slot()[0], by_slot()[3]])
        {
            assert!(half.recount(100) && half.machine.has_to_rebuild());
            half.checkpoint();
            let before = half.table.clone();
            let [queued, counted] = references(&before);
            assert!(
                queued.iter().all(|(body, count)| counted[body] >= *count) && queued != counted
            );
            half.recount(parts);
            half.acknowledge(client, 1, 6, &[3, 4, 5]);
            if is_crash {
                half.reload();
                half.recount(parts);
                half.acknowledge(client, 1, 6, &[3, 4, 5]);
            }
            half.checkpoint();
            while half.machine.has_to_rebuild() {
                half.recount(100);
                half.checkpoint();
            }
            let [queued, counted] = references(&half.table);
            assert_eq!(queued, counted);
            // The row of the machine is as it was before the first split.
            half.reload();
            assert!(!half.machine.has_to_rebuild());
            let survey = InboxMachine::survey(
                Slots {
                    range: half.machine.range,
                    ..Slots::ALL
                },
                &half.table,
            );
            assert_eq!(survey.findings, []);
        }
    }
}

#[test]
fn no_count_is_corrected_while_a_checkpoint_is_written() {
    let [mut half, _] = halves_with_bodies();
    half.recount(100);
    half.checkpoint();
    let client = by_slot()[0];
    half.acknowledge(client, 1, 6, &[3]);
    let changes = half.collect();
    assert!(half.recount(100) && half.machine.has_to_rebuild());
    half.table.write(&changes);
    assert!(half.recount(100) && half.machine.has_to_rebuild());
    half.machine.saved();
    assert!(half.recount(100) && !half.machine.has_to_rebuild());
    half.checkpoint();
    let [queued, counted] = references(&half.table);
    assert_eq!(queued, counted);
}

#[test]
fn a_damaged_row_ends_the_count_and_nothing_else() {
    let [mut half, _] = halves_with_bodies();
    half.recount(100);
    half.checkpoint();
    let first = half.table.keys_of(b'Q')[0].clone();
    half.table.rows.insert(first, vec![1]);
    let mut recorder = Recorder::default();
    let part = half.machine.rebuild_part(100, &half.table, &mut recorder);
    assert!(part.is_err() && !half.machine.has_to_rebuild());
    assert!(half.recount(1));
    assert_eq!(half.publish("news", "7", QoS::AtLeastOnce), published(2, 0));
}
