//! The outlets of this node: which are to be here, their processes, and what is known of them.
//!
//! Purpose: [`Outlets::configure`] says which outlets there are; [`run`] starts a process for each whose inbox shard this node leads,
//! ends it when that changes, and starts it again when it has ended. Nothing runs while no outlet is configured.
//!
//! ```text
//! configure ─► Outlets ─ run: each second, placement and pause ─► Wish ─► attempts ─► Process
//!                 ▲  list, metrics ◄─ Standing ◄──────── reports ───────────┘
//! ```
//!
//! Whether an outlet is paused is a retained message, `$hmq/outlet/NAME/paused`, which clients cannot reach: all nodes know it, and no
//! store has more kinds of rows for it.
//!
//! Deliberately absent: what an outlet does with messages (`outlet`, `outlets`), what is asked of stores and other nodes
//! ([`Rim`], which `inspect` implements), and the HTTP API.
//!
//! Where to read next: `run.rs`.

mod caution;
mod check;
mod collector;
mod events;
mod known;
mod process;
mod rim;
mod run;
mod standing;

pub(crate) use check::check;
pub(crate) use collector::OutletCollector;
pub(crate) use events::tell_events;
pub(crate) use known::Outlets;
pub(crate) use rim::{EventNumber, OwnEvents, Rim, message, pause_topic};
pub(crate) use run::run;
pub(crate) use standing::{Place, Standing};
