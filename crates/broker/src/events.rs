//! What has happened on this node, in order, for those who watch: a ring, which each reads from where he was.
//!
//! Invariant: numbers of events grow by one; who has fallen behind learns how many he has missed. Nobody who reads slowly makes
//! anything grow.

mod ring;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use admin::ApiChange;
use admin::api::{EventKind, EventSubject};
use broker_core::{
    ClientEvent, Happened, SessionEvent, SessionHappened, SubscriptionEvent, SubscriptionHappened,
};
use mqtt_session::Timestamp;
use parking_lot::Mutex;
use ring::Ring;
pub(crate) use ring::Wanted;

/// Bytes of a text that are kept.
const SHOWN: usize = 1024;

/// Changes by HTTP that are told one by one in a second.
const API_CHANGES: u64 = 100;

/// Subscriptions that are told one by one in a second, of those that are added and of those that are removed.
const SUBSCRIPTIONS: u64 = 100;

/// Sessions that have begun, and those that have ended, in a second that are told one by one.
const SESSIONS: u64 = 100;

/// Something that has happened.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) at: Timestamp,
    pub(crate) client_id: Option<Box<str>>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) address: Option<Box<str>>,
    /// As in logs and metrics.
    pub(crate) reason: Option<Cow<'static, str>>,
    pub(crate) topic: Option<Box<str>>,
    /// How often.
    pub(crate) count: Option<u64>,
    /// For people.
    pub(crate) detail: Option<Box<str>>,
    /// The node that it is about; few events have one.
    pub(crate) subject: Option<Box<EventSubject>>,
}

impl Event {
    /// One of which nothing but its kind is known so far; `at_ms` is of Unix time.
    pub(crate) fn new(kind: EventKind, at_ms: u64) -> Self {
        Self {
            kind,
            at: Timestamp(at_ms),
            client_id: None,
            user: None,
            address: None,
            reason: None,
            topic: None,
            count: None,
            detail: None,
            subject: None,
        }
    }

    fn bytes(&self) -> usize {
        let texts = [
            &self.client_id,
            &self.user,
            &self.address,
            &self.topic,
            &self.detail,
        ];
        let texts = texts.into_iter().flatten().map(|text| text.len());
        let subject = self.subject.as_ref();
        let subject = subject.map_or(0, |of| size_of::<EventSubject>() + of.node_name.len());
        size_of::<Self>() + texts.sum::<usize>() + subject
    }
}

/// The beginning of a text that others choose.
pub(crate) fn shown(text: &str) -> Box<str> {
    let end = text.floor_char_boundary(SHOWN);
    text.get(..end).unwrap_or_default().into()
}

/// A part of what has happened.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Read {
    /// With their numbers.
    pub(crate) events: Vec<(u64, Arc<Event>)>,
    /// The numbers of those that were looked at. It begins behind the number that was asked for if events are not kept any more.
    pub(crate) numbers: Range<u64>,
}

/// The last events of this node.
#[derive(Debug, Default)]
pub(crate) struct Events {
    ring: Mutex<Ring>,
    api_changes: PerSecond<API_CHANGES>,
    added: PerSecond<SUBSCRIPTIONS>,
    removed: PerSecond<SUBSCRIPTIONS>,
    begun: PerSecond<SESSIONS>,
    ended: PerSecond<SESSIONS>,
}

impl Events {
    /// Something has happened to a client, at a time in ms of Unix time.
    pub(crate) fn handle_client(&self, event: &ClientEvent<'_>, at_ms: u64) {
        let kind = match event.what {
            Happened::Connected => EventKind::ClientConnected,
            Happened::Disconnected => EventKind::ClientDisconnected,
            Happened::Refused => EventKind::ClientRefused,
        };
        self.push(Event {
            client_id: Some(shown(event.client_id)),
            user: event.user.map(shown),
            address: event.peer.map(|peer| peer.to_string().into()),
            reason: event.reason.map(Cow::Borrowed),
            ..Event::new(kind, at_ms)
        });
    }

    /// A subscription was added or removed, at a time in ms of Unix time.
    pub(crate) fn handle_subscription(&self, event: &SubscriptionEvent<'_>, at_ms: u64) {
        let (kind, is_told) = match event.what {
            SubscriptionHappened::Added => (EventKind::SubscriptionAdded, self.added.take()),
            SubscriptionHappened::Removed => (EventKind::SubscriptionRemoved, self.removed.take()),
        };
        if is_told {
            self.push(Event {
                client_id: Some(shown(event.client_id)),
                user: event.user.map(shown),
                topic: Some(shown(event.filter)),
                ..Event::new(kind, at_ms)
            });
        }
    }

