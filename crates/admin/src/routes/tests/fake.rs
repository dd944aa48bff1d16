//! A broker that notes what it is asked for, and answers with what it was told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending};
use parking_lot::Mutex;
use peer_protocol::Refusal;
use store_state::api::Slot;

use crate::api::{
    AclAnswer, AclQuestion, AclRules, AclSubject, Alarm, Amount, At, Ban, BusyClient, BusyOrder,
    BusyRole, BusyTopic, Client, ClientRow, ClientState, Counts, CpuProfile, DecidedBy, DropRow,
    DropTotals, FailedLoginsRow, Gone, GroupMember, HolderRow, KnownBy, ListenerRow, Match,
    MatchCounts, MatchRequest, MemoryProfile, NewBan, NewSubscription, NodeChange, NodeRow,
    OutletDirection, OutletRow, OutletState, SessionDrops, SettingRow, ShardName, ShardRow,
    SharedGroupRow, Stats, SubscriptionChanged, SubscriptionRow, ThreadsUsage, Verdict,
    WatchedClient,
};
use crate::api::{
    Encoding, Event, EventKind, Happened, History, Message, NewMessage, NodeHistory,
    PublishedMessage, QueueOrder, QueuePurge, QueueRow, QueuedMessage, RefusedLoginsRow,
    RetainedLevelRow, RetainedRow,
};
use crate::cluster::{
    Change, ClusterStatus, NodeId, NodeState, NodeStatus, Reach, ShardStatus, StoreName, Version,
};
use crate::page::{Found, Missing, MissingReason};
use crate::problem::{Kind, Problem};
use crate::{
    ApiChange, Asked, Broker, ClientFilter, DropFilter, EventFilter, Gathered, Groups,
    LoginAttempt, LoginSession, MetricsFormat, NodeCommand, Outlets, People, Processes, Profiles,
    QueueQuestion, Range, Role, SessionQuestion, Traffic,
};

/// The only user, an operator.
#[derive(Debug)]
pub(super) struct Anna;

impl People for Anna {
    fn role(&self, user: &str) -> Option<Role> {
        match user {
            "anna" => Some(Role::Operator),
            "ben" => Some(Role::Viewer),
            _ => None,
        }
    }

    fn all(&self) -> Vec<(String, Role)> {
        vec![
            ("anna".to_owned(), Role::Operator),
            ("ben".to_owned(), Role::Viewer),
        ]
    }

    fn has_password(&self, user: &str, password: &[u8]) -> bool {
        user == "anna" && password == b"right"
    }
}

#[derive(Debug, Default)]
pub(super) struct Fake {
    pub(super) asked: Mutex<Vec<Change>>,
    refusal: Option<Refusal>,
    clients: Vec<String>,
    is_silent: bool,
    nodes_asked: AtomicUsize,
    lists_asked: AtomicUsize,
    /// Whose list was asked for last.
    pub(super) last_filter: Mutex<Option<ClientFilter>>,
    /// Why a part of a list of clients is missing.
    pub(super) lacks: Mutex<Option<MissingReason>>,
    /// Right passwords of others than Anna.
    right: Mutex<Vec<(String, String)>>,
}

impl Fake {
    pub(super) fn refusing(refusal: Refusal) -> Self {
        Self {
            refusal: Some(refusal),
            ..Self::default()
        }
    }

    pub(super) fn with_clients(clients: Vec<String>) -> Self {
        Self {
            clients,
            ..Self::default()
        }
    }

    /// One whose nodes never answer.
    pub(super) fn silent() -> Self {
        Self {
            is_silent: true,
            ..Self::default()
        }
    }

    /// The password of somebody is this from now on.
    pub(super) fn is_right(&self, user: &str, password: &str) {
        let pair = (user.to_owned(), password.to_owned());
        self.right.lock().push(pair);
    }

    pub(super) fn lists_asked(&self) -> usize {
        self.lists_asked.load(Ordering::Relaxed)
    }

    pub(super) fn nodes_asked(&self) -> usize {
        self.nodes_asked.load(Ordering::Relaxed)
    }
}

