//! What is known of an outlet at this node.

use std::sync::Arc;
use std::time::Instant;

use admin::cluster::NodeId;
use outlets::{Count, Doing, Report, Transfer};

/// Bytes of an error that are kept.
const LONGEST_ERROR: usize = 1_000;

/// Where an outlet is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Place {
    /// It is not known: the inbox shard has no leader.
    #[default]
    Nowhere,
    /// At this node.
    Here,
    /// At another node.
    At(NodeId),
}

/// The number of a process in the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessId(pub(crate) u32);

/// What is known of an outlet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Of the configuration.
    pub(crate) transfer: Option<Arc<Transfer>>,
    pub(crate) place: Place,
    pub(crate) is_paused: bool,
    /// Its process, while there is one.
    pub(crate) process: Option<ProcessId>,
    /// Processes that were started here since the node started.
    pub(crate) starts: usize,
    /// Why the last process ended, or could not be started; `None`: none has.
    pub(crate) last_end: Option<String>,
    /// Since when attempts fail.
    pub(crate) failing_since: Option<Instant>,
    /// The last report; without a process, that of the last one.
    pub(crate) report: Report,
    /// Counts of the processes before.
    before: Report,
}

impl Standing {
    /// `outlet` or `inlet`.
    pub(super) fn kind(&self) -> &'static str {
        self.transfer.as_deref().map_or("outlet", Transfer::kind)
    }

    /// A process has begun.
    pub(crate) fn handle_begin(&mut self, process: ProcessId) {
        self.before = self.total();
        self.report = Report {
            last_error: self.report.last_error.take(),
            ..Report::default()
        };
        self.starts += 1;
        self.process = Some(process);
    }

    /// The process says what it does.
    pub(crate) fn handle_report(&mut self, mut report: Report, now: Instant) {
        report.last_error = report.last_error.as_deref().map(shortened);
        if fails(&report) {
            self.failing_since.get_or_insert(now);
        } else {
            self.failing_since = None;
        }
        self.report = report;
    }

    /// The process has ended, or could not be started. `why`: `None` if the node wanted it.
    pub(crate) fn handle_end(&mut self, why: Option<String>, now: Instant) {
        self.process = None;
        self.report.doing = Doing::Starting;
        if why.is_some() {
            self.failing_since.get_or_insert(now);
            self.last_end = why;
        }
    }

    /// Counts since the node started.
    pub(crate) fn total(&self) -> Report {
        let (before, report) = (&self.before, &self.report);
        Report {
            delivered: before.delivered + report.delivered,
            left_out: before.left_out + report.left_out,
            retries: before.retries + report.retries,
            dead: before.dead + report.dead,
            unclaimed: before.unclaimed + report.unclaimed,
            refused: before.refused + report.refused,
            filtered: before.filtered + report.filtered,
            looped: before.looped + report.looped,
            delivering: before.delivering + report.delivering,
            batches: before.batches + report.batches,
            position: report.position.clone().or(before.position.clone()),
            delivered_at: report.delivered_at.or(before.delivered_at),
            ..report.clone()
        }
    }
}

/// The beginning of what another system, or a message of it, has made an error say: the errors of all outlets go into one answer.
fn shortened(error: &str) -> String {
    let end = error.floor_char_boundary(LONGEST_ERROR);
    match error.get(..end) {
        Some(shown) if end < error.len() => format!("{shown}… ({} bytes)", error.len()),
        _ => error.to_owned(),
    }
}

/// Whether something is tried again. A message that the target has refused is none: the others go on, and the error stays to be seen.
fn fails(report: &Report) -> bool {
    match report.doing {
        Doing::Retrying => true,
        Doing::Starting | Doing::Opening => report.last_error.is_some(),
        Doing::Running => report.attempt > Count(1),
        Doing::Paused | Doing::Fenced => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_over_processes() {
        let now = Instant::now();
        let mut standing = Standing::default();
        let delivered = |delivered| Report {
            delivered: Count(delivered),
            ..Report::default()
        };
        for (process, total) in [(1, 10), (2, 20), (3, 30)] {
            standing.handle_begin(ProcessId(process));
            standing.handle_report(delivered(4), now);
            standing.handle_report(delivered(10), now);
            assert_eq!(standing.total().delivered, Count(total));
            standing.handle_end(None, now);
            assert_eq!(standing.total().delivered, Count(total));
        }
        assert_eq!((standing.starts, standing.process), (3, None));
    }

    #[test]
    fn an_error_is_kept_in_part() {
        let mut standing = Standing::default();
        for (error, kept) in [
            ("x".repeat(1_000), "x".repeat(1_000)),
            (
                format!("{}é{}", "x".repeat(999), "y".repeat(65_000)),
                format!("{}… (66001 bytes)", "x".repeat(999)),
            ),
        ] {
            let report = Report {
                last_error: Some(error),
                ..Report::default()
            };
            standing.handle_report(report, Instant::now());
            assert_eq!(standing.report.last_error, Some(kept));
        }
    }

    #[test]
    fn an_outlet_fails_while_something_is_tried_again() {
        let start = Instant::now();
        let later = start + std::time::Duration::from_secs(5);
        let mut standing = Standing::default();
        standing.handle_end(Some("killed".to_owned()), start);
        standing.handle_begin(ProcessId(1));
        let report = |doing, attempt, error: Option<&str>| Report {
            doing,
            attempt: Count(attempt),
            last_error: error.map(str::to_owned),
            ..Report::default()
        };
        for failing in [
            report(Doing::Opening, 0, Some("refused")),
            report(Doing::Retrying, 1, Some("late")),
            // The next attempt hangs.
            report(Doing::Running, 2, Some("late")),
        ] {
            standing.handle_report(failing, later);
            assert_eq!(standing.failing_since, Some(start));
        }
        // A refused message among others.
        standing.handle_report(report(Doing::Running, 0, Some("400")), later);
        assert_eq!(standing.failing_since, None);
    }
}
