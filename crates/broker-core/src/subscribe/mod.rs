//! SUBSCRIBE and UNSUBSCRIBE, of clients and of operators on their behalf.
//!
//! Purpose: `grant.rs` is a part of a loop. What is under way stands with each client, in its [`parts::Parts`]; nothing is kept for the
//! loop as a whole.
//!
//! | call | when | costs |
//! |---|---|---|
//! | `handle_subscribe`, `handle_unsubscribe` | a packet has come, and the client waits for nothing | a judgement and a route for each filter of a part; a question to the inbox of a durable session |
//! | `handle_rest` | such a packet is offered again, as it yielded or its client waited | the same for the next parts |
//! | `handle_answer` | the inbox, the retain shards or other nodes have answered | a route for each filter |
//! | `on_behalf::change` | an operator asks; the client is told to be busy while it waits | as one filter |
//! | `remove_routes`, `remove_subscriptions` | a session ends; a right is gone | a route for each filter |
//!
//! Invariants: SUBACK follows the record of its subscriptions, and is sent when all live nodes know their routes; a packet is answered
//! once, in the order of its filters.
//!
//! Deliberately absent: what retained messages follow (`retained`), and which rights there are (`rights`).

pub(crate) mod asked;
pub(crate) mod grant;
pub(crate) mod on_behalf;
pub(crate) mod parts;
mod room;
#[cfg(test)]
mod tests;
mod told;
pub(crate) mod waiting;
