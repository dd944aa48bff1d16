//! Retained messages in the order of their topics, whichever shards they are in.
//!
//! Invariant: each shard has looked at all its topics up to `next`; so what several have found is complete up to the least of
//! these places.

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use store_state::SlotRange;
use store_state::retain::{PageBudget, RetainMachine, RetainedSince};
use topic_router::Cursor;

/// Retained topics that are looked at under one lock, as [`topic_router::RetainedIndex::page`] counts them: some 250 us.
///
/// Limit: retained topics that are looked at for people, under the lock of the shard | {} or {inspect::ROWS} messages
/// | the next look goes on, until the time of the question is used up
pub(super) const TOPICS: usize = 4_096;

/// Retained messages.
#[derive(Clone, Debug, Default)]
pub struct RetainedRows<T> {
    /// In the order of their topics, level by level.
    pub rows: Vec<T>,
    /// Where the next ones begin; `None`: there are none.
    pub next: Option<Cursor>,
    /// The slots that they speak for.
    pub covered: Vec<SlotRange>,
}

/// A level of topics that have retained messages, or whose levels below have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetainedLevel {
    /// The topic up to the level.
    pub topic: Box<str>,
    /// It has a message itself.
    pub has_message: bool,
    /// Topics below it have.
    pub has_more_below: bool,
}

/// Something that stands in the order of topics.
pub trait InTopicOrder: Sized {
    /// Its topic.
    fn topic(&self) -> &str;

    /// The first place behind it.
    fn behind(&self) -> Cursor;

    /// Takes what another shard, or node, says of the same topic.
    fn join(&mut self, other: &Self);
}

/// A retained message.
#[derive(Clone, Debug)]
pub struct RetainedFound {
    /// The message.
    pub message: Arc<ApplicationMessage>,
    /// When it was retained; `None`: before that was kept.
    pub since: Option<RetainedSince>,
}

/// A page of the messages of a shard ([`RetainMachine::page`]).
pub(super) fn found(
    machine: &RetainMachine,
    filter: &str,
    after: Option<&Cursor>,
    mut budget: PageBudget,
    now: Timestamp,
) -> (Vec<RetainedFound>, Option<Cursor>) {
    let (messages, next) = machine.page(filter, after, &mut budget, now);
    let found = |message: Arc<ApplicationMessage>| RetainedFound {
        since: machine.retained_since(message.body.topic()),
        message,
    };
    (messages.into_iter().map(found).collect(), next)
}

impl InTopicOrder for RetainedFound {
    fn topic(&self) -> &str {
        self.message.body.topic()
    }

    fn behind(&self) -> Cursor {
        Cursor::behind(self.topic())
    }

    fn join(&mut self, _: &Self) {
        // While a shard is split, both halves may have it for a moment.
    }
}

impl InTopicOrder for RetainedLevel {
    fn topic(&self) -> &str {
        &self.topic
    }

    fn behind(&self) -> Cursor {
        Cursor::behind_all_below(&self.topic)
    }

    fn join(&mut self, other: &Self) {
        self.has_message |= other.has_message;
        self.has_more_below |= other.has_more_below;
    }
}

impl<T: InTopicOrder> RetainedRows<T> {
    /// Puts what several shards, or nodes, have found into one order: what lies behind the place up to which one of them has
    /// looked is left for the next page, and so is what is more than `limit`.
    #[must_use]
    pub fn merged(mut self, limit: usize) -> Self {
        let place = |row: &T| Cursor::at(row.topic());
        if let Some(next) = &self.next {
            self.rows.retain(|row| place(row) < *next);
        }
        self.rows.sort_by_cached_key(place);
        self.rows.dedup_by(|other, first| {
            let is_same = first.topic() == other.topic();
            if is_same {
                first.join(other);
            }
            is_same
        });
        if self.rows.len() > limit {
            self.rows.truncate(limit);
            self.next = self.rows.last().map(T::behind);
        }
        self
    }
}

