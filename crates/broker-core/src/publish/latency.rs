//! How long messages take through the broker: which are measured, and what is counted of them.
//!
//! A loop measures each message that its clients publish while they are few, and one of [`SPARSE`] at random while
//! they are many: a clock is read for those only. What a message's way costs is measured where it ends on the same
//! node; a message that comes from another node is not measured, for its clock is another one.

use std::num::NonZeroU64;

use mqtt_proto::QoS;
use mqtt_session::{TakenUp, Timed, TimedPacket, Timestamp};
use net_api::{Histogram, Micros};

/// Messages in a second up to which all of the next second are measured.
const FEW: u64 = 1_000;

/// One of so many is measured while there are more. A power of two.
const SPARSE: u64 = 16;

/// One second.
const SECOND_MS: u64 = 1_000;

/// What is counted of the time that messages take, of one loop.
#[derive(Debug, Default)]
pub struct LatencyStats {
    /// From PUBLISH to PUBACK or PUBREC, of QoS 1 and 2.
    answers: [Histogram; 2],
    /// From PUBLISH to the first PUBLISH to each receiver, by its QoS.
    deliveries: [Histogram; 3],
}

impl LatencyStats {
    /// From PUBLISH to PUBACK or PUBREC; QoS 0 has none.
    #[must_use]
    pub fn answers(&self, qos: QoS) -> Option<&Histogram> {
        let [at_least_once, exactly_once] = &self.answers;
        match qos {
            QoS::AtMostOnce => None,
            QoS::AtLeastOnce => Some(at_least_once),
            QoS::ExactlyOnce => Some(exactly_once),
        }
    }

    /// From PUBLISH to the first PUBLISH to each receiver on the same node with this QoS.
    #[must_use]
    pub fn deliveries(&self, qos: QoS) -> &Histogram {
        let [at_most_once, at_least_once, exactly_once] = &self.deliveries;
        match qos {
            QoS::AtMostOnce => at_most_once,
            QoS::AtLeastOnce => at_least_once,
            QoS::ExactlyOnce => exactly_once,
        }
    }

    /// Packets were written at a time. One whose message was taken up before its receiver's connection was there has
    /// waited for the receiver, and is not counted.
    pub(crate) fn handle_written(&self, timed: &[Timed], connected_us: u64, now_us: u64) {
        for Timed {
            packet,
            qos,
            taken_up: TakenUp(taken_up),
        } in timed
        {
            let histogram = match packet {
                TimedPacket::Answer => self.answers(*qos),
                TimedPacket::Publish => {
                    let was_connected = taken_up.get() >= connected_us;
                    was_connected.then_some(self.deliveries(*qos))
                }
            };
            if let Some(histogram) = histogram {
                histogram.record(Micros(now_us.saturating_sub(taken_up.get())));
            }
        }
    }
}

/// Chooses the messages of a loop whose way is measured.
#[derive(Debug)]
pub(crate) struct Sampler {
    second_began: Timestamp,
    in_this_second: Published,
    is_sparse: bool,
    random: Xorshift,
}

/// How many messages were published.
#[derive(Debug, Default)]
struct Published(u64);

/// The state of a generator: never 0.
#[derive(Debug)]
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            second_began: Timestamp(0),
            in_this_second: Published(0),
            is_sparse: false,
            random: Xorshift(0x9e37_79b9_7f4a_7c15),
        }
    }
}

impl Sampler {
    /// A client publishes a message: when, if it is measured. `clock`: µs.
    pub(crate) fn handle_publish(
        &mut self,
        now: Timestamp,
        clock: impl FnOnce() -> u64,
    ) -> Option<TakenUp> {
        if now.saturating_since(self.second_began) >= SECOND_MS {
            self.is_sparse = self.in_this_second.0 > FEW;
            self.in_this_second.0 = 0;
            self.second_began = now;
        }
        self.in_this_second.0 += 1;
        let is_measured = !self.is_sparse || self.random.next().is_multiple_of(SPARSE);
        is_measured.then(|| TakenUp(NonZeroU64::new(clock()).unwrap_or(NonZeroU64::MIN)))
    }
}

#[cfg(test)]
mod tests {
    use net_api::Snapshot;

    use super::*;

    const ALL: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

    fn measured(sampler: &mut Sampler, now_ms: u64, messages: u64) -> u64 {
        let taken =
            (0..messages).filter(|_| sampler.handle_publish(Timestamp(now_ms), || 7).is_some());
        taken.count() as u64
    }

    #[test]
    fn few_are_measured_all_and_of_many_one_of_sixteen() {
        let mut sampler = Sampler::default();
        assert_eq!(measured(&mut sampler, 10_000, 500), 500);
        // Until the second is over nobody knows that they are many.
        assert_eq!(measured(&mut sampler, 10_500, 100_000), 100_000);
        let sparse = measured(&mut sampler, 11_000, 160_000);
        assert!((9_500..10_500).contains(&sparse), "{sparse}");
        let next = measured(&mut sampler, 12_500, 10);
        assert!(next < 10, "{next}");
        assert_eq!(measured(&mut sampler, 13_500, 10), 10);
    }

    #[test]
    fn what_waited_for_its_receiver_is_not_counted() {
        let stats = LatencyStats::default();
        let timed = |packet, qos, at| Timed {
            packet,
            qos,
            taken_up: TakenUp(NonZeroU64::new(at).unwrap()),
        };
        let written = [
            timed(TimedPacket::Publish, QoS::AtLeastOnce, 999),
            timed(TimedPacket::Publish, QoS::AtLeastOnce, 1_000),
            timed(TimedPacket::Publish, QoS::AtMostOnce, 1_500),
            timed(TimedPacket::Answer, QoS::ExactlyOnce, 500),
        ];
        stats.handle_written(&written, 1_000, 2_000);
        let told = |histogram: &Histogram| {
            let mut snapshot = Snapshot::default();
            histogram.add_to(&mut snapshot);
            (snapshot.count(), snapshot.sum().0)
        };
        let deliveries = ALL.map(|qos| told(stats.deliveries(qos)));
        assert_eq!(deliveries, [(1, 500), (1, 1_000), (0, 0)]);
        let answers = ALL.map(|qos| stats.answers(qos).map(told));
        assert_eq!(answers, [None, Some((0, 0)), Some((1, 1_500))]);
    }
}
