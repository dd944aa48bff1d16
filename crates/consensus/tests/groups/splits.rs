//! A group that begins with what an entry of another one has made, on each member by itself.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use consensus::simulation::Loss;
use consensus::{
    Birth, EntryIndex, Group, GroupId, GroupOptions, Log, LogView, Mark, Members, Nobody, Origin,
    StartError,
};
use tokio::sync::watch;
use tokio::time::{Duration, sleep, timeout};

use crate::cluster::{CHILD, Cluster};
use crate::ledger::{Ledger, Note, Scratch, Seed, runtime, write};

/// Nobody campaigns, and nobody hears anything, without being told to.
fn without_timers() -> GroupOptions {
    GroupOptions {
        heartbeat: Duration::from_secs(3_600),
        election: (Duration::from_secs(10_000), Duration::from_secs(20_000)),
        ..GroupOptions::default()
    }
}

/// A parent of three, which has split nothing yet, and the group that will split off. A fourth node is off.
fn run<F: Future<Output = ()> + 'static>(
    options: GroupOptions,
    test: impl FnOnce(Rc<Cluster>, Rc<Cluster>) -> F,
) {
    Cluster::run(4, options, |parent| {
        let child = parent.child();
        let test = test(parent.clone(), child);
        async move {
            parent.found(1..=3).await;
            parent.write(10).await;
            test.await;
        }
    });
}

/// Waits until these nodes have a replica of the child.
async fn seeded(child: &Cluster, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let what = format!("a replica on node {number}");
        child.until(&what, || child.is_running(number)).await;
    }
}

/// Splits, has node 1 campaign, and gives who leads the child: with timers, another may have been faster.
async fn split(parent: &Cluster, child: &Cluster) -> u64 {
    parent.split(child).await;
    let leader = parent.leader().await;
    parent.group(leader).heartbeat().await.expect("it runs");
    seeded(child, [1, 2]).await;
    lead(child, 1).await
}

/// Has a node campaign until somebody leads, and gives who.
async fn lead(cluster: &Cluster, number: u64) -> u64 {
    let led = timeout(Duration::from_secs(120), async {
        while cluster.leading().is_empty() {
            cluster.group(number).elect().await.expect("it runs");
            sleep(Duration::from_millis(10)).await;
        }
    });
    led.await.expect("somebody leads in time");
    cluster.leader().await
}

#[test]
fn both_halves_go_on_and_the_first_term_has_a_leader() {
    run(without_timers(), |parent, child| async move {
        assert_eq!(split(&parent, &child).await, 1);
        seeded(&child, [3]).await;
        for number in 1..=3 {
            let standing = || child.standing(number).expect("it runs");
            let follows = || standing().leader == Some(1);
            child.until("a leader that all know", follows).await;
            let standing = standing();
            assert_eq!(standing.term, 1);
            assert_eq!(standing.members.voters, [BTreeSet::from([1, 2, 3])]);
        }
        parent.write(10).await;
        child.write(10).await;
        // Without timers, what is agreed last is told by hand.
        parent.group(1).heartbeat().await.expect("it runs");
        child.group(1).heartbeat().await.expect("it runs");
        parent.agreed(1..=3).await;
        child.agreed(1..=3).await;
        assert_eq!(child.bulk_seen(), 0);
    });
}

#[test]
fn an_election_before_the_others_are_there_costs_no_term() {
    run(without_timers(), |parent, child| async move {
        let (gate, gated) = watch::channel(false);
        for number in [2, 3] {
            parent.ledger(number).pages().gate = Some(gated.clone());
        }
        parent.split(&child).await;
        seeded(&child, [1]).await;
        for _ in 0..10 {
            child.group(1).elect().await.expect("it runs");
            sleep(Duration::from_secs(1)).await;
        }
        assert!(!child.is_running(2) && !child.is_running(3));
        assert_eq!(child.standing(1).expect("it runs").term, 0);
        gate.send_replace(true);
        seeded(&child, 1..=3).await;
        assert_eq!(lead(&child, 1).await, 1);
        assert_eq!(child.standing(1).expect("it runs").term, 1);
        child.write(5).await;
        child.agreed([1]).await;
    });
}

