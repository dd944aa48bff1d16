//! Requests that were routed by another shard map; when publishers should wait.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use store_state::api::{Event, Failure, PerStore, ShardNumber};
use store_state::inbox::{InboxDrop, StoredSubscription};
use store_state::retain::RetainOp;
use store_state::{CorrelationId, Limits, Request};

use crate::api::listener::Listener;
use crate::api::options::Options;
use crate::api::store::Store;
use crate::shard::request::{MAP_VERSION, OVERHEAD};
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
            queue_messages: 100,
            queue_bytes: 100_000,
            queue_full: QueueFull::REFUSE,
            qos0: Qos0Inbox::Offline,
            retained_messages: 100,
            retained_bytes: 100_000,
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
    map_version: u64,
    op: RetainOp,
) -> Result<(), Failure> {
    let request = Request {
        map_version,
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

fn set() -> RetainOp {
    let message = Arc::new(ApplicationMessage {
        body: MessageBody::new("a", b"x"),
        qos: QoS::AtLeastOnce,
        retain: true,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
    });
    RetainOp::Set { message }
}

#[test]
fn a_request_to_the_wrong_shard_or_for_a_later_version_of_it_has_no_effect() {
    let at = tempfile::tempdir().unwrap();
    let node = start(at.path());
    let right = node.0.retain.of("a");
    for version in [MAP_VERSION - 1, MAP_VERSION, MAP_VERSION + 1] {
        let wrong = outcome(&node, 1 - right, version, set());
        assert_eq!(wrong, Err(Failure::Moved));
    }
    // What concerns all slots.
    let all = |version| outcome(&node, right, version, RetainOp::Expire);
    assert_eq!(all(MAP_VERSION + 1), Err(Failure::Moved));
    assert_eq!([MAP_VERSION, MAP_VERSION - 1].map(all), [Ok(()), Ok(())]);
    assert_eq!(
        node.0.stats(mqtt_session::Timestamp(0)).retained_messages,
        0
    );
    node.0.shutdown();
    drop(node);

    // Nor when they are applied again.
    let node = start(at.path());
    assert_eq!(
        node.0.stats(mqtt_session::Timestamp(0)).retained_messages,
        0
    );
    assert_eq!(outcome(&node, right, MAP_VERSION + 1, set()), Ok(()));
    assert_eq!(
        node.0.stats(mqtt_session::Timestamp(0)).retained_messages,
        1
    );
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
        store
            .retain
            .put(shard, Work::Barrier(CorrelationId::NONE), 1 << 30);
    }
    for shard in store.retain.shards.load().iter() {
        assert!(store.is_over_limit());
        shard.queue.take(1, 1, &mut Vec::new()).await;
    }
    assert!(!store.is_over_limit());
}
