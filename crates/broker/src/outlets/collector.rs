//! What Prometheus is told of outlets.

use std::sync::Arc;

use outlets::{Count, Doing, Report};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::known::Outlets;
use super::standing::Place;

/// The outlets that are to be at this node; `None`: there are none.
#[derive(Debug)]
pub(crate) struct OutletCollector(pub(crate) Option<Arc<Outlets>>);

/// A count of an outlet.
type CountOf = fn(&Report) -> Count;

impl Collector for OutletCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let outlets = self.0.as_deref().map(Outlets::list).unwrap_or_default();
        let here: Vec<_> = outlets
            .iter()
            .filter(|(_, standing)| standing.place == Place::Here)
            .collect();
        let counts: [(&str, &str, CountOf); 6] = [
            (
                "outlet_delivered",
                "Messages that the target of an outlet has taken",
                |report| report.delivered,
            ),
            (
                "outlet_left_out",
                "Messages of an outlet that its target had already",
                |report| report.left_out,
            ),
            (
                "outlet_retries",
                "Attempts of an outlet that failed",
                |report| report.retries,
            ),
            (
                "outlet_dead",
                "Messages of an outlet that became dead letters",
                |report| report.dead,
            ),
            (
                "outlet_filtered",
                "Messages that the rules of an outlet did not let go on",
                |report| report.filtered,
            ),
            (
                "outlet_batches",
                "Batches that were given to the target of an outlet",
                |report| report.batches,
            ),
        ];
        for (name, help, count) in counts {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (outlet, standing) in &here {
                let labels = [("outlet", outlet.as_str())];
                let count = ConstCounter::new(count(&standing.total()).0);
                count.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Messages of an outlet that were dropped: refused by its target or its rules without a topic for dead letters, dead letters that nobody subscribes to, or in a circle of brokers";
        let mut family =
            encoder.encode_descriptor("outlet_dropped", help, None, MetricType::Counter)?;
        for (outlet, standing) in &here {
            let total = standing.total();
            for (reason, count) in [
                ("refused", total.refused),
                ("dead_letter_unclaimed", total.unclaimed),
                ("bridge_loop", total.looped),
            ] {
                let labels = [("outlet", outlet.as_str()), ("reason", reason)];
                ConstCounter::new(count.0).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Processes of an outlet that were started at this node";
        let mut family =
            encoder.encode_descriptor("outlet_starts", help, None, MetricType::Counter)?;
        for (outlet, standing) in &here {
            let labels = [("outlet", outlet.as_str())];
            ConstCounter::new(standing.starts as u64).encode(family.encode_family(&labels)?)?;
        }
        let help = "Messages in the memory of the process of an outlet";
        let mut family =
            encoder.encode_descriptor("outlet_waiting", help, None, MetricType::Gauge)?;
        for (outlet, standing) in &here {
            let labels = [("outlet", outlet.as_str())];
            let waiting = ConstGauge::new(standing.report.waiting_messages.0);
            waiting.encode(family.encode_family(&labels)?)?;
        }
        let help = "1 for what an outlet does, 0 for what it does not";
        let mut family =
            encoder.encode_descriptor("outlet_state", help, None, MetricType::Gauge)?;
        for (outlet, standing) in &here {
            for doing in Doing::ALL {
                let labels = [("outlet", outlet.as_str()), ("state", doing.name())];
                let is_it = ConstGauge::new(u64::from(standing.report.doing == doing));
                is_it.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
