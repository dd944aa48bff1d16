//! What the set of shards does with requests while shards are split off, without any thread.

use std::sync::Mutex as StdMutex;

use bytes::Bytes;
use consensus::Nobody;
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use store_state::api::StoreId;
use store_state::inbox::{InboxDrop, InboxMachine, InboxOp, InboxReply, StoredSubscription};
use store_state::session::{ClaimRequest, OfAnotherUser, SessionMachine, SessionOp};
use store_state::{Level, Limits, NameHash};
use tokio::time::Instant;

use super::*;
use crate::leadership::state::LeaderHint;
use crate::peers::message::Answers;
use crate::peers::network::Peers;
use crate::shard::request::work;
use crate::shard::retained::{PageRequest, Selection, Wanted};
use crate::shard::routing::ShardRouting;

type Inboxes = Shards<InboxMachine>;

/// Hears what event loops are told.
#[derive(Default)]
struct Ear(StdMutex<Vec<(usize, Event)>>);

impl Listener for Ear {
    fn mail(&self, loop_index: usize, events: Vec<Event>) {
        let mut heard = self.0.lock().unwrap();
        heard.extend(events.into_iter().map(|event| (loop_index, event)));
    }

    fn loops(&self) -> usize {
        1
    }

    fn filter(&self, _: ShardNumber, _: &str, _: bool, _: bool) {}

    fn member(&self, _: ShardNumber, _: &str, _: &str, _: Option<&StoredSubscription>) {}

