//! Lists give way to the load: all of them together take a part of a core, so that one who walks over a million sessions costs
//! clients nothing that they notice.
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
    last: Option<(Instant, Duration)>,
    /// CPU time that was used and is not paid.
    debt: Duration,
}

impl Account {
    /// How long the next list waits. `cpu`: what the thread has used so far.
    fn wait(&mut self, now: Instant, cpu: Duration) -> Duration {
        let (before, used) = self.last.replace((now, cpu)).unwrap_or((now, cpu));
        let paid = now.saturating_duration_since(before) / PART;
        let spent = cpu.saturating_sub(used);
        // Other questions count too; what they use must not delay lists for longer than a moment after them.
        let most = AT_ONCE + LONGEST / PART;
        self.debt = (self.debt + spent).saturating_sub(paid).min(most);
        let over = self.debt.saturating_sub(AT_ONCE);
        over * PART
    }
}

impl Pace {
    /// Waits until a list may be read. On the thread that reads lists.
    pub(crate) async fn wait(&self) {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::new(
            cpu.tv_sec.unsigned_abs(),
            u32::try_from(cpu.tv_nsec).unwrap_or(0),
        );
        let wait = self.0.lock().wait(Instant::now(), cpu);
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
