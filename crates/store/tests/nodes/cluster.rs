//! Several nodes, and what becomes of their shards when some go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqtt_proto::QoS;
use mqtt_session::SubscriptionIdSet;
use store::{Lead, Member, Options};
use store_state::api::Store as _;
use store_state::api::{Event, PerStore, StoreId};
use store_state::inbox::{Done, InboxOp, InboxReply, Item};
use tempfile::TempDir;

use crate::hub::{Hub, member};
use crate::node::{Node, message, options};
use crate::splits::{Replay, retain_many, split};

const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Nodes that know each other, by the order of their first starts.
pub(crate) struct Cluster {
    pub(crate) hub: Arc<Hub>,
    pub(crate) folders: Vec<TempDir>,
    nodes: Vec<Option<Node>>,
    options: Options,
}

impl Cluster {
    pub(crate) fn start(count: usize, shards: u16) -> Self {
        Self::start_with(count, options(shards))
    }

    pub(crate) fn start_with(count: usize, options: Options) -> Self {
        let mut cluster = Self {
            hub: Hub::new(),
            folders: Vec::new(),
            nodes: Vec::new(),
            options,
        };
        for _ in 0..count {
            cluster.add();
        }
        cluster
    }

    pub(crate) fn add(&mut self) {
        let folder = tempfile::tempdir().unwrap();
        let founds = self.nodes.is_empty();
        let node = self.hub.start(folder.path(), &self.options, founds);
        self.folders.push(folder);
        self.nodes.push(Some(node));
        self.tell();
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        self.nodes.iter().flatten().map(member).collect()
    }

    fn tell(&self) {
        self.hub.members(&self.members());
    }

    pub(crate) fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().unwrap()
    }

    /// A node that runs, by its identifier.
    pub(crate) fn find(&self, node: u64) -> Option<&Node> {
        let mut up = self.nodes.iter().flatten();
        up.find(|up| up.store.node() == node)
    }

    fn leads(&self, at: usize) -> Vec<(u64, Lead)> {
        self.node(at).store.leads()
    }

    /// Waits until every shard has these voters, as `at` sees it.
    pub(crate) fn settled(&self, at: usize, voters: &[usize]) {
        let voters: BTreeSet<u64> = voters.iter().map(|v| self.node(*v).store.node()).collect();
        until("the voters", || {
            let leads = self.leads(at);
            !leads.is_empty()
                && leads
                    .iter()
                    .all(|(_, lead)| lead.voters == voters && lead.learners.is_empty())
        });
    }

    /// The node that leads the only inbox shard.
    pub(crate) fn inbox_leader(&self, at: usize) -> usize {
        until("a leader", || self.node(at).store.inbox_leader(0).is_some());
        let leader = self.node(at).store.inbox_leader(0).unwrap();
        let is = |node: &Option<Node>| node.as_ref().is_some_and(|n| n.store.node() == leader);
        self.nodes.iter().position(is).unwrap()
    }

    /// Ends a node as a crash would, as far as the others see.
    pub(crate) fn kill(&mut self, at: usize) -> Member {
        let mut gone = member(self.node(at));
        self.hub.isolate(gone.node);
        let node = self.nodes[at].take().unwrap();
        node.store.shutdown();
        drop(node);
        (gone.is_up, gone.has_ended) = (false, true);
        let mut members = self.members();
        members.push(gone.clone());
        self.hub.members(&members);
        gone
    }

    pub(crate) fn restart(&mut self, at: usize) {
        let node = self
            .hub
            .start(self.folders[at].path(), &self.options, false);
        self.hub.rejoin(node.store.node());
        self.nodes[at] = Some(node);
        self.tell();
    }

    pub(crate) fn stop(self) {
        for node in self.nodes.into_iter().flatten() {
            node.stop();
        }
    }
}

#[test]
fn a_node_that_founds_a_cluster_serves_alone() {
    let cluster = Cluster::start(1, 1);
    let node = cluster.node(0);
    node.sleeper("a", "t");
    assert_eq!(node.publish("t", b"x"), Ok(1));
    cluster.stop();
}

#[test]
fn what_is_asked_of_any_node_is_done_by_the_leader() {
    let cluster = Cluster::start(3, 1);
    cluster.settled(1, &[0, 1, 2]);
    for at in 0..3 {
        let client = format!("client-{at}");
        cluster.node(at).sleeper(&client, "t");
    }
    for at in 0..3 {
        assert_eq!(cluster.node(at).publish("t", b"x"), Ok(3), "{at}");
    }
    // A session goes on at another node, with all that it has.
    for at in 0..3 {
        let client = format!("client-{}", (at + 1) % 3);
        let node = cluster.node(at);
        let attached = node.connect(&client);
        assert!(attached.1.present);
        assert_eq!(node.read(&client, &attached, 3), [b"x", b"x", b"x"]);
    }
    cluster.stop();
}

#[test]
fn one_node_of_three_goes_on_alone_when_the_others_are_gone_for_good() {
    let mut cluster = Cluster::start(3, 2);
    cluster.settled(2, &[0, 1, 2]);
    cluster.node(0).sleeper("a", "t");
    cluster.kill(0);
    // The majority that acknowledges it is the other two.
    assert_eq!(cluster.node(1).publish("t", b"x"), Ok(1));
    cluster.kill(1);
    cluster.kill(2);
    let folder = store::Folder::open(cluster.folders[2].path()).unwrap();
    let lost = store::LostShards::BeginAnew { now_ms: 1 };
    let recovered = store::recover(&folder, &PerStore::default(), lost).unwrap();
    assert_eq!(recovered.len(), 6);
    let is_kept = |shard: &store::Recovered| shard.outcome == store::Outcome::SoleVoter;
    assert!(recovered.iter().all(is_kept));
    drop(folder);
    cluster.restart(2);
    let node = cluster.node(2);
    assert_eq!(node.publish("t", b"y"), Ok(1));
    let attached = node.connect("a");
    assert_eq!(node.read("a", &attached, 2), [b"x", b"y"]);
    cluster.stop();
}