fn nothing<T>() -> Found<T> {
    Found {
        items: Vec::new(),
        last: None,
        partial: Vec::new(),
        scanned: 0,
    }
}

fn gathered<T>(all: T) -> Asked<Gathered<T>>
where
    T: Send + 'static,
{
    let partial = Vec::new();
    async move { Ok(Gathered { all, partial }) }.boxed()
}

fn row(client_id: &str) -> ClientRow {
    ClientRow {
        client_id: client_id.to_owned(),
        user: None,
        state: ClientState::Away,
        node: None,
        node_name: None,
        since: None,
        address: None,
        durable: true,
        queue_messages: Some(0),
        held: None,
    }
}

fn client(client_id: String) -> Client {
    Client {
        client_id,
        user: None,
        state: ClientState::Away,
        node: None,
        node_name: None,
        connection: None,
        session: None,
        in_flight: None,
        queue: None,
        subscriptions: None,
        will: None,
        waits_for: None,
        holds_back: Vec::new(),
        held_by: Vec::new(),
        held: None,
        last_departure: None,
        recent_drops: Vec::new(),
        as_of: At::unix_ms(0),
        partial: Vec::new(),
    }
}

fn changed(client_id: String, given_filter: String, qos: Option<u8>) -> Asked<SubscriptionChanged> {
    let changed = SubscriptionChanged {
        client_id,
        given_filter,
        qos,
        state: ClientState::Away,
        node: None,
        node_name: None,
    };
    async move { Ok(changed) }.boxed()
}

fn ban(client: Option<String>) -> Ban {
    Ban {
        id: 1,
        client,
        user: None,
        address: None,
        reason: String::new(),
        created: At::unix_ms(0),
        expires: None,
    }
}

pub(super) fn status() -> ClusterStatus {
    let [one, two] = [NodeId(1), NodeId(u64::MAX)];
    let node = |node, reach, connections: Option<u64>| NodeStatus {
        node,
        name: "a".to_owned(),
        address: "10.0.0.1:8899".to_owned(),
        state: NodeState::Up,
        reach,
        version: "0.1.0".to_owned(),
        commit: None,
        levels: None,
        incarnation: 3,
        connections,
        unusable_replicas: None,
        clock_offset_ms: connections.map(|_| -3),
    };
    ClusterStatus {
        level: None,
        damaged: Vec::new(),
        cluster: Some(NodeId(0xabc)),
        env: "Test".to_owned(),
        node: one,
        nodes: vec![node(one, Reach::Up, Some(7)), node(two, Reach::Down, None)],
        shards: vec![ShardStatus {
            store: StoreName::Inbox,
            shard: 0,
            first: Some(Slot(0)),
            last: Some(Slot(299)),
            version: Some(Version(2)),
            leader: Some(one),
            last_leader: None,
            voters: vec![one, two],
            learners: vec![],
            term: 4,
            load: None,
            split: None,
        }],
    }
}

impl Broker for Fake {
    fn readiness(&self) -> (bool, Vec<String>) {
        (true, Vec::new())
    }

