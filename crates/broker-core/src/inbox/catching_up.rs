//! Messages of QoS 0 that come to a durable session directly, around its return: in order, once, and none is lost uncounted.
//!
//! The inbox keeps messages of QoS 0 until a connection has attached it, and from then on they come directly. Whoever sent
//! them by both ways has sent the kept ones first [MQTT-4.6.0-6]. So direct ones are held until the inbox has given all that
//! it had: a barrier behind what was asked to be read says so, if there was credit left for more. Most connections are never
//! sent any: the first direct message asks for the barrier.
//!
//! Each node hears of a return at another moment, so some messages come by one way only. For a second or two the shard also gives
//! what it leaves to the direct way ([`Came::PassedOver`]), until it says that it is settled; [`Twins`] finds out which of these came
//! by both ways.
//!
//! | state | input | then |
//! |---|---|---|
//! | closed | a direct message | it is held; the first one asks for a barrier |
//! | closed | a message for an earlier connection, which the inbox did not take | as a direct one, before these |
//! | closed | the barrier, with credit left | open; what was held goes to the session |
//! | closed | the barrier, without credit | the next credit asks again |
//! | closed | credit, when there was none | a barrier that is under way says nothing; asks again |
//! | closed | the inbox is opened at another leader | an earlier barrier says nothing; asks again |
//! | open | a direct message | it goes to the session |
//! | open | a message for an earlier connection | it is dropped and counted: others that its publisher sent later may have come |
//! | closed | a message that was passed over | as one for an earlier connection, behind the latest that has come both ways |
//! | open | a message that was passed over | it waits until it comes directly: others that its publisher sent later may have come |
//! | either | a message that has come by another way | it is left out |
//! | closed | a message that the inbox has kept, and that is held as passed over | it goes to the session, and the other is left out |
//! | open | a message that the inbox has kept, and that has come as passed over | it is left out |
//! | either | the shard says that it is settled | what waits has come by no other way: it is dropped and counted |
//! | either | more than 4,096 messages that came by one way, or five seconds, or another leader | what is passed over is left out, and not counted |
//!
//! Invariant: what is held is within the limits of the session's queue; what is beyond is dropped and counted as there.
//!
//! Deliberately absent: what a session without a connection is sent (`linger.rs`).

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use hashing::{HashMap, QualityHashBuilder};
use mqtt_session::{Delivery, DropReason, Dropped, Policy, Timestamp};

/// How a message came that the inbox does not keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// Directly.
    Alone,
    /// Directly, and other sessions get it too.
    WithOthers,
    /// For an earlier connection: it goes before those that come directly.
    Earlier,
    /// By the inbox, which does not keep it, as it may come directly as well.
    PassedOver,
    /// It was held, and is not any longer.
    LetGo,
}

/// What has come by one of two ways, by what it says.
///
/// Two messages that say the same are one as good as the other: their number is what counts.
#[derive(Debug, Default)]
enum Twins {
    /// Nothing comes by two ways.
    #[default]
    None,
    /// Nothing has come yet.
    Awaited,
    Paired(Box<Paired>),
    /// It is not known any more which.
    Lost,
}

#[derive(Debug, Default)]
struct Paired {
    /// A client must not know which messages look the same.
    state: QualityHashBuilder,
    begun: Timestamp,
    /// How often a message came directly more often than it was passed over.
    direct: HashMap<u64, u32>,
    /// The same of the latest of those that the inbox has kept.
    kept: Latest,
    /// How often a message that was passed over, and given to the session, came by no other way.
    passed_over: HashMap<u64, u32>,
    /// Messages that were passed over, and not given to the session.
    waiting: Vec<(u64, Delivery)>,
}

/// The latest of some messages.
#[derive(Debug, Default)]
struct Latest {
    counts: HashMap<u64, u32>,
    /// In the order in which they came, also those that are not counted any more.
    order: VecDeque<u64>,
}

impl Latest {
    fn push(&mut self, of: u64) {
        if self.order.len() >= TWINS
            && let Some(oldest) = self.order.pop_front()
        {
            take_one(&mut self.counts, oldest);
        }
        self.order.push_back(of);
        count_one(&mut self.counts, of);
    }

