//! What the tests of the inbox machine share: short ways to say an operation, and a recorder.

mod attach;
mod away;
mod broadcast;
mod legacy;
mod limits;
mod model;
mod origins;
mod owed;
mod parts;
mod property;
mod queue;
mod raise;
mod split;
mod subscribe;
mod survey;
mod tables;
mod trim;

use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS, SubscriptionOptions};
use mqtt_session::{
    ApplicationMessage, ClassId, DropReason, Qos0Inbox, QueueFull, SubscriptionIdSet, Timestamp,
};

use super::*;
use crate::test_table::TestTable;
use crate::{Changes, Header, Limits, Machine, Slots};

/// An item, so that it can be compared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Seen {
    topic: String,
    payload: Vec<u8>,
    qos: QoS,
    retain: bool,
    ids: Vec<u32>,
    group: Option<String>,
}

impl From<&Item> for Seen {
    fn from(item: &Item) -> Self {
        Self {
            topic: item.message.body.topic().to_owned(),
            payload: item.message.body.payload().to_vec(),
            qos: item.qos,
            retain: item.retain,
            ids: item.subscription_ids.as_slice().to_vec(),
            group: item.group.as_deref().map(str::to_owned),
        }
    }
}

/// A call of the outlet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    Queued(u64, u64, Seen),
    Dropped(String, Vec<u8>, DropReason),
    Filter(String, bool, bool),
    /// Client, filter, identifier of the subscription and its options.
    Member(String, String, Option<(u32, u8)>),
    LeftBehind(String, u64),
}

#[derive(Debug, Default)]
pub(super) struct Recorder(Vec<Event>);

impl InboxOutlet for Recorder {
    fn queued(&mut self, inbox: u64, sequence: u64, item: &Item) {
        self.0.push(Event::Queued(inbox, sequence, item.into()));
    }

    fn dropped(&mut self, drop: InboxDrop<'_>) {
        let payload = drop.message.body.payload().to_vec();
        self.0
            .push(Event::Dropped(drop.client.to_owned(), payload, drop.reason));
    }

    fn filter(&mut self, filter: &str, any: bool, detached: bool) {
        self.0.push(Event::Filter(filter.to_owned(), any, detached));
    }

    fn member(&mut self, client: &str, filter: &str, subscription: Option<&StoredSubscription>) {
        let options = subscription.map(|of| (of.id, of.options.to_byte()));
        self.0
            .push(Event::Member(client.to_owned(), filter.to_owned(), options));
    }

    fn left_behind(&mut self, client: &str, inbox: u64) {
        self.0.push(Event::LeftBehind(client.to_owned(), inbox));
    }
}

/// A shard with its tables.
pub(super) struct Shard {
    machine: InboxMachine,
    table: TestTable,
    header: Header,
    events: Vec<Event>,
}

pub(super) const HEADER: Header = Header {
    now_ms: 1_000,
    limits: Limits {
        queue: crate::QueueLimits {
            messages: 1_000,
            bytes: 1 << 20,
            full: QueueFull::DropOldest,
            is_closed: false,
        },
        qos0: Qos0Inbox::Offline,
        retained_messages: 0,
        retained_bytes: 0,
        classes: crate::ClassLimits::NONE,
    },
};

impl Shard {
    fn new() -> Self {
        let table = TestTable::default();
        Self {
            machine: InboxMachine::load(Slots::ALL, &table).unwrap(),
            table,
            header: HEADER,
            events: Vec::new(),
        }
    }

