//! A node with one event loop that writes down what it is told.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use control_view::View;
use mqtt_proto::{MessageBody, QoS, SubscriptionOptions};
use mqtt_session::{ApplicationMessage, DropReason, Qos0Inbox, QueueFull, Timestamp};
use store::{Folder, Listener, Look, NodeSurvey, OpenError, Options, Purge, Store};
use store_state::api::{
    Event, Failure, PerStore, Read, RetainedPlace, ShardNumber, ShardRef, Store as _,
};
use store_state::inbox::{
    Attached, Done, InboxDrop, InboxOp, InboxReply, Queued, StoredSubscription,
};
use store_state::retain::{PageBudget, RetainReply, Writer};
use store_state::session::{ClaimRequest, Claimed, SessionOp, SessionReply};
use store_state::{CorrelationId, Level, Limits};

/// Nothing here takes that long; a test that hangs fails instead.
const DEADLINE: Duration = Duration::from_secs(60);

/// The only loop, as correlation ids know it.
const LOOP: u16 = 1;

/// What the loop was told and nobody asked for yet.
pub(crate) struct Told {
    /// Unix time in ms.
    pub(crate) now_ms: AtomicU64,
    /// Retained messages that a shard of the beginning may keep.
    pub(crate) retained_messages: AtomicU64,
    /// Messages that were dropped because somebody has emptied their queue.
    pub(crate) purged: AtomicU64,
    /// What its replica of the control store has told.
    pub(crate) view: View,
    events: Mutex<Vec<Event>>,
    more: Condvar,
    failures: Mutex<Vec<String>>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            now_ms: AtomicU64::new(1_000),
            retained_messages: AtomicU64::new(1_000_000),
            purged: AtomicU64::new(0),
            view: View::default(),
            events: Mutex::default(),
            more: Condvar::new(),
            failures: Mutex::default(),
        }
    }
}

impl Listener for Told {
    fn mail(&self, loop_index: usize, events: Vec<Event>) {
        assert_eq!(loop_index, 0, "there is one loop");
        self.events.lock().unwrap().extend(events);
        self.more.notify_all();
    }

    fn loops(&self) -> usize {
        1
    }

    fn filter(&self, _: ShardNumber, _: &str, _: bool, _: bool) {}

    fn member(&self, _: ShardNumber, _: &str, _: &str, _: Option<&StoredSubscription>) {}

    fn dropped(&self, drop: &InboxDrop<'_>) {
        assert_eq!(drop.reason, DropReason::Purged, "{drop:?}");
        self.purged.fetch_add(1, Ordering::Relaxed);
    }

    fn lost(&self, client: &str, message: &ApplicationMessage) {
        panic!("{client:?}: {message:?}");
    }

    fn failed(&self, what: &str) {
        self.failures.lock().unwrap().push(what.to_owned());
    }

    fn control_loaded(&self, records: control::Records) {
        self.view.loaded(records);
    }

    fn control_changed(&self, changed: &control::Changed) {
        self.view.changed(changed);
    }

    fn control_confirmed(&self, revision: control::Revision) {
        self.view.confirmed(revision);
    }

    fn control_answered(&self, answer: Event) {
        self.events.lock().unwrap().push(answer);
        self.more.notify_all();
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn limits(&self) -> Limits {
        Limits {
            queue: store_state::QueueLimits {
                messages: 1_000_000,
                bytes: 1 << 40,
                full: QueueFull::REFUSE,
                is_closed: false,
            },
            qos0: Qos0Inbox::Offline,
            retained_messages: self.retained_messages.load(Ordering::Relaxed),
            retained_bytes: 1 << 40,
            classes: store_state::ClassLimits::NONE,
        }
    }
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) store: Arc<Store>,
    pub(crate) told: Arc<Told>,
    next_token: AtomicU64,
}

/// So many shards of each store.
pub(crate) fn options(shards: u16) -> Options {
    Options {
        shards: PerStore::all(shards),
        threads: 2,
        // The last level at which the format of a folder says whether a shard was split.
        level: Some(Level::SPLITS),
        ..Options::default()
    }
}

/// What is found in a folder that no node uses.
pub(crate) fn survey(folder: &Path) -> NodeSurvey {
    store::survey(folder, &PerStore::default()).unwrap()
}

/// Requests that would be applied again.
pub(crate) fn to_replay(survey: &NodeSurvey) -> u64 {
    let shards = survey.stores.iter().flat_map(|store| &store.shards);
    shards.map(|shard| shard.log.unwrap().replay_requests).sum()
}

