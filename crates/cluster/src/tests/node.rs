//! A node of a test, what its handler was told, and strangers that speak the protocol by hand.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::folder::record::Record;
use crate::links::connect::{Dialled, dial};
use crate::protocol::handshake::Purpose;
use crate::state::connect_error::ConnectError;
use crate::state::shared::Shared;
use crate::state::tls::Tls;
use crate::{
    Channel, Cluster, Handler, Members, Options, Reach, Reply, Secret, Security, ShutOut, Source,
    StartError, State, Timings, Versions,
};

pub(super) const PORT: u16 = 8899;

/// Longer than anything takes on a slow machine.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until it is so.
pub(super) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Message(u64, Channel, Bytes),
    /// That of the link of a message.
    Version(u64, Channel, u16),
    Connected(u64, Channel, u64),
    Disconnected(u64, Channel),
    Incoming(u64, Channel, bool),
    Members(usize),
    ShutOut(ShutOut),
    Welcomed(Bytes),
}

/// Notes what it is told. Answers requests with themselves; not at all to `silence`, and `keep` is kept.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) told: Mutex<Vec<Told>>,
    pub(super) kept: Mutex<Vec<Reply>>,
}

impl Recorder {
    fn note(&self, told: Told) {
        self.told.lock().push(told);
    }

    pub(super) fn was_told(&self, told: &Told) -> bool {
        self.told.lock().contains(told)
    }

    pub(super) fn count(&self, counts: impl Fn(&Told) -> bool) -> usize {
        self.told.lock().iter().filter(|told| counts(told)).count()
    }

    pub(super) fn messages(&self, from: u64, channel: Channel) -> Vec<Bytes> {
        let told = self.told.lock();
        let messages = told.iter().filter_map(|told| match told {
            Told::Message(sender, on, bytes) if (*sender, *on) == (from, channel) => {
                Some(bytes.clone())
            }
            _ => None,
        });
        messages.collect()
    }
}

impl Handler for Recorder {
    fn message(&self, from: Source, bytes: Bytes) {
        self.note(Told::Version(from.node, from.channel, from.version));
        self.note(Told::Message(from.node, from.channel, bytes));
    }

    fn request(&self, _from: Source, bytes: Bytes, reply: Reply) {
        match &bytes[..] {
            b"silence" => drop(reply),
            b"keep" => self.kept.lock().push(reply),
            _ => assert!(reply.send(bytes)),
        }
    }

    fn connected(&self, to: u64, channel: Channel, session: u64) {
        self.note(Told::Connected(to, channel, session));
    }

    fn disconnected(&self, to: u64, channel: Channel) {
        self.note(Told::Disconnected(to, channel));
    }

    fn incoming(&self, from: u64, channel: Channel, up: bool) {
        self.note(Told::Incoming(from, channel, up));
    }

    fn members(&self, members: &Arc<Members>) {
        self.note(Told::Members(members.nodes.len()));
    }

    fn shut_out(&self, reason: ShutOut) {
        self.note(Told::ShutOut(reason));
    }

    fn welcome(&self) -> Bytes {
        Bytes::from_static(b"three shards")
    }

    fn note(&self, _: u16) -> Bytes {
        Bytes::from_static(b"note")
    }

    fn noted(&self, _: u16, _: &[u8]) {}

    fn welcomed(&self, welcome: &Bytes) -> Result<(), String> {
        self.note(Told::Welcomed(welcome.clone()));
        Ok(())
    }
}

/// Where nodes of one test are: 127.77.`net`.x. Tests run beside each other: each has numbers of its own.
#[derive(Clone, Copy)]
pub(super) struct Net(pub(super) u8);

impl Net {
    pub(super) fn host(self, node: u64) -> String {
        format!("127.77.{}.{node}", self.0)
    }

    pub(super) fn address(self, node: u64) -> SocketAddr {
        format!("{}:{PORT}", self.host(node)).parse().unwrap()
    }