    /// A session has begun or ended, at a time in ms of Unix time.
    pub(crate) fn handle_session(&self, event: &SessionEvent<'_>, at_ms: u64) {
        let (kind, reason, is_told) = match event.what {
            SessionHappened::Begun => (EventKind::SessionBegun, None, self.begun.take()),
            SessionHappened::Ended(why) => (
                EventKind::SessionEnded,
                Some(why.as_str()),
                self.ended.take(),
            ),
        };
        if is_told {
            self.push(Event {
                client_id: Some(shown(event.client_id)),
                user: event.user.map(shown),
                reason: reason.map(Cow::Borrowed),
                ..Event::new(kind, at_ms)
            });
        }
    }

    /// Somebody has changed something by HTTP, at a time in ms of Unix time.
    pub(crate) fn handle_api_change(&self, change: &ApiChange, at_ms: u64) {
        if self.api_changes.take() {
            let target = change.target.as_ref();
            let target = target.map_or(String::new(), |target| format!(" {target}"));
            let detail = format!("{} {}{target}", change.method, change.path);
            self.push(Event {
                user: Some(shown(&change.user)),
                address: change.peer.map(|peer| peer.to_string().into()),
                detail: Some(shown(&detail)),
                ..Event::new(EventKind::ApiChange, at_ms)
            });
        }
    }

    /// A second is over, at a time in ms of Unix time: adds how many events in it were too many to be told one by one.
    pub(crate) fn handle_second(&self, at_ms: u64) {
        let left_out = [
            (EventKind::ApiChange, self.api_changes.begin_second()),
            (EventKind::SubscriptionAdded, self.added.begin_second()),
            (EventKind::SubscriptionRemoved, self.removed.begin_second()),
            (EventKind::SessionBegun, self.begun.begin_second()),
            (EventKind::SessionEnded, self.ended.begin_second()),
        ];
        for (kind, count) in left_out {
            if count.is_some() {
                self.push(Event {
                    count,
                    detail: Some("further ones".into()),
                    ..Event::new(kind, at_ms)
                });
            }
        }
    }

    /// Adds what has happened.
    pub(crate) fn push(&self, event: Event) {
        self.ring.lock().push(event);
    }

    /// How many are kept, and about how many bytes they take.
    pub(crate) fn held(&self) -> (usize, usize) {
        self.ring.lock().held()
    }

    /// The number that the next event gets.
    pub(crate) fn next(&self) -> u64 {
        self.ring.lock().numbers().end
    }

    /// The number of the first of these events that is kept and happened at or after a time, or else that of the next event.
    pub(crate) fn first_since(&self, time: Timestamp, wanted: Wanted) -> u64 {
        self.ring.lock().first_since(time, wanted)
    }

    /// The first `limit` wanted events from a number on. `looked_at`: the most that are looked at.
    pub(crate) fn read(
        &self,
        from: u64,
        limit: usize,
        looked_at: usize,
        wanted: Wanted,
        is_wanted: impl Fn(&Event) -> bool,
    ) -> Read {
        let (first, events) = self.ring.lock().from(from, looked_at, wanted);
        let mut read = Read {
            events: Vec::new(),
            numbers: first..first,
        };
        for (number, event) in events {
            if read.events.len() == limit {
                break;
            }
            read.numbers.end = number + 1;
            if is_wanted(&event) {
                read.events.push((number, event));
            }
        }
        read
    }
}

/// Events of a kind in this second, of which `MOST` are told one by one.
#[derive(Debug, Default)]
struct PerSecond<const MOST: u64>(AtomicU64);

impl<const MOST: u64> PerSecond<MOST> {
    /// Whether one more is told.
    fn take(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < MOST
    }

