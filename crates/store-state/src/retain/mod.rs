//! The retain store: the last retained message of each topic.
//!
//! Purpose: what a retain shard keeps, and pages of it for a topic filter.
//!
//! Invariants: at most one message per topic; what is counted is what is kept; an expired message is
//! not handed out, and is removed when [`RetainOp::Expire`] comes; what a rule does not keep is removed by
//! [`RetainOp::Remove`], which whoever leads the shard proposes.
//!
//! Deliberately absent: who asks, and the broker's own `$SYS` topics, which are of no use after a
//! restart.
//!
//! Read next: [`RetainMachine`].

mod budget;
mod look;
mod machine;
mod op;
mod recent;
mod rules;
mod split;
#[cfg(test)]
mod tests;

pub use budget::PageBudget;
pub use look::{RetainedAmount, RetainedView};
pub use machine::{RetainMachine, topics};
pub use op::{
    ConnectionNumber, PublisherHash, RetainOp, RetainOutlet, RetainReply, RetainedAt, RetainedEnd,
    RetainedSince, Writer,
};
pub use rules::{RetainedLimits, RetainedRule, RetainedRules};