    fn dropped(&self, _: &InboxDrop<'_>) {}

    fn lost(&self, _: &str, _: &ApplicationMessage) {}

    fn failed(&self, what: &str) {
        panic!("{what}");
    }

    fn now_ms(&self) -> u64 {
        1
    }

    fn limits(&self) -> Limits {
        Limits {
            queue: store_state::QueueLimits {
                messages: 1,
                bytes: 1,
                full: QueueFull::DropOldest,
                is_closed: false,
            },
            qos0: Qos0Inbox::Offline,
            retained_messages: 1,
            retained_bytes: 1,
            classes: store_state::ClassLimits::NONE,
        }
    }
}

fn shards(base: u16) -> Arc<Inboxes> {
    shards_of(base, None)
}

fn shards_of<M: Kind>(base: u16, peers: Option<Arc<dyn Peers>>) -> Arc<Shards<M>> {
    let folder = tempfile::tempdir().unwrap();
    let map = ShardMap::open(folder.path(), base, NameHash::with_seed(3)).unwrap();
    let shards = Arc::new(Shards::new(map, Level::NEWEST));
    shards.set_maker(Box::new(move |shards, number| MadeShard {
        shard: Shard::new(number, shards, ShardRouting::new(1, peers.clone())),
        invite: mpsc::channel(1).0,
        start: Box::new(|| {}),
    }));
    for number in 0..base {
        shards.add_first(number);
    }
    shards
}

fn numbers(known: &KnownShards<InboxMachine>) -> Vec<ShardNumber> {
    known.refs().iter().map(|shard| shard.number).collect()
}

#[test]
fn each_slot_has_the_shard_whose_range_holds_it() {
    for base in [1, 2, 3, 7, 100] {
        let shards = shards(base);
        for slot in 0..=u16::MAX {
            let number = shards.of_slot(slot);
            assert!(shards.base().range(number).contains(slot));
        }
        assert!(numbers(&shards.load()).into_iter().eq(0..base));
        for number in 0..base {
            let last = shards.base().range(number).last;
            assert_eq!(shards.to_ref(number), ShardRef { number, last });
        }
    }
}

#[test]
fn a_shard_that_a_split_has_made_takes_the_slots_from_its_number_on() {
    let shards = shards(3);
    let before = shards.load();
    for number in [60_000, 30_000, 65_534, 30_001] {
        assert!(shards.get(number).is_none());
        assert!(shards.learn(number));
        assert!(!shards.learn(number), "it is here already");
    }
    assert!(
        !shards.learn(43_690),
        "a shard of the beginning has it first"
    );
    let of = [
        (0, 0),
        (21_844, 0),
        (21_845, 1),
        (29_999, 1),
        (30_000, 30_000),
        (30_001, 30_001),
        (43_689, 30_001),
        (43_690, 2),
        (59_999, 2),
        (65_533, 60_000),
        (65_535, 65_534),
    ];
    for (slot, number) in of {
        assert_eq!(shards.of_slot(slot), number, "slot {slot}");
    }
    let all = [0, 1, 30_000, 30_001, 2, 60_000, 65_534];
    assert_eq!(numbers(&shards.load()), all);
    assert_eq!(numbers(&before), [0, 1, 2]);
    let lasts: Vec<_> = shards
        .load()
        .refs()
        .iter()
        .map(|shard| shard.last)
        .collect();
    let expected = [21_844, 29_999, 30_000, 43_689, 59_999, 65_533, 65_535];
    assert_eq!(lasts, expected);
    for (number, last) in all.into_iter().zip(expected) {
        assert_eq!(shards.to_ref(number), ShardRef { number, last });
        assert_eq!(shards.get(number).unwrap().number, number);
    }
    // The first slot of another one is no number of a shard.
    assert!(shards.get(21_845).is_none() && shards.get(5).is_none());
}

#[test]
fn threads_that_learn_at_once_lose_nothing() {
    let shards = shards(1);
    let threads = (0..4_u16).map(|thread| {
        let shards = Arc::clone(&shards);
        std::thread::spawn(move || {
            let mut added = 0;
            for n in 1..100 {
                // Two threads of four learn the same.
                let number = n * 4 + thread / 2;
                added += u32::from(shards.learn(number));
                assert_eq!(shards.of_slot(number), number);
            }
            added
        })
    });
    let threads: Vec<_> = threads.collect();
    let added = threads.into_iter().map(|thread| thread.join().unwrap());
    assert_eq!(added.sum::<u32>(), 2 * 99);
    let known = shards.load();
    assert!(known.refs().is_sorted_by_key(|shard| shard.last));
    assert_eq!(known.refs().len(), 1 + 2 * 99);
}

const AT: u16 = 30_000;

fn of_loop(token: u64) -> CorrelationId {
    CorrelationId {
        peer: 0,
        loop_number: 1,
        token,
    }
}

/// A request of a client whose session has this slot.
fn of_session(slot: u16, token: u64) -> Work<InboxOp> {
    let op = InboxOp::Unsubscribe {
        session: store_state::inbox::SessionName::Inbox(store_state::inbox::InboxId::new(slot, 1)),
        epoch: token,
        filters: Vec::new(),
    };
    work(of_loop(token), op, false)
}

/// A request for all sessions of a shard.
fn for_all() -> Ask<InboxOp> {
    Ask::Propose {
        op: InboxOp::NodeUp {
            node: 7,
            incarnation: 1,
        },
        must_wait: false,
        is_patient: false,
    }
}

/// What a shard would do now, in order: who waits, and for which slots.
fn taken(shards: &Inboxes, number: ShardNumber) -> Vec<(CorrelationId, Option<u16>)> {
    let shard = shards.get(number).unwrap();
    let mut out = Vec::new();
    for (_, work) in shard.queue.take_now(100, Instant::now()) {
        out.push(match work {
            Work::Propose { request, .. } => {
                let until = request.until.last(u16::MAX);
                let is_for_all = InboxMachine::slot_of_op(&request.op).is_none();
                (request.correlation_id, is_for_all.then_some(until))
            }
            Work::Barrier(correlation_id, until) => (correlation_id, Some(until.0)),
            Work::Page(request) => (request.correlation_id, None),
            other => panic!("{other:?}"),
        });
    }
    out
}

trait SlotOfOp {
    fn slot_of_op(op: &InboxOp) -> Option<u16>;
}

impl SlotOfOp for InboxMachine {
    fn slot_of_op(op: &InboxOp) -> Option<u16> {
        use store_state::Machine as _;
        Self::slot(op, NameHash::with_seed(3))
    }
}

/// A shard answers that it has slots up to the one before `AT` only.
fn split_off(shards: &Arc<Inboxes>, ear: &Ear, work: Work<InboxOp>, reply: Option<Event>) {
    let moved = SplitOff {
        work,
        bytes: 1,
        reply,
        last: LastSlot(AT - 1),
    };
    shards.send_on(ear, 0, Vec::new(), vec![moved]);
}

fn answer(shards: &Arc<Inboxes>, ear: &Ear, answer: Event) {
    shards.send_on(ear, 0, vec![answer], Vec::new());
}

#[test]
fn what_a_session_asks_keeps_its_order_over_a_split() {
    let (shards, ear) = (shards(1), Ear::default());
    // Given before the node has heard of the split, and taken out by the shard.
    for token in 1..=3 {
        shards.give_to_slot(AT, of_session(AT, token), 1, false);
    }
    assert_eq!(taken(&shards, 0).len(), 3);
    // Behind these, on its way to the shard.
    shards.give_to_slot(AT, of_session(AT, 4), 1, false);
    split_off(&shards, &ear, of_session(AT, 1), None);
    // Goes to the child at once, and waits there.
    shards.give_to_slot(AT + 5, of_session(AT, 5), 1, false);
    shards.give_to_slot(AT - 1, of_session(AT - 1, 6), 1, false);
    let tokens = |number| {
        taken(&shards, number)
            .iter()
            .map(|(id, _)| id.token)
            .collect::<Vec<_>>()
    };
    assert_eq!(tokens(AT), [0; 0], "its gate is closed");
    let gate = taken(&shards, 0);
    let [(four, None), (gate, Some(0)), (six, None)] = *gate else {
        panic!("{gate:?}")
    };
    assert_eq!(
        (four.token, gate.loop_number, six.token),
        (4, CorrelationId::STORE, 6)
    );
    for token in 2..=4 {
        split_off(&shards, &ear, of_session(AT, token), None);
    }
    assert_eq!(tokens(AT), [0; 0], "the parent has not passed the barrier");
    answer(&shards, &ear, Event::passed(gate.token));
    assert_eq!(tokens(AT), [1, 2, 3, 4, 5]);
    assert_eq!(shards.joins.lock().len(), 0);
    assert!(
        ear.0.lock().unwrap().is_empty(),
        "no client hears of a split"
    );
}

/// A question for the retained message of a topic.
fn page_of(topic: &str, token: u64) -> Work<InboxOp> {
    let base = shards(1).base();
    Work::Page(PageRequest {
        correlation_id: of_loop(token),
        wanted: Wanted {
            selections: vec![Selection::new(topic, None, base)],
            limit: 1,
            now_ms: 0,
        },
    })
}

/// A topic whose slot is as asked for.
fn topic(is_wanted: impl Fn(u16) -> bool) -> String {
    let hash = NameHash::with_seed(3);
    let mut topics = (0..).map(|n| format!("t{n}"));
    topics.find(|topic| is_wanted(hash.slot_of(topic))).unwrap()
}

#[test]
fn a_question_for_pages_goes_to_the_shard_of_its_topics_behind_what_was_given_before() {
    let (shards, ear) = (shards(1), Ear::default());
    shards.give_to_slot(AT, of_session(AT, 1), 1, false);
    let upper = topic(|slot| slot >= AT);
    split_off(&shards, &ear, page_of(&upper, 2), None);
    split_off(&shards, &ear, of_session(AT, 1), None);
    let [_, (gate, _)] = *taken(&shards, 0) else {
        panic!("the request, and a barrier behind it")
    };
    answer(&shards, &ear, Event::passed(gate.token));
    let asked = taken(&shards, AT);
    let tokens: Vec<u64> = asked.iter().map(|(id, _)| id.token).collect();
    assert_eq!(tokens, [1, 2]);
    assert!(ear.0.lock().unwrap().is_empty());
}

#[test]
fn what_is_refused_before_the_split_has_what_waits_at_the_gate_refused() {
    let (shards, ear) = (shards(1), Ear::default());
    shards.learn(AT);
    shards.give_to_slot(AT, of_session(AT, 5), 1, false);
    let [(gate, _)] = *taken(&shards, 0) else {
        panic!("a barrier")
    };
    answer(&shards, &ear, Event::failed(Failure::Stopped)(gate.token));
    let heard = ear.0.lock().unwrap();
    assert!(
        matches!(heard[..], [(0, Event::Failed { token: 5, .. })]),
        "{heard:?}"
    );
    assert!(taken(&shards, AT).is_empty() && !shards.get(AT).unwrap().queue.is_gated());
}

fn published(token: u64, matched: u32) -> Event {
    Event::Inbox {
        token,
        reply: InboxReply::Published {
            matched,
            refused: 0,
            pressing: 0,
        },
    }
}

/// The only thing that a loop was told: how many sessions a publication has found.
fn found(ear: &Ear) -> Option<(u64, u32)> {
    match ear.0.lock().unwrap()[..] {
        [] => None,
        [
            (
                0,
                Event::Inbox {
                    token,
                    reply: InboxReply::Published { matched, .. },
                },
            ),
        ] => Some((token, matched)),
        ref other => panic!("{other:?}"),
    }
}

fn for_all_work(id: CorrelationId, until: RoutedUntil) -> Work<InboxOp> {
    let Ask::Propose { op, .. } = for_all() else {
        unreachable!()
    };
    Work::Propose {
        request: Request {
            until,
            correlation_id: id,
            op,
        },
        must_wait: false,
    }
}

#[test]
fn a_publication_that_was_routed_before_a_split_is_answered_when_both_halves_have_it() {
    let (shards, ear) = (shards(1), Ear::default());
    let whole = shards.to_ref(0);
    let given = shards.give_to_all(whole, of_loop(9), for_all(), 1);
    assert_eq!(given, Given::Taken);
    assert_eq!(taken(&shards, 0), [(of_loop(9), Some(u16::MAX))]);
    let work = for_all_work(of_loop(9), RoutedUntil::FIRST);
    split_off(&shards, &ear, work, Some(published(9, 2)));
    assert_eq!(found(&ear), None, "the child has yet to answer");
    let [(gate, _)] = *taken(&shards, 0) else {
        panic!("a barrier")
    };
    answer(&shards, &ear, Event::passed(gate.token));
    let [(id, Some(u16::MAX))] = *taken(&shards, AT) else {
        panic!("the publication")
    };
    assert_eq!(id.loop_number, CorrelationId::STORE);
    answer(&shards, &ear, published(id.token, 3));
    assert_eq!(found(&ear), Some((9, 5)));
    assert_eq!(shards.joins.lock().len(), 0);
}

#[test]
fn what_was_routed_before_the_node_heard_of_a_split_is_given_to_both_halves() {
    let (shards, ear) = (shards(1), Ear::default());
    let whole = shards.to_ref(0);
    shards.learn(AT);
    let [(gate, _)] = *taken(&shards, 0) else {
        panic!("a barrier")
    };
    answer(&shards, &ear, Event::passed(gate.token));
    let given = shards.give_to_all(whole, of_loop(9), for_all(), 1);
    assert_eq!(given, Given::Taken);
    let (parent, child) = (taken(&shards, 0), taken(&shards, AT));
    let ([(lower, Some(last))], [(upper, Some(u16::MAX))]) = (&*parent, &*child) else {
        panic!("{parent:?} {child:?}")
    };
    assert_eq!((lower, *last), (upper, AT - 1));
    answer(&shards, &ear, published(lower.token, 1));
    assert_eq!(found(&ear), None);
    answer(&shards, &ear, published(upper.token, 1));
    assert_eq!(found(&ear), Some((9, 2)));
    // Routed by the half alone: the other one is not asked.
    let lower = shards.to_ref(0);
    let given = shards.give_to_all(lower, of_loop(10), for_all(), 1);
    assert_eq!(given, Given::Taken);
    assert_eq!(taken(&shards, 0), [(of_loop(10), Some(AT - 1))]);
    assert_eq!(taken(&shards, AT), []);
    let unknown = ShardRef { number: 5, last: 9 };
    let given = shards.give_to_all(unknown, of_loop(11), for_all(), 1);
    assert_eq!(given, Given::Nowhere);
}

#[test]
fn a_request_follows_splits_of_which_the_node_has_not_heard_to_the_last_half() {
    let (shards, ear) = (shards(1), Ear::default());
    // Three splits; the node hears of the last one first.
    let moved = |work, reply, last| SplitOff {
        work,
        bytes: 1,
        reply,
        last: LastSlot(last),
    };
    let work = for_all_work(of_loop(9), RoutedUntil::FIRST);
    let first = moved(work, Some(published(9, 1)), 9_999);
    shards.send_on(&ear, 0, Vec::new(), vec![first]);
    let open = |parent| {
        for (id, _) in taken(&shards, parent) {
            answer(&shards, &ear, Event::passed(id.token));
        }
    };
    open(0);
    for (number, last) in [(10_000, 19_999), (20_000, 29_999)] {
        let [(id, Some(u16::MAX))] = *taken(&shards, number) else {
            panic!("shard {number}")
        };
        let work = for_all_work(id, RoutedUntil::slot(u16::MAX));
        let next = moved(work, Some(published(id.token, 1)), last);
        shards.send_on(&ear, number, Vec::new(), vec![next]);
        assert_eq!(found(&ear), None);
        open(number);
    }
    let [(id, Some(u16::MAX))] = *taken(&shards, 30_000) else {
        panic!("the last shard")
    };
    answer(&shards, &ear, published(id.token, 1));
    assert_eq!(found(&ear), Some((9, 4)));
    assert_eq!(numbers(&shards.load()), [0, 10_000, 20_000, 30_000]);
    assert_eq!(shards.joins.lock().len(), 0);
}

#[test]
fn a_barrier_is_passed_when_all_halves_have_passed_it() {
    let (shards, ear) = (shards(1), Ear::default());
    let given = shards.give_to_all(shards.to_ref(0), of_loop(9), Ask::Barrier, 0);
    assert_eq!(given, Given::Taken);
    shards.learn(AT);
    let parent = shards.get(0).unwrap();
    let [barrier, gate] = *taken(&shards, 0) else {
        panic!("two barriers")
    };
    parent.pass(&ear, &[(barrier.0, LastSlot(barrier.1.unwrap()))]);
    assert!(ear.0.lock().unwrap().is_empty());
    parent.pass(&ear, &[(gate.0, LastSlot(gate.1.unwrap()))]);
    let [(id, Some(u16::MAX))] = *taken(&shards, AT) else {
        panic!("the barrier")
    };
    let child = shards.get(AT).unwrap();
    child.pass(&ear, &[(id, LastSlot(u16::MAX))]);
    let heard = ear.0.lock().unwrap();
    assert!(
        matches!(heard[..], [(0, Event::Passed { token: 9 })]),
        "{heard:?}"
    );
}

#[test]
fn a_peer_that_lies_about_slots_breaks_nothing() {
    let (shards, ear) = (shards(1), Ear::default());
    let lie = |work, last| {
        let moved = SplitOff {
            work,
            bytes: 1,
            reply: None,
            last: LastSlot(last),
        };
        shards.send_on(&ear, 0, Vec::new(), vec![moved]);
    };
    // The slot is below the last one that the shard says to have.
    lie(of_session(5, 1), 9);
    lie(of_session(5, 2), u16::MAX);
    lie(for_all_work(of_loop(3), RoutedUntil::slot(7)), 9);
    // It has the first topic that is asked for.
    lie(page_of(&topic(|slot| slot < 9), 6), 9);
    let heard = ear.0.lock().unwrap();
    assert_eq!(heard.len(), 4, "{heard:?}");
    assert_eq!(
        shards.joins.lock().len(),
        1,
        "the gate of the shard that may be there"
    );
    drop(heard);
    for n in 0..5_000 {
        lie(of_session(u16::MAX, 4), n + 10);
    }
    assert_eq!(shards.load().refs().len(), SHARDS_MOST);
    // There is no room for the shard that would have the slot: it does not go round for ever.
    lie(of_session(9, 5), 4);
    let heard = ear.0.lock().unwrap();
    assert!(
        matches!(heard.last(), Some((0, Event::Failed { token: 5, .. }))),
        "{heard:?}"
    );
}

/// A node has come up again: nobody asks a second time, and the child has sessions of it.
#[test]
fn what_nobody_waits_for_reaches_the_child() {
    let (shards, ear) = (shards(1), Ear::default());
    let Ask::Propose { op, must_wait, .. } = for_all() else {
        panic!("it is to be proposed");
    };
    let request = Request {
        until: RoutedUntil::FIRST,
        correlation_id: CorrelationId::NONE,
        op,
    };
    split_off(&shards, &ear, Work::Propose { request, must_wait }, None);
    let gate = taken(&shards, 0);
    let [(gate, Some(0))] = *gate else {
        panic!("{gate:?}")
    };
    answer(&shards, &ear, Event::passed(gate.token));
    let childs = taken(&shards, AT);
    assert_eq!(childs, [(CorrelationId::NONE, Some(u16::MAX))]);
    assert_eq!(shards.joins.lock().len(), 0);
}

impl Peers for Nobody {
    fn send(&self, _: u64, _: Bytes) {}
}

/// What the child at `AT` is asked when a claim was sent to the parent's leader, then as often to further ones as
/// `leaders` says, and the last one has answered that the slot is the child's.
fn claim_for_child(leaders: u64) -> SessionOp {
    let ear = Ear::default();
    let shards = shards_of::<SessionMachine>(1, Some(Arc::new(Nobody)));
    let hash = shards.hash();
    let mut names = (0..).map(|number| format!("client-{number}"));
    let client = names.find(|name| hash.slot_of(name) >= AT).unwrap();
    let request = ClaimRequest {
        client: client.into(),
        node: 1,
        node_incarnation: 1,
        clean_start: false,
        expiry: 100,
        will: None,
        asked_ms: 1,
    };
    let claim = SessionOp::claim(request, None, OfAnotherUser::Refuse);
    let parent = shards.get(0).unwrap();
    let led_by = |leader| LeaderHint {
        leader,
        is_reachable: true,
        ..LeaderHint::default()
    };
    parent.forward(led_by(2), vec![(1, work(of_loop(1), claim, false))]);
    for leader in 3..3 + leaders {
        parent.retry_forwarded(&ear, led_by(leader));
    }
    let is_childs = Event::SplitOff {
        token: 1,
        reply: None,
        last: LastSlot(AT - 1),
    };
    let answers = Answers {
        answers: vec![is_childs],
        pages: Vec::new(),
    };
    for part in answers.parts(StoreId::Session, 0) {
        parent.delivered(&ear, part);
    }
    let child = shards.get(AT).unwrap();
    match child.queue.remove_if(|_| true).pop() {
        Some(Work::Propose { request, .. }) => request.op,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_that_an_earlier_leader_may_have_carried_out_is_a_repetition_at_the_child() {
    let first = claim_for_child(0);
    assert!(matches!(first, SessionOp::ClaimHolding(_)), "{first:?}");
    for leaders in 1..3 {
        let again = claim_for_child(leaders);
        assert!(
            matches!(again, SessionOp::ClaimHoldingAgain(_)),
            "{again:?}"
        );
    }
}

/// A message of QoS 0 for a session that lingers: nothing tells it from another one that says the same.
fn late_message() -> InboxOp {
    InboxOp::DeliverLate {
        session: store_state::inbox::SessionName::Inbox(store_state::inbox::InboxId::new(0, 1)),
        epoch: 1,
        detached: false,
        item: store_state::inbox::Item {
            message: Arc::new(ApplicationMessage {
                body: mqtt_proto::MessageBody::new("t", b"1"),
                qos: mqtt_proto::QoS::AtMostOnce,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            qos: mqtt_proto::QoS::AtMostOnce,
            retain: false,
            subscription_ids: mqtt_session::SubscriptionIdSet::None,
            group: None,
        },
    }
}

#[test]
fn what_may_be_kept_already_is_refused_when_the_leader_changes() {
    let led_by = |leader| LeaderHint {
        leader,
        is_reachable: true,
        ..LeaderHint::default()
    };
    for leads_itself in [false, true] {
        let ear = Ear::default();
        let shards = shards_of::<InboxMachine>(1, Some(Arc::new(Nobody)));
        let shard = shards.get(0).unwrap();
        let late = (1, work(of_loop(1), late_message(), false));
        shard.forward(led_by(2), vec![late, (1, of_session(0, 2))]);
        if !leads_itself {
            shard.retry_forwarded(&ear, led_by(3));
        }
        shard.requeue_sent(&ear);
        let heard = ear.0.lock().unwrap();
        assert!(
            matches!(**heard, [(0, Event::Failed { token: 1, .. })]),
            "{heard:?}"
        );
        assert_eq!(taken(&shards, 0), [(of_loop(2), None)]);
    }
}

/// As when the process has stood still: it takes the others for gone, and learns then that they have gone on without it.
#[test]
fn what_a_leader_finds_ends_with_its_leadership() {
    let shards = shards_of::<InboxMachine>(1, Some(Arc::new(Nobody)));
    let shard = shards.get(0).unwrap();
    let lead = |leader| {
        shard.routing.hint.send_replace(LeaderHint {
            leader,
            is_reachable: true,
            ..LeaderHint::default()
        });
    };
    let find = || {
        let gone = InboxOp::NodeUp {
            node: 2,
            incarnation: 2,
        };
        let found = work(CorrelationId::LEADER, gone, true);
        shard.routing.while_here(|| shard.give(found, 1));
    };
    find();
    assert_eq!(shard.given(), 0, "nobody has said that this node leads");
    lead(1);
    find();
    shard.give(of_session(0, 1), 1);
    assert_eq!((shard.given(), shard.is_idle()), (2, false));
    lead(0);
    shard.drop_forwarded();
    assert_eq!(taken(&shards, 0), [(of_loop(1), None)]);
    assert!(shard.has_finished(1), "what is dropped is counted");
}
