//! The exporter of a node for OpenTelemetry, and what it counts.
//!
//! Deliberately absent: requests, names and units (`telemetry`).

use std::sync::Arc;
use std::time::SystemTime;

use config::TelemetryConfig;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_protobuf::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use telemetry::{About, Counts, Exporter, Failure, LogLines, Signal};

use crate::inspect::Inspect;
use crate::reread::{self, Reread};
use crate::start_error::StartError;

/// The exporter, if the configuration names a collector.
///
/// # Errors
/// A file that cannot be used, a URL that is none.
pub(crate) fn open(
    config: &TelemetryConfig,
    node: u64,
    lines: Option<Arc<LogLines>>,
) -> Result<Option<Arc<Exporter>>, StartError> {
    if !config.otlp.is_enabled() {
        return Ok(None);
    }
    let host = rustix::system::uname();
    let about = About {
        version: env!("CARGO_PKG_VERSION"),
        node: node.to_string(),
        host: host.nodename().to_string_lossy().into_owned(),
        started: SystemTime::now(),
    };
    let exporter = Exporter::open(config, lines, about).map_err(StartError::Telemetry)?;
    Ok(exporter.map(Arc::new))
}

/// Pushes as long as it is polled; without an exporter it does nothing.
pub(crate) async fn run(exporter: Option<Arc<Exporter>>, inspect: &Inspect) {
    match exporter {
        Some(exporter) => {
            let snapshot = || encode(&inspect.registry).unwrap_or_default();
            exporter.run(snapshot).await;
        }
        None => std::future::pending().await,
    }
}

/// Reads the files of the exporter again.
pub(crate) fn reload(exporter: &Exporter, config: &TelemetryConfig, reread: &mut Reread) {
    // Where pushes go to stays as it was; without a URL they do until the next start.
    if !config.otlp.is_enabled() {
        return;
    }
    let done = exporter.reload(config);
    reread.tell("OpenTelemetry", reread::telemetry(config), done.is_ok());
    if let Err(error) = done {
        tracing::error!(%error, "the exporter for OpenTelemetry stays as it was");
    }
}

/// What became of the pushes of a node; zeros without an exporter.
#[derive(Debug)]
pub(crate) struct PushCollector(pub(crate) Option<Arc<Counts>>);

/// A count of what became of a signal.
type CountOf = fn(&Counts, Signal) -> u64;

impl Collector for PushCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let counts = self.0.as_deref();
        let by_signal: [(&str, &str, CountOf); 2] = [
            (
                "telemetry_pushes",
                "Pushes that the collector of OpenTelemetry has taken, also in part",
                Counts::pushes,
            ),
            (
                "telemetry_dropped",
                "Data points and log lines that did not reach the collector of OpenTelemetry and are not sent again",
                Counts::dropped,
            ),
        ];
        for (name, help, pick) in by_signal {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for signal in Signal::ALL {
                let value = counts.map_or(0, |counts| pick(counts, signal));
                let labels = [("signal", signal.name())];
                ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Pushes to the collector of OpenTelemetry that failed";
        let mut family =
            encoder.encode_descriptor("telemetry_failures", help, None, MetricType::Counter)?;
        for failure in Failure::ALL {
            let value = counts.map_or(0, |counts| counts.failures(failure));
            let labels = [("reason", failure.name())];
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
