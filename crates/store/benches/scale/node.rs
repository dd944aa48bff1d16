//! A node without network: a store, and one event loop that is the benchmark itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use mqtt_proto::{MessageBody, QoS, SubscriptionOptions};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use store::{Folder, Listener, Options, Store, StoreStats};
use store_state::api::{Event, Read, ShardNumber, ShardRef, Slot, Store as _};
use store_state::inbox::{InboxDrop, InboxOp, StoredSubscription};
use store_state::session::{ClaimRequest, SessionOp, WillAtClose};
use store_state::{CorrelationId, Limits};

/// Bytes of a message's payload.
pub(crate) const PAYLOAD: usize = 256;

/// Messages that a reader can take before it acknowledges; as in the broker.
pub(crate) const CREDIT: u32 = 256;

/// Nothing takes that long but a store that hangs.
const PATIENCE: Duration = Duration::from_secs(300);

const LIMITS: Limits = Limits {
    queue: store_state::QueueLimits {
        messages: 1_000_000,
        bytes: 1 << 40,
        full: QueueFull::REFUSE,
        is_closed: false,
    },
    qos0: Qos0Inbox::Offline,
    retained_messages: 1,
    retained_bytes: 1,
    classes: store_state::ClassLimits::NONE,
};

/// The store with what it tells.
pub(crate) struct Node {
    pub(crate) store: Arc<Store>,
    /// The inbox shard, as it was when the store was opened.
    whole: ShardRef,
    mail: Receiver<Vec<Event>>,
}

struct Ears(Sender<Vec<Event>>);

impl Listener for Ears {
    fn mail(&self, _: usize, events: Vec<Event>) {
        // At the end nobody listens any more.
        drop(self.0.send(events));
    }

    fn loops(&self) -> usize {
        1
    }

    fn filter(&self, _: ShardNumber, _: &str, _: bool, _: bool) {}

    fn member(&self, _: ShardNumber, _: &str, _: &str, _: Option<&StoredSubscription>) {}

    fn dropped(&self, drop: &InboxDrop<'_>) {
        panic!(
            "a message for {} was dropped: {:?}",
            drop.client, drop.reason
        );
    }

    fn lost(&self, client: &str, message: &ApplicationMessage) {
        panic!("{client:?}: {message:?}");
    }

    fn failed(&self, what: &str) {
        panic!("the store failed: {what}");
    }

    fn now_ms(&self) -> u64 {
        crate::measure::now_ms()
    }

    fn limits(&self) -> Limits {
        LIMITS
    }
}

pub(crate) fn client(number: u64) -> String {
    format!("client-{number:07}")
}

/// The topic that only one client subscribes to.
pub(crate) fn own_topic(number: u64) -> String {
    format!("site/device/{number:07}")
}

impl Node {
    pub(crate) fn open(folder: &Path, threads: usize) -> Self {
        let (ears, mail) = channel();
        let listener: Arc<dyn Listener> = Arc::new(Ears(ears));
        let options = Options {
            threads,
            ..Options::default()
        };
        let folder = Folder::open(folder).expect("the folder opens");
        let store = Store::open(folder, &options, &listener).expect("the store opens");
        store.begin(&*listener);
        let stopped: u64 = store
            .stats(mqtt_session::Timestamp(0))
            .stores
            .iter()
            .map(|(_, shards)| shards.stopped)
            .sum();
        assert_eq!(stopped, 0, "all shards serve");
        let whole = store.inbox_shards()[0];
        Self {
            store: Arc::new(store),
            whole,
            mail,
        }
    }

    /// Whether a publisher would be read. Waits a moment if not.
    pub(crate) fn takes_more(&self) -> bool {
        let over_limit = self.store.is_over_limit();
        if over_limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        !over_limit
    }

    /// What the store tells next.
    pub(crate) fn mail(&self) -> Vec<Event> {
        self.mail.recv_timeout(PATIENCE).expect("the store answers")
    }

    /// Waits for the answer to the one request that is not answered.
    pub(crate) fn answered(&self) {
        loop {
            let mut answers = self.mail();
            // Told by a shard that was split off.
            answers.retain(|event| !matches!(event, Event::Reopen { .. }));
            match answers.len() {
                0 => {}
                1 => return,
                _ => panic!("{answers:?}"),
            }
        }
    }

    pub(crate) fn claim(&self, number: u64, token: u64) {
        let op = SessionOp::Claim(ClaimRequest {
            client: client(number).into(),
            node: self.store.node(),
            node_incarnation: self.store.incarnation(),
            clean_start: false,
            expiry: u32::MAX,
            will: None,
            asked_ms: 0,
        });
        self.store
            .session(&client(number), correlation_id(token), op);
    }

