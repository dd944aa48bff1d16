//! The layer of `tracing` that keeps log lines at WARN and ERROR for the next push.
//!
//! Lines of this crate are left out: a line about a push that failed would be pushed, and fail again.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::log_lines::{Line, LogLines};

/// Bytes of a text in a line; the rest is cut off.
const MAX_TEXT: usize = 4_096;

/// Fields of a line; further ones are counted in the line.
const MAX_FIELDS: usize = 32;

/// Keeps each line at WARN and ERROR in a ring.
#[derive(Debug)]
pub struct LogLayer(Arc<LogLines>);

impl LogLayer {
    /// A layer that fills `lines`.
    #[must_use]
    pub fn new(lines: Arc<LogLines>) -> Self {
        Self(lines)
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let severity = match *metadata.level() {
            Level::ERROR => SeverityNumber::Error,
            Level::WARN => SeverityNumber::Warn,
            _ => return,
        };
        let own = env!("CARGO_CRATE_NAME");
        if metadata.target().split("::").next() == Some(own) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        });
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.push(Line {
            target: metadata.target(),
            record: LogRecord {
                time_unix_nano: now,
                observed_time_unix_nano: now,
                severity_number: severity.into(),
                severity_text: metadata.level().as_str().to_owned(),
                body: fields.body.map(|text| value(Value::StringValue(text))),
                attributes: fields.attributes,
                dropped_attributes_count: fields.dropped,
                ..LogRecord::default()
            },
        });
    }
}

fn value(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

#[derive(Default)]
struct Fields {
    body: Option<String>,
    attributes: Vec<KeyValue>,
    dropped: Dropped,
}

type Dropped = u32;

impl Fields {
    fn add(&mut self, field: &Field, found: Value) {
        if self.attributes.len() == MAX_FIELDS {
            self.dropped += 1;
            return;
        }
        self.attributes.push(KeyValue {
            key: field.name().to_owned(),
            value: Some(value(found)),
            ..KeyValue::default()
        });
    }

    fn add_text(&mut self, field: &Field, mut text: String) {
        if text.len() > MAX_TEXT {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
        }
        match field.name() {
            "message" => self.body = Some(text),
            _ => self.add(field, Value::StringValue(text)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, found: f64) {
        self.add(field, Value::DoubleValue(found));
    }
    fn record_i64(&mut self, field: &Field, found: i64) {
        self.add(field, Value::IntValue(found));
    }
    fn record_u64(&mut self, field: &Field, found: u64) {
        match i64::try_from(found) {
            Ok(found) => self.add(field, Value::IntValue(found)),
            // OTLP has no larger numbers.
            Err(_) => self.add(field, Value::StringValue(found.to_string())),
        }
    }
    fn record_bool(&mut self, field: &Field, found: bool) {
        self.add(field, Value::BoolValue(found));
    }
    fn record_str(&mut self, field: &Field, found: &str) {
        self.add_text(field, found.to_owned());
    }
    fn record_debug(&mut self, field: &Field, found: &dyn fmt::Debug) {
        self.add_text(field, format!("{found:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn written(write: impl FnOnce()) -> Vec<Line> {
        let lines = Arc::new(LogLines::new());
        let layer = LogLayer::new(Arc::clone(&lines));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), write);
        lines.take()
    }

    #[test]
    fn warnings_and_errors_are_kept_with_their_fields() {
        let lines = written(|| {
            tracing::info!("not this one");
            tracing::warn!(target: "broker", count = 3_u64, huge = u64::MAX, yes = true, word = "w", "text {}", 1);
            tracing::error!(target: "broker", share = 0.5, "bad");
        });
        let [warning, error] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert_eq!(warning.target, "broker");
        let record = &warning.record;
        assert_eq!(record.severity_number, 13);
        assert_eq!(record.severity_text, "WARN");
        assert_eq!(
            record.body,
            Some(value(Value::StringValue("text 1".to_owned())))
        );
        assert!(record.time_unix_nano > 1_700_000_000_000_000_000);
        let fields: Vec<_> = record
            .attributes
            .iter()
            .map(|field| (&*field.key, field.value.clone()))
            .collect();
        assert_eq!(
            fields,
            [
                ("count", Some(value(Value::IntValue(3)))),
                (
                    "huge",
                    Some(value(Value::StringValue(u64::MAX.to_string())))
                ),
                ("yes", Some(value(Value::BoolValue(true)))),
                ("word", Some(value(Value::StringValue("w".to_owned())))),
            ]
        );
        assert_eq!(error.record.severity_number, 17);
    }

    #[test]
    fn lines_of_the_exporter_are_left_out() {
        let lines = written(|| {
            tracing::warn!("by this module");
            tracing::warn!(target: "herald_telemetry", "by the root");
            tracing::warn!(target: "herald_telemetry_not", "by another crate");
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ä".repeat(MAX_TEXT);
        let lines = written(|| tracing::warn!(target: "broker", text, "long"));
        let Some(Value::StringValue(kept)) =
            lines[0].record.attributes[0].value.clone().unwrap().value
        else {
            panic!("{lines:?}")
        };
        assert_eq!(kept.len(), MAX_TEXT);
    }
}
