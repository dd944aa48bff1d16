//! Groups of several voters, and what they do when something fails.

use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use consensus::simulation::{Chance, Loss};
use consensus::{Birth, ChangeError, GroupOptions, LinearizeError, Log, ProposeError};
use tokio::runtime::Handle;
use tokio::time::{Duration, sleep};

use crate::cluster::Cluster;
use crate::ledger::{Ledger, Note, Scratch, start, write};

/// Nothing stays behind a checkpoint for others, so that who lags needs a snapshot.
fn keeping_nothing() -> GroupOptions {
    GroupOptions {
        keep: 0,
        keep_bytes: 0,
        ..GroupOptions::default()
    }
}

fn run<F: Future<Output = ()> + 'static>(nodes: u64, test: impl FnOnce(Rc<Cluster>) -> F) {
    Cluster::run(nodes, GroupOptions::default(), test);
}

#[test]
fn three_voters_agree() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(50).await;
        cluster.agreed(1..=3).await;
        for number in 1..=3 {
            let standing = cluster.standing(number).expect("it runs");
            assert_eq!(standing.leader, Some(1));
            assert_eq!(standing.leads, number == 1);
            assert_eq!(standing.members.voters, [BTreeSet::from([1, 2, 3])]);
            assert_eq!(standing.stopped, None);
        }
        let progress = cluster.group(1).progress().expect("it leads");
        assert!(progress.next.keys().eq(&[2, 3]));
        assert_eq!(cluster.group(2).progress(), None);
    });
}

#[test]
fn when_the_leader_dies_another_leads_and_nothing_is_lost() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(20).await;
        cluster.crash(1).await;
        let leader = cluster.leader_but(1).await;
        assert_ne!(leader, 1);
        cluster.write(20).await;
        cluster.agreed(2..=3).await;
        cluster.restart(1, Loss::All, 0).await.expect("it starts");
        cluster.agreed(1..=3).await;
    });
}

#[test]
fn a_leader_that_is_cut_off_acknowledges_nothing() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(10).await;
        cluster.isolate(1);
        let (note, proposal) = cluster.propose(1).await.expect("it does not know yet");
        cluster.leader_but(1).await;
        cluster.write(10).await;
        // By now it knows that it cannot know.
        let refused = cluster.group(1).propose(Note::new(0, 1)).await;
        let refused = refused.expect("it is taken").await;
        assert_eq!(refused, Err(ProposeError::NotLeader { leader: None }));
        let unsure = cluster.group(1).linearize().await;
        assert!(unsure.is_err(), "{unsure:?}");
        assert!(!cluster.notes(1).contains(&note));
        cluster.mend();
        assert_eq!(proposal.await, Err(ProposeError::Unknown));
        cluster.write(1).await;
        cluster.agreed(1..=3).await;
        assert!(!cluster.notes(2).contains(&note));
    });
}

#[test]
fn who_asks_a_leader_for_everything_gets_it_and_who_asks_another_does_not() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(10).await;
        cluster.group(1).linearize().await.expect("it leads");
        assert_eq!(
            cluster.group(2).linearize().await,
            Err(LinearizeError::NotLeader { leader: Some(1) })
        );
        // It still believes that it leads, and its lease has not ended.
        cluster.isolate(1);
        assert!(cluster.standing(1).expect("it runs").leads);
        let unsure = cluster.group(1).linearize().await;
        assert!(unsure.is_err(), "{unsure:?}");
    });
}

