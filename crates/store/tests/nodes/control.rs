//! The control store: how it begins, and that every node has it.

use std::collections::BTreeSet;

use control::{
    By, Change, ChangeId, Count, Expect, Incarnation, Means, Put, Reason, Refused, Revision,
    RuleList,
};
use control_view::Standing;
use store::{BeginError, Options};
use store_state::Level;
use store_state::api::{Event, StoreId};
use store_state::control::{ControlOp, ControlReply};

use crate::cluster::{Cluster, until};
use crate::node::{Node, options, survey};

fn newest() -> Options {
    Options {
        level: None,
        ..options(2)
    }
}

/// Runs a future of the store.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn begin(node: &Node) -> Result<(), BeginError> {
    wait_for(node.store.control_store.begin())
}

/// Has the store begin at the node that leads what begins it, which may change meanwhile.
fn begin_at_leader(cluster: &Cluster) {
    until("it begins", || {
        let leader = cluster.node(0).store.control_store.begun_by();
        let leader = leader.and_then(|leader| cluster.find(leader));
        leader.is_some_and(|leader| begin(leader).is_ok())
    });
}

fn rules(line: &str) -> Vec<Change> {
    vec![Change {
        expect: Expect::Any,
        put: Put::Rules(RuleList([line.into()].into())),
    }]
}

/// Asks for the `count`th change of a node.
fn change(node: &Node, count: u64, changes: Vec<Change>) -> ControlReply {
    let own = control::Node(node.store.node());
    let op = ControlOp::Change {
        id: ChangeId {
            node: own,
            incarnation: Incarnation(node.store.incarnation()),
            count: Count(count),
        },
        by: By {
            means: Means::Token,
            name: "test".into(),
            address: None,
            node: own,
        },
        changes,
    };
    let token = node.correlation_id().token;
    node.store.control_store.ask(token, op);
    node.wait(|event| match event {
        Event::Control { token: of, reply } if of == token => Ok(reply),
        other => Err(other),
    })
}

fn changed(revision: u64) -> ControlReply {
    let revision = Revision(revision);
    ControlReply::Changed { revision }
}

fn has_control(node: &Node) -> bool {
    let shards = node.store.shards().into_iter();
    shards
        .map(|shard| shard.store)
        .any(|store| store == StoreId::Control)
}

#[test]
fn a_store_that_has_not_begun_is_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::try_start(folder.path(), &newest()).unwrap();
    assert!(!has_control(&node) && !node.store.control_store.has_begun());
    assert_eq!(node.told.view.standing(), Standing::Unused);
    node.stop();
    let found = survey(folder.path());
    assert!(found.findings.is_empty(), "{found:?}");
    assert!(found.stores.iter().all(|store| store.name != "control"));
    assert_eq!(found.log.unwrap().groups, 6);
}

#[test]
fn a_node_that_is_alone_keeps_what_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Node::try_start(folder.path(), &newest()).unwrap();
    let node = start();
    assert_eq!(begin(&node), Ok(()));
    assert_eq!(begin(&node), Ok(()));
    assert!(has_control(&node));
    until("it is confirmed", || {
        node.told.view.standing() == Standing::Confirmed
    });
    assert_eq!(change(&node, 1, rules("allow publish")), changed(1));
    assert_eq!(change(&node, 1, rules("deny publish")), changed(1));
    assert_eq!(change(&node, 2, rules("deny publish")), changed(2));
    node.stop();
    let found = survey(folder.path());
    assert!(found.findings.is_empty(), "{found:?}");
    for _ in 0..2 {
        let node = start();
        // At once: nobody else can have changed it.
        assert_eq!(node.told.view.standing(), Standing::Confirmed);
        assert_eq!(node.told.view.revision(), Revision(2));
        assert_eq!(*node.told.view.rules().record.0, ["deny publish".into()]);
        assert_eq!(begin(&node), Ok(()));
        node.stop();
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::try_start(folder.path(), &newest()).unwrap();
    begin(&node).unwrap();
    let mut stale = rules("allow publish");
    stale[0].expect = Expect::Revision(Revision(7));
    let refused = Refused {
        which: 0,
        why: Reason::Missing,
    };
    assert_eq!(change(&node, 1, stale), ControlReply::Refused(refused));
    assert_eq!(node.told.view.revision(), Revision(0));
    node.stop();
}

