//! Points in time as the session knows them.
//!
//! Deliberately absent: reading a clock. Every call that needs the time is given it.

/// Milliseconds of the server's clock: Unix time at the start of the process plus the monotonic
/// time since then. It never goes back, so differences are durations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This point plus `millis` milliseconds; the end of time if that is past it.
    #[must_use]
    pub const fn add_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// This point plus `secs` seconds; the end of time if that is past it.
    #[must_use]
    pub const fn add_secs(self, secs: u32) -> Self {
        self.add_millis(secs as u64 * 1_000)
    }

    /// Milliseconds from `earlier` to this point; 0 if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
