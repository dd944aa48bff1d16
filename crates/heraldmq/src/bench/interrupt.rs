//! Signals that end a run in order, so that no worker, session or broker outlives it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// What shells show for a program that a signal ended is 128 and the signal's number.
const SIGNALLED: i32 = 128;

/// Whether somebody wants an end.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on, the first of these signals only sets it, and the next one ends the program at once.
    pub(super) fn watch() -> Result<Self, Failure> {
        let interrupt = Self::default();
        let failed = |error: io::Error| Failure::Runtime(format!("cannot watch signals: {error}"));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let flag = || Arc::clone(&interrupt.0);
            flag::register_conditional_shutdown(signal, SIGNALLED + signal, flag())
                .map_err(failed)?;
            flag::register(signal, flag()).map_err(failed)?;
        }
        Ok(interrupt)
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
