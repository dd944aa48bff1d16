//! The queue between event loops and a shard: many put in, one takes out in batches.
//!
//! Invariant: [`RequestQueue::is_over_limit`] becomes true before the queue holds much memory. Callers look at it before they
//! accept more work; what they put in nevertheless is work that had begun.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Requests waiting, above which the queue is over its limit.
///
/// Limit: requests waiting for a shard | {} or {QUEUE_BYTES} | publishers are not read
const QUEUE_REQUESTS: usize = 16 * 1024;

/// Bytes waiting, above which the queue is over its limit.
const QUEUE_BYTES: usize = 16 << 20;

/// How long patient work waits for company.
const PATIENCE: Duration = Duration::from_millis(20);

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
    /// Work that nobody waits for. It goes before the other, so that what is put in after it is done
    /// after it.
    patient: VecDeque<(usize, W)>,
    /// When the patient work is taken out even if it is all there is.
    due: Option<Instant>,
    /// Patient work was put in since the shard last began to wait: more is likely to follow what was taken out last.
    expects_patient: bool,
    shard: Shard,
    waits: Waits,
    /// `Some`: nothing is taken out yet. What is in it goes before all other work.
    gate: Option<Vec<(usize, W)>>,
}

/// How long pieces of work have waited, all together. Patient work, which is to wait, does not count.
#[derive(Debug)]
struct Waits {
    /// Until `since`.
    sum: Duration,
    /// When the queue was last looked at.
    since: Instant,
    /// How many waited then.
    len: usize,
}

impl Waits {
    /// So many pieces wait now: as many as then, or more, which have come one by one.
    fn look(&mut self, len: usize, now: Instant) {
        let time = now.saturating_duration_since(self.since);
        self.sum += time.mul_f64((self.len + len) as f64 / 2.0);
        self.leave(len, now);
    }

    /// So many pieces wait from now on.
    fn leave(&mut self, len: usize, now: Instant) {
        (self.since, self.len) = (now, len);
    }
}

/// What the shard does that takes work out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shard {
    /// It works.
    Awake,
    /// It waits for any work.
    Idle,
    /// It waits for work that is not patient, or until the patient work is due that is there or is expected.
    Patient,
}

/// What was found in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Work,
    Nothing,
    /// Only patient work, due at this time, or none yet, and then what comes is due at this time.
    Patient(Instant),
}