#[test]
fn a_shard_of_an_earlier_level_begins_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let earlier = Options {
        level: Some(Level::LEAVES),
        ..options(1)
    };
    let node = Node::try_start(folder.path(), &earlier).unwrap();
    assert_eq!(begin(&node), Err(BeginError::Level(Level::LEAVES)));
    wait_for(node.store.levels.raise(Level::CONTROL));
    until("it is raised", || {
        node.store.levels.here().lowest == Level::CONTROL
    });
    assert_eq!(begin(&node), Ok(()));
    node.stop();
}

#[test]
fn every_node_has_what_is_changed_at_any() {
    let mut cluster = Cluster::start_with(5, newest());
    until("the voters", || {
        let leads = cluster.node(0).store.leads();
        leads.len() == 6 && leads.iter().all(|(_, lead)| lead.voters.len() == 3)
    });
    let leader = cluster.node(4).store.control_store.begun_by();
    let others = (0..5).map(|at| cluster.node(at));
    for node in others.filter(|node| Some(node.store.node()) != leader) {
        // It may lead by now.
        if let Err(error) = begin(node) {
            assert!(matches!(error, BeginError::NotLeader(_)), "{error:?}");
        }
    }
    begin_at_leader(&cluster);
    let lead = |cluster: &Cluster, at: usize| {
        let leads = cluster.node(at).store.leads();
        leads
            .into_iter()
            .find(|(_, lead)| lead.store == StoreId::Control)
    };
    until("a replica on every node", || {
        lead(&cluster, 0).is_some_and(|(_, lead)| {
            let all: BTreeSet<u64> = lead.voters.union(&lead.learners).copied().collect();
            lead.voters.len() == 3 && all.len() == 5
        })
    });
    for at in 0..5 {
        let line = format!("allow publish {at}");
        assert_eq!(
            change(cluster.node(at), 1, rules(&line)),
            changed(at as u64 + 1)
        );
    }
    for at in 0..5 {
        until("the last change everywhere", || {
            let view = &cluster.node(at).told.view;
            view.revision() == Revision(5) && view.standing() == Standing::Confirmed
        });
    }
    // It goes on without the leader, which gets what it has missed.
    let (leader, _) = lead(&cluster, 0).unwrap();
    let gone = (0..5).find(|at| cluster.node(*at).store.node() == leader);
    let gone = gone.unwrap();
    cluster.kill(gone);
    let other = (gone + 1) % 5;
    assert_eq!(
        change(cluster.node(other), 2, rules("deny publish")),
        changed(6)
    );
    cluster.restart(gone);
    until("what was missed", || {
        let view = &cluster.node(gone).told.view;
        view.revision() == Revision(6) && view.standing() == Standing::Confirmed
    });
    cluster.stop();
}

#[test]
fn a_node_that_cannot_hear_the_others_does_not_trust_its_copy() {
    let mut cluster = Cluster::start_with(3, newest());
    cluster.settled(0, &[0, 1, 2]);
    begin_at_leader(&cluster);
    assert_eq!(
        change(cluster.node(1), 1, rules("allow publish")),
        changed(1)
    );
    until("the change everywhere", || {
        (0..3).all(|at| cluster.node(at).told.view.revision() == Revision(1))
    });
    for at in 0..3 {
        cluster.kill(at);
    }
    cluster.restart(2);
    until("its copy", || {
        cluster.node(2).told.view.revision() == Revision(1)
    });
    assert_eq!(cluster.node(2).told.view.standing(), Standing::Unconfirmed);
    cluster.restart(1);
    for at in [1, 2] {
        until("a majority", || {
            cluster.node(at).told.view.standing() == Standing::Confirmed
        });
    }
    cluster.stop();
}
