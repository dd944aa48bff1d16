//! The clock that due times are told in, and a timer as fine as it.
//!
//! Deliberately absent: wall-clock time. Due times in payloads are compared only on the machine that
//! wrote them; all its processes share this clock.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

const NS_PER_S: u64 = 1_000_000_000;

/// CLOCK_MONOTONIC in ns.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Since boot, so never negative.
    now.tv_sec.unsigned_abs() * NS_PER_S + now.tv_nsec.unsigned_abs()
}

/// Wakes an epoll instance at a moment. epoll_wait(2) itself counts in ms, which would bunch up
/// messages that are due 100 µs apart.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Wakes those who poll with this registry, with this token.
    ///
    /// # Errors
    /// The kernel refused one.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Wakes once at `at_ns` of [`monotonic_ns`], at once if that is past; replaces an earlier moment.
    /// The descriptor is never read: it is watched for edges, and arming it anew clears it.
    ///
    /// # Errors
    /// The kernel refused the moment.
    pub fn arm(&self, at_ns: u64) -> io::Result<()> {
        let at_ns = at_ns.max(1);
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (at_ns / NS_PER_S).cast_signed(),
                tv_nsec: (at_ns % NS_PER_S).cast_signed(),
            },
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &value)?;
        Ok(())
    }
}
