//! The time that the nodes of a cluster agree on: the median of their clocks.
//!
//! Whatever leaves this process or outlives it is judged by it: when messages expire, when sessions end, when wills are
//! due, which of two connections came later. Deadlines within the process are not: these are times of [`net::Clock`],
//! which nothing sets back.
//!
//! Each node asks the others for their clocks, and compares them with its own in the middle of the round trip. A clock
//! is that of a process ([`net::Clock`]), so what was found once stays true but for drift: the clocks of members that
//! cannot be reached are remembered, and the median does not move when a node fails.
//!
//! Invariants: one wrong clock of three or more moves the time no further than to the next right one; a node that knows
//! no other clock goes by its own.
//!
//! Deliberately absent: setting the system's clock, and the end of tokens, which others decide by the system's clock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cluster::{Reach, Unreachable};
use futures_util::future::join_all;
use net::Clock;
use parking_lot::Mutex;
use peer_protocol::{ClockReading, PeerRequest};

use crate::clustered::Clustered;
use crate::node::Node;

/// How often the others are asked.
pub(crate) const ROUND: Duration = Duration::from_secs(5);

/// How long an answer is waited for. What takes longer says too little.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a reading counts more than one of a longer round trip.
const BEST_MS: u64 = 60_000;

/// A node that gives no answer so often in a row is of an earlier version, and is asked once in [`MUTE_MS`].
const MUTE: u32 = 3;
const MUTE_MS: u64 = 60_000;

/// Smaller differences change nothing: a reading is as good as its round trip is short.
const STEP_MS: u64 = 100;

/// Above this a node says that the system's clock is wrong; below half of it that it is right again.
const WRONG_MS: u64 = 2_000;

/// How often it says so.
const SAY_MS: u64 = 600_000;

/// What the time is in this node's cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterTime {
    /// How far it is ahead of this node's clock.
    ahead_ms: AtomicI64,
    agreement: Mutex<Agreement>,
}

/// The clocks of a cluster, as one node finds them.
#[derive(Debug, Default)]
struct Agreement {
    ahead_ms: i64,
    readings: BTreeMap<u64, Reading>,
    /// Nodes that gave no answer: how often in a row, and when last.
    mute: BTreeMap<u64, (u32, u64)>,
    /// When the log last said that the system's clock is wrong.
    said_ms: Option<u64>,
}

/// What another node's clocks are, against this node's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reading {
    /// Its process: a later one has another clock.
    incarnation: u64,
    clock_ahead_ms: i64,
    system_ahead_ms: i64,
    round_trip_ms: u64,
    at_ms: u64,
}

impl ClusterTime {
    /// The cluster's time at a time of this node's clock, in ms of Unix time. It may be set back.
    #[inline]
    pub(crate) fn at_ms(&self, clock_ms: u64) -> u64 {
        clock_ms.saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// The same in µs.
    pub(crate) fn at_us(&self, clock_us: u64) -> u64 {
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        clock_us.saturating_add_signed(ahead_ms.saturating_mul(1_000))
    }

    /// How far the system's clock of a node is ahead of the cluster's time, in ms. `None`: it is not known.
    pub(crate) fn offset_ms(&self, node: u64) -> Option<i64> {
        self.agreement.lock().offset_ms(node)
    }

    /// The same of this node. 0 if no other clock was ever known.
    pub(crate) fn own_offset_ms(&self, clock: &Clock) -> i64 {
        if self.agreement.lock().readings.is_empty() {
            return 0;
        }
        difference(Clock::system_ms(), self.at_ms(clock.now_ms()))
    }

    /// Whether the clocks of all these nodes are known, or cannot be.
    pub(crate) fn knows(&self, nodes: &[u64]) -> bool {
        let agreement = self.agreement.lock();
        let is_known =
            |node: &u64| agreement.readings.contains_key(node) || agreement.is_mute(*node);
        nodes.iter().all(is_known)
    }
}

impl Agreement {
    fn offset_ms(&self, node: u64) -> Option<i64> {
        let reading = self.readings.get(&node)?;
        Some(reading.system_ahead_ms.saturating_sub(self.ahead_ms))
    }

    fn is_mute(&self, node: u64) -> bool {
        self.mute
            .get(&node)
            .is_some_and(|(missed, _)| *missed >= MUTE)
    }

