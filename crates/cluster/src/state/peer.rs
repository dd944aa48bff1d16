//! The links to and from one other node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::members::reach::Contact;
use crate::protocol::channel::Channel;
use crate::state::outbox::Outbox;
use crate::state::stats::{LinkCounters, LinkReading};

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) node: u64,
    links: [Link; 3],
    /// The highest that was heard of. Connections with a lower one end.
    pub(crate) incarnation: watch::Sender<u64>,
    /// The process that was first seen with an incarnation: the two numbers.
    process: Mutex<Option<(u64, u64)>>,
    /// It is a member no longer.
    pub(crate) gone: CancellationToken,
}

/// One channel: our connection to the peer, and its connection to us.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) outbox: Outbox,
    /// The version of the protocol that was agreed on for our connection, while it is up.
    pub(crate) version: AtomicU16,
    /// When our connection was last up, if it is not.
    pub(crate) connected_ms: AtomicU64,
    /// Our last attempt to connect was refused by the peer's host.
    pub(crate) refused: AtomicBool,
    /// There is reason to hope that connecting succeeds now.
    pub(crate) retry: Notify,
    /// When bytes last came on the peer's connection.
    pub(crate) heard_ms: Arc<AtomicU64>,
    /// Ends the peer's connection.
    incoming: Mutex<Option<CancellationToken>>,
    pub(crate) counters: LinkCounters,
}

impl Peer {
    pub(crate) fn new(node: u64, incarnation: u64, now_ms: u64) -> Self {
        Self {
            node,
            links: Channel::ALL.map(|channel| Link::new(channel, now_ms)),
            incarnation: watch::Sender::new(incarnation),
            process: Mutex::default(),
            gone: CancellationToken::new(),
        }
    }

    pub(crate) fn link(&self, channel: Channel) -> &Link {
        let [raft, data, bulk] = &self.links;
        match channel {
            Channel::Raft => raft,
            Channel::Data => data,
            Channel::Bulk => bulk,
        }
    }

    pub(crate) fn raise_incarnation(&self, incarnation: u64) {
        self.incarnation.send_if_modified(|known| {
            let is_higher = incarnation > *known;
            *known = incarnation.max(*known);
            is_higher
        });
    }

    /// Whether the process is the first of its incarnation.
    pub(crate) fn is_process(&self, incarnation: u64, instance: u64) -> bool {
        let mut process = self.process.lock();
        match *process {
            Some((known, first)) if known == incarnation => first == instance,
            _ => {
                *process = Some((incarnation, instance));
                true
            }
        }
    }

    pub(crate) fn contact(&self, stopping: bool) -> Contact {
        let data = self.link(Channel::Data);
        Contact {
            connected: data.outbox.is_open(),
            connected_ms: data.connected_ms.load(Relaxed),
            heard_ms: data.heard_ms.load(Relaxed),
            stopping,
            refused: data.refused.load(Relaxed),
        }
    }

    pub(crate) fn readings(&self) -> impl Iterator<Item = LinkReading> {
        Channel::ALL.into_iter().map(|channel| {
            let Link {
                outbox, counters, ..
            } = self.link(channel);
            LinkReading {
                node: self.node,
                channel,
                connected: outbox.is_open(),
                connects: counters.connects.load(Relaxed),
                sent_frames: counters.sent_frames.load(Relaxed),
                sent_bytes: counters.sent_bytes.load(Relaxed),
                received_frames: counters.received_frames.load(Relaxed),
                received_bytes: counters.received_bytes.load(Relaxed),
                queued_bytes: outbox.bytes() as u64,
            }
        })
    }
}

impl Link {
    fn new(channel: Channel, now_ms: u64) -> Self {
        Self {
            outbox: Outbox::new(channel),
            version: AtomicU16::new(0),
            connected_ms: AtomicU64::new(now_ms),
            refused: AtomicBool::new(false),
            retry: Notify::new(),
            heard_ms: Arc::new(AtomicU64::new(now_ms)),
            incoming: Mutex::default(),
            counters: LinkCounters::default(),
        }
    }

    pub(crate) fn has_incoming(&self) -> bool {
        self.incoming.lock().is_some()
    }

    /// A connection of the peer begins, with what ends it. Whether it takes the place of another, which is
    /// ended.
    pub(crate) fn begin_incoming(&self, end: CancellationToken) -> bool {
        let earlier = self.incoming.lock().replace(end);
        earlier.map(|earlier| earlier.cancel()).is_some()
    }

    /// A connection of the peer has ended. Whether it was the current one: the one that is not cancelled.
    pub(crate) fn end_incoming(&self, end: &CancellationToken) -> bool {
        let is_current = !end.is_cancelled();
        if is_current {
            self.incoming.lock().take();
        }
        is_current
    }
}