    fn metrics(&self, format: MetricsFormat) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        Ok(format!("{format:?}").into_bytes())
    }

    fn cluster(&self) -> ClusterStatus {
        status()
    }

    fn members(&self) -> Vec<(NodeId, String)> {
        let members = status().nodes.into_iter();
        let members = members.map(|member| (member.node, member.name));
        members.chain([(NodeId(0x2a), "b".to_owned())]).collect()
    }

    fn change(&self, change: Change) -> Result<(), Refusal> {
        self.asked.lock().push(change);
        self.refusal.clone().map_or(Ok(()), Err)
    }

    fn nodes(&self, _: Duration) -> Asked<Gathered<Vec<NodeRow>>> {
        self.nodes_asked.fetch_add(1, Ordering::Relaxed);
        if self.is_silent {
            return pending().boxed();
        }
        let row = |member: &NodeStatus| NodeRow {
            node: member.node,
            node_name: member.name.clone(),
            address: None,
            state: member.state,
            reach: member.reach,
            version: member.version.clone(),
            incarnation: member.incarnation,
            connections: None,
            clock_offset_ms: None,
            health: None,
        };
        gathered(status().nodes.iter().map(row).collect())
    }

    fn shards(&self, _: Duration) -> Asked<Gathered<Vec<ShardRow>>> {
        let row = |shard: &ShardStatus| ShardRow {
            store: shard.store,
            shard: shard.shard,
            first_slot: None,
            last_slot: None,
            version: None,
            serves: true,
            term: 1.into(),
            leader: None,
            leader_name: None,
            voters: Vec::new(),
            learners: Vec::new(),
            holds: None,
            load: None,
            last_decision: None,
        };
        gathered(status().shards.iter().map(row).collect())
    }

    fn change_node(
        &self,
        node: NodeId,
        _: NodeCommand,
        dry_run: bool,
        _: Duration,
    ) -> Asked<NodeChange> {
        let change = NodeChange {
            node,
            node_name: "a".to_owned(),
            begun: !dry_run,
            possible: true,
            detail: None,
            clients: None,
            shards_led: 0,
            voters: 0,
        };
        async move { Ok(change) }.boxed()
    }

    fn settings(
        &self,
        _: Option<NodeId>,
        _: String,
        _: Duration,
    ) -> Asked<Gathered<Vec<SettingRow>>> {
        gathered(Vec::new())
    }

    fn stats(&self, _: Duration) -> Asked<Stats> {
        let stats = Stats {
            total: Counts::default(),
            nodes: Vec::new(),
            as_of: At::unix_ms(0),
            partial: Vec::new(),
        };
        async move { Ok(stats) }.boxed()
    }

    fn acl(&self, question: AclQuestion, _: Duration) -> Asked<AclAnswer> {
        let answer = AclAnswer {
            client_id: question.client_id,
            user: question.user,
            known_by: KnownBy::Nothing,
            connected: false,
            verdict: Verdict {
                may: true,
                by: DecidedBy::NoMatch,
                line: None,
            },
        };
        async move { Ok(answer) }.boxed()
    }

    fn acl_rules(&self, subject: AclSubject, _: Duration) -> Asked<AclRules> {
        let rules = AclRules {
            client_id: subject.client_id,
            user: subject.user,
            address: subject.address,
            known_by: KnownBy::Nothing,
            superuser: false,
            rules: Vec::new(),
            more: false,
            no_match: "allow".to_owned(),
            partial: Vec::new(),
        };
        async move { Ok(rules) }.boxed()
    }

    fn listeners(&self, _: Duration) -> Asked<Gathered<Vec<ListenerRow>>> {
        gathered(Vec::new())
    }

    fn clients(&self, filter: ClientFilter, range: Range) -> Asked<Found<ClientRow>> {
        if self.is_silent {
            self.lists_asked.fetch_add(1, Ordering::Relaxed);
            return pending().boxed();
        }
        *self.last_filter.lock() = Some(filter);
        let missing = |reason| Missing {
            node: None,
            node_name: String::new(),
            reason,
            missing: Vec::new(),
        };
        let is_behind = |id: &&String| range.after.as_ref().is_none_or(|after| *id > after);
        let rest: Vec<&String> = self.clients.iter().filter(is_behind).collect();
        let limit = usize::from(range.limit);
        let items: Vec<ClientRow> = rest.iter().take(limit).map(|id| row(id)).collect();
        let last = items.last().filter(|_| rest.len() > limit);
        let found = Found {
            last: last.map(|row| row.client_id.clone()),
            scanned: items.len() as u64,
            items,
            partial: self.lacks.lock().map(missing).into_iter().collect(),
        };
        async move { Ok(found) }.boxed()
    }

    fn client(&self, client_id: String, _: Duration) -> Asked<Client> {
        async move { Ok(client(client_id)) }.boxed()
    }

    fn end(&self, client_id: String, session: bool, _: Duration) -> Asked<Gone> {
        let gone = match client_id.as_str() {
            "nobody" => Err(Problem::new(Kind::NotFound, "there is no such client")),
            _ => Ok(Gone {
                client_id,
                node: None,
                address: None,
                disconnected: true,
                session_ended: session,
            }),
        };
        async move { gone }.boxed()
    }

    fn subscriptions(&self, _: Option<String>, _: Range) -> Asked<Found<SubscriptionRow>> {
        async { Ok(nothing()) }.boxed()
    }

    fn subscriptions_of(
        &self,
        _: String,
        _: Option<String>,
        _: Range,
    ) -> Asked<Found<SubscriptionRow>> {
        async { Ok(nothing()) }.boxed()
    }

    fn subscribe(
        &self,
        client_id: String,
        subscription: NewSubscription,
        _: Duration,
    ) -> Asked<SubscriptionChanged> {
        changed(client_id, subscription.filter, Some(subscription.qos))
    }

    fn unsubscribe(
        &self,
        client_id: String,
        filter: String,
        _: Duration,
    ) -> Asked<SubscriptionChanged> {
        changed(client_id, filter, None)
    }

    fn groups(&self) -> Arc<dyn Groups> {
        Arc::new(Idle)
    }

    fn matching(&self, request: MatchRequest, _: Duration) -> Asked<Match> {
        async move {
            Ok(Match {
                topic: request.topic,
                qos: request.qos,
                publisher: None,
                receivers: Vec::new(),
                not: Vec::new(),
                counts: MatchCounts::default(),
                counted_all: true,
                partial: Vec::new(),
            })
        }
        .boxed()
    }

    fn log_in(&self, attempt: LoginAttempt) -> Asked<Role> {
        let is_right = Anna.has_password(&attempt.user, attempt.password.as_bytes());
        let right = self.right.lock();
        let mut of_others = right.iter();
        let is_of_other = of_others
            .any(|(user, password)| *user == attempt.user && *password == *attempt.password);
        let role = match is_of_other {
            true => Some(Role::Viewer),
            false => Anna.role(&attempt.user).filter(|_| is_right),
        };
        drop(right);
        if self.is_silent {
            return pending().boxed();
        }
        async move { role.ok_or_else(|| Problem::new(Kind::LoginFailed, "it is not Anna")) }.boxed()
    }

    /// Two other nodes have one session each, of an operator, as they say.
    fn login_session(
        &self,
        node: NodeId,
        question: SessionQuestion,
        _: Duration,
    ) -> Asked<Option<LoginSession>> {
        let user = match node {
            NodeId(2) => Some("ben"),
            NodeId(4) => Some("carl"),
            _ => None,
        };
        let user = user.filter(|_| matches!(question, SessionQuestion::Find { .. }));
        let session = user.map(|user| LoginSession {
            user: user.to_owned(),
            role: Role::Operator,
            csrf_token: format!("of {user}"),
            ends_at: At::unix_ms(0),
        });
        async move { Ok(session) }.boxed()
    }

    /// One event; whoever asks for more is told that the node stops.
    fn events(&self, _: EventFilter, after: Option<String>, _: Duration) -> Asked<Happened> {
        async move {
            if after.is_some() {
                return Err(Problem::new(Kind::NotReady, "the node stops"));
            }
            Ok(Happened {
                gaps: Vec::new(),
                events: vec![Event {
                    kind: EventKind::ClientConnected,
                    at: At::unix_ms(0),
                    node: NodeId(1),
                    node_name: "a".to_owned(),
                    seq: 7.into(),
                    client_id: Some("c\n1".to_owned()),
                    user: None,
                    address: None,
                    reason: None,
                    topic: None,
                    count: None,
                    detail: None,
                    subject: None,
                }],
                position: "0000000000000001-3-8".to_owned(),
                partial: Vec::new(),
                more: true,
            })
        }
        .boxed()
    }

    fn tell_change(&self, _: &ApiChange) {}

    fn drops(&self, _: DropFilter, _: Range) -> Asked<Found<DropRow>> {
        async { Ok(nothing()) }.boxed()
    }

    fn history(&self, _: Option<u64>, _: Duration) -> Asked<History> {
        let history = History {
            step_s: 10,
            nodes: Vec::new(),
            partial: Vec::new(),
        };
        async move { Ok(history) }.boxed()
    }

    fn publish(
        &self,
        messages: Vec<NewMessage>,
        _: Duration,
    ) -> Asked<Vec<Result<PublishedMessage, Problem>>> {
        let published = messages.into_iter().map(|message| {
            Ok(PublishedMessage {
                topic: message.topic,
                reason_code: 0,
                matched: true,
                retained: message.retain.then_some(true),
            })
        });
        let published = published.collect();
        async move { Ok(published) }.boxed()
    }

    fn retained(&self, _: String, _: Range) -> Asked<Found<RetainedRow>> {
        async move { Ok(nothing()) }.boxed()
    }

    fn retained_levels(&self, _: Option<String>, _: Range) -> Asked<Found<RetainedLevelRow>> {
        async move { Ok(nothing()) }.boxed()
    }

    fn retained_message(&self, topic: String, _: Duration) -> Asked<Message> {
        let message = Message {
            topic,
            qos: 1,
            payload: Some(String::new()),
            encoding: Encoding::Utf8,
            payload_bytes: 0,
            expires_at: None,
            payload_is_utf8: false,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: Vec::new(),
        };
        async move { Ok(message) }.boxed()
    }

    fn traffic(&self) -> Arc<dyn Traffic> {
        Arc::new(Idle)
    }

    fn processes(&self) -> Processes {
        Processes {
            profiles: Arc::new(Idle),
            outlets: Arc::new(Idle),
        }
    }

    fn queues(&self, _: QueueOrder, _: usize, _: Duration) -> Asked<Gathered<Vec<QueueRow>>> {
        gathered(Vec::new())
    }

    fn queue(&self, _: QueueQuestion, _: Range) -> Asked<Found<QueuedMessage>> {
        async move { Ok(nothing()) }.boxed()
    }

    fn purge_queue(&self, _: String, _: Duration) -> Asked<QueuePurge> {
        let purge = QueuePurge {
            removed: 0,
            bytes: 0,
            complete: true,
        };
        async move { Ok(purge) }.boxed()
    }

    fn bans(&self, after: Option<u64>, limit: usize) -> (Vec<Ban>, bool) {
        let numbered = (after.unwrap_or(0) + 1..=3).map(|id| Ban {
            id,
            ..ban(Some(format!("client-{id}")))
        });
        let bans: Vec<Ban> = numbered.take(limit).collect();
        let more = bans.last().is_some_and(|ban| ban.id < 3);
        (bans, more)
    }

    fn ban(&self, wanted: NewBan) -> Asked<Ban> {
        async move { Ok(ban(wanted.client)) }.boxed()
    }

    fn unban(&self, _: u64) -> Asked<()> {
        async { Ok(()) }.boxed()
    }
}

