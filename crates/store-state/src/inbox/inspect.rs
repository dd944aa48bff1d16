//! What people can look up in an inbox shard. Nothing here reads the disk, but what waits in a queue.

use std::ops::Range;

use mqtt_session::{ClassId, Timestamp};

use super::inbox::Inbox;
use super::legacy::is_left;
use super::name::InboxNumber;
use super::queue::trim::first_unsent;
use super::{InboxId, InboxMachine, Item, Queued, StoredSubscription};
use crate::{Table, TableError};

/// The epoch of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch(pub u64);

/// An inbox, without what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InboxSummary {
    /// Messages that are queued.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time before which none of them came; `None`: there are none, or it is not known.
    pub oldest_since: Option<Timestamp>,
    /// Subscriptions of the session.
    pub subscriptions: u64,
    /// Whether the client is connected, as far as the shard knows.
    pub is_connected: bool,
    /// Whether a node has the session: its client is connected, or has left a moment ago.
    pub is_attached: bool,
    /// The number of the inbox.
    pub number: InboxNumber,
    /// Of the connection that had it last.
    pub epoch: Epoch,
    /// Of its client.
    pub class: ClassId,
}

/// A session that would get a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WouldGet {
    /// The client identifier.
    pub client: Box<str>,
    /// The first of its subscriptions that match.
    pub filter: Box<str>,
    /// The QoS of that.
    pub qos: u8,
    /// Messages that are queued for it.
    pub queued: u64,
    /// Its class.
    pub class: ClassId,
}

/// Sessions without a connection that would get a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WouldQueue {
    /// Some of them.
    pub first: Vec<WouldGet>,
    /// How many there are among those that were looked at.
    pub count: u64,
    /// Whether all were looked at.
    pub counted_all: bool,
}

fn find<'a>(machine: &'a InboxMachine, client: &str) -> Option<&'a Inbox> {
    machine.inboxes.get(machine.inboxes.number_of(client)?)
}

/// The inbox of a client.
#[must_use]
pub fn summary(machine: &InboxMachine, client: &str) -> Option<InboxSummary> {
    let inbox = find(machine, client)?;
    let ages = inbox.queue.ages();
    Some(InboxSummary {
        messages: inbox.queue.len().into(),
        bytes: inbox.queue.bytes(),
        oldest_since: ages.and_then(|ages| ages.since(inbox.queue.head())),
        subscriptions: inbox.subscriptions.len() as u64,
        is_connected: inbox.is_connected(),
        is_attached: inbox.is_attached(),
        number: inbox.id().number,
        epoch: Epoch(inbox.epoch),
        class: inbox.class,
    })
}

/// What waits in a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsent {
    /// Whose it is.
    pub inbox: InboxId,
    /// Whether the client is connected, as far as the shard knows.
    pub is_connected: bool,
    /// Sequences from the first that cannot have been sent, unless the client is connected, to the next one.
    pub sequences: Range<u64>,
}

/// What waits for a client.
#[must_use]
pub fn unsent(machine: &InboxMachine, client: &str) -> Option<Unsent> {
    let inbox = find(machine, client)?;
    Some(Unsent {
        inbox: inbox.id(),
        is_connected: inbox.is_connected(),
        sequences: first_unsent(&inbox.queue)..inbox.queue.next(),
    })
}

/// The subscription of a client with a filter as it was given.
#[must_use]
pub fn subscription<'a>(
    machine: &'a InboxMachine,
    client: &str,
    filter: &str,
) -> Option<&'a StoredSubscription> {
    let all = &find(machine, client)?.subscriptions;
    let at = all.binary_search_by(|subscription| (*subscription.filter).cmp(filter));
    all.get(at.ok()?)
}

/// The first `limit` subscriptions of a client, shared ones included, in the order of their filters as they were given,
/// behind `after`; empty: from the first on.
#[must_use]
pub fn subscriptions(
    machine: &InboxMachine,
    client: &str,
    after: &str,
    limit: usize,
) -> Option<Vec<StoredSubscription>> {
    let all = &find(machine, client)?.subscriptions;
    let first = all.partition_point(|subscription| &*subscription.filter <= after);
    let rest = all.get(first..).unwrap_or_default();
    Some(rest.iter().take(limit).cloned().collect())
}

