//! The view of a run while it goes on, on standard error.
//!
//! Call order: [`Live::open`]; for each run [`Live::begin`], then [`View::show`] with all its news.
//!
//! Invariant: a view leaves nothing on a terminal when it is dropped, however its run ended. What follows
//! stands alone: result, warning or failure.
//!
//! Deliberately absent: colours and keys; figures that other programs read, which `exposition.rs` has.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use loadtest::News;
use report::Phase;
use text_table::units;

use super::observers::{Announcement, current_phase, missing};
use super::systems;
use crate::failure::complain;

/// How often a line is written within a phase, in seconds of the run.
const LINE_EVERY_S: f64 = 10.0;

/// What a bar that is full counts.
const FULL: u64 = 1_000;

/// How runs are shown.
pub(super) struct Live {
    redraws: bool,
    /// Of this machine; CPU is shown as a share of all of them.
    cores: u32,
}

/// The view of one run.
pub(super) struct View {
    surface: Surface,
    systems: Vec<String>,
    cores: u32,
    /// How long the measurement takes.
    measured: Duration,
    /// Warm-up and measurement together, once they have begun.
    load: Option<Duration>,
}

enum Surface {
    /// A few lines that change in place.
    Redrawn(ProgressBar),
    /// A line now and then, for files and plain terminals.
    Lines(LastLine),
}

/// The last line that was written.
struct LastLine {
    phase: Phase,
    at_s: f64,
}

impl Live {
    pub(super) fn open() -> Self {
        Self {
            redraws: redraws(),
            cores: systems::machine().cores,
        }
    }

    pub(super) fn begin(&self, run: &Announcement) -> View {
        let connecting = name(Phase::Connect);
        let surface = if self.redraws {
            Surface::Redrawn(bar(&run.scenario, connecting))
        } else {
            complain(&format!("{}: {connecting}", run.scenario));
            Surface::Lines(LastLine::first())
        };
        View {
            surface,
            systems: run.systems.clone(),
            cores: self.cores,
            measured: run.measured,
            load: None,
        }
    }
}

/// Whether lines on standard error are rewritten.
pub(super) fn redraws() -> bool {
    can_redraw(io::stderr().is_terminal(), |name| std::env::var_os(name))
}

/// Lines below a title that change in place.
pub(super) fn lines(title: &str, message: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix}\n  {msg}").expect("the template is valid");
    let lines = ProgressBar::with_draw_target(Some(FULL), ProgressDrawTarget::stderr())
        .with_style(style)
        .with_prefix(title.to_owned())
        .with_message(message);
    lines.tick();
    lines
}

/// Whether standard error is a terminal that lines can be rewritten on, and somebody looks at it.
fn can_redraw(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
    is_terminal && !is_dumb && !is_set("NO_COLOR") && !is_set("CI")
}

/// A bar below the scenario, with a message behind and below it.
fn bar(scenario: &str, message: &'static str) -> ProgressBar {
    let template = "{prefix}\n[{bar:30}] {msg}";
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let bar = ProgressBar::with_draw_target(Some(FULL), ProgressDrawTarget::stderr())
        .with_style(style.progress_chars("=> "))
        .with_prefix(scenario.to_owned())
        .with_message(message);
    bar.tick();
    bar
}

impl View {
    pub(super) fn show(&mut self, news: &News<'_>) {
        self.load = self.load.or(news.remaining);
        let phase = current_phase(news.remaining, self.measured);
        let heading = heading(phase, news.remaining);
        let facts = facts(news, &self.systems, self.cores);
        match &mut self.surface {
            Surface::Redrawn(bar) => {
                bar.set_position((done(news, self.load) * FULL as f64) as u64);
                bar.set_message(format!("{heading}\n  {}", facts.join("\n  ")));
            }
            Surface::Lines(last) => {
                if last.next_is_due(phase, news.sample.at_s) {
                    complain(&format!("{heading}: {}", facts.join("; ")));
                }
            }
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Surface::Redrawn(bar) = &self.surface {
            bar.finish_and_clear();
        }
    }
}

impl LastLine {
    /// That the clients connect.
    fn first() -> Self {
        Self {
            phase: Phase::Connect,
            at_s: 0.0,
        }
    }

