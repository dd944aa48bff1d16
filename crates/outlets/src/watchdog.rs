//! A thread that ends the process when something that runs in another thread takes too long.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How often it is looked.
const LOOKS: Duration = Duration::from_millis(200);

/// Counts what begins and ends: odd while something runs.
#[derive(Debug)]
pub(crate) struct Watchdog(Arc<AtomicU64>);

impl Watchdog {
    /// From now on the process ends with `exit` when it has taken `longest` of CPU time while one thing ran. All threads of the
    /// process count: beside the one that is watched they only wait for files.
    pub(crate) fn start(longest: Duration, exit: i32) -> io::Result<Self> {
        let changes = Arc::new(AtomicU64::new(0));
        let watched = Arc::clone(&changes);
        let watch = thread::Builder::new().name("watchdog".to_owned());
        watch.spawn(move || {
            look(&watched, longest);
            let seconds = longest.as_secs();
            // Standard error is the node's; if that takes nothing, the exit code says it.
            let _: io::Result<()> = writeln!(
                io::stderr(),
                "heraldmq: outlet: a rule has taken more than {seconds} s of CPU time for one message"
            );
            std::process::exit(exit);
        })?;
        Ok(Self(changes))
    }

    /// Runs something.
    pub(crate) fn watch<T>(&self, run: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        let result = run();
        self.0.fetch_add(1, Ordering::Relaxed);
        result
    }
}

/// Returns when one thing has run for too long.
fn look(changes: &AtomicU64, longest: Duration) {
    let mut before = (0, Duration::ZERO);
    loop {
        thread::sleep(LOOKS);
        let count = changes.load(Ordering::Relaxed);
        let now = cpu_time();
        if count.is_multiple_of(2) || count != before.0 {
            before = (count, now);
        } else if now.saturating_sub(before.1) > longest {
            return;
        }
    }
}

/// What the process has taken.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn only_one_thing_that_takes_long_is_too_long() {
        let changes = Arc::new(AtomicU64::new(0));
        let watched = Arc::clone(&changes);
        let looks = thread::spawn(move || look(&watched, Duration::from_millis(300)));
        let dog = Watchdog(changes);
        // Many short ones.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            dog.watch(|| std::hint::black_box(0));
            dog.watch(|| spin_until(Instant::now() + Duration::from_millis(20)));
        }
        assert!(!looks.is_finished());
        dog.watch(|| while !looks.is_finished() {});
        looks.join().unwrap();
    }

    fn spin_until(deadline: Instant) {
        while Instant::now() < deadline {}
    }
}
