//! Draws the entries of a corpus: operations of all kinds, most of which find what they are for.
//!
//! What is drawn for a level never changes afterwards: the corpus of a level is kept, and this draws that of the next one.

use crate::mirror::{
    Bytes, Call, Claim, ClaimBy, Full, Header, Inbox, Item, Limit, Message, Name, Origin, Progress,
    Request, Retain, Session, Subscription,
};

/// The level since which sessions are named by numbers, queues have classes, and so on.
const SPLITS: u32 = 3;

/// The level since which members of shared groups that are away leave messages to their groups.
const LEAVES: u32 = 5;

/// The level since which retained messages have ages, and are removed by them.
const AGED: u32 = 8;

const CLIENTS: usize = 14;
const NODES: u64 = 3;
const FILTERS: [&str; 8] = [
    "a/+",
    "a/b",
    "b/#",
    "#",
    "c/d/+",
    "$share/g/a/+",
    "$share/h/b/#",
    "c/d/e",
];
const TOPICS: [&str; 6] = ["a/b", "a/c", "b/b", "b/c/d", "c/d/e", "x"];

/// Numbers that are the same on all machines and in all versions.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    fn is(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// What a machine has answered to an attachment.
#[derive(Clone, Copy)]
pub(crate) struct Attached {
    pub(crate) inbox: u64,
    pub(crate) incarnation: u64,
    pub(crate) slot: u16,
}

/// A client as far as the requests about it go.
#[derive(Clone, Default)]
struct Client {
    epoch: u64,
    node: u64,
    inbox: u64,
    slot: u16,
    incarnation: u64,
    sent: u64,
    packet_id: u16,
}

/// The world that asks.
pub(crate) struct World {
    pub(crate) draw: Draw,
    level: u32,
    pub(crate) now_ms: u64,
    epoch: u64,
    calls: u64,
    incarnations: [u64; NODES as usize + 1],
    clients: Vec<Client>,
    /// The client of the last attachment.
    pub(crate) attaching: usize,
}

fn identifier(client: usize) -> String {
    match client {
        // Longer than its name.
        0 => format!("{}{client}", "long-identifier-".repeat(4)),
        1 => format!("{}{client}", "another-identifier-".repeat(20)),
        _ => format!("client-{client}"),
    }
}

impl World {
    pub(crate) fn new(seed: u64, level: u32) -> Self {
        Self {
            draw: Draw::new(seed),
            level,
            now_ms: 1_700_000_000_000,
            epoch: 10,
            calls: 0,
            incarnations: [1; NODES as usize + 1],
            clients: vec![Client::default(); CLIENTS],
            attaching: 0,
        }
    }

    /// What the machine has said of the last attachment.
    pub(crate) fn attached(&mut self, attached: Attached) {
        let client = &mut self.clients[self.attaching];
        client.inbox = attached.inbox;
        client.slot = attached.slot;
        client.incarnation = attached.incarnation;
    }

    /// A batch of one to three operations as an entry of a log, with its format.
    pub(crate) fn entry<O: serde::Serialize>(&mut self, store: u8, ops: Vec<O>) -> Vec<u8> {
        self.now_ms += self.draw.below(400);
        if self.draw.is(1) {
            self.now_ms += 70_000;
        }
        let full = match self.draw.below(10) {
            0 => Full(1, None),
            1 => Full(2, None),
            2 if self.level >= SPLITS => Full(3, Some(self.draw.below(60) as u32)),
            3 if self.level >= SPLITS => Full(4, None),
            4 if self.level >= SPLITS => Full(7, Some(5)),
            _ => Full(0, None),
        };
        let header = Header {
            now_ms: self.now_ms,
            messages: 12,
            bytes: 4_000,
            full,
            qos0: [0, 0, 0, 1, 2][self.draw.below(5) as usize],
            retained_messages: 12,
            retained_bytes: 8_000,
        };
        let requests: Vec<Request<O>> =
            ops.into_iter().map(|op| Request { until: 1, op }).collect();
        let mut entry = vec![1, store];
        entry.extend(postcard::to_stdvec(&(header, requests)).unwrap());
        if store == 1 && self.level >= SPLITS && self.draw.is(30) {
            entry[0] = 3;
            let classes = vec![
                (7u32, (4u32, 900u64, Full(0, None))),
                (8, (30, 9_000, Full(2, None))),
            ];
            entry.extend(postcard::to_stdvec(&classes).unwrap());
        }
        entry
    }

