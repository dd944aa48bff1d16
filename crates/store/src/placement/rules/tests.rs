use std::collections::BTreeMap;

use proptest::prelude::*;
use store_state::api::StoreId;

use super::*;

fn up(node: u64) -> Place {
    Place {
        node,
        is_up: true,
        role: Role::Serves,
        down_for: Duration::ZERO,
        strain: Some(Strain::default()),
    }
}

fn down(node: u64, seconds: u64) -> Place {
    Place {
        is_up: false,
        down_for: Duration::from_secs(seconds),
        ..up(node)
    }
}

fn placed(number: u16, leader: u64, voters: &[u64]) -> Placed {
    Placed {
        shard: (StoreId::Session, number),
        leader,
        voters: voters.iter().copied().collect(),
        learners: BTreeSet::new(),
        load: Duration::ZERO,
        is_settled: true,
    }
}

/// The same with a load in ms.
fn busy(number: u16, leader: u64, load: u64) -> Placed {
    Placed {
        load: Duration::from_millis(load),
        ..placed(number, leader, &[1, 2, 3])
    }
}

/// Who leads each shard in the end, and how many steps that took.
fn settled(shards: Vec<Placed>) -> (Vec<u64>, usize) {
    let mut three = situation(vec![up(1), up(2), up(3)], shards);
    let steps = three.settle(None);
    (
        three.shards.iter().map(|shard| shard.leader).collect(),
        steps,
    )
}

fn situation(places: Vec<Place>, shards: Vec<Placed>) -> Situation {
    Situation {
        places,
        shards,
        replace_after: Duration::from_secs(600),
    }
}

fn loads(situation: &Situation) -> BTreeMap<u64, usize> {
    let load = |node| {
        situation
            .shards
            .iter()
            .filter(|s| s.voters.contains(&node))
            .count()
    };
    let places = situation.places.iter();
    places.map(|place| (place.node, load(place.node))).collect()
}

impl Situation {
    /// Does what the leaders ask for, one after the other, until nobody asks for anything.
    fn settle(&mut self, wanted: Option<usize>) -> usize {
        for steps in 0..1000 {
            let asked = (0..self.shards.len()).find_map(|at| {
                let leads = self
                    .place(self.shards[at].leader)
                    .is_some_and(|place| place.is_up);
                let step = self.next_step(&self.shards[at], wanted).filter(|_| leads);
                step.map(|step| (at, step))
            });
            let Some((at, step)) = asked else {
                return steps;
            };
            self.shards[at].take(step);
        }
        panic!("it does not end: {self:?}");
    }

    /// The same, but all leaders look before any of them has done anything.
    fn settle_together(&mut self) {
        for _ in 0..100 {
            let ask = |shard: &Placed| self.next_step(shard, None);
            let steps: Vec<_> = self.shards.iter().map(ask).collect();
            if steps.iter().all(Option::is_none) {
                return;
            }
            for (shard, step) in self.shards.iter_mut().zip(steps) {
                if let Some(step) = step {
                    shard.take(step);
                }
            }
        }
        panic!("it does not end: {self:?}");
    }
}

impl Placed {
    fn take(&mut self, step: Step) {
        match step {
            Step::AddLearner(node) => assert!(self.learners.insert(node)),
            Step::RemoveLearner(node) => assert!(self.learners.remove(&node)),
            Step::Transfer(node) => {
                assert!(self.voters.contains(&node) && node != self.leader);
                self.leader = node;
            }
            Step::ChangeVoters(voters) => {
                assert!(voters.contains(&self.leader), "{voters:?} {self:?}");
                let follows = |n: &u64| self.voters.contains(n) || self.learners.contains(n);
                assert!(voters.iter().all(follows));
                self.learners.retain(|node| !voters.contains(node));
                self.voters = voters;
            }
        }
    }
}

#[test]
fn a_node_that_is_alone_has_nothing_to_do() {
    let mut alone = situation(vec![up(1)], vec![placed(0, 1, &[1]), placed(1, 1, &[1])]);
    assert_eq!(alone.settle(None), 0);
    assert_eq!(alone.settle(Some(3)), 0);
}