    /// Whether there is something new to say, or the last line is long ago.
    fn next_is_due(&mut self, phase: Phase, at_s: f64) -> bool {
        let is_due = phase != self.phase || at_s - self.at_s >= LINE_EVERY_S;
        if is_due {
            *self = Self { phase, at_s };
        }
        is_due
    }
}

/// How much of connecting, or of the load, is behind us: from 0 to 1.
fn done(news: &News<'_>, load: Option<Duration>) -> f64 {
    match (news.remaining, load) {
        (Some(Duration::ZERO), _) => 1.0,
        (Some(remaining), Some(load)) => 1.0 - remaining.as_secs_f64() / load.as_secs_f64(),
        _ => news.sample.connections as f64 / news.connections.max(1) as f64,
    }
}

/// What goes on, and how long it is to the end of the measurement.
fn heading(phase: Phase, remaining: Option<Duration>) -> String {
    let name = name(phase);
    match remaining {
        None | Some(Duration::ZERO) => name.to_owned(),
        Some(remaining) => {
            let seconds = Duration::from_secs(remaining.as_secs_f64().ceil() as u64);
            format!("{name}, {} left", humantime::format_duration(seconds))
        }
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Connect => "connecting",
        Phase::WarmUp => "warm-up",
        Phase::Measure => "measuring",
        Phase::Drain => "draining",
    }
}

/// The figures of the last second, by subject; only those that the run has.
fn facts(news: &News<'_>, systems: &[String], cores: u32) -> Vec<String> {
    let mut facts = vec![connections(news)];
    if news.progress.totals.sent > 0 {
        facts.push(messages(news));
    }
    facts.extend(latency(news));
    facts.extend((0..).zip(systems).map(|(number, name)| {
        let usage = usage(news, number, cores);
        format!(
            "{name}: {}",
            usage.unwrap_or_else(|| "not readable".to_owned())
        )
    }));
    facts
}

fn connections(news: &News<'_>) -> String {
    let (ready, all) = (news.sample.connections, news.connections as u64);
    let connected = format!("{} of {} connected", units::count(ready), units::count(all));
    match news.progress.disconnects {
        0 => connected,
        broken => format!(
            "{connected}, {}",
            units::counted(broken, "disconnect", "disconnects")
        ),
    }
}

fn messages(news: &News<'_>) -> String {
    let (sample, progress) = (news.sample, news.progress);
    let rate = |count: u64| units::rate(count as f64 / sample.seconds);
    let mut parts = vec![format!("sent {}/s", rate(sample.sent))];
    if progress.totals.acknowledged > 0 {
        parts.push(format!("acknowledged {}/s", rate(sample.acknowledged)));
    }
    if progress.expected > 0 {
        parts.push(format!("delivered {}/s", rate(sample.delivered)));
        parts.push(format!("missing {}", units::count(missing(news))));
    }
    if progress.refused > 0 {
        parts.push(format!("refused {}", units::count(progress.refused)));
    }
    parts.join(", ")
}

fn latency(news: &News<'_>) -> Option<String> {
    let (p99, max) = (news.sample.p99_ms?, news.sample.max_ms?);
    Some(format!(
        "p99 {} ms, max {} ms",
        units::ms(p99),
        units::ms(max)
    ))
}

/// Of one of the broker's processes or nodes; `None` if it could not be read.
fn usage(news: &News<'_>, number: usize, cores: u32) -> Option<String> {
    let sample = news.sample;
    let usage = sample.system.get(number)?.as_ref()?;
    let cpu_s = usage.cpu_user_s + usage.cpu_system_s;
    let percent = cpu_s * 100.0 / (sample.seconds * f64::from(cores.max(1)));
    let memory = units::bytes(usage.resident_bytes as f64);
    Some(format!("CPU {percent:.1} %, memory {memory}"))
}

#[cfg(test)]
mod tests {
    use super::super::observers::fixture::{Second, systems};
    use super::*;

    #[test]
    fn a_second_of_load_is_told_with_what_the_run_has() {
        let mut second = Second::measured();
        let told = facts(&second.news(), &systems(), 4);
        let expected = [
            "1,999 of 2,000 connected, 1 disconnect",
            "sent 10,000/s, delivered 9,980/s, missing 12",
            "p99 1.25 ms, max 250.0 ms",
            "pid 7 (mosquitto): CPU 37.5 %, memory 12.0 MB",
            "pid 8 (gone): not readable",
        ];
        assert_eq!(told, expected);

        second.progress.expected = 0;
        second.progress.totals.acknowledged = 30_000;
        second.sample.acknowledged = 1_000;
        second.progress.refused = 3;
        let told = messages(&second.news());
        assert_eq!(told, "sent 10,000/s, acknowledged 2,000/s, refused 3");
    }

    #[test]
    fn clients_that_connect_have_no_messages() {
        let second = Second::connecting();
        let told = facts(&second.news(), &[], 4);
        assert_eq!(told, ["500 of 2,000 connected"]);
    }

    #[test]
    fn the_heading_says_what_goes_on_and_how_long() {
        assert_eq!(heading(Phase::Connect, None), "connecting");
        let remaining = Some(Duration::from_millis(62_500));
        assert_eq!(heading(Phase::Measure, remaining), "measuring, 1m 3s left");
        assert_eq!(heading(Phase::Drain, Some(Duration::ZERO)), "draining");
    }

    #[test]
    fn the_bar_fills_with_clients_and_then_with_time() {
        let mut second = Second::connecting();
        assert_eq!(done(&second.news(), None), 0.25);
        second = Second::measured();
        let load = Some(Duration::from_secs(250));
        assert_eq!(done(&second.news(), load), 0.75);
        second.remaining = Some(Duration::ZERO);
        assert_eq!(done(&second.news(), load), 1.0);
    }

    #[test]
    fn a_line_is_due_when_the_phase_changes_and_every_ten_seconds() {
        let mut last = LastLine::first();
        assert!(!last.next_is_due(Phase::Connect, 1.0));
        let due = [5.0, 6.0, 14.5, 15.0, 16.0].map(|at_s| last.next_is_due(Phase::Measure, at_s));
        assert_eq!(due, [true, false, false, true, false]);
        assert!(last.next_is_due(Phase::Drain, 16.0));
    }

    #[test]
    fn only_a_terminal_that_can_and_should_is_redrawn() {
        let redraws = |is_terminal, set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(set, _)| *set == name);
            can_redraw(is_terminal, |name| value(name).map(|(_, text)| text.into()))
        };
        let xterm = ("TERM", "xterm");
        assert!(redraws(true, &[xterm]));
        assert!(redraws(true, &[xterm, ("NO_COLOR", "")]));
        assert!(!redraws(false, &[xterm]));
        assert!(!redraws(true, &[]));
        assert!(!redraws(true, &[("TERM", "dumb")]));
        assert!(!redraws(true, &[xterm, ("NO_COLOR", "1")]));
        assert!(!redraws(true, &[xterm, ("CI", "true")]));
    }
}
