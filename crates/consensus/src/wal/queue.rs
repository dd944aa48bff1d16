//! What waits to be written, and which thread is to write it.
//!
//! The log's thread is woken for what is put in, but for what is held: a thread of a group puts that in and takes it out again
//! before it sleeps ([`Queue::take_held`]), or has the log's thread woken when it has something else to do
//! ([`Queue::hand_over`]). Something is held only while nothing else waits, so that it overtakes nothing and nothing waits
//! behind it without a thread that was woken: whatever is put in afterwards wakes the log's thread, which takes both.
//!
//! Invariants: requests are taken out in the order in which they were put in, also after [`Queue::put_back`]. After
//! [`Queue::close`] nothing is put in, and the log's thread is told of the end only when nothing waits.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::request::Request;

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Something waits that the log's thread was not woken for.
    is_held: AtomicBool,
    /// Threads of groups may write.
    lends_writer: AtomicBool,
    work: Condvar,
    #[cfg(feature = "simulation")]
    task: tokio::sync::Notify,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    closed: bool,
    /// The log's thread is to look at what there is to do.
    is_wanted: bool,
    thread: Thread,
}

/// What the log's thread does.
#[derive(Default)]
enum Thread {
    #[default]
    Works,
    /// It sleeps until it is woken, or until then.
    Sleeps(Option<Instant>),
}

impl Queue {
    /// Threads of groups may write from now on.
    pub(crate) fn lend_writer(&self) {
        self.lends_writer.store(true, Ordering::Release);
    }

    /// Puts a request in and wakes the log's thread, unless `may_hold` and nothing else waits: then the calling thread takes it
    /// out before it sleeps.
    ///
    /// # Errors
    /// The request itself, if the log is closed.
    pub(crate) fn put(&self, request: Request, may_hold: bool) -> Result<(), Request> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err(request);
        }
        let holds = may_hold
            && waiting.requests.is_empty()
            && !waiting.is_wanted
            && self.lends_writer.load(Ordering::Acquire);
        waiting.requests.push_back(request);
        if holds {
            self.is_held.store(true, Ordering::Release);
            return Ok(());
        }
        waiting.is_wanted = true;
        drop(waiting);
        self.notify();
        Ok(())
    }

    /// Leaves requests to the log's thread, before all others.
    pub(crate) fn put_back(&self, requests: Vec<Request>) {
        let mut waiting = self.waiting.lock();
        for request in requests.into_iter().rev() {
            waiting.requests.push_front(request);
        }
        waiting.is_wanted = true;
        drop(waiting);
        self.notify();
    }

    /// Whether something is held. Without a lock: it may have changed.
    pub(crate) fn holds(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Wakes the log's thread for what is held.
    pub(crate) fn hand_over(&self) {
        if self.holds() && self.is_held.swap(false, Ordering::AcqRel) {
            self.waiting.lock().is_wanted = true;
            self.notify();
        }
    }

    /// What is held and all that waits behind it, until it is `max_bytes`, for the calling thread to write. Nothing, if it is not
    /// held any more.
    pub(crate) fn take_held(&self, max_bytes: usize) -> Vec<Request> {
        if !self.is_held.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        self.waiting.lock().take(max_bytes)
    }

    /// What the log's thread writes next, until it is `max_bytes`. `None`: the log is closed and nothing waits.
    pub(crate) fn next(&self, max_bytes: usize) -> Option<Vec<Request>> {
        let mut waiting = self.waiting.lock();
        self.is_held.store(false, Ordering::Release);
        let requests = waiting.take(max_bytes);
        waiting.is_wanted = !waiting.requests.is_empty();
        (!waiting.closed || !requests.is_empty()).then_some(requests)
    }

    /// All that waits.
    pub(crate) fn take_all(&self) -> VecDeque<Request> {
        mem::take(&mut self.waiting.lock().requests)
    }

    /// The log's thread sleeps until it is wanted, or until then.
    pub(crate) fn sleep(&self, due: Option<Instant>) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_wanted && !waiting.closed {
            waiting.thread = Thread::Sleeps(due);
            match due {
                None => self.work.wait(&mut waiting),
                Some(due) => drop(self.work.wait_until(&mut waiting, due)),
            }
            waiting.thread = Thread::Works;
        }
    }

    /// Has the log's thread look what there is to do by then, if it sleeps longer, and at what still waits.
    pub(crate) fn expect(&self, due: Option<Instant>) {
        let mut waiting = self.waiting.lock();
        let comes_late = |due: Instant| match waiting.thread {
            Thread::Sleeps(Some(until)) => due < until,
            Thread::Sleeps(None) | Thread::Works => true,
        };
        if !waiting.requests.is_empty() || due.is_some_and(comes_late) {
            waiting.is_wanted = true;
            drop(waiting);
            self.notify();
        }
    }

    /// Nothing is put in from now on. The log's thread is woken.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.is_wanted = true;
        drop(waiting);
        self.notify();
    }

    /// Waits for this long, or until the log is closed, and says whether it is.
    pub(crate) fn closes_within(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        let mut waiting = self.waiting.lock();
        while !waiting.closed && !self.work.wait_until(&mut waiting, end).timed_out() {}
        waiting.closed
    }

    fn notify(&self) {
        self.work.notify_one();
        #[cfg(feature = "simulation")]
        self.task.notify_one();
    }

    /// As [`Queue::sleep`], for the log's task, which is woken by whatever is put in.
    #[cfg(feature = "simulation")]
    pub(crate) async fn notified(&self) {
        self.task.notified().await;
    }

    /// Whether the log's thread sleeps and nobody has woken it.
    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        let waiting = self.waiting.lock();
        matches!(waiting.thread, Thread::Sleeps(_)) && !waiting.is_wanted
    }
}

impl Waiting {
    fn take(&mut self, max_bytes: usize) -> Vec<Request> {
        let mut bytes = 0;
        let mut requests = Vec::new();
        while bytes < max_bytes
            && let Some(request) = self.requests.pop_front()
        {
            bytes += request.bytes();
            requests.push(request);
        }
        requests
    }
}
