//! Which program runs an outlet or an inlet, and what that program says of it.
//!
//! `heraldmq` has most targets itself. A target whose library is large, and written in C, has a program of its own, in the folder of
//! the program that runs: who does not want it does not install it.

use std::io::{self, Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::built_in::BuiltIn;
use crate::definition::TargetDefinition;
use crate::inlet::SourceDefinition;
use crate::process;
use crate::transfer::Transfer;

/// The argument that makes a program the process of an outlet.
pub const PROCESS: &str = "outlet-process";

/// The argument for a check: what stands on the standard input, a [`Transfer`] in JSON, is checked without reaching another system.
pub const CHECK: &str = "check";

/// The argument for a probe: the target of the [`Transfer`] on the standard input is reached.
pub const PROBE: &str = "probe";

/// How long a check may take, and a probe beyond the time that its target has.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether a program has ended.
const LOOKS: Duration = Duration::from_millis(5);

/// Bytes of what a program says that are read.
const LONGEST: u64 = 64 * 1024;

/// The program of outlets to Kafka, and of inlets from it.
const KAFKA: &str = "heraldmq-outlet-kafka";

/// The program that runs an outlet or an inlet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// `heraldmq`.
    Own,
    /// One of this name, in the same folder.
    Beside(&'static str),
}

impl Program {
    /// The one for a transfer.
    #[must_use]
    pub const fn of(transfer: &Transfer) -> Self {
        match transfer {
            Transfer::Outlet(outlet) => match outlet.target {
                TargetDefinition::Kafka(_) => Self::Beside(KAFKA),
                TargetDefinition::File { .. }
                | TargetDefinition::Http(_)
                | TargetDefinition::Mqtt(_)
                | TargetDefinition::Nats(_)
                | TargetDefinition::Postgres(_) => Self::Own,
            },
            Transfer::Inlet(inlet) => match inlet.source {
                SourceDefinition::Kafka(_) => Self::Beside(KAFKA),
                SourceDefinition::Mqtt(_) | SourceDefinition::Nats(_) => Self::Own,
            },
        }
    }

    /// Its file.
    ///
    /// # Errors
    /// It is not installed.
    pub fn path(self) -> Result<PathBuf, String> {
        let Self::Beside(name) = self else {
            // The running one also if its file was replaced.
            return Ok(PathBuf::from("/proc/self/exe"));
        };
        let own = std::env::current_exe();
        let own = own.map_err(|error| format!("the folder of programs is not known: {error}"))?;
        let path = own.with_file_name(name);
        match path.is_file() {
            true => Ok(path),
            false => Err(format!(
                "the program {name} is not installed: there is no {}",
                path.display()
            )),
        }
    }

    /// What is checked without reaching another system, by the program that runs it.
    ///
    /// # Errors
    /// What is wrong; the program is missing, or does not end in 10 s.
    pub fn check(transfer: &Transfer) -> Result<(), String> {
        match Self::of(transfer) {
            Self::Own => process::check(&BuiltIn, transfer),
            beside => beside.ask(CHECK, transfer, PATIENCE).map(drop),
        }
    }

    /// Reaches the target of an outlet, or the source of an inlet, by the program that runs it. Waits for that.
    ///
    /// # Errors
    /// Why it cannot be reached; the program is missing, or does not end 10 s after the target's time.
    pub fn probe(transfer: &Transfer) -> Result<String, String> {
        let time = match transfer {
            Transfer::Outlet(outlet) => match &outlet.target {
                TargetDefinition::Kafka(kafka) => kafka.servers.timeout,
                _ => Duration::ZERO,
            },
            Transfer::Inlet(inlet) => match &inlet.source {
                SourceDefinition::Kafka(kafka) => kafka.servers.timeout,
                _ => Duration::ZERO,
            },
        };
        match Self::of(transfer) {
            Self::Own => process::probe(&BuiltIn, transfer),
            beside => beside.ask(PROBE, transfer, time.saturating_add(PATIENCE)),
        }
    }

    /// Runs it with a transfer on its standard input. Gives what it prints.
    fn ask(self, what: &str, transfer: &Transfer, time: Duration) -> Result<String, String> {
        let path = self.path()?;
        let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let definition = serde_json::to_vec(transfer).map_err(|error| named(&error))?;
        let mut command = Command::new(&path);
        command
            .arg(what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| named(&error))?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read says why when it ends.
            let _: io::Result<()> = stdin.write_all(&definition);
        }
        let said = [
            child.stdout.take().map(|pipe| hear(Box::new(pipe))),
            child.stderr.take().map(|pipe| hear(Box::new(pipe))),
        ];
        let status = wait(&mut child, Instant::now() + time).map_err(|error| named(&error))?;
        let [printed, complained] = said.map(|heard| {
            let heard = heard.and_then(|heard| heard.join().ok());
            let text = String::from_utf8_lossy(&heard.unwrap_or_default()).into_owned();
            text.trim().to_owned()
        });
        match status {
            None => Err(named(&"it does not end in time")),
            Some(status) if status.success() => Ok(printed),
            Some(status) if complained.is_empty() => Err(named(&status)),
            Some(_) => Err(complained),
        }
    }
}

/// Reads what a program says; what is more than [`LONGEST`] is thrown away.
fn hear(mut pipe: Box<dyn Read + Send>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        // What was read before an error counts.
        let _: io::Result<usize> = (&mut pipe).take(LONGEST).read_to_end(&mut said);
        let _: io::Result<u64> = io::copy(&mut pipe, &mut io::sink());
        said
    })
}

/// Waits for the end of a program; `None`: it was killed at the deadline.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOKS);
    }
}