#[test]
fn who_lags_beyond_the_log_gets_a_snapshot_though_it_is_cut() {
    Cluster::run(3, keeping_nothing(), |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        cluster.isolate(3);
        let leader = cluster.leader_but(3).await;
        for _ in 0..3 {
            cluster.write(20).await;
            cluster.checkpoint(leader).await;
            // What goes to a member just now is purged a little later.
            sleep(Duration::from_secs(3)).await;
        }
        cluster.write(10).await;
        // A few parts pass; then none for a while; then the node is off in between.
        cluster.limit_bulk(Some(20));
        cluster.mend();
        cluster
            .until("the transfer stops", || cluster.bulk_seen() > 25)
            .await;
        assert_eq!(cluster.nodes[&3].installed(), 0);
        cluster.limit_bulk(Some(20));
        cluster
            .until("it goes on", || cluster.bulk_seen() > 50)
            .await;
        cluster.crash(3).await;
        cluster.restart(3, Loss::All, 0).await.expect("it starts");
        cluster.limit_bulk(None);
        cluster.agreed(1..=3).await;
        assert_eq!(cluster.nodes[&3].installed(), 65);
        // And on by the log, at once and after a crash.
        let seen = cluster.bulk_seen();
        cluster.write(10).await;
        cluster.agreed(1..=3).await;
        cluster.crash(3).await;
        cluster.restart(3, Loss::All, 0).await.expect("it starts");
        cluster.write(10).await;
        cluster.agreed(1..=3).await;
        assert_eq!(cluster.bulk_seen(), seen, "another snapshot");
    });
}

#[test]
fn a_power_loss_while_a_snapshot_is_taken_up_does_no_harm() {
    for operations in 0..24 {
        Cluster::run(3, keeping_nothing(), move |cluster| async move {
            cluster.found(1..=3).await;
            cluster.write(5).await;
            cluster.isolate(3);
            let leader = cluster.leader_but(3).await;
            for _ in 0..2 {
                cluster.write(5).await;
                cluster.checkpoint(leader).await;
                sleep(Duration::from_secs(3)).await;
            }
            cluster.nodes[&3].disk.fail_power_after(operations);
            cluster.mend();
            sleep(Duration::from_secs(2)).await;
            cluster.crash(3).await;
            let restarted = cluster.restart(3, Loss::All, operations).await;
            restarted.expect("it starts");
            cluster.write(5).await;
            cluster.agreed(1..=3).await;
        });
    }
}

#[test]
fn who_lags_a_little_gets_it_from_the_log_in_spite_of_checkpoints() {
    let options = GroupOptions {
        keep: 0,
        ..GroupOptions::default()
    };
    Cluster::run(3, options, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.isolate(3);
        let leader = cluster.leader_but(3).await;
        for _ in 0..5 {
            cluster.write(10).await;
            cluster.checkpoint(leader).await;
        }
        cluster.mend();
        cluster.agreed(1..=3).await;
        assert_eq!(cluster.bulk_seen(), 0);
    });
}

#[test]
fn voters_are_replaced_while_notes_are_written() {
    Cluster::run(4, keeping_nothing(), |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(20).await;
        for number in 1..=3 {
            cluster.checkpoint(number).await;
        }
        cluster.start(4, Birth::Invited).await.expect("it starts");
        assert!(
            cluster
                .standing(4)
                .expect("it runs")
                .members
                .voters
                .is_empty()
        );
        let (ahead, changing) = (cluster.clone(), cluster.clone());
        let writing = async move { ahead.write(100).await };
        let replacing = async move {
            changing
                .change(async |group| group.add_learner(4).await)
                .await;
            changing
                .until("the learner follows", || changing.notes(4).len() > 20)
                .await;
            let voters = BTreeSet::from([2, 3, 4]);
            changing
                .change(|group| {
                    let voters = voters.clone();
                    async move { group.change_voters(voters).await }
                })
                .await;
        };
        tokio::join!(writing, replacing);
        cluster.leader_but(1).await;
        cluster.stop(1).await;
        cluster.write(20).await;
        cluster.agreed(2..=4).await;
        let members = cluster.standing(4).expect("it runs").members;
        assert_eq!(members.voters, [BTreeSet::from([2, 3, 4])]);
        assert!(members.learners.is_empty());
    });
}

