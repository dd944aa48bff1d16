//! What clients did and what they were told: the facts from which [`crate::verify`] judges.
//!
//! Invariant: facts are only added, each at a moment of its own ([`At`]), so that before and after are
//! never in doubt. Clients report a send before its bytes leave, and a receipt after its bytes came.
//!
//! Deliberately absent: clocks, sockets, judgement.

mod filter;
mod message;
mod subscription;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use mqtt_proto::{QoS, ReasonCode};

pub use filter::matches;
pub use message::{Message, Origin, Outcome};
pub use subscription::{Period, Subscription};

/// A moment of the run: earlier ones compare less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct At {
    /// Counts all facts of the run.
    pub tick: u64,
    /// The round, from 1.
    pub round: u32,
    /// Since the round began, in milliseconds.
    pub ms: u32,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {} +{} ms (#{})", self.round, self.ms, self.tick)
    }
}

/// A client, by its place in [`Model::clients`].
pub type ClientIndex = usize;
/// A message, by its place in [`Model::messages`].
pub type MessageIndex = usize;
/// A subscription, by its place in [`Model::subscriptions`].
pub type SubscriptionIndex = usize;

/// A PUBLISH that a client received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// What came.
    pub message: MessageIndex,
    /// Counts the client's connections.
    pub connection: u32,
    /// Of the PUBLISH.
    pub packet_id: u16,
    /// Of the PUBLISH.
    pub qos: QoS,
    /// Of the PUBLISH.
    pub dup: bool,
    /// At QoS 2: the message that the packet identifier stood for already, waiting for PUBREL. Such a
    /// PUBLISH is not given to the application.
    pub pending: Option<MessageIndex>,
    /// When.
    pub at: At,
    /// When PUBACK or PUBREC was sent; it may never have arrived.
    pub answered: Option<At>,
    /// At QoS 2: when PUBREL came.
    pub released: Option<At>,
}

/// A client's part of the facts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Client identifier.
    pub name: String,
    /// Connections begun.
    pub connections: u32,
    /// When the server first said that the session exists.
    pub session: Option<At>,
    /// When the server said that it had none although it did.
    pub session_losses: Vec<At>,
    /// In their order.
    pub receipts: Vec<Receipt>,
}

/// Something that was still open when everything was to be finished.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unfinished {
    /// A message that a client published and that was never acknowledged to the end.
    Acknowledgement,
    /// A message at QoS 2 whose PUBREL never came.
    Release,
}

/// What a new subscriber of retained messages was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Before SUBSCRIBE was sent.
    pub from: At,
    /// After the last message.
    pub to: At,
    /// By topic.
    pub values: BTreeMap<String, MessageIndex>,
}

/// A time in which the disk took nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullDisk {
    /// Its begin.
    pub from: At,
    /// Its end.
    pub to: At,
    /// Whether clients without a session were served meanwhile.
    pub served: bool,
    /// Whether something was acknowledged afterwards, by the same process.
    pub recovered: bool,
}

/// All facts of a run.
#[derive(Clone, Debug, Default)]
pub struct Model {
    now: At,
    /// In the order of [`Model::add_client`].
    pub clients: Vec<Client>,
    /// In the order in which they were first sent.
    pub messages: Vec<Message>,
    /// In the order of [`Model::add_subscription`].
    pub subscriptions: Vec<Subscription>,
    /// What was open at the end of a drain.
    pub unfinished: Vec<(ClientIndex, MessageIndex, Unfinished, At)>,
    /// Of retained messages.
    pub readings: Vec<Reading>,
    /// Times of a full disk.
    pub full_disks: Vec<FullDisk>,
    /// When brokers ended by themselves or in disorder, and how.
    pub exits: Vec<(At, String)>,
    /// What a broker sent that it must not send.
    pub complaints: Vec<(ClientIndex, At, String)>,
    /// When everything had been acknowledged and the broker was ended in order.
    pub settled: Vec<At>,
    /// Which client's application has which message.
    delivered: HashSet<(ClientIndex, MessageIndex)>,
}

impl Model {
    /// Sets the time of the facts that follow.
    pub fn set_time(&mut self, round: u32, ms: u32) {
        self.now.round = round;
        self.now.ms = ms;
    }

    /// A moment of its own.
    pub fn tick(&mut self) -> At {
        self.now.tick += 1;
        self.now
    }

    /// The moment of the last fact.
    #[must_use]
    pub fn now(&self) -> At {
        self.now
    }

    /// A client that will connect.
    pub fn add_client(&mut self, name: &str) -> ClientIndex {
        self.clients.push(Client {
            name: name.to_owned(),
            connections: 0,
            session: None,
            session_losses: Vec::new(),
            receipts: Vec::new(),
        });
        self.clients.len() - 1
    }

    /// A subscription that a client may make. A client's filters must not overlap, and have one QoS.
    pub fn add_subscription(
        &mut self,
        client: ClientIndex,
        filter: &str,
        qos: QoS,
    ) -> SubscriptionIndex {
        self.subscriptions
            .push(Subscription::new(client, filter, qos));
        self.subscriptions.len() - 1
    }

    /// A client sends CONNECT.
    pub fn connecting(&mut self, client: ClientIndex) {
        self.tick();
        self.clients[client].connections += 1;
    }

    /// CONNACK came.
    pub fn connected(&mut self, client: ClientIndex, session_present: bool) {
        let at = self.tick();
        let record = &mut self.clients[client];
        if record.session.is_some() && !session_present {
            record.session_losses.push(at);
            for subscription in &mut self.subscriptions {
                if subscription.client == client {
                    subscription.end(at);
                }
            }
        }
        self.clients[client].session.get_or_insert(at);
    }

