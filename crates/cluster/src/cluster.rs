//! A node's part in its cluster, from start to end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;

use crate::links::listen;
use crate::links::names::Names;
use crate::members::list::{INFO_LIMIT, Members, Place, Spoken, State};
use crate::membership::error::{EvictError, InfoError, StartError, VersionError};
use crate::membership::{confirm, gossip, join, upkeep};
use crate::options::{Options, Security};
use crate::protocol::channel::Channel;
use crate::protocol::frame::Frame;
use crate::state::calls::Unreachable;
use crate::state::handler::Handler;
use crate::state::shared::Shared;
use crate::state::stats::LinkReading;
use crate::state::tls::{Tls, check_own_name};

/// How often members are looked at while this node is not admitted.
const LOOK: Duration = Duration::from_millis(100);

/// Between two look-ups of this node's own name, while it has no address.
const ROUND: Duration = Duration::from_millis(500);

/// Between two lines in the log that say that it has none.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a node that stops waits until the others know how far it has come.
const END: Duration = Duration::from_secs(1);

/// A node's part in its cluster. Ends when it is dropped.
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Cluster {
    /// Forms a cluster or joins one, and returns when this node knows which: its file says so, it begins one,
    /// or a member has let it join. Waits for a member for ever, and says so in the log every 5 seconds.
    ///
    /// There are no links, and nobody joins through this node, before [`Cluster::open`] and before
    /// [`Cluster::admitted`].
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: Options, handler: Arc<dyn Handler>) -> Result<Self, StartError> {
        check_info(&options.info).map_err(StartError::Info)?;
        let tls = load_tls(&options.security, Some(&options.host))?;
        let shared = Arc::new(Shared::new(options, handler, tls));
        check_seeds(&shared)?;
        let (started, start) = sync_channel(1);
        let running = shared.clone();
        let thread = thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || run(&running, &started))
            .map_err(StartError::Thread)?;
        match start.recv() {
            Ok(Ok(())) => Ok(Self {
                shared,
                thread: Mutex::new(Some(thread)),
            }),
            // Its sockets are closed when it has ended: the address can be used again.
            Ok(Err(error)) => match thread.join() {
                Ok(()) => Err(error),
                Err(_) => Err(StartError::Thread(io::Error::other("it has panicked"))),
            },
            Err(_) => Err(StartError::Thread(io::Error::other("it has ended"))),
        }
    }

    /// Reads the files of TLS as [`Cluster::start`] does, and starts nothing. `host`: the name or address that
    /// the others reach this node by, unless that is known on the node alone.
    ///
    /// # Errors
    /// A file that cannot be used, or a certificate for another name.
    pub fn check(security: &Security, host: Option<&str>) -> Result<(), StartError> {
        load_tls(security, host).map(drop)
    }

    /// Lets links begin: from now on the handler is called.
    pub fn open(&self) {
        self.shared.opened.cancel();
    }

    /// Whether the other members have confirmed that this node's data folder is not an old copy: before that nothing
    /// that the folder holds may be relied on. A node whose members can be reached is confirmed before
    /// [`Cluster::start`] returns.
    #[must_use]
    pub fn admitted(&self) -> watch::Receiver<bool> {
        self.shared.admitted.subscribe()
    }

    /// This node's identifier.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.shared.options.node
    }

    /// The identifier of the cluster.
    #[must_use]
    pub fn identifier(&self) -> u64 {
        let membership = self.shared.membership();
        membership.expect("a cluster has started").cluster
    }

    /// What this node was told when it joined. `None`: it has begun the cluster.
    #[must_use]
    pub fn welcome(&self) -> Option<Bytes> {
        self.shared.membership()?.welcome.clone()
    }

    /// The list of members. Empty before [`Cluster::open`].
    #[must_use]
    pub fn members(&self) -> Arc<Members> {
        self.shared.members()
    }

    /// Gives bytes to the connection to a node, which sends them soon. `false`: there is no connection, or
    /// its queue is full and it is given up, or the bytes alone are more than the queue takes or 64 MiB; they
    /// are dropped. From any thread.
    pub fn send(&self, to: u64, channel: Channel, bytes: Bytes) -> bool {
        self.shared.peers.send(to, channel, Frame::message(bytes))
    }

    /// The same as [`Cluster::send`], but the calling thread writes the bytes to the socket if nothing waits, nobody else
    /// writes, and the connection is not encrypted: one system call, which does not wait, instead of a wake-up of the
    /// cluster's thread. What the socket does not take, and more than 32 KiB, is left to that thread. For whoever has
    /// collected what belongs together; many short messages are better given to [`Cluster::send`], which writes them
    /// together. From any thread; the bytes keep their order with those of [`Cluster::send`].
    pub fn send_at_once(&self, to: u64, channel: Channel, bytes: Bytes) -> bool {
        let frame = Frame::message(bytes);
        self.shared.peers.send_at_once(to, channel, frame)
    }

    /// The version of the protocol that was agreed on with a node, for what is sent to it. `None`: there is no
    /// connection.
    #[must_use]
    pub fn protocol_version(&self, to: u64, channel: Channel) -> Option<u16> {
        let peer = self.shared.peers.get(to)?;
        let link = peer.link(channel);
        link.outbox.is_open().then(|| link.version.load(Relaxed))
    }

    /// Whether each member is known to speak this version of the protocol or a later one, those that are down included. Of
    /// each other member its last handshake with this node counts, in this process or in an earlier one: see
    /// [`Cluster::spoken`], which says who is in the way.
    ///
    /// `false`: a member speaks none so new, or that is not known; this node speaks none so new; or [`Cluster::open`] was
    /// not called yet, so the members are not known. Looks at each member, up to 64, under two locks.
    #[must_use]
    pub fn all_speak(&self, version: u16) -> bool {
        if self.members().nodes.is_empty() || version > self.shared.versions.get().newest {
            return false;
        }
        let is_confirmed = *self.shared.admitted.borrow();
        let roster = self.shared.roster.lock();
        let stamps = self.shared.stamps.lock();
        let mut others = roster.others();
        others.all(|known| {
            let started = stamps.newest_start(known.place.node);
            let spoken = known.spoken_now(started, is_confirmed);
            spoken.is_some_and(|spoken| spoken.versions.newest >= version)
        })
    }

    /// The versions of the protocol that another member speaks.
    ///
    /// `None`: it is no other member; or there was no handshake with it since its latest start that this node knows of,
    /// for that one may be of an older program; or the handshake was with an earlier process of this node, whose data
    /// folder the other members have not confirmed yet ([`Cluster::admitted`]). What the data folder keeps is forgotten
    /// by a start with [`Options::accepts_folder`]. A handshake of the last second before the end of a process may not be
    /// kept.
    #[must_use]
    pub fn spoken(&self, node: u64) -> Option<Spoken> {
        let is_confirmed = *self.shared.admitted.borrow();
        let roster = self.shared.roster.lock();
        let started = self.shared.stamps.lock().newest_start(node);
        roster.known(node)?.spoken_now(started, is_confirmed)
    }

    /// From now on this node speaks no version of the protocol before this one. A node of an older program is refused,
    /// whichever side dials and also when it joins, and both logs say which versions the two speak. Connections in an older
    /// version end; nodes that speak a newer one connect again in that. May be called before [`Cluster::open`]; for the very
    /// first handshakes, [`Options::protocol`] has the oldest version. It only rises, and is not kept: whoever relies on it
    /// says so at each start.
    ///
    /// # Errors
    /// This node speaks no version so new. Nothing changes.
    pub fn require(&self, version: u16) -> Result<(), VersionError> {
        let required = self.shared.versions.require(version);
        required.map_err(|left| VersionError { left })
    }

    /// Bytes that wait to be sent, out of [`Channel::queue_limit`].
    #[must_use]
    pub fn queued_bytes(&self, to: u64, channel: Channel) -> usize {
        let peer = self.shared.peers.get(to);
        peer.map_or(0, |peer| peer.link(channel).outbox.bytes())
    }

    /// Asks a node. The request is given to the connection at once; the future may be awaited in any
    /// executor, or dropped. `limit` is kept to a tenth of a second.
    pub fn call(
        &self,
        to: u64,
        channel: Channel,
        request: Bytes,
        limit: Duration,
    ) -> impl Future<Output = Result<Bytes, Unreachable>> + Send + use<> {
        let shared = self.shared.clone();
        let call = begin_call(&shared, to, channel, request, limit);
        async move {
            let (call, outcome) = call?;
            let _forgotten_when_dropped = Waiting { shared, call };
            // The sender is dropped only with the cluster.
            outcome.await.unwrap_or(Err(Unreachable::NotConnected))
        }
    }

    /// Milliseconds since the start of the cluster.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    /// When anything last came on a node's Data connection, in the milliseconds of [`Cluster::now_ms`]; of a
    /// node that never was heard, when it was heard of. `None`: it is no member.
    #[must_use]
    pub fn last_heard_ms(&self, from: u64) -> Option<u64> {
        let peer = self.shared.peers.get(from)?;
        Some(peer.link(Channel::Data).heard_ms.load(Relaxed))
    }

    /// The same as an atomic, for those that read it often. It stands still when the node is no member any
    /// more.
    #[must_use]
    pub fn last_heard(&self, from: u64) -> Option<Arc<std::sync::atomic::AtomicU64>> {
        let peer = self.shared.peers.get(from)?;
        Some(peer.link(Channel::Data).heard_ms.clone())
    }

    /// Tells the others what this node does.
    pub fn set_state(&self, state: State) {
        self.shared.details.lock().state = state;
        self.shared.changed.notify_one();
    }

    /// Tells the others a small fact.
    ///
    /// # Errors
    /// All facts together are longer than [`INFO_LIMIT`]; nothing is told.
    pub fn set_info(&self, key: &str, value: &str) -> Result<(), InfoError> {
        let mut details = self.shared.details.lock();
        let mut info = details.info.clone();
        info.insert(key.to_owned(), value.to_owned());
        check_info(&info)?;
        details.info = info;
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Another address, `host:port`, to look for members at while some are not in reach. The oldest of more
    /// than 64 is forgotten.
    pub fn add_seed(&self, endpoint: &str) {
        self.shared.seeds.add(endpoint);
    }

    /// Refuses a node for ever, here and, by gossip, everywhere. Returns when that is on the disk.
    ///
    /// # Errors
    /// See [`EvictError`].
    pub fn evict(&self, node: u64) -> Result<(), EvictError> {
        if node == self.shared.options.node {
            return Err(EvictError::Itself);
        }
        let evicted = self.shared.roster.lock().evict(node);
        evicted.map_err(|_| EvictError::Full)?;
        self.shared.changed.notify_one();
        self.shared.keep_record().map_err(EvictError::Record)
    }

    /// Tells the others that this node stops, gives them time to hear, and stops. What the node has acknowledged must be
    /// in its data folder by then: a copy that was made before is refused from now on.
    pub fn stop_in_order(&self) {
        self.set_state(State::Stopping);
        let gossip = 2 * self.shared.options.timings.gossip;
        let told = Instant::now() + gossip;
        confirm::tell_end(&self.shared, END);
        thread::sleep(told.saturating_duration_since(Instant::now()));
        self.stop();
    }

    /// Ends all links and the thread, and with them all calls. The handler is not called any more.
    pub fn stop(&self) {
        self.shared.stop.cancel();
        let thread = self.thread.lock().take();
        // A handler may stop the cluster.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // If it has panicked, that was reported.
            let _ = thread.join();
        }
    }

    /// The counters of all links.
    #[must_use]
    pub fn links(&self) -> Vec<LinkReading> {
        let peers = self.shared.peers.all();
        peers.iter().flat_map(|peer| peer.readings()).collect()
    }

    /// Whether neither a secret nor TLS keeps strangers out.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.shared.options.security.is_open()
    }

    /// How often connections were refused, by the name of the reason.
    #[must_use]
    pub fn refusals(&self) -> BTreeMap<&'static str, u64> {
        self.shared.refusals()
    }

    /// Gossip packets that were dropped for a wrong tag.
    #[must_use]
    pub fn gossip_dropped(&self) -> u64 {
        self.shared.gossip_dropped.load(Relaxed)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("node", &self.shared.options.node)
            .field("cluster", &self.identifier())
            .finish_non_exhaustive()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

fn check_info(info: &BTreeMap<String, String>) -> Result<(), InfoError> {
    let bytes: usize = info
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if bytes > INFO_LIMIT {
        return Err(InfoError);
    }
    Ok(())
}

/// The files of TLS, and whether the certificate is one for this node.
fn load_tls(security: &Security, host: Option<&str>) -> Result<Option<Tls>, StartError> {
    let tls = security.tls.as_ref().map(Tls::load);
    let tls = tls.transpose().map_err(StartError::Tls)?;
    if let (Some(files), Some(host)) = (&security.tls, host) {
        check_own_name(files, host).map_err(StartError::Certificate)?;
    }
    Ok(tls)
}

fn check_seeds(shared: &Shared) -> Result<(), StartError> {
    let options = &shared.options;
    let can_ask = !options.seeds.is_empty() || options.domain.is_some();
    if options.bootstrap || can_ask || shared.read_record()?.is_some() {
        return Ok(());
    }
    Err(StartError::NobodyToAsk)
}

/// Forgets a call when nobody waits for it any more.
struct Waiting {
    shared: Arc<Shared>,
    call: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.calls.forget(self.call);
    }
}

