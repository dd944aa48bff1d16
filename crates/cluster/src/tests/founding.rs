//! Which nodes found a cluster, and which join the one that there is.

use std::net::TcpListener;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, atomic::AtomicBool};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::node::{Net, Node, all_reach_all, cluster, eventually, try_start};
use crate::{Options, StartError};

/// All three know each other, and each may found a cluster that `founders` says.
fn knows_all(net: Net, founders: fn(u64) -> bool) -> impl Fn(u64, &mut Options) + Copy {
    move |node, options| {
        options.seeds = [1, 2, 3].map(|node| net.address(node).to_string()).into();
        options.bootstrap = founders(node);
        // Longer than the others take to be there.
        options.found_after = Duration::from_secs(60);
    }
}

/// Starts on a thread: what it gives is a node when it has come to a cluster.
fn begin(
    net: Net,
    node: u64,
    change: impl FnOnce(&mut Options) + Send + 'static,
) -> JoinHandle<Node> {
    thread::spawn(move || Node::start_with(net, node, change))
}

fn ended(starting: Vec<JoinHandle<Node>>) -> Vec<Node> {
    let ended = starting.into_iter().map(|node| node.join().unwrap());
    ended.collect()
}

fn have_one_cluster(nodes: &[Node]) {
    all_reach_all(nodes);
    let identifier = nodes[0].cluster.identifier();
    for node in nodes {
        assert_eq!(node.cluster.identifier(), identifier);
    }
    let founders = nodes.iter().filter(|node| node.cluster.welcome().is_none());
    assert!(founders.count() <= 1);
}

#[test]
fn nodes_that_all_may_found_one_make_one_cluster() {
    let net = Net(90);
    let change = knows_all(net, |_| true);
    let starting = [3, 2, 1].map(|node| begin(net, node, move |options| change(node, options)));
    have_one_cluster(&ended(starting.into()));
}

#[test]
fn a_node_that_has_lost_its_folder_joins_the_members_that_it_knows() {
    let net = Net(91);
    let change = knows_all(net, |node| node == 1);
    let starting = [1, 2, 3].map(|node| begin(net, node, move |options| change(node, options)));
    let mut nodes = ended(starting.into());
    have_one_cluster(&nodes);
    nodes.remove(0).cluster.stop();
    let again = Node::start_with(net, 1, |options| {
        change(1, options);
        options.node = 9;
    });
    assert_eq!(again.cluster.identifier(), nodes[0].cluster.identifier());
    assert!(again.cluster.welcome().is_some());
}

#[test]
fn a_node_that_has_lost_its_folder_and_knows_nobody_is_dialled() {
    let net = Net(92);
    let mut nodes = cluster(net, 3);
    nodes.remove(0).cluster.stop();
    let again = Node::start_with(net, 1, |options| {
        options.node = 9;
        // As long as the test takes, so that nothing depends on the machine's speed.
        options.found_after = Duration::from_secs(60);
    });
    assert_eq!(again.cluster.identifier(), nodes[0].cluster.identifier());
}

#[test]
fn an_address_that_is_silent_is_waited_for() {
    let net = Net(93);
    // It takes connections, and says nothing.
    let silent = TcpListener::bind(net.address(3)).unwrap();
    let give_up = Arc::new(AtomicBool::new(false));
    let change = knows_all(net, |node| node == 1);
    let given = Arc::clone(&give_up);
    let founder = thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let mut options = net.options(1, folder.path());
        change(1, &mut options);
        options.give_up = given;
        options.timings.handshake = Duration::from_millis(200);
        try_start(options, folder)
    });
    let second = begin(net, 2, move |options| change(2, options));
    // A second connection shows that the first round has led to nothing.
    let (first, _) = silent.accept().unwrap();
    let mut accepted = vec![first];
    eventually("asked several times", || {
        accepted.push(silent.accept().unwrap().0);
        accepted.len() > 4
    });
    assert!(!founder.is_finished() && !second.is_finished());
    drop((silent, accepted));
    let third = begin(net, 3, move |options| change(3, options));
    let founder = founder.join().unwrap().unwrap();
    let mut nodes = ended(vec![second, third]);
    nodes.push(founder);
    have_one_cluster(&nodes);
    // Nobody else has it give up.
    give_up.store(true, Relaxed);
}

#[test]
fn at_a_loopback_address_that_refuses_there_is_nobody() {
    let net = Net(97);
    let change = knows_all(net, |node| node == 1);
    let first = Node::start_with(net, 1, |options| {
        change(1, options);
        options.found_after = Duration::ZERO;
    });
    assert!(first.cluster.welcome().is_none());
    let second = Node::start_with(net, 2, |options| change(2, options));
    assert_eq!(second.cluster.identifier(), first.cluster.identifier());
}

#[test]
fn who_waits_gives_up() {
    let net = Net(94);
    let folder = tempfile::tempdir().unwrap();
    let mut options = net.options(1, folder.path());
    options.seeds = vec![net.address(2).to_string()];
    options.give_up.store(true, Relaxed);
    let error = try_start(options, folder).err().expect("it gives up");
    assert!(matches!(error, StartError::GivenUp), "{error}");
}

#[test]
fn a_name_may_come_after_its_node() {
    let net = Net(95);
    let give_up = Arc::new(AtomicBool::new(false));
    let given = Arc::clone(&give_up);
    let waiting = thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let mut options = net.options(1, folder.path());
        options.host = "no-such-node.invalid".to_owned();
        options.listen = None;
        options.give_up = given;
        try_start(options, folder)
    });
    give_up.store(true, Relaxed);
    let error = waiting.join().unwrap().err().expect("it gives up");
    assert!(matches!(error, StartError::GivenUp), "{error}");
}

#[test]
fn a_name_is_listened_on_by_the_addresses_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Net(96).options(1, folder.path());
    options.host = "localhost".to_owned();
    options.listen = None;
    options.port = 18_899;
    options.seeds.clear();
    options.security.open_to = |address| address.is_loopback();
    let node = try_start(options, folder).unwrap();
    let looks = ("localhost", 18_899);
    let addresses = std::net::ToSocketAddrs::to_socket_addrs(&looks).unwrap();
    for address in addresses {
        std::net::TcpStream::connect(address).unwrap();
    }
    drop(node);
}
