//! Retained messages for new subscriptions, a page at a time.
//!
//! Invariant: a durable session is owed what its inbox shard says, also after a crash or on another node: each page
//! that is stored for it is recorded in one step with the place of the next.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use mqtt_proto::{QoS, ReasonCode};
use mqtt_session::{ApplicationMessage, Delivered, Delivery, Timestamp, Wanted};
use net::Key;
use store::RetainedPlace;
use store_state::inbox::{InboxOp, Item, Progress, StoredSubscription};
use topic_router::Cursor;

use super::pending::{Answer, Pending};
use super::{Client, ClientLoop, LoopIo, Timer, effective, record};
use crate::node::Node;
use crate::sys;

/// Retained messages that are queued for a session at once. The next page follows when these are sent,
/// so a filter that selects a million messages costs the memory of a page.
const PAGE: usize = 64;

/// How soon the store is asked again for a page that it could not give: no node leads the shard.
const ASK_AGAIN_MS: u64 = 1_000;

/// Retained messages that subscriptions still owe a session.
#[derive(Debug, Default)]
pub(super) struct Replay {
    filters: VecDeque<Owed>,
    /// Questions to the store that it waits for.
    blocked: u32,
    /// The store was asked for a page of the first filter.
    asked: bool,
    /// The page that it gave, and where the next one begins.
    page: Option<Page>,
    /// What the store of inboxes has not been told yet, of a durable session.
    progress: Vec<Progress>,
    /// Topics of retained messages that came to the session as they were published: what is kept of
    /// these topics is not newer.
    passed: HashSet<Box<[u8]>, RandomState>,
}

/// Retained messages that have come from another node, and where the next ones begin.
type Page = (Vec<Arc<ApplicationMessage>>, Option<Place>);

/// Topics of which a replay remembers that they passed it by.
const PASSED: usize = 4096;

impl Replay {
    /// What a durable session was owed when its last connection ended; `None`: nothing.
    pub(super) fn resumed(
        owed: Vec<store_state::inbox::Owed>,
        subscriptions: &[StoredSubscription],
    ) -> Option<Self> {
        let filters: VecDeque<Owed> = owed
            .into_iter()
            .filter_map(|owed| {
                let of = |s: &&StoredSubscription| s.filter == owed.filter;
                let StoredSubscription { options, id, .. } = subscriptions.iter().find(of)?;
                Some(Owed::resumed(owed, Wanted::new(*options, *id)))
            })
            .collect();
        (!filters.is_empty()).then(|| Self {
            filters,
            ..Self::default()
        })
    }

    /// The first filter has been looked through up to `next`; `None`: to the end.
    fn looked_through(&mut self, next: Option<Place>) {
        let Some(owed) = self.filters.front_mut() else {
            return;
        };
        let bytes = match &next {
            Some(Place::Stored(place)) => Some(place.to_bytes()),
            // The broker's own topics are looked through from the beginning.
            Some(Place::Own(_)) => Some(owed.recorded.clone()),
            None => None,
        };
        match self.progress.iter_mut().find(|p| p.filter == owed.filter) {
            Some(progress) => progress.next.clone_from(&bytes),
            None => self.progress.push(Progress {
                filter: owed.filter.clone(),
                from: owed.recorded.clone(),
                next: bytes.clone(),
            }),
        }
        if next.is_some() {
            owed.after = next;
        } else {
            self.filters.pop_front();
        }
    }

    /// Subscriptions owe more; what is owed twice is sent once, so that the subscriptions bound what is owed.
    pub(super) fn owe(&mut self, mut owed: VecDeque<Owed>) {
        for new in &owed {
            self.cancel(&new.filter);
        }
        self.filters.append(&mut owed);
    }

    /// It waits for one more question, if `hold` says so.
    pub(super) fn hold(&mut self, hold: bool) {
        self.blocked += u32::from(hold);
    }

    /// The session is not owed what it was by a subscription.
    pub(super) fn cancel(&mut self, filter: &str) {
        if self.filters.front().is_some_and(|o| &*o.filter == filter) {
            self.asked = false;
            self.page = None;
        }
        self.filters.retain(|owed| &*owed.filter != filter);
        self.progress.retain(|of| &*of.filter != filter);
    }

    /// What the store of inboxes is to be told now.
    fn take_progress(&mut self) -> Vec<Progress> {
        for progress in &self.progress {
            let owed = self
                .filters
                .iter_mut()
                .find(|o| o.filter == progress.filter);
            if let (Some(owed), Some(next)) = (owed, &progress.next) {
                owed.recorded.clone_from(next);
            }
        }
        std::mem::take(&mut self.progress)
    }

