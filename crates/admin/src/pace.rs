//! Lists give way to the load: all of them together take a part of a core, so that one who walks over a million sessions costs
//! clients nothing that they notice. The thread of the API keeps one account, for what it does itself; each node keeps another one,
//! for what it looks up for others.
//!
//! Invariant: a debt is paid by waiting before the next list, never by an answer that is shorter. Look-ups of one thing do not
//! wait.

use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep};

/// Lists may use one second of CPU time in so many.
const PART: u32 = 10;

/// CPU time that may be used at once before anybody waits: some tens of pages.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The longest wait, well within the time for a request.
const LONGEST: Duration = Duration::from_secs(1);

/// How far ahead of its part the thread of the API is.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Account>);

#[derive(Debug, Default)]
struct Account {
    debt: Debt,
    /// What the thread has used so far.
    used: Option<Duration>,
}

impl Account {
    /// How long the next list waits. `cpu`: what the thread has used so far.
    fn wait(&mut self, now: Instant, cpu: Duration) -> Duration {
        let used = self.used.replace(cpu).unwrap_or(cpu);
        self.debt.add(now, cpu.saturating_sub(used))
    }
}

/// CPU time that was used beyond a tenth of a core and is not paid.
#[derive(Debug, Default)]
pub struct Debt {
    last: Option<Instant>,
    unpaid: Duration,
}

impl Debt {
    /// Adds CPU time that was used until now. How long the next list waits therefore: 1 s at most; what it would have to wait for
    /// longer is forgiven.
    pub fn add(&mut self, now: Instant, spent: Duration) -> Duration {
        let before = self.last.replace(now).unwrap_or(now);
        let paid = now.saturating_duration_since(before) / PART;
        // Other questions count too; what they use must not delay lists for longer than a moment after them.
        let most = AT_ONCE + LONGEST / PART;
        self.unpaid = (self.unpaid + spent).saturating_sub(paid).min(most);
        let over = self.unpaid.saturating_sub(AT_ONCE);
        over * PART
    }
}

/// The CPU time that the calling thread has used so far. One system call.
#[must_use]
pub fn thread_cpu() -> Duration {
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(cpu.tv_nsec).unwrap_or(0);
    Duration::new(cpu.tv_sec.unsigned_abs(), nanoseconds)
}

impl Pace {
    /// Waits until a list may be read. On the thread that reads lists.
    pub(crate) async fn wait(&self) {
        let wait = self.0.lock().wait(Instant::now(), thread_cpu());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_more_than_a_part_waits_until_it_is_paid() {
        let mut account = Account::default();
        let start = Instant::now();
        let ms = Duration::from_millis;
        // At, CPU time so far, wait; in ms.
        for (at, cpu, wait) in [
            (0, 5_000, 0),
            // Some pages at once are free,
            (90, 5_090, 0),
            (120, 5_120, 80),
            // then the part is kept,
            (200, 5_120, 0),
            (210, 5_130, 90),
            (300, 5_130, 0),
            // and a long time pays all, but is not saved up.
            (100_000, 5_130, 0),
            (100_000, 5_260, 300),
            (100_000, 9_000, 1_000),
            // What is more than the longest wait is forgiven.
            (101_000, 9_000, 0),
        ] {
            let waits = account.wait(start + ms(at), ms(cpu));
            assert_eq!(waits, ms(wait), "at {at}");
        }
    }
}
