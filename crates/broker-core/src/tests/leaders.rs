//! Shards whose leader changes: clients of a loop are visited for them in parts.

use std::collections::BTreeSet;

use super::World;

/// More than are visited in one turn.
const CLIENTS: usize = 600;

/// At most so many are visited in one turn.
const PER_TURN: usize = 256 + 64;

/// Enough for all clients.
const TURNS: usize = 100;

fn with_clients(mut world: World, how: &str) -> World {
    for number in 0..CLIENTS {
        let effects = world.play(&format!("c{number} connects{how}"));
        let answer = format!("c{number} CONNACK 0x00");
        assert_eq!(effects.last(), Some(&answer));
    }
    world
}

/// The inboxes that are opened in the next turns, each once.
fn opened_in_turns(world: &mut World) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    for _ in 0..TURNS {
        assert_eq!(world.play("a turn passes"), [""; 0]);
        let opened = world.opened();
        assert!(opened.len() < PER_TURN);
        for inbox in opened {
            assert!(all.insert(inbox), "{inbox} is opened twice");
        }
    }
    all
}

#[test]
fn all_inboxes_are_opened_again_in_parts_at_the_last_leader() {
    let mut world = with_clients(World::new(), " durable");
    let all = BTreeSet::from_iter(world.opened());
    assert_eq!(all.len(), CLIENTS);
    world.play("the inboxes have another leader");
    let first = world.opened();
    assert!(!first.is_empty() && first.len() < PER_TURN);
    // What was opened is lost.
    world.play("the inboxes have another leader");
    assert_eq!(world.opened(), [0; 0]);
    assert_eq!(opened_in_turns(&mut world), all);
    // The last one is open.
    let effects = world.play("the inbox gives 1 t x 1");
    assert_eq!(effects.len(), 1);
    assert!(effects[0].ends_with(" PUBLISH t x 1 #1"), "{effects:?}");
    assert_eq!(opened_in_turns(&mut world), BTreeSet::new());
}

#[test]
fn an_inbox_is_not_opened_for_a_client_that_has_gone_meanwhile() {
    let mut world = with_clients(World::new(), " durable");
    let all = world.opened();
    world.play("the inboxes have another leader");
    let first = world.opened();
    let gone = CLIENTS - 1;
    assert!(!first.contains(&all[gone]));
    world.play(&format!("c{gone} is lost"));
    // Its slot is another client's.
    world.play("b connects durable");
    let later = world.opened();
    assert_eq!(later.len(), 1);
    let opened = opened_in_turns(&mut world);
    let expected = all
        .iter()
        .filter(|inbox| **inbox != all[gone])
        .chain(&later);
    let expected = expected.filter(|inbox| !first.contains(inbox));
    assert!(opened.iter().eq(expected));
}

/// The clients that a node is told of.
fn told(effects: &[String], node: &str) -> BTreeSet<String> {
    let lines = effects.iter();
    let names = lines.filter_map(|line| {
        let told = line.strip_prefix(&format!("to node {node}: "))?;
        Some(told.strip_suffix(" is here")?.to_owned())
    });
    names.collect()
}

#[test]
fn the_last_leader_of_the_sessions_is_told_of_all_clients_in_parts() {
    let mut world = with_clients(World::in_cluster(&[7, 8]), "");
    world.play("node 7 leads the sessions");
    let first = told(&world.play("after 250 ms"), "7");
    assert!(
        !first.is_empty() && first.len() < PER_TURN,
        "{}",
        first.len()
    );
    world.play("node 8 leads the sessions");
    let gone = format!("c{}", CLIENTS - 1);
    let effects = world.play(&format!("{gone} is lost"));
    assert_eq!(effects, [format!("to node 8: {gone} is gone")]);
    // Who leads now is told, though the node has not seen yet that it leads.
    let next = world.play("a turn passes");
    assert_eq!(told(&next, "7"), BTreeSet::new());
    let next = told(&next, "8");
    assert!(!next.is_empty() && next.len() < PER_TURN && next.is_disjoint(&first));
    let mut all = told(&world.play("after 250 ms"), "8");
    for _ in 0..TURNS {
        let effects = world.play("a turn passes");
        let part = told(&effects, "8");
        assert_eq!(part.len(), effects.len());
        assert!(part.len() < PER_TURN);
        all.extend(part);
    }
    let names = (0..CLIENTS - 1).map(|number| format!("c{number}"));
    assert_eq!(all, names.collect());
}
