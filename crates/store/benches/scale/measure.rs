//! What a piece of work took: time, CPU time without that of the benchmark itself, bytes written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use host::Process;

use store::Store;

/// What was used when a piece of work began.
pub(crate) struct Meter {
    begin: Instant,
    cpu: Duration,
    written: u64,
}

/// What a piece of work used.
pub(crate) struct Used {
    pub(crate) time: Duration,
    /// Of all threads but the one that asks.
    pub(crate) cpu: Duration,
    /// Bytes that the process has written to disks.
    pub(crate) written: u64,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self {
            begin: Instant::now(),
            cpu: store_cpu(),
            written: written(),
        }
    }

    pub(crate) fn used(&self) -> Used {
        Used {
            time: self.begin.elapsed(),
            cpu: store_cpu().saturating_sub(self.cpu),
            written: written() - self.written,
        }
    }
}

impl Used {
    /// CPU time for each of so many things, in µs.
    pub(crate) fn cpu_each(&self, count: u64) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / count as f64
    }

    pub(crate) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.time.as_secs_f64()
    }
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

/// CPU time of the process without that of this thread.
fn store_cpu() -> Duration {
    let all = Process::own().cpu().expect("/proc").total();
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("/proc");
    let own = text.split(' ').next().and_then(|ns| ns.parse().ok());
    all.saturating_sub(Duration::from_nanos(own.expect("nanoseconds")))
}

fn written() -> u64 {
    let text = fs::read_to_string("/proc/self/io").expect("/proc");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok())
        .expect("bytes")
}

/// Resident memory, when the allocator has given back what it does not use.
pub(crate) fn memory() -> u64 {
    let mut least = u64::MAX;
    loop {
        let now = Process::own().resident_bytes().expect("/proc");
        if now >= least {
            return least;
        }
        least = now;
        std::thread::sleep(Duration::from_millis(1_500));
    }
}

/// The most memory that was ever resident.
pub(crate) fn peak_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.expect("KiB") * 1024
}

/// Bytes that a folder takes on the disk.
pub(crate) fn disk(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // Deleted meanwhile.
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

/// The same of the log and of the tables of a store.
pub(crate) struct Disk {
    pub(crate) log: u64,
    pub(crate) tables: u64,
}

impl Disk {
    pub(crate) fn of(folder: &Path) -> Self {
        let log = disk(&folder.join("log"));
        Self {
            log,
            tables: disk(folder) - log,
        }
    }
}

pub(crate) fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Looks at the shards all the time, as event loops do, and notes how long that took at most.
pub(crate) struct Probe {
    longest: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    pub(crate) fn start(store: &Arc<Store>) -> Self {
        let (longest, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (note, stopped, store) = (Arc::clone(&longest), Arc::clone(&stop), Arc::clone(store));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let begin = Instant::now();
                std::hint::black_box(store.stats(mqtt_session::Timestamp(0)));
                note.fetch_max(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            longest,
            stop,
            thread: Some(thread),
        }
    }

    /// The longest look since the last call, in ms.
    pub(crate) fn longest_ms(&self) -> f64 {
        self.longest.swap(0, Ordering::Relaxed) as f64 / 1e3
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the probe does not panic");
        }
    }
}