type Begun = (
    u64,
    tokio::sync::oneshot::Receiver<Result<Bytes, Unreachable>>,
);

fn begin_call(
    shared: &Shared,
    to: u64,
    channel: Channel,
    request: Bytes,
    limit: Duration,
) -> Result<Begun, Unreachable> {
    let peer = shared.peers.get(to).ok_or(Unreachable::NotConnected)?;
    // The answer comes on the connection of the other direction.
    if !peer.link(channel).has_incoming() {
        return Err(Unreachable::NotConnected);
    }
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let deadline_ms = shared.clock.now_ms().saturating_add(limit_ms);
    let (call, outcome) = shared.calls.begin(to, channel, deadline_ms)?;
    if !shared
        .peers
        .send(to, channel, Frame::request(call, request))
    {
        shared.calls.forget(call);
        return Err(Unreachable::NotConnected);
    }
    Ok((call, outcome))
}

/// The cluster's thread.
fn run(shared: &Arc<Shared>, started: &SyncSender<Result<(), StartError>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            runtime.block_on(live(shared, started));
            // What still looks up names or writes the file is not waited for.
            runtime.shutdown_background();
            shared.end();
        }
        Err(error) => {
            let _ = started.send(Err(StartError::Thread(error)));
        }
    }
}

async fn live(shared: &Arc<Shared>, started: &SyncSender<Result<(), StartError>>) {
    let sockets = match start(shared).await {
        Ok(sockets) => sockets,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(()));
    let serving = async {
        shared.opened.cancelled().await;
        serve(shared, sockets).await;
        std::future::pending::<()>().await;
    };
    shared.stop.run_until_cancelled(serving).await;
}

