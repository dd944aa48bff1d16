//! The events that are kept: the last ones, and of those before them what happened to nodes and shards, who changed something by
//! the API, and who was denied something.
//!
//! Clients can make as many events as they like; they push each other out, and nothing of the cluster and of changes. What they are
//! denied has a reserve of its own.

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

/// Events of one reserve that are kept for longer.
pub(super) const RESERVED: usize = 1_024;

/// Bytes of texts in these that are kept: nodes tell each other their names, clients name topics.
const RESERVED_BYTES: usize = 1024 * 1024;

/// Which events somebody reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    All,
    /// Only those of these reserves.
    Only(Reserves),
}

/// Some of the reserves, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reserves([bool; Reserve::ALL]);

impl Wanted {
    /// `kinds`: those that are read; empty: all.
    pub(crate) fn of(kinds: &[EventKind]) -> Self {
        let mut reserves = Reserves::default();
        for kind in kinds {
            match Reserve::of(*kind) {
                Some(of) => reserves.0[of as usize] = true,
                None => return Self::All,
            }
        }
        match kinds {
            [] => Self::All,
            _ => Self::Only(reserves),
        }
    }
}

/// Where events are kept for longer than those of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reserve {
    /// Of nodes and shards.
    Cluster,
    /// Changes by the API.
    Changes,
    /// What clients were denied.
    Denied,
}

impl Reserve {
    const ALL: usize = 3;

    fn of(kind: EventKind) -> Option<Self> {
        match kind {
            EventKind::NodeState
            | EventKind::AlarmRaised
            | EventKind::AlarmCleared
            | EventKind::ShardLeader
            | EventKind::ShardSplit
            | EventKind::ShardMoved => Some(Self::Cluster),
            EventKind::ApiChange => Some(Self::Changes),
            EventKind::RightDenied => Some(Self::Denied),
            _ => None,
        }
    }
}

/// The events of a reserve that are none of the last ones any more, with their numbers.
#[derive(Debug, Default)]
struct Reserved {
    events: VecDeque<(u64, Kept)>,
    bytes: Bytes,
    /// From this number on none is lost.
    start: Number,
}

impl Reserved {
    fn push(&mut self, number: u64, kept: Kept) {
        self.bytes.0 += kept.event.bytes();
        self.events.push_back((number, kept));
        while self.events.len() > RESERVED || self.bytes.0 > RESERVED_BYTES {
            let lost = self.events.pop_front();
            let (number, kept) = lost.expect("what is too much is there");
            self.bytes.0 -= kept.event.bytes();
            self.start = Number(number + 1);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Those of the last events.
    numbers: Range<u64>,
    events: VecDeque<Kept>,
    bytes: usize,
    /// Those before them, by their reserve.
    reserved: [Reserved; Reserve::ALL],
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
            if let Some(reserve) = Reserve::of(oldest.event.kind) {
                self.reserved[reserve as usize].push(number, oldest);
            }
        }
    }

    /// What is kept for longer of these; all of it if all events are wanted.
    fn kept_of(&self, wanted: Wanted) -> impl Iterator<Item = &Reserved> {
        let is_wanted = move |number: usize| match wanted {
            Wanted::All => true,
            Wanted::Only(Reserves(reserves)) => reserves[number],
        };
        let reserved = self.reserved.iter().enumerate();
        reserved.filter_map(move |(number, reserved)| is_wanted(number).then_some(reserved))
    }

    /// The numbers of the last events.
    pub(super) fn numbers(&self) -> Range<u64> {
        self.numbers.clone()
    }

