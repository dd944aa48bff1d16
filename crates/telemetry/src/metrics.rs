//! Families of metrics of the registry as a request of OTLP.
//!
//! Counters and histograms are cumulative since the start of the process, which each of their points says. All numbers are floating
//! point, as the registry has them. Of histograms, the buckets with explicit bounds are sent.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as registry;

use crate::naming::{Instrument, Kind, named};

/// When a snapshot was made, and since when it counts, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The start of the process.
    pub start: Nanos,
    /// Now.
    pub now: Nanos,
}

type Nanos = u64;

/// The request, and how many data points it has. Families of kinds that the broker does not have are left out.
#[must_use]
pub fn metrics_request(
    families: Vec<registry::MetricFamily>,
    resource: Resource,
    scope: InstrumentationScope,
    times: Times,
) -> (ExportMetricsServiceRequest, usize) {
    let mut points = 0;
    let metrics = families.into_iter().filter_map(|family| {
        let (metric, count) = metric(family, times)?;
        points += count;
        Some(metric)
    });
    let metrics = metrics.collect();
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    (request, points)
}

/// An attribute with a text.
pub(crate) fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

fn metric(family: registry::MetricFamily, times: Times) -> Option<(Metric, usize)> {
    let kind = match family.r#type() {
        registry::MetricType::Counter => Kind::Counter,
        registry::MetricType::Gauge => Kind::Gauge,
        registry::MetricType::Histogram => Kind::Histogram,
        registry::MetricType::Summary
        | registry::MetricType::Untyped
        | registry::MetricType::GaugeHistogram => return None,
    };
    if family.metric.is_empty() {
        return None;
    }
    let named = named(&family.name, kind);
    let count = family.metric.len();
    let samples = family.metric.iter();
    let data = match named.instrument {
        Instrument::Counter | Instrument::UpDownCounter => Data::Sum(Sum {
            data_points: samples
                .map(|sample| number(sample, times, times.start))
                .collect(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: named.instrument == Instrument::Counter,
        }),
        Instrument::Gauge => Data::Gauge(Gauge {
            data_points: samples.map(|sample| number(sample, times, 0)).collect(),
        }),
        Instrument::Histogram => Data::Histogram(Histogram {
            data_points: samples
                .filter_map(|sample| histogram(sample, times))
                .collect(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
        }),
    };
    let metric = Metric {
        name: named.name,
        description: family.help,
        unit: named.unit,
        data: Some(data),
        ..Metric::default()
    };
    Some((metric, count))
}

fn attributes(sample: &registry::Metric) -> Vec<KeyValue> {
    let labels = sample.label.iter();
    labels
        .map(|label| attribute(&label.name, &label.value))
        .collect()
}

fn number(sample: &registry::Metric, times: Times, start: Nanos) -> NumberDataPoint {
    let counter = sample.counter.as_ref().map(|counter| counter.value);
    let gauge = || sample.gauge.as_ref().map(|gauge| gauge.value);
    NumberDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: start,
        time_unix_nano: times.now,
        value: counter
            .or_else(gauge)
            .map(number_data_point::Value::AsDouble),
        ..NumberDataPoint::default()
    }
}

fn histogram(sample: &registry::Metric, times: Times) -> Option<HistogramDataPoint> {
    let histogram = sample.histogram.as_ref()?;
    let mut bounds = Vec::with_capacity(histogram.bucket.len());
    let mut counts = Vec::with_capacity(histogram.bucket.len() + 1);
    let mut below = 0;
    for bucket in histogram
        .bucket
        .iter()
        .filter(|bucket| bucket.upper_bound.is_finite())
    {
        bounds.push(bucket.upper_bound);
        counts.push(bucket.cumulative_count.saturating_sub(below));
        below = bucket.cumulative_count;
    }
    counts.push(histogram.sample_count.saturating_sub(below));
    Some(HistogramDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: histogram.sample_count,
        sum: Some(histogram.sample_sum),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    })
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_protobuf::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    const TIMES: Times = Times { start: 5, now: 9 };

    fn metrics(registry: &Registry) -> (Vec<Metric>, usize) {
        let families = encode(registry).unwrap();
        let (request, points) = metrics_request(
            families,
            Resource::default(),
            InstrumentationScope::default(),
            TIMES,
        );
        (
            request.resource_metrics[0].scope_metrics[0].metrics.clone(),
            points,
        )
    }

    #[test]
    fn counters_are_cumulative_sums_with_labels() {
        let mut registry = Registry::with_prefix("heraldmq");
        let family = Family::<Vec<(String, String)>, Counter>::default();
        family
            .get_or_create(&vec![("qos".to_owned(), "1".to_owned())])
            .inc_by(7);
        family
            .get_or_create(&vec![("qos".to_owned(), "2".to_owned())])
            .inc_by(8);
        registry.register("publishes_received", "Publishes", family);
        let (metrics, points) = metrics(&registry);
        assert_eq!(points, 2);
        assert_eq!(metrics[0].name, "heraldmq.publishes_received");
        assert_eq!(metrics[0].unit, "{message}");
        let Some(Data::Sum(sum)) = &metrics[0].data else {
            panic!("{metrics:?}")
        };
        assert!(sum.is_monotonic);
        assert_eq!(sum.aggregation_temporality, 2);
        let mut found: Vec<_> = sum.data_points.iter().collect();
        found.sort_by(|a, b| format!("{:?}", a.attributes).cmp(&format!("{:?}", b.attributes)));
        assert_eq!(found[0].attributes, [attribute("qos", "1")]);
        assert_eq!(
            found[0].value,
            Some(number_data_point::Value::AsDouble(7.0))
        );
        assert_eq!(
            (found[0].start_time_unix_nano, found[0].time_unix_nano),
            (5, 9)
        );
    }

    #[test]
    fn gauges_have_no_start_and_memory_is_a_sum_that_shrinks() {
        let mut registry = Registry::default();
        let gauge: Gauge = Gauge::default();
        gauge.set(3);
        registry.register("heraldmq_connections_open", "Open", gauge.clone());
        registry.register_with_unit("process_resident_memory", "Memory", Unit::Bytes, gauge);
        let (metrics, _) = metrics(&registry);
        let Some(Data::Gauge(open)) = &metrics[0].data else {
            panic!("{metrics:?}")
        };
        assert_eq!(open.data_points[0].start_time_unix_nano, 0);
        assert_eq!(metrics[1].name, "process.memory.usage");
        let Some(Data::Sum(memory)) = &metrics[1].data else {
            panic!("{metrics:?}")
        };
        assert!(!memory.is_monotonic);
    }

    #[test]
    fn buckets_are_not_cumulative() {
        let mut registry = Registry::with_prefix("heraldmq");
        let histogram = Histogram::new([0.5, 1.0]);
        for value in [0.1, 0.2, 0.7, 5.0] {
            histogram.observe(value);
        }
        registry.register_with_unit("delivery", "Delivery", Unit::Seconds, histogram);
        let (metrics, points) = metrics(&registry);
        assert_eq!(points, 1);
        assert_eq!(
            (&*metrics[0].name, &*metrics[0].unit),
            ("heraldmq.delivery", "s")
        );
        let Some(Data::Histogram(found)) = &metrics[0].data else {
            panic!("{metrics:?}")
        };
        let point = &found.data_points[0];
        assert_eq!(point.explicit_bounds, [0.5, 1.0]);
        assert_eq!(point.bucket_counts, [2, 1, 1]);
        assert_eq!(point.count, 4);
        assert_eq!(point.sum, Some(6.0));
    }
}
