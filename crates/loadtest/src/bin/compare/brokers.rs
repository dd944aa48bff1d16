//! Starting and stopping the brokers that are compared.
//!
//! Invariant: a broker lives as long as its [`Running`]. All are configured alike: anonymous clients, no
//! persistence, no `$SYS` topics, no rate limit, warnings only in the log. HeraldMQ, which keeps sessions by
//! default, begins with an empty data folder each time.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::Process;

use crate::rows::Failure;

/// Ports that this program uses end here, where those of outgoing connections begin by default.
const EPHEMERAL: u16 = 32_768;

/// How long a broker may take to listen.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Which {
    /// `heraldmq serve`.
    Heraldmq,
    /// Mosquitto.
    Mosquitto,
    /// The built-in relay: the same reads and writes without MQTT.
    Relay,
    /// The same, which writes publications to a file and syncs it before it forwards and acknowledges them.
    SyncedRelay,
}

impl Which {
    pub(crate) const ALL: [Self; 4] = [
        Self::Heraldmq,
        Self::Mosquitto,
        Self::Relay,
        Self::SyncedRelay,
    ];
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Heraldmq => "heraldmq",
            Self::Mosquitto => "mosquitto",
            Self::Relay => "relay",
            Self::SyncedRelay => "synced-relay",
        })
    }
}

/// Starts brokers, each on a port of its own, so that no run meets connections of an earlier one that
/// are still in TIME_WAIT.
pub(crate) struct Launcher {
    heraldmq: PathBuf,
    mosquitto: PathBuf,
    next_port: u16,
    folder: PathBuf,
}

/// A broker that accepts connections; ends when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Launcher {
    pub(crate) fn new(heraldmq: &Path, mosquitto: &Path, first_port: u16) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("herald-compare-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            heraldmq: heraldmq.to_owned(),
            mosquitto: mosquitto.to_owned(),
            next_port: first_port,
            folder,
        })
    }

    pub(crate) fn start(&mut self, which: Which) -> Result<Running, Failure> {
        let port = self.free_port()?;
        let mut command = self.command(which, port)?;
        let log = self.folder.join(format!("{which}.log"));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .map_err(|error| {
                Failure::Start(format!("{}: {error}", command.get_program().display()))
            })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut running = Running { child, address };
        let deadline = Instant::now() + START_PATIENCE;
        while TcpStream::connect(address).is_err() {
            if running.child.try_wait()?.is_some() || Instant::now() > deadline {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(Failure::Start(format!(
                    "{which} does not listen: {}",
                    said.trim()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    fn free_port(&mut self) -> Result<u16, Failure> {
        while self.next_port < EPHEMERAL {
            let port = self.next_port;
            self.next_port += 1;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
        Err(Failure::Start("no port is left".to_owned()))
    }

    fn command(&self, which: Which, port: u16) -> io::Result<Command> {
        let config = self.folder.join(format!("{which}.conf"));
        Ok(match which {
            Which::Heraldmq => {
                std::fs::write(&config, heraldmq_config(port))?;
                // Sessions of an earlier round would get what this one publishes.
                let data = self.folder.join("data");
                match std::fs::remove_dir_all(&data) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                let mut command = Command::new(&self.heraldmq);
                command.arg("serve").arg("--config").arg(config);
                command.arg("--data-dir").arg(data);
                command
            }
            Which::Mosquitto => {
                std::fs::write(&config, mosquitto_config(port))?;
                let mut command = Command::new(&self.mosquitto);
                command.arg("-c").arg(config);
                command
            }
            Which::Relay => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("relay").arg(port.to_string());
                command
            }
            Which::SyncedRelay => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("relay").arg(port.to_string());
                command.arg("--journal").arg(self.folder.join("journal"));
                command
            }
        })
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // A temporary folder that stays behind harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Running {
    pub(crate) fn process(&self) -> Process {
        Process::new(self.child.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which the measurement has noticed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn heraldmq_config(port: u16) -> String {
    format!(
        "mqttServerConfig:\n  tcpListener:\n    host: 127.0.0.1\n    port: {port}\n\
         http:\n  port: 0\n\
         log:\n  level: warn\n\
         limits:\n  connection:\n    bytesPerSecondIn: 0\n    bytesPerSecondOut: 0\n\
         sys:\n  intervalSeconds: 0\n"
    )
}

fn mosquitto_config(port: u16) -> String {
    format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nsys_interval 0\n\
         set_tcp_nodelay true\nlog_dest stderr\nlog_type error\nlog_type warning\n"
    )
}