#[test]
fn a_heartbeat_of_the_leader_goes_out_at_once_and_one_of_others_never() {
    run(without_timers(), |parent, _| async move {
        sleep(Duration::from_secs(60)).await;
        let contacts = || [2, 3].map(|number| parent.group(number).contacts());
        let before = contacts();
        parent.group(2).heartbeat().await.expect("it runs");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(contacts(), before);
        parent.group(1).heartbeat().await.expect("it runs");
        let more = before.map(|contacts| contacts + 1);
        parent.until("a heartbeat", || contacts() == more).await;
    });
}

#[test]
fn who_applies_the_split_late_gets_the_rest_by_the_log() {
    run(GroupOptions::default(), |parent, child| async move {
        parent.agreed(1..=3).await;
        parent.isolate(3);
        split(&parent, &child).await;
        child.write(50).await;
        parent.write(50).await;
        assert!(!child.is_running(3));
        parent.mend();
        parent.agreed(1..=3).await;
        child.agreed(1..=3).await;
        assert_eq!(child.bulk_seen(), 0, "a snapshot");
    });
}

#[test]
fn a_new_replica_waits_for_the_first_table_and_gets_a_snapshot() {
    run(GroupOptions::default(), |parent, child| async move {
        let leader = split(&parent, &child).await;
        seeded(&child, 1..=3).await;
        child.write(5).await;
        child.start(4, Birth::Invited).await.expect("it starts");
        child
            .group(leader)
            .add_learner(4)
            .await
            .expect("it is added");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(child.notes(4), [0; 0]);
        assert_eq!(child.standing(leader).expect("it runs").stopped, None);
        child.write(5).await;
        child.checkpoint(leader).await;
        child.agreed(1..=4).await;
        assert!(child.nodes[&4].installed() >= 10);
        let mut voters = BTreeSet::from([1, 2, 3, 4]);
        voters.remove(&leader);
        let stay = voters.clone();
        let changed = child.group(leader).change_voters(voters).await;
        changed.expect("they vote");
        let next = child.leader_but(leader).await;
        child.write(5).await;
        let to = stay.iter().find(|number| **number != next);
        let to = *to.expect("there are three");
        let handed = child.group(next).transfer_leader(to).await;
        handed.expect("it begins");
        child.until("it leads", || child.leading() == [to]).await;
        child.write(5).await;
        child.agreed(stay).await;
        parent.agreed(1..=3).await;
    });
}

#[test]
fn a_new_replica_gets_a_table_of_nothing_but_the_seed() {
    run(without_timers(), |parent, child| async move {
        parent.split(&child).await;
        seeded(&child, [1]).await;
        let before = child.notes(1).len();
        child.checkpoint(1).await;
        child.checkpoint(1).await;
        assert_eq!(child.ledger(1).durable_mark().index(), Some(5));
        parent.group(1).heartbeat().await.expect("it runs");
        seeded(&child, 1..=3).await;
        lead(&child, 1).await;
        child.start(4, Birth::Invited).await.expect("it starts");
        child.group(1).add_learner(4).await.expect("it is added");
        child.write(5).await;
        child.group(1).heartbeat().await.expect("it runs");
        child.agreed(1..=4).await;
        assert_eq!(child.nodes[&4].installed(), before);
        // With a table it starts by itself.
        parent.crash(1).await;
        parent.restart(1, Loss::All, 0).await.expect("it starts");
        assert!(child.is_running(1));
    });
}

