//! Inbox cursors: a connected session gets the messages that are queued for it, within its credit.
//!
//! Invariants: a cursor passes each sequence once, in ascending order; a session has at most as many messages as its credit
//! allows. A session whose credit is used up grants more, and then gets in pages what was queued meanwhile.
//!
//! A session may open its cursor any number of times with one epoch: the new cursor takes the place of the old one, and
//! begins with the first sequence that the session does not have. What is on its way from the old one is given again, and
//! the session leaves out what it has.
//!
//! Messages of QoS 0 for a connected session come to it directly, and the shard passes them over. Around its return some come
//! by one way only, since each node hears of the return at another moment:
//!
//! | The inbox is | A message that is passed over | Filters that only attached sessions have |
//! |---|---|---|
//! | attached, its cursor is not open | is kept for the cursor, which begins with it | messages for them still come here |
//! | settling: its cursor is open, for one to two seconds | is given; the session leaves out what it has, and counts what it never gets | as before |
//! | settled | is left to the direct way | that they have no detached session is told |
//!
//! Deliberately absent: anything that must survive. A cursor lives in the memory of the leader alone; sessions open their
//! cursors again at the next leader.

use std::collections::HashMap;

use store_state::api::{Event, NO_SEQUENCE, Read};
use store_state::inbox::{Item, Queued};

/// The cursors of one shard.
#[derive(Debug, Default)]
pub(crate) struct InboxCursors {
    by_inbox: HashMap<u64, InboxCursor>,
    /// Inboxes of cursors that have pages waiting in `InboxCursor::page`, or what was passed over.
    touched: Vec<u64>,
    /// By attached inbox that is not settled: what its cursor begins with.
    awaited: HashMap<u64, Awaited>,
    /// Filters that only attached sessions have, by the inbox that was attached last: that is not told yet.
    held_filters: HashMap<Box<str>, u64>,
    /// Those of which it can be told.
    settled_filters: Vec<Box<str>>,
    /// Bytes of these, about.
    awaited_bytes: usize,
}

/// An attached inbox that is not settled.
#[derive(Debug, Default)]
struct Awaited {
    /// Messages of QoS 0 that were not queued for it, while its cursor is not open.
    items: Vec<Item>,
    /// Filters that no detached session has since it was attached.
    filters: Vec<Box<str>>,
    settling: Settling,
}

/// How far an attached inbox is on the way to be settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Settling {
    /// Its cursor is not open.
    #[default]
    Closed,
    /// It was opened since the last look at all queues.
    Opened,
    /// It was opened before that.
    Seen,
}

/// One connected session.
#[derive(Debug)]
struct InboxCursor {
    peer: u64,
    loop_index: u16,
    home: u64,
    epoch: u64,
    /// The next sequence to give.
    next: u64,
    /// Messages that it can take.
    credit: u32,
    /// The first sequence that it has not been given.
    given: u64,
    /// Messages of QoS 0 that came before it was settled; they have no sequence.
    passed_over: Vec<Item>,
    /// It was settled: that is to be told behind these.
    is_settled: bool,
    /// What it will be given with the next mail.
    page: Vec<(u64, Queued)>,
    /// Something was queued that it has not been given: pages have to be read.
    behind: bool,
}

/// Bytes of messages that are kept for inboxes whose cursors are not open yet. Beyond that they are dropped.
const AWAITED_BYTES: usize = 8 << 20;

/// Messages for one of them.
///
/// Limit: messages of QoS 0 that a shard passes over for an inbox whose cursor is not open yet | {}; {AWAITED_BYTES}
/// a shard | dropped: `offline_qos0`
const AWAITED_EACH: usize = 1_024;

impl InboxCursors {
    /// An inbox was attached, and its cursor is to be opened soon; or that is not to be expected any more.
    pub(crate) fn awaited(&mut self, inbox: u64, is_awaited: bool) {
        if is_awaited {
            self.awaited.entry(inbox).or_default().settling = Settling::Closed;
        } else {
            self.take_awaited(inbox);
        }
    }

    /// Attached inboxes whose cursors are not open yet.
    pub(crate) fn awaited_inboxes(&self) -> usize {
        let is_closed = |of: &&Awaited| of.settling == Settling::Closed;
        self.awaited.values().filter(is_closed).count()
    }

    /// Filters of which it is not told yet that no detached session has them.
    pub(crate) fn held_filters(&self) -> usize {
        self.held_filters.len()
    }

