//! What the API asks, and what of this node has types of the API, as nodes send it.

use admin::cluster::{Micros, Percent, Rate, Seconds};
use admin::{api, cluster};
use store_state::api::Slot;

use super::ToWire;

/// Structs whose fields have the same names on both sides.
macro_rules! structs {
    ($($module:ident :: $name:ident { $($field:ident),* $(,)? })*) => { $(
        impl ToWire for $module::$name {
            type Wire = inspection::$name;

            fn to_wire(self) -> Self::Wire {
                let Self { $($field),* } = self;
                inspection::$name { $($field: $field.to_wire()),* }
            }
        }
    )* };
}

/// Enums whose variants have the same names on both sides, and no fields.
macro_rules! enums {
    ($($module:ident :: $name:ident { $($variant:ident),* $(,)? })*) => { $(
        impl ToWire for $module::$name {
            type Wire = inspection::$name;

            fn to_wire(self) -> Self::Wire {
                match self {
                    $(Self::$variant => inspection::$name::$variant,)*
                }
            }
        }
    )* };
}

structs! {
    api::AllocatorBytes { allocated, active, metadata, resident, retained }
    api::Counts {
        connections, sessions, subscriptions, retained_messages, queued_messages, queued_bytes,
        messages_in, messages_out, bytes_in, bytes_out, connects, connects_refused, dropped,
        unmatched, retained_expired, retained_removed,
    }
    api::EarlierThreads { uptime_us, threads }
    api::EventSubject { node, node_name, state }
    api::MemoryProfile { node, node_name, resident_bytes, allocator, structures }
    api::MemoryRow { structure, count, bytes, how }
    api::NewSubscription {
        filter, qos, no_local, retain_as_published, retain_handling, identifier,
    }
    api::OutletDrops { dead_letter_unclaimed, refused, bridge_loop }
    api::OutletFigures {
        lag_messages, lag_bytes, oldest_at, delivered, left_out, retries, dead,
        filtered, dropped, waiting_messages, attempt, position,
        delivered_at, batch_ms, last_error, failing_s, process, starts, last_end,
    }
    api::ProfiledModule { path, build_id, is_program }
    api::ProfiledStack { thread, count, places }
    api::ProfiledThread { id, name }
    api::ShardName { store, shard }
    api::ThreadUsageRow { id, name, cpu_us, system_us, no_core_us, wake_ups, turns }
    api::ThreadsUsage { node, node_name, uptime_us, threads, earlier }
    api::TurnTimes { up_to_ms, count }
    admin::LoginSession { user, role, csrf_token, ends_at }
}

enums! {
    api::BusyOrder { Messages, Bytes, Delay }
    api::BusyRole { Publisher, Subscriber }
    api::ClientState { Connecting, Connected, Closing, Away }
    api::Encoding { Utf8, Base64 }
    api::EventKind {
        ClientConnected, ClientDisconnected, ClientRefused, MessageDropped, AlarmRaised,
        AlarmCleared, NodeState, ShardLeader, ShardSplit, ShardMoved, RightDenied, ApiChange,
        SubscriptionAdded, SubscriptionRemoved, SessionBegun, SessionEnded, Other,
    }
    api::MemoryKnown { Counted, Estimated, Remainder }
    api::OutletState { Starting, Opening, Running, Retrying, Paused, Fenced, Elsewhere }
    api::QueueOrder { Messages, Bytes, Age }
    api::SubjectState { Joining, Up, Draining, Leaving, Stopping, Silent, Down, Gone, Other }
    admin::Role { Viewer, Operator, Administrator }
    cluster::StoreName { Session, Inbox, Retain, Control }
}

impl ToWire for cluster::NodeId {
    type Wire = inspection::NodeId;

    fn to_wire(self) -> Self::Wire {
        inspection::NodeId(self.0)
    }
}

impl ToWire for api::Amount {
    type Wire = inspection::Amount;

