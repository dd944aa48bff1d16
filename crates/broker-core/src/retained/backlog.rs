//! Retained messages that a session is still to get, and what it need not get of them any more.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::ops::RangeInclusive;
use std::sync::Arc;

use hashing::{HashMap, QualityHashBuilder};
use mqtt_session::{ApplicationMessage, Timestamp, Wanted};
use store_state::InsertionMap;
use store_state::api::{RetainMark, RetainedPlace, Store as _};
use store_state::inbox::{Progress, StoredSubscription};
use store_state::retain::PageBudget;
use topic_router::Cursor;

use crate::clients::io::LoopIo;
use crate::node::Node;
use crate::retained::grace::Period;
use crate::rim::Rim;
use crate::sys;

/// Retained messages that are queued for a session at once. The next page follows when these are sent,
/// so a filter that selects a million messages costs the memory of a page.
///
/// Limit: retained messages queued for a subscriber at once | {} or {PAGE_BYTES}, beyond its queue's limit | the next
/// page waits for these
pub(super) const PAGE: usize = 64;

/// Bytes of these; the last message may exceed them.
pub(super) const PAGE_BYTES: usize = 256 * 1024;

/// What all sessions of a loop may look at in one turn, as pages count their work: a millisecond.
const TURN_WORK: usize = 16_384;

/// What one session may look at in a turn; and what it may however many others there are.
///
/// Limit: retained topics that are looked at for a subscriber in a turn of its loop | {}, and fewer if many look:
/// {TURN_WORK} together, but {LEAST_SLICE} each | the next turn goes on
const SLICE: usize = 2_048;

const LEAST_SLICE: usize = 256;

/// Filters of which the store is asked for pages at once, and the bytes of these at which no more are added.
const ASKED: usize = 256;

const ASKED_BYTES: usize = 64 * 1024;

/// The work that a message is that is found: the client's rights are judged.
pub(super) const MESSAGE_WORK: usize = 16;

/// Topics of which a replay remembers that they passed it by: as many as a table of 65,536 places takes, in 1.7 MB.
///
/// Limit: messages that pass by a subscriber's retained ones, remembered by hashes of their topics | {} | forgotten;
/// the next page is read when the retain store has them
const PASSED: usize = 57_344;

/// Until a message that came to a session as it was published is in the retain store, whichever node leads it, or
/// was refused there; longer than requests to a shard without a leader are kept.
const SETTLED_MS: u64 = 10_000;

/// How soon a replay looks again whether messages that were on their way to its session have come: first, and after a
/// while. Mostly they have come at once; if they take long, all sessions that wait for them would look all the time.
const UNDER_WAY_MS: RangeInclusive<u64> = 1..=10;

/// How soon a replay looks again whether messages that passed it by are in this node's retain store.
const SETTLE_MS: u64 = 10;

/// How soon a page is read again that has another message of a topic than the last one that passed: first, and after a
/// while. Mostly the last one is in the retain store within some ms.
const READ_AGAIN_MS: RangeInclusive<u64> = 10..=1_000;

/// Retained messages that subscriptions still owe a session.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(super) filters: InsertionMap<Owed>,
    /// Questions to the store of inboxes, and barriers, that it waits for.
    pub(super) blocked: u32,
    /// A timer goes on with it.
    pub(super) pauses: bool,
    /// The number of the question by which the store was asked for pages.
    pub(super) asked: Option<u64>,
    /// When pages were read last, or the store was asked for them.
    pub(super) read: Timestamp,
    /// Those that it gave, each with its filter and the number of the question.
    pub(super) pages: VecDeque<(Box<str>, u64, Page)>,
    /// When it gave them. Older messages of their topics may have been on their way to the session then.
    pub(super) given: Option<Given>,
    /// What the store of inboxes has not been told yet, of a durable session.
    pub(super) progress: InsertionMap<LookedThrough>,
    pub(super) passed: Passed,
    /// The turn in which it looked at something last, and what it may still look at in that.
    pub(super) slice: (u64, usize),
}

