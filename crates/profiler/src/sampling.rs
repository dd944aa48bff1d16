//! A profile from its beginning to its end.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::modules::{self, Module};
use crate::table::{Samples, Stack, Table, Thread};
use crate::{handler, system};

/// One at a time: the process has one timer.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Samples for each second of CPU time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Hertz(pub u32);

/// Why no sampling begins.
#[derive(Debug)]
pub enum Refused {
    /// Another one is under way.
    Busy,
    /// The system refuses, or `/proc` cannot be read.
    System(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another CPU profile of this process is under way"),
            Self::System(_) => f.write_str("the system gives no CPU profile"),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Busy => None,
            Self::System(error) => Some(error),
        }
    }
}

/// Where CPU time went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuProfile {
    /// How often.
    pub hertz: Hertz,
    /// How long was sampled.
    pub lasted: Duration,
    /// Samples in the stacks.
    pub samples: Samples,
    /// Samples that are in no stack: no place was free, a log was full, or there were too many stacks.
    pub lost: Samples,
    /// Threads that were seen, in the order of their identifiers.
    pub threads: Vec<Thread>,
    /// Files whose code the process runs.
    pub modules: Vec<Module>,
    /// What was seen, most often first; at most [`crate::MOST_STACKS`].
    pub stacks: Vec<Stack>,
}

/// A profile that is under way. When it is dropped, the timer stops and its memory is given back.
#[derive(Debug)]
pub struct CpuSampling {
    hertz: Hertz,
    begun: Instant,
    lost_before: Samples,
    modules: Vec<Module>,
    table: Table,
    _taken: Taken,
}

impl CpuSampling {
    /// Begins to take a sample of the threads that run, `hertz` times (1 to 1,000) for each second of CPU time. Reads the program and its
    /// libraries, which takes some 10 ms.
    ///
    /// # Errors
    /// A sampling is under way, or the system refuses.
    pub fn begin(hertz: Hertz) -> Result<Self, Refused> {
        let taken = Taken::take()?;
        let (modules, unwinder) = modules::loaded().map_err(Refused::System)?;
        system::install().map_err(Refused::System)?;
        handler::open(&Arc::new(unwinder));
        let hertz = Hertz(hertz.0.clamp(1, 1_000));
        let sampling = Self {
            hertz,
            begun: Instant::now(),
            lost_before: handler::lost(),
            modules,
            table: Table::default(),
            _taken: taken,
        };
        system::set_timer(1_000_000 / hertz.0).map_err(Refused::System)?;
        Ok(sampling)
    }

    /// Takes what the handler has noted. To be called each 100 ms: logs that are full lose samples.
    pub fn gather(&mut self) {
        handler::drain(|thread, addresses| self.table.add(thread, addresses));
    }

    /// Ends it.
    #[must_use]
    pub fn end(mut self) -> CpuProfile {
        // If it fails, dropping it fails too, and the handler finds no place.
        let _ = system::set_timer(0);
        self.gather();
        let lasted = self.begun.elapsed();
        let (samples, lost) = (self.table.samples, self.table.lost);
        let (threads, stacks) = self.table.finish(&self.modules);
        CpuProfile {
            hertz: self.hertz,
            lasted,
            samples,
            lost: Samples(lost.0 + handler::lost().0 - self.lost_before.0),
            threads,
            modules: self.modules,
            stacks,
        }
    }
}

/// The right to the timer and the places of the handler.
#[derive(Debug)]
struct Taken(());

impl Taken {
    fn take() -> Result<Self, Refused> {
        match IS_TAKEN.swap(true, Ordering::Acquire) {
            true => Err(Refused::Busy),
            false => Ok(Self(())),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // A timer that cannot be stopped finds no place in the handler.
        let _ = system::set_timer(0);
        handler::close();
        IS_TAKEN.store(false, Ordering::Release);
    }
}
