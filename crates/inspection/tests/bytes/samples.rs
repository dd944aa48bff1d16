//! A sample of each question and each answer.

use std::collections::BTreeMap;

use inspection::*;

fn split() -> SplitStatus {
    SplitStatus {
        decision: text("split"),
        reason: text("the load is high"),
        names: vec![text("dev-1")],
        seconds: 30,
    }
}

fn least_split() -> SplitStatus {
    SplitStatus {
        names: Vec::new(),
        ..split()
    }
}

fn load() -> LoadStatus {
    LoadStatus {
        propose_us: 1,
        apply_us: 2,
        read_us: 3,
        requests: 4,
        wait_us: 5,
        log_bytes: 6,
        half: Some(HalfStatus {
            slot: 32_768,
            below: 48,
        }),
    }
}

fn least_load() -> LoadStatus {
    LoadStatus {
        half: None,
        ..load()
    }
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn range() -> PlaceRange {
    PlaceRange {
        after: some("a/b"),
        limit: Limit(101),
    }
}

fn hash() -> TokenHash {
    TokenHash(text("q83vEjRWeJA"))
}

/// Each question: with a value in each field, and with as little as there can be.
pub(super) fn questions() -> Vec<(&'static str, Question)> {
    let messages = Question::Messages;
    let profile = |question| messages(MessagesQuestion::Profile(question));
    vec![
        ("health", Question::Health),
        ("shards", Question::Shards),
        ("listeners", Question::Listeners),
        (
            "clients",
            Question::Clients(ClientsQuestion {
                prefix: text("dev"),
                after: some("dev-1"),
                limit: 101,
                user: some("ann"),
                address: some("10.0.0.1"),
                node: Some(NodeId(0x2a)),
                state: Some(ClientState::Connecting),
                durable: Some(true),
                longest_held: true,
            }),
        ),
        (
            "clients.least",
            Question::Clients(ClientsQuestion::default()),
        ),
        (
            "client",
            Question::Client {
                client_id: text("dev-1"),
            },
        ),
        (
            "queues",
            Question::Queues {
                client_ids: vec![text("dev-1"), text("dev-2")],
            },
        ),
        (
            "queues.least",
            Question::Queues {
                client_ids: Vec::new(),
            },
        ),
        (
            "end",
            Question::End {
                client_id: text("dev-1"),
                session: true,
            },
        ),
        (
            "change_subscription.subscribe",
            Question::ChangeSubscription(ChangeQuestion {
                client_id: text("dev-1"),
                knows_session: true,
                user: some("ann"),
                change: AskedChange::Subscribe(NewSubscription {
                    filter: text("$share/g/a/+"),
                    qos: 2,
                    no_local: true,
                    retain_as_published: true,
                    retain_handling: 2,
                    identifier: Some(7),
                }),
            }),
        ),
        (
            "change_subscription.unsubscribe",
            Question::ChangeSubscription(ChangeQuestion {
                client_id: text("dev-1"),
                knows_session: false,
                user: None,
                change: AskedChange::Unsubscribe {
                    filter: text("a/#"),
                },
            }),
        ),
        (
            "subscriptions_of",
            Question::SubscriptionsOf {
                client_id: text("dev-1"),
                after: text("a/#"),
                limit: 100,
            },
        ),
        (
            "shared_groups",
            Question::SharedGroups {
                after: text("$share/g/a"),
                limit: 100,
            },
        ),
        (
            "match",
            Question::Match {
                topic: text("a/b"),
                qos: 1,
                publisher: some("dev-1"),
                limit: 100,
            },
        ),
        (
            "match.least",
            Question::Match {
                topic: text("a"),
                qos: 0,
                publisher: None,
                limit: 1,
            },
        ),
        (
            "drops",
            Question::Drops(DropsQuestion {
                limit: 101,
                before: some("fffffe5"),
                reason: some("queue_full"),
                client: some("dev-1"),
                topic: some("a/#"),
                since_ms: Some(1_764_000_000_120),
            }),
        ),
        ("drops.least", Question::Drops(DropsQuestion::default())),
        ("drop_totals", Question::DropTotals),
        (
            "settings",
            Question::Settings {
                prefix: text("limits."),
            },
        ),
        ("stats", Question::Stats),
        (
            "history",
            Question::History {
                since_ms: Some(UnixMs(1_764_000_000_120)),
            },
        ),
        ("history.least", Question::History { since_ms: None }),
        (
            "shard_history",
            Question::ShardHistory {
                shard: ShardName {
                    store: StoreName::Retain,
                    shard: 21_846,
                },
                since_ms: Some(UnixMs(1_764_000_000_120)),
            },
        ),
        (
            "shard_history.least",
            Question::ShardHistory {
                shard: ShardName {
                    store: StoreName::Session,
                    shard: 0,
                },
                since_ms: None,
            },
        ),
        (
            "events",
            Question::Events(EventsQuestion {
                after: Some(Place(7, 9)),
                since_ms: Some(UnixMs(1_764_000_000_120)),
                kinds: all_kinds(),
                client_id: some("dev-1"),
                prefix: some("dev"),
                topic: some("a/#"),
            }),
        ),
        (
            "events.least",
            Question::Events(EventsQuestion {
                after: None,
                since_ms: None,
                kinds: Vec::new(),
                client_id: None,
                prefix: None,
                topic: None,
            }),
        ),
        (
            "messages.retained",
            messages(MessagesQuestion::Retained {
                filter: text("a/#"),
                range: range(),
            }),
        ),
        (
            "messages.levels",
            messages(MessagesQuestion::Levels {
                below: some("a"),
                range: range(),
            }),
        ),
        (
            "messages.levels.least",
            messages(MessagesQuestion::Levels {
                below: None,
                range: PlaceRange {
                    after: None,
                    limit: Limit(1),
                },
            }),
        ),
        (
            "messages.message",
            messages(MessagesQuestion::Message { topic: text("a/b") }),
        ),
        (
            "messages.first_queues.messages",
            messages(MessagesQuestion::FirstQueues {
                by: QueueOrder::Messages,
                limit: Limit(10),
            }),
        ),
        (
            "messages.first_queues.bytes",
            messages(MessagesQuestion::FirstQueues {
                by: QueueOrder::Bytes,
                limit: Limit(10),
            }),
        ),
        (
            "messages.first_queues.age",
            messages(MessagesQuestion::FirstQueues {
                by: QueueOrder::Age,
                limit: Limit(10),
            }),
        ),
        (
            "messages.waiting",
            messages(MessagesQuestion::Waiting(WaitingQuestion {
                client_id: text("dev-1"),
                from: Sequence(9_007_199_254_740_993),
                limit: Limit(100),
                payloads: true,
            })),
        ),
        (
            "messages.purge",
            messages(MessagesQuestion::Purge {
                client_id: text("dev-1"),
            }),
        ),
        (
            "messages.busy_clients.publisher",
            messages(MessagesQuestion::BusyClients {
                role: BusyRole::Publisher,
                by: BusyOrder::Bytes,
                limit: Limit(10),
            }),
        ),
        (
            "messages.busy_clients.subscriber",
            messages(MessagesQuestion::BusyClients {
                role: BusyRole::Subscriber,
                by: BusyOrder::Delay,
                limit: Limit(10),
            }),
        ),
        (
            "messages.busy_topics",
            messages(MessagesQuestion::BusyTopics {
                by: BusyOrder::Messages,
                limit: Limit(256),
            }),
        ),
        (
            "messages.watch",
            messages(MessagesQuestion::Watch {
                client_id: text("dev-1"),
            }),
        ),
        (
            "messages.failed_logins",
            messages(MessagesQuestion::FailedLogins),
        ),
        (
            "messages.refused_logins",
            messages(MessagesQuestion::RefusedLogins { limit: Limit(100) }),
        ),
        (
            "messages.ended_alarms",
            messages(MessagesQuestion::EndedAlarms),
        ),
        (
            "messages.session_drops",
            messages(MessagesQuestion::SessionDrops { limit: Limit(20) }),
        ),
        (
            "messages.holders",
            messages(MessagesQuestion::Holders { limit: Limit(20) }),
        ),
        (
            "messages.members",
            messages(MessagesQuestion::Members(MembersQuestion {
                filter: text("$share/g/a/+"),
                after: some("ddev-1"),
                limit: Limit(100),
            })),
        ),
        (
            "api_session.find",
            Question::ApiSession(SessionQuestion::Find {
                hash: hash(),
                is_use: true,
            }),
        ),
        (
            "api_session.end",
            Question::ApiSession(SessionQuestion::End { hash: hash() }),
        ),
        (
            "acl",
            Question::Acl(AclQuestion {
                client_id: text("dev-1"),
                action: text("publish"),
                topic: text("a/b"),
                user: some("ann"),
                address: some("10.0.0.1"),
            }),
        ),
        (
            "acl.least",
            Question::Acl(AclQuestion {
                client_id: text("dev-1"),
                action: text("receive"),
                topic: text("a"),
                user: None,
                address: None,
            }),
        ),
        ("change.drain", Question::Change(NodeCommand::Drain)),
        ("change.end_drain", Question::Change(NodeCommand::EndDrain)),
        ("change.leave", Question::Change(NodeCommand::Leave)),
        (
            "change.evict",
            Question::Change(NodeCommand::Evict { force: true }),
        ),
        ("messages.outlets", messages(MessagesQuestion::Outlets)),
        (
            "messages.profile_threads",
            profile(ProfileQuestion::Threads),
        ),
        ("messages.profile_memory", profile(ProfileQuestion::Memory)),
        (
            "messages.profile_begin_cpu",
            profile(ProfileQuestion::BeginCpu { seconds: 10 }),
        ),
        (
            "messages.profile_cpu",
            profile(ProfileQuestion::Cpu {
                profile: Amount(7),
                from: Amount(524_288),
            }),
        ),
    ]
}

fn all_kinds() -> Vec<EventKind> {
    vec![
        EventKind::ClientConnected,
        EventKind::ClientDisconnected,
        EventKind::ClientRefused,
        EventKind::MessageDropped,
        EventKind::AlarmRaised,
        EventKind::AlarmCleared,
        EventKind::NodeState,
        EventKind::ShardLeader,
        EventKind::ShardSplit,
        EventKind::ShardMoved,
        EventKind::RightDenied,
        EventKind::ApiChange,
        EventKind::SubscriptionAdded,
        EventKind::SubscriptionRemoved,
        EventKind::SessionBegun,
        EventKind::SessionEnded,
        EventKind::Other,
    ]
}

fn at() -> At {
    At::unix_ms(1_764_000_000_120)
}

fn node() -> NodeId {
    NodeId(0x5f3a_90c2_d1e4_b867)
}

fn held(reason: HeldReason) -> PublisherHold {
    PublisherHold {
        reason,
        option: some("limits.connection.bytesPerSecondIn"),
        limit: Some(524_288),
        subscriber: some("dev-4"),
        since: Some(at()),
        share_percent: 62.5,
    }
}

fn client_row(state: ClientState) -> ClientRow {
    ClientRow {
        client_id: text("dev-1"),
        user: some("ann"),
        state,
        node: Some(node()),
        node_name: some("n1"),
        since: Some(at()),
        address: some("10.0.0.1:5000"),
        durable: true,
        queue_messages: Some(3),
        held: Some(held(HeldReason::BytesPerSecond)),
    }
}

fn queue() -> Queue {
    Queue {
        messages: 3,
        bytes: 300,
        limit_messages: Some(1_000),
        limit_bytes: Some(1_000_000),
        full: some("drop_oldest"),
        oldest_at: Some(at()),
    }
}

fn subscription() -> SubscriptionRow {
    SubscriptionRow {
        filter: text("a/+"),
        given_filter: text("$share/g/a/+"),
        client_id: text("dev-1"),
        shared: some("g"),
        qos: 2,
        no_local: true,
        retain_as_published: true,
        identifier: Some(7),
        node: Some(node()),
        node_name: some("n1"),
    }
}

fn departure() -> Departure {
    Departure {
        at: at(),
        node: node(),
        node_name: text("n1"),
        reason: text("DISCONNECT"),
        address: some("10.0.0.1:5000"),
    }
}

fn recent_drop() -> RecentDrop {
    RecentDrop {
        at: at(),
        topic: text("a/b"),
        reason: text("queue_full"),
    }
}

fn missing() -> Vec<Missing> {
    let reasons = [
        MissingReason::Down,
        MissingReason::Timeout,
        MissingReason::Busy,
        MissingReason::Version,
        MissingReason::Failed,
        MissingReason::NoLeader,
    ];
    let row = |reason| Missing {
        node: Some(node()),
        node_name: text("n1"),
        reason,
        missing: vec![text("client")],
    };
    reasons.into_iter().map(row).collect()
}

fn client(waits_for: WaitsFor) -> Client {
    Client {
        client_id: text("dev-1"),
        user: some("ann"),
        state: ClientState::Connected,
        node: Some(node()),
        node_name: some("n1"),
        connection: Some(Connection {
            address: text("10.0.0.1:5000"),
            listener: some("tls"),
            version: text("5.0"),
            keep_alive_s: 60,
            connected_at: at(),
            receive_maximum: 100,
            maximum_packet_bytes: Some(1_048_576),
            write_blocked: true,
        }),
        session: Some(Session {
            durable: true,
            expiry_s: Some(3_600),
            ends_at: Some(at()),
            since: Some(at()),
            shard: Some(21_846),
            class: some("device"),
            epoch: Some(BigNumber::from(9_007_199_254_740_993)),
        }),
        in_flight: Some(2),
        waits_for: Some(waits_for),
        queue: Some(queue()),
        subscriptions: Some(SubscriptionsOf {
            count: 1,
            first: vec![subscription()],
        }),
        will: Some(WillOf {
            topic: text("gone"),
            qos: 1,
            retain: true,
            delay_s: 5,
        }),
        holds_back: vec![text("dev-2")],
        held_by: vec![text("dev-3")],
        held: Some(held(HeldReason::SubscriberQueue)),
        last_departure: Some(departure()),
        recent_drops: vec![recent_drop()],
        as_of: at(),
        partial: missing(),
    }
}

fn least_client() -> Client {
    Client {
        client_id: text("dev-1"),
        user: None,
        state: ClientState::Away,
        node: None,
        node_name: None,
        connection: None,
        session: None,
        in_flight: None,
        waits_for: None,
        queue: None,
        subscriptions: None,
        will: None,
        holds_back: Vec::new(),
        held_by: Vec::new(),
        held: None,
        last_departure: None,
        recent_drops: Vec::new(),
        as_of: at(),
        partial: Vec::new(),
    }
}

fn verdict(by: DecidedBy) -> Verdict {
    Verdict {
        may: true,
        by,
        line: Some(12),
    }
}

fn receiver(outcome: Outcome) -> Receiver {
    Receiver {
        client_id: some("dev-1"),
        group: some("$share/g/a/+"),
        filter: text("a/+"),
        qos: 1,
        node: Some(node()),
        node_name: some("n1"),
        state: Some(ClientState::Closing),
        outcome,
        reason: some("queue_full"),
        detail: some("10 of 10 messages wait"),
        rule: Some(verdict(DecidedBy::File)),
        members: Some(2),
    }
}

fn event(kind: EventKind, state: Option<SubjectState>) -> Event {
    Event {
        kind,
        at: at(),
        node: node(),
        node_name: text("n1"),
        seq: BigNumber::from(9_007_199_254_740_993),
        client_id: some("dev-1"),
        user: some("ann"),
        address: some("10.0.0.1:5000"),
        reason: some("DISCONNECT"),
        topic: some("a/b"),
        count: Some(2),
        detail: some("for people"),
        subject: state.map(|state| EventSubject {
            node: NodeId(0x2a),
            node_name: text("n2"),
            state,
        }),
    }
}

fn message(encoding: Encoding) -> Message {
    Message {
        topic: text("a/b"),
        qos: 1,
        payload: some("on"),
        encoding,
        payload_bytes: 2,
        expires_at: Some(at()),
        payload_is_utf8: true,
        content_type: some("text/plain"),
        response_topic: some("r"),
        correlation_data: some("AQI="),
        user_properties: vec![UserProperty {
            name: text("k"),
            value: text("v"),
        }],
    }
}

fn rates() -> BusyRates {
    BusyRates {
        messages_per_s: 12.5,
        bytes_per_s: 1_000.0,
        uncounted_per_s: 0.2,
    }
}

fn inbox() -> InboxPart {
    InboxPart {
        shard: 21_846,
        queue: queue(),
        subscriptions: 1,
        first: vec![subscription()],
        class: some("device"),
    }
}

fn record() -> RecordPart {
    RecordPart {
        node: Some(node()),
        user: some("ann"),
        since_ms: 1_764_000_000_120,
        expiry_s: 3_600,
        epoch: 9_007_199_254_740_993,
        durable: true,
    }
}

/// Answers but those about messages, as [`questions`].
fn answers_about_nodes() -> Vec<(&'static str, Answer)> {
    vec![
        (
            "health",
            Answer::Health(Box::new(NodeHealth {
                ready: true,
                uptime_s: 3_600,
                cpu_s: 12.25,
                cores: 4,
                memory_bytes: Some(1_000_000),
                disk_free_bytes: Some(2_000_000),
                sessions: 5,
                shards_led: 6,
                dropped: 7,
                drain: Some(DrainProgress {
                    clients_left: 8,
                    shards_left: 9,
                }),
                alarms: vec![Alarm {
                    name: text("memory"),
                    node: node(),
                    node_name: text("n1"),
                    subject: text("inbox 0"),
                    detail: text("memory is scarce"),
                    since: Some(at()),
                    until: None,
                }],
            })),
        ),
        (
            "health.least",
            Answer::Health(Box::new(NodeHealth {
                ready: false,
                uptime_s: 0,
                cpu_s: 0.0,
                cores: 1,
                memory_bytes: None,
                disk_free_bytes: None,
                sessions: 0,
                shards_led: 0,
                dropped: 0,
                drain: None,
                alarms: Vec::new(),
            })),
        ),
        (
            "shards",
            Answer::Shards(vec![
                LedShard {
                    store: StoreName::Inbox,
                    shard: 21_846,
                    content: ShardHolds {
                        sessions: Some(1),
                        messages: Some(2),
                        bytes: Some(3),
                    },
                    decision: Some(split()),
                    load: Some(load()),
                },
                LedShard {
                    store: StoreName::Session,
                    shard: 0,
                    content: ShardHolds {
                        sessions: None,
                        messages: None,
                        bytes: None,
                    },
                    decision: Some(least_split()),
                    load: Some(least_load()),
                },
                LedShard {
                    store: StoreName::Retain,
                    shard: 0,
                    content: ShardHolds {
                        sessions: None,
                        messages: None,
                        bytes: None,
                    },
                    decision: None,
                    load: None,
                },
            ]),
        ),
        ("shards.least", Answer::Shards(Vec::new())),
        (
            "listeners",
            Answer::Listeners(vec![
                ListenerRow {
                    node: node(),
                    node_name: text("n1"),
                    kind: text("tls"),
                    address: text("0.0.0.0:8883"),
                    connections: Some(1),
                    accepted: Some(2),
                    refused: Some(3),
                    failed_handshakes: Some(4),
                    certificate: Some(ListenerCertificate {
                        subject: text("CN=a"),
                        issuer: text("CN=b"),
                        names: vec![text("a.example")],
                        not_before: at(),
                        not_after: at(),
                    }),
                },
                ListenerRow {
                    node: node(),
                    node_name: text("n1"),
                    kind: text("tcp"),
                    address: text("0.0.0.0:1883"),
                    connections: None,
                    accepted: None,
                    refused: None,
                    failed_handshakes: None,
                    certificate: None,
                },
            ]),
        ),
        (
            "settings",
            Answer::Settings(vec![
                SettingPart {
                    key: text("limits.session.queueMessages"),
                    live: true,
                    setting: Setting {
                        value: some("1000"),
                        origin: text("file"),
                        place: some("/etc/heraldmq.yaml:3"),
                        at_restart: some("2000"),
                    },
                },
                SettingPart {
                    key: text("http.userFile"),
                    live: false,
                    setting: Setting {
                        value: None,
                        origin: text("default"),
                        place: None,
                        at_restart: None,
                    },
                },
            ]),
        ),
        (
            "stats",
            Answer::Stats(Box::new(Counts {
                connections: 1,
                sessions: 2,
                subscriptions: 3,
                retained_messages: 4,
                queued_messages: 5,
                queued_bytes: 6,
                messages_in: 7,
                messages_out: 8,
                bytes_in: 9,
                bytes_out: 10,
                connects: 11,
                connects_refused: 12,
                dropped: 13,
                unmatched: 14,
                retained_expired: 15,
                retained_removed: 16,
            })),
        ),
        (
            "history",
            Answer::History(HistoryPart {
                end_ms: Some(UnixMs(1_764_000_000_120)),
                series: [(text("connections"), vec![None, Some(1.5), Some(2.0)])].into(),
            }),
        ),
        ("history.least", Answer::History(HistoryPart::default())),
        (
            "events",
            Answer::Events(EventsPart {
                events: all_kinds()
                    .into_iter()
                    .map(|kind| event(kind, Some(SubjectState::Up)))
                    .collect(),
                next: Place(7, 9),
                missed: Some(Missed::Some(3)),
                more: true,
            }),
        ),
        (
            "events.subjects",
            Answer::Events(EventsPart {
                events: [
                    SubjectState::Joining,
                    SubjectState::Up,
                    SubjectState::Draining,
                    SubjectState::Leaving,
                    SubjectState::Stopping,
                    SubjectState::Silent,
                    SubjectState::Down,
                    SubjectState::Gone,
                    SubjectState::Other,
                ]
                .into_iter()
                .map(|state| event(EventKind::NodeState, Some(state)))
                .collect(),
                next: Place(7, 9),
                missed: Some(Missed::Unknown),
                more: false,
            }),
        ),
        (
            "events.least",
            Answer::Events(EventsPart {
                events: vec![Event {
                    client_id: None,
                    user: None,
                    address: None,
                    reason: None,
                    topic: None,
                    count: None,
                    detail: None,
                    ..event(EventKind::AlarmCleared, None)
                }],
                next: Place(0, 0),
                missed: None,
                more: false,
            }),
        ),
        (
            "api_session",
            Answer::ApiSession(Some(session(Role::Administrator))),
        ),
        (
            "api_session.operator",
            Answer::ApiSession(Some(session(Role::Operator))),
        ),
        (
            "api_session.viewer",
            Answer::ApiSession(Some(session(Role::Viewer))),
        ),
        ("api_session.least", Answer::ApiSession(None)),
        (
            "acl",
            Answer::Acl(AclPart {
                connected: Some((verdict(DecidedBy::Superuser), some("ann"))),
                stored: Some((verdict(DecidedBy::Login), some("ben"))),
                asked: Some((verdict(DecidedBy::NoMatch), some("cid"))),
            }),
        ),
        (
            "acl.least",
            Answer::Acl(AclPart {
                connected: Some((
                    Verdict {
                        may: false,
                        by: DecidedBy::File,
                        line: None,
                    },
                    None,
                )),
                stored: None,
                asked: None,
            }),
        ),
        ("change.begun", Answer::Change(Ok(()))),
        (
            "change.unknown",
            Answer::Change(Err(Refusal::Unknown(text("no such node")))),
        ),
        (
            "change.conflict",
            Answer::Change(Err(Refusal::Conflict(text("no other node is up")))),
        ),
        (
            "change.unavailable",
            Answer::Change(Err(Refusal::Unavailable(text("ask again")))),
        ),
        ("busy", Answer::Busy),
        ("failed", Answer::Failed),
        ("not_known", Answer::NotKnown),
    ]
}

fn session(role: Role) -> LoginSession {
    LoginSession {
        user: text("ann"),
        role,
        csrf_token: text("c2VjcmV0"),
        ends_at: at(),
    }
}

/// Answers about clients and what they are sent, as [`questions`].
fn answers_about_clients() -> Vec<(&'static str, Answer)> {
    vec![
        (
            "clients",
            Answer::Clients(ClientsPart {
                rows: vec![
                    client_row(ClientState::Connecting),
                    client_row(ClientState::Connected),
                    client_row(ClientState::Closing),
                    client_row(ClientState::Away),
                ],
                last: some("dev-9"),
                scanned: 5,
                covered: vec![(0, 21_845), (43_691, 65_535)],
            }),
        ),
        (
            "clients.least",
            Answer::Clients(ClientsPart {
                rows: vec![ClientRow {
                    client_id: text("dev-1"),
                    user: None,
                    state: ClientState::Away,
                    node: None,
                    node_name: None,
                    since: None,
                    address: None,
                    durable: false,
                    queue_messages: None,
                    held: None,
                }],
                ..ClientsPart::default()
            }),
        ),
        (
            "client",
            Answer::Client(Box::new(ClientPart {
                here: Some(Box::new(client(WaitsFor::ReceiveMaximum))),
                leads_record: true,
                record: Some(record()),
                leads_inbox: true,
                inbox: Some(inbox()),
                drops: vec![recent_drop()],
                departure: Some(departure()),
                pauses: vec![text("dev-2")],
                paused_by: vec![text("dev-3")],
            })),
        ),
        (
            "client.identifiers",
            Answer::Client(Box::new(ClientPart {
                here: Some(Box::new(client(WaitsFor::PacketIdentifiers))),
                ..ClientPart::default()
            })),
        ),
        (
            "client.away",
            Answer::Client(Box::new(ClientPart {
                here: Some(Box::new(least_client())),
                record: Some(RecordPart {
                    node: None,
                    user: None,
                    since_ms: 0,
                    expiry_s: u32::MAX,
                    epoch: 0,
                    durable: false,
                }),
                inbox: Some(InboxPart::default()),
                ..ClientPart::default()
            })),
        ),
        ("client.least", Answer::Client(Box::default())),
        (
            "queues",
            Answer::Queues([(text("dev-1"), 3), (text("dev-2"), 0)].into()),
        ),
        (
            "end",
            Answer::End(Ending {
                gone: Some(Gone {
                    client_id: text("dev-1"),
                    node: Some(node()),
                    address: some("10.0.0.1:5000"),
                    disconnected: true,
                    session_ended: true,
                }),
                has_record: true,
            }),
        ),
        (
            "end.least",
            Answer::End(Ending {
                gone: Some(Gone {
                    client_id: text("dev-1"),
                    node: None,
                    address: None,
                    disconnected: false,
                    session_ended: false,
                }),
                has_record: false,
            }),
        ),
        ("end.nothing", Answer::End(Ending::default())),
        (
            "change_subscription.answered",
            Answer::ChangeSubscription(ChangePart::Answered {
                code: 17,
                is_away: true,
            }),
        ),
        (
            "change_subscription.not_here",
            Answer::ChangeSubscription(ChangePart::NotHere),
        ),
        (
            "change_subscription.busy",
            Answer::ChangeSubscription(ChangePart::Busy),
        ),
        (
            "change_subscription.may_come",
            Answer::ChangeSubscription(ChangePart::MayCome),
        ),
        (
            "subscriptions_of",
            Answer::SubscriptionsOf(Some(Part {
                rows: vec![
                    subscription(),
                    SubscriptionRow {
                        shared: None,
                        qos: 0,
                        no_local: false,
                        retain_as_published: false,
                        identifier: None,
                        node: None,
                        node_name: None,
                        ..subscription()
                    },
                ],
                more: true,
            })),
        ),
        ("subscriptions_of.least", Answer::SubscriptionsOf(None)),
        (
            "shared_groups",
            Answer::SharedGroups(Part {
                rows: vec![SharedGroupRow {
                    given_filter: text("$share/g/a/+"),
                    group: text("g"),
                    filter: text("a/+"),
                    members: 3,
                    online: 2,
                    share: Some(GroupShare {
                        sessions: 1,
                        durable: 2,
                        durable_online: 1,
                        waiting: Some(7),
                    }),
                }],
                more: true,
            }),
        ),
        (
            "match",
            Answer::Match(MatchPart {
                receivers: vec![
                    receiver(Outcome::Delivered),
                    receiver(Outcome::Queued),
                    receiver(Outcome::Dropped),
                    receiver(Outcome::OneOf),
                    Receiver {
                        client_id: None,
                        group: None,
                        filter: text("a/b"),
                        qos: 0,
                        node: None,
                        node_name: None,
                        state: None,
                        outcome: Outcome::OneOf,
                        reason: None,
                        detail: None,
                        rule: None,
                        members: None,
                    },
                ],
                counts: MatchCounts {
                    delivered: 1,
                    queued: 2,
                    dropped: 3,
                    groups: 4,
                },
                counted_all: true,
                limits: [(text("dev-1"), QueueLimit(1_000, true))].into(),
            }),
        ),
        ("match.least", Answer::Match(MatchPart::default())),
        (
            "drops",
            Answer::Drops(vec![PlacedDrop {
                row: DropRow {
                    at: at(),
                    node: node(),
                    node_name: text("n1"),
                    role: text("receiver"),
                    client_id: text("dev-1"),
                    topic: text("a/b"),
                    reason: text("queue_full"),
                    qos: 1,
                    bytes: 20,
                },
                place: text("fffffe5"),
            }]),
        ),
        (
            "drop_totals",
            Answer::DropTotals([(text("queue_full"), 3)].into()),
        ),
    ]
}

/// Answers about messages and traffic, as [`questions`].
fn answers_about_messages() -> Vec<(&'static str, Answer)> {
    let messages = Answer::Messages;
    vec![
        (
            "messages.retained",
            messages(MessagesAnswer::Retained(RetainedPart {
                rows: vec![
                    RetainedRow {
                        topic: text("a/b"),
                        qos: 1,
                        payload_bytes: 20,
                        expires_at: Some(at()),
                        retained_at: Some(at()),
                    },
                    RetainedRow {
                        topic: text("a/c"),
                        qos: 0,
                        payload_bytes: 0,
                        expires_at: None,
                        retained_at: None,
                    },
                ],
                next: some("a/d"),
                covered: vec![(0, 65_535)],
            })),
        ),
        (
            "messages.retained.least",
            messages(MessagesAnswer::Retained(RetainedPart {
                rows: Vec::new(),
                next: None,
                covered: Vec::new(),
            })),
        ),
        (
            "messages.levels",
            messages(MessagesAnswer::Levels(RetainedPart {
                rows: vec![RetainedLevelRow {
                    topic: text("a"),
                    has_message: true,
                    has_more_below: true,
                }],
                next: some("b"),
                covered: vec![(0, 65_535)],
            })),
        ),
        (
            "messages.message",
            messages(MessagesAnswer::Message(Held::Found(Box::new(message(
                Encoding::Base64,
            ))))),
        ),
        (
            "messages.message.least",
            messages(MessagesAnswer::Message(Held::Found(Box::new(Message {
                qos: 0,
                payload: None,
                expires_at: None,
                payload_is_utf8: false,
                content_type: None,
                response_topic: None,
                correlation_data: None,
                user_properties: Vec::new(),
                ..message(Encoding::Utf8)
            })))),
        ),
        (
            "messages.message.absent",
            messages(MessagesAnswer::Message(Held::Absent)),
        ),
        (
            "messages.message.elsewhere",
            messages(MessagesAnswer::Message(Held::Elsewhere)),
        ),
        (
            "messages.first_queues",
            messages(MessagesAnswer::FirstQueues(vec![
                QueueRow {
                    client_id: text("dev-1"),
                    class: text("device"),
                    node: node(),
                    node_name: text("n1"),
                    messages: 1,
                    limit_messages: 2,
                    bytes: 3,
                    limit_bytes: 4,
                    oldest_at: Some(at()),
                    in_per_s: Some(1.5),
                    out_per_s: Some(0.25),
                },
                QueueRow {
                    client_id: text("dev-2"),
                    class: text("device"),
                    node: node(),
                    node_name: text("n1"),
                    messages: 0,
                    limit_messages: 0,
                    bytes: 0,
                    limit_bytes: 0,
                    oldest_at: None,
                    in_per_s: None,
                    out_per_s: None,
                },
            ])),
        ),
        (
            "messages.waiting",
            messages(MessagesAnswer::Waiting(Held::Found(WaitingPart {
                messages: vec![
                    QueuedMessage {
                        sequence: BigNumber::from(9_007_199_254_740_993),
                        topic: text("a/b"),
                        qos: 1,
                        retain: true,
                        group: some("$share/g/a/+"),
                        payload_bytes: 2,
                        expires_at: Some(at()),
                        payload: some("/wA="),
                        encoding: Encoding::Base64,
                    },
                    QueuedMessage {
                        sequence: BigNumber::from(0),
                        topic: text("a/b"),
                        qos: 0,
                        retain: false,
                        group: None,
                        payload_bytes: 0,
                        expires_at: None,
                        payload: None,
                        encoding: Encoding::Utf8,
                    },
                ],
                next: Some(Sequence(9_007_199_254_740_994)),
            }))),
        ),
        (
            "messages.waiting.least",
            messages(MessagesAnswer::Waiting(Held::Found(WaitingPart::default()))),
        ),
        (
            "messages.waiting.absent",
            messages(MessagesAnswer::Waiting(Held::Absent)),
        ),
        (
            "messages.waiting.elsewhere",
            messages(MessagesAnswer::Waiting(Held::Elsewhere)),
        ),
        (
            "messages.purged",
            messages(MessagesAnswer::Purged(Held::Found(QueuePurge {
                removed: 3,
                bytes: 300,
                complete: true,
            }))),
        ),
        (
            "messages.purged.absent",
            messages(MessagesAnswer::Purged(Held::Absent)),
        ),
        (
            "messages.purged.elsewhere",
            messages(MessagesAnswer::Purged(Held::Elsewhere)),
        ),
        (
            "messages.busy.clients",
            messages(MessagesAnswer::Busy(BusyPart::Clients(vec![
                BusyClient {
                    client_id: text("dev-1"),
                    node: node(),
                    node_name: text("n1"),
                    rates: rates(),
                    delay_mean_ms: Some(1.25),
                    delay_max_ms: Some(9.5),
                },
                BusyClient {
                    client_id: text("dev-2"),
                    node: node(),
                    node_name: text("n1"),
                    rates: BusyRates::default(),
                    delay_mean_ms: None,
                    delay_max_ms: None,
                },
            ]))),
        ),
        (
            "messages.busy.topics",
            messages(MessagesAnswer::Busy(BusyPart::Topics(vec![BusyTopic {
                topic: text("a/b"),
                rates: rates(),
            }]))),
        ),
        (
            "messages.session_drops",
            messages(MessagesAnswer::SessionDrops(vec![SessionDrops {
                node: node(),
                node_name: text("n1"),
                client_id: text("dev-1"),
                dropped: 3,
                reasons: BTreeMap::from([(text("dev-expired"), 3)]),
                first: at(),
                last: at(),
            }])),
        ),
        (
            "messages.holders",
            messages(MessagesAnswer::Holders(vec![HolderRow {
                node: node(),
                node_name: text("n1"),
                subscriber: some("dev-1"),
                durable: true,
                publisher: text("dev-2"),
                times: 3,
                last: at(),
            }])),
        ),
        (
            "messages.members",
            messages(MessagesAnswer::Members(MembersPart {
                rows: vec![GroupMember {
                    place: text("ddev-1"),
                    client_id: text("dev-1"),
                    durable: true,
                    state: Some(ClientState::Connected),
                    node: Some(node()),
                    node_name: some("n1"),
                    waiting: Some(7),
                    in_flight: Some(2),
                }],
                last: some("ddev-1"),
            })),
        ),
        (
            "messages.ended_alarms",
            messages(MessagesAnswer::EndedAlarms(vec![Alarm {
                name: text("memory"),
                node: node(),
                node_name: text("n1"),
                subject: text("inbox 0"),
                detail: text("memory was scarce"),
                since: Some(at()),
                until: Some(at()),
            }])),
        ),
        (
            "messages.refused_logins",
            messages(MessagesAnswer::RefusedLogins(vec![
                RefusedLoginsRow {
                    node: node(),
                    node_name: text("n1"),
                    address: some("10.0.0.1"),
                    user: some("ann"),
                    client_id: some("dev-1"),
                    listener: some("tcp"),
                    cause: text("wrong_password"),
                    explanation: text("The password is a different one."),
                    detail: some("detail"),
                    count: 3,
                    first: at(),
                    last: at(),
                },
                RefusedLoginsRow {
                    node: node(),
                    node_name: text("n1"),
                    address: None,
                    user: None,
                    client_id: None,
                    listener: None,
                    cause: text("memory"),
                    explanation: text("The node is short of memory."),
                    detail: None,
                    count: 1,
                    first: at(),
                    last: at(),
                },
            ])),
        ),
        (
            "messages.failed_logins",
            messages(MessagesAnswer::FailedLogins(vec![FailedLoginsRow {
                node: node(),
                node_name: text("n1"),
                address: text("10.0.0.1"),
                denied: 3,
                refused: 2,
                last: at(),
                users: vec![
                    FailedUser {
                        user: some("ann"),
                        denied: 2,
                        refused: 1,
                        last: at(),
                    },
                    FailedUser {
                        user: None,
                        denied: 1,
                        refused: 1,
                        last: at(),
                    },
                ],
            }])),
        ),
        (
            "messages.watched",
            messages(MessagesAnswer::Watched(Some(WatchedClient {
                node: node(),
                since_ms: 1_764_000_000_120,
                messages_in: 1,
                bytes_in: 2,
                messages_out: 3,
                bytes_out: 4,
            }))),
        ),
        (
            "messages.watched.least",
            messages(MessagesAnswer::Watched(None)),
        ),
        ("messages.not_known", messages(MessagesAnswer::NotKnown)),
    ]
}

/// A profile, whose text is sent in parts.
pub(super) fn cpu_profile() -> CpuProfile {
    CpuProfile {
        node: node(),
        node_name: text("n1"),
        version: text("0.1.0"),
        hertz: Amount(199),
        lasted_ms: Amount(10_001),
        cpu_ms: Amount(2_500),
        samples: Amount(3),
        lost: Amount(1),
        threads: vec![ProfiledThread {
            id: Amount(71),
            name: text("loop-0"),
        }],
        modules: vec![
            ProfiledModule {
                path: text("/usr/bin/heraldmq"),
                build_id: some("ab12"),
                is_program: true,
            },
            ProfiledModule {
                path: text("[vdso]"),
                build_id: None,
                is_program: false,
            },
        ],
        places: vec![text("0:1a2b"), text(":7f00")],
        stacks: vec![ProfiledStack {
            thread: 0,
            count: Amount(3),
            places: vec![1, 0],
        }],
    }
}

fn answers_about_outlets() -> Vec<(&'static str, Answer)> {
    let asked = |here| Answer::Messages(MessagesAnswer::Outlets(vec![here]));
    let least = OutletFigures {
        lag_messages: None,
        lag_bytes: None,
        oldest_at: None,
        delivered: Amount(1),
        left_out: Amount(2),
        retries: Amount(3),
        dead: Amount(4),
        filtered: Amount(14),
        dropped: OutletDrops {
            dead_letter_unclaimed: Amount(5),
            refused: Amount(6),
            bridge_loop: Amount(7),
        },
        waiting_messages: Amount(8),
        attempt: Amount(9),
        position: None,
        delivered_at: None,
        batch_ms: None,
        last_error: None,
        failing_s: None,
        process: None,
        starts: Amount(10),
        last_end: None,
    };
    let most = OutletFigures {
        lag_messages: Some(Amount(11)),
        lag_bytes: Some(Amount(12)),
        oldest_at: Some(at()),
        position: some("7.12"),
        delivered_at: Some(at()),
        batch_ms: Some(1.5),
        last_error: some("429"),
        failing_s: Some(Amount(13)),
        process: Some(4_711),
        last_end: some("killed"),
        ..least.clone()
    };
    let here = |state, is_paused, figures| OutletHere {
        name: text("lake"),
        state,
        is_paused,
        figures,
    };
    vec![
        (
            "messages.outlets",
            asked(here(OutletState::Retrying, true, most)),
        ),
        (
            "messages.outlets.least",
            asked(here(OutletState::Starting, false, least)),
        ),
    ]
}

fn answers_about_the_process() -> Vec<(&'static str, Answer)> {
    let asked = |answer| Answer::Messages(MessagesAnswer::Profile(answer));
    let profile = |answer| asked(Ok(answer));
    let thread = ThreadUsageRow {
        id: Amount(71),
        name: text("loop-0"),
        cpu_us: Amount(1_000),
        system_us: Amount(100),
        no_core_us: Some(Amount(10)),
        wake_ups: Some(Amount(5)),
        turns: Some(vec![
            TurnTimes {
                up_to_ms: Some(0.5),
                count: Amount(7),
            },
            TurnTimes {
                up_to_ms: None,
                count: Amount(1),
            },
        ]),
    };
    let memory = MemoryProfile {
        node: node(),
        node_name: text("n1"),
        resident_bytes: Amount(1_000_000),
        allocator: Some(AllocatorBytes {
            allocated: Amount(1),
            active: Amount(2),
            metadata: Amount(3),
            resident: Amount(4),
            retained: Amount(5),
        }),
        structures: vec![
            MemoryRow {
                structure: text("retained_messages"),
                count: Some(Amount(2)),
                bytes: 500,
                how: MemoryKnown::Counted,
            },
            MemoryRow {
                structure: text("connections"),
                count: Some(Amount(1)),
                bytes: 100,
                how: MemoryKnown::Estimated,
            },
            MemoryRow {
                structure: text("not_accounted_for"),
                count: None,
                bytes: -20,
                how: MemoryKnown::Remainder,
            },
        ],
    };
    vec![
        (
            "messages.profile_threads",
            profile(ProfileAnswer::Threads(ThreadsUsage {
                node: node(),
                node_name: text("n1"),
                uptime_us: Amount(9_000_000),
                threads: vec![thread.clone()],
                earlier: Some(EarlierThreads {
                    uptime_us: Amount(8_000_000),
                    threads: vec![thread.clone()],
                }),
            })),
        ),
        (
            "messages.profile_threads.least",
            profile(ProfileAnswer::Threads(ThreadsUsage {
                node: node(),
                node_name: String::new(),
                uptime_us: Amount(0),
                threads: vec![ThreadUsageRow {
                    no_core_us: None,
                    wake_ups: None,
                    turns: None,
                    ..thread
                }],
                earlier: None,
            })),
        ),
        (
            "messages.profile_memory",
            profile(ProfileAnswer::Memory(memory.clone())),
        ),
        (
            "messages.profile_memory.least",
            profile(ProfileAnswer::Memory(MemoryProfile {
                allocator: None,
                structures: Vec::new(),
                ..memory
            })),
        ),
        (
            "messages.profile_cpu_begun",
            profile(ProfileAnswer::CpuBegun { profile: Amount(7) }),
        ),
        (
            "messages.profile_cpu_goes_on",
            profile(ProfileAnswer::CpuGoesOn),
        ),
        (
            "messages.profile_cpu_part",
            profile(ProfileAnswer::Cpu {
                text: cpu_profile().encode(),
                more: true,
            }),
        ),
        (
            "messages.profile_refused",
            asked(Err(Refusal::Conflict(text("it is being counted already")))),
        ),
    ]
}

/// Each answer, as [`questions`].
pub(super) fn answers() -> Vec<(&'static str, Answer)> {
    let mut all = answers_about_nodes();
    all.extend(answers_about_clients());
    all.extend(answers_about_messages());
    all.extend(answers_about_the_process());
    all.extend(answers_about_outlets());
    all
}