    fn take(&mut self, of: u64) -> bool {
        take_one(&mut self.counts, of)
    }
}

/// Messages of a session that came by one of two ways, which are known at a time.
const TWINS: usize = 4_096;

/// For how long they are. Shards of earlier levels never say that an inbox is settled.
const TWINS_MS: u64 = 5_000;

fn count_one(counts: &mut HashMap<u64, u32>, of: u64) {
    *counts.entry(of).or_default() += 1;
}

/// False: there is none.
fn take_one(counts: &mut HashMap<u64, u32>, of: u64) -> bool {
    let count = counts.get_mut(&of);
    let left = count.map(|count| {
        *count -= 1;
        *count
    });
    if left == Some(0) {
        counts.remove(&of);
    }
    left.is_some()
}

impl Twins {
    /// A message has come that was not passed over. True: the session has it. `is_kept`: by the inbox.
    fn handle_other(&mut self, delivery: &Delivery, is_kept: bool, now: Timestamp) -> bool {
        let paired = self.paired(now);
        paired.is_some_and(|paired| paired.handle_other(delivery, is_kept))
    }

    /// A message was passed over. Some: the session does not have it, and is given it now. `waits`: it is not given, but
    /// waits until it comes directly.
    fn handle_passed_over(
        &mut self,
        delivery: Delivery,
        waits: bool,
        now: Timestamp,
    ) -> Option<Delivery> {
        match self.paired(now) {
            Some(paired) => paired.handle_passed_over(delivery, waits),
            None => Some(delivery).filter(|_| matches!(self, Self::None)),
        }
    }

    /// What is known, for one more message.
    fn paired(&mut self, now: Timestamp) -> Option<&mut Paired> {
        match self {
            Self::None | Self::Lost => {}
            Self::Awaited => {
                *self = Self::Paired(Box::new(Paired {
                    begun: now,
                    ..Paired::default()
                }));
            }
            Self::Paired(paired) if paired.len() < TWINS && now.0 < paired.begun.0 + TWINS_MS => {}
            Self::Paired(_) => *self = Self::Lost,
        }
        match self {
            Self::Paired(paired) => Some(paired),
            Self::None | Self::Awaited | Self::Lost => None,
        }
    }
}

impl Paired {
    fn len(&self) -> usize {
        self.direct.len() + self.passed_over.len() + self.waiting.len()
    }

    fn handle_other(&mut self, delivery: &Delivery, is_kept: bool) -> bool {
        let of = self.identity(delivery);
        let is_given = take_one(&mut self.passed_over, of);
        let is_of = |(waiting, _): &(u64, Delivery)| *waiting == of;
        match self.waiting.iter().position(is_of) {
            _ if is_given => {}
            Some(place) => {
                self.waiting.remove(place);
            }
            None if is_kept => self.kept.push(of),
            None => count_one(&mut self.direct, of),
        }
        is_given
    }

    fn handle_passed_over(&mut self, delivery: Delivery, waits: bool) -> Option<Delivery> {
        let of = self.identity(&delivery);
        if take_one(&mut self.direct, of) || self.kept.take(of) {
            None
        } else if waits {
            self.waiting.push((of, delivery));
            None
        } else {
            count_one(&mut self.passed_over, of);
            Some(delivery)
        }
    }

    fn identity(&self, delivery: &Delivery) -> u64 {
        let body = &delivery.message.body;
        self.state.hash_one((body.topic(), body.payload()))
    }
}

/// What a direct message finds.
#[derive(Debug)]
pub(super) enum Direct {
    /// It goes to the session.
    Deliver(Delivery),
    /// It is held.
    Held,
    /// It is held, and a barrier of this round is to be asked for.
    Ask(Round),
    /// It has come by another way, or waits until it does.
    LeftOut,
    /// There is no room, or it comes too late.
    Full(Dropped),
}

/// Which barrier it is that has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Round(u32);

/// Whether direct messages go to a session, and those that do not yet.
#[derive(Debug)]
pub(super) struct CatchingUp {
    is_open: bool,
    /// A barrier is under way.
    is_asked: bool,
    /// One has come by this connection.
    has_come: bool,
    round: Round,
    /// Few connections have any, and none for long.
    held: Option<Box<Held>>,
    twins: Twins,
}