#[test]
fn three_nodes_make_three_voters_and_two_do_not() {
    let shards: Vec<_> = (0..3).map(|number| placed(number, 1, &[1])).collect();
    let mut two = situation(vec![up(1), up(2)], shards.clone());
    two.settle(None);
    assert!(two.shards.iter().all(|shard| shard.voters.len() == 1));
    let mut three = situation(vec![up(1), up(2), up(3)], shards);
    three.settle(None);
    let all = BTreeSet::from([1, 2, 3]);
    assert!(three.shards.iter().all(|shard| shard.voters == all));
    let leaders: BTreeSet<_> = three.shards.iter().map(|shard| shard.leader).collect();
    assert_eq!(leaders, all);
}

#[test]
fn leaders_that_look_at_the_same_time_do_not_pass_shards_to_and_fro() {
    let mut together = situation(
        vec![up(1), up(2), up(3)],
        (0..3)
            .map(|n| placed(n, 1 + u64::from(n) / 2, &[1, 2, 3]))
            .collect(),
    );
    together.settle_together();
}

#[test]
fn leaders_that_look_at_the_same_time_do_not_add_a_replica_and_remove_it_again() {
    let mut voters = vec![placed(0, 3, &[2, 3, 4])];
    voters.extend((1..4).map(|n| placed(n, 2, &[1, 2, 3])));
    let mut together = situation(vec![up(1), up(2), up(3), up(4)], voters);
    together.places[0].role = Role::Rests;
    together.settle_together();
    assert_eq!(together.shards[1].voters, BTreeSet::from([1, 2, 4]));
}

#[test]
fn single_voters_are_spread_over_the_nodes() {
    let shards = (0..6).map(|number| placed(number, 1, &[1])).collect();
    let mut spread = situation(vec![up(1), up(2), up(3)], shards);
    spread.settle(Some(1));
    assert_eq!(loads(&spread), BTreeMap::from([(1, 2), (2, 2), (3, 2)]));
    assert!(
        spread
            .shards
            .iter()
            .all(|shard| shard.voters.contains(&shard.leader))
    );
}

#[test]
fn a_dead_voter_is_replaced_after_a_while_if_there_is_a_node() {
    let shard = placed(0, 1, &[1, 2, 3]);
    let wait = situation(vec![up(1), up(2), down(3, 599), up(4)], vec![shard.clone()]);
    assert_eq!(wait.next_step(&shard, None), None);
    let mut late = situation(vec![up(1), up(2), down(3, 600), up(4)], vec![shard.clone()]);
    late.settle(None);
    assert_eq!(late.shards[0].voters, BTreeSet::from([1, 2, 4]));
    let nobody = situation(vec![up(1), up(2), down(3, 6000)], vec![shard.clone()]);
    assert_eq!(nobody.next_step(&shard, None), None);
}

#[test]
fn an_evicted_node_is_replaced_at_once_or_left_out() {
    let shard = placed(0, 1, &[1, 2, 3]);
    let mut four = situation(vec![up(1), up(2), up(4)], vec![shard.clone()]);
    four.settle(None);
    assert_eq!(four.shards[0].voters, BTreeSet::from([1, 2, 4]));
    let mut two = situation(vec![up(1), up(2)], vec![shard]);
    two.settle(None);
    assert_eq!(two.shards[0].voters, BTreeSet::from([1]));
}

#[test]
fn a_node_that_leaves_hands_everything_over() {
    let mut left = situation(
        vec![up(1), up(2), up(3), up(4)],
        vec![
            placed(0, 1, &[1, 2, 3]),
            placed(1, 1, &[1]),
            placed(2, 2, &[1, 2, 3]),
        ],
    );
    left.places[0].role = Role::Leaves;
    left.settle(None);
    assert_eq!(loads(&left)[&1], 0, "{left:?}");
    assert!(left.shards.iter().all(|shard| shard.leader != 1));
}

#[test]
fn of_three_nodes_one_can_leave() {
    let mut left = situation(
        vec![up(1), up(2), up(3)],
        vec![placed(0, 1, &[1, 2, 3]), placed(1, 2, &[1, 2, 3])],
    );
    left.places[0].role = Role::Leaves;
    left.settle(None);
    assert_eq!(loads(&left)[&1], 0, "{left:?}");
}