    fn message(&mut self) -> Message {
        let topic = *self.draw.of(&TOPICS);
        let payload = vec![b'p'; self.draw.below(90) as usize];
        let mut bytes = (topic.len() as u16).to_be_bytes().to_vec();
        bytes.extend(topic.as_bytes());
        bytes.extend(payload);
        let expires_at = match self.draw.is(15) {
            true => self.now_ms + self.draw.below(60_000),
            false => 0,
        };
        Message {
            flags: self.draw.below(3) as u8 | (u8::from(self.draw.is(20)) << 2),
            expires_at,
            properties_len: 0,
            bytes: Bytes(bytes),
        }
    }

    fn item(&mut self) -> Item {
        let group = self.draw.is(50).then(|| Bytes::from("$share/g/a/+"));
        Item {
            message: self.message(),
            qos: self.draw.below(3) as u8,
            retain: self.draw.is(20),
            subscription_ids: (0..self.draw.below(3) as u32).map(|id| id + 1).collect(),
            group,
        }
    }

    fn items(&mut self) -> Vec<Item> {
        let count = 1 + self.draw.below(2);
        (0..count).map(|_| self.item()).collect()
    }

    fn pick(&mut self) -> usize {
        self.draw.below(CLIENTS as u64) as usize
    }

    /// A session as this level calls it.
    fn session(&mut self, client: usize) -> Name {
        let Client { inbox, slot, .. } = self.clients[client];
        if self.level < SPLITS || inbox == 0 || self.draw.is(20) {
            return Name::from(&*identifier(client));
        }
        let mut name = vec![0xFF];
        name.extend(slot.to_be_bytes());
        let number = inbox.to_be_bytes();
        name.extend(number.iter().skip_while(|byte| **byte == 0));
        Bytes(name)
    }

    fn origin(&mut self) -> Origin {
        let client = self.pick();
        let of_broker = self.draw.is(20);
        let publisher = &mut self.clients[client];
        if publisher.packet_id == 0 || self.draw.is(70) {
            publisher.packet_id = publisher.packet_id.wrapping_add(37) | 1;
        }
        Origin {
            client: Name::from(&*identifier(client)),
            incarnation: publisher.incarnation.max(1),
            packet_id: if of_broker { 0 } else { publisher.packet_id },
        }
    }

    fn call(&mut self) -> Call {
        self.calls += 1;
        let back = self.draw.below(4);
        let node = 1 + self.draw.below(NODES);
        Call {
            node,
            loop_index: self.draw.below(2) as u16,
            incarnation: self.incarnations[node as usize],
            number: self.calls.saturating_sub(back).max(1),
            oldest: self.calls.saturating_sub(6).max(1),
        }
    }