/// When pages were given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) period: Period,
    pub(super) at_ms: u64,
}

impl Given {
    pub(super) fn now<R: Rim>(node: &Node<R>, io: &impl LoopIo) -> Self {
        Self {
            period: node.retaining.now(),
            at_ms: io.now_ms(),
        }
    }

    /// For how many ms a replay waits before it looks again whether older messages have come: as long as it has
    /// waited already, so that it waits for twice as long as it has to at most.
    pub(super) fn pause_ms(&self, now_ms: u64) -> u64 {
        let waited_ms = now_ms.saturating_sub(self.at_ms);
        waited_ms.clamp(*UNDER_WAY_MS.start(), *UNDER_WAY_MS.end())
    }
}

/// Retained messages, and where the next ones begin.
type Page = (Vec<Arc<ApplicationMessage>>, Option<Place>);

/// How far a filter has been looked through since the store of inboxes was told.
#[derive(Debug)]
pub(super) struct LookedThrough {
    pub(super) from: Box<[u8]>,
    /// `None`: to the end.
    pub(super) next: Option<Box<[u8]>>,
}

/// Hashes of topics of retained messages that came to the session as they were published: what a page has of these
/// topics is not newer. A subscription that was made afterwards is owed the last of them all the same; if the retain store
/// has refused that one, it is owed what the store has instead.
///
/// When there are too many, they are forgotten, and the next page is read when the retain store has all that passed
/// until then: what it gives afterwards is not older.
#[derive(Debug, Default)]
pub(super) struct Passed {
    topics: HashMap<TopicHash, Last>,
    hasher: QualityHashBuilder,
    /// How often subscriptions have come to owe something.
    owes: OweNumber,
    /// Some were not remembered.
    pub(super) is_over: bool,
    /// The retain store will have been asked to keep all that passed.
    asking: Option<Period>,
    /// What is waited for: pages that are read before are not used.
    settling: Option<Settling>,
}

/// How many times subscriptions had come to owe something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct OweNumber(u32);

/// The last message of a topic that has passed.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Of its payload.
    hash: PayloadHash,
    /// When it passed.
    owes: OweNumber,
    at: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PayloadHash(u32);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct TopicHash(u64);

/// A retained message that comes to a session as it is published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing {
    topic: TopicHash,
    hash: PayloadHash,
}

/// What becomes of a message of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Sent,
    LeftOut,
    /// It may be older than the last message of its topic, which passed then.
    Unknown(Timestamp),
}

#[derive(Debug)]
struct Settling {
    since_ms: u64,
    mark: RetainMark,
}

impl Passed {
    fn remember(&mut self, passing: Passing, at: Timestamp) {
        let Passing { topic, hash } = passing;
        if self.topics.len() < PASSED || self.topics.contains_key(&topic) {
            let owes = self.owes;
            self.topics.insert(topic, Last { hash, owes, at });
        } else {
            self.is_over = true;
        }
    }

    fn passing(&self, message: &ApplicationMessage) -> Passing {
        Passing {
            topic: self.topic_hash(message),
            hash: self.payload_hash(message),
        }
    }

    fn topic_hash(&self, message: &ApplicationMessage) -> TopicHash {
        TopicHash(self.hasher.hash_one(message.body.topic_bytes()))
    }

    fn payload_hash(&self, message: &ApplicationMessage) -> PayloadHash {
        PayloadHash(self.hasher.hash_one(message.body.payload()) as u32)
    }

    /// What becomes of a message of a page. `since`: when its subscription came to owe it; `read`: when the page was
    /// read, at the earliest.
    fn judge(&self, message: &ApplicationMessage, since: OweNumber, read: Timestamp) -> Verdict {
        if self.topics.is_empty() {
            return Verdict::Sent;
        }
        match self.topics.get(&self.topic_hash(message)) {
            Some(last) if last.owes >= since => Verdict::LeftOut,
            // Another one than the last is older, or is still to pass, or the retain store has refused the last one:
            // that is known when the store has answered.
            Some(last)
                if last.hash != self.payload_hash(message)
                    && read < last.at.add_millis(SETTLED_MS) =>
            {
                Verdict::Unknown(last.at)
            }
            // Of a subscription that was made since the last one passed, that is owed, or what the store has instead.
            Some(_) | None => Verdict::Sent,
        }
    }