/// Where gossip comes in, and where the others send it.
struct GossipSocket {
    socket: UdpSocket,
    address: SocketAddr,
}

async fn start(shared: &Arc<Shared>) -> Result<GossipSocket, StartError> {
    let options = &shared.options;
    let addresses = own_addresses(options, &shared.place(), &shared.seeds.names).await?;
    let address = addresses.first().copied();
    let address = address.expect("a name that was resolved has an address");
    if !options.security.admits(address.ip()) {
        return Err(StartError::PublicHost(options.host.clone(), address.ip()));
    }
    let (listener, socket) = open(options, &addresses).await?;
    shared.seeds.set_own(addresses);
    tokio::spawn(listen::run(shared.clone(), listener));
    let is_first = join::belong(shared).await?;
    confirm::begin(shared, is_first).await?;
    Ok(GossipSocket { socket, address })
}

/// The addresses of the name that the others reach this node by. A name may come later than its node: it is waited for.
async fn own_addresses(
    options: &Options,
    place: &Place,
    names: &Names,
) -> Result<Vec<SocketAddr>, StartError> {
    let Options { host, give_up, .. } = options;
    let is_fitting = |found: &SocketAddr| {
        let listen = options.listen;
        listen.is_none_or(|listen| listen.is_ipv4() == found.is_ipv4())
    };
    let mut said: Option<Instant> = None;
    while !give_up.load(Relaxed) {
        let problem = match names.look_up(&place.address).await {
            Ok(mut found) => {
                found.retain(is_fitting);
                if !found.is_empty() {
                    return Ok(found);
                }
                "it has no address of the kind that is listened on".to_owned()
            }
            Err(error) => error.to_string(),
        };
        if said.is_none_or(|said| said.elapsed() >= PATIENCE) {
            tracing::warn!(host, problem, "waits for the address of clusterConfig.host");
            said = Some(Instant::now());
        }
        tokio::time::sleep(ROUND).await;
    }
    Err(StartError::GivenUp)
}

