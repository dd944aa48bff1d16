//! A ring of log lines that wait for the next push.

use std::collections::VecDeque;
use std::sync::Arc;

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use parking_lot::Mutex;
use prost::Message as _;

use crate::counts::{Counts, Signal};

/// Lines that wait at most.
pub const MAX_LINES: usize = 1_024;

/// Bytes of lines that wait at most, as OTLP encodes them.
pub const MAX_LINE_BYTES: usize = 262_144;

/// A log line, and the part of the program that wrote it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Line {
    pub(crate) target: &'static str,
    pub(crate) record: LogRecord,
}

/// Log lines in the order written. If one more has no room, the oldest ones are dropped and counted.
#[derive(Debug, Default)]
pub struct LogLines {
    ring: Mutex<Ring>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<(Line, usize)>,
    bytes: usize,
}

impl LogLines {
    /// An empty ring, and the counters of its exporter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The counters of what is pushed.
    #[must_use]
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    pub(crate) fn push(&self, line: Line) {
        let size = line.record.encoded_len();
        let mut dropped = 0;
        let mut ring = self.ring.lock();
        ring.bytes += size;
        ring.lines.push_back((line, size));
        while (ring.lines.len() > MAX_LINES || ring.bytes > MAX_LINE_BYTES)
            && let Some((_, size)) = ring.lines.pop_front()
        {
            ring.bytes -= size;
            dropped += 1;
        }
        drop(ring);
        if dropped > 0 {
            self.counts.handle_drop(Signal::Logs, dropped);
        }
    }

    /// Takes all lines.
    pub(crate) fn take(&self) -> Vec<Line> {
        let ring = std::mem::take(&mut *self.ring.lock());
        ring.lines.into_iter().map(|(line, _)| line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64, name: &str) -> Line {
        let record = LogRecord {
            time_unix_nano: number,
            event_name: name.to_owned(),
            ..LogRecord::default()
        };
        Line {
            target: "test",
            record,
        }
    }

    #[test]
    fn the_oldest_lines_make_room_and_are_counted() {
        let lines = LogLines::new();
        for number in 0..MAX_LINES as u64 + 3 {
            lines.push(line(number, ""));
        }
        let taken = lines.take();
        assert_eq!(taken.len(), MAX_LINES);
        assert_eq!(taken[0].record.time_unix_nano, 3);
        assert_eq!(lines.counts().dropped(Signal::Logs), 3);
        assert!(lines.take().is_empty());
    }

    #[test]
    fn bytes_are_limited_too() {
        let lines = LogLines::new();
        let long = "x".repeat(MAX_LINE_BYTES / 4);
        for number in 0..5 {
            lines.push(line(number, &long));
        }
        assert_eq!(lines.take().len(), 3);
        assert_eq!(lines.counts().dropped(Signal::Logs), 2);
    }
}