    /// A message comes to the session as it is published.
    pub(super) fn passed_by(&mut self, message: &ApplicationMessage) {
        if message.retain && self.passed.len() < PASSED {
            self.passed.insert(message.body.topic_bytes().into());
        }
    }
}

/// Those that a filter selects.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) filter: Box<str>,
    wanted: Wanted,
    after: Option<Place>,
    /// Where it is to go on as the store of inboxes knows; only of durable sessions.
    recorded: Box<[u8]>,
}

/// Where the next page begins.
#[derive(Clone, Debug)]
enum Place {
    /// Among the broker's own topics.
    Own(Cursor),
    /// In the retain store.
    Stored(RetainedPlace),
}

impl Owed {
    pub(super) fn new(filter: &str, wanted: Wanted) -> Self {
        Self {
            filter: filter.into(),
            wanted,
            after: None,
            recorded: Box::default(),
        }
    }

    /// What is still owed to a durable session, by a subscription that it has.
    fn resumed(owed: store_state::inbox::Owed, wanted: Wanted) -> Self {
        let store_state::inbox::Owed { filter, place } = owed;
        Self {
            filter,
            wanted,
            after: RetainedPlace::from_bytes(&place).map(Place::Stored),
            recorded: place,
        }
    }

    /// The next page, and where the one after it begins.
    fn page(
        &mut self,
        node: &Node,
        now: Timestamp,
    ) -> (Vec<Arc<ApplicationMessage>>, Option<Place>) {
        let after = self.after.take();
        // [MQTT-4.7.2-1] a filter selects either the broker's own topics or others.
        if sys::is_own(self.filter.as_bytes()) {
            let cursor = match after {
                Some(Place::Own(cursor)) => Some(cursor),
                _ => None,
            };
            let (messages, next) = node.retained.page(&self.filter, cursor.as_ref(), PAGE);
            return (messages, next.map(Place::Own));
        }
        let place = match after {
            Some(Place::Stored(place)) => Some(place),
            _ => None,
        };
        let (messages, next) = node.store().retained(&self.filter, place, PAGE, now);
        (messages, next.map(Place::Stored))
    }
}

impl ClientLoop {
    /// The store is asked to change what the session is owed: what it is told of that goes before, or after.
    pub(super) fn hold_replay(&mut self, key: Key) {
        if let Some(replay) = self.clients.get_mut(key).and_then(|c| c.replay.as_mut()) {
            replay.hold(true);
        }
    }

    /// What the replay of retained messages waited for has happened.
    pub(super) fn replay_goes_on(&mut self, io: &mut LoopIo, key: Key) {
        if let Some(client) = self.clients.get_mut(key)
            && let Some(replay) = &mut client.replay
        {
            replay.blocked = replay.blocked.saturating_sub(1);
            if let Some(connection) = client.connection {
                io.touch(connection);
            }
        }
    }

    /// Queues the next page of retained messages, if the last one is sent. True: there is something to
    /// transmit, or more to look at.
    pub(super) fn replay_page(&mut self, io: &LoopIo, key: Key) -> bool {
        let now = Timestamp(io.now_ms());
        let Some(client) = self.clients.get(key) else {
            return false;
        };
        let Some(replay) = &client.replay else {
            return false;
        };
        if replay.blocked > 0 || client.session.queue_len() > 0 {
            return false;
        }
        let mut to_store = Vec::new();
        let mut looked_at = 0;
        while looked_at < PAGE {
            let Some((messages, wanted)) = self.next_retained(key, now) else {
                break;
            };
            looked_at += messages.len();
            for message in messages {
                if self.may_receive(io, key, &message) {
                    to_store.extend(self.replay_one(key, message, wanted, now));
                }
            }
        }
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let Some(replay) = &mut client.replay else {
            return false;
        };
        let mut more = !replay.filters.is_empty();
        let waits = !to_store.is_empty();
        if waits {
            more = false;
            replay.blocked += 1;
        }
        self.record_progress(key, to_store);
        if !more
            && !waits
            && let Some(client) = self.clients.get_mut(key)
        {
            client.replay = None;
        }
        let queue_len = |client: &Client| client.session.queue_len();
        more || self.clients.get(key).map_or(0, queue_len) > 0
    }

