//! What is shown of a run without end: a line each second on a terminal, each ten seconds elsewhere, and a table at the
//! end.

use std::fmt;
use std::time::Duration;

use indicatif::ProgressBar;
use loadtest::endless::{Count, Counts, Run, Times};
use text_table::units;

use super::live;
use crate::failure::complain;

/// From one line to the next where lines cannot be rewritten.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Characters of the column with names.
const WIDTH: usize = 28;

const NOT_SENT_AWAY: &str = "not sent, no connection";
const NOT_SENT_FULL: &str = "not sent, no room";

/// Reasons of failures that a line has room for.
const SHOWN_REASONS: usize = 3;

/// The view of one run.
pub(super) struct View {
    /// Lines that change in place; `None`: a line now and then.
    bar: Option<ProgressBar>,
    last: Counts,
    /// When the next line is written.
    next_line: Duration,
}

impl View {
    pub(super) fn open(title: &str, redraws: bool) -> Self {
        let bar = redraws.then(|| live::lines(title, "connecting"));
        if bar.is_none() {
            complain(&format!("{title}: connecting"));
        }
        Self {
            bar,
            last: Counts::default(),
            next_line: LINE_EVERY,
        }
    }

    /// Shows the last `interval` of a run that goes on for `has_run`.
    pub(super) fn show(&mut self, run: &Run, has_run: Duration, interval: Duration) {
        let counts = run.counts();
        let facts = Facts {
            clients: run.clients(),
            counts,
            earlier: self.last,
            seconds: interval.as_secs_f64(),
            times: run.interval(),
            reasons: run.reasons(),
        };
        match &self.bar {
            Some(bar) => bar.set_message(facts.lines().join("\n  ")),
            None if has_run >= self.next_line => {
                self.next_line += LINE_EVERY;
                complain(&facts.lines().join("; "));
            }
            None => {}
        }
        self.last = counts;
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What an interval brought.
struct Facts<'a> {
    clients: usize,
    counts: Counts,
    /// At its beginning.
    earlier: Counts,
    seconds: f64,
    times: &'a Times,
    reasons: Vec<(String, u64)>,
}

impl Facts<'_> {
    /// By subject; only those that there is something to say about.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.connections()];
        lines.extend(self.messages());
        lines.extend(self.latency());
        lines.extend(self.failures());
        lines
    }

    fn rate(&self, count: Count) -> String {
        let since = self.counts[count].saturating_sub(self.earlier[count]);
        units::rate((since as f64 / self.seconds).round())
    }

    fn connections(&self) -> String {
        let counts = self.counts;
        let all = units::count(self.clients as u64);
        let mut text = format!("{} of {all} connected", units::count(counts[Count::Ready]));
        if counts[Count::Connects] > self.earlier[Count::Connects] {
            text += &format!(", {} connects/s", self.rate(Count::Connects));
        }
        if counts[Count::Disconnects] > 0 {
            text += &format!(
                ", {}",
                units::counted(counts[Count::Disconnects], "disconnect", "disconnects")
            );
        }
        text
    }

    fn messages(&self) -> Option<String> {
        let counts = self.counts;
        let mut parts = Vec::new();
        let rates = [
            (Count::Sent, "sent"),
            (Count::Acknowledged, "acknowledged"),
            (Count::Received, "received"),
        ];
        for (count, name) in rates {
            if counts[count] > 0 {
                parts.push(format!("{name} {}/s", self.rate(count)));
            }
        }
        let others = [
            (counts.not_sent(), "waiting"),
            (counts[Count::Refused], "refused"),
        ];
        for (count, name) in others.into_iter().filter(|&(count, _)| count > 0) {
            parts.push(format!("{name} {}", units::count(count)));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn latency(&self) -> Option<String> {
        let all = [
            &self.times.deliver,
            &self.times.acknowledge,
            &self.times.send,
        ];
        let times = all.into_iter().find(|times| !times.is_empty())?;
        let ms = |ns: u64| units::ms(ns as f64 / 1e6);
        let (p99, max) = (times.value_at_quantile(0.99), times.max());
        Some(format!("p99 {} ms, max {} ms", ms(p99), ms(max)))
    }

    fn failures(&self) -> Option<String> {
        let shown = self.reasons.iter().take(SHOWN_REASONS);
        let told: Vec<_> = shown
            .map(|(reason, count)| format!("{} × {reason}", units::count(*count)))
            .collect();
        (!told.is_empty()).then(|| format!("failures: {}", told.join(", ")))
    }
}

/// The table at the end.
pub(super) struct Summary<'a> {
    pub(super) title: &'a str,
    pub(super) run: &'a Run,
    pub(super) has_run: Duration,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.has_run.as_secs_f64();
        writeln!(f, "{}: {seconds:.1} s\n", self.title)?;
        let counts = self.run.counts();
        let mut rows = rows(counts, self.run.clients(), seconds);
        if self.run.is_acknowledged() {
            rows.extend(unacknowledged(counts));
        }
        rows.extend(latencies(self.run.times()));
        for (name, value) in rows {
            writeln!(f, "{name:<WIDTH$}{value}")?;
        }
        let reasons = self.run.reasons();
        if !reasons.is_empty() {
            writeln!(f, "\nfailures by reason")?;
        }
        for (reason, count) in reasons {
            writeln!(f, "{:<WIDTH$}{reason}", units::count(count))?;
        }
        Ok(())
    }
}

