//! How long messages take through this node, turns of its loops, and what the store does, as histograms.

use std::sync::Arc;

use broker_core::{BrokerStats, LatencyStats};
use histogram::{Histogram, Snapshot};
use mqtt_proto::QoS;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NativeHistogram, NativeHistogramBuckets,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::node::Node;

/// Of native histograms: four buckets for each doubling, as [`Snapshot`] has them.
const SCHEMA: i32 = 2;

const EVERY_QOS: [(QoS, &str); 3] = [
    (QoS::AtMostOnce, "0"),
    (QoS::AtLeastOnce, "1"),
    (QoS::ExactlyOnce, "2"),
];

type Loops = [Arc<BrokerStats>];

/// Which histogram of a loop counts a QoS.
type Pick = fn(&LatencyStats, QoS) -> Option<&Histogram>;

/// The histograms of all loops for one QoS.
fn of_qos(loops: &Loops, pick: Pick, qos: QoS) -> Snapshot {
    sum(loops.iter().filter_map(|stats| pick(&stats.latency, qos)))
}

fn sum<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Snapshot {
    let mut sum = Snapshot::default();
    histograms.for_each(|histogram| histogram.add_to(&mut sum));
    sum
}

fn of_every_qos(loops: &Loops, pick: Pick) -> Snapshot {
    let each = EVERY_QOS.map(|(qos, _)| of_qos(loops, pick, qos));
    each.iter()
        .fold(Snapshot::default(), |all, one| all.and(one))
}

/// From PUBLISH to its acknowledgement.
pub(crate) fn acknowledgements(loops: &Loops) -> Snapshot {
    of_every_qos(loops, LatencyStats::answers)
}

/// From PUBLISH to receivers on this node.
pub(crate) fn deliveries(loops: &Loops) -> Snapshot {
    of_every_qos(loops, |stats, qos| Some(stats.deliveries(qos)))
}

/// Times of messages and of turns.
pub(crate) fn encode_latency(encoder: &mut DescriptorEncoder<'_>, node: &Node) -> std::fmt::Result {
    let seconds = Some(&Unit::Seconds);
    let families: [(&str, &str, Pick); 2] = [
        (
            "publish_acknowledgement",
            "Time from taking up a PUBLISH of a client to writing its PUBACK or PUBREC, by its QoS; measured of all up to 512 a second and loop, of about as many if there are more",
            LatencyStats::answers,
        ),
        (
            "delivery",
            "Time from taking up a PUBLISH of a client to writing it to a subscriber of the same node that was connected by then, by the QoS it has for that one; measured of the same messages",
            |stats, qos| Some(stats.deliveries(qos)),
        ),
    ];
    for (name, help, pick) in families {
        let mut family = encoder.encode_descriptor(name, help, seconds, MetricType::Histogram)?;
        for (qos, label) in EVERY_QOS {
            if node
                .stats
                .iter()
                .any(|stats| pick(&stats.latency, qos).is_some())
            {
                let times = Times(of_qos(&node.stats, pick, qos));
                times.encode(family.encode_family(&[("qos", label)])?)?;
            }
        }
    }
    let (name, help) = ("loop_turn", "Time that turns of the event loops take");
    let metric = encoder.encode_descriptor(name, help, seconds, MetricType::Histogram)?;
    Times(sum(node.rim.net.iter().map(|stats| &stats.turn_time))).encode(metric)?;
    let store = node.opened_store();
    let of_store = [
        (
            "store_sync",
            "Time that calls of fdatasync(2) for the log take",
            store.map(|store| store.inspect().sync_times()),
        ),
        (
            "store_apply",
            "Time that it takes to apply a batch of committed requests to a shard, or a part of one; the shard does nothing else meanwhile",
            store.map(|store| store.inspect().apply_times()),
        ),
    ];
    for (name, help, times) in of_store {
        let metric = encoder.encode_descriptor(name, help, seconds, MetricType::Histogram)?;
        Times(times.unwrap_or_default()).encode(metric)?;
    }
    Ok(())
}

/// A histogram with classic and native buckets: a scrape in the text format has the classic ones, one for each doubling; one of
/// protocol buffers has both.
#[derive(Debug)]
struct Times(Snapshot);

impl EncodeMetric for Times {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let Self(times) = self;
        let classic: Vec<(f64, u64)> = times.doublings().collect();
        let (zero_threshold, zero_count) = times.shortest();
        let (first, counts) = times.quarters();
        let mut before = 0;
        let deltas = counts.iter().map(|count| {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            count - std::mem::replace(&mut before, count)
        });
        let deltas: Vec<i64> = deltas.collect();
        let spans = [(first, u32::try_from(deltas.len()).unwrap_or(u32::MAX))];
        let native = NativeHistogram {
            schema: SCHEMA,
            zero_threshold,
            zero_count,
            negative: NativeHistogramBuckets {
                spans: &[],
                deltas: &[],
            },
            positive: NativeHistogramBuckets {
                spans: &spans,
                deltas: &deltas,
            },
            created: None,
        };
        let sum = times.sum().as_secs_f64();
        encoder.encode_histogram_with_native::<[(&str, &str); 0]>(
            sum,
            times.count(),
            &classic,
            None,
            native,
        )
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
