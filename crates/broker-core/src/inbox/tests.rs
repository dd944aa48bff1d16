//! What the inbox of a client does in each state with each thing that happens to it.

use std::sync::Arc;

use mqtt_proto::{PacketId, QoS};
use mqtt_session::PacketIdSet;
use net_api::Key;
use store_state::api::{Failure, NO_SEQUENCE};
use store_state::inbox::{InboxReply, Item, Queued};

use super::asked::Asked;
use super::{Attachment, Came, Epoch, InboxNumber, Inboxes, Page, Sequence, Stored};
use crate::backpressure::hold::Backpressure;
use crate::pending::{Answer, Pending};
use crate::rights::authorize::Rights;
use crate::tests::bench::{Bench, delivery};
use crate::tests::table::{Machine, Transition, walk};

/// Of the connection.
const EPOCH: Epoch = Epoch(3);

/// Of the one before.
const BEFORE: Epoch = Epoch(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The store does not know the client.
    Unknown,
    /// It does, and the session ends with the connection.
    WithoutInbox,
    /// The inbox may have messages that go before those that come directly.
    Closed,
    /// One that has come directly waits for them.
    Holding,
    /// What comes directly goes to the session.
    Open,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// A page with a message of QoS 1.
    Page,
    /// The same, for an earlier connection.
    PageOfBefore,
    /// The same, behind one that has not come.
    PageBehindGap,
    /// A page with a message of QoS 0 that the inbox does not keep.
    PassedOver,
    /// A message of QoS 0 comes directly.
    Direct0,
    /// One of QoS 1 does, which no inbox is to keep.
    Direct1,
    /// A shard has given what it was asked to read.
    Read,
    /// Packets were read or written.
    Acknowledged,
    /// Another node leads the shard.
    Leader,
    /// PUBREC has come.
    Receipt,
    ReceiptKept,
    ReceiptFailed,
    /// PUBREL has come.
    Release,
    ReleaseKept,
    EndOfConnection,
}

use Input::*;
use State::*;

const GIVEN: &[&str] = &["queued", "write to a"];

/// State, input, next state, effects.
const TRANSITIONS: &[Transition<Script>] = &[
    (Unknown, Page, Unknown, &["stale"]),
    (Unknown, PageOfBefore, Unknown, &["stale"]),
    (Unknown, PageBehindGap, Unknown, &["stale"]),
    (Unknown, PassedOver, Unknown, &["stale"]),
    (Unknown, Direct0, Unknown, GIVEN),
    (Unknown, Direct1, Unknown, GIVEN),
    (Unknown, Read, Unknown, &["stale"]),
    (Unknown, Acknowledged, Unknown, &[]),
    (Unknown, EndOfConnection, Unknown, &[]),
    (WithoutInbox, Page, WithoutInbox, &["stale"]),
    (WithoutInbox, PageOfBefore, WithoutInbox, &["stale"]),
    (WithoutInbox, PageBehindGap, WithoutInbox, &["stale"]),
    (WithoutInbox, PassedOver, WithoutInbox, &["stale"]),
    (WithoutInbox, Direct0, WithoutInbox, GIVEN),
    (WithoutInbox, Direct1, WithoutInbox, GIVEN),
    (WithoutInbox, Read, WithoutInbox, &["stale"]),
    (WithoutInbox, Acknowledged, WithoutInbox, &[]),
    (WithoutInbox, EndOfConnection, Unknown, &[]),
    (Closed, Page, Closed, GIVEN),
    (Closed, PageOfBefore, Closed, &["stale"]),
    (Closed, PageBehindGap, Closed, &["stale"]),
    (
        Closed,
        PassedOver,
        Holding,
        &["inboxes: barrier", "write to a"],
    ),
    (Closed, Direct0, Holding, &["inboxes: barrier"]),
    (Closed, Read, Closed, &["stale"]),
    (Closed, Acknowledged, Closed, &[]),
    (Closed, Leader, Closed, &["open the inbox"]),
    (Closed, Receipt, Closed, &["inbox of a: received 1"]),
    (Closed, ReceiptKept, Closed, &["write to a"]),
    (Closed, ReceiptFailed, Closed, &["end a"]),
    (Closed, Release, Closed, &["inboxes: release #5"]),
    (Closed, ReleaseKept, Closed, &["write to a"]),
    (Closed, EndOfConnection, Unknown, &["inbox of a: detach"]),
    (Holding, Page, Holding, GIVEN),
    (Holding, PageOfBefore, Holding, &["stale"]),
    (Holding, PageBehindGap, Holding, &["stale"]),
    (Holding, PassedOver, Holding, &["write to a"]),
    (Holding, Direct0, Holding, &[]),
    (Holding, Read, Open, GIVEN),
    (Holding, Acknowledged, Holding, &[]),
    (
        Holding,
        Leader,
        Holding,
        &["inboxes: barrier", "open the inbox"],
    ),
    (Holding, Receipt, Holding, &["inbox of a: received 1"]),
    (Holding, ReceiptKept, Holding, &["write to a"]),
    (Holding, ReceiptFailed, Holding, &["end a"]),
    (Holding, Release, Holding, &["inboxes: release #5"]),
    (Holding, ReleaseKept, Holding, &["write to a"]),
    (
        Holding,
        EndOfConnection,
        Unknown,
        &["inbox of a: detach", "gives back d"],
    ),
    (Open, Page, Open, GIVEN),
    (Open, PageOfBefore, Open, &["stale"]),
    (Open, PageBehindGap, Open, &["stale"]),
    (Open, PassedOver, Open, &["write to a"]),
    (Open, Direct0, Open, GIVEN),
    (Open, Read, Open, &["stale"]),
    (Open, Acknowledged, Open, &[]),
    (Open, Leader, Open, &["open the inbox"]),
    (Open, Receipt, Open, &["inbox of a: received 1"]),
    (Open, ReceiptKept, Open, &["write to a"]),
    (Open, ReceiptFailed, Open, &["end a"]),
    (Open, Release, Open, &["inboxes: release #5"]),
    (Open, ReleaseKept, Open, &["write to a"]),
    (Open, EndOfConnection, Unknown, &["inbox of a: detach"]),
];