/// Nobody is busy.
#[derive(Debug)]
struct Idle;

impl Groups for Idle {
    fn list(&self, _: Range) -> Asked<Found<SharedGroupRow>> {
        async { Ok(nothing()) }.boxed()
    }

    fn members(&self, _: String, _: Range) -> Asked<Found<GroupMember>> {
        async { Ok(nothing()) }.boxed()
    }
}

impl Outlets for Idle {
    fn list(&self, _: Duration) -> Asked<Gathered<Vec<OutletRow>>> {
        let all = vec![outlet()];
        let partial = Vec::new();
        async { Ok(Gathered { all, partial }) }.boxed()
    }

    fn pause(&self, name: String, _: bool) -> Asked<()> {
        let unknown = || Problem::new(Kind::NotFound, "the only outlet is called a");
        let known = (name == outlet().name).then_some(()).ok_or_else(unknown);
        async { known }.boxed()
    }
}

fn outlet() -> OutletRow {
    OutletRow {
        name: "a".to_owned(),
        direction: OutletDirection::Out,
        state: OutletState::Elsewhere,
        paused: None,
        node: Some(NodeId(8)),
        target: "file".to_owned(),
        place: "/var/lib/outlet".to_owned(),
        filters: vec!["a/#".to_owned()],
        dead_letter: None,
        figures: None,
    }
}

