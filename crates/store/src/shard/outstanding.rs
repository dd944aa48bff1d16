//! Requests that were sent to the node that leads a shard, until they are answered.
//!
//! Invariants: requests are retried in the order in which they were put in; each is answered once.
//!
//! Deliberately absent: time limits; the caller passes times and decides what has timed out.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Work for one shard, on its way to another node.
#[derive(Debug)]
pub(crate) struct Outstanding<W> {
    next: u64,
    work: BTreeMap<u64, Sent<W>>,
    bytes: usize,
}

/// One piece of it.
#[derive(Debug)]
pub(crate) struct Sent<W> {
    pub(crate) bytes: usize,
    pub(crate) since: Instant,
    pub(crate) work: W,
}

impl<W> Outstanding<W> {
    pub(crate) fn new() -> Self {
        Self {
            next: 1,
            work: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Bytes that it holds in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.work.len()
    }

    /// Puts work in; returns the number that it is answered under.
    pub(crate) fn put(&mut self, work: W, bytes: usize, now: Instant) -> u64 {
        let id = self.next;
        self.next += 1;
        self.bytes += bytes;
        let sent = Sent {
            bytes,
            since: now,
            work,
        };
        self.work.insert(id, sent);
        id
    }

    /// What was put in under a number.
    pub(crate) fn get(&self, id: u64) -> Option<&Sent<W>> {
        self.work.get(&id)
    }

    /// An answer has come; `None`: the request was answered before, has timed out, or was requeued.
    pub(crate) fn answered(&mut self, id: u64) -> Option<Sent<W>> {
        let sent = self.work.remove(&id)?;
        self.bytes -= sent.bytes;
        Some(sent)
    }

    /// Changes all of it, in place.
    pub(crate) fn change(&mut self, change: impl Fn(W) -> W) {
        let change = |(id, sent): (u64, Sent<W>)| {
            let Sent { bytes, since, work } = sent;
            let work = change(work);
            (id, Sent { bytes, since, work })
        };
        self.work = std::mem::take(&mut self.work)
            .into_iter()
            .map(change)
            .collect();
    }

    /// All of it, in order, to be sent again.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Sent<W>)> {
        self.work.iter().map(|(id, sent)| (*id, sent))
    }

    /// Takes out, in order, what `take` selects.
    pub(crate) fn take(&mut self, take: impl Fn(&Sent<W>) -> bool) -> Vec<Sent<W>> {
        let taken: Vec<_> = self.work.extract_if(.., |_, sent| take(sent)).collect();
        self.bytes -= taken.iter().map(|(_, sent)| sent.bytes).sum::<usize>();
        taken.into_iter().map(|(_, sent)| sent).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_not_answered_is_sent_again_in_order() {
        let mut outstanding = Outstanding::new();
        let now = Instant::now();
        let ids: Vec<_> = ["a", "b", "c"].map(|w| outstanding.put(w, 10, now)).into();
        assert_eq!(
            outstanding.answered(ids[1]).map(|sent| sent.work),
            Some("b")
        );
        assert!(outstanding.answered(ids[1]).is_none());
        let again: Vec<_> = outstanding
            .iter()
            .map(|(id, sent)| (id, sent.work))
            .collect();
        assert_eq!(again, [(ids[0], "a"), (ids[2], "c")]);
        assert_eq!((outstanding.len(), outstanding.bytes()), (2, 20));
    }

    #[test]
    fn what_is_too_old_is_taken_out() {
        let mut outstanding = Outstanding::new();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        outstanding.put("old", 1, now);
        let young = outstanding.put("young", 2, later);
        let taken = outstanding.take(|sent| sent.since < later);
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].work, "old");
        assert_eq!(outstanding.bytes(), 2);
        assert_eq!(
            outstanding.answered(young).map(|sent| sent.work),
            Some("young")
        );
    }
}
