//! What back-pressure does in each state of a session with each thing that happens to it.

use mqtt_proto::PacketType;
use mqtt_session::{Outcome, Timestamp};
use net_api::Key;

use super::held::{Earned, Hold as Of, Wait};
use super::held_time::HeldReason;
use super::hold::Backpressure;
use crate::key::SessionKey;
use crate::tests::bench::Bench;

/// What a session is to its publishers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subscriber {
    /// It holds nobody back, and has not shown whether it drains.
    Free,
    /// It holds publishers back.
    Holding,
    /// It held them for the whole time, and has not drained since.
    Spent,
    /// It has drained since then, though not often enough.
    OnProbation,
    /// It holds nobody back, and has shown that it drains.
    Proven,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ToSubscriber {
    /// A message is queued, and the queue is three quarters full.
    Full,
    /// The queue is less than half full.
    Drained,
    /// The time for holding back is over.
    Timer,
    /// The connection ends.
    End,
}

use Subscriber::*;
use ToSubscriber::*;

/// State, input, next state, effects.
const TRANSITIONS: &[(Subscriber, ToSubscriber, Subscriber, &[&str])] = &[
    (Free, Full, Holding, &["hold", "timer of the hold"]),
    (Free, Drained, Free, &[]),
    (Free, Timer, Free, &[]),
    (Free, End, Free, &[]),
    // The publisher is held back already.
    (Holding, Full, Holding, &[]),
    (Holding, Drained, Proven, &["release"]),
    (Holding, Timer, Spent, &["release"]),
    (Holding, End, Free, &["release"]),
    (Spent, Full, Spent, &[]),
    (Spent, Drained, OnProbation, &[]),
    (Spent, Timer, Spent, &[]),
    (Spent, End, OnProbation, &[]),
    // The publisher has waited for it in vain, and is spared.
    (OnProbation, Full, OnProbation, &[]),
    (OnProbation, Drained, OnProbation, &[]),
    (OnProbation, Timer, OnProbation, &[]),
    (OnProbation, End, OnProbation, &[]),
    (Proven, Full, Holding, &["hold", "timer of the hold"]),
    (Proven, Drained, Proven, &[]),
    (Proven, Timer, Proven, &[]),
    (Proven, End, Proven, &[]),
];

/// By how many subscribers a publisher is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    No,
    Once,
    Twice,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ToPublisher {
    /// A subscriber holds it back.
    Hold,
    /// A subscriber lets it go.
    Release,
    /// It has sent a PUBLISH.
    Publish,
    /// It has sent a PUBACK.
    PubAck,
    /// It has sent a SUBSCRIBE.
    Subscribe,
    /// What was kept of it has been handled.
    Handled,
}

use ToPublisher::*;

/// State, input, next state, effects.
const TRANSITIONS_OF_PUBLISHERS: &[(Held, ToPublisher, Held, &[&str])] = &[
    (Held::No, Hold, Held::Once, &[]),
    (Held::No, Publish, Held::No, &["handled"]),
    (Held::No, PubAck, Held::No, &["handled"]),
    (Held::No, Subscribe, Held::No, &["handled"]),
    (Held::No, Handled, Held::No, &["read p"]),
    (Held::Once, Hold, Held::Twice, &[]),
    (Held::Once, Release, Held::No, &["handle what was kept"]),
    (Held::Once, Publish, Held::Once, &["kept"]),
    // So that its own queue can drain.
    (Held::Once, PubAck, Held::Once, &["handled"]),
    (Held::Once, Subscribe, Held::Once, &["left unread"]),
    (Held::Once, Handled, Held::Once, &[]),
    (Held::Twice, Release, Held::Once, &[]),
    (Held::Twice, Publish, Held::Twice, &["kept"]),
    (Held::Twice, PubAck, Held::Twice, &["handled"]),
    (Held::Twice, Subscribe, Held::Twice, &["left unread"]),
    (Held::Twice, Handled, Held::Twice, &[]),
];

/// A subscriber `s` and a publisher `p`, and the part.
struct Script {
    bench: Bench,
    backpressure: Backpressure,
    subscriber: Key,
    publisher: Key,
}

/// How long publishers are held back at most, in ms.
const HOLD_MS: u64 = 1_000;

impl Script {
    fn new() -> Self {
        Self::with_unearned(HOLD_MS)
    }

    /// Who has earned nothing may hold back for so long, in ms.
    fn with_unearned(unearned_ms: u64) -> Self {
        let mut bench = Bench::with(|settings| {
            settings.limits.policy.queue_messages = 4;
            settings.hold_publisher_ms = HOLD_MS;
            settings.hold_unearned_ms = unearned_ms;
        });
        let subscriber = bench.connect("s");
        let publisher = bench.connect("p");
        Self {
            bench,
            backpressure: Backpressure::default(),
            subscriber,
            publisher,
        }
    }