#[test]
fn what_a_leader_was_asked_while_no_majority_heard_it_is_answered_when_it_leads_again() {
    let cluster = Cluster::start(3, 1);
    cluster.settled(0, &[0, 1, 2]);
    cluster.node(0).sleeper("a", "t");
    let leader = cluster.inbox_leader(0);
    let other = cluster.node((leader + 1) % 3);
    cluster.hub.set_deaf(true);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| other.publish("t", b"x"));
        until("it serves no more", || {
            cluster.node(leader).store.inbox_leader(0).is_none()
        });
        cluster.hub.set_deaf(false);
        assert_eq!(asked.join().unwrap(), Ok(1));
    });
    cluster.stop();
}

#[test]
fn nothing_acknowledged_is_lost_when_the_leader_dies() {
    let mut cluster = Cluster::start(3, 1);
    cluster.settled(0, &[0, 1, 2]);
    cluster.node(0).sleeper("a", "t");
    for round in 0..3_u8 {
        let leader = cluster.inbox_leader((0..3).find(|at| cluster.nodes[*at].is_some()).unwrap());
        let other = (leader + 1) % 3;
        assert_eq!(cluster.node(other).publish("t", &[round]), Ok(1));
        cluster.kill(leader);
        // Given while nobody leads: it is done when somebody does.
        assert_eq!(cluster.node(other).publish("t", &[round, round]), Ok(1));
        cluster.restart(leader);
    }
    let node = cluster.node(0);
    let attached = node.connect("a");
    let mut got = node.read("a", &attached, 6);
    got.dedup();
    assert_eq!(got, [&[0][..], &[0, 0], &[1], &[1, 1], &[2], &[2, 2]]);
    cluster.stop();
}

/// Waits until a node is told that a client's session has left something: the number that its inbox had.
fn left_behind(node: &Node, client: &str) -> u64 {
    node.wait(|event| match event {
        Event::LeftBehind { client: of, inbox } if *of == *client => Ok(inbox),
        other => Err(other),
    })
}

/// What others are to have of that, when they have these.
fn hand_over(node: &Node, client: &str, inbox: u64, done: Vec<u64>) -> Vec<(u64, Item)> {
    let op = InboxOp::HandOver {
        client: client.into(),
        inbox,
        done: Done(done),
    };
    match node.inbox(op) {
        Ok(InboxReply::LeftBehind(items)) => items,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_session_left_is_told_by_each_leader_until_others_have_it() {
    let mut cluster = Cluster::start(3, 1);
    cluster.settled(0, &[0, 1, 2]);
    let node = cluster.node(0);
    let epoch = node.sleeper("a", "$share/g/t");
    let item = Item {
        message: message("t", b"x"),
        qos: QoS::AtLeastOnce,
        retain: false,
        subscription_ids: SubscriptionIdSet::None,
        group: Some("$share/g/t".into()),
    };
    let deliver = InboxOp::Deliver {
        session: "a".into(),
        items: vec![item.clone()],
        origin: None,
    };
    assert!(matches!(
        node.inbox(deliver),
        Ok(InboxReply::Published { matched: 1, .. })
    ));
    let session = "a".into();
    assert_eq!(
        node.inbox(InboxOp::Remove { session, epoch }),
        Ok(InboxReply::Done)
    );
    let first = cluster.inbox_leader(0);
    let inbox = left_behind(cluster.node(first), "a");
    let gone = cluster.kill(first).node;
    let other = (first + 1) % 3;
    until("another leader", || {
        let leader = cluster.node(other).store.inbox_leader(0);
        leader.is_some_and(|leader| leader != gone)
    });
    let second = cluster.inbox_leader(other);
    let leader = cluster.node(second);
    assert_eq!(left_behind(leader, "a"), inbox);
    assert_eq!(hand_over(leader, "a", inbox, Vec::new()), [(1, item)]);
    assert_eq!(hand_over(leader, "a", inbox, vec![1]), []);
    cluster.stop();
}

#[test]
fn a_node_that_follows_replays_each_retained_message_once_while_the_shard_is_split() {
    let cluster = Cluster::start(3, 1);
    cluster.settled(0, &[0, 1, 2]);
    let is_retain = |(_, lead): &(u64, Lead)| lead.store == StoreId::Retain;
    let leader = (0..3).find(|at| {
        let own = cluster.node(*at).store.node();
        let mut leads = cluster.leads(*at).into_iter().filter(is_retain);
        leads.any(|(node, _)| node == own)
    });
    let leader = leader.unwrap();
    let follower = cluster.node((leader + 1) % 3);
    let topics = retain_many(follower);
    let mut replay = Replay::default();
    for at in [30_000, 10_000] {
        for _ in 0..6 {
            assert!(replay.ask(follower));
        }
        assert_eq!(split(cluster.node(leader), StoreId::Retain, 0, at), Ok(()));
    }
    while replay.ask(follower) {}
    replay.has_each_once(&topics);
    cluster.stop();
}
