//! Load for any MQTT broker, and what came of it.
//!
//! Purpose: play a [`Scenario`] against a broker with an [`Engine`], count exactly what was lost,
//! duplicated and reordered ([`verify`]), and measure latency from the moment a message was due.
//!
//! Invariant: the load does not slow down because the broker does. A message that cannot be sent keeps
//! its due time and waits, and its wait is part of its latency.
//!
//! Deliberately absent: everything inside a broker. This is a client; it shares only the codec.
//!
//! Where to read next: `scenario.rs` (what is played), `plan.rs` (what the
//! reports play), `engine.rs` (how), `verify.rs` (what is counted).

#![forbid(unsafe_code)]

mod client;
mod clock;
mod descriptors;
mod engine;
mod measure;
mod plan;
mod process;
mod published;
pub mod report;
mod scenario;
mod schedule;
mod traffic;
pub mod verify;

pub use client::{Client, ClientError, Event, Options};
pub use clock::monotonic_ns;
pub use descriptors::{TooFewDescriptors, reserve_descriptors};
pub use engine::{Engine, EngineError, Target};
pub use measure::{BrokerUsage, MeasureError, Measured, Settings, measure};
pub use plan::{NameError, Plan, Source};
pub use process::{Cpu, Process};
pub use published::{Published, published};
pub use scenario::{Pace, Scenario, ScenarioError, Topology};
pub use schedule::Schedule;
pub use traffic::{Outcome, Totals};
