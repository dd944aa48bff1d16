//! What the threads of a process use, from /proc/pid/task.
//!
//! Deliberately absent: threads that end while they are read; they are left out.

use std::fs;
use std::io;
use std::time::Duration;

use super::{Cpu, Process, Stat};

/// The number that the kernel has for a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

/// How often a thread gave up its core to wait for something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Waits(pub u64);

/// A thread, and what it has used since it started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadUsage {
    /// Which.
    pub id: ThreadId,
    /// Its name, which the kernel cuts off after 15 bytes.
    pub name: String,
    /// CPU time in user mode and in the kernel, in steps of a clock tick (mostly 10 ms).
    pub cpu: Cpu,
    /// Both together, in ns; `None`: the kernel does not say.
    pub ran: Option<Duration>,
    /// Time that it could run and had no core; `None`: the kernel does not say.
    pub had_no_core: Option<Duration>,
    /// `None`: the kernel does not say.
    pub waits: Option<Waits>,
}

impl Process {
    /// Its threads, in the order of their identifiers. Some 30 µs for each.
    ///
    /// # Errors
    /// The process has ended ([`io::ErrorKind::NotFound`]), or /proc cannot be read.
    pub fn threads(&self) -> io::Result<Vec<ThreadUsage>> {
        let mut threads = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| name.parse().ok());
            threads.extend(id.and_then(|id| self.thread(ThreadId(id))));
        }
        threads.sort_by_key(|thread| thread.id);
        Ok(threads)
    }

    /// `None`: it has ended.
    fn thread(&self, id: ThreadId) -> Option<ThreadUsage> {
        let read = |file: &str| {
            let bytes = fs::read(format!("/proc/{}/task/{}/{file}", self.pid(), id.0)).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let stat = Stat::parse(&read("stat")?)?;
        let (ran, had_no_core) = read("schedstat").and_then(|text| schedule(&text)).unzip();
        Some(ThreadUsage {
            id,
            name: read("comm")?.trim_end_matches('\n').to_owned(),
            cpu: stat.own,
            ran,
            had_no_core,
            waits: read("status").and_then(|text| waits(&text)),
        })
    }
}

/// Time on a core and time without one, of the text of `schedstat`.
fn schedule(text: &str) -> Option<(Duration, Duration)> {
    let mut fields = text.split_whitespace();
    let mut next = || Some(Duration::from_nanos(fields.next()?.parse().ok()?));
    Some((next()?, next()?))
}

/// Of the text of `status`.
fn waits(text: &str) -> Option<Waits> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok().map(Waits)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn files_are_read_as_in_proc() {
        let ns = Duration::from_nanos;
        assert_eq!(schedule("1500 20 7\n"), Some((ns(1_500), ns(20))));
        assert_eq!(schedule("1500\n"), None);
        assert_eq!(schedule("-1 x\n"), None);
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(waits(status), Some(Waits(42)));
        assert_eq!(waits("Name:\ta\n"), None);
    }

    #[test]
    fn a_thread_is_listed_by_its_name_until_it_ends() {
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let named = thread::Builder::new().name("a (b) c".into());
        let worker = named.spawn(move || {
            begin.send(()).unwrap();
            ended.recv()
        });
        begun.recv().unwrap();
        let is_listed = || {
            let threads = Process::own().threads().unwrap();
            assert!(threads.is_sorted_by_key(|thread| thread.id));
            threads.iter().any(|thread| thread.name == "a (b) c")
        };
        assert!(is_listed());
        drop(end);
        assert!(worker.unwrap().join().unwrap().is_err());
        // The kernel takes the entry away in a moment after the thread has ended.
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while is_listed() {
            assert!(std::time::Instant::now() < deadline);
            thread::yield_now();
        }
    }
}
