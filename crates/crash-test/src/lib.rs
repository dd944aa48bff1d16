//! A black-box test of durability: real brokers are killed at random instants, lose what they did not
//! sync, meet full disks and failing syncs; clients of many kinds work meanwhile, and a model of what was
//! sent and acknowledged says what has to arrive.
//!
//! Purpose: to find an acknowledged message that is lost, a QoS 2 message that arrives twice, a session,
//! subscription, will or retained message that does not survive. A run is repeatable in its choices, not
//! in its timing: a seed says what clients do, the machine says when.
//!
//! Deliberately absent: anything from inside a broker. The tool works with any; what it says of one that
//! keeps everything in memory is that it loses everything.
//!
//! Where to read next: [`model`] records, [`verify`] judges, [`client`] speaks MQTT, [`subject`] is the
//! broker's process, [`faults`] break it, [`run`] plays rounds.

#![forbid(unsafe_code)]

pub mod cast;
pub mod chance;
pub mod client;
pub mod faults;
pub mod model;
pub mod run;
pub mod subject;
pub mod verify;
pub mod visitor;
