//! Who looks on while a run goes on: the view for people, the figures for Prometheus, and whether
//! somebody wants an end.
//!
//! Call order: [`Observing::open`] before the first run; for each run [`Observers::begin`], and its
//! [`Onlookers`] are dropped when the run has ended.
//!
//! Deliberately absent: what either of them shows.
//!
//! Where to read next: `live.rs`, `exposition.rs`.

use std::net::SocketAddr;
use std::time::Duration;

use loadtest::{News, Observer};
use report::Phase;

use super::exposition::{Book, Exposition};
use super::interrupt::Interrupt;
use super::live::{Live, View};
use crate::failure::{Failure, complain};

/// What is shown while runs go on.
#[derive(clap::Args, Clone)]
pub(super) struct Observing {
    /// Show no progress on standard error.
    #[arg(long)]
    quiet: bool,
    /// Serve the figures so far at /metrics, for Prometheus, until the command ends.
    #[arg(long, value_name = "ADDRESS:PORT")]
    serve_metrics: Option<SocketAddr>,
}

/// A run that is about to begin.
pub(super) struct Announcement {
    pub(super) scenario: String,
    /// Whose run it is.
    pub(super) label: String,
    /// How long the measurement is to take.
    pub(super) measured: Duration,
    /// In the order of `Sample::system`.
    pub(super) systems: Vec<String>,
}

/// Ready for one run after another.
pub(super) struct Observers {
    interrupt: Interrupt,
    live: Option<Live>,
    exposition: Option<Exposition>,
}

/// Those who look at one run.
pub(super) struct Onlookers<'a> {
    interrupt: &'a Interrupt,
    view: Option<View>,
    book: Option<Book<'a>>,
}

impl Observing {
    /// Fails if the metrics cannot be served at the address.
    pub(super) fn open(&self) -> Result<Observers, Failure> {
        let exposition = self.serve_metrics.map(Exposition::open).transpose()?;
        let live = (!self.quiet).then(Live::open);
        if let (Some(exposition), Some(_)) = (&exposition, &live) {
            complain(&format!("metrics on {}", exposition.url()));
        }
        Ok(Observers {
            interrupt: Interrupt::watch()?,
            live,
            exposition,
        })
    }
}

impl Observers {
    pub(super) fn begin(&self, run: &Announcement) -> Onlookers<'_> {
        Onlookers {
            interrupt: &self.interrupt,
            view: self.live.as_ref().map(|live| live.begin(run)),
            book: self.exposition.as_ref().map(|served| served.begin(run)),
        }
    }

    /// Whether somebody wants an end.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }
}

impl Observer for Onlookers<'_> {
    fn observe(&mut self, news: &News<'_>) -> bool {
        if let Some(view) = &mut self.view {
            view.show(news);
        }
        if let Some(book) = &mut self.book {
            book.enter(news);
        }
        !self.interrupt.is_set()
    }
}

/// What goes on now, while the sample of the news is of what went on before it.
pub(super) fn current_phase(remaining: Option<Duration>, measured: Duration) -> Phase {
    match remaining {
        None => Phase::Connect,
        Some(Duration::ZERO) => Phase::Drain,
        Some(remaining) if remaining <= measured => Phase::Measure,
        Some(_) => Phase::WarmUp,
    }
}

/// Messages that should have been delivered by now and were not: under way, or lost.
pub(super) fn missing(news: &News<'_>) -> u64 {
    let progress = news.progress;
    progress.expected.saturating_sub(progress.distinct)
}

/// News for the tests of those who show them.
#[cfg(test)]
pub(super) mod fixture {
    use loadtest::{ByteCounts, Progress, Totals};
    use report::{Sample, Usage};

    use super::*;

    /// A second of a measurement, and what led to it.
    pub(crate) struct Second {
        pub(crate) sample: Sample,
        pub(crate) progress: Progress,
        pub(crate) remaining: Option<Duration>,
    }

    impl Second {
        /// Of 2,000 clients, with two systems of which one cannot be read.
        pub(crate) fn measured() -> Self {
            let usage = Usage {
                cpu_user_s: 0.5,
                cpu_system_s: 0.25,
                resident_bytes: 12_000_000,
                threads: Some(4),
                descriptors: None,
                ..Usage::default()
            };
            let sample = Sample {
                at_s: 5.0,
                seconds: 0.5,
                phase: Phase::Measure,
                connections: 1_999,
                sent: 5_000,
                acknowledged: 0,
                delivered: 4_990,
                bytes_out: 100,
                bytes_in: 90,
                mean_ms: Some(0.5),
                p99_ms: Some(1.25),
                max_ms: Some(250.0),
                system: vec![Some(usage), None],
                shards: None,
                tool_cpu_s: 0.125,
                machine_load: None,
            };
            let progress = Progress {
                ready: 1_999,
                totals: Totals {
                    sent: 40_000,
                    acknowledged: 0,
                    delivered: 39_991,
                },
                expected: 40_000,
                distinct: 39_988,
                disconnects: 1,
                bytes: ByteCounts {
                    out: 800,
                    received: 700,
                },
                ..Progress::default()
            };
            Self {
                sample,
                progress,
                remaining: Some(Duration::from_millis(62_500)),
            }
        }

        /// A second before all clients are connected.
        pub(crate) fn connecting() -> Self {
            let mut second = Self::measured();
            second.sample = Sample {
                at_s: 1.0,
                phase: Phase::Connect,
                connections: 500,
                mean_ms: None,
                p99_ms: None,
                max_ms: None,
                system: Vec::new(),
                ..second.sample
            };
            second.progress = Progress::default();
            second.remaining = None;
            second
        }

        pub(crate) fn news(&self) -> News<'_> {
            News {
                sample: &self.sample,
                progress: &self.progress,
                connections: 2_000,
                remaining: self.remaining,
            }
        }
    }

    pub(crate) fn systems() -> Vec<String> {
        vec!["pid 7 (mosquitto)".to_owned(), "pid 8 (gone)".to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_follows_from_what_remains() {
        let phase = |remaining_s: Option<u64>| {
            let remaining = remaining_s.map(Duration::from_secs);
            current_phase(remaining, Duration::from_secs(10))
        };
        assert_eq!(phase(None), Phase::Connect);
        assert_eq!(phase(Some(12)), Phase::WarmUp);
        assert_eq!(phase(Some(10)), Phase::Measure);
        assert_eq!(phase(Some(1)), Phase::Measure);
        assert_eq!(phase(Some(0)), Phase::Drain);
    }
}