/// A part of what waits in a queue.
#[derive(Clone, Debug)]
pub struct QueuePart {
    /// The messages with their sequences, ascending.
    pub messages: Vec<(u64, Item)>,
    /// The sequence from which on the next ones may stand; `None`: there are none.
    pub next: Option<u64>,
}

/// What waits for a client from a sequence on, until there are `items` of it or `bytes`. Reads the tables.
///
/// # Errors
/// They cannot be read.
pub fn queue(
    machine: &mut InboxMachine,
    client: &str,
    from: u64,
    limits: (usize, usize),
    table: &dyn Table,
) -> Result<Option<QueuePart>, TableError> {
    let number = machine.inboxes.number_of(client);
    let inbox = number.and_then(|number| machine.inboxes.get_mut(number));
    let stock = &machine.stock;
    let part = inbox.map(|Inbox { queue, .. }| {
        let mut page = Vec::new();
        // As of a client that is away: what is read here is not what its connection is acknowledging.
        let next = queue.page(from, limits, false, stock, table, &mut page)?;
        let messages = page
            .into_iter()
            .filter_map(|(sequence, queued)| match queued {
                Queued::Message(item) => Some((sequence, item)),
                Queued::Released => None,
            });
        Ok(QueuePart {
            messages: messages.collect(),
            next: (next < queue.next()).then_some(next),
        })
    });
    part.transpose()
}

/// Sequences of a queue that was looked at for messages of a group which others may have: from the first of these on; empty:
/// none was found. Behind them nothing was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftPart(pub Range<u64>);

impl LeftPart {
    /// Looks for messages that a session which is away may leave to a group, from a sequence on: at as many as `limits` say, and
    /// at their bytes. `None`: there is no such inbox, or a node has it. Reads the tables.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn find(
        machine: &mut InboxMachine,
        (inbox, group): (InboxId, &str),
        from: u64,
        limits: (usize, usize),
        table: &dyn Table,
    ) -> Result<Option<Self>, TableError> {
        let stock = &machine.stock;
        let found = machine.inboxes.get_mut(inbox.number.0);
        let part = found.filter(|inbox| !inbox.is_attached()).map(|inbox| {
            let queue = &mut inbox.queue;
            let mut page = Vec::new();
            let next = queue.page(from, limits, false, stock, table, &mut page)?;
            let first = page.iter().find_map(|(sequence, queued)| match queued {
                Queued::Message(item) => is_left(item, group).then_some(*sequence),
                Queued::Released => None,
            });
            Ok(Self(first.unwrap_or(next)..next))
        });
        part.transpose()
    }
}

/// Who without a connection would get a message of a topic: `limit` of them, of at most `looked_at` sessions that match.
/// Shared groups are not in it.
#[must_use]
pub fn would_queue(
    machine: &InboxMachine,
    topic: &str,
    limit: usize,
    looked_at: usize,
) -> WouldQueue {
    let numbers = machine.matching.look(topic, &machine.inboxes);
    let mut found = WouldQueue {
        counted_all: numbers.len() <= looked_at,
        ..WouldQueue::default()
    };
    let inboxes = numbers.into_iter().take(looked_at);
    let inboxes = inboxes.filter_map(|number| machine.inboxes.get(number));
    for inbox in inboxes.filter(|inbox| !inbox.is_connected()) {
        found.count += 1;
        if found.first.len() >= limit {
            continue;
        }
        let mut subscriptions = inbox.own_subscriptions();
        let matching = subscriptions.find(|of| mqtt_proto::filter_matches(&of.filter, topic));
        if let Some(subscription) = matching {
            found.first.push(WouldGet {
                client: inbox.client.clone(),
                filter: subscription.filter.clone(),
                qos: subscription.options.qos as u8,
                queued: inbox.queue.len().into(),
                class: inbox.class,
            });
        }
    }
    found
}