#[test]
fn a_node_that_rests_leads_nothing_and_keeps_what_others_have_too() {
    let mut resting = situation(
        vec![up(1), up(2), up(3), up(4)],
        vec![placed(0, 1, &[1, 2, 3]), placed(1, 2, &[1, 2, 3])],
    );
    resting.places[0].role = Role::Rests;
    resting.settle(None);
    assert_eq!(loads(&resting)[&1], 2, "{resting:?}");
    assert!(resting.shards.iter().all(|shard| shard.leader != 1));
}

#[test]
fn the_only_replica_does_not_stay_on_a_node_that_rests() {
    let mut resting = situation(vec![up(1), up(2)], vec![placed(0, 1, &[1])]);
    resting.places[0].role = Role::Rests;
    resting.settle(None);
    assert_eq!(loads(&resting)[&1], 0, "{resting:?}");
}

#[test]
fn the_last_node_that_rests_keeps_everything() {
    let mut resting = situation(vec![up(1)], vec![placed(0, 1, &[1])]);
    resting.places[0].role = Role::Rests;
    assert_eq!(resting.settle(None), 0);
}

#[test]
fn a_node_that_leaves_hands_over_to_one_that_rests_if_nobody_serves() {
    let mut left = situation(
        vec![up(1), up(2), up(3)],
        vec![placed(0, 3, &[1, 3]), placed(1, 3, &[1, 2, 3])],
    );
    left.places[0].role = Role::Rests;
    left.places[1].role = Role::Leaves;
    left.places[2].role = Role::Leaves;
    left.settle(None);
    for shard in &left.shards {
        assert_eq!((shard.leader, &shard.voters), (1, &BTreeSet::from([1])));
    }
}

#[test]
fn a_new_node_is_given_its_share() {
    let shards = (0..4)
        .map(|n| placed(n, 1 + u64::from(n) % 3, &[1, 2, 3]))
        .collect();
    let mut grown = situation(vec![up(1), up(2), up(3), up(4)], shards);
    grown.settle(None);
    let loads = loads(&grown);
    assert_eq!(loads.values().sum::<usize>(), 12);
    assert!(
        loads.values().all(|load| (2..=4).contains(load)),
        "{loads:?}"
    );
}

fn strained(node: u64, is_full: bool, unreached: usize) -> Place {
    let strain = Strain {
        is_full,
        unreached,
        unsteady: 0,
    };
    Place {
        strain: Some(strain),
        ..up(node)
    }
}

#[test]
fn a_leader_that_others_speak_against_less_than_is_replaced_by_them() {
    let shard = || placed(0, 1, &[1, 2, 3]);
    let next = |places: Vec<Place>| situation(places, vec![shard()]).next_step(&shard(), None);
    // Node 1 does not reach node 3, nor the other way round.
    let cut = vec![strained(1, false, 1), up(2), strained(3, false, 1)];
    assert_eq!(next(cut), Some(Step::Transfer(2)));
    let full = vec![strained(1, true, 0), strained(2, false, 1), up(3)];
    assert_eq!(next(full), Some(Step::Transfer(3)));
    // There is nobody better.
    let all = vec![
        strained(1, true, 0),
        strained(2, true, 0),
        strained(3, true, 1),
    ];
    assert_eq!(next(all), None);
    let unknown = Place {
        strain: None,
        ..up(2)
    };
    assert_eq!(next(vec![strained(1, false, 1), unknown, down(3, 1)]), None);
}

#[test]
fn leads_are_spread_over_nodes_that_are_no_less_fit() {
    let shards: Vec<Placed> = (0..6).map(|number| placed(number, 1, &[1, 2, 3])).collect();
    let mut situation = situation(vec![up(1), strained(2, true, 0), up(3)], shards);
    situation.settle(None);
    let led = [1, 2, 3].map(|node| situation.led_by(node));
    assert_eq!(led, [3, 0, 3]);
}

fn strain() -> impl Strategy<Value = Option<Strain>> {
    let strain = (any::<bool>(), 0..3_usize, 0..2_u32);
    prop::option::of(strain.prop_map(|(is_full, unreached, unsteady)| Strain {
        is_full,
        unreached,
        unsteady,
    }))
}

fn role() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::Serves, Role::Rests, Role::Leaves])
}