    /// How many of the second that is over were not told, if any.
    fn begin_second(&self) -> Option<u64> {
        let left_out = self.0.swap(0, Ordering::Relaxed).saturating_sub(MOST);
        (left_out > 0).then_some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::ring::{BYTES, EVENTS, RESERVED};
    use super::*;

    fn event(number: usize) -> Event {
        Event {
            client_id: Some(number.to_string().into()),
            ..Event::new(EventKind::ClientConnected, 0)
        }
    }

    #[test]
    fn who_reads_has_each_event_once_and_learns_what_he_missed() {
        let events = Events::default();
        assert_eq!(events.read(0, 10, 10, Wanted::All, |_| true).numbers, 0..0);
        for number in 0..EVENTS {
            events.push(event(number));
        }
        let mut from = 0;
        let mut seen = Vec::new();
        while from < EVENTS as u64 {
            let read = events.read(from, 1_000, 700, Wanted::All, |_| true);
            assert_eq!(read.numbers.start, from);
            seen.extend(read.events.into_iter().map(|(number, _)| number));
            from = read.numbers.end;
        }
        assert!(seen.iter().copied().eq(0..EVENTS as u64));
        for number in 0..10 {
            events.push(event(number));
        }
        let read = events.read(3, 2, 100, Wanted::All, |_| true);
        assert_eq!(read.numbers, 10..12);
        assert_eq!(read.events[0].0, 10);
        // Filters look at a bounded number.
        let read = events.read(10, 2, 100, Wanted::All, |_| false);
        assert_eq!((read.events.len(), read.numbers), (0, 10..110));
        assert_eq!(
            events.read(u64::MAX, 2, 9, Wanted::All, |_| true).events,
            []
        );
    }

    #[test]
    fn what_happened_at_a_time_or_after_it_is_found_in_any_order() {
        let events = Events::default();
        assert_eq!(events.first_since(Timestamp(0), Wanted::All), 0);
        for at_ms in [10, 30, 20, 40] {
            events.push(Event::new(EventKind::ClientConnected, at_ms));
        }
        for (at_ms, number) in [(0, 0), (10, 0), (11, 1), (30, 1), (31, 3), (40, 3), (41, 4)] {
            assert_eq!(
                events.first_since(Timestamp(at_ms), Wanted::All),
                number,
                "{at_ms}"
            );
        }
        for _ in 0..EVENTS {
            events.push(Event::new(EventKind::ClientConnected, 50));
        }
        assert_eq!(events.first_since(Timestamp(0), Wanted::All), 4);
        assert_eq!(
            events.first_since(Timestamp(51), Wanted::All),
            EVENTS as u64 + 4
        );
    }

    #[test]
    fn what_happens_to_clients_pushes_out_nothing_of_the_cluster() {
        let events = Events::default();
        let moved = |at_ms| events.push(Event::new(EventKind::ShardMoved, at_ms));
        let clients = |count: usize, at_ms| {
            for _ in 0..count {
                events.push(Event::new(EventKind::ClientConnected, at_ms));
            }
        };
        moved(10);
        clients(2 * EVENTS, 20);
        moved(30);
        clients(EVENTS - 1, 40);
        // The second one is the oldest that is left of all.
        let end = 3 * EVENTS as u64 + 1;
        let is_moved = |event: &Event| event.kind == EventKind::ShardMoved;
        let of_cluster = Wanted::of(&[EventKind::ShardMoved]);
        let read = |from, limit| events.read(from, limit, EVENTS + 2, of_cluster, is_moved);
        let numbers = |read: &Read| read.events.iter().map(|(number, _)| *number).collect();
        let all = read(0, 10);
        assert_eq!(numbers(&all), vec![0, 2 * EVENTS as u64 + 1]);
        assert_eq!(all.numbers, 0..end);
        // One by one.
        let one = read(0, 1);
        assert_eq!((numbers(&one), one.numbers), (vec![0], 0..1));
        let next = read(1, 1);
        assert_eq!(numbers(&next), vec![2 * EVENTS as u64 + 1]);
        assert_eq!(next.numbers.start, 1);
        for (at_ms, number) in [(0, 0), (10, 0), (11, 2 * EVENTS as u64 + 1), (41, end)] {
            let found = events.first_since(Timestamp(at_ms), of_cluster);
            assert_eq!(found, number, "{at_ms}");
        }
        // Who wants all of it has missed what is not kept.
        let of_all = events.read(0, 1, 1, Wanted::All, |_| true);
        assert_eq!(of_all.numbers.start, end - EVENTS as u64);
        // They are bounded as well, and who has fallen behind these learns it.
        for _ in 0..RESERVED + EVENTS {
            moved(50);
        }
        assert_eq!(read(0, 1).numbers.start, 2 * EVENTS as u64 + 2);
    }

    #[test]
    fn changes_beyond_those_of_a_second_are_counted_in_one_event() {
        let events = Events::default();
        let change = ApiChange {
            user: "ben".to_owned(),
            peer: None,
            method: "DELETE".to_owned(),
            path: "/api/v1/clients/a".to_owned(),
            target: None,
        };
        for _ in 0..API_CHANGES + 7 {
            events.handle_api_change(&change, 1);
        }
        events.handle_second(2);
        events.handle_second(3);
        events.handle_api_change(&change, 4);
        let told = events.read(0, 200, 200, Wanted::All, |_| true).events;
        assert_eq!(told.len() as u64, API_CHANGES + 2);
        let counts: Vec<u64> = told.iter().filter_map(|(_, event)| event.count).collect();
        assert_eq!(counts, [7]);
        let last = &told.last().unwrap().1;
        assert_eq!(last.user.as_deref(), Some("ben"));
        assert_eq!(last.detail.as_deref(), Some("DELETE /api/v1/clients/a"));
    }

    #[test]
    fn long_texts_take_a_bounded_number_of_bytes() {
        let events = Events::default();
        let name = shown(&"ü".repeat(2_000));
        assert_eq!(name.len(), SHOWN);
        for _ in 0..EVENTS {
            events.push(Event {
                client_id: Some(name.clone()),
                user: Some(name.clone()),
                ..Event::new(EventKind::ClientConnected, 0)
            });
        }
        let ring = events.ring.lock();
        let kept = ring.numbers();
        assert!(ring.bytes() <= BYTES && kept.end - kept.start < EVENTS as u64);
        assert_eq!(kept.end, EVENTS as u64);
    }
}