    fn hold(&mut self, key: Key) -> Option<&mut Of> {
        self.bench
            .clients
            .get_mut(key)?
            .rare
            .get_mut(|of| &mut of.hold)
            .map(|of| &mut **of)
    }

    /// A publisher in another loop, as messages name it.
    fn elsewhere(number: u32) -> u64 {
        let slot = Key {
            slot: number,
            generation: 0,
        };
        SessionKey::new(1, slot).to_bits()
    }

    /// Queues QoS 1 messages for the subscriber until there are so many.
    fn fill(&mut self, most: usize) {
        let queued = |bench: &Bench| {
            bench
                .clients
                .get(self.subscriber)
                .unwrap()
                .session
                .queue_len()
        };
        while queued(&self.bench) < most {
            self.bench.queue(self.subscriber, "t");
        }
    }

    /// The subscriber reads whatever is queued for it.
    fn drain(&mut self) {
        let policy = self.bench.base.settings.limits.policy.clone();
        let now = Timestamp(self.bench.io.now_ms);
        let session = &mut self.bench.clients.get_mut(self.subscriber).unwrap().session;
        let (mut out, mut outcome) = (Vec::new(), Outcome::default());
        let _ = session.poll_transmit(&mut out, 1 << 16, &mut outcome, &policy, now);
        assert_eq!(session.queue_len(), 0);
    }

    fn tell_subscriber(&mut self, input: ToSubscriber) -> Vec<String> {
        let key = self.subscriber;
        match input {
            Full => {
                self.fill(3);
                let publisher = Self::elsewhere(9);
                let turn = &mut self.bench.turn();
                self.backpressure
                    .handle_queueing(turn, key, publisher, false);
            }
            Drained => {
                self.drain();
                self.backpressure
                    .handle_drained(&mut self.bench.turn(), key);
            }
            Timer => {
                self.bench.io.now_ms += HOLD_MS;
                self.backpressure
                    .handle_hold_timer(&mut self.bench.turn(), key);
            }
            End => self
                .backpressure
                .handle_end_of_connection(&mut self.bench.turn(), key),
        }
        self.bench.effects()
    }

    fn subscriber(&mut self) -> Subscriber {
        match self.hold(self.subscriber) {
            None => Free,
            Some(hold) if !hold.of.is_empty() => Holding,
            Some(hold) if hold.spent => Spent,
            Some(hold) if hold.drained < 0 => OnProbation,
            Some(hold) if hold.drained > 0 => Proven,
            // It remembers when the log said something of it.
            Some(_) => Free,
        }
    }

    fn tell_publisher(&mut self, input: ToPublisher) -> Vec<String> {
        let key = self.publisher;
        let packet = match input {
            Hold => {
                self.backpressure.handle_held(
                    &mut self.bench.turn(),
                    key,
                    HeldReason::SubscriberQueue,
                    None,
                );
                None
            }
            Release => {
                self.backpressure
                    .handle_released(&mut self.bench.turn(), key);
                None
            }
            Handled => {
                self.backpressure
                    .handle_frames_handled(&mut self.bench.turn(), key);
                None
            }
            Publish => Some(PacketType::Publish),
            PubAck => Some(PacketType::PubAck),
            Subscribe => Some(PacketType::Subscribe),
        };
        let mut seen = self.bench.effects();
        if let Some(packet) = packet {
            let hold = self.hold(key).filter(|hold| hold.is_held());
            seen.push(
                match hold.map_or(Wait::No, |hold| hold.wait(packet, b"frame")) {
                    Wait::No => "handled".to_owned(),
                    Wait::Kept => "kept".to_owned(),
                    Wait::Pause => "left unread".to_owned(),
                },
            );
        }
        seen
    }

    fn held(&mut self) -> Held {
        match self.hold(self.publisher).map_or(0, |hold| hold.by) {
            0 => Held::No,
            1 => Held::Once,
            _ => Held::Twice,
        }
    }
}

#[test]
fn a_subscriber_goes_from_state_to_state_as_the_table_says() {
    for &(state, input, next, effects) in TRANSITIONS {
        let way: &[ToSubscriber] = match state {
            Free => &[],
            Holding => &[Full],
            Spent => &[Full, Timer],
            OnProbation => &[Full, Timer, Drained],
            Proven => &[Full, Drained],
        };
        let mut script = Script::new();
        for step in way {
            script.tell_subscriber(*step);
        }
        assert_eq!(script.subscriber(), state, "{way:?}");
        let seen = script.tell_subscriber(input);
        assert_eq!(seen, effects, "{state:?}, {input:?}");
        assert_eq!(script.subscriber(), next, "{state:?}, {input:?}");
    }
    let pairs = TRANSITIONS
        .iter()
        .map(|(state, input, ..)| (*state, *input));
    assert_eq!(distinct(pairs), 5 * 4, "each state with each input");
}