    /// A message that is about to be sent, or a will with the CONNECT that is about to be sent.
    pub fn add_message(&mut self, message: Message) -> MessageIndex {
        self.messages.push(message);
        self.messages.len() - 1
    }

    /// A PUBLISH with it leaves the client; for a will: the CONNECT.
    pub fn sent(&mut self, message: MessageIndex) {
        let at = self.tick();
        self.messages[message].sends.push(at);
    }

    /// PUBACK or PUBREC came for it; for a will: its connection has ended so that it must be published.
    pub fn acknowledged(&mut self, message: MessageIndex) {
        let at = self.tick();
        self.messages[message].outcome = Outcome::Acknowledged(at);
    }

    /// PUBCOMP came for it.
    pub fn completed(&mut self, message: MessageIndex) {
        let at = self.tick();
        self.messages[message].completed = Some(at);
    }

    /// PUBACK or PUBREC refused it.
    pub fn refused(&mut self, message: MessageIndex, reason: ReasonCode) {
        let at = self.tick();
        self.messages[message].outcome = Outcome::Refused(at, reason);
    }

    /// A will must not be published.
    pub fn withdrawn(&mut self, message: MessageIndex) {
        let at = self.tick();
        self.messages[message].outcome = Outcome::Withdrawn(at);
    }

    /// The broker may have ended by itself at any moment since, which closes connections as well: what their
    /// closing has confirmed since is open again.
    pub fn doubt_withdrawals(&mut self, since: At) {
        for message in &mut self.messages {
            if matches!(message.outcome, Outcome::Withdrawn(at) if at > since) {
                message.outcome = Outcome::Pending;
            }
        }
    }

    /// SUBSCRIBE leaves the client. Sent again, it is the same subscription.
    pub fn subscribing(&mut self, subscription: SubscriptionIndex) {
        let at = self.tick();
        self.subscriptions[subscription].ask(at);
    }

    /// SUBACK came.
    pub fn subscribed(&mut self, subscription: SubscriptionIndex) {
        let at = self.tick();
        self.subscriptions[subscription].grant(at);
    }

    /// UNSUBSCRIBE leaves the client.
    pub fn unsubscribing(&mut self, subscription: SubscriptionIndex) {
        let at = self.tick();
        self.subscriptions[subscription].leave(at);
    }

    /// UNSUBACK came.
    pub fn unsubscribed(&mut self, subscription: SubscriptionIndex) {
        let at = self.tick();
        self.subscriptions[subscription].end(at);
    }

    /// A PUBLISH came; what comes later, and when it came, is set here.
    pub fn received(&mut self, client: ClientIndex, mut receipt: Receipt) {
        receipt.at = self.tick();
        receipt.answered = None;
        receipt.released = None;
        self.clients[client].receipts.push(receipt);
        if receipt.pending.is_none() {
            self.delivered.insert((client, receipt.message));
        }
    }

    /// PUBACK or PUBREC leaves the client.
    pub fn answered(&mut self, client: ClientIndex, packet_id: u16) {
        let at = self.tick();
        let record = &mut self.clients[client];
        let connection = record.connections;
        let receipts = record.receipts.iter_mut().rev();
        if let Some(receipt) = receipts
            .take_while(|receipt| receipt.connection == connection)
            .find(|receipt| receipt.packet_id == packet_id)
        {
            receipt.answered = Some(at);
        }
    }

    /// PUBREL came for a message that was received.
    pub fn released(&mut self, client: ClientIndex, packet_id: u16) {
        let at = self.tick();
        let receipts = self.clients[client].receipts.iter_mut().rev();
        let mut of_identifier = receipts.filter(|receipt| receipt.packet_id == packet_id);
        if let Some(receipt) = of_identifier.next() {
            receipt.released = Some(at);
        }
    }

    /// The broker sent something that it must not send.
    pub fn complain(&mut self, client: ClientIndex, complaint: String) {
        let at = self.tick();
        self.complaints.push((client, at, complaint));
    }

    /// Whether a client's application has a message.
    #[must_use]
    pub fn has(&self, client: ClientIndex, message: MessageIndex) -> bool {
        self.delivered.contains(&(client, message))
    }

    /// All that is known of a message, a line for each fact, in order.
    #[must_use]
    pub fn history(&self, index: MessageIndex) -> String {
        let Some(message) = self.messages.get(index) else {
            return "    a message that nobody sent\n".to_owned();
        };
        let mut facts = message.facts(&self.clients[message.publisher].name);
        for client in &self.clients {
            for receipt in client.receipts.iter().filter(|r| r.message == index) {
                facts.push((receipt.at, describe(client, receipt)));
                if let Some(at) = receipt.answered {
                    facts.push((at, format!("{} acknowledged it", client.name)));
                }
                if let Some(at) = receipt.released {
                    facts.push((at, format!("{} got PUBREL for it", client.name)));
                }
            }
        }
        for (client, _, what, at) in self.unfinished.iter().filter(|open| open.1 == index) {
            facts.push((
                *at,
                format!("{}: open {what:?}", self.clients[*client].name),
            ));
        }
        facts.sort();
        let lines = facts
            .into_iter()
            .map(|(at, fact)| format!("    {at}: {fact}\n"));
        lines.collect()
    }
}

fn describe(client: &Client, receipt: &Receipt) -> String {
    format!(
        "{} received it: connection {}, packet identifier {}, QoS {}, DUP {}{}",
        client.name,
        receipt.connection,
        receipt.packet_id,
        receipt.qos.as_u8(),
        u8::from(receipt.dup),
        if receipt.pending.is_some() {
            ", identifier waits for PUBREL"
        } else {
            ""
        },
    )
}
