//! A shard that is split: each half does as plain lists do that are cut at the same slot, however far a replica has
//! rebuilt what a split leaves to be rebuilt.

use proptest::prelude::*;

use super::property::{CLIENTS, Run, Step, step};
use super::*;
use crate::inbox::{Call, Caller};
use crate::{NameHash, SlotRange, Split};

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
                            run.apply(header, op.clone());
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
        header: lower.header,
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
        machine.for_each_filter(&mut recorder);
        recorder.0.sort();
        recorder.0
    };
    let [own, news] = ["own", "news"].map(|filter| Event::Filter(filter.into(), true, true));
    for (half, has_own) in [(&mut lower, true), (&mut upper, false)] {
        assert_eq!(filters(&half.machine), [news.clone(), own.clone()]);
        let mut recorder = Recorder::default();
        while !half.machine.rebuild_part(1, &mut recorder) {}
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
        assert!(!shard.machine.rebuild_part(1, &mut recorder));
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
        while !half.rebuild_part(1, &mut Recorder::default()) {}
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