    pub(super) fn options(self, node: u64, folder: &Path) -> Options {
        Options {
            accepts_folder: false,
            node,
            incarnation: 1,
            env: "Test".to_owned(),
            host: self.host(node),
            listen: Some(self.address(node).ip()),
            port: PORT,
            seeds: vec![self.address(1).to_string()],
            domain: None,
            bootstrap: node == 1,
            found_after: Duration::ZERO,
            folder: folder.to_owned(),
            security: Security {
                secret: Some(Secret::new(b"secret".to_vec())),
                tls: None,
                open_to: |_| false,
            },
            version: "1.0".to_owned(),
            protocol: Versions::FIRST,
            info: [("http".to_owned(), format!("{node}:8080"))].into(),
            kept_info: vec!["http".to_owned()],
            timings: Timings {
                gossip: Duration::from_millis(50),
                ..Timings::default()
            },
            give_up: Arc::default(),
        }
    }
}

pub(super) struct Node {
    pub(super) cluster: Cluster,
    pub(super) recorder: Arc<Recorder>,
    pub(super) folder: TempDir,
}

pub(super) fn try_start(options: Options, folder: TempDir) -> Result<Node, StartError> {
    let recorder = Arc::new(Recorder::default());
    let cluster = Cluster::start(options, recorder.clone())?;
    cluster.open();
    cluster.set_state(State::Up);
    Ok(Node {
        cluster,
        recorder,
        folder,
    })
}

impl Node {
    pub(super) fn start(net: Net, node: u64) -> Self {
        Self::start_with(net, node, |_| ())
    }

    pub(super) fn start_with(net: Net, node: u64, change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = net.options(node, folder.path());
        change(&mut options);
        try_start(options, folder).unwrap()
    }

    /// Stops, and starts again with its folder and a higher incarnation. Needs no seeds.
    pub(super) fn restart(self, net: Net, node: u64) -> Self {
        let incarnation = self.member(node).unwrap().incarnation + 1;
        self.cluster.stop();
        let mut options = net.options(node, self.folder.path());
        options.incarnation = incarnation;
        options.seeds.clear();
        options.bootstrap = false;
        try_start(options, self.folder).unwrap()
    }

    pub(super) fn member(&self, node: u64) -> Option<crate::Member> {
        self.cluster.members().nodes.get(&node).cloned()
    }

    pub(super) fn reaches(&self, node: u64) -> bool {
        let links = self.cluster.links();
        let connected = links
            .iter()
            .filter(|link| link.node == node && link.connected);
        let member = self.member(node);
        connected.count() == Channel::ALL.len()
            && member.is_some_and(|member| member.reach == Reach::Up && member.state == State::Up)
    }
}

/// `count` nodes that reach each other.
pub(super) fn cluster(net: Net, count: u64) -> Vec<Node> {
    cluster_with(net, count, |_| ())
}

pub(super) fn cluster_with(net: Net, count: u64, change: fn(&mut Options)) -> Vec<Node> {
    let nodes: Vec<_> = (1..=count)
        .map(|node| Node::start_with(net, node, change))
        .collect();
    all_reach_all(&nodes);
    nodes
}

pub(super) fn all_reach_all(nodes: &[Node]) {
    for node in nodes {
        for other in nodes {
            let other = other.cluster.shared.options.node;
            if other != node.cluster.shared.options.node {
                eventually("all reach all", || node.reaches(other));
            }
        }
    }
}

/// Speaks the protocol by hand.
pub(super) struct Stranger {
    pub(super) shared: Arc<Shared>,
    pub(super) runtime: tokio::runtime::Runtime,
}

impl Stranger {
    pub(super) fn new(options: Options) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let tls = options.security.tls.as_ref();
        let tls = tls.map(|files| Tls::load(files).unwrap());
        let shared = Arc::new(Shared::new(options, Arc::new(Recorder::default()), tls));
        Self { shared, runtime }
    }

    /// One that knows what a member of `cluster` knows.
    pub(super) fn of(cluster: u64, options: Options) -> Self {
        let (env, node) = (options.env.clone(), options.node);
        let stranger = Self::new(options);
        stranger.shared.belong(Record {
            cluster,
            env,
            node,
            gossip_key: [0; 32],
            evicted: BTreeSet::new(),
            members: Vec::new(),
            welcome: None,
        });
        stranger
    }

    pub(super) fn dial(
        &self,
        address: SocketAddr,
        purpose: Purpose,
    ) -> Result<Dialled, ConnectError> {
        let host = address.ip().to_string();
        self.runtime
            .block_on(dial(&self.shared, address, &host, purpose, None))
    }

    /// How dialling fails.
    pub(super) fn failure(&self, address: SocketAddr, purpose: Purpose) -> ConnectError {
        let dialled = self.dial(address, purpose);
        dialled.err().expect("it is refused")
    }
}
