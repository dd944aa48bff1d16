//! Bans and failed logins in a cluster: each node has all bans, in its memory and in its file, and tells the others what
//! changes.
//!
//! A change is sent to all nodes in reach when it is made. Every few seconds, and when a connection is made, a node
//! sends the others a digest of what it knows; a node that knows something else answers with that. So a node that was
//! down or out of reach has all bans soon after, and a node bans without asking a majority.
//!
//! Logins that have failed are told twice a second, so that attempts at several nodes count together. What is lost with a
//! connection is not told again: it counts at one node only.
//!
//! Invariants: a node enforces what it is told before it has written it. What waits to be handled is bounded; what is
//! left out comes with the next digest. Of two changes for one ban's subject the later one counts (`guard::Change`).
//!
//! Deliberately absent: nodes of version 1 of the protocol, which know bans of their own only.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use broker_core::Links as _;
use config::Network;
use guard::{Ban, Change, FailedLogin, Guard, Lifted, PARTS, Subject};
use net::Clock;
use parking_lot::Mutex;
use peer_protocol::{BanChange, BanSubject, Banned, Bans, FailedLogins, Kind, PeerMessage};
use route_exchange::NodeId;
use tokio::sync::mpsc;

use crate::ban_file::BanFile;
use crate::peers::PeerLinks;

/// How often the others are told what this node knows.
const ROUND: Duration = Duration::from_secs(5);

/// How often the others are told of failed logins.
const FAILURES: Duration = Duration::from_millis(500);

/// Messages that wait to be handled.
///
/// Limit: messages about bans that wait to be handled; changes in one | {}; {MESSAGE_BYTES} | dropped, and sent again
/// after a digest, each {ROUND}; the rest follows
const WAITING: usize = 64;

/// Bytes of changes in one message, about: half of what it may have. One change has less than 64 KiB.
const MESSAGE_BYTES: usize = 512 << 10;

/// Times are before the year 6429: what another program says does not overflow.
const LATEST_MS: u64 = 1 << 47;

/// What is to be handled.
#[derive(Debug)]
enum Event {
    /// A node can be told something.
    Linked(NodeId),
    /// A node has said something.
    Received(NodeId, Bans),
}

/// The bans of a node of a cluster.
pub(crate) struct ClusterBans {
    process: Process,
    links: PeerLinks,
    events: mpsc::Sender<Event>,
    /// Until [`Self::run`] takes it.
    to_handle: Mutex<Option<mpsc::Receiver<Event>>>,
    /// With which part the next answer to a digest begins.
    next_part: AtomicUsize,
}

/// What the bans are for.
pub(crate) struct Process {
    pub(crate) file: Arc<BanFile>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: Clock,
    /// The other members.
    pub(crate) others: Box<dyn Fn() -> Vec<NodeId> + Send + Sync>,
    /// Has all clients looked at that are connected.
    pub(crate) check_clients: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for ClusterBans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterBans")
    }
}

impl ClusterBans {
    pub(crate) fn new(process: Process, links: PeerLinks) -> Self {
        let (events, to_handle) = mpsc::channel(WAITING);
        Self {
            process,
            links,
            events,
            to_handle: Mutex::new(Some(to_handle)),
            next_part: AtomicUsize::new(0),
        }
    }

    /// There is a connection to a node.
    pub(crate) fn linked(&self, to: NodeId) {
        // If too many wait, the node is told in the next round.
        let _ = self.events.try_send(Event::Linked(to));
    }

    /// A message of a member.
    pub(crate) fn received(&self, from: NodeId, bans: Bans) {
        // As above.
        let _ = self.events.try_send(Event::Received(from, bans));
    }

    /// This node has changed a ban: the nodes in reach are told.
    pub(crate) fn tell(&self, change: &Change) {
        for to in (self.process.others)() {
            self.send(to, Bans::Changes(vec![to_peer(change)]));
        }
    }

    /// Handles what comes, and tells the others now and then what this node knows.
    pub(crate) async fn run(&self) {
        let to_handle = self.to_handle.lock().take();
        if let Some(to_handle) = to_handle {
            self.handle(to_handle).await;
        }
    }

    async fn handle(&self, mut to_handle: mpsc::Receiver<Event>) {
        let mut rounds = tokio::time::interval(ROUND);
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failures = tokio::time::interval(FAILURES);
        failures.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.process.guard.report_failed_logins();
        loop {
            tokio::select! {
                _ = rounds.tick() => {
                    for to in (self.process.others)() {
                        self.send_digest(to);
                    }
                }
                _ = failures.tick() => self.tell_failures(),
                event = to_handle.recv() => match event {
                    Some(Event::Linked(to)) => self.send_digest(to),
                    Some(Event::Received(from, Bans::Digest(digest))) => {
                        self.answer(from, &digest);
                    }
                    Some(Event::Received(from, Bans::Changes(changes))) => {
                        self.merge(from, changes).await;
                    }
                    Some(Event::Received(_, Bans::FailedLogins(failed))) => self.count(&failed),
                    None => return,
                },
            }
        }
    }

