//! `heraldmq bench agent`, and the worker that it and `run` start.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process;
use std::time::Duration;

use loadtest::agent::{Agent, Hosted};
use loadtest::{endless, prepare_descriptors, worker};

use super::interrupt;
use crate::failure::{Failure, complain};

/// What makes a process a worker.
pub(super) const WORKER: [&str; 2] = ["bench", "worker"];

/// What makes a process a worker of clients without end.
pub(super) const CLIENTS: [&str; 2] = ["bench", "clients"];

/// How long the workers of an agent may take to end.
const END: Duration = Duration::from_secs(10);

/// Start workers on this machine for runs that other machines coordinate.
///
/// Anybody who knows the token can send load from this machine to any address, so an agent that other machines can
/// reach needs a token. The token is sent unencrypted.
#[derive(clap::Args)]
pub(super) struct Serve {
    /// Address that coordinators connect to.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9123")]
    listen: SocketAddr,
    /// The token that coordinators have to send.
    #[arg(
        long,
        env = "HERALDMQ_BENCH_TOKEN",
        hide_env_values = true,
        default_value = ""
    )]
    token: String,
    /// Maximum number of workers at a time.
    #[arg(long, default_value_t = 64)]
    max_workers: usize,
}

impl Serve {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if self.token.is_empty() && !self.listen.ip().is_loopback() {
            let message =
                "an agent that others can reach needs a --token (or HERALDMQ_BENCH_TOKEN)";
            return Err(Failure::Usage(message.to_owned()));
        }
        let failed = |error: io::Error| Failure::Runtime(format!("{}: {error}", self.listen));
        let program = std::env::current_exe().map_err(failed)?;
        let listener = TcpListener::bind(self.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        complain(&format!("agent ready on {address}"));
        let agent = Agent {
            token: self.token.clone(),
            workers: self.max_workers,
            program,
            arguments: WORKER.map(str::to_owned).to_vec(),
        };
        let hosted = Hosted::default();
        let ending = hosted.clone();
        interrupt::on_end(move || {
            ending.end(END);
            process::exit(0);
        })?;
        agent
            .serve(&hosted, &listener, |peer, said| {
                complain(&format!("{peer}: {said}"))
            })
            .map_err(failed)
    }
}

/// Is a worker on standard input and output.
pub(super) fn work() -> Result<(), Failure> {
    prepare()?;
    worker::run(io::stdin(), io::stdout().lock()).map_err(failed)
}

/// The same, for clients without end.
pub(super) fn work_without_end() -> Result<(), Failure> {
    prepare()?;
    endless::serve(io::stdin(), io::stdout().lock()).map_err(failed)
}

fn failed(error: io::Error) -> Failure {
    Failure::Runtime(format!("worker: {error}"))
}

fn prepare() -> Result<(), Failure> {
    interrupt::ignore()?;
    prepare_descriptors();
    Ok(())
}