proptest! {
    /// Whatever the situation: it ends, and as many voters are there as there can be.
    #[test]
    fn it_settles(
        nodes in prop::collection::vec((any::<bool>(), role(), 0..1200_u64, strain()), 1..7),
        voters in prop::collection::vec(prop::collection::btree_set(1..9_u64, 1..6), 1..12),
        wanted in prop::option::of(prop::sample::select(vec![1_usize, 3, 5])),
    ) {
        let places: Vec<Place> = (1..)
            .zip(nodes)
            .map(|(node, (is_up, role, seconds, strain))| Place {
                node,
                is_up,
                role,
                down_for: if is_up { Duration::ZERO } else { Duration::from_secs(seconds) },
                strain,
            })
            .collect();
        let is_up = |node: &u64| places.iter().any(|place| place.node == *node && place.is_up);
        let shards: Vec<Placed> = (0..)
            .zip(voters)
            .filter_map(|(number, voters)| {
                let leader = *voters.iter().find(|node| is_up(node))?;
                let voters: Vec<u64> = voters.into_iter().collect();
                Some(placed(number, leader, &voters))
            })
            .collect();
        let mut before = situation(places, shards);
        before.settle(wanted);
        let good = before.places.iter().filter(|p| p.is_up && p.role == Role::Serves).count();
        for shard in &before.shards {
            prop_assert!(shard.learners.is_empty());
            if good >= 1 {
                let stays = |n: &u64| before.place(*n).is_some_and(|p| p.role != Role::Leaves);
                prop_assert!(shard.voters.iter().any(stays), "{:?}", shard);
            }
        }
    }
}

#[test]
fn leaders_follow_the_load() {
    for (shards, leaders, steps) in [
        // The halves of a busy shard: one each.
        (
            vec![
                busy(0, 1, 200),
                busy(1, 1, 200),
                busy(2, 2, 0),
                busy(3, 3, 0),
            ],
            vec![2, 1, 2, 3],
            1,
        ),
        // One busy shard among idle ones stays, wherever it is.
        (
            vec![busy(0, 1, 900), busy(1, 2, 0), busy(2, 3, 0)],
            vec![1, 2, 3],
            0,
        ),
        (
            vec![
                busy(0, 1, 900),
                busy(1, 1, 10),
                busy(2, 2, 0),
                busy(3, 3, 0),
            ],
            vec![1, 1, 2, 3],
            0,
        ),
        // Counts do not bring back what the load has moved.
        (
            vec![
                busy(0, 1, 900),
                busy(1, 2, 90),
                busy(2, 2, 90),
                busy(3, 2, 90),
                busy(4, 3, 300),
            ],
            vec![1, 2, 2, 2, 3],
            0,
        ),
        // Less than the floor: by counts.
        (
            vec![busy(0, 1, 40), busy(1, 1, 40), busy(2, 1, 0)],
            vec![2, 3, 1],
            2,
        ),
        // A cold start: all on one node.
        (
            vec![busy(0, 1, 300), busy(1, 1, 300), busy(2, 1, 300)],
            vec![2, 3, 1],
            2,
        ),
    ] {
        let told = format!("{shards:?}");
        assert_eq!(settled(shards), (leaders, steps), "{told}");
    }
}

#[test]
fn a_shard_that_has_just_come_is_not_moved_by_its_load() {
    let mut shards = vec![
        busy(0, 1, 400),
        busy(1, 1, 400),
        busy(2, 2, 0),
        busy(3, 3, 0),
    ];
    for shard in &mut shards {
        shard.is_settled = false;
    }
    assert_eq!(settled(shards), (vec![1, 1, 2, 3], 0));
}

#[test]
fn a_less_fit_node_is_not_given_load() {
    let shards = vec![
        busy(0, 1, 400),
        busy(1, 1, 400),
        busy(2, 2, 0),
        busy(3, 3, 0),
    ];
    let mut three = situation(vec![up(1), up(2), up(3)], shards);
    for node in [1, 2] {
        three.places[node].strain = Some(Strain {
            unsteady: 1,
            ..Strain::default()
        });
    }
    // The others give away what they lead.
    three.settle(None);
    assert!(three.shards.iter().all(|shard| shard.leader == 1));
}

