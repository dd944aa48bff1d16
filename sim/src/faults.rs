//! What goes wrong, and when: the seed decides.

use store::Role;

use crate::node::Part;
use crate::world::{Damages, World};

/// How long things go wrong, in ms.
const LENGTH: usize = 20_000;

/// How long after the other two have crashed the third is reached again, in ms.
const REACHED: u64 = 50;

/// Nodes at the most.
const NODES: usize = 5;

/// Lets things go wrong for a while.
pub(crate) fn rage(world: &mut World) -> Result<(), String> {
    let end = world.now + 8_000 + world.chance.below(LENGTH) as u64;
    let calm = 300 + world.chance.below(3_000);
    let mut next = world.now;
    while world.now < end {
        crate::step(world)?;
        for node in world.operators.splits.take_asked() {
            strike_split(world, node);
        }
        if world.now >= next {
            next = world.now + world.chance.below(2 * calm) as u64;
            strike(world);
        }
    }
    Ok(())
}

/// The election that a node with a damaged log decides: it and another one have acknowledged what a third lacks, its log
/// loses the end, and for a while it is alone with the third.
pub(crate) fn elect_the_third(world: &mut World) -> Result<(), String> {
    let mut all: Vec<u64> = world.nodes.keys().copied().collect();
    let mut draw = || all.swap_remove(world.chance.below(all.len()));
    let (third, damaged, other) = (draw(), draw(), draw());
    let away = 300 + world.chance.below(3_000) as u64;
    world.cut(around(third, &[third, damaged, other]), away + REACHED);
    crate::pass(world, away)?;
    world.damages = Damages::Once(Part::End);
    world.crash(damaged);
    world.crash(other);
    if world.damages != Damages::Done {
        world.damages = Damages::Once(Part::Any);
    }
    let off = 50 + world.chance.below(500) as u64;
    world.start_later(damaged, off);
    let alone = 3_000 + world.chance.below(4_000) as u64;
    world.start_later(other, off + alone);
    crate::pass(world, off + alone)
}

fn strike(world: &mut World) {
    let alive: Vec<u64> = world.alive().into_iter().collect();
    if alive.is_empty() {
        return;
    }
    let one = alive[world.chance.below(alive.len())];
    let time = 300 + world.chance.below(7_000) as u64;
    let all: Vec<u64> = world.nodes.keys().copied().collect();
    match world.chance.below(100) {
        0..15 => {
            world.crash(one);
            world.start_later(one, time);
        }
        15..25 => {
            let operations = world.chance.below(60) as u64;
            world.nodes[&one].disk.fail_power_after(operations);
        }
        25..45 => world.cut(around(one, &all), time),
        45..55 => {
            let other = all[world.chance.below(all.len())];
            world.cut(vec![(one, other)], time);
        }
        55..62 => split(world, &all, time),
        62..68 => bridge(world, one, &all, time),
        68..72 => flap(world, one, &all),
        72..77 => {
            let other = all[world.chance.below(all.len())];
            world.reset(one, other);
        }
        77..82 => world.move_a_lead(one),
        82..85 if all.len() < NODES => {
            world.add();
        }
        85..90 => {
            let role = [Role::Serves, Role::Rests, Role::Leaves][world.chance.below(3)];
            world.give_role(one, role);
        }
        90..93
            if alive.len() > 3 && alive.len() == world.members().len() && world.can_lose(one) =>
        {
            world.evict(one);
        }
        _ => {}
    }
}

/// Strikes the leader of a shard that is being split, or another node, now and then.
fn strike_split(world: &mut World, leader: u64) {
    let all: Vec<u64> = world.nodes.keys().copied().collect();
    let other = all[world.chance.below(all.len())];
    let one = [leader, other][world.chance.below(2)];
    let time = 100 + world.chance.below(3_000) as u64;
    match world.chance.below(8) {
        0 | 1 if world.nodes[&one].life.is_some() => {
            let operations = world.chance.below(40) as u64;
            world.nodes[&one].disk.fail_power_after(operations);
        }
        2 => {
            let pairs = vec![(leader, other), (other, leader)];
            world.flap(&pairs, time, 1);
        }
        3 => world.cut(around(one, &all), time),
        4 => world.move_a_lead(leader),
        _ => {}
    }
}

/// The ways between a node and all others.
fn around(one: u64, all: &[u64]) -> Vec<(u64, u64)> {
    let others = all.iter().copied().filter(|other| *other != one);
    others
        .flat_map(|other| [(one, other), (other, one)])
        .collect()
}

/// Two nodes do not reach each other, and others reach both.
fn bridge(world: &mut World, one: u64, all: &[u64], time: u64) {
    let other = all[world.chance.below(all.len())];
    if other != one {
        world.cut(vec![(one, other), (other, one)], time);
    }
}

/// The links of a node, or one of them, break again and again.
fn flap(world: &mut World, one: u64, all: &[u64]) {
    let mut others: Vec<u64> = all.iter().copied().filter(|other| *other != one).collect();
    if others.is_empty() {
        return;
    }
    if world.chance.below(2) == 0 {
        others = vec![others[world.chance.below(others.len())]];
    }
    let pairs = others
        .iter()
        .flat_map(|other| [(one, *other), (*other, one)]);
    let pairs: Vec<_> = pairs.collect();
    let time = 100 + world.chance.below(1_500) as u64;
    let times = 2 + world.chance.below(6) as u64;
    world.flap(&pairs, time, times);
}

/// Cuts the nodes into two parts.
fn split(world: &mut World, all: &[u64], time: u64) {
    let side: Vec<bool> = all.iter().map(|_| world.chance.below(2) == 0).collect();
    let mut pairs = Vec::new();
    for (from, from_side) in all.iter().zip(&side) {
        for (to, to_side) in all.iter().zip(&side) {
            if from_side != to_side {
                pairs.push((*from, *to));
            }
        }
    }
    world.cut(pairs, time);
}