    pub(crate) fn attach(&self, number: u64, token: u64, epoch: u64, resume: bool) {
        let op = InboxOp::Attach {
            client: client(number).into(),
            epoch,
            node: self.store.node(),
            node_incarnation: self.store.incarnation(),
            resume,
        };
        self.store.inbox(correlation_id(token), op);
    }

    pub(crate) fn subscribe(&self, number: u64, token: u64, epoch: u64, filter: &str) {
        let op = InboxOp::Subscribe {
            session: (&*client(number)).into(),
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
        self.store.inbox(correlation_id(token), op);
    }

    pub(crate) fn publish(&self, token: u64, topic: &str, payload: &[u8]) {
        let message = Arc::new(ApplicationMessage {
            body: MessageBody::new(topic, payload),
            qos: QoS::AtLeastOnce,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        });
        let op = InboxOp::Publish {
            message,
            publisher: 0,
            origin: None,
        };
        self.store.inboxes(self.whole, correlation_id(token), op);
    }

    pub(crate) fn open_queue(&self, home: u64, inbox: u64, epoch: u64, from: u64) {
        let read = Read::Open {
            loop_index: 0,
            home,
            inbox,
            epoch,
            from,
            credit: CREDIT,
        };
        self.store.read(Slot(0), read);
    }

    pub(crate) fn credit(&self, inbox: u64, epoch: u64, more: u32) {
        self.store
            .read(Slot(0), Read::Credit { inbox, epoch, more });
    }

    pub(crate) fn close_queue(&self, inbox: u64, epoch: u64) {
        self.store.read(Slot(0), Read::Close { inbox, epoch });
    }

    /// Nobody waits for it, as in the broker.
    pub(crate) fn acknowledge(&self, number: u64, epoch: u64, done: Vec<u64>) {
        let op = InboxOp::Acknowledge {
            session: (&*client(number)).into(),
            epoch,
            sent: done.last().copied().unwrap_or_default(),
            done: store_state::inbox::Done(done),
        };
        self.store.inbox(CorrelationId::NONE, op);
    }

    pub(crate) fn detach(&self, number: u64, token: u64, epoch: u64, sent: u64) {
        let op = InboxOp::Detach {
            session: (&*client(number)).into(),
            epoch,
            sent,
        };
        self.store.inbox(correlation_id(token), op);
    }

    pub(crate) fn disconnect(&self, number: u64, token: u64, epoch: u64) {
        let op = SessionOp::Disconnect {
            client: client(number).into(),
            epoch,
            expiry: u32::MAX,
            will: WillAtClose::Discard,
        };
        self.store
            .session(&client(number), correlation_id(token), op);
    }

    /// Waits until the inbox shard has applied everything that was given, when nothing else is told.
    pub(crate) fn flush(&self) {
        let op = InboxOp::Forget {
            client: "nobody".into(),
            incarnation: 0,
        };
        self.store.inboxes(self.whole, correlation_id(0), op);
        let answer = self.mail();
        assert_eq!(answer.len(), 1, "{answer:?}");
    }

    /// Asks each shard to write something, so that there will be a checkpoint.
    pub(crate) fn touch(&self) {
        let nobody: Box<str> = "nobody".into();
        let op = SessionOp::Gone {
            client: nobody.clone(),
            epoch: 0,
        };
        self.store.session(&nobody, CorrelationId::NONE, op);
        let op = InboxOp::Forget {
            client: (&*nobody).into(),
            incarnation: 0,
        };
        self.store.inboxes(self.whole, CorrelationId::NONE, op);
    }

    /// Waits until the tables have everything that was done till now.
    pub(crate) fn checkpointed(&self) {
        // One may have begun before; the second has not.
        for _ in 0..2 {
            let before = checkpoints(&self.store.stats(mqtt_session::Timestamp(0)));
            self.touch();
            let written = |now: [u64; 2]| now.iter().zip(before).all(|(now, before)| *now > before);
            while !written(checkpoints(&self.store.stats(mqtt_session::Timestamp(0)))) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Of the session and the inbox store.
fn checkpoints(stats: &StoreStats) -> [u64; 2] {
    let stores = &stats.stores;
    [stores.session.checkpoints, stores.inbox.checkpoints]
}

const fn correlation_id(token: u64) -> CorrelationId {
    CorrelationId {
        peer: 0,
        loop_number: 1,
        token,
    }
}
