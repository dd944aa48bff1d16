//! The HTTP API of a node: `/api/v1`, `/metrics`, `/healthz`, `/readyz`.
//!
//! Purpose: [`router`] answers requests with what a [`Broker`] says; [`serve`] is the port. Types of [`api`] are the JSON of
//! answers, which the command line reads as well; [`document`] describes all of it.
//!
//! Invariant: each route stands in a group of `routes`, and the group says which role it needs.
//!
//! Where to read next: `routes/mod.rs` for the paths, `rights` for who may use them, `page.rs` for lists, `problem.rs` for
//! refusals.
//!
//! Deliberately absent: where answers come from (`broker/src/inspect`).

mod access;
pub mod api;
mod api_state;
mod backend;
pub mod cluster;
mod connection;
mod dashboard;
mod pace;
pub mod page;
mod places;
pub mod problem;
mod requests;
mod rights;
mod routes;
mod serve;
mod streams;
mod trail;
mod unread;
mod worker;

pub use access::{Access, AuditPart, ChangeError, Changing, Made, WeakHashes};
pub use backend::{
    ApiChange, Asked, Broker, ClientFilter, DropFilter, EventFilter, Gathered, Groups,
    LoginAttempt, MetricsFormat, NodeCommand, Outlets, Processes, Profiles, QueueQuestion, Range,
    SessionQuestion, Traffic,
};
pub use pace::{Debt, thread_cpu};
pub use rights::{
    Added, Anonymous, Caller, Key, KeyFile, KeyFileError, KeyId, Keys, LoginSession, NoSuchRole,
    People, PersonStanding, Rights, Role, Sessions, Source, Token, TokenHash, Who,
};
pub use routes::{document, not_ready, router};
pub use serve::{Tls, serve};
pub use trail::{Often, Trail};
