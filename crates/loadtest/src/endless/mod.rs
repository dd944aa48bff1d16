//! Clients that all do one thing until somebody stops them: keep a connection, receive, or publish.
//!
//! Purpose: load without an end, described by a count, a rate and a topic with variables, as `emqtt_bench` has it.
//!
//! Call order: [`Run::start`]; [`Run::hear`] again and again, and [`Run::begin`] once if publishers wait for
//! all to be connected; [`Run::stop`]. The worker processes run [`serve`].
//!
//! Invariant: what happens to a client ends no run. It is counted by reason, and the client connects again.
//!
//! Deliberately absent: which message was lost, duplicated or reordered, since publishers and subscribers are runs
//! that know nothing of each other ([`crate::engine`] has that); a warm-up; agents on other machines; noticing that
//! a broker answers no PINGREQ.
//!
//! Where to read next: `order.rs` (what is done), `worker.rs` (how), `run.rs` (who asks for it).

mod counts;
mod criteria;
mod order;
mod pattern;
mod payload;
mod run;
mod serve;
mod worker;

pub use counts::{Count, Counts, Times};
pub use criteria::{Criteria, Outcome};
pub use order::{Activity, Clients, Order, Publishing};
pub use pattern::{Pattern, Variable};
pub use payload::{Payload, Template};
pub use run::{Run, RunError};
pub use serve::serve;