impl<W> RequestQueue<W> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                work: VecDeque::new(),
                patient: VecDeque::new(),
                due: None,
                expects_patient: false,
                shard: Shard::Awake,
                gate: None,
                waits: Waits {
                    sum: Duration::ZERO,
                    since: Instant::now(),
                    len: 0,
                },
            }),
            bytes: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            more: Notify::new(),
        }
    }

    /// Closes the gate: nothing is taken out until it is opened.
    pub(crate) fn close_gate(&self) {
        self.waiting.lock().gate.get_or_insert_default();
    }

    /// Whether the gate is closed.
    pub(crate) fn is_gated(&self) -> bool {
        self.waiting.lock().gate.is_some()
    }

    /// Opens the gate: first comes what was put in by [`put_at_gate`](Self::put_at_gate).
    pub(crate) fn open_gate(&self) {
        let mut waiting = self.waiting.lock();
        let first = waiting.gate.take().unwrap_or_default();
        waiting.put_first(first);
        let wake = waiting.shard != Shard::Awake;
        self.wake(waiting, 0, wake);
    }

    /// Puts work in that was given before all other that waits behind the gate; behind all other if the gate is open.
    pub(crate) fn put_at_gate(&self, work: W, bytes: usize) {
        let mut waiting = self.waiting.lock();
        if let Some(gate) = &mut waiting.gate {
            gate.push((bytes, work));
            self.wake(waiting, bytes, false);
        } else {
            self.put_last(waiting, work, bytes);
        }
    }

    /// Puts work in unless it belongs elsewhere: `belongs` is asked while nobody else puts work in. `is_patient`: it can
    /// wait for other work.
    ///
    /// # Errors
    /// It does not, and comes back.
    pub(crate) fn put_if(
        &self,
        work: W,
        bytes: usize,
        is_patient: bool,
        belongs: impl FnOnce() -> bool,
    ) -> Result<(), W> {
        let waiting = self.waiting.lock();
        match (belongs(), is_patient) {
            (false, _) => return Err(work),
            (true, true) => self.put_last_patient(waiting, work, bytes),
            (true, false) => self.put_last(waiting, work, bytes),
        }
        Ok(())
    }

    /// Changes what belongs here, and puts work in behind all that did before.
    pub(crate) fn put_behind(&self, work: W, change: impl FnOnce()) {
        let waiting = self.waiting.lock();
        change();
        self.put_last(waiting, work, 0);
    }

    /// Puts work in. `bytes`: what it holds in memory, about.
    pub(crate) fn put(&self, work: W, bytes: usize) {
        self.put_last(self.waiting.lock(), work, bytes);
    }

    fn put_last(&self, mut waiting: MutexGuard<'_, Waiting<W>>, work: W, bytes: usize) {
        waiting.work.push_back((bytes, work));
        let wake = waiting.shard != Shard::Awake;
        if wake {
            let len = waiting.work.len();
            waiting.waits.leave(len, Instant::now());
        }
        self.wake(waiting, bytes, wake);
    }

    /// How long requests have waited so far, all together, as far as they have been taken out; patient ones do not count.
    pub(crate) fn waited(&self) -> Duration {
        self.waiting.lock().waits.sum
    }

    /// Puts work in that is to be taken out with other work, or after a while: a batch of its own would
    /// cost a sync that nobody waits for.
    pub(crate) fn put_patient(&self, work: W, bytes: usize) {
        self.put_last_patient(self.waiting.lock(), work, bytes);
    }

    fn put_last_patient(&self, mut waiting: MutexGuard<'_, Waiting<W>>, work: W, bytes: usize) {
        waiting.patient.push_back((bytes, work));
        waiting.expects_patient = true;
        // So that it knows until when to wait.
        let wake = waiting.shard == Shard::Idle;
        self.wake(waiting, bytes, wake);
    }

    /// Puts work back in, before all other.
    pub(crate) fn put_first(&self, work: Vec<(usize, W)>) {
        let bytes = work.iter().map(|(bytes, _)| bytes).sum();
        let mut waiting = self.waiting.lock();
        waiting.put_first(work);
        let wake = waiting.shard != Shard::Awake;
        self.wake(waiting, bytes, wake);
    }

    /// Takes out what `is` selects, wherever it is.
    pub(crate) fn remove_if(&self, is: impl Fn(&W) -> bool) -> Vec<W> {
        let mut waiting = self.waiting.lock();
        let Waiting {
            work,
            patient,
            gate,
            ..
        } = &mut *waiting;
        let mut removed = Vec::new();
        removed.extend(
            gate.iter_mut()
                .flat_map(|gate| gate.extract_if(.., |(_, work)| is(work))),
        );
        for queue in [patient, work] {
            let (out, stays) = std::mem::take(queue)
                .into_iter()
                .partition(|(_, work)| is(work));
            *queue = stays;
            removed.extend::<VecDeque<_>>(out);
        }
        self.len.store(waiting.len(), Ordering::Relaxed);
        drop(waiting);
        let bytes = removed.iter().map(|(bytes, _)| bytes).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        removed.into_iter().map(|(_, work)| work).collect()
    }

    fn wake(&self, mut waiting: MutexGuard<'_, Waiting<W>>, bytes: usize, wake: bool) {
        self.len.store(waiting.len(), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if wake {
            waiting.shard = Shard::Awake;
        }
        drop(waiting);
        if wake {
            self.more.notify_one();
        }
    }

    /// Takes work out while it is at most `limit` pieces and `bytes` bytes, but at least one piece.
    /// Each comes with its size. Waits until there is some.
    pub(crate) async fn take(&self, limit: usize, bytes: usize, out: &mut Vec<(usize, W)>) {
        loop {
            match self.try_take(limit, bytes, Instant::now(), out) {
                Found::Work => return,
                Found::Nothing => self.more.notified().await,
                // Whichever comes first.
                Found::Patient(due) => drop(timeout_at(due, self.more.notified()).await),
            }
        }
    }

    /// What a shard would take out now.
    #[cfg(test)]
    pub(crate) fn take_now(&self, limit: usize, now: Instant) -> Vec<(usize, W)> {
        let mut out = Vec::new();
        self.try_take(limit, usize::MAX, now, &mut out);
        out
    }

    /// If there is nothing to be taken out, the next work wakes the shard.
    fn try_take(
        &self,
        limit: usize,
        bytes: usize,
        now: Instant,
        out: &mut Vec<(usize, W)>,
    ) -> Found {
        let mut waiting = self.waiting.lock();
        if waiting.gate.is_some() {
            waiting.shard = Shard::Idle;
            return Found::Nothing;
        }
        if waiting.work.is_empty() && waiting.patient.len() < limit && !waiting.patient.is_empty() {
            let due = *waiting.due.get_or_insert(now + PATIENCE);
            if now < due {
                waiting.shard = Shard::Patient;
                return Found::Patient(due);
            }
        }
        let len = waiting.work.len();
        waiting.waits.look(len, now);
        if len == 0 && !waiting.patient.is_empty() {
            // No message has come since: few do.
            waiting.expects_patient = false;
        }
        let mut taken = 0;
        let mut count = 0;
        while count < limit
            && let Some((size, work)) = waiting.pop_if(|size| count == 0 || taken + size <= bytes)
        {
            taken += size;
            count += 1;
            out.push((size, work));
        }
        let len = waiting.work.len();
        waiting.waits.leave(len, now);
        // The acknowledgement of a message comes shortly after the message. It would wake the shard only to have it wait
        // again, until the acknowledgement is due.
        if count == 0 && std::mem::take(&mut waiting.expects_patient) {
            let due = now + PATIENCE;
            waiting.due = Some(due);
            waiting.shard = Shard::Patient;
            return Found::Patient(due);
        }
        waiting.due = None;
        waiting.shard = if count == 0 {
            Shard::Idle
        } else {
            Shard::Awake
        };
        if waiting.work.is_empty() && waiting.work.capacity() > 1024 {
            waiting.work = VecDeque::new();
        }
        self.len.store(waiting.len(), Ordering::Relaxed);
        drop(waiting);
        self.bytes.fetch_sub(taken, Ordering::Relaxed);
        if count > 0 {
            Found::Work
        } else {
            Found::Nothing
        }
    }

    /// Whether no more should be put in for now.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.len() > QUEUE_REQUESTS || self.bytes.load(Ordering::Relaxed) > QUEUE_BYTES
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

impl<W> Waiting<W> {
    fn len(&self) -> usize {
        let at_gate = self.gate.as_ref().map_or(0, Vec::len);
        self.work.len() + self.patient.len() + at_gate
    }

    fn put_first(&mut self, work: Vec<(usize, W)>) {
        // Patient work goes before other, and this before both.
        while let Some(patient) = self.patient.pop_back() {
            self.work.push_front(patient);
        }
        for piece in work.into_iter().rev() {
            self.work.push_front(piece);
        }
    }

    /// The next piece, if there is one whose size fits.
    fn pop_if(&mut self, fits: impl Fn(usize) -> bool) -> Option<(usize, W)> {
        let next = if self.patient.is_empty() {
            &mut self.work
        } else {
            &mut self.patient
        };
        next.pop_front_if(|(size, _)| fits(*size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_is_gone_from_its_place_and_its_size() {
        let queue = RequestQueue::new();
        for number in 1..=4 {
            queue.put(number, 10);
        }
        queue.put_patient(5, 10);
        queue.put_patient(6, 10);
        assert_eq!(queue.remove_if(|number| number % 2 == 0), [6, 2, 4]);
        assert_eq!(queue.len(), 3);
        assert_eq!(queue.bytes.load(Ordering::Relaxed), 30);
        assert_eq!(take(&queue, 9, 1000), [5, 1, 3]);
    }

    fn take(queue: &RequestQueue<u32>, limit: usize, bytes: usize) -> Vec<u32> {
        let mut out = Vec::new();
        queue.try_take(limit, bytes, Instant::now(), &mut out);
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
    fn a_queue_is_over_its_limit_by_number_and_by_bytes() {
        let queue = RequestQueue::new();
        queue.put(0, QUEUE_BYTES + 1);
        assert!(queue.is_over_limit());
        take(&queue, 1, 1);
        assert!(!queue.is_over_limit());
        for _ in 0..=QUEUE_REQUESTS {
            queue.put(0, 0);
        }
        assert!(queue.is_over_limit());
    }

    #[test]
    fn patient_work_goes_with_other_work_and_before_it() {
        let queue = RequestQueue::new();
        queue.put_patient(1, 10);
        queue.put_patient(2, 10);
        assert_eq!(take(&queue, 10, 1000), [0; 0]);
        queue.put(3, 10);
        queue.put_patient(4, 10);
        assert_eq!(take(&queue, 10, 1000), [1, 2, 4, 3]);
    }

    #[test]
    fn patient_work_goes_alone_when_it_is_due_or_fills_a_batch() {
        let queue = RequestQueue::new();
        queue.put_patient(1, 10);
        let mut out = Vec::new();
        let now = Instant::now();
        let due = now + PATIENCE;
        let early = due - Duration::from_millis(1);
        assert_eq!(queue.try_take(10, 1000, now, &mut out), Found::Patient(due));
        assert_eq!(
            queue.try_take(10, 1000, early, &mut out),
            Found::Patient(due)
        );
        assert_eq!(queue.try_take(10, 1000, due, &mut out), Found::Work);
        assert_eq!(queue.try_take(10, 1000, due, &mut out), Found::Nothing);
        queue.put_patient(2, 10);
        queue.put_patient(3, 10);
        assert_eq!(queue.try_take(2, 1000, now, &mut out), Found::Work);
        assert_eq!(out, [(10, 1), (10, 2), (10, 3)]);
    }

    #[test]
    fn while_patient_work_comes_the_shard_waits_for_it_with_a_timer() {
        let queue = RequestQueue::new();
        let mut out = Vec::new();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        // A message, and its acknowledgement while the shard works.
        queue.put(1, 10);
        queue.put_patient(2, 10);
        assert_eq!(queue.try_take(10, 1000, at(0), &mut out), Found::Work);
        let due = at(0) + PATIENCE;
        assert_eq!(
            queue.try_take(10, 1000, at(0), &mut out),
            Found::Patient(due)
        );
        // The next acknowledgement does not wake it, and is taken out at the end of the wait.
        queue.put_patient(3, 10);
        assert_eq!(queue.waiting.lock().shard, Shard::Patient);
        assert_eq!(queue.try_take(10, 1000, due, &mut out), Found::Work);
        assert_eq!(out, [(10, 2), (10, 1), (10, 3)]);
        // It was alone: nothing more is expected, and the next one says from when on it waits.
        assert_eq!(queue.try_take(10, 1000, due, &mut out), Found::Nothing);
        queue.put_patient(4, 10);
        assert_eq!(queue.waiting.lock().shard, Shard::Awake);
        // Nor is anything after a wait in which nothing came.
        queue.put(5, 10);
        assert_eq!(queue.try_take(10, 1000, due, &mut out), Found::Work);
        let end = due + PATIENCE;
        assert_eq!(queue.try_take(10, 1000, due, &mut out), Found::Patient(end));
        assert_eq!(queue.try_take(10, 1000, end, &mut out), Found::Nothing);
        assert_eq!(queue.waiting.lock().shard, Shard::Idle);
    }

    #[test]
    fn what_waits_counts_from_when_it_was_put_in_until_it_is_taken_out() {
        let queue = RequestQueue::new();
        take(&queue, 9, 1000);
        // Idle: the time before the first request does not count.
        queue.put(1, 10);
        queue.put(2, 10);
        let begun = queue.waiting.lock().waits.since;
        let mut out = Vec::new();
        // The second one came some time after the first one.
        queue.try_take(1, 10, begun + Duration::from_secs(2), &mut out);
        assert_eq!(queue.waited(), Duration::from_secs(3));
        queue.put_patient(4, 10);
        queue.try_take(9, 1000, begun + Duration::from_secs(6), &mut out);
        assert_eq!(queue.waited(), Duration::from_secs(7));
        assert_eq!(out, [(10, 1), (10, 4), (10, 2)]);
    }

    #[test]
    fn what_comes_back_to_a_gate_goes_first_when_that_is_opened() {
        let queue = RequestQueue::new();
        queue.close_gate();
        queue.put(5, 10);
        queue.put_patient(4, 10);
        queue.put_at_gate(1, 10);
        queue.put_at_gate(2, 10);
        queue.put_at_gate(3, 10);
        assert_eq!(take(&queue, 10, 1000), [0; 0]);
        assert_eq!((queue.len(), queue.is_gated()), (5, true));
        assert_eq!(queue.remove_if(|number| *number == 2), [2]);
        queue.open_gate();
        assert_eq!(take(&queue, 10, 1000), [1, 3, 4, 5]);
        assert_eq!((queue.len(), queue.is_gated()), (0, false));
        assert_eq!(queue.bytes.load(Ordering::Relaxed), 0);
        queue.put_at_gate(6, 10);
        queue.put_at_gate(7, 10);
        assert_eq!(take(&queue, 10, 1000), [6, 7]);
    }

    #[test]
    fn what_belongs_elsewhere_comes_back() {
        let queue = RequestQueue::new();
        assert_eq!(queue.put_if(1, 10, false, || true), Ok(()));
        assert_eq!(queue.put_if(2, 10, false, || false), Err(2));
        let mut is_changed = false;
        queue.put_behind(9, || is_changed = true);
        assert!(is_changed);
        assert_eq!(queue.put_if(0, 10, true, || true), Ok(()));
        assert_eq!(take(&queue, 10, 1000), [0, 1, 9]);
    }

    #[tokio::test]
    async fn a_shard_that_sleeps_takes_patient_work_after_a_while() {
        let queue = std::sync::Arc::new(RequestQueue::new());
        let other = std::sync::Arc::clone(&queue);
        let shard = tokio::spawn(async move {
            let mut out = Vec::new();
            other.take(10, 100, &mut out).await;
            out
        });
        while queue.waiting.lock().shard != Shard::Idle {
            tokio::task::yield_now().await;
        }
        queue.put_patient(7, 3);
        assert_eq!(shard.await.unwrap(), [(3, 7)]);
    }

    #[tokio::test]
    async fn a_sleeping_shard_is_woken() {
        let queue = std::sync::Arc::new(RequestQueue::new());
        let other = std::sync::Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            while other.waiting.lock().shard != Shard::Idle {
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
