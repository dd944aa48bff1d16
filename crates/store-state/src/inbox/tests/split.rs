//! A shard that is split: each half does as plain lists do that are cut at the same slot, however far a replica has
//! rebuilt what a split leaves to be rebuilt.

use proptest::prelude::*;

use super::property::{CLIENTS, Run, Step, step};
use super::*;
use crate::{NameHash, SlotRange};

/// The shards that one has been split into, by their slots.
struct Shards(Vec<Run>);

/// What happens to them.
#[derive(Clone, Copy, Debug)]
enum Event {
    Step(Step),
    /// One of the shards is split: which, and how the slot is chosen.
    Split(u8, u8, u16),
    /// Each replica rebuilds so many entries.
    Rebuild(u8, u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        80 => step().prop_map(Event::Step),
        1 => any::<(u8, u8, u16)>().prop_map(|(of, how, slot)| Event::Split(of, how, slot)),
        8 => (0..6u8, 0..6u8).prop_map(|(one, other)| Event::Rebuild(one, other)),
    ]
}

impl Shards {
    fn of(&mut self, slot: u16) -> &mut Run {
        let mut shards = self.0.iter_mut();
        let shard = shards.find(|run| run.slots.range.contains(slot));
        shard.expect("all slots belong to a shard")
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Step(Step::Op(dice)) => {
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
            Event::Step(step) => {
                for run in &mut self.0 {
                    run.step(&step);
                }
            }
            Event::Split(of, how, slot) if self.0.len() < 4 => {
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
            Event::Split(..) => {}
            Event::Rebuild(one, other) => {
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
    fn halves_do_as_plain_lists_do(events in prop::collection::vec(event(), 1..250)) {
        let mut shards = Shards(vec![Run::new()]);
        for event in events {
            shards.event(event);
        }
        for mut run in shards.0 {
            run.end();
        }
    }
}
