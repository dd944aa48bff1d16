//! The workers of a run: where they come from, and how a coordinator hears from all of them.
//!
//! Invariant: a worker that closes its connection or falls silent is noticed, and named.
//!
//! Deliberately absent: what is said; `coordinator.rs` knows.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, process};

use crate::agent;
use crate::protocol::{Command, Report, read, write};

/// How long an agent may take to accept a connection.
const REACH: Duration = Duration::from_secs(5);

/// How long a worker may be silent while it should tick every second.
const SILENCE: Duration = Duration::from_secs(10);

/// How long to look for what a lost worker has said last.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Reports that nobody has looked at yet; further ones stay with their workers.
const UNREAD_REPORTS: usize = 1_024;

/// Where a worker comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recruit {
    /// A process of this machine that runs [`crate::worker::run`] on its standard input and output.
    Process {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// A process that an agent starts on its machine.
    Agent {
        /// Host and port of the agent.
        address: String,
        /// What the agent wants to hear.
        token: String,
    },
}

/// Why a crew cannot do its work.
#[derive(Debug)]
pub enum CrewError {
    /// A worker could not be had.
    Recruit(String, io::Error),
    /// A worker closed its connection, or said what makes no sense.
    Lost(String, io::Error),
    /// A worker says nothing any more.
    Silent(String, Duration),
    /// A worker could not go on; what it said.
    Failed(String, String),
    /// A worker is of another version, which it told.
    Version(String, String),
}

impl fmt::Display for CrewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recruit(worker, error) => write!(f, "{worker} cannot be had: {error}"),
            Self::Lost(worker, error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(f, "{worker} is dead: it closed its connection")
            }
            Self::Lost(worker, error) => write!(f, "{worker} is lost: {error}"),
            Self::Silent(worker, time) => {
                write!(
                    f,
                    "{worker} is dead or stopped: silent for {} s",
                    time.as_secs()
                )
            }
            // One of several says so, but mostly it is about the broker.
            Self::Failed(worker, message) => write!(f, "{worker}: {message}"),
            Self::Version(worker, version) => {
                write!(f, "{worker} is of another version: {version}")
            }
        }
    }
}

impl std::error::Error for CrewError {}

struct Member {
    name: String,
    /// `None` once nothing more is to be said.
    output: Option<Box<dyn Write + Send>>,
    child: Option<Child>,
    /// Whether its clock may differ from this machine's.
    is_remote: bool,
    heard: Instant,
}

/// Workers, ready to be told what to do.
pub struct Crew {
    members: Vec<Member>,
    /// How long a worker may say nothing.
    silence: Duration,
    reports: Receiver<(usize, io::Result<Report>)>,
    sender: SyncSender<(usize, io::Result<Report>)>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.members.iter().map(|member| &member.name);
        f.debug_list().entries(names).finish()
    }
}

impl Crew {
    /// Gets all workers.
    ///
    /// # Errors
    /// One cannot be had; those that were are let go.
    pub fn recruit(recruits: &[Recruit]) -> Result<Self, CrewError> {
        let mut crew = Self::empty();
        for recruit in recruits {
            match recruit {
                Recruit::Process { program, arguments } => crew.spawn(program, arguments)?,
                Recruit::Agent { address, token } => crew.reach(address, token)?,
            }
        }
        Ok(crew)
    }

    /// Takes workers of this machine that run [`crate::worker::run`] at the other ends of connections.
    ///
    /// # Errors
    /// A connection cannot be shared with the thread that reads from it.
    pub fn connected(workers: impl IntoIterator<Item = TcpStream>) -> Result<Self, CrewError> {
        let mut crew = Self::empty();
        for stream in workers {
            let name = format!("worker {}", crew.members.len());
            crew.add_socket(name, BufReader::new(stream), false)?;
        }
        Ok(crew)
    }

