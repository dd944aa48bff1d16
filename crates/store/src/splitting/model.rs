//! A cluster in numbers: what its nodes decide, second by second, under a load that changes.
//!
//! `heraldmq cluster split-policy test` plays a script in it, and the tests the policy `load`. Meters, splitter and rules of placement are the real ones. Made up are how CPU is dealt to threads, that a split or a move is
//! done within a second, that an entry of the log has [`BATCH`] operations, and how late nodes know each other's loads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::num::NonZeroU16;
use std::time::Duration;

use store_state::SlotRange;
use store_state::api::{PerStore, Slot, StoreId};
use tokio::time::Instant;

use crate::leadership::health::Strain;
use crate::node::starts::START_CPU;
use crate::peers::member::{Role, ShardId};
use crate::placement::members::SETTLED;
use crate::placement::rules::{Place, Placed, Situation, Step};
use crate::shard::load::{LoadMeter, LoadScale, ShardCost, SlotWeights, WINDOWS};
use crate::splitting::options::SplitOptions;
use crate::splitting::policy::{Candidate, NodeView};
use crate::splitting::script::{ScriptFault, SplitScript, SplitScripts};
use crate::splitting::splitter::{Outcome, SplitOrder, Splitter};

const SECOND: Duration = Duration::from_secs(1);

/// Operations per entry of the log, at most.
const BATCH: usize = 120;

/// What a slot's clients ask for: the slot, and cores that this takes.
type Demand = (u16, f64);

/// Nodes of a kind, and what is beside them.
#[derive(Clone, Copy)]
struct Machines {
    nodes: usize,
    threads: usize,
    cores: f64,
    /// Programs on each machine that never rest.
    busy_beside: usize,
    /// Seconds after which a node knows what another one uses.
    news_after: usize,
}

/// What is done in a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Minute {
    splits: usize,
    moves: usize,
    named: usize,
}

struct Node {
    splitter: Splitter,
    scripts: SplitScripts,
    /// What it uses of the CPU of its machine in this second, from 0 to 1.
    process_cpu: f64,
    /// What each thread that runs has used in the last seconds.
    threads: Vec<VecDeque<Used>>,
}

/// What a thread has used in a second.
#[derive(Clone, Copy)]
struct Used {
    cpu: Duration,
    busy: Duration,
}

struct Shard {
    range: SlotRange,
    /// The place of a node.
    leader: usize,
    led_since: Instant,
    /// Where it lives on each node.
    threads: Vec<usize>,
    meter: LoadMeter,
    weights: SlotWeights,
    cost: ShardCost,
}

/// What the leaders of shards have told at the end of a second.
type Told = BTreeMap<ShardId, Duration>;

struct Model {
    machines: Machines,
    now: Instant,
    nodes: Vec<Node>,
    shards: BTreeMap<ShardId, Shard>,
    told: VecDeque<Told>,
    minutes: Vec<Minute>,
}

impl Shard {
    /// It begins to be measured anew.
    fn new(range: SlotRange, leader: usize, threads: Vec<usize>, now: Instant) -> Self {
        let (mut meter, mut weights) = (LoadMeter::new(range), SlotWeights::new(range));
        let cost = ShardCost::default();
        meter.roll(
            Some(cost),
            &mut weights,
            LoadScale {
                cpu: 1.0,
                busy: 1.0,
            },
        );
        Self {
            range,
            leader,
            led_since: now,
            threads,
            meter,
            weights,
            cost,
        }
    }

    fn demand(&self, load: &[Demand]) -> f64 {
        let own = load.iter().filter(|(slot, _)| self.range.contains(*slot));
        own.map(|(_, cores)| cores).sum()
    }

    fn load(&self) -> Option<Duration> {
        self.meter.load().map(|load| load.cpu())
    }
}

impl Node {
    /// The mean of the last seconds.
    fn mean(&self, thread: usize, of: fn(&Used) -> Duration) -> Duration {
        let windows = self
            .threads
            .get(thread)
            .map_or(&[][..], |windows| windows.as_slices().0);
        let sum: Duration = windows.iter().map(of).sum();
        sum.checked_div(windows.len() as u32).unwrap_or_default()
    }