/// Opens the port for links and the one for gossip. On all addresses those of IPv6 are included if the name has one; a machine
/// without IPv6 listens on IPv4.
async fn open(
    options: &Options,
    own: &[SocketAddr],
) -> Result<(TcpListener, UdpSocket), StartError> {
    let any = |ip: IpAddr| SocketAddr::new(ip, options.port);
    let v4 = any(Ipv4Addr::UNSPECIFIED.into());
    let v6 = any(Ipv6Addr::UNSPECIFIED.into());
    let places = match options.listen {
        Some(listen) => vec![any(listen)],
        None if own.iter().all(SocketAddr::is_ipv4) => vec![v4],
        None if own.iter().all(SocketAddr::is_ipv6) => vec![v6],
        None => vec![v6, v4],
    };
    let mut failed = None;
    for at in places {
        let both = async {
            let listener = TcpListener::bind(at).await?;
            let socket = UdpSocket::bind(at).await?;
            io::Result::Ok((listener, socket))
        };
        match both.await {
            Ok(both) => return Ok(both),
            Err(error) => failed = Some(StartError::Listen(at, error)),
        }
    }
    Err(failed.expect("there is a place to listen on"))
}

async fn serve(shared: &Arc<Shared>, GossipSocket { socket, address }: GossipSocket) {
    let mut look = tokio::time::interval(LOOK);
    let mut admitted = shared.admitted.subscribe();
    while !*admitted.borrow_and_update() {
        // The others are out of reach, and that is told as well.
        shared.refresh();
        tokio::select! {
            // The sender lives as long as what is shared.
            _ = admitted.changed() => {}
            _ = look.tick() => {}
        }
    }
    shared.refresh();
    shared.is_serving.store(true, Relaxed);
    let gossip = match gossip::start(shared, socket, address).await {
        Ok(gossip) => Arc::new(gossip),
        Err(error) => {
            tracing::error!(error, "gossip cannot begin");
            return;
        }
    };
    tokio::spawn(upkeep::run(shared.clone(), gossip.clone()));
    tokio::spawn(upkeep::seek(shared.clone(), gossip));
    tokio::spawn(upkeep::keep(shared.clone()));
    tokio::spawn(confirm::keep(shared.clone()));
}
