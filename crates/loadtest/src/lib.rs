//! Load for any MQTT broker, and what came of it.
//!
//! Purpose: play a [`Workload`] against a broker with an [`Engine`], count exactly what was lost,
//! duplicated and reordered ([`verify`]), and measure latency from the moment a message was due.
//!
//! Invariant: the load does not slow down because the broker does. A message that cannot be sent keeps
//! its due time and waits, and its wait is part of its latency.
//!
//! Deliberately absent: everything inside a broker. This is a client; it shares only the codec. What MQTT asks of a
//! client is [`mqtt_client`]'s.
//!
//! Where to read next: `scenario.rs` (what is played), `plan.rs` (what the
//! reports play), `engine.rs` (how), `verify.rs` (what is counted).

#![forbid(unsafe_code)]

pub mod agent;
mod client;
mod clock;
mod coordinator;
mod crew;
mod criteria;
mod descriptors;
pub mod endless;
mod engine;
mod listed;
mod meter;
mod payload;
mod plan;
mod played;
mod protocol;
mod published;
mod qos_number;
mod readings;
mod schedule;
mod search;
mod shards;
mod system;
pub mod tbmq;
mod topology;
mod traffic;
pub mod verify;
pub mod worker;
pub mod workload;

pub use client::{ByteCounts, Client, ClientError, Event, Options, Outgoing, Path, Scratch};
pub use clock::{Timer, monotonic_ns};
pub use coordinator::{News, Observer, PlayError, Played, Settings, play};
pub use crew::{Crew, CrewError, Recruit};
pub use criteria::{Criteria, CriteriaError, Verdict};
pub use descriptors::{most_connections, prepare_descriptors};
pub use engine::{Engine, EngineError, Listener, Outcome, Progress, Share, Target};
pub use listed::{Listed, PublisherGroup, SubscriberGroup};
pub use meter::Headline;
pub use plan::{NameError, Plan, Source};
pub use played::Title;
pub use published::{Published, published};
pub use schedule::Schedule;
pub use search::{Search, SearchError, SearchResult, SearchSettings};
pub use shards::{NodeShards, ShardBook, StoreShards};
pub use system::{Reading, System};
pub use topology::Topology;
pub use traffic::Totals;
pub use workload::Workload;
