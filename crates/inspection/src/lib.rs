//! What nodes ask each other for people, and what they answer.
//!
//! Bytes are JSON behind one tag of the peer protocol. Invariant: they are read by nodes of other versions, so that a field is added
//! with a default, and none is renamed, removed or given another type (docs/decisions/0023-questions-to-all-nodes.md);
//! `tests/golden` has each of them. All parts are types of this crate, so that a change of the HTTP API does not change them.
//!
//! `merge` puts together what several nodes have answered.
//!
//! Deliberately absent: how bytes reach a node (`peer-protocol`, `cluster`); who asks and who answers (`broker`); the types of the
//! HTTP API (`admin`).
//!
//! Read on in `question.rs` and `answer.rs`; `form.rs` has the bytes.

mod answer;
mod client;
mod event;
mod form;
mod group;
mod matching;
pub mod merge;
mod messages;
mod node;
mod outlet;
mod part;
mod position;
mod profile;
mod question;
mod shard;
mod value;

pub use answer::{Answer, Missing, MissingReason, Refusal};
pub use client::{
    ChangePart, Client, ClientPart, ClientRow, ClientsPart, Connection, Departure, Ending, Gone,
    HeldReason, InboxPart, PublisherHold, Queue, RecentDrop, RecordPart, Session, SubscriptionRow,
    SubscriptionsOf, WaitsFor, WillOf,
};
pub use event::{
    Event, EventKind, EventSubject, EventsPart, EventsQuestion, Missed, Place, SubjectState,
};
pub use form::{Asked, Unreadable};
pub use group::{GroupMember, GroupShare, MembersPart, MembersQuestion, SharedGroupRow};
pub use matching::{
    AclPart, DecidedBy, DropRow, MatchCounts, MatchPart, Outcome, PlacedDrop, QueueLimit, Receiver,
    Verdict,
};
pub use messages::{
    BusyClient, BusyOrder, BusyPart, BusyRates, BusyRole, BusyTopic, Encoding, FailedLoginsRow,
    FailedUser, Held, HolderRow, Message, MessagesAnswer, MessagesQuestion, PlaceRange, QueueOrder,
    QueuePurge, QueueRow, QueuedMessage, RefusedLoginsRow, RetainedLevelRow, RetainedPart,
    RetainedRow, SessionDrops, UserProperty, WaitingPart, WaitingQuestion, WatchedClient,
};
pub use node::{
    Alarm, Counts, DrainProgress, HistoryPart, ListenerCertificate, ListenerRow, LoginSession,
    NodeHealth, Role, Setting, SettingPart,
};
pub use outlet::{OutletDrops, OutletFigures, OutletHere, OutletState};
pub use part::{ANSWER_BYTES, Part, few, short, size};
pub use position::Position;
pub use profile::{
    AllocatorBytes, CpuProfile, EarlierThreads, MemoryKnown, MemoryProfile, MemoryRow,
    ProfileAnswer, ProfileQuestion, ProfiledModule, ProfiledStack, ProfiledThread, ThreadUsageRow,
    ThreadsUsage, TurnTimes,
};
pub use question::{
    AclQuestion, AskedChange, ChangeQuestion, ClientsQuestion, DropsQuestion, NewSubscription,
    NodeCommand, Question, SessionQuestion, TokenHash,
};
pub use shard::{HalfStatus, LedShard, LoadStatus, ShardHolds, SplitStatus};
pub use value::{
    Amount, At, BigNumber, ClientState, Limit, NodeId, Sequence, ShardName, StoreName, UnixMs,
};