/// Name and value of each count that has one.
fn rows(counts: Counts, clients: usize, seconds: f64) -> Vec<(&'static str, String)> {
    let all = units::count(clients as u64);
    let ready = units::count(counts[Count::Ready]);
    let mut rows = vec![("connected at end", format!("{ready} of {all}"))];
    for (count, name) in [
        (Count::ConnectsDue, "connects due"),
        (Count::NeverConnected, "not connected"),
        (Count::Connects, "connects"),
        (Count::ConnectFailures, "connect failures"),
        (Count::Disconnects, "disconnects"),
    ] {
        rows.push((name, units::count(counts[count])));
    }
    let away_s = counts[Count::AwayMs] as f64 / 1e3;
    if counts[Count::Disconnects] > 0 {
        let text = format!("{away_s:.1} s, of all clients together");
        rows.push(("without connection", text));
    }
    if counts[Count::Due] > 0 {
        for (count, name) in [
            (Count::Due, "due"),
            (Count::NotSentAway, NOT_SENT_AWAY),
            (Count::NotSentFull, NOT_SENT_FULL),
        ] {
            rows.push((name, units::count(counts[count])));
        }
    }
    for (count, name) in [
        (Count::Sent, "sent"),
        (Count::Acknowledged, "acknowledged"),
        (Count::Refused, "refused"),
        (Count::Received, "received"),
    ] {
        let value = counts[count];
        if value > 0 {
            let rate = units::rate((value as f64 / seconds).round());
            rows.push((name, format!("{} ({rate}/s)", units::count(value))));
        }
    }
    rows
}

/// What was sent above QoS 0 and is not known to have arrived.
fn unacknowledged(counts: Counts) -> Vec<(&'static str, String)> {
    let mut rows = vec![("not acknowledged", units::count(counts.unacknowledged()))];
    let unsettled = counts[Count::Unsettled];
    if unsettled > 0 {
        let text = format!("{}, when connections broke", units::count(unsettled));
        rows.push(("unacknowledged", text));
    }
    rows
}

/// Distributions that are not empty.
fn latencies(times: &Times) -> Vec<(&'static str, String)> {
    let all = [
        ("connect", &times.connect),
        ("due → sent", &times.send),
        ("publish → ack", &times.acknowledge),
        ("publish → receive", &times.deliver),
    ];
    let told = all.into_iter().filter(|(_, times)| !times.is_empty());
    told.map(|(name, times)| {
        let ms = |ns: f64| units::ms(ns / 1e6);
        let at = |quantile| ms(times.value_at_quantile(quantile) as f64);
        let (mean, max) = (ms(times.mean()), ms(times.max() as f64));
        let (p50, p99) = (at(0.5), at(0.99));
        let text = format!("mean {mean} ms, p50 {p50} ms, p99 {p99} ms, max {max} ms");
        (name, text)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(set: &[(Count, u64)]) -> Counts {
        let mut counts = Counts::default();
        for &(count, value) in set {
            counts[count] = value;
        }
        counts
    }

    #[test]
    fn a_line_says_what_the_run_has() {
        let times = Times::default();
        let mut facts = Facts {
            clients: 2_000,
            counts: counts(&[(Count::Ready, 1_500), (Count::Connects, 1_501)]),
            earlier: counts(&[(Count::Connects, 1_301)]),
            seconds: 2.0,
            times: &times,
            reasons: Vec::new(),
        };
        assert_eq!(facts.lines(), ["1,500 of 2,000 connected, 100 connects/s"]);
        facts.earlier[Count::Connects] = 1_501;
        facts.counts[Count::Disconnects] = 1;
        facts.counts[Count::Sent] = 30_000;
        facts.counts[Count::NotSentAway] = 4;
        facts.counts[Count::NotSentFull] = 3;
        let mut times = Times::default();
        times.acknowledge.record(2_000_000).unwrap();
        facts.times = &times;
        facts.reasons = vec![("closed".to_owned(), 3)];
        let expected = [
            "1,500 of 2,000 connected, 1 disconnect",
            "sent 15,000/s, waiting 7",
            "p99 2.00 ms, max 2.00 ms",
            "failures: 3 × closed",
        ];
        assert_eq!(facts.lines(), expected);
    }

    #[test]
    fn the_table_has_all_that_was_due_and_the_time_away() {
        let counts = counts(&[
            (Count::Disconnects, 1),
            (Count::AwayMs, 2_500),
            (Count::Due, 100),
            (Count::Sent, 90),
            (Count::NotSentAway, 9),
            (Count::NotSentFull, 1),
            (Count::Acknowledged, 80),
            (Count::Refused, 1),
            (Count::Unsettled, 7),
        ]);
        let mut rows = rows(counts, 5, 10.0);
        rows.extend(unacknowledged(counts));
        let text: Vec<_> = rows.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        let expected = [
            "without connection: 2.5 s, of all clients together",
            "due: 100",
            "not sent, no connection: 9",
            "not sent, no room: 1",
            "sent: 90 (9/s)",
            "acknowledged: 80 (8/s)",
            "refused: 1 (0/s)",
            "not acknowledged: 9",
            "unacknowledged: 7, when connections broke",
        ];
        assert_eq!(text[6..], expected);
    }

    #[test]
    fn the_table_has_the_counts_of_what_was_done() {
        let counts = counts(&[
            (Count::Ready, 5),
            (Count::Connects, 5),
            (Count::Received, 1_000),
        ]);
        let rows = rows(counts, 5, 10.0);
        let text: Vec<_> = rows.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        let expected = [
            "connected at end: 5 of 5",
            "connects due: 0",
            "not connected: 0",
            "connects: 5",
            "connect failures: 0",
            "disconnects: 0",
            "received: 1,000 (100/s)",
        ];
        assert_eq!(text, expected);
    }
}