    fn tell_failures(&self) {
        let failed = self.process.guard.take_failed_logins();
        if !failed.is_empty() {
            let failed = failed.into_iter().map(|failed| FailedLogins {
                address: failed.address.to_string().into(),
                user: failed.user,
                count: failed.count,
            });
            let failed: Vec<_> = failed.collect();
            for to in (self.process.others)() {
                self.send(to, Bans::FailedLogins(failed.clone()));
            }
        }
    }

    /// Logins have failed at another node.
    fn count(&self, failed: &[FailedLogins]) {
        let now_ms = self.process.clock.now_ms();
        for failed in failed {
            if let Some(address) = Network::new(&failed.address) {
                let failed = FailedLogin {
                    address,
                    user: failed.user.clone(),
                    count: failed.count,
                };
                self.process.guard.failed_elsewhere(&failed, now_ms);
            }
        }
    }

    fn send_digest(&self, to: NodeId) {
        let digest = self.process.guard.bans().digest().to_vec();
        self.send(to, Bans::Digest(digest));
    }

    /// Tells a node what it does not know, as far as one message can.
    fn answer(&self, to: NodeId, digest: &[u64]) {
        let bans = self.process.guard.bans();
        let differs = |part: usize| bans.digest().get(part) != digest.get(part);
        let first = self.next_part.fetch_add(1, Ordering::Relaxed);
        let mut changes: Vec<(usize, Change)> = bans.changes(differs).collect();
        changes.sort_by_key(|(part, _)| part.wrapping_sub(first) % PARTS);
        let mut bytes = 0;
        let fitting = changes.iter().take_while(|(_, change)| {
            let fits = bytes < MESSAGE_BYTES;
            bytes += bytes_of(change);
            fits
        });
        let fitting: Vec<BanChange> = fitting.map(|(_, change)| to_peer(change)).collect();
        if !fitting.is_empty() {
            self.send(to, Bans::Changes(fitting));
        }
    }

    async fn merge(&self, from: NodeId, changes: Vec<BanChange>) {
        let now_ms = self.process.clock.now_ms();
        let changes: Vec<Change> = changes.into_iter().filter_map(of_peer).collect();
        let Process { file, guard, .. } = &self.process;
        let (file, guard) = (Arc::clone(file), Arc::clone(guard));
        let check_clients = Arc::clone(&self.process.check_clients);
        let merge = move || file.merge(&guard, now_ms, changes, &*check_clients);
        match tokio::task::spawn_blocking(merge).await {
            // The node may have more to say.
            Ok(Ok(true)) => self.send_digest(from),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "bans of another node apply, but cannot be written to the file");
            }
            Err(error) => tracing::error!(%error, "bans of another node cannot be applied"),
        }
    }

    /// A node whose version of the protocol has no bans is told nothing.
    fn send(&self, to: NodeId, bans: Bans) {
        let version = self.links.0.version(to);
        if version.is_some_and(|version| version >= Kind::Bans.format().since) {
            self.links.send(to, PeerMessage::Bans(bans));
        }
    }
}

fn bytes_of(change: &Change) -> usize {
    let name = match change.subject() {
        Subject::Client(name) | Subject::User(name) => name.len(),
        Subject::Address(_) => 50,
    };
    let reason = match change {
        Change::Banned(ban) => ban.reason.len(),
        Change::Lifted(_) => 0,
    };
    name + reason + 40
}

fn to_peer(change: &Change) -> BanChange {
    let subject = match change.subject() {
        Subject::Client(name) => BanSubject::Client(name.clone()),
        Subject::User(name) => BanSubject::User(name.clone()),
        Subject::Address(network) => BanSubject::Address(network.to_string().into()),
    };
    match change {
        Change::Banned(ban) => BanChange {
            subject,
            version: (ban.created_ms, ban.id),
            banned: Some(Banned {
                reason: ban.reason.as_str().into(),
                expires_ms: ban.expires_ms,
            }),
        },
        Change::Lifted(lifted) => BanChange {
            subject,
            version: lifted.version,
            banned: None,
        },
    }
}

/// `None`: it makes no sense.
fn of_peer(change: BanChange) -> Option<Change> {
    let BanChange {
        subject,
        version,
        banned,
    } = change;
    let (at_ms, id) = version;
    let subject = match subject {
        BanSubject::Client(name) => Subject::Client(name),
        BanSubject::User(name) => Subject::User(name),
        BanSubject::Address(network) => Subject::new(None, None, Some(&network)).ok()?,
    };
    let is_late = |time: u64| time >= LATEST_MS;
    if is_late(at_ms) {
        return None;
    }
    Some(match banned {
        None => Change::Lifted(Lifted { subject, version }),
        Some(banned) if banned.expires_ms.is_some_and(is_late) => return None,
        Some(banned) => Change::Banned(Ban {
            id,
            subject,
            reason: banned.reason.into(),
            created_ms: at_ms,
            expires_ms: banned.expires_ms,
        }),
    })
}
