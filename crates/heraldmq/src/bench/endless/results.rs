//! The summary of a run without an end as one object of JSON.
//!
//! Invariant: units are in the names. `messages.due` is the sum of `sent`, `not_sent_no_connection` and
//! `not_sent_no_room`.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use loadtest::endless::{Count, Outcome, Run};
use report::Latencies;
use serde::Serialize;

use crate::failure::Failure;

/// Where the object goes.
pub(super) enum Output {
    Stdout,
    File(File, PathBuf),
}

impl Output {
    /// Makes the file; `-` is standard output.
    pub(super) fn open(path: &PathBuf) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let file = File::create(path).map_err(|error| named(path, &error))?;
        Ok(Self::File(file, path.clone()))
    }

    pub(super) fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    pub(super) fn write(self, results: &Results) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(results).expect("names are texts") + "\n";
        match self {
            Self::Stdout => io::stdout().write_all(text.as_bytes()),
            Self::File(mut file, ref path) => {
                let written = file.write_all(text.as_bytes());
                return written.map_err(|error| named(path, &error));
            }
        }
        .map_err(|error| named(Path::new("standard output"), &error))
    }
}

fn named(path: &Path, error: &io::Error) -> Failure {
    Failure::Runtime(format!("{}: {error}", path.display()))
}

/// A count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Number(u64);

/// What came of a run.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    /// Version of this program.
    tool: &'static str,
    /// conn, sub or pub.
    command: &'static str,
    targets: Vec<String>,
    /// Length of the run, without the wait for acknowledgements at its end.
    seconds: f64,
    connections: Connections,
    messages: Messages,
    /// As in a record of `bench run`; null where nothing was measured.
    latencies: Latencies,
    failures: Vec<Reason>,
}

#[derive(Debug, Serialize)]
struct Connections {
    clients: usize,
    connected_at_end: Number,
    /// Clients whose first connection was due.
    due: Number,
    /// Of those, clients that were never connected.
    not_connected: Number,
    connects: Number,
    connect_failures: Number,
    disconnects: Number,
    /// From a break of a connection to the next one, of all clients together.
    away_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Messages {
    due: Number,
    sent: Number,
    not_sent_no_connection: Number,
    not_sent_no_room: Number,
    acknowledged: Number,
    /// Above QoS 0; null at QoS 0.
    unacknowledged: Option<Number>,
    /// When their connection broke off.
    unacknowledged_at_disconnects: Number,
    refused: Number,
    received: Number,
}

#[derive(Debug, Serialize)]
struct Reason {
    reason: String,
    count: Number,
}

impl Results {
    /// Of a run that ended.
    pub(super) fn new(
        command: &'static str,
        targets: Vec<String>,
        run: &Run,
        has_run: Duration,
        outcome: &Outcome,
    ) -> Self {
        let counts = &outcome.counts;
        let of = |count: Count| Number(counts[count]);
        Self {
            tool: env!("CARGO_PKG_VERSION"),
            command,
            targets,
            seconds: has_run.as_secs_f64(),
            connections: Connections {
                clients: run.clients(),
                connected_at_end: of(Count::Ready),
                due: of(Count::ConnectsDue),
                not_connected: of(Count::NeverConnected),
                connects: of(Count::Connects),
                connect_failures: of(Count::ConnectFailures),
                disconnects: of(Count::Disconnects),
                away_seconds: counts[Count::AwayMs] as f64 / 1e3,
            },
            messages: Messages {
                due: of(Count::Due),
                sent: of(Count::Sent),
                not_sent_no_connection: of(Count::NotSentAway),
                not_sent_no_room: of(Count::NotSentFull),
                acknowledged: of(Count::Acknowledged),
                unacknowledged: run
                    .is_acknowledged()
                    .then(|| Number(counts.unacknowledged())),
                unacknowledged_at_disconnects: of(Count::Unsettled),
                refused: of(Count::Refused),
                received: of(Count::Received),
            },
            latencies: outcome.latencies.clone(),
            failures: reasons(run),
        }
    }
}

fn reasons(run: &Run) -> Vec<Reason> {
    let reason = |(reason, count)| Reason {
        reason,
        count: Number(count),
    };
    run.reasons().into_iter().map(reason).collect()
}
