//! What nodes send, as the API says it.

use admin::cluster::{Micros, Percent, Rate, Seconds};
use admin::{api, cluster, page};
use store_state::api::Slot;

use super::ToApi;

/// Structs whose fields have the same names on both sides.
macro_rules! structs {
    ($($module:ident :: $name:ident { $($field:ident),* $(,)? })*) => { $(
        impl ToApi for inspection::$name {
            type Api = $module::$name;

            fn to_api(self) -> Self::Api {
                let Self { $($field),* } = self;
                $module::$name { $($field: $field.to_api()),* }
            }
        }
    )* };
}

/// Enums whose variants have the same names on both sides, and no fields.
macro_rules! enums {
    ($($module:ident :: $name:ident { $($variant:ident),* $(,)? })*) => { $(
        impl ToApi for inspection::$name {
            type Api = $module::$name;

            fn to_api(self) -> Self::Api {
                match self {
                    $(Self::$variant => $module::$name::$variant,)*
                }
            }
        }
    )* };
}

structs! {
    api::AllocatorBytes { allocated, active, metadata, resident, retained }
    api::Alarm { name, node, node_name, subject, detail, since, until }
    api::BusyClient { client_id, node, node_name, rates, delay_mean_ms, delay_max_ms }
    api::BusyRates { messages_per_s, bytes_per_s, uncounted_per_s }
    api::BusyTopic { topic, rates }
    api::Client {
        client_id, user, state, node, node_name, connection, session, in_flight, waits_for, queue,
        subscriptions, will, holds_back, held_by, held, last_departure, recent_drops, as_of, partial,
    }
    api::ClientRow {
        client_id, user, state, node, node_name, since, address, durable, queue_messages, held,
    }
    api::Connection {
        address, listener, version, keep_alive_s, connected_at, receive_maximum,
        maximum_packet_bytes, write_blocked,
    }
    api::Counts {
        connections, sessions, subscriptions, retained_messages, queued_messages, queued_bytes,
        messages_in, messages_out, bytes_in, bytes_out, connects, connects_refused, dropped,
        unmatched, retained_expired, retained_removed,
    }
    api::Departure { at, node, node_name, reason, address }
    api::DrainProgress { clients_left, shards_left }
    api::DropRow { at, node, node_name, role, client_id, topic, reason, qos, bytes }
    api::EarlierThreads { uptime_us, threads }
    api::Event {
        kind, at, node, node_name, seq, client_id, user, address, reason, topic, count, detail,
        subject,
    }
    api::EventSubject { node, node_name, state }
    api::FailedLoginsRow { node, node_name, address, denied, refused, last, users }
    api::FailedUser { user, denied, refused, last }
    api::RefusedLoginsRow {
        node, node_name, address, user, client_id, listener, cause, explanation, detail, count,
        first, last,
    }
    api::Gone { client_id, node, address, disconnected, session_ended }
    api::HolderRow { node, node_name, subscriber, durable, publisher, times, last }
    api::ProfiledModule { path, build_id, is_program }
    api::ProfiledStack { thread, count, places }
    api::ProfiledThread { id, name }
    api::PublisherHold { reason, option, limit, subscriber, since, share_percent }
    api::ListenerCertificate { subject, issuer, names, not_before, not_after }
    api::ListenerRow {
        node, node_name, kind, address, connections, accepted, refused, failed_handshakes,
        certificate,
    }
    api::MatchCounts { delivered, queued, dropped, groups }
    api::MemoryProfile { node, node_name, resident_bytes, allocator, structures }
    api::MemoryRow { structure, count, bytes, how }
    api::Message {
        topic, qos, payload, encoding, payload_bytes, expires_at, payload_is_utf8, content_type,
        response_topic, correlation_data, user_properties,
    }
    api::NodeHealth {
        ready, uptime_s, cpu_s, cores, memory_bytes, disk_free_bytes, sessions, shards_led,
        dropped, drain, alarms,
    }
    api::OutletDrops { dead_letter_unclaimed, refused, bridge_loop }
    api::OutletFigures {
        lag_messages, lag_bytes, oldest_at, delivered, left_out, retries, dead,
        filtered, dropped, waiting_messages, attempt, position,
        delivered_at, batch_ms, last_error, failing_s, process, starts, last_end,
    }
    api::Queue { messages, bytes, limit_messages, limit_bytes, full, oldest_at }
    api::QueuePurge { removed, bytes, complete }
    api::QueueRow {
        client_id, class, node, node_name, messages, limit_messages, bytes, limit_bytes,
        oldest_at, in_per_s, out_per_s,
    }
    api::QueuedMessage {
        sequence, topic, qos, retain, group, payload_bytes, expires_at, payload, encoding,
    }
    api::Receiver {
        client_id, group, filter, qos, node, node_name, state, outcome, reason, detail, rule,
        members,
    }
    api::RecentDrop { at, topic, reason }
    api::RetainedLevelRow { topic, has_message, has_more_below }
    api::RetainedRow { topic, qos, payload_bytes, expires_at, retained_at }
    api::SessionDrops { node, node_name, client_id, dropped, reasons, first, last }
    api::Session { durable, expiry_s, ends_at, since, shard, class, epoch }
    api::Setting { value, origin, place, at_restart }
    api::ShardHolds { sessions, messages, bytes }
    api::ShardName { store, shard }
    api::SubscriptionRow {
        filter, given_filter, client_id, shared, qos, no_local, retain_as_published, identifier,
        node, node_name,
    }
    api::SubscriptionsOf { count, first }
    api::ThreadUsageRow { id, name, cpu_us, system_us, no_core_us, wake_ups, turns }
    api::ThreadsUsage { node, node_name, uptime_us, threads, earlier }
    api::TurnTimes { up_to_ms, count }
    api::UserProperty { name, value }
    api::Verdict { may, by, line }
    api::WatchedClient { node, since_ms, messages_in, bytes_in, messages_out, bytes_out }
    api::WillOf { topic, qos, retain, delay_s }
    admin::LoginSession { user, role, csrf_token, ends_at }
    page::Missing { node, node_name, reason, missing }
}