/// A client `a`, and the parts below.
struct Script {
    bench: Bench,
    rights: Rights,
    backpressure: Backpressure,
    client: Key,
}

impl Script {
    fn stored(&self) -> Option<&Stored> {
        self.bench.clients.get(self.client)?.stored.as_deref()
    }

    fn queued(&self) -> usize {
        let client = self.bench.clients.get(self.client).unwrap();
        client.session.queue_len()
    }

    /// A page with one message. `behind`: so many messages before it have not come.
    fn page(&mut self, epoch: Epoch, behind: u64, sequence: Option<u64>, qos: QoS) {
        let of = delivery("t", qos);
        let item = Item {
            message: Arc::clone(&of.message),
            qos,
            retain: false,
            subscription_ids: of.subscription_ids,
            group: None,
        };
        let inbox = self.stored().and_then(|stored| stored.inbox.as_ref());
        let from = inbox.map_or(1, |inbox| inbox.next.0) + behind;
        let page = Page {
            key: self.client,
            epoch,
            from: Sequence(from),
            items: vec![(sequence.unwrap_or(from), Queued::Message(item))],
        };
        let lower = (&mut self.rights, &mut self.backpressure);
        Inboxes::handle_page(&mut self.bench.turn(), lower, page);
    }

    fn direct(&mut self, qos: QoS) {
        let key = self.client;
        let (rights, backpressure) = (&mut self.rights, &mut self.backpressure);
        let turn = &mut self.bench.turn();
        Inboxes::handle_delivery(
            turn,
            rights,
            backpressure,
            key,
            delivery("d", qos),
            Came::Alone,
        );
    }

    fn answer(&mut self, asked: Asked, answer: &Answer) {
        let lower = (&mut self.rights, &mut self.backpressure);
        Inboxes::handle_answer(&mut self.bench.turn(), lower, asked, answer);
    }

    /// The question that is not answered; if there is none, one of an earlier connection.
    fn barrier(&mut self) -> Asked {
        let pending = &mut self.bench.base.pending;
        let last = pending.keys().next();
        match last.and_then(|id| pending.remove(id)) {
            Some(Pending::Inbox(asked)) => asked,
            Some(other) => panic!("only inboxes ask: {other:?}"),
            None => Asked::Read {
                key: self.client,
                epoch: BEFORE,
                round: Default::default(),
            },
        }
    }

