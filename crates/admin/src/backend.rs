//! What the API asks of a broker.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use peer_protocol::Refusal;
use zeroize::Zeroizing;

use crate::api::{
    AclAnswer, AclQuestion, AclRules, AclSubject, Alarm, Ban, BusyClient, BusyOrder, BusyRole,
    BusyTopic, Client, ClientOrder, ClientRow, ClientState, CpuProfile, DropRow, DropTotals,
    EventKind, FailedLoginsRow, Gone, GroupMember, Happened, History, HolderRow, ListenerRow,
    Match, MatchRequest, MemoryProfile, Message, NewBan, NewMessage, NewSubscription, NodeChange,
    NodeRow, OutletRow, PublishedMessage, QueueOrder, QueuePurge, QueueRow, QueuedMessage,
    RefusedLoginsRow, RetainedLevelRow, RetainedRow, SessionDrops, SettingRow, ShardName, ShardRow,
    SharedGroupRow, Stats, SubscriptionChanged, SubscriptionRow, ThreadsUsage, WatchedClient,
};
use crate::cluster::{Change, ClusterStatus, NodeId};
use crate::page::{Found, Missing, Page};
use crate::problem::Problem;
use crate::rights::{LoginSession, Role, TokenHash};

/// An answer that is waited for.
pub type Asked<T> = BoxFuture<'static, Result<T, Problem>>;

/// Answers of several nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Gathered<T> {
    /// What the nodes have answered.
    pub all: T,
    /// Which have not.
    pub partial: Vec<Missing>,
}

impl<T> Gathered<Vec<T>> {
    /// All of it as one page.
    #[must_use]
    pub fn page(self) -> Page<T> {
        Page::whole(self.all, self.partial)
    }
}

/// Which part of a list is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The key behind which it begins; `None`: from the first on.
    pub after: Option<String>,
    /// The most items.
    pub limit: u16,
    /// How long the answer may take.
    pub budget: Duration,
}

/// A change of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeCommand {
    /// Send its clients elsewhere and give up leading shards.
    Drain,
    /// Serve clients again.
    EndDrain,
    /// Leave the cluster permanently.
    Leave,
    /// Be removed from the cluster permanently, by the others.
    Evict {
        /// Also if shards lose their majority by it.
        force: bool,
    },
}

/// Which clients are asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientFilter {
    /// What their identifiers begin with.
    pub prefix: Option<String>,
    /// Their user; looks at each.
    pub user: Option<String>,
    /// The address of their connection, without the port; looks at each.
    pub address: Option<String>,
    /// The node that they are connected to.
    pub node: Option<NodeId>,
    /// Where in their life they are.
    pub state: Option<ClientState>,
    /// Whether their sessions are in the stores; looks at each.
    pub durable: Option<bool>,
    /// In which order.
    pub order: ClientOrder,
}

/// Which drops are asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DropFilter {
    /// Why they were dropped.
    pub reason: Option<String>,
    /// Of which client.
    pub client: Option<String>,
    /// The topic filter that their topics match.
    pub topic: Option<String>,
    /// Not before, in ms of Unix time.
    pub since_ms: Option<u64>,
    /// On which node.
    pub node: Option<NodeId>,
}

/// Which events are asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    /// Of these kinds; none: of all.
    pub kinds: Vec<EventKind>,
    /// What concerns this client.
    pub client_id: Option<String>,
    /// What concerns clients whose identifiers begin so.
    pub prefix: Option<String>,
    /// What concerns topics that this filter matches.
    pub topic: Option<String>,
    /// What happens on this node.
    pub node: Option<NodeId>,
    /// Where the events of a node begin that the position does not name, in ms of Unix time; `None`: with the next event.
    pub since_ms: Option<u64>,
}

/// A change by HTTP that was carried out or has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiChange {
    /// The user, or what the key is called.
    pub user: String,
    /// Where the request came from.
    pub peer: Option<SocketAddr>,
    /// The method of the request.
    pub method: String,
    /// The path of the request.
    pub path: String,
    /// What it acted on, if the path does not say.
    pub target: Option<String>,
}