/// These nodes lose their power at each operation in turn, counted from before the split.
fn lose_power(off: &'static [u64]) {
    let seeds = Rc::new(Cell::new([0, 0]));
    for operations in 0..30 {
        let seeds = seeds.clone();
        run(GroupOptions::default(), move |parent, child| async move {
            parent.agreed(1..=3).await;
            for number in off {
                let disk = &parent.nodes[number].disk;
                disk.fail_power_after(operations);
            }
            let split = async {
                while !parent.try_split(&child).await {
                    sleep(Duration::from_millis(10)).await;
                }
                loop {
                    if child.is_running(1) {
                        // Its power may have failed.
                        drop(child.group(1).elect().await);
                    }
                    child.try_write().await;
                    sleep(Duration::from_millis(10)).await;
                }
            };
            drop(timeout(Duration::from_secs(1), split).await);
            for number in off {
                parent.crash(*number).await;
            }
            for number in off {
                let loss = [Loss::All, Loss::Tail, Loss::Sectors][operations as usize % 3];
                let restarted = parent.restart(*number, loss, operations).await;
                restarted.expect("it starts");
            }
            parent.split(&child).await;
            seeded(&child, 1..=3).await;
            child.write(5).await;
            parent.write(5).await;
            parent.agreed(1..=3).await;
            child.agreed(1..=3).await;
            for number in off {
                let [first, again] = child.seeds(*number);
                let [firsts, agains] = seeds.get();
                seeds.set([firsts + first.saturating_sub(1), agains + again]);
            }
        });
    }
    let [firsts, agains] = seeds.get();
    // Else this tests nothing.
    assert!(firsts > 0, "no power loss between the split and its seed");
    assert!(agains > 5, "{agains} power losses behind the seed");
}

#[test]
fn a_power_loss_of_the_leader_at_any_time_loses_nothing() {
    lose_power(&[1]);
}

#[test]
fn a_power_loss_of_a_follower_at_any_time_loses_nothing() {
    lose_power(&[3]);
}

#[test]
fn a_power_loss_of_all_at_any_time_loses_nothing() {
    lose_power(&[1, 2, 3]);
}

#[test]
fn a_second_seed_keeps_the_vote_and_the_entries() {
    run(without_timers(), |parent, child| async move {
        split(&parent, &child).await;
        seeded(&child, [3]).await;
        child.write(5).await;
        child.agreed(1..=3).await;
        let origin = child.origin(1).expect("it was seeded");
        let marks = [1, 2, 3].map(|number| child.group(number).applied_mark());
        for number in 1..=3 {
            parent.crash(number).await;
        }
        for number in 1..=3 {
            parent
                .restart(number, Loss::All, 0)
                .await
                .expect("it starts");
        }
        // Without timers, nobody knows of what was agreed on last before somebody leads.
        lead(&parent, 1).await;
        parent.group(1).heartbeat().await.expect("it runs");
        seeded(&child, 1..=3).await;
        for number in 1..=3 {
            assert_eq!(child.seeds(number), [1, 1]);
            assert_eq!(child.origin(number), Some(origin));
            assert_eq!(child.first_term(number), 1, "the vote of node {number}");
        }
        assert!(marks[0].index() >= Some(11));
        assert_eq!(lead(&child, 2).await, 2);
        // It campaigns again as long as the votes have not come: how often depends on the machine.
        let term = child.standing(2).expect("it runs").term;
        assert!(term >= 2, "{term}");
        child.write(5).await;
        child.group(2).heartbeat().await.expect("it runs");
        child.agreed(1..=3).await;
        assert_eq!(child.standing(2).expect("it runs").term, term);
    });
}

#[test]
fn a_replica_whose_seed_is_lost_is_deleted_and_keeps_its_vote() {
    run(GroupOptions::default(), |parent, child| async move {
        split(&parent, &child).await;
        child.write(5).await;
        child.agreed(1..=3).await;
        let origin = child.origin(3).expect("it was seeded");
        let term = child.standing(3).expect("it runs").term;
        child.forget(3).await;
        assert_eq!(child.origin(3), None);
        assert!(!child.may_seed(3, origin));
        assert!(child.first_term(3) >= term);
        child.checkpoint(1).await;
        child.checkpoint(2).await;
        child.write(5).await;
        child.agreed(1..=3).await;
        assert!(child.nodes[&3].installed() >= 15);
    });
}