    /// Before a page is read or used. `Some`: not before so many ms have passed. `has_pages`: some were read before.
    pub(super) fn wait<R: Rim>(
        &mut self,
        node: &Node<R>,
        now: Timestamp,
        has_pages: bool,
    ) -> Option<u64> {
        let store = node.store();
        let is_alone = !store.has_peers();
        if self.settling.is_none() && !self.is_over {
            // Who is alone knows when all that passed is in the store.
            if is_alone
                && !has_pages
                && !self.topics.is_empty()
                && node.retaining.is_quiet()
                && store.is_retain_idle()
            {
                self.topics.clear();
            }
            return None;
        }
        if self.settling.is_none() {
            let asking = *self.asking.get_or_insert_with(|| node.retaining.now());
            if !node.retaining.is_over(asking) {
                return Some(SETTLE_MS);
            }
            self.asking = None;
        }
        let settling = self.settling.get_or_insert_with(|| {
            self.is_over = false;
            self.topics.clear();
            Settling {
                since_ms: now.0,
                mark: store.retain_mark(),
            }
        });
        let left = if is_alone {
            (!store.has_reached(&settling.mark)).then_some(SETTLE_MS)
        } else {
            let passed = now.0.saturating_sub(settling.since_ms);
            SETTLED_MS.checked_sub(passed).filter(|left| *left > 0)
        };
        if left.is_none() {
            self.settling = None;
            // So many have passed meanwhile that it begins anew.
            return self.is_over.then_some(SETTLE_MS);
        }
        left
    }
}

/// How much of a turn each session gets to look at retained messages.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    pub(super) turn: u64,
    /// Sessions that got a slice of this turn, and of the one before.
    pub(super) given: usize,
    pub(super) before: usize,
}

impl Slices {
    pub(super) fn next(&mut self, turn: u64) -> usize {
        if self.turn != turn {
            let follows = self.turn + 1 == turn;
            self.before = if follows { self.given } else { 0 };
            self.given = 0;
            self.turn = turn;
        }
        self.given += 1;
        (TURN_WORK / self.before.max(self.given)).clamp(LEAST_SLICE, SLICE)
    }
}

impl Replay {
    /// What a durable session was owed when its last connection ended; `None`: nothing.
    pub(crate) fn resumed(
        owed: Vec<store_state::inbox::Owed>,
        subscriptions: &[StoredSubscription],
    ) -> Option<Self> {
        if owed.is_empty() {
            return None;
        }
        let of = |s: &StoredSubscription| Wanted::new(s.options, s.id);
        let wanted: HashMap<&str, &StoredSubscription> =
            subscriptions.iter().map(|s| (&*s.filter, s)).collect();
        let mut filters = InsertionMap::default();
        for owed in owed {
            if let Some(subscription) = wanted.get(&*owed.filter) {
                let owed = Owed::resumed(owed, of(subscription));
                filters.push(&owed.filter.clone(), owed);
            }
        }
        (!filters.is_empty()).then(|| Self {
            filters,
            ..Self::default()
        })
    }

    /// Whether nothing that the store is asked to queue, or to change, is unanswered: what is owed is known.
    pub(crate) fn is_settled(&self) -> bool {
        self.blocked == 0
    }

    /// What is owed when the connection has ended, for the next one: as the store of inboxes knows it.
    pub(crate) fn suspended(mut self) -> Self {
        while let Some((filter, _)) = self.progress.pop_first() {
            if let Some(owed) = self.filters.get_mut(&filter) {
                owed.after = RetainedPlace::from_bytes(&owed.recorded).map(Place::Stored);
            }
        }
        Self {
            filters: self.filters,
            ..Self::default()
        }
    }