    fn busy(&self, thread: usize) -> Duration {
        self.mean(thread, |used| used.busy)
    }
}

/// What threads use that ask for so much, and how long they are ready to run, of so many cores: each has one at most, and where
/// they are too few all have the same.
fn deal(asked: &[f64], cores: f64, busy_beside: usize) -> Vec<(f64, f64)> {
    let beside = busy_beside as f64;
    let used = |most: f64| {
        let threads: f64 = asked.iter().map(|cores| cores.min(most)).sum();
        threads + beside * most
    };
    let (mut low, mut high) = (0.0, 1.0);
    let is_enough = used(1.0) <= cores;
    while !is_enough && high - low > 1e-6 {
        let middle = (low + high) / 2.0;
        if used(middle) > cores {
            high = middle;
        } else {
            low = middle;
        }
    }
    let dealt = asked.iter().map(|asked| {
        let cpu = asked.min(high);
        let is_short = cpu < *asked;
        // Beside others it waits about as long as it runs.
        let waits = if is_enough { 0.0 } else { cpu };
        (
            cpu,
            if is_short {
                1.0
            } else {
                (cpu + waits).min(1.0)
            },
        )
    });
    dealt.collect()
}

impl Model {
    /// A cluster that splits the shards of one store as these options say, or as the script that each node gets.
    fn new(
        machines: Machines,
        store: StoreId,
        options: SplitOptions,
        script: &mut dyn FnMut() -> Option<Box<dyn SplitScript>>,
    ) -> Self {
        let now = Instant::now();
        let options = SplitOptions {
            shards_most: NonZeroU16::new((4.0 * machines.cores) as u16).unwrap(),
            ..options
        };
        let node = |_| {
            let scripts = SplitScripts::default();
            if let Some(script) = script() {
                scripts.replace(store, script);
            }
            Node {
                splitter: Splitter::new(&PerStore::all(options), scripts.clone()),
                scripts,
                process_cpu: 0.0,
                threads: vec![VecDeque::new()],
            }
        };
        let range = SlotRange {
            first: 0,
            last: u16::MAX,
        };
        let shard = Shard::new(range, 0, vec![0; machines.nodes], now);
        Self {
            machines,
            now,
            nodes: (0..machines.nodes).map(node).collect(),
            shards: BTreeMap::from([((store, 0), shard)]),
            told: VecDeque::new(),
            minutes: Vec::new(),
        }
    }

    /// So many minutes with a load that depends on the second.
    fn run(&mut self, minutes: usize, load: impl Fn(usize) -> Vec<Demand>) {
        for second in 0..minutes * 60 {
            if second % 60 == 0 {
                self.minutes.push(Minute::default());
            }
            self.now += SECOND;
            self.use_cpu(&load(second));
            self.told.push_front(self.tell());
            self.told.truncate(self.machines.news_after + 1);
            for node in 0..self.nodes.len() {
                self.split(node);
            }
            for node in 0..self.nodes.len() {
                self.give_away(node);
            }
        }
    }

