//! The process: reads what it is for, and runs that.

use std::io;
use std::os::fd::AsFd as _;

use tokio::net::UnixStream;

use crate::command::Command;
use crate::lines::{Ended, Lines};
use crate::target::Connectors;
use crate::transfer::Transfer;
use crate::{inlet, worker};

/// Runs an outlet or an inlet until something ends it. `connectors`: the targets and sources that there are; `mqtt`: the connection to the node;
/// `control`: the node's lines, and for reports.
pub async fn run(connectors: &dyn Connectors, mqtt: UnixStream, control: UnixStream) -> Ended {
    let (lines, reports) = control.into_split();
    let mut lines = Lines::new(lines);
    let (transfer, is_paused, caution) = match lines.next().await {
        Ok(Some(Command::Begin {
            transfer,
            is_paused,
            caution,
        })) => (transfer, is_paused, caution),
        Ok(_) => return Ended::Asked,
        Err(error) => return Ended::Failed(error.to_string()),
    };
    match transfer {
        Transfer::Outlet(outlet) => match connectors.target(&outlet) {
            Ok(target) => {
                let begins = (is_paused, caution);
                worker::run(mqtt, target, outlet, begins, lines, reports).await
            }
            Err(why) => Ended::Failed(why),
        },
        Transfer::Inlet(inlet) => match connectors.source(&inlet) {
            Ok(source) => inlet::run(mqtt, (inlet, source), is_paused, lines, reports).await,
            Err(why) => Ended::Failed(why),
        },
    }
}

/// Runs the process that a node has started: its standard input is the connection to the node, its standard output is for
/// commands and reports.
#[must_use]
pub fn process(connectors: &dyn Connectors) -> Ended {
    let sockets = (|| {
        let mqtt = io::stdin().as_fd().try_clone_to_owned()?;
        let control = io::stdout().as_fd().try_clone_to_owned()?;
        let [mqtt, control] = [mqtt, control].map(std::os::unix::net::UnixStream::from);
        // What is no socket cannot speak in both directions; a person has started the process.
        for socket in [&mqtt, &control] {
            socket.local_addr()?;
            socket.set_nonblocking(true)?;
        }
        io::Result::Ok((mqtt, control))
    })();
    let (mqtt, control) = match sockets {
        Ok(sockets) => sockets,
        Err(error) => {
            return Ended::Failed(format!("only a node starts this command: {error}"));
        }
    };
    let works = async {
        match (UnixStream::from_std(mqtt), UnixStream::from_std(control)) {
            (Ok(mqtt), Ok(control)) => run(connectors, mqtt, control).await,
            (Err(error), _) | (_, Err(error)) => Ended::Failed(error.to_string()),
        }
    };
    match runtime() {
        Ok(runtime) => {
            let ended = runtime.block_on(works);
            // What a library does in a thread of its own ends with the process.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Ended::Failed(error.to_string()),
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Reaches the target of an outlet, or the source of an inlet, and says what it is, without messages. Waits for that.
///
/// # Errors
/// Why it cannot be reached.
pub fn probe(connectors: &dyn Connectors, transfer: &Transfer) -> Result<String, String> {
    let runtime = runtime().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        match transfer {
            Transfer::Outlet(outlet) => connectors.target(outlet)?.probe().await,
            Transfer::Inlet(inlet) => connectors.source(inlet)?.probe().await,
        }
    })
}

/// What is checked without reaching another system: URLs, templates, rules, and the files that are named.
///
/// # Errors
/// What is wrong.
pub fn check(connectors: &dyn Connectors, transfer: &Transfer) -> Result<(), String> {
    match transfer {
        Transfer::Outlet(outlet) => {
            outlet.rules.compile()?;
            connectors.target(outlet).map(|_| ())
        }
        Transfer::Inlet(inlet) => inlet::check(inlet, &*connectors.source(inlet)?),
    }
}
