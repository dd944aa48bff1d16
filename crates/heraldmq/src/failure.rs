//! How a subcommand ends if not well: the message and the exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether errors are not to be printed (`--quiet`).
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// From now on nothing is printed about errors; exit codes stay.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Why a subcommand could not do what was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Something outside refused: a port in use, an unreadable folder, a broker that says no.
    /// Exit code 1.
    Runtime(String),
    /// The command line or the configuration is wrong. Exit code 2.
    Usage(String),
    /// The data folder is an old copy. Exit code 3: it is of no use to start again.
    OldFolder(String),
    /// There is no such client, node or shard. Exit code 3.
    NotFound(String),
    /// A load test ended as planned, and missed what `--require` names. Exit code 4.
    #[cfg(feature = "bench")]
    Missed(String),
    /// The record is not what it was when it was read. Exit code 5.
    Changed(String),
    /// The time given by `-W` is over. Exit code 27, as mosquitto_sub has it.
    TimedOut,
}

impl Failure {
    /// The same for commands that have no exit code of their own for what is not there.
    pub(crate) fn refused(self) -> Self {
        match self {
            Self::NotFound(message) => Self::Runtime(message),
            other => other,
        }
    }

    /// Prints the message and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Runtime(message) => (message, 1),
            Self::Usage(message) => (message, 2),
            Self::OldFolder(message) => (message, broker::OLD_FOLDER),
            Self::NotFound(message) => (message, 3),
            #[cfg(feature = "bench")]
            Self::Missed(message) => (message, 4),
            Self::Changed(message) => (message, 5),
            Self::TimedOut => ("timed out".to_owned(), 27),
        };
        complain(&message);
        ExitCode::from(code)
    }
}

/// Prints each line of `message` on standard error. A standard error that nobody reads changes
/// nothing about the outcome.
pub(crate) fn complain(message: &str) {
    if IS_QUIET.load(Ordering::Relaxed) {
        return;
    }
    for line in message.lines() {
        let _ = writeln!(io::stderr(), "heraldmq: {line}");
    }
}