    fn to_wire(self) -> Self::Wire {
        inspection::Amount(self.0)
    }
}

/// Functions are named by the node that is asked first.
impl ToWire for api::CpuProfile {
    type Wire = inspection::CpuProfile;

    fn to_wire(self) -> Self::Wire {
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
            functions: _,
            stacks,
        } = self;
        inspection::CpuProfile {
            node: node.to_wire(),
            node_name,
            version,
            hertz: hertz.to_wire(),
            lasted_ms: lasted_ms.to_wire(),
            cpu_ms: cpu_ms.to_wire(),
            samples: samples.to_wire(),
            lost: lost.to_wire(),
            threads: threads.to_wire(),
            modules: modules.to_wire(),
            places,
            stacks: stacks.to_wire(),
        }
    }
}

impl ToWire for api::At {
    type Wire = inspection::At;

    fn to_wire(self) -> Self::Wire {
        inspection::At(self.to_string())
    }
}

impl ToWire for admin::TokenHash {
    type Wire = inspection::TokenHash;

    fn to_wire(self) -> Self::Wire {
        inspection::TokenHash(self.into())
    }
}

impl ToWire for admin::SessionQuestion {
    type Wire = inspection::SessionQuestion;

    fn to_wire(self) -> Self::Wire {
        match self {
            Self::Find { hash, is_use } => inspection::SessionQuestion::Find {
                hash: hash.to_wire(),
                is_use,
            },
            Self::End { hash } => inspection::SessionQuestion::End {
                hash: hash.to_wire(),
            },
        }
    }
}

impl ToWire for admin::NodeCommand {
    type Wire = inspection::NodeCommand;

    fn to_wire(self) -> Self::Wire {
        match self {
            Self::Drain => inspection::NodeCommand::Drain,
            Self::EndDrain => inspection::NodeCommand::EndDrain,
            Self::Leave => inspection::NodeCommand::Leave,
            Self::Evict { force } => inspection::NodeCommand::Evict { force },
        }
    }
}

impl ToWire for cluster::SplitStatus {
    type Wire = inspection::SplitStatus;

    fn to_wire(self) -> Self::Wire {
        let Self {
            decision,
            reason,
            names,
            seconds: Seconds(seconds),
        } = self;
        inspection::SplitStatus {
            decision,
            reason,
            names,
            seconds,
        }
    }
}

impl ToWire for cluster::LoadStatus {
    type Wire = inspection::LoadStatus;

    fn to_wire(self) -> Self::Wire {
        let Self {
            propose_us: Micros(propose_us),
            apply_us: Micros(apply_us),
            read_us: Micros(read_us),
            requests: Rate(requests),
            wait_us: Micros(wait_us),
            log_bytes: Rate(log_bytes),
            half,
        } = self;
        inspection::LoadStatus {
            propose_us,
            apply_us,
            read_us,
            requests,
            wait_us,
            log_bytes,
            half: half.to_wire(),
        }
    }
}

impl ToWire for cluster::HalfStatus {
    type Wire = inspection::HalfStatus;

    fn to_wire(self) -> Self::Wire {
        let Self {
            slot: Slot(slot),
            below: Percent(below),
        } = self;
        inspection::HalfStatus { slot, below }
    }
}

impl ToWire for peer_protocol::Refusal {
    type Wire = inspection::Refusal;

    fn to_wire(self) -> Self::Wire {
        match self {
            Self::Unknown(why) => inspection::Refusal::Unknown(why),
            Self::Conflict(why) => inspection::Refusal::Conflict(why),
            Self::Unavailable(why) => inspection::Refusal::Unavailable(why),
        }
    }
}

/// Rules that are not saved stay with the node that was asked.
impl ToWire for api::AclQuestion {
    type Wire = inspection::AclQuestion;

    fn to_wire(self) -> Self::Wire {
        inspection::AclQuestion {
            client_id: self.client_id,
            action: self.action,
            topic: self.topic,
            user: self.user,
            address: self.address,
        }
    }
}