impl Profiles for Idle {
    fn cpu(
        &self,
        node: NodeId,
        lasts: Duration,
    ) -> Asked<BoxFuture<'static, Result<CpuProfile, Problem>>> {
        let profile = CpuProfile {
            node,
            node_name: "n7".to_owned(),
            version: "1".to_owned(),
            hertz: Amount(199),
            lasted_ms: Amount(lasts.as_secs() * 1_000),
            cpu_ms: Amount(0),
            samples: Amount(0),
            lost: Amount(0),
            threads: Vec::new(),
            modules: Vec::new(),
            places: Vec::new(),
            functions: None,
            stacks: Vec::new(),
        };
        async move { Ok(async move { Ok(profile) }.boxed()) }.boxed()
    }

    fn with_functions(&self, mut profile: CpuProfile) -> BoxFuture<'static, CpuProfile> {
        profile.functions = Some(Vec::new());
        async move { profile }.boxed()
    }

    fn memory(&self, node: NodeId) -> Asked<MemoryProfile> {
        let profile = MemoryProfile {
            node,
            node_name: "n7".to_owned(),
            resident_bytes: Amount(0),
            allocator: None,
            structures: Vec::new(),
        };
        async move { Ok(profile) }.boxed()
    }

    fn threads(&self, node: NodeId) -> Asked<ThreadsUsage> {
        let usage = ThreadsUsage {
            node,
            node_name: "n7".to_owned(),
            uptime_us: Amount(0),
            threads: Vec::new(),
            earlier: None,
        };
        async move { Ok(usage) }.boxed()
    }
}

