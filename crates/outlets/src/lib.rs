//! The process of an outlet, which takes messages of a durable session of its node to a target, or of an inlet, which publishes at
//! its node what another broker sends.
//!
//! Purpose: [`process`] is the process; a node starts it with two sockets, one that speaks MQTT and one for [`Command`]s and [`Report`]s.
//! [`check`] and [`probe`] are for people. Which targets there are, the program says ([`Connectors`]); [`Program`] says which program an
//! outlet has.
//!
//! Invariants: those of [`outlet::Pump`] and [`outlet::Inlet`]. The process ends when its node is gone, and when another process has the outlet. Secrets
//! are read from files by the process itself, and stand in no report. A rule that does not end
//! ends the process, not the outlet (`rules.rs`).
//!
//! Deliberately absent: which node runs an outlet, and when (`broker`).
//!
//! Where to read next: `process.rs`; `worker.rs` for outlets, `inlet/` for inlets.

mod built_in;
mod command;
mod definition;
mod epoch;
mod inlet;
mod kafka_definition;
mod lines;
mod link;
mod nats;
pub mod path;
mod process;
mod program;
mod properties;
mod record;
mod remote;
mod report;
mod rule_texts;
mod rules;
mod secret;
mod target;
mod targets;
mod transfer;
mod watchdog;
mod worker;

pub use built_in::BuiltIn;
pub use command::{Caution, Command};
pub use definition::{
    BodyForm, BrokerDefinition, Definition, EVENTS, HttpDefinition, MessageCount, MqttDefinition,
    NatsDefinition, NatsServersDefinition, TargetDefinition, client_id,
};
pub use epoch::{Epoch, POSITION};
pub use inlet::{
    Arrival, InletDefinition, Intake, MqttSourceDefinition, NatsSourceDefinition, Source,
    SourceDefinition, Token,
};
pub use kafka_definition::{
    KafkaDefinition, KafkaServersDefinition, KafkaSourceDefinition, SaslDefinition,
};
pub use lines::Ended;
pub use process::{check, probe, process, run};
pub use program::{CHECK, PROBE, PROCESS, Program};
pub use report::{Count, Doing, Micros, Report, Size, Told, UnixMs};
pub use rule_texts::RuleTexts;
pub use rules::TOO_LONG_EXIT;
pub use secret::read_secret;
pub use target::{Connectors, Target};
pub use targets::postgres::{ColumnDefinition, PostgresDefinition, RowsDefinition};
pub use transfer::Transfer;