    /// Gives up a worker that has said nothing for this long, instead of 10 s. Workers speak every second.
    #[must_use]
    pub fn with_silence_limit(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    pub(crate) fn empty() -> Self {
        let (sender, reports) = mpsc::sync_channel(UNREAD_REPORTS);
        Self {
            members: Vec::new(),
            silence: SILENCE,
            reports,
            sender,
        }
    }

    fn spawn(&mut self, program: &PathBuf, arguments: &[String]) -> Result<(), CrewError> {
        let name = format!("worker {}", self.members.len());
        let mut child = process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| CrewError::Recruit(name.clone(), error))?;
        if let (Some(input), Some(output)) = (child.stdout.take(), child.stdin.take()) {
            self.add(name, input, output, false);
        }
        if let Some(member) = self.members.last_mut() {
            member.child = Some(child);
        }
        Ok(())
    }

    fn reach(&mut self, address: &str, token: &str) -> Result<(), CrewError> {
        let name = format!("agent {address}, worker {}", self.members.len());
        let reached = reach(address, token);
        let stream = reached.map_err(|error| CrewError::Recruit(name.clone(), error))?;
        self.add_socket(name, stream, true)
    }

    fn add_socket(
        &mut self,
        name: String,
        stream: BufReader<TcpStream>,
        is_remote: bool,
    ) -> Result<(), CrewError> {
        match stream.get_ref().try_clone() {
            Ok(output) => self.add(name, stream, SendingHalf(output), is_remote),
            Err(error) => return Err(CrewError::Recruit(name, error)),
        }
        Ok(())
    }

