//! A replica whose log has lost entries that it had acknowledged, among others that have them or not.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use consensus::GroupOptions;
use consensus::simulation::Loss;
use tokio::time::sleep;

use crate::cluster::Cluster;

fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(Rc<Cluster>) -> F) {
    Cluster::run(3, GroupOptions::default(), test);
}

/// Nodes 1 and 2 have acknowledged five notes that node 3 does not have. Gives the index of the first.
async fn acknowledge_by_two(cluster: &Cluster) -> u64 {
    cluster.found(1..=3).await;
    cluster.write(5).await;
    cluster.agreed(1..=3).await;
    cluster.isolate(3);
    let first = cluster.last_index(3) + 1;
    cluster.write(5).await;
    cluster.agreed(1..=2).await;
    assert_eq!(cluster.leading(), [1]);
    first
}

/// Ten seconds in which nobody leads.
async fn assert_nobody_leads(cluster: &Cluster) {
    for _ in 0..100 {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(cluster.leading(), [0; 0]);
    }
}

/// The third node is there again, and all goes on.
async fn assert_goes_on(cluster: &Cluster) {
    let restarted = cluster.restart(1, Loss::All, 0).await;
    restarted.expect("it starts");
    cluster.write(5).await;
    cluster.agreed(1..=3).await;
    let is_above = || !cluster.group(2).is_below_floor();
    cluster.until("the floor ends", is_above).await;
}

#[test]
fn a_replica_that_has_lost_entries_votes_for_nobody_without_them() {
    run(|cluster| async move {
        let first = acknowledge_by_two(&cluster).await;
        cluster.stop(1).await;
        // What is left is shorter than the log of node 3.
        cluster.damage(2, first - 2).await;
        cluster.mend();
        assert_nobody_leads(&cluster).await;
        assert_goes_on(&cluster).await;
    });
}

#[test]
fn a_replica_that_has_lost_entries_does_not_campaign() {
    run(|cluster| async move {
        let first = acknowledge_by_two(&cluster).await;
        cluster.stop(1).await;
        // What is left is longer than the log of node 3, which would vote for it.
        cluster.damage(2, first + 1).await;
        cluster.mend();
        assert_nobody_leads(&cluster).await;
        let group = cluster.group(2);
        group.elect().await.expect("it runs");
        group.presume_dead(1).await;
        drop(group);
        assert_nobody_leads(&cluster).await;
        assert_eq!(cluster.standing(2).expect("it runs").term, 1);
        assert_goes_on(&cluster).await;
    });
}

#[test]
fn a_restart_does_not_end_a_floor() {
    run(|cluster| async move {
        let first = acknowledge_by_two(&cluster).await;
        cluster.stop(1).await;
        cluster.damage(2, first - 2).await;
        for life in 0..2 {
            cluster.crash(2).await;
            let restarted = cluster.restart(2, Loss::All, life).await;
            restarted.expect("it starts");
            assert!(cluster.group(2).is_below_floor());
        }
        cluster.mend();
        assert_nobody_leads(&cluster).await;
        assert_goes_on(&cluster).await;
    });
}

#[test]
fn who_has_everything_again_votes_and_leads_again() {
    run(|cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(10).await;
        cluster.agreed(1..=3).await;
        let lost = cluster.last_index(3) - 4;
        cluster.damage(3, lost).await;
        assert!(cluster.group(3).is_below_floor());
        // Nothing is written, and the term stays.
        let is_above = || !cluster.group(3).is_below_floor();
        cluster.until("the leader says its end", is_above).await;
        cluster.agreed(1..=3).await;
        assert_eq!(cluster.standing(3).expect("it runs").term, 1);
        // Its acknowledgements count, then its campaign and the vote of another for it.
        cluster.isolate(2);
        cluster.write(5).await;
        cluster.agreed([1, 3]).await;
        cluster.stop(1).await;
        cluster.mend();
        let leads = || cluster.leading() == [3];
        cluster.until("it leads", leads).await;
        cluster.write(5).await;
        cluster.agreed(2..=3).await;
        // The end is written down: with nobody to ask it is above its floor.
        cluster.stop(2).await;
        cluster.crash(3).await;
        let restarted = cluster.restart(3, Loss::All, 0).await;
        restarted.expect("it starts");
        assert!(!cluster.group(3).is_below_floor());
    });
}

#[test]
fn a_floor_that_no_leader_can_end_is_ended_by_the_next_term() {
    run(|cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(10).await;
        cluster.agreed(1..=3).await;
        cluster.lose_questions(true);
        cluster.damage(3, cluster.last_index(3) - 4).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
        assert!(cluster.group(3).is_below_floor());
        // It does not lead, though the leader wishes it. That one has told all not to wait, so the other one does.
        let asked = cluster.group(1).transfer_leader(3).await;
        asked.expect("it begins");
        let another_leads = || cluster.leading().iter().any(|leader| *leader != 1);
        cluster.until("another leads", another_leads).await;
        assert_eq!(cluster.leading(), [2]);
        let is_above = || !cluster.group(3).is_below_floor();
        cluster.until("the floor ends", is_above).await;
        cluster.write(5).await;
        cluster.agreed(1..=3).await;
    });
}

#[test]
fn who_does_not_lead_does_not_say_an_end() {
    run(|cluster| async move {
        cluster.found(1..=3).await;
        cluster.write(5).await;
        let question = Bytes::from_static(&[1, 6]);
        let (refused, ends) = (16, 23);
        for (node, expected) in [(1, ends), (2, refused), (3, refused)] {
            let answer = cluster.group(node).handle(question.clone()).await;
            assert_eq!(answer[1], expected, "node {node}");
        }
    });
}