    fn may_ask(&self, node: u64, now_ms: u64) -> bool {
        let mute = self.mute.get(&node);
        mute.is_none_or(|(missed, at_ms)| *missed < MUTE || now_ms >= at_ms + MUTE_MS)
    }

    /// A node that could be asked gave no answer.
    fn miss(&mut self, node: u64, now_ms: u64) {
        let (missed, at_ms) = self.mute.entry(node).or_default();
        *missed = missed.saturating_add(1);
        *at_ms = now_ms;
    }

    /// A node has told its clocks. One of a long round trip does not replace one of a shorter one.
    fn note(&mut self, node: u64, reading: Reading) {
        let known = self.readings.entry(node).or_insert(reading);
        let is_old = reading.at_ms.saturating_sub(known.at_ms) >= BEST_MS;
        if is_old
            || reading.incarnation != known.incarnation
            || reading.round_trip_ms <= known.round_trip_ms
        {
            *known = reading;
        }
        self.mute.remove(&node);
    }

    /// Forgets the clocks of nodes that belong to the cluster no more.
    fn retain(&mut self, is_member: impl Fn(u64) -> bool) {
        self.readings.retain(|node, _| is_member(*node));
        self.mute.retain(|node, _| is_member(*node));
    }

    /// Decides how far the cluster's time is ahead of this node's clock; `own`: this node. Whether that is news.
    fn decide(&mut self, own: u64) -> bool {
        let others = self.readings.iter();
        let clocks = others.map(|(node, reading)| (reading.clock_ahead_ms, *node));
        let ahead_ms = median(clocks.chain([(0, own)]).collect());
        let is_news = ahead_ms.abs_diff(self.ahead_ms) >= STEP_MS;
        if is_news {
            self.ahead_ms = ahead_ms;
        }
        is_news
    }