#[test]
fn a_child_without_majority_is_revived_by_hand_without_a_table() {
    run(GroupOptions::default(), |parent, child| async move {
        split(&parent, &child).await;
        child.write(5).await;
        parent.write(1).await;
        parent.agreed(1..=3).await;
        child.agreed(1..=3).await;
        parent.stop(1).await;
        parent.stop(2).await;
        parent.crash(3).await;
        parent.revive(3).await;
        seeded(&child, [3]).await;
        child.until("it leads", || child.leading() == [3]).await;
        child.write(5).await;
        parent.write(5).await;
        child.agreed([3]).await;
        parent.agreed([3]).await;
    });
}

const BY: Origin = Origin {
    parent: GroupId(1),
    index: EntryIndex(9),
};

fn seed_of(voters: impl IntoIterator<Item = u64>) -> Seed {
    Seed {
        index: BY.index.0,
        members: Members {
            voters: vec![voters.into_iter().collect()],
            learners: BTreeSet::new(),
        },
        notes: vec![Note::new(1, 8), Note::new(2, 8)],
    }
}

async fn start(log: &Log, ledger: &Ledger, birth: Birth) -> Result<Group<Note>, StartError> {
    let (ledger, network, options) = (ledger.clone(), Arc::new(Nobody), GroupOptions::default());
    Group::start(CHILD, 1, log, ledger, network, birth, &options).await
}

#[test]
fn a_sole_voter_elects_itself_and_its_log_begins_behind_the_seed() {
    let scratch = Scratch::new();
    runtime().block_on(async {
        let log = Log::open(&scratch.options()).expect("the log opens");
        let ledger = Ledger::seeded(seed_of([1]));
        assert!(!log.has_replica(CHILD));
        let started = start(&log, &ledger, Birth::Seeded(BY)).await;
        let group = started.expect("it starts");
        group.recovered().await.expect("it recovers");
        assert!(group.watch().borrow().leads);
        write(&group, 3..6, 8).await;
        // The first entry of its own says that it leads.
        assert_eq!(group.applied_mark().index(), Some(9));
        group.shutdown().await;
        assert!(log.has_replica(CHILD));
        // As a start that applies the split again does.
        let ledger = Ledger::seeded(seed_of([1]));
        let started = start(&log, &ledger, Birth::Seeded(BY)).await;
        let group = started.expect("it starts");
        group.recovered().await.expect("it recovers");
        assert_eq!(ledger.pages().numbers(), [1, 2, 3, 4, 5]);
        // And when there is a table.
        let mark = ledger.checkpoint();
        group.checkpointed(mark).await;
        write(&group, [6], 8).await;
        group.shutdown().await;
        let ledger = ledger.after_crash();
        let group = start(&log, &ledger, Birth::Alone).await.expect("it starts");
        group.recovered().await.expect("it recovers");
        assert_eq!(ledger.pages().numbers(), [1, 2, 3, 4, 5, 6]);
        group.shutdown().await;
    });
}