enums! {
    api::OutletState { Starting, Opening, Running, Retrying, Paused, Fenced, Elsewhere }
    api::ClientState { Connecting, Connected, Closing, Away }
    api::DecidedBy { Superuser, Login, List, File, NoMatch }
    api::Encoding { Utf8, Base64 }
    api::EventKind {
        ClientConnected, ClientDisconnected, ClientRefused, MessageDropped, AlarmRaised,
        AlarmCleared, NodeState, ShardLeader, ShardSplit, ShardMoved, RightDenied, ApiChange,
        SubscriptionAdded, SubscriptionRemoved, SessionBegun, SessionEnded, Other,
    }
    api::HeldReason {
        BytesPerSecond, PublishesPerSecond, Memory, Store, OtherNodes, SubscriberQueue,
        DurableQueues, ManyReceivers, UnreadAnswers, Other,
    }
    api::MemoryKnown { Counted, Estimated, Remainder }
    api::Outcome { Delivered, Queued, Dropped, OneOf }
    api::SubjectState { Joining, Up, Draining, Leaving, Stopping, Silent, Down, Gone, Other }
    api::WaitsFor { ReceiveMaximum, PacketIdentifiers }
    admin::Role { Viewer, Operator, Administrator }
    cluster::StoreName { Session, Inbox, Retain, Control }
    page::MissingReason { Down, Timeout, Busy, Version, Failed, NoLeader }
}

impl ToApi for inspection::merge::SharedGroup {
    type Api = api::SharedGroupRow;