    /// What the log should say about the system's clock; `Some(true)`: that it is wrong.
    fn remark(&mut self, own_offset_ms: i64, now_ms: u64) -> Option<bool> {
        let wrong = own_offset_ms.unsigned_abs();
        match self.said_ms {
            Some(_) if wrong < WRONG_MS / 2 => {
                self.said_ms = None;
                Some(false)
            }
            Some(said_ms) if now_ms < said_ms + SAY_MS => None,
            None if wrong <= WRONG_MS => None,
            _ => {
                self.said_ms = Some(now_ms);
                Some(true)
            }
        }
    }
}

/// The clock in the middle. Of two in the middle, that of the node with the lower identifier: all nodes that know the
/// same clocks take the same one.
fn median(mut clocks: Vec<(i64, u64)>) -> i64 {
    clocks.sort_unstable();
    let upper = clocks.len() / 2;
    let lower = clocks.len().saturating_sub(1) / 2;
    let middle = clocks.get(lower..=upper).unwrap_or_default();
    let chosen = middle.iter().min_by_key(|(_, node)| *node);
    chosen.map_or(0, |(ahead_ms, _)| *ahead_ms)
}

/// `a - b`.
fn difference(a: u64, b: u64) -> i64 {
    i64::try_from(i128::from(a) - i128::from(b)).unwrap_or(if a > b { i64::MAX } else { i64::MIN })
}

/// What an answer says to a node that has sent the question and got it at these times of its clock.
fn compare(told: ClockReading, sent_ms: u64, came_ms: u64) -> Reading {
    let round_trip_ms = came_ms.saturating_sub(sent_ms);
    let middle_ms = sent_ms + round_trip_ms / 2;
    Reading {
        incarnation: told.incarnation,
        clock_ahead_ms: difference(told.clock_ms, middle_ms),
        system_ahead_ms: difference(told.system_ms, middle_ms),
        round_trip_ms,
        at_ms: came_ms,
    }
}

/// Answers another node's question.
pub(crate) fn answer(node: &Node) -> Bytes {
    let told = ClockReading {
        incarnation: node.store().incarnation(),
        clock_ms: node.rim.clock.now_ms(),
        system_ms: Clock::system_ms(),
    };
    told.encode()
}

/// Asks the nodes that can be reached, and sets the cluster's time by what they say. Takes a second at most.
pub(crate) async fn agree(node: &Node, clustered: &Clustered) {
    let cluster = clustered.cluster();
    let own = cluster.node();
    let members = cluster.members();
    let time = &node.rim.cluster_time;
    let now_ms = node.rim.clock.now_ms();
    let asked = members.nodes.values().filter(|member| {
        member.node != own
            && member.reach == Reach::Up
            && time.agreement.lock().may_ask(member.node, now_ms)
    });
    let answers = asked.map(|member| {
        let sent_ms = node.rim.clock.now_ms();
        let call = clustered.call(member.node, PeerRequest::Clock, PATIENCE);
        async move {
            let answer = match call {
                Ok(call) => call.await,
                Err(unreachable) => Err(unreachable),
            };
            (member.node, sent_ms, answer, node.rim.clock.now_ms())
        }
    });
    let answers = join_all(answers).await;
    let mut agreement = time.agreement.lock();
    for (peer, sent_ms, answer, came_ms) in answers {
        match answer.map(|answer| ClockReading::decode(&answer)) {
            Ok(Ok(told)) => agreement.note(peer, compare(told, sent_ms, came_ms)),
            Ok(Err(_)) | Err(Unreachable::NoAnswer) => agreement.miss(peer, came_ms),
            Err(_) => {}
        }
    }
    agreement.retain(|peer| members.nodes.contains_key(&peer));
    if agreement.decide(own) {
        let ahead_ms = agreement.ahead_ms;
        time.ahead_ms.store(ahead_ms, Ordering::Relaxed);
        tracing::info!(
            ahead_ms,
            clocks = agreement.readings.len() + 1,
            "the cluster's time, the median of the nodes' clocks, is ahead of this node's clock"
        );
    }
    drop(agreement);
    let offset_ms = time.own_offset_ms(&node.rim.clock);
    let remark = time
        .agreement
        .lock()
        .remark(offset_ms, node.rim.clock.now_ms());
    match remark {
        Some(true) => tracing::warn!(
            offset_ms,
            "the system's clock differs from the cluster's time; set it right, for example by NTP"
        ),
        Some(false) => tracing::info!(offset_ms, "the system's clock is right again"),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 5;

    fn reading(clock_ahead_ms: i64) -> Reading {
        Reading {
            incarnation: 1,
            clock_ahead_ms,
            system_ahead_ms: clock_ahead_ms,
            round_trip_ms: 1,
            at_ms: 0,
        }
    }

    /// How far the cluster's time is ahead of a clock, as its node finds that knows these others.
    fn ahead(others: &[(u64, i64)]) -> i64 {
        let mut agreement = Agreement::default();
        for (node, ahead_ms) in others {
            agreement.note(*node, reading(*ahead_ms));
        }
        agreement.decide(OWN);
        agreement.ahead_ms
    }

    #[test]
    fn a_node_alone_goes_by_its_own_clock() {
        assert_eq!(ahead(&[]), 0);
        let time = ClusterTime::default();
        assert_eq!((time.at_ms(7), time.at_us(8)), (7, 8));
        assert_eq!(time.own_offset_ms(&Clock::start()), 0);
    }

    #[test]
    fn one_wrong_clock_of_three_moves_nothing() {
        for wrong in [-600_000, 600_000, i64::MAX, i64::MIN] {
            assert_eq!(
                ahead(&[(1, wrong), (9, 20)]).clamp(0, 20),
                ahead(&[(1, wrong), (9, 20)])
            );
        }
        // The node that is wrong itself follows the others.
        assert_eq!(ahead(&[(1, -600_000), (9, -600_010)]), -600_000);
    }

    #[test]
    fn of_two_clocks_that_of_the_lower_identifier_counts() {
        assert_eq!(ahead(&[(1, 600_000)]), 600_000);
        assert_eq!(ahead(&[(9, 600_000)]), 0);
        assert_eq!(ahead(&[(1, 600_000), (2, 400_000), (9, -5)]), 400_000);
    }

    #[test]
    fn all_nodes_come_to_the_same_time() {
        // The clocks of nodes 1 to n, in ms of true time.
        let clusters: [&[i64]; 5] = [
            &[0, 600_000],
            &[600_000, 0],
            &[0, 0, 600_000],
            &[-500_000, 0, 600_000],
            &[7_000, 900, -4_000, 3_000, 2_000, 100_000],
        ];
        for clocks in clusters {
            let nodes: Vec<(u64, i64)> = (1..).zip(clocks.iter().copied()).collect();
            let time_of = |own: usize| {
                let mut agreement = Agreement::default();
                let (own, clock) = nodes[own];
                for (node, other) in nodes.iter().filter(|(node, _)| *node != own) {
                    agreement.note(*node, reading(other - clock));
                }
                agreement.decide(own);
                clock + agreement.ahead_ms
            };
            let times: Vec<i64> = (0..nodes.len()).map(time_of).collect();
            assert!(
                times.iter().all(|time| *time == times[0]),
                "{clocks:?}: {times:?}"
            );
        }
    }

    #[test]
    fn a_node_that_fails_moves_nothing_and_one_that_is_evicted_is_forgotten() {
        let mut agreement = Agreement::default();
        agreement.note(1, reading(600_000));
        agreement.note(9, reading(0));
        agreement.retain(|_| true);
        assert!(!agreement.decide(OWN));
        agreement.retain(|node| node != 9);
        assert!(agreement.decide(OWN));
        assert_eq!(agreement.ahead_ms, 600_000);
    }

    #[test]
    fn small_differences_change_nothing() {
        let mut agreement = Agreement::default();
        agreement.note(1, reading(99));
        assert!(!agreement.decide(OWN));
        agreement.note(1, reading(100));
        assert!(agreement.decide(OWN));
        agreement.note(1, reading(1));
        assert!(!agreement.decide(OWN));
        assert_eq!(agreement.ahead_ms, 100);
    }

    #[test]
    fn the_middle_of_the_round_trip_is_compared() {
        let told = ClockReading {
            incarnation: 3,
            clock_ms: 5_000,
            system_ms: 6_000,
        };
        let reading = compare(told, 1_000, 1_200);
        assert_eq!(reading.clock_ahead_ms, 3_900);
        assert_eq!(reading.system_ahead_ms, 4_900);
        assert_eq!(reading.round_trip_ms, 200);
        assert_eq!(compare(told, 9_000, 9_000).clock_ahead_ms, -4_000);
    }

    #[test]
    fn a_short_round_trip_counts_more_than_a_long_one_for_a_while() {
        let mut agreement = Agreement::default();
        let later = |clock_ahead_ms, round_trip_ms, at_ms| Reading {
            round_trip_ms,
            at_ms,
            ..reading(clock_ahead_ms)
        };
        agreement.note(1, later(1_000, 2, 0));
        agreement.note(1, later(1_300, 600, 5_000));
        assert_eq!(agreement.readings[&1].clock_ahead_ms, 1_000);
        agreement.note(1, later(1_001, 2, 10_000));
        assert_eq!(agreement.readings[&1].clock_ahead_ms, 1_001);
        agreement.note(1, later(1_300, 600, 70_000));
        assert_eq!(agreement.readings[&1].clock_ahead_ms, 1_300);
        // Another process has another clock.
        let restarted = Reading {
            incarnation: 2,
            ..later(0, 900, 70_001)
        };
        agreement.note(1, restarted);
        assert_eq!(agreement.readings[&1], restarted);
    }

    #[test]
    fn a_node_of_an_earlier_version_is_asked_seldom() {
        let mut agreement = Agreement::default();
        for missed in 1..=MUTE {
            assert!(agreement.may_ask(1, 0));
            agreement.miss(1, 0);
            assert_eq!(agreement.is_mute(1), missed == MUTE);
        }
        assert!(!agreement.may_ask(1, MUTE_MS - 1));
        assert!(agreement.may_ask(1, MUTE_MS));
        agreement.note(1, reading(0));
        assert!(agreement.may_ask(1, 0));
    }

    #[test]
    fn a_wrong_clock_is_remarked_now_and_then_until_it_is_right() {
        let mut agreement = Agreement::default();
        assert_eq!(agreement.remark(2_000, 0), None);
        assert_eq!(agreement.remark(-2_001, 0), Some(true));
        assert_eq!(agreement.remark(-2_001, SAY_MS - 1), None);
        assert_eq!(agreement.remark(1_500, SAY_MS), Some(true));
        assert_eq!(agreement.remark(999, SAY_MS + 1), Some(false));
        assert_eq!(agreement.remark(999, 2 * SAY_MS), None);
    }
}