    fn effects(&mut self) -> Vec<String> {
        let mut seen = std::mem::take(&mut self.bench.base.node.rim.store.state().log);
        let opened = std::mem::take(&mut self.bench.base.node.rim.store.state().opened);
        seen.extend(opened.iter().map(|_| "open the inbox".to_owned()));
        seen.extend(self.bench.effects());
        seen
    }
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let mut bench = Bench::with(|_| {});
        bench.base.node.rim.store.state().waits = true;
        let client = match state {
            Unknown | WithoutInbox => bench.connect("a"),
            Closed | Holding | Open => bench.connect_durable("a"),
        };
        match state {
            Unknown => {}
            WithoutInbox => {
                let stored = Stored::without_inbox(EPOCH);
                bench.clients.get_mut(client).unwrap().stored = Some(Box::new(stored));
            }
            Closed | Holding | Open => {
                let attachment = Attachment {
                    epoch: EPOCH,
                    number: InboxNumber(1),
                    incarnation: Epoch(1),
                    present: state != Open,
                    sent: Sequence(1),
                    first: Sequence(1),
                    received: PacketIdSet::new(),
                    repeated: PacketIdSet::new(),
                };
                Inboxes::handle_attached(&bench.base, &mut bench.clients, client, attachment);
            }
        }
        let mut script = Self {
            bench,
            rights: Rights::default(),
            backpressure: Backpressure::default(),
            client,
        };
        if state == Holding {
            script.tell(Direct0);
        }
        script.effects();
        script
    }

    fn state(&self) -> State {
        match self.stored() {
            None => Unknown,
            Some(stored) => match &stored.inbox {
                None => WithoutInbox,
                Some(inbox) if inbox.catching_up.is_open() => Open,
                Some(inbox) if inbox.catching_up.holds() => Holding,
                Some(_) => Closed,
            },
        }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let (key, sequence, packet_id) = (self.client, Sequence(1), PacketId::new(5).unwrap());
        let before = self.queued();
        let stale = self.bench.base.stats.stale_answers.get();
        let kept = Answer::Inbox(InboxReply::Done);
        match input {
            Page => self.page(EPOCH, 0, None, QoS::AtLeastOnce),
            PageOfBefore => self.page(BEFORE, 0, None, QoS::AtLeastOnce),
            PageBehindGap => self.page(EPOCH, 1, None, QoS::AtLeastOnce),
            PassedOver => self.page(EPOCH, 0, Some(NO_SEQUENCE), QoS::AtMostOnce),
            Direct0 => self.direct(QoS::AtMostOnce),
            Direct1 => self.direct(QoS::AtLeastOnce),
            Read => {
                let asked = self.barrier();
                self.answer(asked, &Answer::Passed);
            }
            Acknowledged => {
                Inboxes::handle_acknowledged(&mut self.bench.base, &mut self.bench.clients, key);
            }
            Leader => Inboxes::handle_leader(&mut self.bench.base, &mut self.bench.clients, key),
            Receipt => {
                Inboxes::handle_receipt(&mut self.bench.base, &self.bench.clients, key, sequence);
            }
            ReceiptKept => self.answer(Asked::Receipt { key, sequence }, &kept),
            ReceiptFailed => {
                let failed = Answer::Failed(Failure::Full);
                self.answer(Asked::Receipt { key, sequence }, &failed);
            }
            Release => {
                let Bench { base, clients, .. } = &mut self.bench;
                Inboxes::handle_release(base, clients, key, packet_id);
            }
            ReleaseKept => {
                let asked = Asked::Release {
                    key,
                    packet_id,
                    left: 1,
                };
                self.answer(asked, &kept);
            }
            EndOfConnection => {
                let left = Inboxes::handle_end_of_connection(&mut self.bench.turn(), key, false);
                for of in left.map_or_else(Vec::new, |left| left.held) {
                    let store = &self.bench.base.node.rim.store;
                    store
                        .state()
                        .log
                        .push(format!("gives back {}", of.message.body.topic()));
                }
            }
        }
        let mut seen = self.effects();
        if self.queued() > before {
            seen.insert(0, "queued".to_owned());
        }
        if self.bench.base.stats.stale_answers.get() > stale {
            seen.push("stale".to_owned());
        }
        seen
    }
}

/// What does not happen: only sessions that the store keeps ask for records, and are visited for their inbox; and what the store keeps
/// of them comes from the store.
fn is_impossible(state: State, input: Input) -> bool {
    match state {
        Unknown | WithoutInbox => matches!(
            input,
            Leader | Receipt | ReceiptKept | ReceiptFailed | Release | ReleaseKept
        ),
        Closed | Holding | Open => input == Direct1,
    }
}

#[test]
fn an_inbox_goes_from_state_to_state_as_the_table_says() {
    for (state, input, ..) in TRANSITIONS {
        assert!(!is_impossible(*state, *input), "{state:?}, {input:?}");
    }
    walk::<Script>(TRANSITIONS, 5 * 15 - 2 * 6 - 3);
}