    /// Tells the store of inboxes what a durable session is not owed any more, and what it gets of that.
    fn record_progress(&mut self, key: Key, items: Vec<Item>) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(replay) = &mut client.replay else {
            return;
        };
        let Some(stored) = client.stored.as_ref().filter(|s| s.inbox.is_some()) else {
            replay.progress.clear();
            return;
        };
        let waits = !items.is_empty();
        if !waits && replay.progress.iter().all(|p| p.next.is_some()) {
            return;
        }
        let client_id = Box::<str>::from(client.session.client_id());
        let op = InboxOp::Replay {
            client: client_id.clone(),
            epoch: stored.epoch,
            items,
            progress: replay.take_progress(),
        };
        if waits {
            self.ask_inbox(&client_id, Pending::Replay(key), op);
        } else {
            let store = self.node.store();
            store.acknowledge(store.inbox_shard(&client_id), op, client_id.len());
        }
    }

    /// A page of retained messages is queued, or cannot be: then the client finds it on its next connection.
    pub(super) fn replay_answered(&mut self, io: &mut LoopIo, key: Key, answer: &Answer) {
        if let Answer::Failed(_) = answer {
            self.kick(io, key, ReasonCode::QuotaExceeded);
        } else {
            self.replay_goes_on(io, key);
        }
    }

    /// Retained messages that a session is owed and has not got as they were published, and for what
    /// subscription. `None`: there are no more.
    fn next_retained(
        &mut self,
        key: Key,
        now: Timestamp,
    ) -> Option<(Vec<Arc<ApplicationMessage>>, Wanted)> {
        let replay = self.clients.get_mut(key)?.replay.as_mut()?;
        let owed = replay.filters.front_mut()?;
        let wanted = owed.wanted;
        let is_own = sys::is_own(owed.filter.as_bytes());
        let page = match replay.page.take() {
            Some(page) => page,
            None if is_own || !self.node.store().has_neighbours() => owed.page(&self.node, now),
            None => {
                let (filter, after) = (owed.filter.clone(), owed.after.clone());
                replay.blocked += 1;
                replay.asked = true;
                self.ask_page(key, &filter, after, now);
                return None;
            }
        };
        let (mut messages, next) = page;
        messages.retain(|message| !replay.passed.contains(message.body.topic_bytes()));
        replay.looked_through(next);
        Some((messages, wanted))
    }

    /// Asks the store for a page that other nodes may have.
    fn ask_page(&mut self, key: Key, filter: &str, after: Option<Place>, now: Timestamp) {
        let place = match after {
            Some(Place::Stored(place)) => Some(place),
            _ => None,
        };
        let ticket = self.ask(Pending::Page(key));
        let store = self.node.store();
        store.ask_retained(ticket, filter, place, PAGE, now);
    }

    /// The page that was asked for has come, or is to be asked for again after a while.
    pub(super) fn page_has_come(&mut self, io: &mut LoopIo, key: Key, answer: Answer) {
        let Answer::Retained(messages, next) = answer else {
            io.arm(io.now_ms() + ASK_AGAIN_MS, Timer::Replay(key).to_bits());
            return;
        };
        if let Some(client) = self.clients.get_mut(key)
            && let Some(replay) = &mut client.replay
            && std::mem::take(&mut replay.asked)
        {
            let messages = messages.into_iter().map(|retained| retained.0).collect();
            replay.page = Some((messages, next.map(Place::Stored)));
        }
        self.replay_goes_on(io, key);
        self.replay_page(io, key);
        if let Some(connection) = self.clients.get(key).and_then(|client| client.connection) {
            io.touch(connection);
        }
    }

    /// Queues a retained message. One that a durable session has to store first is given back.
    fn replay_one(
        &mut self,
        key: Key,
        message: Arc<ApplicationMessage>,
        wanted: Wanted,
        now: Timestamp,
    ) -> Option<Item> {
        let client = self.clients.get_mut(key)?;
        let qos = effective(message.qos, wanted.qos);
        // [MQTT-3.3.1-8] [MQTT3-3.3.1-8] set, because the message was kept
        let retain = true;
        let subscription_ids = wanted.ids();
        if client.session.is_durable() && qos > QoS::AtMostOnce {
            return Some(Item {
                message,
                qos,
                retain,
                subscription_ids,
                group: None,
            });
        }
        let delivery = Delivery {
            message,
            qos,
            retain,
            subscription_ids,
            group: None,
        };
        let policy = &self.settings.beyond_limit;
        if let Delivered::Dropped(dropped) = client.session.deliver(delivery, policy, now) {
            record(&self.drops, now.0, client.session.client_id(), &dropped);
        }
        None
    }
}