    fn use_cpu(&mut self, load: &[Demand]) {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let mut asked = vec![0.0; self.machines.threads];
            let led = |shard: &Shard| shard.leader == number;
            for shard in self.shards.values().filter(|shard| led(shard)) {
                asked[shard.threads[number]] += shard.demand(load);
            }
            let dealt = deal(&asked, self.machines.cores, self.machines.busy_beside);
            let used: f64 = dealt.iter().map(|(cpu, _)| cpu).sum();
            node.process_cpu = used / self.machines.cores;
            for (windows, (cpu, busy)) in node.threads.iter_mut().zip(&dealt) {
                windows.push_back(Used {
                    cpu: Duration::from_secs_f64(*cpu),
                    busy: Duration::from_secs_f64(*busy),
                });
                if windows.len() > WINDOWS {
                    windows.pop_front();
                }
                windows.make_contiguous();
            }
            for shard in self.shards.values_mut().filter(|shard| led(shard)) {
                let thread = shard.threads[number];
                let (cpu, busy) = dealt[thread];
                let demand = shard.demand(load);
                let part = |of: f64| {
                    if asked[thread] > 0.0 {
                        of * demand / asked[thread]
                    } else {
                        0.0
                    }
                };
                shard.cost.apply += Duration::from_secs_f64(part(cpu));
                let mut operations = 0_usize;
                for (slot, cores) in load.iter().filter(|(slot, _)| shard.range.contains(*slot)) {
                    shard.weights.add(*slot, (cores * 1e6) as u64);
                    operations += 1;
                }
                shard.cost.entries.0 += operations.div_ceil(BATCH) as u64;
                let scale = LoadScale {
                    cpu: 1.0,
                    busy: if cpu > 0.0 { busy / cpu } else { 1.0 },
                };
                shard
                    .meter
                    .roll(Some(shard.cost), &mut shard.weights, scale);
            }
        }
    }

    /// What all leaders tell now; what is not known yet is as it was told before.
    fn tell(&self) -> Told {
        let last = self.told.front();
        let tell = |(id, shard): (&ShardId, &Shard)| {
            let before = || last?.get(id).copied();
            (*id, shard.load().or_else(before).unwrap_or_default())
        };
        self.shards.iter().map(tell).collect()
    }

    /// The load of a shard as a node knows it.
    fn known_load(&self, node: usize, id: ShardId) -> Duration {
        let told = if self.shards[&id].leader == node {
            self.told.front()
        } else {
            self.told.back()
        };
        told.and_then(|told| told.get(&id).copied())
            .unwrap_or_default()
    }

    fn known_led(&self, viewer: usize, node: usize) -> Duration {
        let led = self.shards.iter().filter(|(_, shard)| shard.leader == node);
        led.map(|(id, _)| self.known_load(viewer, *id)).sum()
    }

    fn split(&mut self, number: usize) {
        let node = &self.nodes[number];
        let led = self
            .shards
            .iter()
            .filter(|(_, shard)| shard.leader == number);
        let candidates: Vec<Candidate> = led
            .map(|(id, shard)| Candidate {
                id: *id,
                thread: shard.threads[number],
                busyness: shard.meter.busyness(),
            })
            .collect();
        let others = (0..self.nodes.len()).filter(|other| *other != number);
        let view = NodeView {
            threads: (0..self.machines.threads)
                .map(|thread| node.busy(thread))
                .collect(),
            led_here: self.known_led(number, number),
            led_elsewhere: others.map(|other| self.known_led(number, other)).collect(),
            replicas: PerStore::all(self.shards.len()),
            process_cpu: node.process_cpu,
            has_all_members: true,
        };
        let splitter = &mut self.nodes[number].splitter;
        let effects = splitter.handle_second(&candidates, &view, self.now);
        self.minute().named += effects.to_name.len();
        if let Some(order) = effects.split {
            self.minute().splits += 1;
            self.take_split(&order);
            let splitter = &mut self.nodes[number].splitter;
            splitter.handle_outcome(&order, Outcome::Done, self.now);
        }
    }

    fn take_split(&mut self, order: &SplitOrder) {
        let SplitOrder {
            id, at: Slot(at), ..
        } = *order;
        let threads = (0..self.nodes.len())
            .map(|node| self.idlest_thread(node))
            .collect();
        let now = self.now;
        let parent = self.shards.get_mut(&id).unwrap();
        let SlotRange { first, last } = parent.range;
        assert!(
            first < at && at <= last,
            "{first}..={last} is split at {at}"
        );
        let leader = parent.leader;
        let lower = SlotRange {
            first,
            last: at - 1,
        };
        *parent = Shard {
            led_since: parent.led_since,
            ..Shard::new(lower, leader, parent.threads.clone(), now)
        };
        let upper = SlotRange { first: at, last };
        let child = Shard::new(upper, leader, threads, now);
        let before = self.shards.insert((id.0, at), child);
        assert!(before.is_none(), "two shards begin at slot {at}");
    }

    /// As a node chooses it for a shard that a split has made (`node/starts.rs`).
    fn idlest_thread(&mut self, number: usize) -> usize {
        let node = &self.nodes[number];
        let running = node.threads.len();
        let are_busy = (0..running).all(|thread| node.mean(thread, |used| used.cpu) >= START_CPU);
        let can_start = running < self.machines.threads && are_busy;
        let threads = 0..running + usize::from(can_start);
        let shards = |thread| {
            let there = self
                .shards
                .values()
                .filter(|shard| shard.threads[number] == thread);
            there.count()
        };
        let by_load = |thread: &usize| (node.busy(*thread).as_millis() / 50, shards(*thread));
        let thread = threads.min_by_key(by_load).unwrap();
        if thread == running {
            self.nodes[number].threads.push(VecDeque::new());
        }
        thread
    }

    fn give_away(&mut self, number: usize) {
        let node_name = |place: usize| place as u64 + 1;
        let all: BTreeSet<u64> = (0..self.nodes.len()).map(node_name).collect();
        let place = |node: &u64| Place {
            node: *node,
            is_up: true,
            role: Role::Serves,
            down_for: Duration::ZERO,
            strain: Some(Strain::default()),
        };
        let led = self
            .shards
            .iter()
            .filter(|(_, shard)| shard.leader == number);
        let led: Vec<ShardId> = led.map(|(id, _)| *id).collect();
        for own in led {
            let placed = |(id, shard): (&ShardId, &Shard)| Placed {
                shard: *id,
                leader: node_name(shard.leader),
                voters: all.clone(),
                learners: BTreeSet::new(),
                load: self.known_load(number, *id),
                // Each leader decides about its own.
                is_settled: *id != own || self.now.duration_since(shard.led_since) >= SETTLED,
            };
            let situation = Situation {
                places: all.iter().map(place).collect(),
                shards: self.shards.iter().map(placed).collect(),
                replace_after: Duration::MAX,
            };
            let of_own = situation.shards.iter().find(|shard| shard.shard == own);
            match situation.next_step(of_own.unwrap(), None) {
                None => {}
                Some(Step::Transfer(to)) => {
                    self.minute().moves += 1;
                    let now = self.now;
                    let shard = self.shards.get_mut(&own).unwrap();
                    let leader = all.iter().position(|node| *node == to).unwrap();
                    *shard = Shard::new(shard.range, leader, shard.threads.clone(), now);
                }
                Some(step) => panic!("replicas stay where they are: {step:?}"),
            }
        }
    }

    fn minute(&mut self) -> &mut Minute {
        self.minutes.last_mut().expect("a minute has begun")
    }

    /// Splits and moves of leaders, by minute.
    fn by_minute(&self) -> String {
        let mut line = String::new();
        for minute in &self.minutes {
            write!(line, "{}+{} ", minute.splits, minute.moves).unwrap();
        }
        line.trim_end().to_owned()
    }

    /// What each node leads, in tenths of a core.
    fn led(&self) -> Vec<u128> {
        let nodes = 0..self.nodes.len();
        nodes
            .map(|node| self.known_led(node, node).as_millis() / 100)
            .collect()
    }
}