    /// Adds a worker that is at the other end of `input` and `output`.
    pub(crate) fn add(
        &mut self,
        name: String,
        input: impl Read + Send + 'static,
        output: impl Write + Send + 'static,
        is_remote: bool,
    ) {
        let (index, sender) = (self.members.len(), self.sender.clone());
        thread::spawn(move || {
            let mut input = BufReader::new(input);
            loop {
                let report = read(&mut input);
                let is_last = report.is_err();
                if sender.send((index, report)).is_err() || is_last {
                    break;
                }
            }
        });
        self.members.push(Member {
            name,
            output: Some(Box::new(BufWriter::new(output))),
            child: None,
            is_remote,
            heard: Instant::now(),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_remote(&self, index: usize) -> bool {
        self.members[index].is_remote
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        &self.members[index].name
    }

    pub(crate) fn tell(&mut self, index: usize, command: &Command) -> Result<(), CrewError> {
        let member = &mut self.members[index];
        member.heard = Instant::now();
        let told = match &mut member.output {
            Some(output) => write(output, command),
            None => Ok(()),
        };
        told.map_err(|error| self.explain(index, error))
    }

    pub(crate) fn tell_all(&mut self, command: &Command) -> Result<(), CrewError> {
        (0..self.members.len()).try_for_each(|index| self.tell(index, command))
    }

    /// The next report of any worker; `None` if there is none until `deadline`.
    ///
    /// # Errors
    /// A worker is lost, is silent for too long, or reports a failure.
    pub(crate) fn hear(&mut self, deadline: Instant) -> Result<Option<(usize, Report)>, CrewError> {
        loop {
            // What has arrived comes before the judgement that nothing did: this process may have been
            // stopped itself.
            let received = self.reports.try_recv().or_else(|_| {
                let until = deadline.min(self.patience()?);
                let now = Instant::now();
                let received = self
                    .reports
                    .recv_timeout(until.saturating_duration_since(now));
                received.map_err(|_| None)
            });
            match received {
                Ok((index, Ok(report))) => {
                    self.members[index].heard = Instant::now();
                    if let Report::Failed(message) = report {
                        return Err(CrewError::Failed(self.members[index].name.clone(), message));
                    }
                    return Ok(Some((index, report)));
                }
                Ok((index, Err(error))) => return Err(self.explain(index, error)),
                Err(Some(silent)) => return Err(silent),
                // This crew holds a sender, so they are never all gone.
                Err(None) if Instant::now() >= deadline => return Ok(None),
                Err(None) => {}
            }
        }
    }

    /// Until when nobody has been silent for too long.
    fn patience(&self) -> Result<Instant, Option<CrewError>> {
        let now = Instant::now();
        let Some(quietest) = self.members.iter().min_by_key(|member| member.heard) else {
            return Ok(now);
        };
        if now < quietest.heard + self.silence {
            return Ok(quietest.heard + self.silence);
        }
        let silent = now - quietest.heard;
        Err(Some(CrewError::Silent(quietest.name.clone(), silent)))
    }

    /// What a worker said last tells more than that its pipe broke. The others talk on meanwhile.
    fn explain(&self, index: usize, error: io::Error) -> CrewError {
        let deadline = Instant::now() + LAST_WORDS;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok((from, report)) = self.reports.recv_timeout(left()) {
            if let Ok(Report::Failed(message)) = report {
                return CrewError::Failed(self.members[from].name.clone(), message);
            }
        }
        CrewError::Lost(self.members[index].name.clone(), error)
    }
}

/// Tells a worker by its end that nothing more will be said. Closing the descriptor would not: the thread
/// that reads has the same connection.
struct SendingHalf(TcpStream);

impl Write for SendingHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for SendingHalf {
    fn drop(&mut self) {
        // It fails if the worker is gone already.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

impl Drop for Crew {
    /// Workers end when their coordinator is gone.
    fn drop(&mut self) {
        for member in &mut self.members {
            member.output = None;
        }
        for child in self.members.iter_mut().filter_map(|m| m.child.as_mut()) {
            let deadline = Instant::now() + REACH;
            // They take leave of the broker first; one that hangs is not waited for.
            while !matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                if Instant::now() >= deadline {
                    let _ = child.kill().and_then(|()| child.wait());
                    break;
                }
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// A connection to an agent that has let us in.
fn reach(address: &str, token: &str) -> io::Result<BufReader<TcpStream>> {
    let mut addresses = address.to_socket_addrs()?;
    let first = addresses
        .next()
        .ok_or_else(|| io::Error::other("has no address"))?;
    let mut stream = TcpStream::connect_timeout(&first, REACH)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REACH))?;
    agent::ask(&mut stream, token)?;
    let mut stream = BufReader::new(stream);
    let mut answer = String::new();
    stream.read_line(&mut answer)?;
    if answer.trim_end() != agent::WELCOME {
        let said = if answer.is_empty() {
            "nothing"
        } else {
            answer.trim_end()
        };
        return Err(io::Error::other(format!("the agent said: {said}")));
    }
    stream.get_ref().set_read_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// While the others are still at it, a run must not wait for them to stop.
    #[test]
    fn a_lost_worker_is_noticed_while_others_talk_on() {
        let mut crew = Crew::empty();
        let add = |crew: &mut Crew, name: &str| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            crew.add(name.to_owned(), ours.try_clone().unwrap(), ours, false);
            theirs
        };
        let mut talkative = add(&mut crew, "talkative");
        drop(add(&mut crew, "lost"));
        let talk_until = Instant::now() + LAST_WORDS * 50;
        let talking = thread::spawn(move || {
            while Instant::now() < talk_until {
                write(&mut talkative, &Report::Connected).unwrap();
            }
        });
        let error = loop {
            if let Err(error) = crew.hear(talk_until) {
                break error;
            }
        };
        assert!(!talking.is_finished());
        assert_eq!(error.to_string(), "lost is dead: it closed its connection");
    }

    /// Who is told something may be the first to notice, but has not said why.
    #[test]
    fn what_a_worker_said_last_is_what_counts() {
        let mut crew = Crew::empty();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        crew.add("w".to_owned(), ours.try_clone().unwrap(), ours, false);
        write(&mut theirs, &Report::Failed("no broker".to_owned())).unwrap();
        drop(theirs);
        let error = crew.tell(0, &Command::Connect).unwrap_err();
        assert_eq!(error.to_string(), "w: no broker");
    }
}
