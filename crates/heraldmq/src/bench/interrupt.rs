//! Signals that end a run in order, so that no worker, session or broker outlives it.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// What shells show for a program that a signal ended is 128 and the signal's number.
const SIGNALLED: i32 = 128;

/// Signals that ask for an end.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals within this time after the first one are the same wish: `timeout` sends SIGTERM to the process and to its
/// process group.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Whether somebody wants an end.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on, the first of these signals only sets it, and one that comes [`SAME_WISH`] or more later ends the
    /// program at once.
    pub(super) fn watch() -> Result<Self, Failure> {
        let interrupt = Self::default();
        let mut signals = Signals::new(ENDING).map_err(failed)?;
        let flag = Arc::clone(&interrupt.0);
        thread::spawn(move || {
            let mut first = None;
            for signal in signals.forever() {
                flag.store(true, Ordering::Relaxed);
                let since = first.get_or_insert_with(Instant::now).elapsed();
                if since >= SAME_WISH {
                    process::exit(SIGNALLED + signal);
                }
            }
        });
        Ok(interrupt)
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Has the first of these signals call `end`, on a thread of its own.
pub(super) fn on_end(end: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new(ENDING).map_err(failed)?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            end();
        }
    });
    Ok(())
}

/// From now on these signals do nothing. For workers: a terminal and `timeout` send signals to all processes of a run,
/// and workers end in order when their coordinator tells them to, or is gone.
pub(super) fn ignore() -> Result<(), Failure> {
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in ENDING {
        flag::register(signal, Arc::clone(&ignored)).map_err(failed)?;
    }
    Ok(())
}

fn failed(error: io::Error) -> Failure {
    Failure::Runtime(format!("cannot watch signals: {error}"))
}
