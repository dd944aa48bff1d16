//! The session store: who owns a client identifier, until when, and its will.

mod op;

pub use op::{Claimed, SessionOp, SessionOutlet, SessionReply, StoredWill, WillAtClose};
