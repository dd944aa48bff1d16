//! The retain store: the last retained message of each topic.

mod op;

pub use op::{RetainOp, RetainReply};
