//! Who has held whom back: pairs of a subscriber and a publisher, for those who look for the cause.
//!
//! Invariant: at most [`PAIRS`] pairs and [`TOPICS`] topics are remembered; beyond that the half that is oldest is
//! forgotten. Names are excerpts.

use std::hash::Hash;

use hashing::HashMap;
use mqtt_session::Timestamp;

use crate::excerpt::excerpt;

/// Pairs of a subscriber and a publisher that are remembered.
const PAIRS: usize = 1_024;

/// Topics of which it is remembered which durable session was filling up by them.
const TOPICS: usize = 1_024;

/// For so long the durable session that a topic was filling up is taken for the one that it fills up, in ms.
const RECENT_MS: u64 = 10_000;

/// A subscriber has held a publisher back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldBy {
    /// The subscriber; `None`: a durable session whose inbox shard another node leads.
    pub subscriber: Option<Box<str>>,
    /// Its session is a durable one.
    pub is_durable: bool,
    /// The publisher, or which node it is connected to.
    pub publisher: Box<str>,
    /// How often.
    pub times: usize,
    /// When it last was.
    pub last: Timestamp,
}

/// Who has held whom back.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pairs: HashMap<(Option<Box<str>>, Box<str>), Pair>,
    topics: HashMap<Box<[u8]>, Filling>,
}

#[derive(Debug)]
struct Pair {
    is_durable: bool,
    times: usize,
    last: Timestamp,
}

#[derive(Debug)]
struct Filling {
    session: Box<str>,
    last: Timestamp,
}

impl Pairs {
    /// A session that is connected holds a publisher back.
    pub(super) fn handle_held(&mut self, subscriber: &str, publisher: &str, now: Timestamp) {
        let subscriber = Some(excerpt(subscriber).into());
        self.note(subscriber, excerpt(publisher).into(), false, now);
    }

    /// The queue of a durable session that is connected is filling up: with a message to this topic.
    pub(super) fn handle_filling(&mut self, topic: &[u8], session: &str, now: Timestamp) {
        let session = excerpt(session);
        if let Some(filling) = self.topics.get_mut(topic) {
            filling.last = now;
            if *filling.session != *session {
                filling.session = session.into();
            }
        } else {
            make_room(&mut self.topics, TOPICS, |filling| filling.last);
            let filling = Filling {
                session: session.into(),
                last: now,
            };
            self.topics.insert(topic.into(), filling);
        }
    }

    /// A publisher to this topic is held back, for durable sessions that are filling up: for which, if it is known.
    pub(super) fn handle_paused(
        &mut self,
        publisher: &str,
        topic: &[u8],
        now: Timestamp,
    ) -> Option<Box<str>> {
        let filling = self.topics.get(topic);
        let subscriber = filling
            .filter(|filling| now.saturating_since(filling.last) < RECENT_MS)
            .map(|filling| filling.session.clone());
        self.note(subscriber.clone(), excerpt(publisher).into(), true, now);
        subscriber
    }

    /// The pairs, the latest first.
    pub(super) fn list(&self) -> Vec<HeldBy> {
        let pairs = self.pairs.iter().map(|((subscriber, publisher), pair)| {
            let (subscriber, publisher) = (subscriber.clone(), publisher.clone());
            HeldBy {
                subscriber,
                is_durable: pair.is_durable,
                publisher,
                times: pair.times,
                last: pair.last,
            }
        });
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_unstable_by(|a, b| {
            let newest = b.last.cmp(&a.last);
            newest.then_with(|| (&a.subscriber, &a.publisher).cmp(&(&b.subscriber, &b.publisher)))
        });
        pairs
    }

    fn note(
        &mut self,
        subscriber: Option<Box<str>>,
        publisher: Box<str>,
        is_durable: bool,
        now: Timestamp,
    ) {
        let names = (subscriber, publisher);
        if !self.pairs.contains_key(&names) {
            make_room(&mut self.pairs, PAIRS, |pair| pair.last);
        }
        let pair = self.pairs.entry(names).or_insert(Pair {
            is_durable,
            times: 0,
            last: now,
        });
        pair.is_durable = is_durable;
        pair.times += 1;
        pair.last = now;
    }
}

/// Forgets the older half, if there are as many as there may be.
fn make_room<K: Eq + Hash, V>(of: &mut HashMap<K, V>, most: usize, last: impl Fn(&V) -> Timestamp) {
    if of.len() >= most {
        let mut all: Vec<Timestamp> = of.values().map(&last).collect();
        let (_, median, _) = all.select_nth_unstable(most / 2);
        let median = *median;
        of.retain(|_, value| last(value) > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(subscriber: Option<&str>, is_durable: bool, times: usize, last: u64) -> HeldBy {
        HeldBy {
            subscriber: subscriber.map(Into::into),
            is_durable,
            publisher: "p".into(),
            times,
            last: Timestamp(last),
        }
    }

    #[test]
    fn pairs_are_listed_by_their_time() {
        let mut pairs = Pairs::default();
        for (subscriber, at) in [("s", 10), ("t", 20), ("s", 30)] {
            pairs.handle_held(subscriber, "p", Timestamp(at));
        }
        let both = [pair(Some("s"), false, 2, 30), pair(Some("t"), false, 1, 20)];
        assert_eq!(pairs.list(), both);
    }

    #[test]
    fn a_durable_session_is_known_by_the_topic_that_fills_it() {
        let mut pairs = Pairs::default();
        pairs.handle_filling(b"a", "d", Timestamp(10));
        pairs.handle_paused("p", b"a", Timestamp(20));
        assert_eq!(pairs.list(), [pair(Some("d"), true, 1, 20)]);
        pairs.handle_paused("p", b"b", Timestamp(30));
        pairs.handle_paused("p", b"a", Timestamp(10 + RECENT_MS));
        assert_eq!(pairs.list()[0], pair(None, true, 2, 10 + RECENT_MS));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut pairs = Pairs::default();
        for n in 0..5_000 {
            pairs.handle_held(&n.to_string(), "p", Timestamp(n));
            pairs.handle_filling(n.to_string().as_bytes(), "d", Timestamp(n));
        }
        assert!(pairs.pairs.len() <= PAIRS && pairs.topics.len() <= TOPICS);
        assert!(pairs.topics.contains_key(&b"4999"[..]));
    }
}
