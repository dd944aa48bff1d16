//! Who reads which inbox: sessions that are connected get what is queued as it comes, as far as they
//! have said that they can take it.
//!
//! Invariants: a reader gets each sequence once, in ascending order; what it has been given and not yet
//! made room for is at most its credit. A reader whose credit is used up asks for more, and gets what
//! has been queued meanwhile in pages.
//!
//! Deliberately absent: anything that must survive. A reader is an affair of one process.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use store_state::inbox::{Item, Queued};

use crate::Event;

/// The readers of one shard.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    by_inbox: HashMap<u64, Reader>,
    /// Inboxes of readers that have pages waiting in `Reader::page`.
    touched: Vec<u64>,
}

/// One connected session.
#[derive(Debug)]
struct Reader {
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
    /// What it will be given with the next mail.
    page: Vec<(u64, Queued)>,
    /// Something was queued that it has not been given: pages have to be read.
    behind: bool,
}

/// What a reader asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Read {
    /// Give me what is queued.
    Open {
        /// The event loop.
        loop_index: u16,
        /// What the loop knows the session by.
        home: u64,
        /// The inbox.
        inbox: u64,
        /// The epoch of the connection.
        epoch: u64,
        /// The first sequence to give.
        from: u64,
        /// Messages that the session can take.
        credit: u32,
    },
    /// I can take more.
    Credit {
        /// The inbox.
        inbox: u64,
        /// The epoch of the connection.
        epoch: u64,
        /// How many more messages.
        more: u32,
    },
    /// Give me nothing more.
    Close {
        /// The inbox.
        inbox: u64,
        /// The epoch of the connection.
        epoch: u64,
    },
}

impl Readers {
    /// A message was queued.
    pub(crate) fn queued(&mut self, inbox: u64, sequence: u64, item: &Item) {
        let Some(reader) = self.by_inbox.get_mut(&inbox) else {
            return;
        };
        if reader.behind || reader.credit == 0 || sequence < reader.next {
            reader.behind |= sequence >= reader.next;
            return;
        }
        reader.credit -= 1;
        reader.next = sequence + 1;
        if reader.page.is_empty() {
            self.touched.push(inbox);
        }
        reader.page.push((sequence, Queued::Message(item.clone())));
    }