#[test]
fn the_members_before_a_note_are_the_same_when_it_is_applied_again() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(3).await;
        cluster.agreed(1..=3).await;
        cluster.group(1).remove(3).await.expect("it is removed");
        cluster.write(2).await;
        cluster.agreed(1..=2).await;
        let members = cluster.ledger(2).pages().members.clone();
        let voters: Vec<_> = members.iter().map(|of| of.voters.clone()).collect();
        let (before, after) = (BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 2]));
        assert_eq!(voters[..3], vec![vec![before]; 3]);
        assert_eq!(voters[3..], vec![vec![after]; 2]);
        cluster.crash(2).await;
        cluster.restart(2, Loss::All, 0).await.expect("it starts");
        cluster.agreed(1..=2).await;
        assert_eq!(cluster.ledger(2).pages().members, members);
    });
}

#[test]
fn a_removed_replica_does_not_help_a_leader_of_the_past() {
    run(4, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        cluster.isolate(1);
        let leader = cluster.leader_but(1).await;
        let removed = 5 - leader;
        cluster.start(4, Birth::Invited).await.expect("it starts");
        let group = cluster.group(leader);
        group.add_learner(4).await.expect("it is added");
        // Node 1 is a voter still, and does not know of all this.
        let voters = BTreeSet::from([1, leader, 4]);
        group.change_voters(voters).await.expect("they vote");
        drop(group);
        cluster.forget(removed).await;
        cluster.mend();
        for (stays, past) in [(leader, 1), (leader, removed), (4, 1), (4, removed)] {
            cluster.cut(stays, past);
            cluster.cut(past, stays);
        }
        for _ in 0..100 {
            sleep(Duration::from_millis(100)).await;
            let standing = cluster.standing(1).expect("it runs");
            assert!(!standing.leads || standing.term == 1, "{standing:?}");
        }
        assert_eq!(cluster.notes(removed), [0; 0]);
    });
}

#[test]
fn a_replica_that_a_leader_counts_on_is_not_retired() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        let (leader, left) = (cluster.group(1), cluster.group(3));
        leader.remove(3).await.expect("it is removed");
        sleep(Duration::from_secs(1)).await;
        let contacts = left.contacts();
        leader.add_learner(3).await.expect("it is added");
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        assert!(!left.retire(contacts));
        leader.remove(3).await.expect("it is removed");
        sleep(Duration::from_secs(1)).await;
        assert!(left.retire(left.contacts()));
        leader.add_learner(3).await.expect("it is added");
        cluster.write(5).await;
        cluster.agreed(1..=2).await;
        assert_eq!(cluster.notes(3).len(), 10);
    });
}

#[test]
fn a_campaign_of_a_removed_replica_is_no_leader_that_it_has_followed() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        cluster.isolate(3);
        cluster.group(1).remove(3).await.expect("it is removed");
        cluster.group(3).presume_dead(1).await;
        let campaigned = || cluster.standing(3).expect("it runs").term > 1;
        cluster.until("it campaigns", campaigned).await;
        assert_eq!(cluster.group(3).followed_term(), 1);
    });
}

#[test]
fn a_group_that_is_alone_again_needs_nobody() {
    run(2, |cluster| async move {
        cluster.found(1..=2).await;
        cluster.write(5).await;
        cluster.group(1).remove(2).await.expect("it is removed");
        cluster.stop(2).await;
        cluster.write(5).await;
        cluster.group(1).linearize().await.expect("it is alone");
        let standing = cluster.standing(1).expect("it runs");
        assert!(standing.members.is_alone(1));
        cluster.stop(1).await;
        cluster.restart(1, Loss::All, 0).await.expect("it starts");
        cluster.write(5).await;
        cluster.agreed([1]).await;
    });
}

#[test]
fn a_group_that_is_alone_has_no_timer() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let (scratch, ledger) = (Scratch::new(), Ledger::default());
        let log = Log::open(&scratch.options()).expect("the log opens");
        let group = start(&log, &ledger).await;
        write(&group, 0..10, 10).await;
        let rests = || Handle::current().metrics().worker_park_count(0);
        let before = rests();
        sleep(Duration::from_secs(3_600)).await;
        let woken = rests() - before;
        assert!(woken < 100, "woken {woken} times in an hour");
        group.shutdown().await;
    });
}