/// Somebody wants to log in.
pub struct LoginAttempt {
    /// As whom.
    pub user: String,
    /// What is to prove it.
    pub password: Zeroizing<String>,
    /// Where the request came from.
    pub peer: Option<SocketAddr>,
}

impl fmt::Debug for LoginAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginAttempt")
            .field("user", &self.user)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// What is asked of the node where a session began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionQuestion {
    /// Whether it goes on.
    Find {
        /// Which.
        hash: TokenHash,
        /// It is used now.
        is_use: bool,
    },
    /// Its end.
    End {
        /// Which.
        hash: TokenHash,
    },
}

/// Whose queue is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueQuestion {
    /// The client identifier.
    pub client_id: String,
    /// With payloads.
    pub payloads: bool,
}

/// How metrics are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricsFormat {
    /// The text format, version 0.0.4.
    Text,
    /// `io.prometheus.client.MetricFamily`, each with its length before it: with native histograms.
    Protobuf,
}

/// A broker, as the API sees it. Methods without a future do not wait for anything but short locks.
pub trait Broker: fmt::Debug + Send + Sync + 'static {
    /// Whether clients are served; what is wrong meanwhile, a line each.
    fn readiness(&self) -> (bool, Vec<String>);

    /// The metrics in a format of Prometheus.
    ///
    /// # Errors
    /// They cannot be written.
    fn metrics(&self, format: MetricsFormat) -> Result<Vec<u8>, Box<dyn Error>>;

    /// The cluster as this node sees it.
    fn cluster(&self) -> ClusterStatus;

    /// The members with their names, as this node knows them; a node that runs alone is the only one.
    fn members(&self) -> Vec<(NodeId, String)>;

    /// Begins a change of the cluster, on a thread that may wait, and returns within 5 s. What takes longer, such as
    /// draining, has then begun; [`Broker::cluster`] shows how far it is.
    ///
    /// # Errors
    /// Why nothing was changed.
    fn change(&self, change: Change) -> Result<(), Refusal>;

    /// The nodes, each with what it says of itself.
    fn nodes(&self, budget: Duration) -> Asked<Gathered<Vec<NodeRow>>>;

    /// Begins a change of one node, or says what it would mean if `dry_run`.
    fn change_node(
        &self,
        node: NodeId,
        command: NodeCommand,
        dry_run: bool,
        budget: Duration,
    ) -> Asked<NodeChange>;

    /// What a node is configured with, this one if none is named, and where it is otherwise on others. The keys begin with
    /// `prefix`.
    fn settings(
        &self,
        node: Option<NodeId>,
        prefix: String,
        budget: Duration,
    ) -> Asked<Gathered<Vec<SettingRow>>>;

    /// Counts of all nodes.
    fn stats(&self, budget: Duration) -> Asked<Stats>;

    /// What each node has counted in the last hour. `since_ms`: only samples that ended later.
    fn history(&self, since_ms: Option<u64>, budget: Duration) -> Asked<History>;

    /// Whether a client may do something.
    fn acl(&self, question: AclQuestion, budget: Duration) -> Asked<AclAnswer>;

    /// The rules of this node that concern a client.
    fn acl_rules(&self, subject: AclSubject, budget: Duration) -> Asked<AclRules>;

    /// The cluster with what the leaders of all shards say of them.
    fn shards(&self, budget: Duration) -> Asked<Gathered<Vec<ShardRow>>>;

    /// The listeners of all nodes.
    fn listeners(&self, budget: Duration) -> Asked<Gathered<Vec<ListenerRow>>>;

    /// Clients in the order of their identifiers, or as the filter says.
    fn clients(&self, filter: ClientFilter, range: Range) -> Asked<Found<ClientRow>>;

    /// One client.
    fn client(&self, client_id: String, budget: Duration) -> Asked<Client>;

    /// Ends the connection of a client, and its session too if `session`.
    fn end(&self, client_id: String, session: bool, budget: Duration) -> Asked<Gone>;

    /// Subscriptions in the order of clients and then filters; the key of a row is both.
    fn subscriptions(&self, prefix: Option<String>, range: Range) -> Asked<Found<SubscriptionRow>>;

    /// The subscriptions of one client in the order of their filters as they were given at SUBSCRIBE.
    fn subscriptions_of(
        &self,
        client_id: String,
        prefix: Option<String>,
        range: Range,
    ) -> Asked<Found<SubscriptionRow>>;

    /// Makes a subscription for a client, which may be away, or replaces it; by the client's rules and limits. Answered when
    /// it is in force, and in the store if the session is.
    fn subscribe(
        &self,
        client_id: String,
        subscription: NewSubscription,
        budget: Duration,
    ) -> Asked<SubscriptionChanged>;

    /// Removes the subscription of a client with this filter, as it was given at SUBSCRIBE.
    fn unsubscribe(
        &self,
        client_id: String,
        filter: String,
        budget: Duration,
    ) -> Asked<SubscriptionChanged>;

    /// What it knows of shared groups.
    fn groups(&self) -> Arc<dyn Groups>;

    /// Who would get a message.
    fn matching(&self, request: MatchRequest, budget: Duration) -> Asked<Match>;

    /// Publishes messages, those of one topic in their order. There is a result for each.
    fn publish(
        &self,
        messages: Vec<NewMessage>,
        budget: Duration,
    ) -> Asked<Vec<Result<PublishedMessage, Problem>>>;

    /// Retained messages whose topics a filter matches, in the order of topics. The key is a place in that order.
    fn retained(&self, filter: String, range: Range) -> Asked<Found<RetainedRow>>;

    /// The levels below a topic, or the first ones, that have retained messages or whose levels below have.
    fn retained_levels(
        &self,
        below: Option<String>,
        range: Range,
    ) -> Asked<Found<RetainedLevelRow>>;

    /// The retained message of a topic.
    fn retained_message(&self, topic: String, budget: Duration) -> Asked<Message>;

    /// The first queues in an order.
    fn queues(
        &self,
        by: QueueOrder,
        limit: usize,
        budget: Duration,
    ) -> Asked<Gathered<Vec<QueueRow>>>;

    /// Who is busy.
    fn traffic(&self) -> Arc<dyn Traffic>;

    /// What it knows of its own process, and of those of its outlets.
    fn processes(&self) -> Processes;

    /// What waits for a durable session, the oldest first. The key is a sequence.
    fn queue(&self, question: QueueQuestion, range: Range) -> Asked<Found<QueuedMessage>>;

    /// Drops what waits for a durable session, and cannot have been sent.
    fn purge_queue(&self, client_id: String, budget: Duration) -> Asked<QueuePurge>;

    /// The role of a user, if the password is right and the address has not failed too often.
    fn log_in(&self, attempt: LoginAttempt) -> Asked<Role>;

    /// Asks the node where a session began, if it is another one.
    fn login_session(
        &self,
        node: NodeId,
        question: SessionQuestion,
        budget: Duration,
    ) -> Asked<Option<LoginSession>>;

    /// What has happened on all nodes since a position, or where to begin if there is none.
    fn events(
        &self,
        filter: EventFilter,
        after: Option<String>,
        budget: Duration,
    ) -> Asked<Happened>;

    /// Tells those who watch that somebody has changed something by HTTP.
    fn tell_change(&self, change: &ApiChange);

    /// Dropped messages, the latest first. The key of a row is its place.
    fn drops(&self, filter: DropFilter, range: Range) -> Asked<Found<DropRow>>;

    /// The first `limit` bans behind the one with this number, as this node has them, and whether more follow.
    fn bans(&self, after: Option<u64>, limit: usize) -> (Vec<Ban>, bool);

    /// Adds a ban.
    fn ban(&self, ban: NewBan) -> Asked<Ban>;

    /// Takes a ban back.
    fn unban(&self, id: u64) -> Asked<()>;
}

