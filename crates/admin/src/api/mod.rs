//! What the API's answers are made of. Times are RFC 3339 in UTC with milliseconds; `null` means that something is not known,
//! or does not apply.

mod access;
mod audit;
mod ban;
mod change;
mod client;
mod drops;
mod event;
mod failed_login;
mod health;
mod history;
mod login;
mod matching;
mod message;
mod node;
mod outlet;
mod people;
mod profile;
mod queue;
mod rule;
mod setting;
mod shard;
mod stats;
mod subscription;
mod top;

pub use access::{
    AccessEffects, AccessGroup, AccessImported, AccessKind, AccessPlanned, AccessRules,
    AccessStanding, AccessStatus, AccessUser, AccessUserMade, Amount, NewAccessGroup,
    NewAccessPassword, NewAccessRules, NewAccessUser, Proof, RevisionNumber, Would,
};
pub use audit::{AuditField, AuditHead, AuditRow};
pub use ban::{Ban, NewBan};
pub use change::NodeChange;
pub use client::{
    Client, ClientOrder, ClientRow, ClientState, Connection, Departure, Gone, HeldReason,
    PublisherHold, Queue, RecentDrop, Session, SubscriptionsOf, WaitsFor, WillOf,
};
pub use drops::{DropRow, DropTotals, HolderRow, SessionDrops};
pub use event::{Event, EventKind, EventSubject, Gap, Happened, SubjectState};
pub use failed_login::{FailedLoginsRow, FailedUser, RefusedLoginsRow};
pub use health::{Health, HealthState, NodeCheck};
pub use history::{History, NodeHistory, Series, ShardName};
pub use login::{Credentials, Me};
pub use matching::{Match, MatchCounts, MatchRequest, NotReached, Outcome, Publisher, Receiver};
pub use message::{
    Encoding, Message, NewMessage, PublishedMessage, RetainedLevelRow, RetainedRow, UserProperty,
};
pub use node::{Alarm, DrainProgress, ListenerCertificate, ListenerRow, NodeHealth, NodeRow};
pub use outlet::{OutletDirection, OutletDrops, OutletFigures, OutletRow, OutletState};
pub use people::{
    FirstAdministrator, KeyMade, KeyRow, KnownIn, LoginMethods, NewKey, NewPerson, OwnPassword,
    PersonMade, PersonRow, Rotation,
};
pub use profile::{
    AllocatorBytes, CpuProfile, EarlierThreads, MemoryKnown, MemoryProfile, MemoryRow,
    ProfiledModule, ProfiledStack, ProfiledThread, ThreadUsageRow, ThreadsUsage, TurnTimes,
};
pub use queue::{QueueOrder, QueuePurge, QueueRow, QueuedMessage};
pub use rule::{
    AclAnswer, AclQuestion, AclRule, AclRules, AclSubject, DecidedBy, KnownBy, Verdict,
};
pub use setting::{Setting, SettingElsewhere, SettingRow};
pub use shard::{ShardHolds, ShardRow, Voter};
pub use stats::{Counts, NodeStats, Stats};
pub use subscription::{
    GroupMember, NewSubscription, SharedGroupRow, SubscriptionChanged, SubscriptionRow,
};
pub use top::{BusyClient, BusyOrder, BusyRates, BusyRole, BusyTopic, ClientRates, WatchedClient};

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A moment: RFC 3339 in UTC with milliseconds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-11-24T10:12:03.120Z")]
pub struct At(String);

impl At {
    /// Of ms of Unix time.
    #[must_use]
    pub fn unix_ms(ms: u64) -> Self {
        // The last moment that RFC 3339 can say.
        const LAST_MS: u64 = 253_402_300_799_999;
        let time = UNIX_EPOCH + Duration::from_millis(ms.min(LAST_MS));
        Self(humantime::format_rfc3339_millis(time).to_string())
    }
}

/// As another node has said it; it is not checked.
impl From<String> for At {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number that can exceed 2^53, as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[schema(value_type = String, pattern = "^[0-9]+$")]
pub struct BigNumber(String);

impl From<u64> for BigNumber {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

/// As another node has said it; it is not checked.
impl From<String> for BigNumber {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for BigNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