/// So many clients, which take so many cores together, with slots as a hash gives them.
fn even(clients: u32, cores: f64) -> Vec<Demand> {
    let slot = |client: u32| (client.wrapping_mul(2_654_435_761) >> 16) as u16;
    let each = cores / f64::from(clients);
    (0..clients).map(|client| (slot(client), each)).collect()
}

/// The same, nearly all of it in a tenth of the slots, another one each minute.
fn hot_tenth(second: usize, cores: f64) -> Vec<Demand> {
    let first = (second / 60 * 23_757) as u16;
    let hot = even(200, cores * 0.9);
    let hot = hot
        .into_iter()
        .map(|(slot, cores)| (first.wrapping_add(slot / 10), cores));
    even(200, cores * 0.1).into_iter().chain(hot).collect()
}

/// The lower half of all slots has the load in one minute, the upper one in the next.
fn half_by_turns(second: usize, cores: f64) -> Vec<Demand> {
    let is_lower = (second / 60).is_multiple_of(2);
    let mut load = even(200, cores);
    load.retain(|(slot, _)| (*slot < 0x8000) == is_lower);
    load
}

/// Some slots have nearly all.
fn few_slots(slots: &[u16], cores: f64) -> Vec<Demand> {
    let mut load = even(200, 0.03);
    let each = cores / slots.len() as f64;
    load.extend(slots.iter().map(|slot| (*slot, each)));
    load
}