#[derive(Debug, Default)]
struct Held {
    deliveries: Vec<Delivery>,
    /// What comes for an earlier connection goes in here: behind others of these, and the latest of them that was passed over as well.
    earlier: usize,
    /// What is passed over goes in here: behind these, and behind the latest that came both ways.
    late: usize,
    bytes: u64,
}

impl Held {
    /// A message has come by this way. If it is held, further ones of this way go behind it: each way has an order.
    fn go_behind(&mut self, delivery: &Delivery, came: Came) {
        let is_same = |of: &Delivery| of.message.body == delivery.message.body;
        let behind = |from: usize| {
            let mut near = self.deliveries.iter().skip(from).take(TWINS);
            let place = near.position(is_same);
            place.map_or(from, |place| from + place + 1)
        };
        match came {
            Came::Earlier => self.earlier = behind(self.earlier).min(self.late),
            Came::PassedOver => self.late = behind(self.late),
            Came::Alone | Came::WithOthers | Came::LetGo => {}
        }
    }
}

impl CatchingUp {
    /// `present`: the inbox may have kept messages for an earlier connection.
    pub(super) const fn new(present: bool) -> Self {
        Self {
            is_open: !present,
            is_asked: false,
            has_come: false,
            round: Round(0),
            held: None,
            twins: Twins::Awaited,
        }
    }

    /// Whether a direct message has come by this connection: it is likely that more are on their way when it ends.
    pub(super) const fn has_come(&self) -> bool {
        self.has_come
    }

    /// A message that the inbox does not keep. `policy`: of the session.
    pub(super) fn handle(
        &mut self,
        delivery: Delivery,
        came: Came,
        policy: &Policy,
        now: Timestamp,
    ) -> Direct {
        if let Some(held) = &mut self.held {
            held.go_behind(&delivery, came);
        }
        self.has_come |= !matches!(came, Came::Earlier | Came::PassedOver);
        let delivery = match came {
            Came::PassedOver => self.twins.handle_passed_over(delivery, self.is_open, now),
            Came::LetGo => Some(delivery),
            Came::Alone | Came::WithOthers | Came::Earlier => {
                let has_it = self.twins.handle_other(&delivery, false, now);
                Some(delivery).filter(|_| !has_it)
            }
        };
        let Some(delivery) = delivery else {
            return Direct::LeftOut;
        };
        if self.is_open {
            // Later ones of its publisher may have been given.
            let is_too_late = came == Came::Earlier;
            return match is_too_late {
                true => Direct::Full(Dropped {
                    message: delivery.message,
                    reason: DropReason::OfflineQos0,
                }),
                false => Direct::Deliver(delivery),
            };
        }
        let held = self.held.get_or_insert_default();
        let bytes = held.bytes + delivery.bytes();
        let broken = if held.deliveries.len() >= policy.queue_messages as usize {
            Some(DropReason::QueueFullMessages)
        } else {
            (bytes > policy.queue_bytes).then_some(DropReason::QueueFullBytes)
        };
        if let Some(reason) = broken {
            let message = delivery.message;
            return Direct::Full(Dropped { message, reason });
        }
        held.bytes = bytes;
        match came {
            Came::Earlier => {
                held.deliveries.insert(held.earlier, delivery);
                held.earlier += 1;
                held.late += 1;
            }
            Came::PassedOver => {
                held.deliveries.insert(held.late, delivery);
                held.late += 1;
            }
            Came::Alone | Came::WithOthers | Came::LetGo => held.deliveries.push(delivery),
        }
        self.ask().map_or(Direct::Held, Direct::Ask)
    }

    /// A message of QoS 0 that the inbox has kept. True: the session has it. (After a connection has ended, what still comes for it
    /// directly is kept, and passed over when the next one is there.)
    pub(super) fn handle_kept(&mut self, delivery: &Delivery, now: Timestamp) -> bool {
        if !self.twins.handle_other(delivery, true, now) {
            return false;
        }
        let body = &delivery.message.body;
        // Others that were kept may have gone before it, and further ones come behind.
        self.held.as_mut().is_none_or(|held| {
            let late = held.deliveries.iter().take(held.late);
            let mut late = late.map(|of| &of.message.body);
            late.position(|of| of == body).is_none_or(|place| {
                held.bytes -= held.deliveries.remove(place).bytes();
                held.late -= 1;
                held.earlier -= usize::from(place < held.earlier);
                false
            })
        })
    }

