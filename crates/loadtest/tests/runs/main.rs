//! Whole runs in one process: workers as threads, against a broker that does right, or wrong when told to.
//!
//! Invariant: whatever the broker did is known exactly, so what the tool says of it can be checked exactly.
//!
//! Where to read next: `broker.rs`, `crew.rs`.

mod activities;
mod broker;
mod crew;
mod faults;
mod latencies;
mod listed;
mod plans;
mod reconnects;
mod topologies;
mod transports;
mod workers;
