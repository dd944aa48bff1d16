//! A node of this process: the broker's logic ([`broker_core::Node`]) and what it runs on.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};

use admin::Rights;
use authentication::Authentication;
use authentication_api::{Credentials, DatabaseUser, Source, Step, UserNow, Verdict};
use broker_core::{ClientEvent, LoopMessage, RefusedLogin, Rim, SessionEvent, SubscriptionEvent};
use config::Networks;
use control_view::View;
use net::{Clock, LoopStats, Remote};
use net_api::PeerAddress;
use parking_lot::Mutex;
use store::Store;

use crate::audit_notes::AuditNotes;
use crate::cluster_bans::ClusterBans;
use crate::cluster_time::ClusterTime;
use crate::clustered::{Clustered, INCARNATION};
use crate::control_changes::ControlChanges;
use crate::descriptors::Shares;
use crate::disk_space::DiskSpace;
use crate::events::Events;
use crate::listeners::Peers;
use crate::peers::PeerLinks;
use crate::peers::answerer::Answerer;
use crate::readiness::Readiness;
use crate::refused_logins::RefusedLogins;
use crate::retained_ends::Removals;
use crate::sys::SysTopics;

/// A node of this process.
pub(crate) type Node = broker_core::Node<Process>;

/// The clients of one of its event loops.
pub(crate) type ClientLoop = broker_core::ClientLoop<Process>;

/// What a node runs on: clocks, the store, connections to other nodes, threads.
#[derive(Debug)]
pub(crate) struct Process {
    /// For deadlines in this process.
    pub(crate) clock: Clock,
    /// For what other nodes and later processes read.
    pub(crate) cluster_time: ClusterTime,
    /// Who connects to each listener, by its number; last, to none.
    peers: Box<[Peers]>,
    /// That of the data folder.
    pub(crate) disk: DiskSpace,
    /// What the process keeps open.
    pub(crate) descriptors: Shares,
    /// What has happened.
    pub(crate) events: Events,
    pub(crate) refused_logins: RefusedLogins,
    /// Who is let in.
    pub(crate) authentication: Authentication,
    /// What it knows of the users, groups and rules of the control store.
    pub(crate) control: ControlChanges,
    /// What operators and rules remove.
    pub(crate) removals: Removals,
    /// Who may use the HTTP port.
    pub(crate) rights: Arc<Rights>,
    /// What was done here, for the audit.
    pub(crate) audit_notes: AuditNotes,
    /// Opened after the node is made, because it tells the node what it finds.
    store: OnceLock<Store>,
    /// The node's membership; only in a cluster.
    clustered: OnceLock<Arc<Clustered>>,
    /// The bans that it has in common with others; only in a cluster.
    bans: OnceLock<ClusterBans>,
    /// Answers what people ask of all nodes, when the node serves.
    answerer: OnceLock<Weak<dyn Answerer>>,
    /// They start after the store.
    loops: OnceLock<Remote<ClientLoop>>,
    /// Whether it is to be given clients.
    pub(crate) readiness: Readiness,
    /// What each loop counts of its connections.
    pub(crate) net: Box<[Arc<LoopStats>]>,
    sys: Mutex<SysTopics>,
}

impl Process {
    pub(crate) fn new(
        clock: Clock,
        (authentication, control): (Authentication, Arc<View>),
        audit_notes: AuditNotes,
        peers: Box<[Peers]>,
        disk: DiskSpace,
        (loops, descriptors): (usize, Shares),
    ) -> Self {
        let listeners = peers.len();
        Self {
            clock,
            cluster_time: ClusterTime::default(),
            peers,
            disk,
            descriptors,
            events: Events::default(),
            refused_logins: RefusedLogins::default(),
            removals: Removals::default(),
            authentication,
            audit_notes,
            rights: Arc::new(Rights::new(Arc::clone(&control))),
            control: ControlChanges::new(control),
            store: OnceLock::new(),
            clustered: OnceLock::new(),
            bans: OnceLock::new(),
            answerer: OnceLock::new(),
            loops: OnceLock::new(),
            readiness: Readiness::default(),
            net: (0..loops)
                .map(|_| Arc::new(LoopStats::new(listeners)))
                .collect(),
            sys: Mutex::default(),
        }
    }

    /// The store has been opened.
    ///
    /// # Panics
    /// It had been before.
    pub(crate) fn set_store(&self, store: Store) {
        assert!(self.store.set(store).is_ok(), "a node has one store");
    }

    /// The node is a member of a cluster.
    pub(crate) fn set_clustered(&self, clustered: Arc<Clustered>) {
        // A second time changes nothing.
        let _ = self.clustered.set(clustered);
    }

    /// The node's membership in its cluster, if it has one.
    pub(crate) fn clustered(&self) -> Option<&Arc<Clustered>> {
        self.clustered.get()
    }

    /// The node has its bans in common with others.
    pub(crate) fn set_bans(&self, bans: ClusterBans) {
        // A second time changes nothing.
        let _ = self.bans.set(bans);
    }