    /// The inbox may give more; `was_exhausted`: it may have lacked credit when a barrier passed whose answer is under way.
    /// Some: a barrier is to be asked for behind that.
    pub(super) fn handle_credit(&mut self, was_exhausted: bool) -> Option<Round> {
        if was_exhausted && std::mem::take(&mut self.is_asked) {
            self.round.0 = self.round.0.wrapping_add(1);
        }
        self.held.as_ref()?;
        self.ask()
    }

    /// The inbox passes nothing over to this connection any more. Gives back what has come by no other way.
    pub(super) fn handle_settled(&mut self) -> Vec<Dropped> {
        let waiting = match std::mem::take(&mut self.twins) {
            Twins::Paired(paired) => paired.waiting,
            Twins::None | Twins::Awaited | Twins::Lost => Vec::new(),
        };
        let dropped = waiting.into_iter().map(|(_, delivery)| Dropped {
            message: delivery.message,
            reason: DropReason::OfflineQos0,
        });
        dropped.collect()
    }

    /// The inbox is read from another leader. Some: as [`Self::handle_credit`].
    pub(super) fn handle_reopened(&mut self) -> Option<Round> {
        if !matches!(self.twins, Twins::None) {
            self.twins = Twins::Lost;
        }
        self.handle_credit(true)
    }

    /// A barrier has passed. `has_credit`: the inbox could have given more. Gives back what goes to the session, in its
    /// order.
    pub(super) fn handle_passed(&mut self, round: Round, has_credit: bool) -> Vec<Delivery> {
        if round != self.round || !std::mem::take(&mut self.is_asked) || !has_credit {
            return Vec::new();
        }
        self.is_open = true;
        self.take()
    }

    /// The connection has ended: what the session was not given.
    pub(super) fn take(&mut self) -> Vec<Delivery> {
        self.held
            .take()
            .map_or_else(Vec::new, |held| held.deliveries)
    }

    #[cfg(test)]
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    #[cfg(test)]
    pub(super) const fn holds(&self) -> bool {
        self.held.is_some()
    }

    fn ask(&mut self) -> Option<Round> {
        let asks = !self.is_open && !std::mem::replace(&mut self.is_asked, true);
        asks.then_some(self.round)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqtt_proto::{MessageBody, QoS};
    use mqtt_session::{ApplicationMessage, SubscriptionIdSet};

    use super::*;

    fn delivery(payload: &str) -> Delivery {
        Delivery {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new("t", payload.as_bytes()),
                qos: QoS::AtMostOnce,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            qos: QoS::AtMostOnce,
            retain: false,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        }
    }

    /// What becomes of a message.
    fn direct(of: &mut CatchingUp, payload: &str) -> &'static str {
        let policy = Policy {
            queue_messages: 3,
            ..Policy::default()
        };
        match of.handle(delivery(payload), Came::Alone, &policy, Timestamp(0)) {
            Direct::Deliver(_) => "deliver",
            Direct::Held => "held",
            Direct::Ask(_) => "ask",
            Direct::LeftOut => "left out",
            Direct::Full(..) => "full",
        }
    }

    fn payloads(deliveries: &[Delivery]) -> Vec<&[u8]> {
        deliveries
            .iter()
            .map(|d| d.message.body.payload())
            .collect()
    }

    #[test]
    fn a_new_session_gets_messages_at_once() {
        let mut new = CatchingUp::new(false);
        assert!(!new.has_come());
        assert_eq!(direct(&mut new, "1"), "deliver");
        assert!(new.has_come());
        assert_eq!(passed_over(&mut new, "1", 0), "left out");
    }

