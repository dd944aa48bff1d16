//! An agent: lets coordinators of other machines start workers on this one.
//!
//! Each connection is one worker: the coordinator writes a line with the token, and everything after the
//! answer goes between the coordinator and a process that [`Agent::serve`] starts.
//!
//! Invariant: nobody without the token gets a process; no more than a set number run at a time. The token
//! travels as it is: on a network that others can read, agents belong behind a tunnel.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What an agent answers to one whom it lets in.
pub(crate) const WELCOME: &str = "welcome";

/// Begins the line that asks an agent for a worker.
const GREETING: &str = "heraldmq-bench ";

/// Bytes of the longest line that asks for a worker.
const LONGEST_LINE: usize = 1024;

/// How long one who connects may take to say what he wants.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often to look whether all workers have ended.
const LOOK: Duration = Duration::from_millis(20);

/// What an agent is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agent {
    /// What coordinators have to say; empty for nothing.
    pub token: String,
    /// Workers at a time.
    pub workers: usize,
    /// The program that is a worker on its standard input and output.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Connections of the workers that an agent has at present.
#[derive(Clone, Debug, Default)]
pub struct Hosted(Arc<Mutex<Vec<(SocketAddr, TcpStream)>>>);

impl Hosted {
    fn streams(&self) -> MutexGuard<'_, Vec<(SocketAddr, TcpStream)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes their coordinators from all workers, so that they end in order, and waits for that, but no longer than
    /// `limit`.
    pub fn end(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            let streams = self.streams();
            if streams.is_empty() || Instant::now() >= deadline {
                return;
            }
            for (_, stream) in &*streams {
                // It fails if the coordinator has left, which is what is wanted.
                let _ = stream.shutdown(Shutdown::Both);
            }
            drop(streams);
            thread::sleep(LOOK);
        }
    }
}

impl Agent {
    /// Serves coordinators for ever; `hosted` has the workers. `notify` is told of each who came, and what became of it.
    ///
    /// # Errors
    /// The listener failed.
    pub fn serve(
        self,
        hosted: &Hosted,
        listener: &TcpListener,
        notify: impl Fn(SocketAddr, &str) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let (agent, notify) = (Arc::new(self), Arc::new(notify));
        let running = Arc::new(AtomicUsize::new(0));
        loop {
            let (stream, peer) = listener.accept()?;
            let (agent, notify, running) = (agent.clone(), notify.clone(), running.clone());
            let hosted = hosted.clone();
            thread::spawn(move || {
                // Those who have said nothing yet count too, so that they are few.
                let outcome = if running.fetch_add(1, Ordering::Relaxed) < agent.workers {
                    agent.host(stream, peer, &hosted)
                } else {
                    refuse(stream, "all workers are taken")
                };
                running.fetch_sub(1, Ordering::Relaxed);
                match outcome {
                    Ok(said) => notify(peer, said),
                    Err(error) => notify(peer, &error.to_string()),
                }
            });
        }
    }

    /// Is a worker to one coordinator, until that leaves.
    fn host(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
        hosted: &Hosted,
    ) -> io::Result<&'static str> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let line = read_line(&mut stream)?;
        let Some(token) = line.strip_prefix(GREETING) else {
            return refuse(stream, "this is an agent of heraldmq bench");
        };
        if !is_same(token.as_bytes(), self.token.as_bytes()) {
            return refuse(stream, "wrong token");
        }
        stream.set_read_timeout(None)?;
        writeln!(stream, "{WELCOME}")?;
        let input = OwnedFd::from(stream.try_clone()?);
        let kept = stream.try_clone()?;
        let output = OwnedFd::from(stream);
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .spawn()?;
        hosted.streams().push((peer, kept));
        let ended = child.wait();
        hosted.streams().retain(|&(of, _)| of != peer);
        ended?;
        Ok("its worker has ended")
    }
}

fn refuse(mut stream: TcpStream, reason: &'static str) -> io::Result<&'static str> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{reason}")?;
    stream.shutdown(Shutdown::Write)?;
    // A socket that is closed with something unread takes back what was written to it.
    let _ = io::copy(&mut stream.take(LONGEST_LINE as u64), &mut io::sink());
    Ok(reason)
}

/// A line, byte by byte, so that nothing of what follows it is taken.
fn read_line(stream: &mut TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LONGEST_LINE {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        line.push(byte[0]);
    }
    Err(io::Error::other("the line is too long"))
}

/// Takes as long for any two tokens of a length.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    one.len() == other.len() && differing == 0
}

/// Asks an agent for a worker.
///
/// # Errors
/// Those of writing; a token that is no line.
pub(crate) fn ask(stream: &mut TcpStream, token: &str) -> io::Result<()> {
    if token.contains('\n') {
        return Err(io::Error::other("a token is one line"));
    }
    stream.write_all(format!("{GREETING}{token}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an agent answers to this line.
    fn answer(agent: Agent, line: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || agent.serve(&Hosted::default(), &listener, |_, _| {}));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn agent(workers: usize) -> Agent {
        Agent {
            token: "secret".to_owned(),
            workers,
            program: "echo".into(),
            arguments: vec!["a worker".to_owned()],
        }
    }

    #[test]
    fn only_who_knows_the_token_gets_a_worker() {
        let right = format!("{GREETING}secret\n");
        assert_eq!(answer(agent(1), &right), "welcome\na worker\n");
        for wrong in ["", "secre", "secrets", "xxxxxx"] {
            let line = format!("{GREETING}{wrong}\n");
            assert_eq!(answer(agent(1), &line), "wrong token\n", "{wrong}");
        }
        assert!(answer(agent(1), "GET / HTTP/1.1\r\n").contains("this is an agent"));
        assert_eq!(answer(agent(0), &right), "all workers are taken\n");
    }
}
