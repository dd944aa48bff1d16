//! What a thread of the store uses, and which of its shards causes it.
//!
//! The CPU time that is counted for a shard is that of making batches, applying and reading (`shard/load.rs`). As much again and
//! more goes into what its entries pass through: consensus, the hand-over to the log, timers, wake-ups. A thread knows what it
//! uses in all, and deals that to its shards in proportion to what was counted. On a machine with other work a thread gets less
//! CPU time than it could use: how busy it is is told by the time that it has waited for a core, too.
//!
//! Invariant: a window ends on the thread itself, once a second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::api::listener::Listener;
use crate::leadership::led_shards::LedShard;
use crate::shard::load::{LoadScale, WINDOWS};

/// The time of which a load is the mean of the last ones.
const LOAD_WINDOW: Duration = Duration::from_secs(1);

/// A shard gets so many times what was counted for it at most: shards with nothing to do cause timers, too.
const SCALE_MOST: f64 = 32.0;

/// The load of a thread.
#[derive(Default)]
pub(crate) struct ThreadLoad {
    shards: RwLock<Vec<Arc<dyn LedShard>>>,
    meter: Mutex<ThreadMeter>,
    /// The mean of the last windows, in ns per second.
    busy: AtomicU64,
    /// The same without the time of waiting.
    cpu: AtomicU64,
}

/// Makes windows out of readings.
#[derive(Default)]
struct ThreadMeter {
    last: Option<Reading>,
    windows: VecDeque<Used>,
}

/// What a thread has used, per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Used {
    cpu: Duration,
    /// CPU time and time of waiting for a core.
    busy: Duration,
}

/// What has been used up to a moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    /// By the thread.
    cpu: Duration,
    /// How long the thread has waited for a core.
    wait: Duration,
    /// For its shards, as counted.
    counted: Duration,
}

/// What a window shows.
#[derive(Clone, Copy, PartialEq, Debug)]
struct WindowEnd {
    scale: LoadScale,
    /// The mean of the last windows.
    mean: Used,
}

impl ThreadMeter {
    fn end_window(&mut self, reading: Reading) -> Option<WindowEnd> {
        let last = self.last.replace(reading)?;
        // A second that was late is a longer one.
        let seconds = reading.at.duration_since(last.at).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let cpu = reading.cpu.saturating_sub(last.cpu);
        let busy = cpu + reading.wait.saturating_sub(last.wait);
        let counted = reading.counted.saturating_sub(last.counted);
        let share = ratio(cpu, counted).clamp(1.0, SCALE_MOST);
        if self.windows.len() == WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back(Used {
            cpu: cpu.div_f64(seconds),
            busy: busy.div_f64(seconds),
        });
        let mean = |used: fn(&Used) -> Duration| {
            let sum: Duration = self.windows.iter().map(used).sum();
            sum / self.windows.len() as u32
        };
        Some(WindowEnd {
            scale: LoadScale {
                cpu: share / seconds,
                busy: ratio(busy, cpu).max(1.0),
            },
            mean: Used {
                cpu: mean(|used| used.cpu),
                busy: mean(|used| used.busy),
            },
        })
    }
}

/// 1 if there is nothing to compare with.
fn ratio(whole: Duration, part: Duration) -> f64 {
    if part.is_zero() {
        1.0
    } else {
        whole.as_secs_f64() / part.as_secs_f64()
    }
}

impl ThreadLoad {
    /// A shard lives on the thread from now on.
    pub(crate) fn add(&self, shard: Arc<dyn LedShard>) {
        self.shards.write().push(shard);
    }

    /// How many shards do.
    pub(crate) fn shards(&self) -> usize {
        self.shards.read().len()
    }

    /// The shards that do.
    pub(crate) fn all(&self) -> Vec<Arc<dyn LedShard>> {
        self.shards.read().clone()
    }

    /// CPU time and time of waiting for a core per second, the mean of the last ten; zero while it has no shards.
    pub(crate) fn busy(&self) -> Duration {
        self.mean(&self.busy)
    }