    #[test]
    fn direct_messages_wait_until_the_inbox_has_given_all() {
        let mut of = CatchingUp::new(true);
        assert_eq!(of.handle_credit(true), None, "nothing waits");
        let all = ["1", "2", "3", "4"].map(|payload| direct(&mut of, payload));
        assert_eq!(all, ["ask", "held", "held", "full"]);
        assert_eq!(of.handle_credit(false), None, "it is asked");
        assert!(of.handle_passed(Round(0), false).is_empty());
        let again = of.handle_credit(true).unwrap();
        let held = of.handle_passed(again, true);
        assert_eq!(payloads(&held), [b"1", b"2", b"3"]);
        assert_eq!(direct(&mut of, "5"), "deliver");
    }

    #[test]
    fn credit_that_comes_before_the_answer_does_not_make_it_an_end() {
        let mut of = CatchingUp::new(true);
        assert_eq!(direct(&mut of, "1"), "ask");
        let again = of.handle_credit(true).unwrap();
        assert!(of.handle_passed(Round(0), true).is_empty());
        assert_eq!(payloads(&of.handle_passed(again, true)), [b"1"]);
    }

    #[test]
    fn what_came_for_an_earlier_connection_goes_first() {
        let mut of = CatchingUp::new(true);
        direct(&mut of, "4");
        passed_over(&mut of, "3", 0);
        for payload in ["1", "2"] {
            let late = of.handle(
                delivery(payload),
                Came::Earlier,
                &Policy::default(),
                Timestamp(0),
            );
            assert!(matches!(late, Direct::Held), "{late:?}");
        }
        let all = of.handle_passed(Round(0), true);
        assert_eq!(payloads(&all), [b"1", b"2", b"3", b"4"]);
    }

    #[test]
    fn a_barrier_of_an_earlier_leader_says_nothing() {
        let mut of = CatchingUp::new(true);
        assert_eq!(of.handle_reopened(), None);
        assert_eq!(direct(&mut of, "1"), "ask");
        let round = of.handle_reopened().unwrap();
        assert!(of.handle_passed(Round(0), true).is_empty());
        assert_eq!(payloads(&of.handle_passed(round, true)), [b"1"]);
    }