#[test]
fn without_a_table_it_is_not_started_and_not_taken_for_damaged() {
    let scratch = Scratch::new();
    let look = |entries: std::ops::Range<u64>| {
        let names = Scratch::new();
        let view = LogView::open(scratch.path(), names.path()).expect("it can be read");
        assert_eq!(view.origin(CHILD).expect("it is whole"), Some(BY));
        assert_eq!(view.span(CHILD).expect("it is whole"), entries);
        for mark in [Mark::default(), Mark::seed(&seed_of([1, 2]).members)] {
            view.check_fit(CHILD, &mark).expect("it would start");
        }
        let mut commands = Vec::new();
        let read = view.commands(CHILD, entries, |index, note: &Note| {
            commands.push((index, note.number()));
        });
        read.expect("nothing is missing");
        commands
    };
    runtime().block_on(async {
        let log = Log::open(&scratch.options()).expect("the log opens");
        let ledger = Ledger::seeded(seed_of([1, 2]));
        let started = start(&log, &ledger, Birth::Seeded(BY)).await;
        started.expect("it starts").shutdown().await;
        for birth in [Birth::Alone, Birth::Invited] {
            let refused = start(&log, &Ledger::default(), birth).await.err();
            assert!(matches!(refused, Some(StartError::Unborn { origin: BY })));
        }
        assert!(log.begin_anew(CHILD, 1, 7).await.is_err(), "it is here");
        log.leave_terms_behind(CHILD, 1, 7).await.expect("it can");
        let visit = |_: u64, _: &Note| panic!("there is no entry");
        log.commands(CHILD, visit).expect("nothing is missing");
        drop(log);
        assert_eq!(look(6..6), []);
        let log = Log::open(&scratch.options()).expect("the log opens");
        let index = log.make_sole_voter(CHILD, 1, &Mark::default()).await;
        assert_eq!(index.expect("it is written"), 6);
        let ledger = Ledger::seeded(seed_of([1, 2]));
        let started = start(&log, &ledger, Birth::Seeded(BY)).await;
        let group = started.expect("it starts");
        group.recovered().await.expect("it recovers");
        assert!(group.watch().borrow().members.is_alone(1));
        assert!(group.watch().borrow().term > 1_000_000);
        write(&group, [3], 8).await;
        group.shutdown().await;
        drop(log);
        assert_eq!(look(6..9), [(8, 3)]);
    });
}

#[test]
fn what_cannot_be_a_seed_is_refused_and_changes_nothing() {
    let scratch = Scratch::new();
    runtime().block_on(async {
        let log = Log::open(&scratch.options()).expect("the log opens");
        let birth = Birth::Seeded(BY);
        let no_seeds = [Ledger::default(), Ledger::seeded(seed_of([]))];
        for ledger in no_seeds {
            let refused = start(&log, &ledger, birth).await.err();
            assert!(matches!(refused, Some(StartError::NotASeed)));
        }
        assert_eq!(log.origin(CHILD).expect("it is whole"), None);
        assert!(log.may_seed(CHILD, BY).expect("it is whole"));
        // A replica that has come in another way.
        let ledger = Ledger::default();
        let group = start(&log, &ledger, Birth::Alone).await.expect("it starts");
        group.recovered().await.expect("it recovers");
        write(&group, [7], 8).await;
        group.shutdown().await;
        assert!(!log.may_seed(CHILD, BY).expect("it is whole"));
        let seed = Ledger::seeded(seed_of([1]));
        let refused = start(&log, &seed, birth).await.err();
        assert!(matches!(refused, Some(StartError::NotSeedable)));
        let group = start(&log, &ledger.after_crash(), Birth::Alone).await;
        group.expect("it starts").shutdown().await;
        // One that was here and is not any more.
        log.delete_group(CHILD).await.expect("it is deleted");
        assert!(!log.may_seed(CHILD, BY).expect("it is whole"));
        let refused = start(&log, &seed, birth).await.err();
        assert!(matches!(refused, Some(StartError::NotSeedable)));
    });
}

#[test]
fn a_group_is_seeded_by_one_entry_only() {
    let scratch = Scratch::new();
    runtime().block_on(async {
        let log = Log::open(&scratch.options()).expect("the log opens");
        let ledger = Ledger::seeded(seed_of([1]));
        let started = start(&log, &ledger, Birth::Seeded(BY)).await;
        started.expect("it starts").shutdown().await;
        let other = Origin {
            index: EntryIndex(10),
            ..BY
        };
        assert!(log.may_seed(CHILD, other).is_err());
        let ledger = Ledger::seeded(seed_of([1]));
        let refused = start(&log, &ledger, Birth::Seeded(other)).await.err();
        assert!(matches!(refused, Some(StartError::Log(_))));
        assert_eq!(log.origin(CHILD).expect("it is whole"), Some(BY));
    });
}