    fn to_api(self) -> Self::Api {
        let Self {
            given_filter,
            group,
            filter,
            members,
            online,
            lag,
        } = self;
        api::SharedGroupRow {
            given_filter,
            group,
            filter,
            members,
            online,
            lag,
        }
    }
}

impl ToApi for inspection::GroupMember {
    type Api = api::GroupMember;

    fn to_api(self) -> Self::Api {
        let Self {
            // Of the list between nodes only.
            place: _,
            client_id,
            durable,
            state,
            node,
            node_name,
            waiting,
            in_flight,
        } = self;
        api::GroupMember {
            client_id,
            durable,
            state: state.to_api(),
            node: node.to_api(),
            node_name,
            waiting,
            in_flight,
        }
    }
}

impl ToApi for inspection::Amount {
    type Api = api::Amount;

    fn to_api(self) -> Self::Api {
        api::Amount(self.0)
    }
}

/// Functions are named by the node that is asked first.
impl ToApi for inspection::CpuProfile {
    type Api = api::CpuProfile;

    fn to_api(self) -> Self::Api {
        let Self {
            node,
            node_name,
            version,
            hertz,
            lasted_ms,
            cpu_ms,
            samples,
            lost,
            threads,
            modules,
            places,
            stacks,
        } = self;
        api::CpuProfile {
            node: node.to_api(),
            node_name,
            version,
            hertz: hertz.to_api(),
            lasted_ms: lasted_ms.to_api(),
            cpu_ms: cpu_ms.to_api(),
            samples: samples.to_api(),
            lost: lost.to_api(),
            threads: threads.to_api(),
            modules: modules.to_api(),
            places,
            functions: None,
            stacks: stacks.to_api(),
        }
    }
}

impl ToApi for inspection::NodeId {
    type Api = cluster::NodeId;

    fn to_api(self) -> Self::Api {
        cluster::NodeId(self.0)
    }
}

impl ToApi for inspection::At {
    type Api = api::At;

    fn to_api(self) -> Self::Api {
        self.0.into()
    }
}

impl ToApi for inspection::BigNumber {
    type Api = api::BigNumber;

    fn to_api(self) -> Self::Api {
        self.0.into()
    }
}

impl ToApi for inspection::TokenHash {
    type Api = admin::TokenHash;

    fn to_api(self) -> Self::Api {
        self.0.into()
    }
}

impl ToApi for inspection::SplitStatus {
    type Api = cluster::SplitStatus;

    fn to_api(self) -> Self::Api {
        let Self {
            decision,
            reason,
            names,
            seconds,
        } = self;
        cluster::SplitStatus {
            decision,
            reason,
            names,
            seconds: Seconds(seconds),
        }
    }
}

impl ToApi for inspection::LoadStatus {
    type Api = cluster::LoadStatus;

    fn to_api(self) -> Self::Api {
        let Self {
            propose_us,
            apply_us,
            read_us,
            requests,
            wait_us,
            log_bytes,
            half,
        } = self;
        cluster::LoadStatus {
            propose_us: Micros(propose_us),
            apply_us: Micros(apply_us),
            read_us: Micros(read_us),
            requests: Rate(requests),
            wait_us: Micros(wait_us),
            log_bytes: Rate(log_bytes),
            half: half.to_api(),
        }
    }
}

impl ToApi for inspection::HalfStatus {
    type Api = cluster::HalfStatus;

    fn to_api(self) -> Self::Api {
        let Self { slot, below } = self;
        cluster::HalfStatus {
            slot: Slot(slot),
            below: Percent(below),
        }
    }
}

impl ToApi for inspection::Refusal {
    type Api = peer_protocol::Refusal;

    fn to_api(self) -> Self::Api {
        match self {
            Self::Unknown(why) => peer_protocol::Refusal::Unknown(why),
            Self::Conflict(why) => peer_protocol::Refusal::Conflict(why),
            Self::Unavailable(why) => peer_protocol::Refusal::Unavailable(why),
        }
    }
}
