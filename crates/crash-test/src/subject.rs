//! The broker under test: how it is started, killed and stopped.
//!
//! Invariant: a process that was started here has ended when its [`Process`] is dropped.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::faults::Shim;

/// How long a broker may take to listen, and to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at something that cannot be waited for.
const GLANCE: Duration = Duration::from_millis(2);

/// Settings for the number of shards of each store.
const SHARD_SETTINGS: [&str; 3] = [
    "session_store_initial_shards",
    "inbox_store_initial_shards",
    "retain_store_initial_shards",
];

/// Which broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `heraldmq serve`.
    HeraldMq,
    /// Mosquitto 2.0 with persistence.
    Mosquitto,
}

/// A broker with its folder and ports.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Which.
    pub kind: Kind,
    /// Its program.
    pub program: PathBuf,
    /// Holds `data` and `log`.
    pub work: PathBuf,
    /// Where clients connect; the next one is for HTTP.
    pub port: u16,
    /// Shards of each store, if not the broker's own choice.
    pub shards: Option<u16>,
    /// Further `key=value` settings.
    pub settings: Vec<String>,
}

impl Subject {
    /// The folder that survives.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.work.join("data")
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Starts it; it may not listen yet.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(&self, shim: Option<&Shim>) -> io::Result<Process> {
        fs::create_dir_all(self.data())?;
        let mut command = Command::new(&self.program);
        match self.kind {
            Kind::HeraldMq => self.herald(&mut command),
            Kind::Mosquitto => self.mosquitto(&mut command)?,
        }
        // These configure a broker, or name its program for us.
        for (name, _) in std::env::vars_os() {
            if name
                .to_string_lossy()
                .to_uppercase()
                .starts_with("HERALDMQ_")
            {
                command.env_remove(name);
            }
        }
        if let Some(shim) = shim {
            shim.attach(&mut command, &self.data());
        }
        let log = File::options().create(true).append(true).open(self.log())?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Process {
            child: command.spawn()?,
            address: self.address(),
        })
    }

    fn herald(&self, command: &mut Command) {
        let mut settings = vec![
            format!("mqttServerConfig.tcpListener.port={}", self.port),
            format!("http.port={}", self.port + 1),
            "limits.connection.bytesPerSecondIn=0".to_owned(),
            "limits.connection.bytesPerSecondOut=0".to_owned(),
            // Clients that stay away for many rounds must not lose messages to a full queue.
            "limits.session.queueMessages=1000000".to_owned(),
            "limits.session.queueBytes=1000000000".to_owned(),
        ];
        if let Some(shards) = self.shards {
            settings.extend(SHARD_SETTINGS.map(|name| format!("{name}={shards}")));
        }
        settings.extend_from_slice(&self.settings);
        command.arg("serve").arg("--data-dir").arg(self.data());
        for setting in settings {
            command.arg("--set").arg(setting);
        }
    }

    fn mosquitto(&self, command: &mut Command) -> io::Result<()> {
        let config = self.work.join("mosquitto.conf");
        let text = format!(
            "listener {} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\n\
             persistence_location {}/\nautosave_interval 1\nautosave_on_changes true\n\
             max_queued_messages 0\nlog_type error\n",
            self.port,
            self.data().display()
        );
        fs::write(&config, text)?;
        command.arg("-c").arg(config);
        Ok(())
    }

    /// What it has written to standard output and error, of all its processes.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.work.join("log")
    }

    /// The last lines of its log.
    #[must_use]
    pub fn last_words(&self) -> String {
        last_lines(&self.log(), 5)
    }
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// A running broker.
#[derive(Debug)]
pub struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    /// Waits until it listens.
    ///
    /// # Errors
    /// It ended, or does not listen in time.
    pub fn wait_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the broker ended: {status}")));
            }
            if Instant::now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// How it ended, if it did by itself.
    ///
    /// # Errors
    /// Those of the system.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// SIGKILL, and its end.
    ///
    /// # Errors
    /// Those of the system.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// SIGTERM, and its end in order.
    ///
    /// # Errors
    /// It does not end in time; those of the system.
    pub fn stop(&mut self) -> io::Result<ExitStatus> {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            kill_process(pid, Signal::TERM)?;
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            std::thread::sleep(GLANCE);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; there is nobody to tell about anything else.
        let _ = self.kill();
    }
}
