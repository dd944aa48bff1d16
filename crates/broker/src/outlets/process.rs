//! The process of an outlet, as its node sees it.
//!
//! Its standard input is the connection that speaks MQTT, its standard output the one for commands and reports: it has no other file of
//! the node but standard error. It ends when the node does, as both connections do.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command as Program, ExitStatus, Stdio};
use std::time::Duration;

use outlets::{Command, PROCESS, TOO_LONG_EXIT, Told};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use super::caution::Manner;
use super::standing::ProcessId;
use crate::own_connections::OwnConnections;

/// The longest report, in bytes.
const LONGEST: u64 = 1 << 20;

/// How long a process may take to end after its connections have.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether it has ended.
const LOOKS: Duration = Duration::from_millis(20);

/// A process that has not been waited for.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    reports: BufReader<OwnedReadHalf>,
    commands: OwnedWriteHalf,
    line: Vec<u8>,
}

impl Process {
    pub(super) fn start(program: &Path, connections: &OwnConnections) -> io::Result<Self> {
        let mqtt = connections.open().map_err(io::Error::other)?;
        let (own, its) = std::os::unix::net::UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let own = UnixStream::from_std(own)?;
        let child = Program::new(program)
            .arg(PROCESS)
            .stdin(Stdio::from(OwnedFd::from(mqtt)))
            .stdout(Stdio::from(OwnedFd::from(its)))
            .stderr(Stdio::inherit())
            // Ctrl-C at a terminal is for the node, which ends its processes in order.
            .process_group(0)
            .spawn()?;
        let (reports, commands) = own.into_split();
        Ok(Self {
            child,
            reports: BufReader::new(reports),
            commands,
            line: Vec::new(),
        })
    }

    pub(super) fn id(&self) -> ProcessId {
        ProcessId(self.child.id())
    }

    /// A process that hears nothing any more has ended, which [`Self::next`] tells.
    pub(super) async fn tell(&mut self, command: &Command) {
        let line = serde_json::to_vec(command);
        let mut line =
            line.expect("a command has string keys only, and nothing that cannot be written");
        line.push(b'\n');
        if let Err(error) = self.commands.write_all(&line).await {
            tracing::debug!(%error, "the process of an outlet does not hear");
        }
    }

    /// What it tells next; `None`: nothing more. A line that was read in part when the future is dropped is not lost.
    pub(super) async fn next(&mut self) -> Option<Told> {
        let most = LONGEST.saturating_sub(self.line.len() as u64);
        let mut limited = (&mut self.reports).take(most);
        // An end or an error: the process is gone, or does not keep to the form.
        let read = limited.read_until(b'\n', &mut self.line).await;
        if read.is_err() || self.line.last() != Some(&b'\n') {
            return None;
        }
        let told = serde_json::from_slice(&self.line).ok();
        self.line.clear();
        told
    }

    /// Waits until it has ended, and kills it if that takes long. Gives how it ended.
    pub(super) async fn end(mut self) -> Ending {
        // It hears that the node is done with it.
        drop((self.commands, self.reports));
        let deadline = Instant::now() + PATIENCE;
        let ended = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if Instant::now() < deadline => tokio::time::sleep(LOOKS).await,
                Ok(None) => break self.child.kill().and_then(|()| self.child.wait()),
                Err(error) => break Err(error),
            }
        };
        match ended {
            Ok(status) => ending(status),
            Err(error) => Ending {
                manner: Manner::Orderly,
                why: error.to_string(),
            },
        }
    }
}

/// How a process ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) manner: Manner,
    pub(super) why: String,
}

fn ending(status: ExitStatus) -> Ending {
    let (manner, why) = match status.code() {
        Some(TOO_LONG_EXIT) => {
            let why = "a rule has taken too long for one message".to_owned();
            (Manner::Abnormal, why)
        }
        // In order, and as a process that has said why it fails.
        Some(0 | 1) => (Manner::Orderly, status.to_string()),
        // By a signal, or a panic.
        _ => (Manner::Abnormal, status.to_string()),
    };
    Ending { manner, why }
}