    /// The same without the time of waiting.
    pub(crate) fn cpu(&self) -> Duration {
        self.mean(&self.cpu)
    }

    fn mean(&self, of: &AtomicU64) -> Duration {
        match self.shards() {
            0 => Duration::ZERO,
            _ => Duration::from_nanos(of.load(Ordering::Relaxed)),
        }
    }

    /// Ends a window each second. To be run on the thread.
    pub(crate) async fn measure(self: Arc<Self>, listener: Arc<dyn Listener>) {
        let mut each = interval(LOAD_WINDOW);
        each.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            each.tick().await;
            let (cpu, wait) = (listener.thread_cpu(), listener.thread_wait());
            self.end_window(Instant::now(), cpu, wait);
        }
    }

    fn end_window(&self, at: Instant, cpu: Duration, wait: Duration) {
        let shards = self.all();
        let reading = Reading {
            at,
            cpu,
            wait,
            counted: shards.iter().map(|shard| shard.counted()).sum(),
        };
        if let Some(WindowEnd { scale, mean }) = self.meter.lock().end_window(reading) {
            for (kept, mean) in [(&self.busy, mean.busy), (&self.cpu, mean.cpu)] {
                let mean = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX);
                kept.store(mean, Ordering::Relaxed);
            }
            for shard in shards {
                shard.roll_load(scale);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings one after the other: ms of the clock, of the thread's CPU time, of its waiting, and of what was counted. Both
    /// scales, and the mean in ms.
    fn last_window(readings: &[(u64, u64, u64, u64)]) -> Option<(f64, f64, u128)> {
        let mut meter = ThreadMeter::default();
        let begun = Instant::now();
        let ms = Duration::from_millis;
        let ends = readings.iter().map(|(at, cpu, wait, counted)| {
            meter.end_window(Reading {
                at: begun + ms(*at),
                cpu: ms(*cpu),
                wait: ms(*wait),
                counted: ms(*counted),
            })
        });
        let WindowEnd { scale, mean } = ends.last().flatten()?;
        let rounded = |scale: f64| (scale * 100.0).round() / 100.0;
        Some((
            rounded(scale.cpu),
            rounded(scale.busy),
            mean.busy.as_millis(),
        ))
    }

    const NONE: (u64, u64, u64, u64) = (0, 0, 0, 0);

    #[test]
    fn shards_get_what_their_thread_uses() {
        assert_eq!(last_window(&[(0, 500, 0, 100)]), None);
        for (reading, cpu, mean) in [
            ((1_000, 300, 0, 100), 3.0, 300),
            // What was counted for a turn that is not over belongs to the next window: nothing is taken away.
            ((1_000, 90, 0, 100), 1.0, 90),
            ((1_000, 90, 0, 0), 1.0, 90),
            ((1_000, 90, 0, 1), 32.0, 90),
        ] {
            assert_eq!(last_window(&[NONE, reading]), Some((cpu, 1.0, mean)));
        }
    }

    #[test]
    fn a_thread_that_waits_for_a_core_is_busy() {
        let waited = last_window(&[NONE, (1_000, 300, 600, 100)]);
        assert_eq!(waited, Some((3.0, 3.0, 900)));
        let waited = last_window(&[NONE, (1_000, 0, 600, 0)]);
        assert_eq!(waited, Some((1.0, 1.0, 600)));
    }

    #[test]
    fn a_late_second_is_a_longer_one() {
        let late = last_window(&[NONE, (2_000, 600, 600, 100)]);
        assert_eq!(late, Some((3.0, 2.0, 600)));
        assert_eq!(last_window(&[(7, 0, 0, 0), (7, 600, 0, 100)]), None);
    }

    #[test]
    fn a_load_is_the_mean_of_the_last_ten_seconds() {
        let readings: Vec<_> = (0..=20)
            .map(|n: u64| (n * 1_000, n.saturating_sub(15) * 100, 0, 0))
            .collect();
        assert_eq!(last_window(&readings), Some((1.0, 1.0, 50)));
    }
}
