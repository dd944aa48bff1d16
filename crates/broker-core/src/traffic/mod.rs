//! Who publishes most, who gets most, who gets it late, and which topics: what a loop knows of the last seconds; and what
//! a client does that somebody watches.
//!
//! A loop looks at a sample of its packets ([`sampler`]), and counts those in tables of a fixed size ([`heavy`],
//! [`slowest`]): who was not among the first when a table was full took the place of the last one, so that whoever has
//! more than a 256th of all is in it. Two windows are kept: the one that is counted, and the one before, which is told.
//! Of a client that is watched, each packet is counted ([`watched`]).
//!
//! Invariant: memory does not grow with clients, topics or messages. Nobody is told to have more than he has, but for
//! the error of sampling.

mod amount;
mod heavy;
mod sampler;
mod slowest;
mod table;
mod watched;

use std::mem;
use std::num::NonZeroU64;

use mqtt_proto::MessageBody;
use mqtt_session::{TakenUp, Timestamp};

pub use amount::{Amount, Bytes, Measure, Messages};
pub use heavy::{HeavyHitter, Uncounted};
pub use slowest::Delays;
pub use watched::WatchedTraffic;

use heavy::HeavyHitters;
use sampler::Sampler;
use slowest::Slowest;
use watched::Watched;

/// How long a window is, in ms.
pub const WINDOW_MS: u64 = 5_000;

/// Of what the first ones are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// Clients, by what they publish.
    Publishers,
    /// Clients, by what they are sent.
    Subscribers,
    /// Topics, by what is published to them.
    Topics,
}

/// What people ask of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrafficQuestion {
    /// The first ones of the last window.
    Busiest(Busy, Measure),
    /// The clients of the last window whose messages were sent latest.
    Slowest,
    /// What a client has done since it is watched. It is for some seconds from now on, or the longest watched one makes room.
    Watch {
        /// The client identifier.
        client_id: Box<str>,
    },
}

/// What a loop says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrafficAnswer {
    /// To [`TrafficQuestion::Busiest`], in no order.
    Busiest(Vec<HeavyHitter>),
    /// To [`TrafficQuestion::Slowest`], in no order.
    Slowest(Vec<(Box<str>, Delays)>),
    /// To [`TrafficQuestion::Watch`].
    Watched(WatchedTraffic),
}

/// What one loop knows of it.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Of messages that its clients publish.
    published: Sampler,
    /// Of what it writes for a client at once, if it delivers messages.
    sent: Sampler,
    windows: Windows,
    watched: Watched,
}

impl Traffic {
    /// Answers, at a time in ms of Unix time.
    pub(crate) fn answer(&mut self, question: TrafficQuestion, now: Timestamp) -> TrafficAnswer {
        self.windows.handle_time(now.0);
        let last = &self.windows.last;
        match question {
            TrafficQuestion::Busiest(of, by) => {
                TrafficAnswer::Busiest(last.ranking(of).by(by).rows())
            }
            TrafficQuestion::Slowest => TrafficAnswer::Slowest(last.slowest.rows()),
            TrafficQuestion::Watch { client_id } => {
                TrafficAnswer::Watched(self.watched.watch(&client_id, now))
            }
        }
    }

    /// A client publishes a message: when, if it is one that is measured. `clock`: µs.
    pub(crate) fn handle_published(
        &mut self,
        client_id: &str,
        message: &MessageBody,
        now: Timestamp,
        clock: impl FnOnce() -> u64,
    ) -> Option<TakenUp> {
        let amount = Amount::of_one(message.payload().len());
        self.watched.handle_published(client_id, amount);
        let weight = self.published.handle(now)?;
        let window = self.windows.current(now);
        let amount = amount.times(weight);
        window.publishers.add(client_id, amount);
        window.topics.add(message.topic(), amount);
        Some(TakenUp(NonZeroU64::new(clock()).unwrap_or(NonZeroU64::MIN)))
    }

    /// Packets are written for a client.
    pub(crate) fn handle_sent(&mut self, client_id: &str, amount: Amount, now: Timestamp) {
        if amount.messages == Messages(0) {
            // Acknowledgements are no messages.
            return;
        }
        self.watched.handle_sent(client_id, amount);
        if let Some(weight) = self.sent.handle(now) {
            let subscribers = &mut self.windows.current(now).subscribers;
            subscribers.add(client_id, amount.times(weight));
        }
    }

    /// So long after they were published, measured messages are sent to a client.
    pub(crate) fn handle_delays(&mut self, client_id: &str, delays: Delays, now: Timestamp) {
        if delays.messages > Messages(0) {
            self.windows.current(now).slowest.add(client_id, delays);
        }
    }
}

#[derive(Debug, Default)]
struct Windows {
    began: Timestamp,
    current: Window,
    last: Window,
}

impl Windows {
    fn current(&mut self, now: Timestamp) -> &mut Window {
        self.handle_time(now.0);
        &mut self.current
    }

    /// Windows end at times that [`WINDOW_MS`] divides, so that those of all loops are the same.
    fn handle_time(&mut self, now_ms: u64) {
        let began = now_ms - now_ms % WINDOW_MS;
        if began <= self.began.0 {
            // It goes on. A clock that is set back makes it longer.
            return;
        }
        let ended = mem::take(&mut self.current);
        let is_next = began - self.began.0 == WINDOW_MS;
        self.last = if is_next { ended } else { Window::default() };
        self.began = Timestamp(began);
    }
}