    /// A filter has been looked through up to `next`; `None`: to the end.
    pub(super) fn looked_through(&mut self, filter: &str, next: Option<Place>) {
        let Some(owed) = self.filters.get_mut(filter) else {
            return;
        };
        let bytes = match &next {
            Some(Place::Stored(place)) => Some(place.to_bytes()),
            // The broker's own topics are looked through from the beginning.
            Some(Place::Own(_)) => Some(owed.recorded.clone()),
            None => None,
        };
        match self.progress.get_mut(filter) {
            Some(progress) => progress.next = bytes,
            None => {
                let progress = LookedThrough {
                    from: owed.recorded.clone(),
                    next: bytes,
                };
                self.progress.push(filter, progress);
            }
        }
        if next.is_some() {
            owed.after = next;
        } else {
            self.filters.remove(filter);
        }
    }

    /// Subscriptions owe more; what is owed twice is sent once, so that the subscriptions bound what is owed.
    pub(crate) fn owe(&mut self, owed: VecDeque<Owed>) {
        self.passed.owes.0 = self.passed.owes.0.saturating_add(1);
        for mut new in owed {
            self.cancel(&new.filter);
            new.since = self.passed.owes;
            self.filters.push(&new.filter.clone(), new);
        }
    }

    /// It waits for one more question, if `hold` says so.
    pub(crate) fn hold(&mut self, hold: bool) {
        self.blocked += u32::from(hold);
    }

    /// The session is not owed what it was by a subscription.
    pub(crate) fn cancel(&mut self, filter: &str) {
        self.filters.remove(filter);
        self.progress.remove(filter);
    }

    /// Something is waited for: it is not looked for more retained messages.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked > 0 || self.pauses || self.asked.is_some()
    }

    /// Whether there are pages that the store gave. Those of filters that were cancelled since are forgotten, also if
    /// the same is owed again.
    pub(super) fn has_pages(&mut self) -> bool {
        while let Some((filter, question, _)) = self.pages.front() {
            let owed = self.filters.get(filter);
            if owed.is_some_and(|owed| owed.asked == *question) {
                return true;
            }
            self.pages.pop_front();
        }
        false
    }

    /// The next page that the store gave.
    pub(super) fn take_page(&mut self) -> Option<(Box<str>, Wanted, Page)> {
        if !self.has_pages() {
            return None;
        }
        let (filter, _, page) = self.pages.pop_front()?;
        let wanted = self.filters.get(&filter)?.wanted;
        Some((filter, wanted, page))
    }

    /// Takes out of a page of a filter what has passed. `Some`: it is not known of all messages whether they are older
    /// than what has passed; the page is to be read again in so many ms.
    pub(super) fn leave_out_passed(
        &self,
        filter: &str,
        messages: &mut Vec<Arc<ApplicationMessage>>,
        now: Timestamp,
    ) -> Option<u64> {
        let owed = self.filters.get(filter);
        let since = owed.map_or(OweNumber::default(), |owed| owed.since);
        let mut again = None;
        messages.retain(
            |message| match self.passed.judge(message, since, self.read) {
                Verdict::Sent => true,
                Verdict::LeftOut => false,
                Verdict::Unknown(at) => {
                    let ms = read_again_ms(at, now);
                    again = Some(again.map_or(ms, |other: u64| other.min(ms)));
                    false
                }
            },
        );
        again
    }

    /// The filters to ask the shard for that has the next page of the first one. `shard_of`: which has that of a
    /// filter.
    pub(super) fn next_question(
        &mut self,
        question: u64,
        shard_of: impl Fn(&str, Option<&RetainedPlace>) -> u16,
    ) -> Option<(u16, Vec<Box<str>>)> {
        let (mut first, mut bytes, mut asked) = (None, 0, Vec::new());
        for owed in self.filters.values_mut().take(ASKED) {
            if sys::is_own(owed.filter.as_bytes()) {
                continue;
            }
            let shard = shard_of(&owed.filter, owed.stored_place());
            if *first.get_or_insert(shard) == shard {
                bytes += owed.filter.len();
                owed.asked = question;
                asked.push(owed.filter.clone());
            }
            if bytes > ASKED_BYTES {
                break;
            }
        }
        first.map(|shard| (shard, asked))
    }

    /// What the store of inboxes is to be told now.
    pub(super) fn take_progress(&mut self) -> Vec<Progress> {
        let mut all = Vec::with_capacity(self.progress.len());
        while let Some((filter, LookedThrough { from, next })) = self.progress.pop_first() {
            if let (Some(owed), Some(next)) = (self.filters.get_mut(&filter), &next) {
                owed.recorded.clone_from(next);
            }
            let filter = (&*filter).into();
            all.push(Progress { filter, from, next });
        }
        all
    }

    /// What a message is remembered by when it has come to the session as it is published. `None`: it is not
    /// retained.
    pub(crate) fn passing(&self, message: &ApplicationMessage) -> Option<Passing> {
        message.retain.then(|| self.passed.passing(message))
    }

    /// A message came to the session as it is published.
    pub(crate) fn passed_by(&mut self, passing: Passing, now: Timestamp) {
        self.passed.remember(passing, now);
    }
}