    /// A message of QoS 0 was not queued for an attached inbox. If its cursor is not open yet, the session's node may have no
    /// routes that would bring it the message: the cursor begins with it. If the inbox is settling, other nodes may not know these
    /// routes: the cursor gives it. False: there is no room for it.
    pub(crate) fn passed_over(&mut self, inbox: u64, item: &Item) -> bool {
        // Most of the time none is.
        let is_none = self.awaited.is_empty();
        let awaited = self.awaited.get_mut(&inbox).filter(|_| !is_none);
        awaited.is_none_or(
            |Awaited {
                 items, settling, ..
             }| {
                if *settling != Settling::Closed {
                    if let Some(cursor) = self.by_inbox.get_mut(&inbox) {
                        cursor.passed_over.push(item.clone());
                        self.touched.push(inbox);
                    }
                    return true;
                }
                let bytes = size_of::<Item>() + item.message.body.heap_len();
                let has_room =
                    items.len() < AWAITED_EACH && self.awaited_bytes + bytes <= AWAITED_BYTES;
                if has_room {
                    self.awaited_bytes += bytes;
                    items.push(item.clone());
                }
                has_room
            },
        )
    }

    /// It has changed who has a filter. `attaching`: an inbox was attached, and now no detached session has it. True: that is
    /// not to be told yet.
    pub(crate) fn hold_filter(&mut self, filter: &str, attaching: Option<u64>) -> bool {
        match attaching {
            Some(inbox) => {
                self.held_filters.insert(filter.into(), inbox);
                let awaited = self.awaited.entry(inbox).or_default();
                awaited.filters.push(filter.into());
            }
            None => {
                self.held_filters.remove(filter);
            }
        }
        attaching.is_some()
    }

    /// The filters of which it can be told that no detached session has them.
    pub(crate) fn take_settled(&mut self) -> Vec<Box<str>> {
        std::mem::take(&mut self.settled_filters)
    }

    /// All queues were looked at, which happens about once a second. An inbox whose cursor was opened before the look before this one
    /// is settled.
    pub(crate) fn handle_look(&mut self) {
        let mut settled = Vec::new();
        for (inbox, awaited) in &mut self.awaited {
            match awaited.settling {
                Settling::Closed => {}
                Settling::Opened => awaited.settling = Settling::Seen,
                Settling::Seen => settled.push(*inbox),
            }
        }
        for inbox in settled {
            self.take_awaited(inbox);
            if let Some(cursor) = self.by_inbox.get_mut(&inbox) {
                cursor.is_settled = true;
                self.touched.push(inbox);
            }
        }
    }

    /// The cursor of an inbox is open, or is not to be expected any more.
    fn take_awaited(&mut self, inbox: u64) -> Vec<Item> {
        let Awaited { items, filters, .. } = self.awaited.remove(&inbox).unwrap_or_default();
        for filter in filters {
            // Unless it was told since, or another inbox was attached that has it.
            if self.held_filters.get(&filter) == Some(&inbox) {
                self.held_filters.remove(&filter);
                self.settled_filters.push(filter);
            }
        }
        self.awaited_bytes -= bytes_of(&items);
        items
    }

    /// A message was queued.
    pub(crate) fn queued(&mut self, inbox: u64, sequence: u64, item: &Item) {
        // The session is not connected, or has not opened its cursor yet: the queue keeps the message.
        let Some(cursor) = self.by_inbox.get_mut(&inbox) else {
            return;
        };
        if cursor.behind || cursor.credit == 0 || sequence < cursor.next {
            cursor.behind |= sequence >= cursor.next;
            return;
        }
        cursor.credit -= 1;
        cursor.next = sequence + 1;
        if cursor.page.is_empty() {
            self.touched.push(inbox);
        }
        cursor.page.push((sequence, Queued::Message(item.clone())));
    }

    /// The first sequence that a session was not given, and is not about to be. `None`: its cursor is not open.
    pub(crate) fn next_of(&self, inbox: u64) -> Option<u64> {
        Some(self.by_inbox.get(&inbox)?.next)
    }

    /// Forgets all cursors: another replica serves them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets the cursors of inboxes that are not here any more.
    pub(crate) fn retain(&mut self, is_here: impl Fn(u64) -> bool) {
        self.by_inbox.retain(|inbox, _| is_here(*inbox));
        let gone: Vec<u64> = self
            .awaited
            .keys()
            .copied()
            .filter(|inbox| !is_here(*inbox))
            .collect();
        for inbox in gone {
            self.take_awaited(inbox);
        }
        // Who has which filter is told anew.
        self.settled_filters.clear();
        self.touched.retain(|inbox| is_here(*inbox));
    }