#[derive(Debug, Default)]
struct Window {
    publishers: Ranking,
    subscribers: Ranking,
    topics: Ranking,
    slowest: Slowest,
}

impl Window {
    fn ranking(&self, of: Busy) -> &Ranking {
        match of {
            Busy::Publishers => &self.publishers,
            Busy::Subscribers => &self.subscribers,
            Busy::Topics => &self.topics,
        }
    }
}

/// The first ones by each measure: who sends few long messages is not one of those who send many.
#[derive(Debug)]
struct Ranking {
    by_messages: HeavyHitters,
    by_bytes: HeavyHitters,
}

impl Default for Ranking {
    fn default() -> Self {
        Self {
            by_messages: HeavyHitters::by(Measure::Messages),
            by_bytes: HeavyHitters::by(Measure::Bytes),
        }
    }
}

impl Ranking {
    fn add(&mut self, name: &str, amount: Amount) {
        self.by_messages.add(name, amount);
        self.by_bytes.add(name, amount);
    }

    fn by(&self, measure: Measure) -> &HeavyHitters {
        match measure {
            Measure::Messages => &self.by_messages,
            Measure::Bytes => &self.by_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(traffic: &mut Traffic, of: Busy, now_ms: u64) -> Vec<(String, u64)> {
        let question = TrafficQuestion::Busiest(of, Measure::Messages);
        let answer = traffic.answer(question, Timestamp(now_ms));
        let TrafficAnswer::Busiest(rows) = answer else {
            unreachable!("the busiest were asked for")
        };
        let rows = rows.into_iter();
        let mut rows: Vec<_> = rows
            .map(|row| (row.name.into(), row.counted.messages.0))
            .collect();
        rows.sort();
        rows
    }

    fn publish(traffic: &mut Traffic, client: &str, topic: &str, now_ms: u64) {
        let message = MessageBody::new(topic, &[0; 10]);
        let taken = traffic.handle_published(client, &message, Timestamp(now_ms), || 7);
        assert_eq!(taken.map(|at| at.0.get()), Some(7));
    }

    #[test]
    fn the_window_that_is_over_is_told() {
        let mut traffic = Traffic::default();
        publish(&mut traffic, "a", "t", 100_000);
        publish(&mut traffic, "a", "u", 104_999);
        assert_eq!(messages(&mut traffic, Busy::Publishers, 104_999), []);
        publish(&mut traffic, "b", "u", 105_000);
        let first = [("a".to_owned(), 2)];
        assert_eq!(messages(&mut traffic, Busy::Publishers, 105_000), first);
        // A clock that is set back forgets nothing.
        publish(&mut traffic, "b", "u", 90_000);
        assert_eq!(messages(&mut traffic, Busy::Publishers, 95_000), first);
        let second = [("b".to_owned(), 2)];
        assert_eq!(messages(&mut traffic, Busy::Publishers, 114_999), second);
        let topics = [("u".to_owned(), 2)];
        assert_eq!(messages(&mut traffic, Busy::Topics, 114_999), topics);
        // Nothing has happened since.
        assert_eq!(messages(&mut traffic, Busy::Publishers, 115_000), []);
    }

    #[test]
    fn a_sample_stands_for_all() {
        let mut traffic = Traffic::default();
        let amount = Amount {
            messages: Messages(3),
            bytes: Bytes(40),
        };
        // As many in each second: from the second one on, one of 32 is looked at.
        for n in 0..50_000 {
            let client = if n % 5 == 0 { "a" } else { "b" };
            traffic.handle_sent(client, amount, Timestamp(WINDOW_MS + n / 10));
        }
        let rows = messages(&mut traffic, Busy::Subscribers, 2 * WINDOW_MS);
        let [(_, a), (_, b)] = rows.as_slice() else {
            panic!("two clients: {rows:?}")
        };
        assert!(
            (24_000..36_000).contains(a) && (110_000..130_000).contains(b),
            "{rows:?}"
        );
    }

    #[test]
    fn a_client_that_is_watched_is_counted_whole() {
        let mut traffic = Traffic::default();
        let watch = |traffic: &mut Traffic, now_ms| {
            let client_id = "a".into();
            let answer = traffic.answer(TrafficQuestion::Watch { client_id }, Timestamp(now_ms));
            let TrafficAnswer::Watched(watched) = answer else {
                unreachable!("a client is watched")
            };
            (watched.published.messages.0, watched.sent.messages.0)
        };
        publish(&mut traffic, "a", "t", 1_000);
        assert_eq!(watch(&mut traffic, 1_000), (0, 0));
        let message = MessageBody::new("t", &[0; 10]);
        for n in 0..5_000 {
            for client in ["a", "b"] {
                let _ = traffic.handle_published(client, &message, Timestamp(2_000 + n), || 7);
            }
            traffic.handle_sent("a", Amount::of_one(4), Timestamp(2_000 + n));
        }
        assert_eq!(watch(&mut traffic, 8_000), (5_000, 5_000));
    }
}
