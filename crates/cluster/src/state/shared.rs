//! What all tasks of a cluster's thread, and the threads that use it, share.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::folder::record::{Record, RecordError, RecordFile};
use crate::folder::spoken::SpokenFile;
use crate::folder::stamps::{OldFolder, StampFile, Stamps};
use crate::members::list::{Details, Member, Members, Place, Roster, State};
use crate::members::reach::{Contact, Reach, judge};
use crate::membership::seeds::Seeds;
use crate::options::Options;
use crate::protocol::channel::Channel;
use crate::protocol::handshake::{Admission, Identity, Party, Words};
use crate::protocol::refusal::{Failure, Refusal, ShutOut};
use crate::state::calls::Calls;
use crate::state::clock::Clock;
use crate::state::complaints::{Complaints, Due};
use crate::state::connect_error::ConnectError;
use crate::state::handler::{Handler, WELCOME_LIMIT};
use crate::state::peers::Peers;
use crate::state::tls::Tls;
use crate::state::versions::OwnVersions;

/// Which cluster this node belongs to. Set once.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) cluster: u64,
    pub(crate) gossip_key: [u8; 32],
    pub(crate) welcome: Option<Bytes>,
}

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) tls: Option<Tls>,
    pub(crate) clock: Clock,
    instance: u64,
    membership: OnceLock<Membership>,
    /// Where members may be found.
    pub(crate) seeds: Seeds,
    pub(crate) details: Mutex<Details>,
    pub(crate) roster: Mutex<Roster>,
    pub(crate) peers: Arc<Peers>,
    members: RwLock<Arc<Members>>,
    pub(crate) calls: Calls,
    complaints: Complaints,
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) gossip_dropped: AtomicU64,
    sessions: AtomicU64,
    is_shut_out: AtomicBool,
    record: Mutex<Option<Record>>,
    record_file: RecordFile,
    /// What this node's data folder shows, and what is remembered of those of others.
    pub(crate) stamps: Mutex<Stamps>,
    pub(crate) stamp_file: StampFile,
    /// The versions of the protocol that this node speaks.
    pub(crate) versions: OwnVersions,
    /// What is kept of those that the others speak.
    pub(crate) spoken_file: SpokenFile,
    /// The other members have confirmed that the data folder is not an old copy.
    pub(crate) admitted: watch::Sender<bool>,
    /// The user is ready for links.
    pub(crate) opened: CancellationToken,
    /// Other nodes are let in.
    pub(crate) is_serving: AtomicBool,
    /// The list of members may be out of date.
    pub(crate) changed: Notify,
    /// This node is about to stop in order.
    pub(crate) stops: CancellationToken,
    /// The other members know how far it has come.
    pub(crate) stopped: CancellationToken,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    pub(crate) fn new(options: Options, handler: Arc<dyn Handler>, tls: Option<Tls>) -> Self {
        let details = Details {
            version: options.version.clone(),
            info: options.info.clone(),
            ..Details::default()
        };
        Self {
            handler,
            tls,
            clock: Clock::new(),
            instance: rand::random(),
            membership: OnceLock::new(),
            seeds: Seeds::new(&options),
            details: Mutex::new(details),
            roster: Mutex::default(),
            peers: Arc::default(),
            members: RwLock::default(),
            calls: Calls::new(rand::random()),
            complaints: Complaints::default(),
            refusals: Mutex::default(),
            gossip_dropped: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            is_shut_out: AtomicBool::new(false),
            record: Mutex::default(),
            record_file: RecordFile::new(&options.folder),
            stamps: Mutex::default(),
            stamp_file: StampFile::new(&options.folder),
            versions: OwnVersions::new(options.protocol),
            spoken_file: SpokenFile::new(&options.folder),
            admitted: watch::Sender::new(false),
            opened: CancellationToken::new(),
            is_serving: AtomicBool::new(false),
            changed: Notify::new(),
            stops: CancellationToken::new(),
            stopped: CancellationToken::new(),
            stop: CancellationToken::new(),
            options,
        }
    }

    /// Where this node is.
    pub(crate) fn place(&self) -> Place {
        let Options { host, port, .. } = &self.options;
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        Place {
            node: self.options.node,
            incarnation: self.options.incarnation,
            address,
        }
    }

    pub(crate) fn party(&self) -> Party {
        let identity = Identity {
            env: self.options.env.clone(),
            cluster: self.membership().map_or(0, |known| known.cluster),
            place: self.place(),
            instance: self.instance,
            history: self.stamp_file.synced_history(),
            versions: self.versions.get(),
            founds: self.options.bootstrap,
        };
        let secret = self.options.security.secret.as_ref();
        Party::new(identity, secret)
    }

    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.membership.get()
    }

    /// Whether other nodes may join through this one and connect to it.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_serving.load(Relaxed)
    }

    /// Reads the file `cluster`, if there is one.
    pub(crate) fn read_record(&self) -> Result<Option<Record>, RecordError> {
        let Options { node, env, .. } = &self.options;
        self.record_file.read(*node, env)
    }

    /// Takes over what is in the file `cluster`, and what is kept beside it of the versions that the members speak. Blocks.
    pub(crate) fn belong(&self, record: Record) {
        let membership = Membership {
            cluster: record.cluster,
            gossip_key: record.gossip_key,
            welcome: record.welcome.clone().map(Bytes::from),
        };
        let mut roster = Roster::new(
            self.options.node,
            record.members.clone(),
            record.evicted.clone(),
        );
        if let Some(kept) = self.spoken_file.read() {
            kept.recall(&mut roster);
        }
        *self.roster.lock() = roster;
        *self.record.lock() = Some(record);
        let is_first = self.membership.set(membership).is_ok();
        assert!(is_first, "a node belongs to one cluster");
    }

    /// Writes the first file `cluster`.
    pub(crate) fn write_record(&self, record: &Record) -> Result<(), RecordError> {
        self.record_file.write(record)
    }

    /// Notes where this node is from now on. Returns where it was before, if that is another place.
    pub(crate) fn note_address(&self, address: &str) -> Result<Option<String>, RecordError> {
        self.record_file.note_address(address)
    }

    /// Writes the file `cluster` if the members or the evicted have changed. Blocks.
    pub(crate) fn keep_record(&self) -> Result<(), RecordError> {
        let mut kept = self.record.lock();
        let Some(record) = kept.as_mut() else {
            return Ok(());
        };
        let mut next = record.clone();
        {
            let roster = self.roster.lock();
            next.members = roster.places();
            next.evicted = roster.evicted().clone();
        }
        if next != *record {
            self.record_file.write(&next)?;
            *record = next;
        }
        Ok(())
    }

    /// Adds this start to the data folder, synced, before anybody is told of it. Returns whether it is the first one
    /// with stamps. Blocks.
    pub(crate) fn begin_stamps(&self) -> Result<bool, RecordError> {
        let mut stamps = self.stamp_file.read()?;
        if self.options.accepts_folder {
            stamps.forget_others();
        }
        let is_first = stamps.begin(self.options.incarnation, rand::random());
        *self.stamps.lock() = stamps;
        self.keep_stamps()?;
        Ok(is_first)
    }

    /// Forgets what is remembered of nodes that are no members any more.
    pub(crate) fn forget_stamps(&self) {
        let roster = self.roster.lock();
        let is_member = |node| roster.place(node).is_some();
        self.stamps.lock().retain(is_member);
    }

    /// Writes the file of stamps if they have changed. Blocks.
    pub(crate) fn keep_stamps(&self) -> Result<(), RecordError> {
        self.stamp_file.keep(|| self.stamps.lock().clone())
    }

    /// The same on another thread.
    pub(crate) async fn keep_stamps_now(self: &Arc<Self>) -> Result<(), RecordError> {
        let keeping = self.clone();
        let kept = tokio::task::spawn_blocking(move || keeping.keep_stamps()).await;
        // It has not panicked, and nobody ends it.
        kept.unwrap_or(Ok(()))
    }

    pub(crate) fn address_of(&self, node: u64) -> String {
        let roster = self.roster.lock();
        let place = roster.place(node);
        place.map_or_else(String::new, |place| place.address.clone())
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Relaxed) + 1
    }

    /// Whether a node that has proven to be of this cluster may take part.
    pub(crate) fn judge(&self, identity: &Identity) -> Result<(), Refusal> {
        let Place {
            node, incarnation, ..
        } = identity.place;
        let (ours, theirs) = (self.versions.get(), identity.versions);
        // What this node requires may have risen since both have agreed.
        if ours.highest_common(theirs).is_none() {
            return Err(Refusal::Versions { ours, theirs });
        }
        let roster = self.roster.lock();
        if roster.evicted().contains(&node) {
            return Err(Refusal::Evicted);
        }
        let checked = self.stamps.lock().check(node, &identity.history);
        checked.map_err(|OldFolder { incarnation }| Refusal::OldFolder { node, incarnation })?;
        let known = match node == self.options.node {
            true => self.options.incarnation,
            false => roster.place(node).map_or(0, |place| place.incarnation),
        };
        if known > incarnation {
            let incarnation = known;
            return Err(Refusal::Replaced { incarnation });
        }
        if node == self.options.node {
            return Err(Refusal::Twin);
        }
        if !roster.has_room_for(node) {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// A node that has proven to be of this cluster is a member, and its data folder is new enough. What is remembered
    /// of it is not on the disk yet.
    pub(crate) fn greet(&self, identity: &Identity) -> Result<(), Refusal> {
        self.judge(identity)?;
        let place = &identity.place;
        {
            let mut roster = self.roster.lock();
            let learned = roster.learn(place.clone(), None);
            learned.map_err(|_| Refusal::Full)?;
            roster.was_spoken(place.node, place.incarnation, identity.versions);
        }
        self.stamps.lock().saw(place.node, &identity.history);
        self.changed.notify_one();
        Ok(())
    }

    /// What a new node is told; a member, which was welcomed once, is told who the others are. `version`: that was agreed on.
    pub(crate) fn admission(&self, is_new: bool, version: u16) -> Admission {
        let welcome = match is_new {
            true => self.handler.welcome(),
            false => Bytes::new(),
        };
        assert!(
            welcome.len() <= WELCOME_LIMIT,
            "what a handler tells nodes that join is bounded"
        );
        let roster = self.roster.lock();
        let mut members = roster.places();
        members.push(self.place());
        let evicted = roster.evicted().iter().copied().collect();
        drop(roster);
        Admission {
            gossip_key: self.membership().map_or([0; 32], |known| known.gossip_key),
            evicted,
            members,
            welcome: Words {
                welcome: welcome.to_vec(),
                note: self.handler.note(version).to_vec(),
            }
            .encode(version),
        }
    }

    /// A member has told who the others are: the folder may not know that some have come, gone or moved.
    pub(crate) fn take_in(&self, told: &Admission, version: u16) {
        // Nobody relies on a note: what is none is as if nothing were said.
        let note = Words::decode(&told.welcome, version).map_or_else(Vec::new, |words| words.note);
        self.handler.noted(version, &note);
        let mut roster = self.roster.lock();
        // What is too much comes again with gossip, and is complained of then.
        for place in &told.members {
            let _ = roster.learn(place.clone(), None);
        }
        for node in told
            .evicted
            .iter()
            .filter(|node| **node != self.options.node)
        {
            let _ = roster.evict(*node);
        }
        self.changed.notify_one();
    }

    /// Judges who can be reached, and tells the handler if the list is another than before. On the cluster's
    /// thread.
    pub(crate) fn refresh(&self) {
        let members = Arc::new(self.judged_members());
        if **self.members.read() == *members {
            return;
        }
        *self.members.write() = members.clone();
        self.handler.members(&members);
    }

    fn judged_members(&self) -> Members {
        let now_ms = self.clock.now_ms();
        let mut members = Members::default();
        let me = member(self.place(), self.details.lock().clone(), Reach::Up);
        members.nodes.insert(me.node, me);
        let roster = self.roster.lock();
        members.evicted.clone_from(roster.evicted());
        for known in roster.others() {
            let details = known.details.clone();
            let stopping = details.state == State::Stopping;
            let contact = match self.peers.get(known.place.node) {
                Some(peer) => peer.contact(stopping),
                // The links are about to begin.
                None if self.is_ready() => Contact::since(now_ms),
                // They have not begun since the start.
                None => Contact::since(0),
            };
            let reach = judge(contact, now_ms, &self.options.timings);
            let member = member(known.place.clone(), details, reach);
            members.nodes.insert(member.node, member);
        }
        members
    }

    /// The thread has ended, and with it all links.
    pub(crate) fn end(&self) {
        self.peers.clear();
        self.calls.fail_all();
    }

    pub(crate) fn members(&self) -> Arc<Members> {
        self.members.read().clone()
    }

    pub(crate) fn shut_out(&self, reason: ShutOut) {
        if !self.is_shut_out.swap(true, Relaxed) {
            tracing::error!(?reason, "the cluster no longer accepts this node");
            self.handler.shut_out(reason);
        }
    }

    /// A node could not be connected to.
    pub(crate) fn complain_of_peer(&self, node: u64, channel: Channel, error: &ConnectError) {
        if let Some(reason) = error.why_shut_out() {
            self.shut_out(reason);
        }
        let about = format!("node {node:016x}, {}", channel.name());
        match error {
            // Whoever looks at the members says that the node is down, once and with its address.
            ConnectError::Io(_) | ConnectError::TimedOut => {
                tracing::debug!(about, reason = error.name(), %error, "a node cannot be reached");
            }
            ConnectError::Displaced | ConnectError::PublicAddress | ConnectError::Failure(_) => {
                self.complain(&about, error.name(), error);
            }
        }
    }

    /// A connection from this address was not taken.
    pub(crate) fn refused(&self, address: SocketAddr, error: &ConnectError) {
        *self.refusals.lock().entry(error.name()).or_default() += 1;
        if !matches!(error, ConnectError::Failure(Failure::We(Refusal::Itself))) {
            let about = format!("connection from {}", address.ip());
            self.complain(&about, error.name(), error);
        }
    }

    pub(crate) fn refusals(&self) -> BTreeMap<&'static str, u64> {
        self.refusals.lock().clone()
    }

    /// Logs what is wrong, once a minute. While a cluster forms, nodes come before the cluster is there: that is worth a
    /// warning only when it lasts.
    pub(crate) fn complain(
        &self,
        about: &str,
        name: &'static str,
        statement: &(impl fmt::Display + ?Sized),
    ) {
        let passes = name == Refusal::NotReady.name();
        match self.complaints.due(about, name, self.clock.now_ms()) {
            Due::No => {}
            Due::First if passes => tracing::info!(about, reason = name, "{statement}"),
            Due::First | Due::Again => tracing::warn!(about, reason = name, "{statement}"),
        }
    }
}

fn member(place: Place, details: Details, reach: Reach) -> Member {
    Member {
        node: place.node,
        incarnation: place.incarnation,
        address: place.address,
        state: details.state,
        version: details.version,
        reach,
        info: details.info,
    }
}
