//! What workers count and measure, and how it adds up.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Index, IndexMut};

use hdrhistogram::Histogram;
use report::Latencies;
use serde::{Deserialize, Serialize};

use crate::meter::{add_buckets, buckets, histogram};
use crate::played::latency;

/// Something that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Clients that have tried to connect at least once, whatever came of it.
    Attempted,
    /// Clients that are connected now, and subscribed if they are to be.
    Ready,
    /// Connections that got so far.
    Connects,
    /// Connections that did not.
    ConnectFailures,
    /// Connections that broke off later.
    Disconnects,
    /// Clients whose first connection was due, by the rate of connecting.
    ConnectsDue,
    /// Of those, clients that never got so far.
    NeverConnected,
    /// Milliseconds from a break of a connection to the next one, of all clients together, until the end of the load.
    AwayMs,
    /// Messages that were due until the end of the load.
    Due,
    /// Messages handed to connections.
    Sent,
    /// Messages above QoS 0 that were acknowledged to the end.
    Acknowledged,
    /// Messages above QoS 0 that the broker refused.
    Refused,
    /// Messages above QoS 0 that were not acknowledged to the end when their connection broke off.
    Unsettled,
    /// Messages that were due and are not sent, of clients without a connection.
    NotSentAway,
    /// Messages that were due and are not sent, of clients whose connection or in-flight window has no room.
    NotSentFull,
    /// Messages that subscribers received.
    Received,
}

const COUNTS: usize = Count::Received as usize + 1;

/// All counts, by [`Count`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts([u64; COUNTS]);

impl Index<Count> for Counts {
    type Output = u64;

    fn index(&self, count: Count) -> &u64 {
        &self.0[count as usize]
    }
}

impl IndexMut<Count> for Counts {
    fn index_mut(&mut self, count: Count) -> &mut u64 {
        &mut self.0[count as usize]
    }
}

impl Counts {
    /// Messages that were due and are not sent.
    #[must_use]
    pub fn not_sent(&self) -> u64 {
        self[Count::NotSentAway] + self[Count::NotSentFull]
    }

    /// Of messages above QoS 0: those that were sent and neither acknowledged to the end nor refused.
    #[must_use]
    pub fn unacknowledged(&self) -> u64 {
        let settled = self[Count::Acknowledged] + self[Count::Refused];
        self[Count::Sent].saturating_sub(settled)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        for (count, added) in self.0.iter_mut().zip(other.0) {
            *count += added;
        }
    }
}

/// Times in ns.
#[derive(Clone, Debug)]
pub struct Times {
    /// From opening a connection to CONNACK.
    pub connect: Histogram<u64>,
    /// From due to handed to a connection.
    pub send: Histogram<u64>,
    /// From due to acknowledged to the end.
    pub acknowledge: Histogram<u64>,
    /// From due to received, by the clocks of both machines; only of messages that say when they were due.
    pub deliver: Histogram<u64>,
}

/// The same as buckets: highest time in ns, count.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Buckets {
    connect: Vec<(u64, u64)>,
    send: Vec<(u64, u64)>,
    acknowledge: Vec<(u64, u64)>,
    deliver: Vec<(u64, u64)>,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            connect: histogram(),
            send: histogram(),
            acknowledge: histogram(),
            deliver: histogram(),
        }
    }
}

impl Times {
    /// As records of `heraldmq bench run` have them.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        Latencies {
            connect: latency(&self.connect),
            due_to_sent: latency(&self.send),
            acknowledge: latency(&self.acknowledge),
            deliver: latency(&self.deliver),
            ..Latencies::default()
        }
    }

    /// All times since the call before.
    pub(crate) fn take(&mut self) -> Buckets {
        let taken = Buckets {
            connect: buckets(&self.connect),
            send: buckets(&self.send),
            acknowledge: buckets(&self.acknowledge),
            deliver: buckets(&self.deliver),
        };
        self.reset();
        taken
    }

    pub(crate) fn reset(&mut self) {
        self.connect.reset();
        self.send.reset();
        self.acknowledge.reset();
        self.deliver.reset();
    }

    pub(crate) fn add(&mut self, added: &Buckets) {
        add_buckets(&mut self.connect, &added.connect);
        add_buckets(&mut self.send, &added.send);
        add_buckets(&mut self.acknowledge, &added.acknowledge);
        add_buckets(&mut self.deliver, &added.deliver);
    }
}

/// How often something failed, by what was wrong.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reasons(pub(crate) BTreeMap<String, u64>);

/// Reasons that are told apart; there are not many, unless a broker writes the time into them.
const MOST_REASONS: usize = 32;

const OTHER: &str = "other reasons";

impl Reasons {
    pub(crate) fn add(&mut self, reason: String, count: u64) {
        let is_new = !self.0.contains_key(&reason);
        let reason = match is_new && self.0.len() >= MOST_REASONS {
            true => OTHER.to_owned(),
            false => reason,
        };
        *self.0.entry(reason).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_workers_add_up() {
        let mut one = Counts::default();
        one[Count::Ready] = 2;
        one[Count::Received] = 7;
        let mut both = one;
        both += one;
        assert_eq!((both[Count::Ready], both[Count::Received]), (4, 14));
        assert_eq!(both[Count::Sent], 0);
    }

    #[test]
    fn reasons_beyond_a_limit_are_one() {
        let mut reasons = Reasons::default();
        for number in 0..MOST_REASONS + 5 {
            reasons.add(format!("at {number}"), 2);
        }
        assert_eq!(reasons.0.len(), MOST_REASONS + 1);
        assert_eq!(reasons.0[OTHER], 10);
        reasons.add("at 0".to_owned(), 1);
        assert_eq!(reasons.0["at 0"], 3);
    }

    #[test]
    fn times_arrive_as_they_were_taken() {
        let mut times = Times::default();
        times.deliver.record(1_000).unwrap();
        let mut arrived = Times::default();
        arrived.add(&times.take());
        assert_eq!((arrived.deliver.len(), times.deliver.len()), (1, 0));
    }
}
