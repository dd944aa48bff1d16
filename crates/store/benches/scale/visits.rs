//! Clients that come, do what is to be done, and leave; many at a time.

use std::collections::HashMap;

use store_state::api::Event;
use store_state::inbox::{Attached, InboxReply, Queued};
use store_state::session::{Claimed, SessionReply};

use crate::node::{Node, client};
use crate::payload;

/// Clients that are under way at once.
const AT_ONCE: u64 = 2_048;

/// What each client does between its coming and its leaving.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// Subscribes, as a new client; otherwise it is one that comes again.
    pub(crate) subscribe: Option<&'a dyn Fn(u64) -> String>,
    /// Reads and acknowledges so many messages: all that are queued.
    pub(crate) read: u64,
    /// The number in the payload of a client's message, by client and from 0.
    pub(crate) number: &'a dyn Fn(u64, u64) -> u64,
}

impl Plan<'_> {
    pub(crate) const fn leave_at_once() -> Self {
        Self {
            subscribe: None,
            read: 0,
            number: &|_, _| 0,
        }
    }
}

/// A client that is under way.
#[derive(Default)]
struct Visit {
    epoch: u64,
    inbox: u64,
    /// Messages that it has got.
    read: u64,
    /// The last sequence of these.
    last: u64,
}

/// Plays visits; a client's number is the token of its requests.
pub(crate) fn play(node: &Node, clients: impl Iterator<Item = u64>, plan: Plan<'_>) {
    let mut clients = clients.fuse();
    let mut crowd = Crowd {
        node,
        plan,
        visits: HashMap::new(),
    };
    loop {
        while (crowd.visits.len() as u64) < AT_ONCE
            && let Some(number) = clients.next()
        {
            crowd.visits.insert(number, Visit::default());
            node.claim(number, number);
        }
        if crowd.visits.is_empty() {
            return;
        }
        for event in node.mail() {
            crowd.go_on(event);
        }
    }
}

struct Crowd<'a> {
    node: &'a Node,
    plan: Plan<'a>,
    visits: HashMap<u64, Visit>,
}

impl Crowd<'_> {
    fn go_on(&mut self, event: Event) {
        match event {
            Event::Session { token, reply } => match reply {
                SessionReply::Claimed(claimed) => self.claimed(token, claimed),
                SessionReply::Done => {
                    let known = self.visits.remove(&token).is_some();
                    assert!(known, "a client leaves once");
                }
                SessionReply::Stale | SessionReply::NotOwner => {
                    panic!("the claim of client {token} is {reply:?}")
                }
            },
            Event::Inbox { token, reply } => match reply {
                InboxReply::Attached(attached) => self.attached(token, &attached),
                InboxReply::Subscribed(new) => {
                    assert_eq!(new, [true], "the client is new");
                    self.detach(token);
                }
                InboxReply::Done => {
                    let epoch = self.visit(token).epoch;
                    self.node.disconnect(token, token, epoch);
                }
                other => panic!("{other:?} for client {token}"),
            },
            Event::Page {
                home, epoch, items, ..
            } => self.page(home, epoch, items),
            other => panic!("{other:?}"),
        }
    }

    fn visit(&mut self, number: u64) -> &mut Visit {
        let visit = self.visits.get_mut(&number);
        visit.unwrap_or_else(|| panic!("{} is not under way", client(number)))
    }

    fn claimed(&mut self, number: u64, claimed: Claimed) {
        let is_new = self.plan.subscribe.is_some();
        assert_eq!(claimed.resumed, !is_new, "{}", client(number));
        self.visit(number).epoch = claimed.epoch;
        self.node
            .attach(number, number, claimed.epoch, claimed.resumed);
    }

    fn attached(&mut self, number: u64, attached: &Attached) {
        let visit = self.visit(number);
        visit.inbox = attached.inbox;
        visit.last = attached.first - 1;
        let (inbox, epoch) = (visit.inbox, visit.epoch);
        if let Some(filter) = self.plan.subscribe {
            self.node.subscribe(number, number, epoch, &filter(number));
            return;
        }
        assert!(attached.present, "the inbox is there");
        assert_eq!(attached.subscriptions.len(), 1, "{}", client(number));
        if self.plan.read > 0 {
            self.node.open_queue(number, inbox, epoch, attached.first);
        } else {
            self.detach(number);
        }
    }

    fn page(&mut self, number: u64, epoch: u64, items: Vec<(u64, Queued)>) {
        let (plan, node) = (self.plan, self.node);
        let visit = self.visit(number);
        assert_eq!(visit.epoch, epoch, "the page is of this connection");
        let mut done = Vec::with_capacity(items.len());
        for (sequence, queued) in items {
            let Queued::Message(item) = queued else {
                panic!("{queued:?}");
            };
            assert_eq!(sequence, visit.last + 1, "the order of {}", client(number));
            let expected = payload::of((plan.number)(number, visit.read));
            assert_eq!(item.message.body.payload(), expected, "{}", client(number));
            visit.last = sequence;
            visit.read += 1;
            done.push(sequence);
        }
        assert!(visit.read <= plan.read, "{} has too many", client(number));
        let (inbox, more, ended) = (visit.inbox, done.len() as u32, visit.read == plan.read);
        node.acknowledge(number, epoch, done);
        if ended {
            node.close_queue(inbox, epoch);
            self.detach(number);
        } else {
            node.credit(inbox, epoch, more);
        }
    }

    fn detach(&mut self, number: u64) {
        let Visit { epoch, last, .. } = *self.visit(number);
        self.node.detach(number, number, epoch, last);
    }
}