    fn apply(&mut self, op: &InboxOp) -> InboxReply {
        let mut recorder = Recorder::default();
        let reply = self
            .machine
            .apply(&self.header, op, &self.table, &mut recorder)
            .unwrap();
        self.events.extend(recorder.0);
        reply
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Takes the events that are drops: whose, what, why.
    fn drops(&mut self) -> Vec<(String, String, DropReason)> {
        self.take_events()
            .into_iter()
            .filter_map(|event| match event {
                Event::Dropped(client, payload, reason) => {
                    Some((client, String::from_utf8(payload).unwrap(), reason))
                }
                _ => None,
            })
            .collect()
    }

    fn collect(&mut self) -> Changes {
        let mut changes = Changes::default();
        self.machine.collect(&mut changes);
        changes
    }

    fn checkpoint(&mut self) -> Changes {
        let changes = self.collect();
        self.table.write(&changes);
        self.machine.saved();
        changes
    }

    /// The process ends and starts again.
    fn restart(&mut self) {
        self.machine = InboxMachine::load(Slots::ALL, &self.table).unwrap();
    }

    fn attach(&mut self, client: &str, epoch: u64, resume: bool) -> Attached {
        let op = InboxOp::Attach {
            client: client.into(),
            epoch,
            node: 1,
            node_incarnation: 1,
            resume,
        };
        match self.apply(&op) {
            InboxReply::Attached(attached) => *attached,
            other => panic!("{other:?}"),
        }
    }

    fn detach(&mut self, client: &str, epoch: u64, sent: u64) -> InboxReply {
        self.apply(&InboxOp::Detach {
            session: client.into(),
            epoch,
            sent,
        })
    }

    fn subscribe(&mut self, client: &str, epoch: u64, filter: &str, qos: QoS) -> InboxReply {
        self.apply(&InboxOp::Subscribe {
            session: client.into(),
            epoch,
            subscriptions: vec![subscription(filter, qos)],
        })
    }

    fn publish(&mut self, topic: &str, payload: &str, qos: QoS) -> InboxReply {
        self.apply(&publish(message(topic, payload, qos), None))
    }

    fn acknowledge(&mut self, client: &str, epoch: u64, sent: u64, done: &[u64]) -> InboxReply {
        self.apply(&InboxOp::Acknowledge {
            session: client.into(),
            epoch,
            sent,
            done: Done(done.to_vec()),
        })
    }

    fn receipt(&mut self, client: &str, epoch: u64, sequence: u64) -> InboxReply {
        self.apply(&InboxOp::Receipt {
            session: client.into(),
            epoch,
            sequence,
        })
    }

    /// What others are to have next, when they have these messages of a legacy.
    fn hand_over(&mut self, client: &str, inbox: u64, done: &[u64]) -> Vec<(u64, Item)> {
        let reply = self.apply(&InboxOp::HandOver {
            client: client.into(),
            inbox,
            done: Done(done.to_vec()),
        });
        match reply {
            InboxReply::LeftBehind(items) => items,
            other => panic!("{other:?}"),
        }
    }

    /// The whole queue: sequences and payloads, `PUBREL` for what is released.
    fn queue(&mut self, inbox: u64) -> Vec<(u64, String)> {
        let mut out = Vec::new();
        self.machine
            .page(inbox, 1, usize::MAX, usize::MAX, &self.table, &mut out)
            .unwrap();
        out.iter()
            .map(|(sequence, queued)| match queued {
                Queued::Message(item) => {
                    let payload = item.message.body.payload().to_vec();
                    (*sequence, String::from_utf8(payload).unwrap())
                }
                Queued::Released => (*sequence, "PUBREL".to_owned()),
            })
            .collect()
    }

    /// An attached and subscribed session; its inbox.
    fn session(&mut self, client: &str, filter: &str) -> u64 {
        let inbox = self.attach(client, 1, false).inbox;
        self.subscribe(client, 1, filter, QoS::ExactlyOnce);
        inbox
    }

    /// The same, not attached.
    fn sleeper(&mut self, client: &str, filter: &str) -> u64 {
        let inbox = self.session(client, filter);
        self.detach(client, 1, 0);
        inbox
    }
}

fn subscription(filter: &str, qos: QoS) -> StoredSubscription {
    StoredSubscription {
        filter: filter.into(),
        options: SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        },
        id: 0,
    }
}

fn message(topic: &str, payload: &str, qos: QoS) -> ApplicationMessage {
    ApplicationMessage {
        body: MessageBody::new(topic, payload.as_bytes()),
        qos,
        retain: false,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    }
}

fn publish(message: ApplicationMessage, origin: Option<Origin>) -> InboxOp {
    InboxOp::Publish {
        message: Arc::new(message),
        publisher: 0,
        origin,
    }
}

fn item(topic: &str, payload: &str, qos: QoS, group: Option<&str>) -> Item {
    Item {
        message: Arc::new(message(topic, payload, qos)),
        qos,
        retain: false,
        subscription_ids: SubscriptionIdSet::None,
        group: group.map(Into::into),
    }
}

const fn published(matched: u32, refused: u32) -> InboxReply {
    InboxReply::Published {
        matched,
        refused,
        pressing: 0,
    }
}

fn payloads(list: &[(u64, &str)]) -> Vec<(u64, String)> {
    list.iter()
        .map(|&(sequence, payload)| (sequence, payload.to_owned()))
        .collect()
}
