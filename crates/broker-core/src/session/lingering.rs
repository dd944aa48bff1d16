//! Sessions that linger, and what comes for them.

use std::collections::VecDeque;

use mqtt_session::{Delivery, TakenSubscriptions};
use net_api::Key;

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
    pub(super) epoch: u64,
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

/// The sessions of a loop that linger.
#[derive(Debug, Default)]
pub(crate) struct Lingerers {
    /// Those that nobody is connected for.
    pub(super) count: usize,
    /// Whose time is over. Their routes are taken out one after the other, each when its inbox is detached.
    pub(super) over: VecDeque<Key>,
    /// The one whose inbox is being detached.
    pub(super) ending: Option<Key>,
    /// Bytes of messages on their way to inboxes.
    pub(super) late_bytes: usize,
}

/// A message for a client that is not connected, on its way to its inbox.
#[derive(Debug)]
pub(crate) struct Late {
    pub(super) client: Box<str>,
    pub(super) holder: Key,
    pub(super) delivery: Delivery,
    pub(super) bytes: usize,
}
