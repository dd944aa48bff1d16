//! The events that are kept: the last ones, and of those before them what happened to nodes and shards.
//!
//! Clients can make as many events as they like; they push each other out, and nothing of the cluster.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use admin::api::EventKind;
use mqtt_session::Timestamp;

use super::Event;

/// Events that are kept.
pub(super) const EVENTS: usize = 16_384;

/// Bytes of texts in them that are kept: clients choose how long their identifiers are.
pub(super) const BYTES: usize = 8 * 1024 * 1024;

/// Events of nodes and shards that are kept for longer.
pub(super) const OF_CLUSTER: usize = 1_024;

/// Bytes of texts in these that are kept: nodes tell each other their names.
const OF_CLUSTER_BYTES: usize = 1024 * 1024;

/// Which events somebody reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    All,
    /// Only those of nodes and shards.
    OfCluster,
}

impl Wanted {
    /// `kinds`: those that are read; empty: all.
    pub(crate) fn of(kinds: &[EventKind]) -> Self {
        match !kinds.is_empty() && kinds.iter().all(|kind| is_of_cluster(*kind)) {
            true => Self::OfCluster,
            false => Self::All,
        }
    }
}

fn is_of_cluster(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::NodeState
            | EventKind::AlarmRaised
            | EventKind::AlarmCleared
            | EventKind::ShardLeader
            | EventKind::ShardSplit
            | EventKind::ShardMoved
    )
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Those of the last events.
    numbers: Range<u64>,
    events: VecDeque<Kept>,
    bytes: usize,
    /// Those before them of nodes and shards, with their numbers.
    of_cluster: VecDeque<(u64, Kept)>,
    of_cluster_bytes: Bytes,
    /// From this number on none of these is lost.
    of_cluster_start: Number,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Number(u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Bytes(usize);

#[derive(Debug)]
struct Kept {
    event: Arc<Event>,
    /// The latest time of this event and of those before it. It never falls, while threads may add events out of order.
    latest: Timestamp,
}

impl Ring {
    pub(super) fn push(&mut self, event: Event) {
        self.bytes += event.bytes();
        let before = self.events.back().map(|kept| kept.latest);
        self.events.push_back(Kept {
            latest: before.map_or(event.at, |before| before.max(event.at)),
            event: Arc::new(event),
        });
        self.numbers.end += 1;
        while self.events.len() > EVENTS || self.bytes > BYTES {
            let oldest = self.events.pop_front().expect("what is too much is there");
            self.bytes -= oldest.event.bytes();
            let number = self.numbers.start;
            self.numbers.start += 1;
            if is_of_cluster(oldest.event.kind) {
                self.keep_longer(number, oldest);
            }
        }
    }

    fn keep_longer(&mut self, number: u64, kept: Kept) {
        self.of_cluster_bytes.0 += kept.event.bytes();
        self.of_cluster.push_back((number, kept));
        while self.of_cluster.len() > OF_CLUSTER || self.of_cluster_bytes.0 > OF_CLUSTER_BYTES {
            let lost = self.of_cluster.pop_front();
            let (number, kept) = lost.expect("what is too much is there");
            self.of_cluster_bytes.0 -= kept.event.bytes();
            self.of_cluster_start = Number(number + 1);
        }
    }

    /// The numbers of the last events.
    pub(super) fn numbers(&self) -> Range<u64> {
        self.numbers.clone()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The events from a number on, or from the first one from which on all that are wanted are kept; and that number. Among them may
    /// be others than those wanted.
    pub(super) fn from(
        &self,
        from: u64,
        limit: usize,
        wanted: Wanted,
    ) -> (u64, Vec<(u64, Arc<Event>)>) {
        let start = match wanted {
            Wanted::All => self.numbers.start,
            Wanted::OfCluster => self.of_cluster_start.0,
        };
        // A number that was not given yet is of another process.
        let first = from.clamp(start, self.numbers.end);
        let older = self
            .of_cluster
            .partition_point(|(number, _)| *number < first);
        let older = self.of_cluster.iter().skip(older);
        let older = older.map(|(number, kept)| (*number, kept));
        let skipped = first.saturating_sub(self.numbers.start);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let last = (self.numbers.start..).zip(&self.events).skip(skipped);
        let events = older.chain(last).take(limit);
        let events = events.map(|(number, kept)| (number, Arc::clone(&kept.event)));
        (first, events.collect())
    }

    pub(super) fn first_since(&self, time: Timestamp, wanted: Wanted) -> u64 {
        // The first event that raises `latest` to the time is the first one that did not happen before it.
        let is_before = |kept: &Kept| kept.latest < time;
        if wanted == Wanted::OfCluster {
            let before = self.of_cluster.partition_point(|(_, kept)| is_before(kept));
            if let Some((number, _)) = self.of_cluster.get(before) {
                return *number;
            }
        }
        let before = self.events.partition_point(is_before);
        self.numbers.start + before as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_of_the_cluster_take_a_bounded_number_of_bytes() {
        let mut ring = Ring::default();
        let event = |kind, detail: Option<Box<str>>| Event {
            detail,
            ..Event::new(kind, 0)
        };
        for _ in 0..OF_CLUSTER {
            let detail = "x".repeat(OF_CLUSTER_BYTES / 100);
            ring.push(event(EventKind::NodeState, Some(detail.into())));
        }
        for _ in 0..EVENTS {
            ring.push(event(EventKind::ClientConnected, None));
        }
        let (first, kept) = ring.from(0, OF_CLUSTER, Wanted::OfCluster);
        let texts = kept.iter().filter(|(_, event)| event.detail.is_some());
        let texts = texts.count();
        assert!((90..100).contains(&texts), "{texts}");
        // Who wants all of them learns that the others are gone.
        assert_eq!(first, (OF_CLUSTER - texts) as u64);
    }

    #[test]
    fn who_reads_nothing_of_clients_reads_what_is_kept_longer() {
        let of = [
            (&[][..], Wanted::All),
            (&[EventKind::NodeState], Wanted::OfCluster),
            (
                &[EventKind::NodeState, EventKind::ClientConnected],
                Wanted::All,
            ),
        ];
        for (kinds, wanted) in of {
            assert_eq!(Wanted::of(kinds), wanted, "{kinds:?}");
        }
    }
}
