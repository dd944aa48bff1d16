//! What the process takes of the machine, by the names that clients of Prometheus have in common: dashboards and alerts that are
//! made for any process find them.

use std::sync::Arc;

use host::Process;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};

use crate::node::Node;

/// A gauge: name, help, unit, and its value if the process may know it.
type Described = (&'static str, &'static str, Option<Unit>, Option<f64>);

/// The process of a node.
#[derive(Debug)]
pub(crate) struct ProcessCollector(pub(crate) Arc<Node>);

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let usage = Process::own().usage().unwrap_or_default();
        let clock = &self.0.rim.clock;
        let started_ms = clock.now_ms().saturating_sub(clock.uptime_ms());
        let help = "CPU time in user and kernel mode";
        let unit = Some(&Unit::Seconds);
        let family = encoder.encode_descriptor("cpu", help, unit, MetricType::Counter)?;
        let cpu = usage.cpu_user + usage.cpu_system;
        ConstCounter::new(cpu.as_secs_f64()).encode(family)?;
        let gauges: [Described; 6] = [
            (
                "resident_memory",
                "Resident memory",
                Some(Unit::Bytes),
                Some(usage.resident_bytes as f64),
            ),
            (
                "virtual_memory",
                "Virtual memory",
                Some(Unit::Bytes),
                virtual_bytes(),
            ),
            (
                "open_fds",
                "Open files and sockets",
                None,
                usage.descriptors.map(f64::from),
            ),
            (
                "max_fds",
                "Files and sockets that may be open",
                None,
                getrlimit(Resource::Nofile).current.map(|most| most as f64),
            ),
            (
                "start_time",
                "When the process started, since the Unix epoch",
                Some(Unit::Seconds),
                Some(started_ms as f64 / 1_000.0),
            ),
            ("threads", "Threads", None, Some(usage.threads.into())),
        ];
        for (name, help, unit, value) in gauges {
            let unit = unit.as_ref();
            let family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            if let Some(value) = value {
                ConstGauge::new(value).encode(family)?;
            }
        }
        Ok(())
    }
}

/// What the process has mapped. `None`: `/proc` is not there.
fn virtual_bytes() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64)
}
