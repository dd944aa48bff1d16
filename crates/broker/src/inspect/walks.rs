//! Questions that look at many topics or queues of the stores: one after the other, and all of them together take a tenth of a core
//! of this node, whichever node asks.
//!
//! Invariant: whoever has had a turn has told what it has used, even if nobody waits for the answer any more.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use admin::{Debt, thread_cpu};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep, timeout_at};

use super::state::LEFT;

/// Who looks at many things now, and what is still to be paid for it.
#[derive(Debug, Default)]
pub(super) struct Walks(Arc<Mutex<Debt>>);

/// The right to look at many things.
pub(super) struct Walk {
    debt: OwnedMutexGuard<Debt>,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Walk")
    }
}

impl Walks {
    /// Waits for those before it and for what they have used to be paid. `None`: there would be no time left to look.
    pub(super) async fn begin(&self, deadline: Instant) -> Option<Walk> {
        let last = deadline.checked_sub(LEFT)?;
        let turn = timeout_at(last, Arc::clone(&self.0).lock_owned());
        let mut debt = turn.await.ok()?;
        let now = Instant::now();
        let wait = debt.add(now, Duration::ZERO);
        if now + wait > last {
            return None;
        }
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Some(Walk { debt })
    }
}

impl Walk {
    /// Looks, on a thread that may wait for the disk.
    pub(super) fn look<T>(mut self, look: impl FnOnce() -> T) -> T {
        let before = thread_cpu();
        let found = look();
        let spent = thread_cpu().saturating_sub(before);
        self.debt.add(Instant::now(), spent);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses CPU time of this thread.
    fn busy(time: Duration) {
        let before = thread_cpu();
        while thread_cpu().saturating_sub(before) < time {
            std::hint::spin_loop();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_come_one_after_the_other_and_wait_until_those_before_are_paid() {
        let walks = Walks::default();
        let start = Instant::now();
        let soon = start + Duration::from_secs(1);
        let first = walks.begin(soon).await.expect("nothing is to be paid");
        // Whoever has no time for the line does not look.
        assert!(walks.begin(soon).await.is_none());
        assert_eq!(start.elapsed(), Duration::from_secs(1) - LEFT);
        first.look(|| busy(Duration::from_millis(250)));
        // 250 ms less what is free and what the time has paid, ten times: more than is left for this one, less than for that one.
        let now = Instant::now();
        assert!(
            walks
                .begin(now + Duration::from_millis(300))
                .await
                .is_none()
        );
        assert_eq!(now.elapsed(), Duration::ZERO);
        let second = walks.begin(now + Duration::from_secs(5)).await;
        assert!(second.is_some() && now.elapsed() >= Duration::from_millis(400));
    }
}