    /// Does what a cursor of a node (0: this one) asks. `Some`: a page has to be read for this inbox, from this sequence, of so
    /// many messages; then [`InboxCursors::read`]. `settles`: an inbox whose cursor is opened is settling; if not, it is settled.
    pub(crate) fn ask(&mut self, peer: u64, read: Read, settles: bool) -> Option<(u64, u64, u32)> {
        let inbox = match read {
            Read::Open {
                loop_index,
                home,
                inbox,
                epoch,
                from,
                credit,
            } => {
                let newer = self
                    .by_inbox
                    .get(&inbox)
                    .is_some_and(|other| other.epoch > epoch);
                if newer {
                    return None;
                }
                let passed_over = match self.awaited.get_mut(&inbox).filter(|_| settles) {
                    Some(awaited) => {
                        awaited.settling = Settling::Opened;
                        let items = std::mem::take(&mut awaited.items);
                        self.awaited_bytes -= bytes_of(&items);
                        items
                    }
                    None => self.take_awaited(inbox),
                };
                if !passed_over.is_empty() {
                    self.touched.push(inbox);
                }
                let cursor = InboxCursor {
                    passed_over,
                    is_settled: false,
                    peer,
                    loop_index,
                    home,
                    epoch,
                    next: from,
                    given: from,
                    credit,
                    page: Vec::new(),
                    behind: true,
                };
                self.by_inbox.insert(inbox, cursor);
                inbox
            }
            Read::Credit { inbox, epoch, more } => {
                let cursor = self.by_inbox.get_mut(&inbox)?;
                if cursor.epoch != epoch {
                    return None;
                }
                cursor.credit = cursor.credit.saturating_add(more);
                inbox
            }
            Read::Close { inbox, epoch } => {
                if self.by_inbox.get(&inbox)?.epoch == epoch {
                    self.by_inbox.remove(&inbox);
                }
                return None;
            }
        };
        let cursor = self.by_inbox.get(&inbox)?;
        (cursor.behind && cursor.credit > 0).then_some((inbox, cursor.next, cursor.credit))
    }

    /// A page was read: what is queued from the sequence asked for up to before `next`. `end`: nothing
    /// is queued from there on.
    pub(crate) fn read(&mut self, inbox: u64, items: Vec<(u64, Queued)>, next: u64, end: bool) {
        let Some(cursor) = self.by_inbox.get_mut(&inbox) else {
            debug_assert!(
                false,
                "a page is read for a cursor that has just asked for it"
            );
            return;
        };
        cursor.credit = cursor.credit.saturating_sub(items.len() as u32);
        cursor.next = next;
        cursor.behind = !end;
        if cursor.page.is_empty() && !items.is_empty() {
            self.touched.push(inbox);
        }
        cursor.page.extend(items);
    }

    /// Whether a page must be read again for this inbox, and from where.
    pub(crate) fn wants(&self, inbox: u64) -> Option<(u64, u32)> {
        let cursor = self.by_inbox.get(&inbox)?;
        (cursor.behind && cursor.credit > 0).then_some((cursor.next, cursor.credit))
    }

    /// Takes the pages that wait, with the nodes and the loops that they are for.
    pub(crate) fn take_pages(&mut self, mut give: impl FnMut(u64, u16, Event)) {
        for inbox in self.touched.drain(..) {
            if let Some(cursor) = self.by_inbox.get_mut(&inbox) {
                cursor.take_pages(&mut give);
            }
        }
    }
}

fn bytes_of(items: &[Item]) -> usize {
    let bytes = |item: &Item| size_of::<Item>() + item.message.body.heap_len();
    items.iter().map(bytes).sum()
}