/// What a broker knows of shared groups.
pub trait Groups: fmt::Debug + Send + Sync + 'static {
    /// Shared groups in the order of their filters as they are given at SUBSCRIBE.
    fn list(&self, range: Range) -> Asked<Found<SharedGroupRow>>;

    /// Members of the shared group that a filter, as it is given at SUBSCRIBE, makes sessions members of. Durable ones come first, in the
    /// order of client identifiers; then the others, by node.
    fn members(&self, filter: String, range: Range) -> Asked<Found<GroupMember>>;
}

/// What a broker knows of its own process, and of those of its outlets.
#[derive(Clone, Debug)]
pub struct Processes {
    /// What goes on inside the process of a node.
    pub profiles: Arc<dyn Profiles>,
    /// What takes messages to other systems.
    pub outlets: Arc<dyn Outlets>,
}

/// What a broker knows of its outlets.
pub trait Outlets: fmt::Debug + Send + Sync + 'static {
    /// All of them, by name, with what the nodes that run them say.
    fn list(&self, budget: Duration) -> Asked<Gathered<Vec<OutletRow>>>;

    /// Pauses one, or ends its pause. The problem says that there is none of this name, or that the pause could not be kept.
    fn pause(&self, name: String, is_paused: bool) -> Asked<()>;
}