    /// An operation of an inbox shard, and whether it attaches.
    pub(crate) fn inbox(&mut self) -> (Inbox, bool) {
        let client = self.pick();
        let name = Name::from(&*identifier(client));
        let epoch = match self.draw.is(5) {
            true => self.clients[client].epoch.saturating_sub(1),
            false => self.clients[client].epoch,
        };
        let sent = self.clients[client].sent;
        let op = match self.draw.below(100) {
            0..=17 => return (self.attach(client, name), true),
            18 => {
                let node = 1 + self.draw.below(NODES);
                self.incarnations[node as usize] += 1;
                Inbox::NodeUp(node, self.incarnations[node as usize])
            }
            19..=23 => Inbox::Detach(self.session(client), epoch, sent),
            24..=25 => Inbox::Remove(self.session(client), epoch),
            26..=35 => {
                let count = 1 + self.draw.below(3);
                let subscriptions = (0..count).map(|_| Subscription {
                    filter: Bytes::from(*self.draw.of(&FILTERS)),
                    options: self.draw.below(3) as u8 | ((self.draw.below(3) as u8) << 4),
                    id: self.draw.below(3) as u32,
                });
                let subscriptions = subscriptions.collect();
                Inbox::Subscribe(self.session(client), epoch, subscriptions)
            }
            36..=38 => {
                let filter = Bytes::from(*self.draw.of(&FILTERS));
                Inbox::Unsubscribe(self.session(client), epoch, vec![filter])
            }
            39..=55 => {
                let origin = self.draw.is(60).then(|| self.origin());
                Inbox::Publish(self.message(), self.draw.below(u64::MAX), origin)
            }
            56..=59 => {
                let origin = self.draw.is(60).then(|| self.origin());
                Inbox::Deliver(self.session(client), self.items(), origin)
            }
            60..=68 => {
                let sent = sent + self.draw.below(5);
                self.clients[client].sent = sent;
                let done = (0..self.draw.below(4))
                    .map(|back| sent.saturating_sub(back))
                    .collect();
                Inbox::Acknowledge(self.session(client), epoch, sent, done)
            }
            69..=71 => {
                let back = self.draw.below(3);
                Inbox::Receipt(self.session(client), epoch, sent.saturating_sub(back))
            }
            72..=74 => Inbox::Release(self.origin()),
            75 => Inbox::Forget(name, self.clients[client].incarnation),
            76..=78 => {
                let filter = *self.draw.of(&FILTERS);
                let progress = Progress {
                    filter: Bytes::from(filter),
                    from: Bytes(Vec::new()),
                    next: self.draw.is(40).then(|| Bytes::from("place")),
                };
                Inbox::Replay(self.session(client), epoch, self.items(), vec![progress])
            }
            79..=80 => {
                let inbox = self.clients[client].inbox;
                let done = (0..self.draw.below(4)).map(|n| n + 1).collect();
                Inbox::HandOver(name, inbox, done)
            }
            81..=83 => Inbox::PublishOnce(self.call(), self.message(), 0),
            84..=85 => Inbox::DeliverOnce(self.call(), self.session(client), self.items()),
            86..=87 => Inbox::Linger(self.session(client), epoch, sent),
            88 => Inbox::DeliverLate(self.session(client), epoch, self.draw.is(50), self.item()),
            89..=91 => {
                let (origin, message) = (self.origin(), self.message());
                Inbox::PublishFenced(message, 0, origin, epoch)
            }
            92..=93 => {
                let origin = self.origin();
                Inbox::DeliverFenced(self.session(client), self.items(), origin, epoch)
            }
            94..=95 => Inbox::ReleaseFenced(self.origin(), epoch),
            _ if self.level >= LEAVES && self.draw.is(40) => {
                let group = Bytes::from("$share/g/a/+");
                let from = self.draw.below(sent + 2);
                let limit = Limit::Away(epoch, group);
                Inbox::Trim(self.session(client), from, from + 6, limit)
            }
            _ if self.level >= SPLITS => {
                let from = self.draw.below(sent + 2);
                Inbox::Trim(
                    self.session(client),
                    from,
                    from + 4,
                    match self.draw.below(3) {
                        0 => Limit::Age,
                        1 => Limit::Bytes,
                        _ => Limit::Purge,
                    },
                )
            }
            _ => Inbox::Release(self.origin()),
        };
        (op, false)
    }

    fn attach(&mut self, client: usize, name: Name) -> Inbox {
        self.attaching = client;
        let last = self.clients[client].epoch;
        let is_again = last > 0 && self.draw.is(20);
        if !is_again {
            self.epoch += 1 + self.draw.below(3);
            let node = 1 + self.draw.below(NODES);
            let new = &mut self.clients[client];
            (new.epoch, new.node) = (self.epoch, node);
        }
        let Client { epoch, node, .. } = self.clients[client];
        let resume = !self.draw.is(25);
        let incarnation = self.incarnations[node as usize];
        let knows = self.draw.is(50);
        match self.draw.below(4) {
            0 if self.level >= SPLITS => {
                let class = [0, 7, 8][self.draw.below(3) as usize];
                let last = self.draw.is(50).then_some((last, knows));
                Inbox::AttachAs(name, epoch, node, incarnation, resume, last, class)
            }
            1 => Inbox::AttachAgain(name, epoch, node, incarnation, last, knows),
            _ => Inbox::Attach(name, epoch, node, incarnation, resume),
        }
    }