/// In how many ms a page is read again that has another message than the last one, which passed at `at`: after as long
/// as that is ago, but when the retain store has answered for sure.
fn read_again_ms(at: Timestamp, now: Timestamp) -> u64 {
    let passed_ms = now.saturating_since(at);
    let left_ms = SETTLED_MS.saturating_sub(passed_ms);
    let pause_ms = passed_ms.clamp(*READ_AGAIN_MS.start(), *READ_AGAIN_MS.end());
    pause_ms.min(left_ms).max(*READ_AGAIN_MS.start())
}

/// Those that a filter selects.
#[derive(Debug)]
pub(crate) struct Owed {
    pub(crate) filter: Box<str>,
    pub(super) wanted: Wanted,
    /// Since when; what is owed to a session from before its connection: 0.
    since: OweNumber,
    pub(super) after: Option<Place>,
    /// The last question that asked for a page of it; 0: none.
    pub(super) asked: u64,
    /// Where it is to go on as the store of inboxes knows; only of durable sessions.
    pub(super) recorded: Box<[u8]>,
}

/// Where the next page begins.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Among the broker's own topics.
    Own(Cursor),
    /// In the retain store.
    Stored(RetainedPlace),
}

impl Owed {
    pub(crate) fn new(filter: &str, wanted: Wanted) -> Self {
        Self {
            filter: filter.into(),
            wanted,
            since: OweNumber::default(),
            after: None,
            asked: 0,
            recorded: Box::default(),
        }
    }

    /// What is still owed to a durable session, by a subscription that it has.
    fn resumed(owed: store_state::inbox::Owed, wanted: Wanted) -> Self {
        let store_state::inbox::Owed { filter, place } = owed;
        Self {
            filter,
            wanted,
            since: OweNumber::default(),
            after: RetainedPlace::from_bytes(&place).map(Place::Stored),
            asked: 0,
            recorded: place,
        }
    }

    /// Where the next page begins in the retain store; `None`: at the first message.
    pub(super) fn stored_place(&self) -> Option<&RetainedPlace> {
        match &self.after {
            Some(Place::Stored(place)) => Some(place),
            _ => None,
        }
    }