#[test]
fn a_publisher_goes_from_state_to_state_as_the_table_says() {
    for &(state, input, next, effects) in TRANSITIONS_OF_PUBLISHERS {
        let mut script = Script::new();
        let holders = match state {
            Held::No => 0,
            Held::Once => 1,
            Held::Twice => 2,
        };
        for _ in 0..holders {
            script.tell_publisher(Hold);
        }
        assert_eq!(script.held(), state);
        let seen = script.tell_publisher(input);
        if (state, input) != (Held::Twice, Hold) {
            assert_eq!(seen, effects, "{state:?}, {input:?}");
            assert_eq!(script.held(), next, "{state:?}, {input:?}");
        }
    }
    // Whom nobody holds, nobody lets go; by how many more than two does not matter.
    let pairs = TRANSITIONS_OF_PUBLISHERS
        .iter()
        .map(|(state, input, ..)| (*state, *input));
    assert_eq!(distinct(pairs), 3 * 6 - 2, "each state with each input");
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> usize {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen.len()
}

#[test]
fn a_session_that_has_earned_nothing_holds_up_nobody_elses_messages() {
    let mut script = Script::with_unearned(0);
    script.fill(3);
    let (key, publisher) = (script.subscriber, Script::elsewhere(9));
    let turn = &mut script.bench.turn();
    assert!(
        !script
            .backpressure
            .handle_queueing(turn, key, publisher, true)
    );
    assert_eq!(turn.base.stats.holds_spared.get(), 1);
    assert!(
        script
            .backpressure
            .handle_queueing(turn, key, publisher, false)
    );
}

#[test]
fn what_a_session_acknowledges_earns_it_time() {
    let mut script = Script::new();
    let key = script.subscriber;
    for _ in 0..625 {
        script
            .backpressure
            .handle_acknowledgement(&mut script.bench.turn(), key);
    }
    let earned = script.bench.clients.get(key).unwrap().acknowledged;
    assert_eq!(earned.part_of(1_000), 500);
    for step in [Full, Timer] {
        script.tell_subscriber(step);
    }
    let earned = script.bench.clients.get(key).unwrap().acknowledged;
    assert_eq!(earned, Earned::default(), "it has held somebody in vain");
}

#[test]
fn who_floods_itself_is_not_held_back() {
    let mut script = Script::new();
    script.fill(3);
    let key = script.subscriber;
    let itself = script.bench.base.session_key(key).to_bits();
    let turn = &mut script.bench.turn();
    assert!(
        !script
            .backpressure
            .handle_queueing(turn, key, itself, false)
    );
    assert_eq!(script.subscriber(), Free);
}

#[test]
fn a_node_holds_back_only_while_it_is_linked() {
    let mut script = Script::new();
    let key = script.publisher;
    let found_by = script.bench.base.session_key(key).found_by();
    let turn = &mut script.bench.turn();
    for node in [7, 7, 8] {
        script.backpressure.handle_remote_hold(turn, node, found_by);
    }
    script.backpressure.handle_remote_release(turn, 8, found_by);
    // It is gone already.
    script.backpressure.handle_remote_release(turn, 8, found_by);
    assert_eq!(script.held(), Held::Twice);
    script
        .backpressure
        .handle_lost_link(&mut script.bench.turn(), 7);
    assert_eq!(script.held(), Held::No);
    assert_eq!(script.bench.effects(), ["handle what was kept"]);
}

#[test]
fn a_subscriber_tells_each_publisher_once() {
    let mut script = Script::new();
    script.fill(3);
    let key = script.subscriber;
    for number in [1, 2, 1, 2] {
        let turn = &mut script.bench.turn();
        let publisher = Script::elsewhere(number);
        assert!(
            script
                .backpressure
                .handle_queueing(turn, key, publisher, false)
        );
    }
    let seen = script.bench.effects();
    assert_eq!(seen, ["hold", "hold", "timer of the hold"]);
    let of = script.hold(key).map(|hold| hold.of.len());
    assert_eq!(of, Some(2));
    assert_eq!(script.tell_subscriber(End), ["release", "release"]);
    assert_eq!(script.bench.base.stats.holding.get(), 0);
}