/// What a broker says of its own process.
pub trait Profiles: fmt::Debug + Send + Sync + 'static {
    /// Begins to sample where the CPU time of a node's process goes. What it gives is the profile, when the time is over, or why another
    /// node did not send it; whoever drops it ends the profile.
    ///
    /// The problem says that a profile of the node is under way, that its version answers for itself only, or that it does not answer.
    fn cpu(
        &self,
        node: NodeId,
        lasts: Duration,
    ) -> Asked<BoxFuture<'static, Result<CpuProfile, Problem>>>;

    /// Names the functions of a profile by the symbols that the machine of this node has. Without symbols of the profile's build it
    /// stays as it is.
    fn with_functions(&self, profile: CpuProfile) -> BoxFuture<'static, CpuProfile>;

    /// What the threads of a node have used since they started. The problem says why another node does not answer.
    fn threads(&self, node: NodeId) -> Asked<ThreadsUsage>;

    /// What takes the memory of a node. The problem says that it counts already, or why another node does not answer.
    fn memory(&self, node: NodeId) -> Asked<MemoryProfile>;
}

/// What a broker knows of who is busy, or tries to be.
pub trait Traffic: fmt::Debug + Send + Sync + 'static {
    /// The clients that publish most, or are sent most or latest.
    fn busy_clients(
        &self,
        role: BusyRole,
        by: BusyOrder,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<BusyClient>>>;

    /// What each node counts of a client, which is watched for some seconds from now on.
    fn watched(&self, client_id: String, budget: Duration) -> Asked<Gathered<Vec<WatchedClient>>>;

    /// The topics that most is published to.
    fn busy_topics(
        &self,
        by: BusyOrder,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<BusyTopic>>>;

    /// Alarms that have ended, those that have ended last first.
    fn ended_alarms(&self, budget: Duration) -> Asked<Gathered<Vec<Alarm>>>;

    /// How many messages were dropped, by reason, on all nodes.
    fn drop_totals(&self, budget: Duration) -> Asked<Gathered<DropTotals>>;

    /// What sessions have lost on a node or on all, those first that have lost something last.
    fn session_drops(
        &self,
        node: Option<NodeId>,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<SessionDrops>>>;

    /// Who has held whom back on a node or on all, the latest first.
    fn holders(
        &self,
        node: Option<NodeId>,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<HolderRow>>>;

    /// Who fails to log in, those that failed most first.
    fn failed_logins(&self, budget: Duration) -> Asked<Gathered<Vec<FailedLoginsRow>>>;

    /// Who was not let in on a node or on all, and why, the latest first.
    fn refused_logins(
        &self,
        node: Option<NodeId>,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<RefusedLoginsRow>>>;

    /// What a shard has cost each node while it led it, in the last hour.
    fn shard_history(
        &self,
        shard: ShardName,
        since_ms: Option<u64>,
        budget: Duration,
    ) -> Asked<History>;
}
