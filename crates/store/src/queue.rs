//! The queue between event loops and a shard: many put in, one takes out in batches.
//!
//! Invariant: [`RequestQueue::is_crowded`] becomes true before memory becomes a matter; whoever puts in
//! looks at it before it takes more work on. What is put in nevertheless is what was already begun.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Requests waiting, above which the queue is crowded.
const CROWDED: usize = 16 * 1024;

/// Bytes waiting, above which the queue is crowded.
const CROWDED_BYTES: usize = 16 << 20;

/// Work for one shard.
#[derive(Debug)]
pub(crate) struct RequestQueue<W> {
    waiting: Mutex<Waiting<W>>,
    bytes: AtomicUsize,
    len: AtomicUsize,
    more: Notify,
}

#[derive(Debug)]
struct Waiting<W> {
    work: VecDeque<(usize, W)>,
    /// The shard sleeps and has to be woken.
    asleep: bool,
}

impl<W> RequestQueue<W> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                work: VecDeque::new(),
                asleep: false,
            }),
            bytes: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            more: Notify::new(),
        }
    }

    /// Puts work in. `bytes`: what it holds in memory, about.
    pub(crate) fn put(&self, work: W, bytes: usize) {
        let mut waiting = self.waiting.lock();
        waiting.work.push_back((bytes, work));
        self.len.store(waiting.work.len(), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let wake = std::mem::take(&mut waiting.asleep);
        drop(waiting);
        if wake {
            self.more.notify_one();
        }
    }

    /// Takes work out while it is at most `limit` pieces and `bytes` bytes, but at least one piece.
    /// Each comes with its size. Waits until there is some.
    pub(crate) async fn take(&self, limit: usize, bytes: usize, out: &mut Vec<(usize, W)>) {
        loop {
            if self.try_take(limit, bytes, out) {
                return;
            }
            self.more.notified().await;
        }
    }

    /// False: there is nothing, and the next [`put`](Self::put) wakes the shard.
    fn try_take(&self, limit: usize, bytes: usize, out: &mut Vec<(usize, W)>) -> bool {
        let mut waiting = self.waiting.lock();
        let mut taken = 0;
        let mut count = 0;
        while count < limit
            && let Some((size, work)) = waiting
                .work
                .pop_front_if(|(size, _)| count == 0 || taken + *size <= bytes)
        {
            taken += size;
            count += 1;
            out.push((size, work));
        }
        waiting.asleep = count == 0;
        if waiting.work.is_empty() && waiting.work.capacity() > 1024 {
            waiting.work = VecDeque::new();
        }
        self.len.store(waiting.work.len(), Ordering::Relaxed);
        drop(waiting);
        self.bytes.fetch_sub(taken, Ordering::Relaxed);
        count > 0
    }

    /// Whether no more should be put in for now.
    pub(crate) fn is_crowded(&self) -> bool {
        self.len() > CROWDED || self.bytes.load(Ordering::Relaxed) > CROWDED_BYTES
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(queue: &RequestQueue<u32>, limit: usize, bytes: usize) -> Vec<u32> {
        let mut out = Vec::new();
        queue.try_take(limit, bytes, &mut out);
        out.into_iter().map(|(_, work)| work).collect()
    }

    #[test]
    fn batches_keep_the_order_and_both_limits() {
        let queue = RequestQueue::new();
        for n in 0..6 {
            queue.put(n, 10);
        }
        assert_eq!(take(&queue, 2, 1000), [0, 1]);
        assert_eq!(take(&queue, 10, 25), [2, 3]);
        // What is larger than a batch goes alone.
        assert_eq!(take(&queue, 10, 5), [4]);
        assert_eq!(take(&queue, 10, 5), [5]);
        assert_eq!(take(&queue, 10, 5), [0; 0]);
        assert_eq!(queue.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_queue_is_crowded_by_number_and_by_bytes() {
        let queue = RequestQueue::new();
        queue.put(0, CROWDED_BYTES + 1);
        assert!(queue.is_crowded());
        take(&queue, 1, 1);
        assert!(!queue.is_crowded());
        for _ in 0..=CROWDED {
            queue.put(0, 0);
        }
        assert!(queue.is_crowded());
    }

    #[tokio::test]
    async fn a_sleeping_shard_is_woken() {
        let queue = std::sync::Arc::new(RequestQueue::new());
        let other = std::sync::Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            while !other.waiting.lock().asleep {
                std::thread::yield_now();
            }
            other.put(7, 1);
        });
        let mut out = Vec::new();
        queue.take(1, 1, &mut out).await;
        assert_eq!(out, [(1, 7)]);
        thread.join().unwrap();
    }
}