    /// The next page, which takes its part of the budget, and where the one after it begins. `None`: the store is to be asked
    /// for it, as the shard that has it does not serve yet.
    pub(super) fn page<R: Rim>(
        &mut self,
        node: &Node<R>,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> Option<Page> {
        let after = self.after.clone();
        // [MQTT-4.7.2-1] a filter selects either the broker's own topics or others.
        if sys::is_own(self.filter.as_bytes()) {
            let cursor = match after {
                Some(Place::Own(cursor)) => Some(cursor),
                _ => None,
            };
            let (messages, next) = node.retained.page(&self.filter, cursor.as_ref(), budget);
            return Some((messages, next.map(Place::Own)));
        }
        let place = match after {
            Some(Place::Stored(place)) => Some(place),
            _ => None,
        };
        let (messages, next) = node.store().retained(&self.filter, place, budget, now)?;
        Some((messages, next.map(Place::Stored)))
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use super::*;

    #[test]
    fn slices_share_a_turn_and_are_never_nothing() {
        let mut slices = Slices::default();
        let turn = |slices: &mut Slices, turn, sessions: usize| {
            (0..sessions).map(|_| slices.next(turn)).sum::<usize>()
        };
        assert_eq!(slices.next(1), SLICE);
        let crowd = TURN_WORK / LEAST_SLICE;
        turn(&mut slices, 2, crowd);
        // It is known now how many there are.
        assert_eq!(turn(&mut slices, 3, crowd), TURN_WORK);
        assert_eq!(turn(&mut slices, 4, 10 * crowd), 10 * crowd * LEAST_SLICE);
        assert_eq!(slices.next(9), SLICE);
    }

    #[test]
    fn the_longer_it_waits_the_longer_are_the_pauses() {
        let given = Given {
            period: crate::retained::grace::GracePeriods::default().now(),
            at_ms: 100,
        };
        let mut now_ms = given.at_ms;
        let mut pauses = Vec::new();
        while pauses.len() < 7 {
            pauses.push(given.pause_ms(now_ms));
            now_ms += given.pause_ms(now_ms);
        }
        assert_eq!(pauses, [1, 1, 2, 4, 8, 10, 10]);
        assert_eq!(given.pause_ms(0), 1);
    }

    #[test]
    fn what_is_owed_again_comes_last_and_what_is_cancelled_not_at_all() {
        let wanted = Wanted::new(mqtt_proto::SubscriptionOptions::default(), 0);
        let owe = |filters: &[&str]| filters.iter().map(|f| Owed::new(f, wanted)).collect();
        let mut replay = Replay::default();
        replay.owe(owe(&["a", "b", "a", "c", "d"]));
        replay.cancel("c");
        replay.owe(owe(&["b"]));
        let mut order = Vec::new();
        while let Some((filter, _)) = replay.filters.first() {
            order.push(filter.to_owned());
            replay.looked_through(&order[order.len() - 1], None);
        }
        assert_eq!(order, ["a", "d", "b"]);
        let steps = replay.take_progress();
        assert_eq!(steps.len(), 3);
        assert!(steps.iter().all(|step| step.next.is_none()));
    }

    #[test]
    fn a_shard_is_asked_for_many_filters_at_once_and_pages_of_cancelled_ones_are_not_used() {
        let wanted = Wanted::new(mqtt_proto::SubscriptionOptions::default(), 0);
        let owe = |filters: &[&str]| filters.iter().map(|f| Owed::new(f, wanted)).collect();
        let page = |filter: &str| (Box::from(filter), 7, (Vec::new(), None));
        let mut replay = Replay::default();
        replay.owe(owe(&["b", "$SYS/a", "c", "b2", "b3"]));
        // Filters with a `c` are of another shard.
        let shard_of = |filter: &str, _: Option<&RetainedPlace>| u16::from(filter.contains('c'));
        let (shard, filters) = replay.next_question(7, shard_of).unwrap();
        assert_eq!((shard, filters.join(" ").as_str()), (0, "b b2 b3"));
        replay.pages.extend(["b", "b2", "b3"].map(page));
        replay.cancel("b");
        replay.cancel("b2");
        // Owed again: what was read for the subscription before may be older than this one.
        replay.owe(owe(&["b2"]));
        assert_eq!(&*replay.take_page().unwrap().0, "b3");
        assert!(replay.take_page().is_none());

        let many: Vec<String> = (0..10 * ASKED).map(|n| format!("{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut replay = Replay::default();
        replay.owe(owe(&many));
        assert_eq!(replay.next_question(8, |_, _| 0).unwrap().1.len(), ASKED);
    }

    #[test]
    fn what_passes_by_is_remembered_in_little_memory() {
        let mut passed = Passed::default();
        for topic in 0..PASSED as u64 + 1 {
            let (topic, hash) = (TopicHash(topic), PayloadHash(0));
            passed.remember(Passing { topic, hash }, Timestamp(0));
        }
        assert_eq!((passed.topics.len(), passed.is_over), (PASSED, true));
        assert!(passed.topics.allocation_size() < 2 << 20);
    }

    #[test]
    fn what_has_passed_is_owed_to_later_subscriptions_and_to_no_earlier_one() {
        let mut replay = Replay::default();
        replay.owe(owe("+"));
        pass(&mut replay, b"2", 100);
        replay.owe(owe("t"));
        assert_eq!(read(&mut replay, "+", b"2", 100), Ok(0));
        assert_eq!(read(&mut replay, "t", b"2", 100), Ok(1));
        // The first one is owed anew as well.
        replay.owe(owe("+"));
        assert_eq!(read(&mut replay, "+", b"2", 100), Ok(1));
        pass(&mut replay, b"3", 101);
        let third = ["+", "t"].map(|filter| read(&mut replay, filter, b"3", 101));
        assert_eq!(third, [Ok(0), Ok(0)]);
    }

    #[test]
    fn what_the_store_has_is_owed_to_later_subscriptions_if_what_passed_was_refused() {
        let mut replay = Replay::default();
        replay.owe(owe("+"));
        pass(&mut replay, b"2", 100);
        replay.owe(owe("t"));
        // Older, or still to pass, or 2 is not retained: the page is read again, less and less often.
        let mut now = 103;
        let mut pauses = Vec::new();
        while let Err(ms) = read(&mut replay, "t", b"1", now) {
            pauses.push(ms);
            now += ms;
        }
        assert_eq!(pauses[..8], [10, 13, 26, 52, 104, 208, 416, 832]);
        assert_eq!((pauses.len(), now), (17, 100 + SETTLED_MS));
        assert_eq!(read(&mut replay, "t", b"1", now), Ok(1));
        // The earlier subscription has brought 2.
        assert_eq!(read(&mut replay, "+", b"1", now), Ok(0));
        // A page that was asked for before may be older.
        replay.read = Timestamp(now - 1);
        let mut page = vec![message(b"1")];
        let again = replay.leave_out_passed("t", &mut page, Timestamp(now + 5));
        assert_eq!(again, Some(10));
        // What comes meanwhile ends the wait.
        pass(&mut replay, b"1", 102);
        assert_eq!(read(&mut replay, "t", b"1", 103), Ok(0));
    }

    fn owe(filter: &str) -> VecDeque<Owed> {
        let wanted = Wanted::new(mqtt_proto::SubscriptionOptions::default(), 0);
        VecDeque::from([Owed::new(filter, wanted)])
    }

    fn message(payload: &[u8]) -> Arc<ApplicationMessage> {
        Arc::new(ApplicationMessage {
            body: MessageBody::new("t", payload),
            qos: QoS::AtLeastOnce,
            retain: true,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        })
    }

    /// A message comes to the session as it is published.
    fn pass(replay: &mut Replay, payload: &[u8], now: u64) {
        let passing = replay.passing(&message(payload)).unwrap();
        replay.passed_by(passing, Timestamp(now));
    }

    /// How many messages of a page are sent that has this one and is read now; or in how many ms it is read again.
    fn read(replay: &mut Replay, filter: &str, payload: &[u8], now: u64) -> Result<usize, u64> {
        let mut page = vec![message(payload)];
        replay.read = Timestamp(now);
        let again = replay.leave_out_passed(filter, &mut page, Timestamp(now));
        again.map_or(Ok(page.len()), Err)
    }
}
