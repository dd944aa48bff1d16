//! Brokers that a suite, or the measuring of slopes, starts: each time afresh, in a folder of its own, and ended afterwards.
//!
//! Invariant: neither process nor folder outlives its [`Started`].
//!
//! Deliberately absent: what a broker needs to run; its command and its files say so.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process_group};

use super::interrupt::Interrupt;
use super::target;
use crate::failure::Failure;

/// How long a broker may take to accept connections.
const READY: Duration = Duration::from_secs(10);

/// How long it may take to end.
const END: Duration = Duration::from_secs(5);

/// How often a condition is looked at while waiting for it.
const LOOK: Duration = Duration::from_millis(20);

/// How long a connection to this machine may take.
const CONNECT: Duration = Duration::from_millis(500);

/// Lines of a broker's output that are shown, and bytes of them at most.
const LAST_LINES: usize = 10;
const LAST_BYTES: u64 = 4_096;

/// Stands for the folder of a start.
const FOLDER: &str = "{dir}";

/// What starts a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Launch {
    /// Program and arguments; `{dir}` is the folder of the start, `heraldmq` this program.
    pub(super) command: Vec<String>,
    /// What lies in the folder: name and content, in which `{dir}` is the folder, too.
    pub(super) files: BTreeMap<String, String>,
}

/// A broker that runs.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    command: String,
    folder: Folder,
}

impl Launch {
    /// Starts it and waits until all addresses accept connections.
    ///
    /// # Errors
    /// A sentence that says which part of it failed, followed by the end of what the broker said.
    pub(super) fn start(
        &self,
        addresses: &[String],
        interrupt: &Interrupt,
    ) -> Result<Started, Failure> {
        let addresses = target::resolve(addresses)?;
        if let Some(taken) = addresses.iter().find(|address| accepts(address)) {
            let message = format!("another process listens on {taken} already");
            return Err(Failure::Runtime(message));
        }
        let command = || self.command.join(" ");
        let started = self.spawn();
        let mut started =
            started.map_err(|error| Failure::Runtime(format!("{}: {error}", command())))?;
        let readiness = started.await_readiness(&addresses, interrupt);
        readiness.map_err(Failure::Runtime)?;
        Ok(started)
    }

    fn spawn(&self) -> io::Result<Started> {
        let folder = Folder::new()?;
        let dir = folder.dir();
        let in_folder = |text: &String| text.replace(FOLDER, &dir.to_string_lossy());
        for (name, content) in &self.files {
            fs::write(dir.join(name), in_folder(content))?;
        }
        let mut words = self.command.iter().map(in_folder);
        let program = match words.next() {
            Some(name) if name == "heraldmq" => std::env::current_exe()?,
            Some(name) => PathBuf::from(name),
            None => PathBuf::new(),
        };
        let output = File::create(folder.output())?;
        let child = Command::new(program)
            .args(words)
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A broker's own children end with it, and Ctrl-C leaves it to this program.
            .process_group(0)
            .spawn()?;
        Ok(Started {
            child,
            command: self.command.join(" "),
            folder,
        })
    }
}

fn accepts(address: &SocketAddr) -> bool {
    TcpStream::connect_timeout(address, CONNECT).is_ok()
}

impl Started {
    /// Of its first process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// As the suite has it.
    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// If it is not alive any more: that, and the end of what it said.
    pub(super) fn death(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!(
            "the broker is dead ({status}){}",
            self.last_lines()
        ))
    }

    fn await_readiness(
        &mut self,
        addresses: &[SocketAddr],
        interrupt: &Interrupt,
    ) -> Result<(), String> {
        let deadline = Instant::now() + READY;
        while !addresses.iter().all(accepts) {
            if let Some(death) = self.death() {
                return Err(death);
            }
            if interrupt.is_set() {
                return Err("interrupted".to_owned());
            }
            if Instant::now() >= deadline {
                let waited = READY.as_secs();
                let said = self.last_lines();
                return Err(format!("no connection was accepted in {waited} s{said}"));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Each on a line of its own; nothing if nothing was said.
    fn last_lines(&self) -> String {
        let text = end_of(&self.folder.output()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        last.iter().map(|line| format!("\n  | {line}")).collect()
    }

    /// SIGTERM, and SIGKILL for what is left.
    fn end(&mut self) -> io::Result<ExitStatus> {
        let group = Pid::from_child(&self.child);
        let deadline = Instant::now() + END;
        // It fails if nobody is left, which is what is wanted.
        let _ = kill_process_group(group, Signal::TERM);
        while self.child.try_wait()?.is_none() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        let _ = kill_process_group(group, Signal::KILL);
        self.child.wait()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The last bytes of a file, whatever they are.
fn end_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LAST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A folder that is removed when this is dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Process identifiers come again, and a killed program removes nothing.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let name = format!(
            "heraldmq-suite-{}-{number}-{:x}",
            std::process::id(),
            now.as_micros()
        );
        let folder = Self(std::env::temp_dir().join(name));
        // Not create_dir_all: a folder that is there already is somebody else's.
        fs::create_dir(&folder.0)?;
        fs::create_dir(folder.dir())?;
        Ok(folder)
    }

    /// The broker's.
    fn dir(&self) -> PathBuf {
        self.0.join("dir")
    }

    /// What the broker says.
    fn output(&self) -> PathBuf {
        self.0.join("output")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
