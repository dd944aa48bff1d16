//! How fast a run goes: it waits for sockets, and lets load through at a moderate rate.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Between two moments in which clients decide what to do next.
const MOMENT: Duration = Duration::from_millis(5);

/// When the next moment is.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Option<Instant>,
}

impl Pace {
    /// Whether it is time to decide again.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next.is_none_or(|next| next <= now);
        if is_due {
            self.next = Some(now + MOMENT);
        }
        is_due
    }
}

/// Waits until one of the sockets can be read, or for a moment.
pub(super) fn await_any<'a>(sockets: impl Iterator<Item = &'a TcpStream>) -> io::Result<()> {
    let mut sockets: Vec<PollFd<'_>> = sockets
        .map(|socket| PollFd::new(socket, PollFlags::IN))
        .collect();
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: MOMENT.as_nanos() as i64,
    };
    match poll(&mut sockets, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
