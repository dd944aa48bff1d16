//! The broker's clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds that start as Unix time and then only follow the monotonic clock: comparable across
/// restarts, and never set back by an adjustment of the system's time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    unix_us_at_start: u64,
    started: Instant,
}

impl Clock {
    /// Starts the clock from the system's time.
    #[must_use]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            unix_us_at_start: u64::try_from(since_epoch.as_micros()).unwrap_or(0),
            started: Instant::now(),
        }
    }

    /// The time in ms.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1_000
    }

    /// The time in µs.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.unix_us_at_start + u64::try_from(self.started.elapsed().as_micros()).unwrap_or(0)
    }

    /// The system's time in seconds since 1970-01-01 UTC: as it is set, and with the time that the machine slept.
    /// For what others have agreed on by their clocks, such as the end of a token.
    #[must_use]
    pub fn system_s() -> u64 {
        Self::system_ms() / 1_000
    }

    /// The same in ms.
    #[must_use]
    pub fn system_ms() -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        u64::try_from(since_epoch.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
    }

    /// The time in ms since the clock was started.
    #[must_use]
    pub fn uptime_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(0)
    }
}