    /// Has all loops look whether one of their clients is banned.
    pub(crate) fn check_bans(&self) {
        let loops = self.loops();
        for index in 0..loops.loops() {
            loops.send(index, LoopMessage::Bans);
        }
    }

    /// The bans that the node has in common with others.
    pub(crate) fn bans(&self) -> Option<&ClusterBans> {
        self.bans.get()
    }

    /// What people ask of all nodes is answered from now on, as long as others keep what answers it.
    pub(crate) fn set_answerer(&self, answerer: &Arc<dyn Answerer>) {
        // A second time changes nothing.
        let _ = self.answerer.set(Arc::downgrade(answerer));
    }

    /// What answers it; `None`: the node does not serve yet, or no more.
    pub(crate) fn answerer(&self) -> Option<Arc<dyn Answerer>> {
        self.answerer.get()?.upgrade()
    }

    /// The loops have started.
    pub(crate) fn set_loops(&self, loops: Remote<ClientLoop>) {
        // A second time changes nothing.
        let _ = self.loops.set(loops);
    }

    /// The loops, if they have started.
    pub(crate) fn running_loops(&self) -> Option<&Remote<ClientLoop>> {
        self.loops.get()
    }

    /// The loops. Whoever asks before they have started waits.
    pub(crate) fn loops(&self) -> &Remote<ClientLoop> {
        self.loops.wait()
    }

    fn trusted(&self, listener: u16) -> Option<&Networks> {
        self.peers.get(usize::from(listener))?.trusted.as_ref()
    }
}

impl Rim for Process {
    type Store = Store;
    type Links = PeerLinks;

    #[inline]
    fn store(&self) -> Option<&Store> {
        self.store.get()
    }

    fn loops_run(&self) -> bool {
        self.loops.get().is_some()
    }

    fn send(&self, loop_index: usize, mail: LoopMessage) {
        if let Some(loops) = self.loops.get() {
            loops.send(loop_index, mail);
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn system_s(&self) -> u64 {
        Clock::system_s()
    }

    #[inline]
    fn cluster_time_ms(&self, now_ms: u64) -> u64 {
        self.cluster_time.at_ms(now_ms)
    }

    fn cluster_time_us(&self, now_us: u64) -> u64 {
        self.cluster_time.at_us(now_us)
    }

    fn is_proxied(&self, listener: u16) -> bool {
        self.peers
            .get(usize::from(listener))
            .is_some_and(|peers| peers.are_proxies)
    }

    fn trusts(&self, listener: u16, peer: PeerAddress) -> bool {
        let Some(trusted) = self.trusted(listener) else {
            return true;
        };
        let is_trusted = |ip: IpAddr| trusted.iter().any(|network| network.contains(ip));
        peer.ip().is_some_and(is_trusted)
    }

    fn has_authenticators(&self) -> bool {
        !self.authentication.is_empty()
    }

    fn user_now(&self, source: Source, username: &str) -> UserNow {
        self.authentication.user_now(source, username)
    }

    fn has_too_many_logins(&self) -> bool {
        self.authentication.is_crowded()
    }

    fn begin_exchange(&self, client_id: &str, method: &str, data: &[u8]) -> Option<Step> {
        self.authentication.begin_exchange(client_id, method, data)
    }

    fn authenticate(
        &self,
        loop_index: usize,
        credentials: Credentials,
        answered: impl FnOnce(Verdict, u64) -> LoopMessage + Send + 'static,
    ) {
        let (loops, clock) = (self.loops().clone(), self.clock);
        self.authentication
            .authenticate(credentials, move |verdict| {
                loops.send(loop_index, answered(verdict, clock.now_ms()));
            });
    }

    fn look_up(
        &self,
        loop_index: usize,
        user: Arc<DatabaseUser>,
        answered: impl FnOnce(Verdict) -> LoopMessage + Send + 'static,
    ) {
        let loops = self.loops().clone();
        self.authentication.look_up(user, move |verdict| {
            loops.send(loop_index, answered(verdict))
        });
    }

    fn tell_incarnation(&self) {
        if let (Some(clustered), Some(store)) = (self.clustered(), self.store.get()) {
            clustered.tell(INCARNATION, &store.incarnation().to_string());
        }
    }

    fn tell(&self, event: &ClientEvent<'_>) {
        self.events.handle_client(event, self.clock.now_ms());
    }

    fn tell_refused(&self, refused: &RefusedLogin<'_>) {
        self.refused_logins
            .handle_client(refused, self.clock.now_ms());
    }

    fn tell_subscription(&self, event: &SubscriptionEvent<'_>) {
        self.events.handle_subscription(event, self.clock.now_ms());
    }

    fn tell_session(&self, event: &SessionEvent<'_>) {
        self.events.handle_session(event, self.clock.now_ms());
    }

    fn sys_topics(&self, node: &Node) -> Vec<(String, String)> {
        self.sys.lock().topics(node)
    }
}
