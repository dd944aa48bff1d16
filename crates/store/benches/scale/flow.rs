//! Messages through the inboxes of connected clients: published, read, acknowledged.

use store_state::api::Event;
use store_state::inbox::{InboxReply, Queued};
use store_state::session::SessionReply;

use crate::node::{Node, own_topic};
use crate::payload;

/// Publications that wait for their replies at once.
const AT_ONCE: u64 = 2_048;

/// The token of publications; those of clients are their numbers.
const PUBLISHER: u64 = u64::MAX;

/// A client that stays connected.
struct Reader {
    number: u64,
    epoch: u64,
    inbox: u64,
    /// Messages that it has got.
    read: u64,
}

/// Claims, attaches and begins to read.
fn connect(node: &Node, number: u64) -> Reader {
    node.claim(number, number);
    let mut epoch = 0;
    loop {
        for event in node.mail() {
            match event {
                Event::Session {
                    reply: SessionReply::Claimed(claimed),
                    ..
                } => {
                    epoch = claimed.epoch;
                    node.attach(number, number, epoch, true);
                }
                Event::Inbox {
                    reply: InboxReply::Attached(attached),
                    ..
                } => {
                    let inbox = attached.inbox;
                    node.open_queue(number, inbox, epoch, attached.first);
                    return Reader {
                        number,
                        epoch,
                        inbox,
                        read: 0,
                    };
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Connected clients, each with its own topic.
pub(crate) struct InboxCursors<'a> {
    node: &'a Node,
    first: u64,
    readers: Vec<Reader>,
}

impl<'a> InboxCursors<'a> {
    /// Connects clients, `first` and those after it, that have subscribed before.
    pub(crate) fn connect(node: &'a Node, first: u64, count: u64) -> Self {
        let readers = (first..first + count).map(|number| connect(node, number));
        Self {
            node,
            first,
            readers: readers.collect(),
        }
    }

    /// Publishes so many messages to the topics in turn and waits until all are read and acknowledged.
    pub(crate) fn carry(&mut self, messages: u64) {
        let count = self.readers.len() as u64;
        let (mut published, mut replied, mut read) = (0, 0, 0);
        while replied < messages || read < messages {
            while published < messages && published - replied < AT_ONCE && self.node.takes_more() {
                let number = self.first + published % count;
                let payload = payload::of(published);
                self.node.publish(PUBLISHER, &own_topic(number), &payload);
                published += 1;
            }
            if published == replied && published == read {
                continue;
            }
            for event in self.node.mail() {
                match event {
                    Event::Page { home, items, .. } => read += self.page(home, items),
                    event => {
                        assert_published(&event, 1);
                        replied += 1;
                    }
                }
            }
        }
    }

    /// How many messages it had.
    fn page(&mut self, number: u64, items: Vec<(u64, Queued)>) -> u64 {
        let count = self.readers.len() as u64;
        let place = number - self.first;
        let reader = &mut self.readers[place as usize];
        let mut done = Vec::with_capacity(items.len());
        for (sequence, queued) in items {
            let Queued::Message(item) = queued else {
                panic!("{queued:?}");
            };
            let expected = payload::of(reader.read * count + place);
            assert_eq!(item.message.body.payload(), expected, "client {number}");
            reader.read += 1;
            done.push(sequence);
        }
        let read = done.len();
        self.node.acknowledge(reader.number, reader.epoch, done);
        self.node.credit(reader.inbox, reader.epoch, read as u32);
        read as u64
    }
}

/// Publishes messages to the topics of so many clients in turn, and waits for the replies.
pub(crate) fn queue(node: &Node, messages: u64, clients: u64) {
    let (mut published, mut replied) = (0, 0);
    while replied < messages {
        while published < messages && published - replied < AT_ONCE && node.takes_more() {
            let topic = own_topic(published % clients);
            node.publish(PUBLISHER, &topic, &payload::of(published));
            published += 1;
        }
        if published == replied {
            continue;
        }
        for event in node.mail() {
            assert_published(&event, 1);
            replied += 1;
        }
    }
}

/// Publishes one message, of number 0, for so many clients.
pub(crate) fn broadcast(node: &Node, topic: &str, clients: u64) {
    node.publish(PUBLISHER, topic, &payload::of(0));
    let events = node.mail();
    assert_eq!(events.len(), 1, "{events:?}");
    for event in events {
        assert_published(&event, clients as u32);
    }
}

fn assert_published(event: &Event, matched: u32) {
    let Event::Inbox { reply, .. } = event else {
        panic!("{event:?}");
    };
    let InboxReply::Published {
        matched: found,
        refused,
        ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert_eq!((*found, *refused), (matched, 0));
}