#[test]
fn the_lead_is_handed_over() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster
            .group(1)
            .transfer_leader(3)
            .await
            .expect("it begins");
        cluster.until("it leads", || cluster.leading() == [3]).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        let refused = cluster.group(1).transfer_leader(2).await;
        assert_eq!(refused, Err(ChangeError::NotLeader { leader: Some(3) }));
    });
}

#[test]
fn a_leader_known_to_be_dead_is_not_waited_for() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        cluster.crash(1).await;
        let (second, third) = (cluster.group(2), cluster.group(3));
        tokio::join!(second.presume_dead(1), third.presume_dead(1));
        sleep(Duration::from_millis(50)).await;
        assert_eq!(cluster.leading(), [2]);
        cluster.write(5).await;
        cluster.agreed(2..=3).await;
    });
}

#[test]
fn a_group_without_majority_is_revived_by_hand() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(20).await;
        cluster.agreed(1..=3).await;
        cluster.stop(1).await;
        cluster.stop(2).await;
        cluster.crash(3).await;
        cluster.revive(3).await;
        cluster.until("it leads", || cluster.leading() == [3]).await;
        cluster.write(5).await;
        cluster.agreed([3]).await;
    });
}

#[test]
fn a_replica_whose_disk_fails_stops_and_says_so() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster.nodes[&2].disk.fail_syncs();
        cluster.write(5).await;
        let stopped = || cluster.standing(2).expect("it runs").stopped;
        cluster.until("it stops", || stopped().is_some()).await;
        cluster.agreed([1, 3]).await;
        let answer = cluster
            .group(2)
            .handle(Bytes::from_static(b"\x01\x02"))
            .await;
        assert!(!answer.is_empty());
    });
}

#[test]
fn what_others_have_written_is_not_applied_before_it_is_written_here() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        let disk = &cluster.nodes[&2].disk;
        disk.set_capacity(Some(0));
        // More than what is left of its file.
        cluster.write(150).await;
        cluster.agreed([1, 3]).await;
        sleep(Duration::from_secs(1)).await;
        // Tables ahead of the log would not fit to it after a crash.
        cluster.checkpoint(2).await;
        cluster.crash(2).await;
        disk.set_capacity(None);
        let restarted = cluster.restart(2, Loss::All, 0).await;
        restarted.expect("it starts");
        cluster.agreed([2]).await;
    });
}

#[test]
fn garbage_is_refused_and_changes_nothing() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        let group = cluster.group(2);
        let mut chance = Chance(7);
        for _ in 0..2_000 {
            let len = chance.below(80);
            let mut garbage: Vec<u8> = (0..len).map(|_| chance.below(256) as u8).collect();
            // Every second time a known format and kind.
            if chance.below(2) == 0 {
                garbage.splice(0..0, [1, 1 + chance.below(6) as u8]);
            }
            let answer = group.handle(Bytes::from(garbage)).await;
            assert_eq!(answer.get(1), Some(&16), "not a refusal");
        }
        assert_eq!(cluster.standing(2).expect("it runs").stopped, None);
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
    });
}

#[test]
fn heartbeats_do_not_wait_behind_a_long_entry() {
    run(3, |cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        let before = cluster.bulk_seen();
        let long = cluster
            .group(1)
            .propose(Note::new(1_000_000, 20 << 20))
            .await;
        long.expect("it is taken").await.expect("it is applied");
        // Who has what follows has this as well.
        cluster.write(1).await;
        cluster.agreed(1..=3).await;
        assert!(
            cluster.bulk_seen() >= before + 2,
            "it went with what is not urgent"
        );
        assert!(cluster.notes(2).contains(&1_000_000));
    });
}