pub(crate) fn message(topic: &str, payload: &[u8]) -> Arc<ApplicationMessage> {
    Arc::new(ApplicationMessage {
        body: MessageBody::new(topic, payload),
        qos: QoS::AtLeastOnce,
        retain: false,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    })
}

impl Node {
    pub(crate) fn start(folder: &Path, shards: u16) -> Self {
        Self::try_start(folder, &options(shards)).unwrap()
    }

    pub(crate) fn try_start(folder: &Path, options: &Options) -> Result<Self, OpenError> {
        let mut folder = Folder::open(folder)?;
        // So that names have known shards.
        folder.adopt_name_seed(0)?;
        Self::start_in(folder, options)
    }

    pub(crate) fn start_in(folder: Folder, options: &Options) -> Result<Self, OpenError> {
        let told = Arc::new(Told::default());
        let listener: Arc<dyn Listener> = told.clone();
        Ok(Self {
            store: {
                let store = Store::open(folder, options, &listener)?;
                store.begin(&*listener);
                Arc::new(store)
            },
            told,
            next_token: AtomicU64::new(1),
        })
    }

    pub(crate) fn stop(self) {
        self.store.shutdown();
        assert_eq!(*self.told.failures.lock().unwrap(), [""; 0]);
    }

    pub(crate) fn correlation_id(&self) -> CorrelationId {
        CorrelationId {
            peer: 0,
            loop_number: LOOP,
            token: self.next_token.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Waits until the loop is told something that `take` makes something of.
    pub(crate) fn wait<T>(&self, mut take: impl FnMut(Event) -> Result<T, Event>) -> T {
        let end = Instant::now() + DEADLINE;
        let mut events = self.told.events.lock().unwrap();
        loop {
            let mut kept = Vec::new();
            let mut taken = None;
            for event in events.drain(..) {
                if taken.is_some() {
                    kept.push(event);
                    continue;
                }
                match take(event) {
                    Ok(found) => taken = Some(found),
                    Err(event) => kept.push(event),
                }
            }
            *events = kept;
            if let Some(taken) = taken {
                return taken;
            }
            let left = end.saturating_duration_since(Instant::now());
            let failures = &self.told.failures;
            assert!(
                !left.is_zero(),
                "not told in time; told: {events:?}; failed: {failures:?}"
            );
            events = self.told.more.wait_timeout(events, left).unwrap().0;
        }
    }

    /// The answer to a request to the session store.
    pub(crate) fn session(&self, client: &str, op: SessionOp) -> Result<SessionReply, Failure> {
        let correlation_id = self.correlation_id();
        self.store.session(client, correlation_id, op);
        self.wait(|event| match event {
            Event::Session { token, reply } if token == correlation_id.token => Ok(Ok(reply)),
            Event::Failed { token, failure } if token == correlation_id.token => Ok(Err(failure)),
            other => Err(other),
        })
    }

    /// The answer of the inbox shard of a session.
    pub(crate) fn inbox(&self, op: InboxOp) -> Result<InboxReply, Failure> {
        let correlation_id = self.correlation_id();
        self.store.inbox(correlation_id, op);
        self.inbox_reply(correlation_id)
    }

    pub(crate) fn inbox_reply(&self, correlation_id: CorrelationId) -> Result<InboxReply, Failure> {
        self.wait(|event| match event {
            Event::Inbox { token, reply } if token == correlation_id.token => Ok(Ok(reply)),
            Event::Failed { token, failure } if token == correlation_id.token => Ok(Err(failure)),
            other => Err(other),
        })
    }

    pub(crate) fn retain(&self, topic: &str, payload: &[u8]) -> Result<RetainReply, Failure> {
        let correlation_id = self.give_retained(topic, payload);
        self.retain_reply(correlation_id)
    }

    /// Gives the retain store a message, and does not wait.
    pub(crate) fn give_retained(&self, topic: &str, payload: &[u8]) -> CorrelationId {
        let correlation_id = self.correlation_id();
        self.store
            .retain(correlation_id, message(topic, payload), Writer::Anybody);
        correlation_id
    }

    pub(crate) fn retain_reply(
        &self,
        correlation_id: CorrelationId,
    ) -> Result<RetainReply, Failure> {
        self.wait(|event| match event {
            Event::Retain { token, reply } if token == correlation_id.token => Ok(Ok(reply)),
            Event::Failed { token, failure } if token == correlation_id.token => Ok(Err(failure)),
            other => Err(other),
        })
    }

    pub(crate) fn claim(&self, client: &str) -> Claimed {
        let op = SessionOp::Claim(ClaimRequest {
            client: client.into(),
            node: self.store.node(),
            node_incarnation: self.store.incarnation(),
            clean_start: false,
            expiry: 1_000,
            will: None,
            asked_ms: 0,
        });
        let end = Instant::now() + DEADLINE;
        loop {
            match self.session(client, op.clone()) {
                Ok(SessionReply::Claimed(claimed)) => return claimed,
                // Another node has led meanwhile: the client connects again.
                Ok(SessionReply::Stale) if Instant::now() < end => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// CONNECT of a client that wants its session: the epoch, and its inbox.
    pub(crate) fn connect(&self, client: &str) -> (u64, Attached) {
        let epoch = self.claim(client).epoch;
        let op = InboxOp::Attach {
            client: client.into(),
            epoch,
            node: self.store.node(),
            node_incarnation: self.store.incarnation(),
            resume: true,
        };
        match self.inbox(op) {
            Ok(InboxReply::Attached(attached)) => (epoch, *attached),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn subscribe(&self, client: &str, epoch: u64, filter: &str) {
        let op = InboxOp::Subscribe {
            session: client.into(),
            epoch,
            subscriptions: vec![StoredSubscription {
                filter: filter.into(),
                options: SubscriptionOptions {
                    qos: QoS::AtLeastOnce,
                    ..SubscriptionOptions::default()
                },
                id: 0,
            }],
        };
        let reply = self.inbox(op);
        assert_eq!(reply, Ok(InboxReply::Subscribed(vec![true])));
    }

    pub(crate) fn detach(&self, client: &str, epoch: u64) {
        let op = InboxOp::Detach {
            session: client.into(),
            epoch,
            sent: 0,
        };
        let reply = self.inbox(op);
        assert_eq!(reply, Ok(InboxReply::Done));
    }

    /// A session that is away; its epoch.
    pub(crate) fn sleeper(&self, client: &str, filter: &str) -> u64 {
        let (epoch, _) = self.connect(client);
        self.subscribe(client, epoch, filter);
        self.detach(client, epoch);
        epoch
    }

    /// Publishes to all inbox shards: how many sessions matched.
    pub(crate) fn publish(&self, topic: &str, payload: &[u8]) -> Result<u32, Failure> {
        let message = message(topic, payload);
        let shards = self.store.inbox_shards();
        let correlation_ids: Vec<_> = shards
            .iter()
            .map(|shard| self.publish_to(*shard, &message))
            .collect();
        let mut sum = 0;
        for correlation_id in correlation_ids {
            match self.inbox_reply(correlation_id)? {
                InboxReply::Published { matched, .. } => sum += matched,
                other => panic!("{other:?}"),
            }
        }
        Ok(sum)
    }

    /// The first inbox shard.
    pub(crate) fn first_shard(&self) -> ShardRef {
        self.store.inbox_shards()[0]
    }

    /// Gives a shard a message, and does not wait.
    pub(crate) fn publish_to(
        &self,
        shard: ShardRef,
        of: &Arc<ApplicationMessage>,
    ) -> CorrelationId {
        let correlation_id = self.correlation_id();
        let op = InboxOp::Publish {
            message: Arc::clone(of),
            publisher: 0,
            origin: None,
        };
        self.store.inboxes(shard, correlation_id, op);
        correlation_id
    }

    pub(crate) fn acknowledge(&self, client: &str, epoch: u64, done: Vec<u64>) {
        let op = InboxOp::Acknowledge {
            session: client.into(),
            epoch,
            sent: done.iter().max().copied().unwrap_or(0),
            done: Done(done),
        };
        let reply = self.inbox(op);
        assert_eq!(reply, Ok(InboxReply::Done));
    }

    /// Empties the queue of a client within some time: how far that came, and how many messages were dropped.
    pub(crate) fn purge(&self, client: &str, patience: Duration) -> (Look<Purge>, u64) {
        let purged = || self.told.purged.load(Ordering::Relaxed);
        let (before, inspect) = (purged(), self.store.inspect());
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let purge = inspect.purge_queue(client, tokio::time::Instant::now() + patience);
        let purge = runtime.block_on(purge);
        (purge, purged() - before)
    }

    /// The first payloads of a connected client's queue, read in pages.
    pub(crate) fn read(
        &self,
        client: &str,
        (epoch, at): &(u64, Attached),
        count: usize,
    ) -> Vec<Vec<u8>> {
        let open = Read::Open {
            loop_index: 0,
            home: 7,
            inbox: at.inbox,
            epoch: *epoch,
            from: at.first,
            credit: count as u32,
        };
        self.store.read(self.store.inbox_slot(client), open);
        let mut payloads = Vec::new();
        while payloads.len() < count {
            let items = self.wait(|event| match event {
                Event::Page { items, .. } => Ok(items),
                other => Err(other),
            });
            payloads.extend(items.into_iter().map(|(_, queued)| match queued {
                Queued::Message(item) => item.message.body.payload().to_vec(),
                Queued::Released => panic!("nothing was released"),
            }));
        }
        payloads
    }

    /// Whose wills the loop was told to publish.
    pub(crate) fn fired(&self) -> Vec<String> {
        let events = self.told.events.lock().unwrap();
        let clients = events.iter().filter_map(|event| match event {
            Event::Fire { client, .. } => Some(client.to_string()),
            _ => None,
        });
        clients.collect()
    }

    /// Topics and payloads of the retained messages, in order.
    pub(crate) fn retained(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let (messages, next) = self.look_retained("#", from, 3);
            found.extend(messages.iter().map(|message| {
                let body = &message.body;
                (body.topic().to_owned(), body.payload().to_vec())
            }));
            from = next;
            if from.is_none() {
                found.sort();
                return found;
            }
        }
    }

    /// A page of so many retained messages at most, as a node that is alone reads it.
    pub(crate) fn look_retained(
        &self,
        filter: &str,
        from: Option<RetainedPlace>,
        limit: usize,
    ) -> RetainedMessages {
        let mut budget = PageBudget {
            messages: limit,
            ..PageBudget::UNLIMITED
        };
        let now = Timestamp(1_000);
        let page = self.store.retained(filter, from.clone(), &mut budget, now);
        page.unwrap_or_else(|| {
            let shard = self.store.retained_shard(filter, from.as_ref());
            self.ask_retained(shard, filter, from, limit)
        })
    }

    /// The same, as a shard answers a question for it.
    pub(crate) fn ask_retained(
        &self,
        shard: ShardNumber,
        filter: &str,
        from: Option<RetainedPlace>,
        limit: usize,
    ) -> RetainedMessages {
        let correlation_id = self.correlation_id();
        let now = Timestamp(1_000);
        let wanted = [(filter, from)];
        self.store
            .ask_retained(correlation_id, shard, wanted, limit, now);
        self.wait(|event| match event {
            Event::Retained { token, mut pages } if token == correlation_id.token => {
                let page = pages.pop().unwrap();
                let messages = page.messages.into_iter().map(|retained| retained.0);
                Ok((messages.collect(), page.next))
            }
            other => Err(other),
        })
    }
}

/// A page, and where the next one begins.
pub(crate) type RetainedMessages = (Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>);

/// Waits until something is so, as [`Node::wait`] waits for events.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::yield_now();
    }
}

/// Changes a bit in the middle of a shard's newest table file.
pub(crate) fn flip_in_table(store: &Path, shard: u64) {
    let tables = store.join(format!("shard-{shard:016x}/tables"));
    let files = std::fs::read_dir(&tables).unwrap();
    let file = files.map(|file| file.unwrap().path()).max().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
}

/// Changes a bit of a value in a shard's table files. No compression may make the value shorter.
pub(crate) fn flip_in_value(store: &Path, shard: u64, value: &[u8]) {
    let (file, at) = find_value(store, shard, value).expect("a table file has the value");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[at] ^= 1;
    // In place: whoever has the file open reads what is written.
    std::fs::write(&file, bytes).unwrap();
}

/// Whether a shard's table files have a value.
pub(crate) fn holds_value(store: &Path, shard: u64, value: &[u8]) -> bool {
    find_value(store, shard, value).is_some()
}

/// The file and the place of a value that no compression makes shorter.
fn find_value(store: &Path, shard: u64, value: &[u8]) -> Option<(PathBuf, usize)> {
    let tables = store.join(format!("shard-{shard:016x}/tables"));
    let files = std::fs::read_dir(tables).unwrap();
    files.map(|file| file.unwrap().path()).find_map(|file| {
        let bytes = std::fs::read(&file).ok()?;
        let needle = &value[..64];
        let at = bytes.windows(needle.len()).position(|part| part == needle);
        at.map(|at| (file, at))
    })
}