    /// Forgets all readers: another replica serves them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Does what a reader of a node (0: this one) asks. `Some`: a page has to be read for this inbox, from this sequence, of so
    /// many messages; then [`Readers::read`].
    pub(crate) fn ask(&mut self, peer: u64, read: Read) -> Option<(u64, u64, u32)> {
        let inbox = match read {
            Read::Open {
                loop_index,
                home,
                inbox,
                epoch,
                from,
                credit,
            } => {
                let reader = Reader {
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
                let newer = self
                    .by_inbox
                    .get(&inbox)
                    .is_some_and(|other| other.epoch > epoch);
                if newer {
                    return None;
                }
                self.by_inbox.insert(inbox, reader);
                inbox
            }
            Read::Credit { inbox, epoch, more } => {
                let reader = self.by_inbox.get_mut(&inbox)?;
                if reader.epoch != epoch {
                    return None;
                }
                reader.credit = reader.credit.saturating_add(more);
                inbox
            }
            Read::Close { inbox, epoch } => {
                if self.by_inbox.get(&inbox)?.epoch == epoch {
                    self.by_inbox.remove(&inbox);
                }
                return None;
            }
        };
        let reader = self.by_inbox.get(&inbox)?;
        (reader.behind && reader.credit > 0).then_some((inbox, reader.next, reader.credit))
    }

    /// A page was read: what is queued from the sequence asked for up to before `next`. `end`: nothing
    /// is queued from there on.
    pub(crate) fn read(&mut self, inbox: u64, items: Vec<(u64, Queued)>, next: u64, end: bool) {
        let Some(reader) = self.by_inbox.get_mut(&inbox) else {
            return;
        };
        reader.credit = reader.credit.saturating_sub(items.len() as u32);
        reader.next = next;
        reader.behind = !end;
        if reader.page.is_empty() && !items.is_empty() {
            self.touched.push(inbox);
        }
        reader.page.extend(items);
    }

    /// Whether a page must be read again for this inbox, and from where.
    pub(crate) fn wants(&self, inbox: u64) -> Option<(u64, u32)> {
        let reader = self.by_inbox.get(&inbox)?;
        (reader.behind && reader.credit > 0).then_some((reader.next, reader.credit))
    }

    /// Takes the pages that wait, with the nodes and the loops that they are for.
    pub(crate) fn take_pages(&mut self, mut give: impl FnMut(u64, u16, Event)) {
        for inbox in self.touched.drain(..) {
            if let Some(reader) = self.by_inbox.get_mut(&inbox)
                && let Some((last, _)) = reader.page.last()
            {
                let from = std::mem::replace(&mut reader.given, last + 1);
                let event = Event::Page {
                    home: reader.home,
                    epoch: reader.epoch,
                    from,
                    items: std::mem::take(&mut reader.page),
                };
                give(reader.peer, reader.loop_index, event);
            }
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

    fn given(readers: &mut Readers) -> Vec<u64> {
        let mut sequences = Vec::new();
        readers.take_pages(|peer, loop_index, event| {
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
    fn what_comes_is_given_until_the_credit_is_used_up() {
        let mut readers = Readers::default();
        assert_eq!(readers.ask(0, open(3)), Some((3, 1, 3)));
        readers.read(3, vec![(1, Queued::Released)], 2, true);
        for sequence in 2..6 {
            readers.queued(3, sequence, &item());
        }
        assert_eq!(given(&mut readers), [1, 2, 3]);
        let more = Read::Credit {
            inbox: 3,
            epoch: 10,
            more: 5,
        };
        assert_eq!(readers.ask(0, more), Some((3, 4, 5)));
        readers.read(
            3,
            vec![(4, Queued::Released), (5, Queued::Released)],
            6,
            true,
        );
        readers.queued(3, 6, &item());
        assert_eq!(given(&mut readers), [4, 5, 6]);
    }

    #[test]
    fn what_is_queued_before_the_first_page_is_read_is_in_that_page() {
        let mut readers = Readers::default();
        readers.ask(0, open(10));
        readers.queued(3, 1, &item());
        assert_eq!(given(&mut readers), [0; 0]);
        assert_eq!(readers.wants(3), Some((1, 10)));
    }

    #[test]
    fn a_page_says_what_it_follows_on() {
        let mut readers = Readers::default();
        readers.ask(0, open(10));
        // Nothing is queued before 5.
        readers.read(3, vec![(5, Queued::Released)], 6, true);
        readers.queued(3, 6, &item());
        let mut spans = Vec::new();
        let mut note = |_, _, event| {
            if let Event::Page { from, items, .. } = event {
                spans.push((from, items.last().map(|(last, _)| *last)));
            }
        };
        readers.take_pages(&mut note);
        readers.read(3, Vec::new(), 9, true);
        readers.queued(3, 9, &item());
        readers.take_pages(&mut note);
        assert_eq!(spans, [(1, Some(6)), (7, Some(9))]);
    }

    #[test]
    fn an_older_connection_neither_asks_nor_closes() {
        let mut readers = Readers::default();
        readers.ask(0, open(1));
        let older = Read::Close { inbox: 3, epoch: 9 };
        assert_eq!(readers.ask(0, older), None);
        assert_eq!(readers.by_inbox.len(), 1);
        assert_eq!(
            readers.ask(
                0,
                Read::Close {
                    inbox: 3,
                    epoch: 10
                }
            ),
            None
        );
        assert_eq!(readers.by_inbox.len(), 0);
    }
}