impl InboxCursor {
    fn take_pages(&mut self, mut give: impl FnMut(u64, u16, Event)) {
        let (peer, loop_index) = (self.peer, self.loop_index);
        let (home, epoch) = (self.home, self.epoch);
        let mut give = |from, items| {
            let event = Event::Page {
                home,
                epoch,
                from,
                items,
            };
            give(peer, loop_index, event);
        };
        let items = std::mem::take(&mut self.passed_over).into_iter();
        let mut items: Vec<_> = items
            .map(|item| (NO_SEQUENCE, Queued::Message(item)))
            .collect();
        if std::mem::take(&mut self.is_settled) {
            items.push((NO_SEQUENCE, Queued::Released));
        }
        if !items.is_empty() {
            give(self.given, items);
        }
        if let Some((last, _)) = self.page.last() {
            let from = std::mem::replace(&mut self.given, last + 1);
            give(from, std::mem::take(&mut self.page));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqtt_proto::{MessageBody, QoS};
    use mqtt_session::{ApplicationMessage, SubscriptionIdSet};

    use super::*;

    fn item() -> Item {
        Item {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new("t", b""),
                qos: QoS::AtLeastOnce,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            qos: QoS::AtLeastOnce,
            retain: false,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        }
    }

    fn open(credit: u32) -> Read {
        Read::Open {
            loop_index: 1,
            home: 7,
            inbox: 3,
            epoch: 10,
            from: 1,
            credit,
        }
    }

    fn given(cursors: &mut InboxCursors) -> Vec<u64> {
        let mut sequences = Vec::new();
        cursors.take_pages(|peer, loop_index, event| {
            let Event::Page {
                home, epoch, items, ..
            } = event
            else {
                panic!("{event:?}")
            };
            assert_eq!((peer, loop_index, home, epoch), (0, 1, 7, 10));
            sequences.extend(items.into_iter().map(|(sequence, _)| sequence));
        });
        sequences
    }

    #[test]
    fn what_is_passed_over_before_a_cursor_is_open_comes_first() {
        let mut cursors = InboxCursors::default();
        // Nobody is about to open it.
        assert!(cursors.passed_over(3, &item()));
        cursors.awaited(3, true);
        assert!(cursors.passed_over(3, &item()) && cursors.passed_over(3, &item()));
        assert_eq!(cursors.ask(0, open(5), false), Some((3, 1, 5)));
        assert!(cursors.passed_over(3, &item()), "it comes directly");
        cursors.read(3, vec![(1, Queued::Message(item()))], 2, true);
        assert_eq!(given(&mut cursors), [NO_SEQUENCE, NO_SEQUENCE, 1]);
        // As if all before it had been given.
        cursors.queued(3, 2, &item());
        assert_eq!(given(&mut cursors), [2]);
        assert_eq!(cursors.awaited_bytes, 0);
    }

    #[test]
    fn what_is_passed_over_is_bounded_and_forgotten_with_the_attachment() {
        let mut cursors = InboxCursors::default();
        cursors.awaited(3, true);
        for _ in 0..AWAITED_EACH {
            assert!(cursors.passed_over(3, &item()));
        }
        assert!(!cursors.passed_over(3, &item()));
        cursors.awaited(3, false);
        assert_eq!((cursors.awaited_bytes, cursors.awaited.len()), (0, 0));
        cursors.ask(0, open(5), false);
        assert_eq!(given(&mut cursors), [0; 0]);
    }

    #[test]
    fn that_no_detached_session_has_a_filter_is_told_when_the_cursor_is_open() {
        let mut cursors = InboxCursors::default();
        cursors.awaited(3, true);
        assert!(cursors.hold_filter("a", Some(3)) && cursors.hold_filter("b", Some(3)));
        // Another session with that filter is detached, and one of both is attached.
        assert!(!cursors.hold_filter("b", None));
        cursors.awaited(4, true);
        assert!(cursors.hold_filter("c", Some(4)));
        assert!(cursors.take_settled().is_empty());
        cursors.ask(0, open(5), false);
        assert_eq!(cursors.take_settled(), ["a".into()]);
        cursors.awaited(4, false);
        assert_eq!(cursors.take_settled(), ["c".into()]);
        assert!(cursors.held_filters.is_empty());
    }

    #[test]
    fn what_is_passed_over_is_given_until_the_inbox_is_settled() {
        let mut cursors = InboxCursors::default();
        cursors.awaited(3, true);
        assert!(cursors.hold_filter("a", Some(3)) && cursors.passed_over(3, &item()));
        cursors.handle_look();
        assert_eq!(cursors.awaited_inboxes(), 1, "its cursor is not open");
        assert_eq!(cursors.ask(0, open(5), true), Some((3, 1, 5)));
        assert_eq!((cursors.awaited_inboxes(), cursors.awaited_bytes), (0, 0));
        cursors.read(3, vec![(1, Queued::Message(item()))], 2, true);
        assert_eq!(given(&mut cursors), [NO_SEQUENCE, 1]);
        for _ in 0..AWAITED_EACH + 1 {
            assert!(cursors.passed_over(3, &item()), "none is kept here");
        }
        assert_eq!(given(&mut cursors).len(), AWAITED_EACH + 1);
        cursors.handle_look();
        assert!(cursors.passed_over(3, &item()));
        assert_eq!(given(&mut cursors), [NO_SEQUENCE]);
        assert!(cursors.take_settled().is_empty());
        cursors.handle_look();
        assert_eq!(cursors.take_settled(), ["a".into()]);
        assert_eq!(given(&mut cursors), [NO_SEQUENCE], "that it is settled");
        assert!(cursors.passed_over(3, &item()), "it comes directly");
        assert_eq!(given(&mut cursors), [0; 0]);
    }

    #[test]
    fn an_inbox_that_is_attached_again_is_not_settling() {
        let mut cursors = InboxCursors::default();
        cursors.awaited(3, true);
        cursors.ask(0, open(5), true);
        cursors.awaited(3, true);
        assert!(cursors.passed_over(3, &item()));
        assert_eq!(given(&mut cursors), [0; 0], "it waits for the next cursor");
        cursors.ask(0, open(5), true);
        assert_eq!(given(&mut cursors), [NO_SEQUENCE]);
    }

    #[test]
    fn what_comes_is_given_until_the_credit_is_used_up() {
        let mut cursors = InboxCursors::default();
        assert_eq!(cursors.ask(0, open(3), false), Some((3, 1, 3)));
        cursors.read(3, vec![(1, Queued::Released)], 2, true);
        for sequence in 2..6 {
            cursors.queued(3, sequence, &item());
        }
        assert_eq!(given(&mut cursors), [1, 2, 3]);
        let more = Read::Credit {
            inbox: 3,
            epoch: 10,
            more: 5,
        };
        assert_eq!(cursors.ask(0, more, false), Some((3, 4, 5)));
        cursors.read(
            3,
            vec![(4, Queued::Released), (5, Queued::Released)],
            6,
            true,
        );
        cursors.queued(3, 6, &item());
        assert_eq!(given(&mut cursors), [4, 5, 6]);
    }

    #[test]
    fn what_is_queued_before_the_first_page_is_read_is_in_that_page() {
        let mut cursors = InboxCursors::default();
        cursors.ask(0, open(10), false);
        cursors.queued(3, 1, &item());
        assert_eq!(given(&mut cursors), [0; 0]);
        assert_eq!(cursors.wants(3), Some((1, 10)));
    }

    #[test]
    fn a_page_says_what_it_follows_on() {
        let mut cursors = InboxCursors::default();
        cursors.ask(0, open(10), false);
        // Nothing is queued before 5.
        cursors.read(3, vec![(5, Queued::Released)], 6, true);
        cursors.queued(3, 6, &item());
        let mut spans = Vec::new();
        let mut note = |_, _, event| {
            if let Event::Page { from, items, .. } = event {
                spans.push((from, items.last().map(|(last, _)| *last)));
            }
        };
        cursors.take_pages(&mut note);
        cursors.read(3, Vec::new(), 9, true);
        cursors.queued(3, 9, &item());
        cursors.take_pages(&mut note);
        assert_eq!(spans, [(1, Some(6)), (7, Some(9))]);
    }

    #[test]
    fn a_cursor_that_is_opened_again_goes_on_where_the_session_is() {
        let mut cursors = InboxCursors::default();
        cursors.ask(0, open(3), false);
        cursors.read(3, vec![(1, Queued::Released)], 2, true);
        cursors.queued(3, 2, &item());
        // The session has neither of them yet, one has left and the other has not.
        assert_eq!(given(&mut cursors), [1, 2]);
        cursors.queued(3, 3, &item());
        for _ in 0..2 {
            assert_eq!(cursors.ask(0, open(3), false), Some((3, 1, 3)));
            let queued = (1..4).map(|sequence| (sequence, Queued::Message(item())));
            cursors.read(3, queued.collect(), 4, true);
        }
        assert_eq!(given(&mut cursors), [1, 2, 3]);
        cursors.queued(3, 4, &item());
        assert_eq!((given(&mut cursors), cursors.wants(3)), (vec![], None));
    }

    #[test]
    fn an_older_connection_neither_asks_nor_closes() {
        let mut cursors = InboxCursors::default();
        cursors.ask(0, open(1), false);
        let older = Read::Close { inbox: 3, epoch: 9 };
        assert_eq!(cursors.ask(0, older, false), None);
        assert_eq!(cursors.by_inbox.len(), 1);
        assert_eq!(
            cursors.ask(
                0,
                Read::Close {
                    inbox: 3,
                    epoch: 10
                },
                false
            ),
            None
        );
        assert_eq!(cursors.by_inbox.len(), 0);
    }
}
