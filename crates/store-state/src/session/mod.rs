//! The session store: who owns a client identifier, until when, and its will.
//!
//! Purpose: one record per client; what becomes of sessions and wills as connections come and go, and
//! as time passes.
//!
//! Invariants: an epoch is given once, and each is higher than those before; a client has at most one
//! owner; what a user has made no other user resumes; a will that is due is told of until it is [`SessionOp::Fired`], and the end of a session that
//! has an inbox until that is [`SessionOp::Gone`], whatever the client does meanwhile; a will of a connection that
//! was taken over from another process is published once, unless that process says that the client has discarded it.
//!
//! Deliberately absent: subscriptions and queues (`inbox` has them), connections, and when a CONNECT
//! may claim a client identifier.
//!
//! Read next: `rules` for what happens, `records` for what is kept, `tables` for how it is written.

mod by_epoch;
mod held;
pub mod inspect;
mod machine;
mod older_wills;
mod op;
mod record;
mod records;
mod rules;
mod split;
mod survey;
mod tables;
#[cfg(test)]
mod tests;

pub use machine::{SessionCounts, SessionMachine, clients};
pub use op::{
    ClaimByUser, ClaimRequest, Claimed, OfAnotherUser, SessionEnd, SessionOp, SessionOutlet,
    SessionReply, StoredWill, TakenFrom, WillAtClose,
};
pub use tables::begin_anew;