const ONE: Machines = Machines {
    nodes: 1,
    threads: 2,
    cores: 2.0,
    busy_beside: 0,
    news_after: 1,
};

const THREE: Machines = Machines {
    nodes: 3,
    cores: 4.0,
    ..ONE
};

/// Other programs that take as much as they get.
const fn beside(machines: Machines) -> Machines {
    Machines {
        busy_beside: machines.cores as usize,
        ..machines
    }
}

const fn with_old_views(machines: Machines) -> Machines {
    Machines {
        news_after: 15,
        ..machines
    }
}

/// Seconds 0 to 29 of each minute, and nothing in the others.
fn comes_and_goes(second: usize) -> Vec<Demand> {
    even(200, if second % 60 < 30 { 1.9 } else { 0.0 })
}

/// Each tenth second is quiet.
fn gusts(second: usize) -> Vec<Demand> {
    even(200, if second % 10 < 9 { 1.9 } else { 0.0 })
}

/// A situation: its name, the machines, and the load by second.
type Scene = (&'static str, Machines, fn(usize) -> Vec<Demand>);

const EIGHT_CORES: Machines = Machines {
    threads: 4,
    cores: 8.0,
    ..ONE
};

#[rustfmt::skip]
const ROWS: &[Scene] = &[
    ("nothing", THREE, |_| Vec::new()),
    ("little", THREE, |_| even(200, 0.2)),
    ("even", ONE, |_| even(200, 0.9)),
    ("even, beside others", beside(ONE), |_| even(200, 0.9)),
    ("more than there is", ONE, |_| even(200, 5.0)),
    ("four threads", EIGHT_CORES, |_| even(200, 3.5)),
    ("even, three nodes", THREE, |_| even(200, 1.9)),
    ("much, three nodes", THREE, |_| even(200, 5.0)),
    ("three nodes beside others", beside(THREE), |_| even(200, 0.9)),
    ("old views", with_old_views(THREE), |_| even(200, 5.0)),
    ("comes and goes", THREE, comes_and_goes),
    // Busy is who is busy in each of ten seconds.
    ("gusts", THREE, gusts),
    ("hot tenth", THREE, |second| hot_tenth(second, 0.9)),
    ("hot tenth, old views", with_old_views(THREE), |second| hot_tenth(second, 0.9)),
    ("halves by turns", THREE, |second| half_by_turns(second, 1.9)),
    ("one slot", THREE, |_| few_slots(&[700], 0.9)),
    ("two slots side by side", THREE, |_| few_slots(&[700, 701], 0.9)),
    ("two slots in turns", ONE, |second| few_slots(&[700 + (second / 3 % 2) as u16], 0.9)),
];

/// The names of all situations.
pub const SCENES: [&str; ROWS.len()] = {
    let mut names = [""; ROWS.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = ROWS[place].0;
        place += 1;
    }
    names
};

/// What becomes of a situation in six minutes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Played {
    /// The situation.
    pub scene: &'static str,
    /// For each minute, splits + moves of leaders.
    pub by_minute: String,
    /// What each node leads in the end, in tenths of a core.
    pub led: Vec<u128>,
    /// The first failure of a script.
    pub fault: Option<ScriptFault>,
}

