//! How long messages take through the broker.
//!
//! A loop measures a sample of the messages that its clients publish (`traffic/sampler.rs`): a clock is read for those
//! only. What a message's way costs is measured where it ends on the same node; a message that comes from another node is
//! not measured, for its clock is another one.

use histogram::{Histogram, Micros};
use mqtt_proto::QoS;
use mqtt_session::{TakenUp, Timed, TimedPacket};

use crate::traffic::Delays;

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

    /// Packets were written at a time; the delays of those that deliver messages. One whose message was taken up before
    /// its receiver's connection was there has waited for the receiver, and is not counted.
    pub(crate) fn handle_written(&self, timed: &[Timed], connected_us: u64, now_us: u64) -> Delays {
        let mut delays = Delays::default();
        for Timed {
            packet,
            qos,
            taken_up: TakenUp(taken_up),
        } in timed
        {
            let took = Micros(now_us.saturating_sub(taken_up.get()));
            match packet {
                TimedPacket::Answer => {
                    if let Some(answers) = self.answers(*qos) {
                        answers.record(took);
                    }
                }
                TimedPacket::Publish if taken_up.get() >= connected_us => {
                    self.deliveries(*qos).record(took);
                    delays.add(took);
                }
                TimedPacket::Publish => {}
            }
        }
        delays
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use histogram::Snapshot;

    use super::*;
    use crate::traffic::Messages;

    const ALL: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

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
        let delays = stats.handle_written(&written, 1_000, 2_000);
        let expected = Delays {
            messages: Messages(2),
            sum: Micros(1_500),
            longest: Micros(1_000),
        };
        assert_eq!(delays, expected);
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
