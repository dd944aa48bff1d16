//! The process of an outlet: it takes messages of a durable session of its node to a target.
//!
//! Purpose: [`process`] is the process; a node starts it with two sockets, one that speaks MQTT and one for [`Command`]s and [`Report`]s.
//! [`check`] and [`probe`] are for people.
//!
//! Invariants: those of [`outlet::Pump`]. The process ends when its node is gone, and when another process has the outlet. Secrets
//! are read from files by the process itself, and stand in no report.
//!
//! Deliberately absent: which node runs an outlet, and when (`broker`).
//!
//! Where to read next: `worker.rs`.

mod definition;
mod epoch;
mod link;
mod record;
mod report;
mod secret;
mod target;
mod targets;
mod worker;

pub use definition::{
    BodyForm, Definition, EVENTS, HttpDefinition, MessageCount, MqttDefinition, TargetDefinition,
    client_id,
};
pub use report::{Command, Count, Doing, Micros, Report, Size, UnixMs};
pub use worker::{Ended, check, probe, process, run};
