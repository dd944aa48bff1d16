//! What an entry of the loop's clients has to do with routes that outlive connections.

use mqtt_session::TakenSubscriptions;
use net_api::Key;

use crate::inbox::Epoch;
use crate::retained::backlog::Replay;

/// What an entry has to do with routes that outlive connections.
#[derive(Debug)]
pub(crate) enum Kept {
    /// It holds them, and has no connection itself any more.
    Here(Lingering),
    /// That entry holds those of this session.
    By(Key),
}

/// Routes that are held.
#[derive(Debug)]
pub(crate) struct Lingering {
    /// Of the connection that the inbox was attached for last.
    pub(super) epoch: Epoch,
    /// The entry of the last client that was connected.
    pub(super) last: Key,
    /// What the routes are for; `None`: the successor is connected and has it.
    pub(super) subscriptions: Option<TakenSubscriptions>,
    /// Retained messages that they still owe.
    pub(super) replay: Option<Box<Replay>>,
    /// The client that is connected since, or about to be.
    pub(super) successor: Option<Key>,
    pub(super) until_ms: u64,
    /// When the loop looks at it next; 0: it is not armed.
    pub(super) armed_ms: u64,
    /// Bytes of messages that may still come.
    pub(super) late_bytes: usize,
    /// It is among those that are over.
    pub(super) is_over: bool,
}
