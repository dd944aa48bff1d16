//! When nothing goes wrong any more, all becomes quiet: each shard has a leader that all know, and the voters
//! that it should have, which have all applied the same; each client is connected and has its answers; and
//! each will that was due is recorded as published.

use std::collections::BTreeSet;

use store::{Lead, Role};
use store_state::api::StoreId;

use crate::node::{seen, stores};
use crate::world::World;

/// Why it is not quiet.
pub(crate) fn check(world: &World) -> Result<(), String> {
    world.clients.are_done()?;
    super::p01_acknowledged_is_kept::check(&world.history)?;
    world.operators.splits.are_done()?;
    super::control::is_quiet(&seen(&world.nodes))?;
    let role = |id: &u64| world.nodes[id].role;
    let mut known = None;
    for node in world.nodes.values() {
        let Some(life) = &node.life else {
            continue;
        };
        let leads = life.store().leads();
        let places: Vec<_> = leads
            .iter()
            .map(|(leader, lead)| (*leader, lead.store, lead.shard, lead.term(), &lead.voters))
            .map(|(leader, store, shard, term, voters)| {
                (leader, store, shard, term, voters.clone())
            })
            .collect();
        if places.len() != life.store().shards().len() {
            return Err(format!("node {} knows of {places:?} only", node.id));
        }
        let is_settled = |(leader, lead): &(u64, Lead)| {
            let others = world.members().difference(&lead.voters);
            let mut others = others.filter(|id| role(id) != Role::Leaves);
            let are_wanted = match lead.store {
                StoreId::Control => others.by_ref().eq(&lead.learners),
                _ => lead.learners.is_empty(),
            };
            are_wanted && has_places(world, *leader, &lead.voters)
        };
        if !leads.iter().all(is_settled) {
            return Err(format!("replicas are not where they should be: {leads:?}"));
        }
        if *known.get_or_insert_with(|| places.clone()) != places {
            return Err(format!("{known:?} and {places:?}"));
        }
    }
    have_applied_the_same(world)?;
    let stores = stores(&world.nodes);
    world.levels.are_done(&stores)?;
    super::ranges::check_at_rest(&stores)?;
    super::splits::check_at_rest(&stores)
}

/// Whether a shard has the replicas that it should have.
fn has_places(world: &World, leader: u64, voters: &BTreeSet<u64>) -> bool {
    let role = |id: &u64| world.nodes[id].role;
    let serving = |ids: &BTreeSet<u64>| ids.iter().filter(|id| role(id) == Role::Serves).count();
    let able = serving(world.members());
    // Nodes that rest may vote, if there are not enough others.
    let is_count = voters.len() == 3 || voters.len() == 1 && able < 3;
    let may_vote =
        |id: &u64| world.members().contains(id) && (role(id) != Role::Leaves || able == 0);
    let may_lead = role(&leader) == Role::Serves || serving(voters) == 0;
    is_count && voters.iter().all(may_vote) && may_lead
}

/// Whether a node is to have a replica.
fn has_replica(lead: &Lead, node: u64) -> bool {
    lead.voters.contains(&node) || lead.store == StoreId::Control && lead.learners.contains(&node)
}

/// Only the voters have replicas, or all members where every node is to have one, and these have applied the same.
fn have_applied_the_same(world: &World) -> Result<(), String> {
    let mut applied = std::collections::BTreeMap::new();
    for node in world.nodes.values() {
        let Some(life) = &node.life else {
            continue;
        };
        let leads = life.store().leads();
        for replica in life.store().replicas() {
            let place = (replica.store, replica.shard);
            let is_it = |lead: &Lead| (lead.store, lead.shard) == place;
            if !leads
                .iter()
                .any(|(_, lead)| is_it(lead) && has_replica(lead, node.id))
            {
                return Err(format!("{place:?}: node {} has a replica still", node.id));
            }
            if replica.unfinished > 0 {
                return Err(format!("{place:?}: wills are not recorded"));
            }
            let other = *applied.entry(place).or_insert(replica.applied);
            if other != replica.applied {
                return Err(format!("{place:?}: {other} and {}", replica.applied));
            }
        }
    }
    Ok(())
}
