//! What a node decides about MQTT: connections and logins, takeover, the way of a publication and its
//! acknowledgement, subscriptions, shared groups, retained messages, wills, back-pressure, drops.
//!
//! A [`ClientLoop`] has the clients of one event loop, a [`Node`] what the loops of a node share. Events come by the
//! methods of [`net_api::Service`], with the loop's [`net_api::Connections`]; what the logic needs beside that is
//! behind the traits of `rim.rs`.
//!
//! Deliberately absent: sockets, threads, files and clocks (`broker`), packets' bytes (`mqtt-proto`), the rules of a
//! session (`mqtt-session`), where shards are (`store`).

// The fakes of the scripts are the simulation's as well, and name this crate as it does.
#[cfg(test)]
extern crate self as broker_core;

mod backpressure;
mod bridge;
pub mod classes;
mod clients;
mod connect;
mod dispatch;
mod drain;
mod drops;
mod end;
mod events;
mod excerpt;
mod handover;
mod inbox;
pub mod inspect;
mod key;
mod linger;
mod node;
mod peers;
mod pending;
mod publish;
mod quotas;
mod rejudge;
mod reopening;
mod retained;
mod rights;
mod rim;
mod route_table;
mod routes;
mod session;
mod session_drops;
mod settings;
mod share;
mod shared;
mod stats;
mod subscribe;
mod sys;
#[cfg(test)]
mod tests;
mod traffic;
mod turn;
mod will;

pub use backpressure::held_time::{Held, HeldReason, Share};
pub use backpressure::pairs::HeldBy;
pub use backpressure::slow::SlowSubscribers;
pub use clients::{Advice, Done, FromLoop, LoopMessage, SendAway, SentOn, Thousandths};
pub use connect::departures::Departure;
pub use connect::refused::{Cause, RefusedLogin};
pub use dispatch::ClientLoop;
pub use drops::{Drop, Drops, DropsSince, Reason};
pub use events::{
    ClientEvent, Happened, SessionEvent, SessionHappened, SubscriptionEvent, SubscriptionHappened,
};
pub use excerpt::excerpt;
pub use key::SessionKey;
pub use node::{Node, NodeOptions, Pressure};
pub use peers::{LINK_FULL, Links, PeerEvent, Peers, Place, TICK_MS, ThisNode};
pub use publish::STORED_NAME;
pub use publish::direct::Direct;
pub use publish::latency::LatencyStats;
pub use publish::operator::{Operator, PublishForOperator, Published};
pub use rights::access::{Authorization, DecidedBy, Verdict};
pub use rim::Rim;
pub use routes::{MatchCache, MatchSet, NodeTarget, Routes, RoutesUnknown, Target};
pub use session::unreleased::Unreleased;
pub use session_drops::SessionDrops;
pub use settings::Settings;
pub use shared::groups::{Group, GroupCounts, Member};
pub use stats::{BrokerStats, ClosedBeforeConnect, sum};
pub use subscribe::asked::{Change as SubscriptionChange, ChangeSubscription, Changed};
pub use subscribe::on_behalf::{AwaySession, admit_away};
pub use sys::{is_internal, is_own};
pub use traffic::{
    Amount, Busy, Bytes, Delays, HeavyHitter, Measure, Messages, TrafficAnswer, TrafficQuestion,
    Uncounted, WINDOW_MS, WatchedTraffic,
};