/// The first levels below a topic in a shard, and where the next ones begin. `work`: topics to look at.
pub(super) fn levels(
    machine: &RetainMachine,
    below: Option<&str>,
    after: Option<&Cursor>,
    limit: usize,
    (now, mut work): (Timestamp, usize),
) -> (Vec<RetainedLevel>, Option<Cursor>) {
    let filter = below.map_or_else(|| "#".to_owned(), |below| format!("{below}/#"));
    let skipped = below.map_or(0, |below| below.len() + 1);
    let mut levels: Vec<RetainedLevel> = Vec::new();
    // The filter selects the topic itself as well.
    let mut next = after.cloned().or_else(|| below.map(Cursor::behind));
    let mut spare = TOPICS;
    loop {
        let mut budget = PageBudget {
            messages: 1,
            bytes: usize::MAX,
            work,
        };
        let (found, rest) = machine.page(&filter, next.as_ref(), &mut budget, now);
        work = budget.work;
        if let Some(message) = found.first() {
            let topic = message.body.topic();
            let level = topic.get(skipped..).unwrap_or_default();
            let end = level.find('/').map_or(topic.len(), |end| skipped + end);
            let (level, has_message) = (topic.get(..end).unwrap_or(topic), end == topic.len());
            let is_full = levels.len() == limit;
            match levels.last_mut() {
                Some(last) if *last.topic == *level => last.has_more_below = true,
                _ if is_full => return (levels, Some(Cursor::at(level))),
                _ => levels.push(RetainedLevel {
                    topic: level.into(),
                    has_message,
                    has_more_below: !has_message,
                }),
            }
            next = Some(match has_message {
                true => Cursor::behind(level),
                false => Cursor::behind_all_below(level),
            });
        } else {
            next = rest.clone();
        }
        // A page ends with its message, whether others follow or not: the next one tells.
        if found.is_empty() && rest.is_none() {
            return (levels, None);
        }
        if work == 0 {
            // What is below the last level is not known: the next page has it. If it is all there is, its next topic is looked
            // for, unless very many have expired before that and are not removed yet.
            if levels.len() == 1 && spare > 0 {
                spare -= 1;
                continue;
            }
            if levels.len() > 1 {
                next = levels.pop().map(|last| Cursor::at(&last.topic));
            }
            return (levels, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::ControlFlow;

    use mqtt_proto::{MessageBody, QoS};
    use mqtt_session::{Qos0Inbox, QueueFull};
    use store_state::retain::RetainOp;
    use store_state::{
        ClassLimits, Header, Limits, Machine as _, NameHash, QueueLimits, Slots, Table, TableError,
    };

    use super::*;

    /// A table without rows.
    struct NoRows;

    impl Table for NoRows {
        fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
            Ok(None)
        }

        fn range(
            &self,
            _: &[u8],
            _: &[u8],
            _: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
        ) -> Result<(), TableError> {
            Ok(())
        }
    }

    const HEADER: Header = Header {
        now_ms: 0,
        limits: Limits {
            queue: QueueLimits {
                messages: 0,
                bytes: 0,
                full: QueueFull::REFUSE,
                is_closed: false,
            },
            qos0: Qos0Inbox::Never,
            retained_messages: u64::MAX,
            retained_bytes: u64::MAX,
            classes: ClassLimits::NONE,
        },
    };

    /// Topics of few levels with few characters, so that many are below others.
    fn topics() -> BTreeSet<String> {
        let mut seed = 7_u32;
        let mut dice = move |faces: u32| {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            (seed >> 16) % faces
        };
        let mut level = || {
            let length = dice(3);
            let characters = (0..length).map(|_| char::from(b" !ab0"[dice(5) as usize]));
            (characters.collect::<String>(), dice(3))
        };
        let mut all = BTreeSet::new();
        while all.len() < 200 {
            let mut topic = level().0;
            loop {
                let (next, more) = level();
                if more == 0 {
                    break;
                }
                topic = format!("{topic}/{next}");
            }
            if !topic.is_empty() {
                all.insert(topic);
            }
        }
        all
    }

    fn shards(topics: &BTreeSet<String>) -> Vec<RetainMachine> {
        let mut shards: Vec<RetainMachine> = (0..3)
            .map(|_| {
                let slots = Slots {
                    range: SlotRange::ALL,
                    hash: NameHash::with_seed(1),
                    level: store_state::Level::NEWEST,
                };
                RetainMachine::load(slots, &NoRows).unwrap()
            })
            .collect();
        for (number, topic) in topics.iter().enumerate() {
            let message = Arc::new(ApplicationMessage {
                body: MessageBody::new(topic, b"x"),
                qos: QoS::AtMostOnce,
                retain: true,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            });
            let op = RetainOp::Set { message };
            shards[number % 3]
                .apply(&HEADER, &op, &NoRows, &mut ())
                .unwrap();
        }
        shards
    }

    /// All rows, page by page, as the shards have them together.
    fn walk<T: InTopicOrder>(
        shards: &[RetainMachine],
        limit: usize,
        read: impl Fn(&RetainMachine, Option<&Cursor>, usize) -> (Vec<T>, Option<Cursor>),
    ) -> Vec<T> {
        let mut all = Vec::new();
        let mut after: Option<Cursor> = None;
        for _ in 0..10_000 {
            let mut rows = RetainedRows {
                rows: Vec::new(),
                next: None,
                covered: Vec::new(),
            };
            for shard in shards {
                let (found, next) = read(shard, after.as_ref(), limit);
                rows.rows.extend(found);
                rows.next = rows.next.into_iter().chain(next).min();
            }
            let page: RetainedRows<T> = rows.merged(limit);
            assert!(page.rows.len() <= limit);
            all.extend(page.rows);
            match page.next {
                Some(next) => {
                    assert!(after.is_none_or(|after| after < next), "it goes on");
                    after = Some(next);
                }
                None => return all,
            }
        }
        panic!("the walk does not end");
    }

    #[test]
    fn a_walk_over_shards_has_each_message_once_in_the_order_of_topics() {
        let topics = topics();
        let shards = shards(&topics);
        let mut expected: Vec<&String> = topics.iter().collect();
        expected.sort_by(|one, other| one.split('/').cmp(other.split('/')));
        for (limit, work) in [(1, TOPICS), (7, 0), (7, 20), (500, TOPICS)] {
            let found = walk(&shards, limit, |machine, after, limit| {
                let budget = PageBudget {
                    messages: limit,
                    bytes: usize::MAX,
                    work,
                };
                found(machine, "#", after, budget, Timestamp(0))
            });
            let found: Vec<&str> = found.iter().map(InTopicOrder::topic).collect();
            assert_eq!(found, expected, "{limit} {work}");
        }
    }

    #[test]
    fn levels_are_those_that_topics_have() {
        let topics = topics();
        let shards = shards(&topics);
        let mut places: Vec<Option<&str>> = topics.iter().map(|topic| Some(&**topic)).collect();
        places.extend([None, Some("a"), Some(""), Some("a/"), Some("zz")]);
        for below in places {
            let mut expected: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
            for topic in &topics {
                let skipped = match below {
                    Some(below) if topic.starts_with(&format!("{below}/")) => below.len() + 1,
                    Some(_) => continue,
                    None => 0,
                };
                let end = topic[skipped..].find('/').map(|end| skipped + end);
                let level = &topic[..end.unwrap_or(topic.len())];
                let of = expected.entry(level).or_default();
                of.0 |= end.is_none();
                of.1 |= end.is_some();
            }
            for (limit, work) in [(1, TOPICS), (3, TOPICS), (500, TOPICS), (500, 40)] {
                let found = walk(&shards, limit, |machine, after, limit| {
                    levels(machine, below, after, limit, (Timestamp(0), work))
                });
                let found: Vec<(&str, (bool, bool))> = found
                    .iter()
                    .map(|level| (&*level.topic, (level.has_message, level.has_more_below)))
                    .collect();
                let mut expected: Vec<(&str, (bool, bool))> =
                    expected.clone().into_iter().collect();
                expected.sort_by_key(|(level, _)| Cursor::at(level));
                assert_eq!(found, expected, "{below:?} {limit} {work}");
            }
        }
    }
}