/// Nodes that go by loads of some rounds ago, all of them at once, come to an end as well.
#[test]
fn old_views_move_nothing_to_and_fro() {
    let shards: Vec<Placed> = (0..9)
        .map(|n| busy(n, 1, 100 + u64::from(n) * 20))
        .collect();
    let mut world = situation(vec![up(1), up(2), up(3)], shards);
    let mut moved = [0; 9];
    // A shard is settled so many rounds after it was moved.
    let mut unsettled = [0; 9];
    for _ in 0..200 {
        let steps: Vec<_> = world
            .shards
            .iter()
            .map(|shard| world.next_step(shard, None))
            .collect();
        for (at, step) in steps.into_iter().enumerate() {
            unsettled[at] = i32::max(unsettled[at] - 1, 0);
            if let Some(step) = step {
                world.shards[at].take(step);
                moved[at] += 1;
                unsettled[at] = 20;
            }
            world.shards[at].is_settled = unsettled[at] == 0;
        }
    }
    assert!(moved.iter().all(|moves| *moves <= 2), "{moved:?}");
    let loads: Vec<u128> = (1..=3)
        .map(|node| world.led_load(node).as_millis())
        .collect();
    // As near as shards of up to 260 ms can be brought to each other.
    let apart = loads.iter().max().unwrap() - loads.iter().min().unwrap();
    assert!(apart <= 260 + LOAD_FLOOR.as_millis(), "{loads:?}");
}

/// Counts gave a busy node one more shard, loads gave one back, and so on without end.
#[test]
fn counts_and_loads_do_not_move_shards_in_turns() {
    let shards = [
        (2, 518),
        (4, 461),
        (4, 509),
        (1, 0),
        (1, 423),
        (3, 339),
        (3, 0),
        (4, 499),
        (2, 0),
        (3, 0),
    ];
    let shards = (0..).zip(shards).map(|(number, (leader, load))| Placed {
        voters: BTreeSet::from([1, 2, 3, 4]),
        ..busy(number, leader, load)
    });
    let mut four = situation(vec![up(1), up(2), up(3), up(4)], shards.collect());
    // Four voters are an even number: the leaders alone are looked at.
    for _ in 0..100 {
        let asked = (0..four.shards.len()).find_map(|at| {
            let other = four.other_leader(&four.shards[at])?;
            Some((at, other))
        });
        let Some((at, other)) = asked else {
            return;
        };
        four.shards[at].leader = other;
    }
    panic!("it does not end: {four:?}");
}

#[test]
fn a_node_may_claim_any_load() {
    let mut shards = vec![
        busy(0, 1, 400),
        busy(1, 1, 400),
        busy(2, 2, 0),
        busy(3, 2, 0),
        busy(4, 3, 0),
    ];
    for shard in &mut shards[2..4] {
        shard.load = Duration::MAX;
    }
    let three = situation(vec![up(1), up(2), up(3)], shards);
    for at in [0, 1, 4] {
        assert_eq!(three.next_step(&three.shards[at], None), None);
    }
}

/// The shard of the control store.
fn control(voters: &[u64], learners: &[u64]) -> Placed {
    Placed {
        shard: (StoreId::Control, 0),
        learners: learners.iter().copied().collect(),
        ..placed(0, voters[0], voters)
    }
}

#[test]
fn the_control_store_has_a_replica_on_every_node_that_stays() {
    let leaving = Place {
        role: Role::Leaves,
        ..up(5)
    };
    let resting = Place {
        role: Role::Rests,
        ..up(6)
    };
    let places = vec![up(1), up(2), up(3), down(4, 1), leaving, resting];
    let step = |learners: &[u64]| {
        let own = control(&[1, 2, 3], learners);
        let situation = situation(places.clone(), vec![own.clone()]);
        situation.next_step(&own, None)
    };
    assert_eq!(step(&[]), Some(Step::AddLearner(6)));
    assert_eq!(step(&[6]), None);
    // One that is down comes back; one that leaves, or is no member any more, does not.
    assert_eq!(step(&[4, 6]), None);
    assert_eq!(step(&[5, 6]), Some(Step::RemoveLearner(5)));
    assert_eq!(step(&[6, 7]), Some(Step::RemoveLearner(7)));
}

#[test]
fn replicas_that_every_node_has_move_no_others() {
    let shards = vec![placed(0, 1, &[1]), control(&[2], &[3])];
    let own = shards[0].clone();
    let situation = situation(vec![up(1), up(2), up(3)], shards);
    assert_eq!(situation.load(2, &own), 0);
}