    /// How many events are kept, and about how many bytes they take.
    pub(super) fn held(&self) -> (usize, usize) {
        let mut held = (self.events.len(), self.bytes);
        for reserved in &self.reserved {
            held.0 += reserved.events.len();
            held.1 += reserved.bytes.0;
        }
        // The bytes of an event include the event itself; its `Arc` has two counters beside it.
        let each = size_of::<Kept>() + 2 * size_of::<usize>();
        (held.0, held.1 + held.0 * each)
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
            Wanted::Only(_) => {
                let starts = self.kept_of(wanted).map(|reserved| reserved.start.0);
                starts.max().unwrap_or_default()
            }
        };
        // A number that was not given yet is of another process.
        let first = from.clamp(start, self.numbers.end);
        let reserved = self.kept_of(wanted).flat_map(|reserved| {
            let skipped = reserved
                .events
                .partition_point(|(number, _)| *number < first);
            reserved.events.iter().skip(skipped)
        });
        let mut reserved: Vec<_> = reserved.map(|(number, kept)| (*number, kept)).collect();
        reserved.sort_unstable_by_key(|(number, _)| *number);
        let reserved = reserved.into_iter();
        let skipped = first.saturating_sub(self.numbers.start);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let last = (self.numbers.start..).zip(&self.events).skip(skipped);
        let events = reserved.chain(last).take(limit);
        let events = events.map(|(number, kept)| (number, Arc::clone(&kept.event)));
        (first, events.collect())
    }

    pub(super) fn first_since(&self, time: Timestamp, wanted: Wanted) -> u64 {
        // The first event that raises `latest` to the time is the first one that did not happen before it.
        let is_before = |kept: &Kept| kept.latest < time;
        if let Wanted::Only(_) = wanted {
            let first = self.kept_of(wanted).filter_map(|reserved| {
                let before = reserved.events.partition_point(|(_, kept)| is_before(kept));
                reserved.events.get(before).map(|(number, _)| *number)
            });
            if let Some(first) = first.min() {
                return first;
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
        for _ in 0..RESERVED {
            let detail = "x".repeat(RESERVED_BYTES / 100);
            ring.push(event(EventKind::NodeState, Some(detail.into())));
        }
        for _ in 0..EVENTS {
            ring.push(event(EventKind::ClientConnected, None));
        }
        let (first, kept) = ring.from(0, RESERVED, Wanted::of(&[EventKind::NodeState]));
        let texts = kept.iter().filter(|(_, event)| event.detail.is_some());
        let texts = texts.count();
        assert!((90..100).contains(&texts), "{texts}");
        // Who wants all of them learns that the others are gone.
        assert_eq!(first, (RESERVED - texts) as u64);
    }

    #[test]
    fn each_reserve_is_pushed_out_by_its_own_events_alone() {
        let mut ring = Ring::default();
        let mut push = |kind, count: usize| {
            (0..count).for_each(|_| ring.push(Event::new(kind, 0)));
        };
        push(EventKind::ApiChange, 2);
        push(EventKind::NodeState, 1);
        push(EventKind::RightDenied, EVENTS + 2 * RESERVED);
        let read = |kinds: &[EventKind], from| {
            let (first, found) = ring.from(from, 4, Wanted::of(kinds));
            let found = found.into_iter();
            (first, found.map(|(number, _)| number).collect::<Vec<_>>())
        };
        let (changes, denied) = ([EventKind::ApiChange], [EventKind::RightDenied]);
        assert_eq!(read(&changes, 0).1[..2], [0, 1]);
        let both = [EventKind::ApiChange, EventKind::NodeState];
        assert_eq!(read(&both, 1).1[..2], [1, 2]);
        // Of those that were denied something the last ones are left, and who reads them learns it.
        let start = 3 + RESERVED as u64;
        assert_eq!(read(&denied, 0), (start, (start..start + 4).collect()));
    }

    #[test]
    fn who_reads_nothing_of_clients_reads_what_is_kept_longer() {
        let only = |reserves| Wanted::Only(Reserves(reserves));
        let of = [
            (&[][..], Wanted::All),
            (&[EventKind::NodeState], only([true, false, false])),
            (
                &[EventKind::RightDenied, EventKind::ApiChange],
                only([false, true, true]),
            ),
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