/// Plays all situations, with shards of one store that are split as these options say, but for `shards_most`, which is four
/// for each core. With [`SplitBy::Script`] each node has the script that `script` gives. Takes some seconds of CPU time.
pub fn play(
    store: StoreId,
    options: SplitOptions,
    script: &mut dyn FnMut() -> Option<Box<dyn SplitScript>>,
) -> Vec<Played> {
    let play = |(scene, machines, load): &Scene| {
        let mut model = Model::new(*machines, store, options, script);
        model.run(6, load);
        let mut faults = model.nodes.iter().map(|node| node.scripts.fault(store));
        Played {
            scene,
            by_minute: model.by_minute(),
            led: model.led(),
            fault: faults
                .find_map(|standing| standing)
                .map(|standing| standing.fault),
        }
    };
    ROWS.iter().map(play).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitting::options::{Density, SplitBy};

    const BY_LOAD: SplitOptions = SplitOptions {
        by: SplitBy::Load,
        cooldown: Duration::from_secs(20),
        shards_most: NonZeroU16::MAX,
        operation_limit: Duration::ZERO,
        density_most: Density(0),
        cpu_usage_most: 0.0,
    };

    const REST: &str = "0+0 0+0 0+0 0+0 0+0 0+0";

    const ONE_SPLIT: &str = "1+0 0+0 0+0 0+0 0+0 0+0";

    /// What becomes of each situation: splits + moves of leaders by minute, and what each node leads in the end, in tenths of a core.
    #[rustfmt::skip]
    const EXPECTED: &[(&str, &str, &[u128])] = &[
        ("nothing", REST, &[0, 0, 0]),
        ("little", REST, &[2, 0, 0]),
        ("even", ONE_SPLIT, &[9]),
        ("even, beside others", ONE_SPLIT, &[9]),
        ("more than there is", ONE_SPLIT, &[20]),
        ("four threads", "3+0 0+0 0+0 0+0 0+0 0+0", &[35]),
        ("even, three nodes", "6+2 1+1 0+0 0+0 0+0 0+0", &[7, 7, 4]),
        ("much, three nodes", "6+2 5+5 0+0 0+0 0+0 0+0", &[16, 15, 15]),
        ("three nodes beside others", "6+2 1+1 0+0 0+0 0+0 0+0", &[3, 3, 2]),
        ("old views", "6+2 5+4 4+2 0+0 0+0 0+0", &[15, 17, 17]),
        ("comes and goes", "4+2 3+2 0+0 0+0 0+0 0+0", &[0, 0, 0]),
        ("gusts", REST, &[9, 0, 0]),
        // In the end there are as many shards as there may be.
        ("hot tenth", "3+2 3+1 3+2 3+3 3+2 0+1", &[8, 0, 0]),
        ("hot tenth, old views", "3+2 3+1 3+2 3+5 3+2 0+1", &[8, 0, 0]),
        ("halves by turns", "3+2 3+1 0+2 0+2 0+3 0+2", &[2, 2, 4]),
        ("one slot", REST, &[9, 0, 0]),
        ("two slots side by side", "1+1 0+0 0+0 0+0 0+0 0+0", &[4, 4, 0]),
        ("two slots in turns", ONE_SPLIT, &[9]),
    ];

    #[test]
    fn what_is_decided_by_minute() {
        let mut differences = String::new();
        let played = play(StoreId::Inbox, BY_LOAD, &mut || None);
        assert_eq!(played.len(), EXPECTED.len());
        for (found, (name, by_minute, led)) in played.iter().zip(EXPECTED) {
            assert_eq!(found.scene, *name);
            if (&*found.by_minute, &*found.led) != (*by_minute, *led) {
                writeln!(differences, "{found:?}").unwrap();
            }
        }
        assert!(differences.is_empty(), "\n{differences}");
    }

    #[test]
    fn a_hot_slot_is_named_once_a_minute() {
        let mut model = Model::new(THREE, StoreId::Inbox, BY_LOAD, &mut || None);
        model.run(6, |_| few_slots(&[700], 0.9));
        let named: Vec<usize> = model.minutes.iter().map(|minute| minute.named).collect();
        assert_eq!(named, [1; 6]);
    }
}
