//! Requests that were routed by another shard map; when publishers should wait.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use store_state::api::{Event, Failure, LastSlot, PerStore, ShardNumber};
use store_state::inbox::{InboxDrop, StoredSubscription};
use store_state::retain::RetainOp;
use store_state::{CorrelationId, Limits, Request, RoutedUntil};

use crate::api::listener::Listener;
use crate::api::options::Options;
use crate::api::store::Store;
use crate::shard::request::OVERHEAD;
use crate::shard::work::Work;
use crate::storage::folder::Folder;

/// Sends on what its loop is told.
struct Told(Sender<Event>);

impl Listener for Told {
    fn mail(&self, _: usize, events: Vec<Event>) {
        for event in events {
            let _ = self.0.send(event);
        }
    }

    fn loops(&self) -> usize {
        1
    }

    fn filter(&self, _: ShardNumber, _: &str, _: bool, _: bool) {}

    fn member(&self, _: ShardNumber, _: &str, _: &str, _: Option<&StoredSubscription>) {}

    fn dropped(&self, _: &InboxDrop<'_>) {}

    fn lost(&self, client: &str, message: &ApplicationMessage) {
        panic!("{client:?}: {message:?}");
    }

    fn failed(&self, what: &str) {
        panic!("{what}");
    }

    fn now_ms(&self) -> u64 {
        1_000
    }

    fn limits(&self) -> Limits {
        Limits {
            queue: store_state::QueueLimits {
                messages: 100,
                bytes: 100_000,
                full: QueueFull::REFUSE,
                is_closed: false,
            },
            qos0: Qos0Inbox::Offline,
            retained_messages: 100,
            retained_bytes: 100_000,
            classes: store_state::ClassLimits::NONE,
        }
    }
}

fn start(folder: &std::path::Path) -> (Store, Receiver<Event>) {
    let (tell, told) = channel();
    let listener: Arc<dyn Listener> = Arc::new(Told(tell));
    let options = Options {
        shards: PerStore::all(2),
        ..Options::default()
    };
    let store = Store::open(Folder::open(folder).unwrap(), &options, &listener).unwrap();
    store.begin(&*listener);
    (store, told)
}

/// What becomes of a retained message that is given to a shard under a version of the map.
fn outcome(
    (store, told): &(Store, Receiver<Event>),
    shard: ShardNumber,
    until: RoutedUntil,
    op: RetainOp,
) -> Result<(), Failure> {
    let request = Request {
        until,
        correlation_id: CorrelationId {
            peer: 0,
            loop_number: 1,
            token: 7,
        },
        op,
    };
    store.retain.put(
        shard,
        Work::Propose {
            request,
            must_wait: false,
        },
        OVERHEAD,
    );
    match told.recv().unwrap() {
        Event::Failed { token: 7, failure } => Err(failure),
        Event::Retain { token: 7, .. } => Ok(()),
        other => panic!("{other:?}"),
    }
}

fn set(topic: &str) -> RetainOp {
    let message = Arc::new(ApplicationMessage {
        body: MessageBody::new(topic, b"x"),
        qos: QoS::AtLeastOnce,
        retain: true,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    });
    RetainOp::Set { message }
}

#[test]
fn a_request_finds_the_shard_that_has_its_slot_or_has_no_effect() {
    let at = tempfile::tempdir().unwrap();
    let node = start(at.path());
    let retained = |store: &Store| store.stats(mqtt_session::Timestamp(0)).retained_messages;
    let topic_of = |shard| {
        let mut topics = (0..).map(|n: u32| n.to_string());
        topics
            .find(|topic| node.0.retain.of(topic) == shard)
            .unwrap()
    };
    let [lower, upper] = [0, 1].map(topic_of);
    // No shard gets slots below its first one: nobody who knows the shards asks for them.
    let below = outcome(&node, 1, RoutedUntil::FIRST, set(&lower));
    assert_eq!(below, Err(Failure::Moved));
    assert_eq!(retained(&node.0), 0);
    // As if the upper shard had been split off the lower one.
    let above = outcome(&node, 0, RoutedUntil::slot(u16::MAX), set(&upper));
    assert_eq!(above, Ok(()));
    assert_eq!(retained(&node.0), 1);
    // What concerns all slots is answered once.
    for until in [RoutedUntil::FIRST, RoutedUntil::slot(u16::MAX)] {
        assert_eq!(outcome(&node, 0, until, RetainOp::Expire), Ok(()));
    }
    node.0.shutdown();
    assert!(node.1.try_recv().is_err(), "each is answered once");
    drop(node);

    // The same when the log is applied again.
    let node = start(at.path());
    assert_eq!(retained(&node.0), 1);
    node.0.shutdown();
}

#[tokio::test]
async fn publishers_wait_while_any_shard_is_over_its_limit() {
    let at = tempfile::tempdir().unwrap();
    let (store, _told) = start(at.path());
    // So that nobody takes what the shards are given.
    store.shutdown();
    assert!(!store.is_over_limit());
    for shard in [0, 1] {
        store.retain.put(
            shard,
            Work::Barrier(CorrelationId::NONE, LastSlot(0)),
            1 << 30,
        );
    }
    for shard in store.retain.shards.load().iter() {
        assert!(store.is_over_limit());
        shard.queue.take(1, 1, &mut Vec::new()).await;
    }
    assert!(!store.is_over_limit());
}