    /// What becomes of a message that the inbox passes over.
    fn passed_over(of: &mut CatchingUp, payload: &str, now_ms: u64) -> &'static str {
        match of.handle(
            delivery(payload),
            Came::PassedOver,
            &Policy::default(),
            Timestamp(now_ms),
        ) {
            Direct::Deliver(_) => "deliver",
            Direct::Held | Direct::Ask(_) => "held",
            Direct::LeftOut => "left out",
            Direct::Full(..) => "full",
        }
    }

    fn dropped(of: &mut CatchingUp) -> Vec<Vec<u8>> {
        let dropped = of.handle_settled().into_iter();
        dropped
            .map(|of| of.message.body.payload().to_vec())
            .collect()
    }

    #[test]
    fn what_comes_by_both_ways_is_given_once() {
        let mut of = CatchingUp::new(true);
        assert_eq!(passed_over(&mut of, "1", 0), "held");
        let both = ["1", "2", "3"].map(|payload| direct(&mut of, payload));
        assert_eq!(both, ["left out", "held", "held"]);
        assert_eq!(passed_over(&mut of, "2", 0), "left out");
        // Not a third time.
        assert_eq!(direct(&mut of, "2"), "full");
        assert_eq!(
            payloads(&of.handle_passed(Round(0), true)),
            [b"1", b"2", b"3"]
        );
        assert_eq!(passed_over(&mut of, "3", 0), "left out");
        assert!(dropped(&mut of).is_empty());
    }

    #[test]
    fn what_was_kept_and_passed_over_is_given_once() {
        let mut of = CatchingUp::new(true);
        let kept =
            |of: &mut CatchingUp, payload: &str| of.handle_kept(&delivery(payload), Timestamp(0));
        assert!(!kept(&mut of, "1"));
        assert_eq!(passed_over(&mut of, "1", 0), "left out");
        assert_eq!(passed_over(&mut of, "2", 0), "held");
        assert!(!kept(&mut of, "2"), "it goes before what is held");
        assert!(of.handle_passed(Round(0), true).is_empty());
        let mut of = CatchingUp::new(true);
        assert_eq!(passed_over(&mut of, "2", 0), "held");
        assert_eq!(payloads(&of.handle_passed(Round(0), true)), [b"2"]);
        assert!(kept(&mut of, "2"));
        assert!(!kept(&mut of, "2"), "another one");
        // Of many the latest are known.
        for number in 0..=TWINS {
            assert!(!kept(&mut of, &number.to_string()));
        }
        assert_eq!(passed_over(&mut of, "1", 0), "left out");
        passed_over(&mut of, "0", 0);
        assert_eq!(dropped(&mut of), [b"0"], "it is not known any more");
    }

    #[test]
    fn two_ways_make_one_order() {
        let mut of = CatchingUp::new(true);
        assert_eq!(direct(&mut of, "2"), "ask");
        assert_eq!(direct(&mut of, "3"), "held");
        for both in ["1", "2", "3", "4"] {
            passed_over(&mut of, both, 0);
        }
        assert_eq!(direct(&mut of, "4"), "left out");
        assert_eq!(direct(&mut of, "5"), "full");
        let all = of.handle_passed(Round(0), true);
        assert_eq!(payloads(&all), [b"1", b"2", b"3", b"4"]);
    }

    #[test]
    fn what_came_for_an_earlier_connection_keeps_its_place() {
        let mut of = CatchingUp::new(true);
        let earlier = |of: &mut CatchingUp, payload: &str| {
            of.handle(
                delivery(payload),
                Came::Earlier,
                &Policy::default(),
                Timestamp(0),
            );
        };
        direct(&mut of, "5");
        passed_over(&mut of, "2", 0);
        for payload in ["1", "2", "3"] {
            earlier(&mut of, payload);
        }
        for payload in ["3", "4"] {
            passed_over(&mut of, payload, 0);
        }
        let all = of.handle_passed(Round(0), true);
        assert_eq!(payloads(&all), [b"1", b"2", b"3", b"4", b"5"]);
    }

    #[test]
    fn what_was_held_is_not_taken_for_another_message() {
        let mut of = CatchingUp::new(true);
        assert_eq!(direct(&mut of, "1"), "ask");
        for held in of.handle_passed(Round(0), true) {
            let again = of.handle(held, Came::LetGo, &Policy::default(), Timestamp(0));
            assert!(matches!(again, Direct::Deliver(_)), "{again:?}");
        }
        assert_eq!(passed_over(&mut of, "1", 0), "left out");
        assert_eq!(passed_over(&mut of, "1", 0), "left out", "it waits");
        assert_eq!(dropped(&mut of), [b"1"]);
    }

    #[test]
    fn what_never_comes_directly_is_dropped_when_all_is_settled() {
        let mut of = CatchingUp::new(true);
        direct(&mut of, "1");
        of.handle_passed(Round(0), true);
        let late = ["2", "3", "4"].map(|payload| passed_over(&mut of, payload, 0));
        assert_eq!(late, ["left out"; 3], "later ones may have come");
        assert_eq!(direct(&mut of, "3"), "deliver");
        assert_eq!(dropped(&mut of), [b"2", b"4"]);
        // Nothing comes by two ways any more.
        assert_eq!(direct(&mut of, "5"), "deliver");
        assert!(dropped(&mut of).is_empty());
    }

    #[test]
    fn what_is_known_of_messages_is_bounded() {
        for now_ms in [0, TWINS_MS] {
            let mut of = CatchingUp::new(true);
            direct(&mut of, "1");
            of.handle_passed(Round(0), true);
            let more = if now_ms == 0 { TWINS } else { 1 };
            for number in 0..more {
                passed_over(&mut of, &format!("more {number}"), now_ms);
            }
            assert!(dropped(&mut of).is_empty());
            let mut of = CatchingUp::new(true);
            direct(&mut of, "1");
            of.handle_reopened();
            assert_eq!(passed_over(&mut of, "2", 0), "left out");
            assert!(dropped(&mut of).is_empty());
        }
    }

    #[test]
    fn what_is_held_is_there_when_the_connection_ends() {
        let mut of = CatchingUp::new(true);
        direct(&mut of, "1");
        assert_eq!(payloads(&of.take()), [b"1"]);
    }
}