impl Traffic for Idle {
    fn drop_totals(&self, _: Duration) -> Asked<Gathered<DropTotals>> {
        gathered(DropTotals::new())
    }

    fn ended_alarms(&self, _: Duration) -> Asked<Gathered<Vec<Alarm>>> {
        gathered(Vec::new())
    }

    fn session_drops(
        &self,
        _: Option<NodeId>,
        _: u16,
        _: Duration,
    ) -> Asked<Gathered<Vec<SessionDrops>>> {
        gathered(Vec::new())
    }

    fn holders(&self, _: Option<NodeId>, _: u16, _: Duration) -> Asked<Gathered<Vec<HolderRow>>> {
        gathered(Vec::new())
    }

    fn failed_logins(&self, _: Duration) -> Asked<Gathered<Vec<FailedLoginsRow>>> {
        gathered(Vec::new())
    }

    fn refused_logins(
        &self,
        _: Option<NodeId>,
        _: u16,
        _: Duration,
    ) -> Asked<Gathered<Vec<RefusedLoginsRow>>> {
        gathered(Vec::new())
    }

    fn busy_clients(
        &self,
        _: BusyRole,
        _: BusyOrder,
        _: u16,
        _: Duration,
    ) -> Asked<Gathered<Vec<BusyClient>>> {
        gathered(Vec::new())
    }

    fn watched(&self, _: String, _: Duration) -> Asked<Gathered<Vec<WatchedClient>>> {
        gathered(Vec::new())
    }

    fn busy_topics(&self, _: BusyOrder, _: u16, _: Duration) -> Asked<Gathered<Vec<BusyTopic>>> {
        gathered(Vec::new())
    }

    fn shard_history(
        &self,
        shard: ShardName,
        since_ms: Option<u64>,
        _: Duration,
    ) -> Asked<History> {
        let node = NodeHistory {
            node: NodeId(7),
            node_name: "n7".to_owned(),
            end: since_ms.map(At::unix_ms),
            series: [(format!("of {} {}", shard.store, shard.shard), Vec::new())].into(),
        };
        let history = History {
            step_s: 10,
            nodes: vec![node],
            partial: Vec::new(),
        };
        async { Ok(history) }.boxed()
    }
}