    /// An operation of a session shard. Epochs are given from 1, so any low number is one.
    pub(crate) fn session_op(&mut self) -> Session {
        let client = self.pick();
        let name = Bytes::from(&*identifier(client));
        let epoch = 1 + self.draw.below(self.epoch);
        match self.draw.below(20) {
            0 => {
                let node = 1 + self.draw.below(NODES);
                self.incarnations[node as usize] += 1;
                Session::NodeUp(node, self.incarnations[node as usize], self.now_ms - 500)
            }
            1 => Session::Claim(self.claim(name)),
            2 => Session::ClaimAgain(self.claim(name)),
            3 => Session::ClaimBy(self.claim_by(name)),
            4 => Session::ClaimByAgain(self.claim_by(name)),
            5..=8 => Session::ClaimHolding(self.claim_by(name)),
            9 => Session::ClaimHoldingAgain(self.claim_by(name)),
            10..=12 => {
                let expiry = [0, 30, u32::MAX][self.draw.below(3) as usize];
                Session::Disconnect(
                    name,
                    self.epoch_of(client),
                    expiry,
                    self.draw.below(2) as u8,
                )
            }
            13 => Session::Fired(name, epoch),
            14 => Session::Gone(name, epoch),
            15 => Session::Due,
            16 => Session::WillDue(name, self.epoch_of(client)),
            17 => Session::DiscardWill(name, epoch),
            18 => Session::FireAgain(name, epoch),
            _ if self.level >= SPLITS => Session::End(name, self.epoch_of(client)),
            _ => Session::Due,
        }
    }

    /// The client has claimed, and was given an epoch.
    pub(crate) fn claimed(&mut self, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
        self.clients[self.attaching].epoch = epoch;
    }

    fn epoch_of(&mut self, client: usize) -> u64 {
        self.clients[client].epoch
    }

    fn claim(&mut self, client: Bytes) -> Claim {
        let all = (0..CLIENTS).map(|n| (n, identifier(n)));
        let found = all.into_iter().find(|(_, of)| of.as_bytes() == client.0);
        self.attaching = found.map_or(0, |(n, _)| n);
        let node = 1 + self.draw.below(NODES);
        let will = self.draw.is(40).then(|| {
            let expiry = self.draw.is(30).then_some(60);
            (
                self.message(),
                expiry,
                [0, 1, 20][self.draw.below(3) as usize],
            )
        });
        Claim {
            client,
            node,
            node_incarnation: self.incarnations[node as usize],
            clean_start: self.draw.is(30),
            expiry: [0, 10, 600, u32::MAX][self.draw.below(4) as usize],
            will,
            asked_ms: self.now_ms - self.draw.below(100),
        }
    }

    fn claim_by(&mut self, client: Bytes) -> ClaimBy {
        let user = self.draw.is(50).then(|| Bytes::from("user"));
        (self.claim(client), user, self.draw.below(2) as u8)
    }

    pub(crate) fn retain(&mut self) -> Retain {
        if self.level >= AGED && self.draw.is(15) {
            return self.remove();
        }
        match self.draw.below(10) {
            0 => Retain::Expire,
            1..=2 => {
                let (origin, message) = (self.origin(), self.message());
                Retain::SetWill(
                    message,
                    Origin {
                        packet_id: 0,
                        ..origin
                    },
                )
            }
            3..=4 => Retain::SetFrom(self.message(), self.draw.below(4), self.draw.below(9)),
            _ => Retain::Set(self.message()),
        }
    }

    /// Removes what was retained by the last entry, if it was of that topic, or nothing.
    fn remove(&mut self) -> Retain {
        let mut topics = Vec::new();
        for _ in 0..self.draw.below(4) {
            let topic = Bytes::from(*self.draw.of(&TOPICS));
            let since = self.now_ms - self.draw.below(2);
            topics.push((topic, since));
        }
        Retain::Remove(topics, self.draw.below(4) as u8)
    }
}
