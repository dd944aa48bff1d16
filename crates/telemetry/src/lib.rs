//! Metrics and log lines for a collector of OpenTelemetry, pushed by OTLP over HTTP with protocol buffers.
//!
//! Purpose: [`Exporter::run`] pushes what the registry counts and what the log says at WARN and ERROR.
//!
//! Invariants: at most one snapshot of the metrics, one batch of log lines and one ring of log lines
//! ([`MAX_LINES`], [`MAX_LINE_BYTES`]) are in memory; what has no room or is refused is counted. A push ends
//! at its deadline. Nobody waits for the exporter. A node without `telemetry.otlp.url` has no exporter, no ring and no layer.
//!
//! Deliberately absent: traces, gRPC, compression, threads, and which metrics there are.
//!
//! Where to read next: `exporter.rs` for the pushes, `naming.rs` for names and units.

mod counts;
mod exporter;
mod log_layer;
mod log_lines;
mod metrics;
mod naming;

pub use counts::{Counts, Failure, Signal};
pub use exporter::{About, Exporter, OpenError};
pub use log_layer::LogLayer;
pub use log_lines::{LogLines, MAX_LINE_BYTES, MAX_LINES};
pub use metrics::{Times, metrics_request};
pub use naming::{Instrument, OtlpMetric, otlp_metric};
