//! Judges what each client received: how often, in which order, with which flags.

use std::collections::HashMap;

use mqtt_proto::QoS;

use super::{Kind, Violation};
use crate::model::{
    At, Client, ClientIndex, Message, MessageIndex, Model, Origin, Outcome, Receipt, Subscription,
};

pub(super) fn check(model: &Model) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, client) in model.clients.iter().enumerate() {
        let mut receiver = Receiver::new(model, index);
        for receipt in &client.receipts {
            receiver.check(receipt, &mut found);
        }
        order(model, index, client, &mut found);
    }
    shared_once(model, &mut found);
    found
}

/// A message on its way to a client under a packet identifier.
struct Copy {
    last: Receipt,
}

struct Receiver<'a> {
    model: &'a Model,
    client: ClientIndex,
    copies: HashMap<MessageIndex, Vec<Copy>>,
}

impl<'a> Receiver<'a> {
    fn new(model: &'a Model, client: ClientIndex) -> Self {
        Self {
            model,
            client,
            copies: HashMap::new(),
        }
    }

    fn violation(&self, kind: Kind, receipt: &Receipt) -> Violation {
        Violation::new(kind, self.client, receipt.message, receipt.at)
    }

    /// When the client was subscribed to a topic.
    fn subscriptions_to(&self, topic: &str) -> String {
        let mut text = String::new();
        for subscription in &self.model.subscriptions {
            if subscription.client == self.client && subscription.matches(topic) {
                text += &format!("{}: {:?}; ", subscription.filter, subscription.periods);
            }
        }
        text
    }

    fn check(&mut self, receipt: &Receipt, found: &mut Vec<Violation>) {
        let Some(message) = self.model.messages.get(receipt.message) else {
            found.push(self.violation(Kind::Stray, receipt));
            return;
        };
        let wanted_by = self.model.subscriptions.iter().find(|subscription| {
            subscription.client == self.client && subscription.may_receive(message)
        });
        if receipt.pending.is_some() {
            // The application does not see it.
        } else if matches!(message.outcome, Outcome::Withdrawn(_)) {
            found.push(self.violation(Kind::WillWithdrawn, receipt));
        } else if wanted_by.is_none() {
            let history = self.subscriptions_to(&message.topic);
            found.push(self.violation(Kind::Stray, receipt).with(history));
        }
        // 5.0 §4.8.2: at QoS 1 a group's message may go to another member, and come back.
        let is_handed_on =
            receipt.qos == QoS::AtLeastOnce && wanted_by.is_some_and(Subscription::is_shared);
        let allowed = if is_handed_on {
            usize::MAX
        } else {
            allowed(message, receipt)
        };
        self.count(allowed, message, receipt, found);
    }

    /// A PUBLISH is either a new copy of the message, of which `allowed` may come, or one that was sent
    /// before and whose acknowledgement may not have arrived.
    fn count(
        &mut self,
        allowed: usize,
        message: &Message,
        receipt: &Receipt,
        found: &mut Vec<Violation>,
    ) {
        if let Some(pending) = receipt.pending
            && pending != receipt.message
        {
            let detail = format!("it stood for message {pending}");
            found.push(self.violation(Kind::IdentifierReused, receipt).with(detail));
            return;
        }
        let settled = &self.model.settled;
        let copies = self.copies.entry(receipt.message).or_default();
        let known = copies
            .iter_mut()
            .find(|copy| is_same_copy(&copy.last, receipt, settled));
        let kind = match known {
            Some(copy) => {
                let is_again = copy.last.connection == receipt.connection;
                copy.last = *receipt;
                match (is_again, receipt.dup) {
                    // 5.0 §4.4: sent again after a reconnect, at no other time.
                    (true, _) => Some(too_often(message)),
                    // 5.0 §3.3.1.1: DUP when it is sent again.
                    (false, false) => Some(Kind::DupMissing),
                    (false, true) => None,
                }
            }
            None => {
                let is_too_often = copies.len() >= allowed;
                copies.push(Copy { last: *receipt });
                is_too_often.then(|| too_often(message))
            }
        };
        found.extend(kind.map(|kind| self.violation(kind, receipt)));
    }
}

fn too_often(message: &Message) -> Kind {
    if message.origin == Origin::Will {
        Kind::WillTwice
    } else {
        Kind::Duplicate
    }
}

/// Whether `receipt` is what came as `before`, sent again.
fn is_same_copy(before: &Receipt, receipt: &Receipt, settled: &[At]) -> bool {
    if before.packet_id != receipt.packet_id || before.qos != receipt.qos {
        return false;
    }
    if receipt.qos == QoS::ExactlyOnce {
        return receipt.pending.is_some();
    }
    match before.answered {
        None => true,
        // The acknowledgement may be lost with the connection or the broker, unless all was settled since.
        Some(answered) => {
            receipt.dup
                && before.connection != receipt.connection
                && !settled.iter().any(|at| answered < *at && *at < receipt.at)
        }
    }
}

/// How many copies of a message there may be: each send at QoS 1 may have become one.
fn allowed(message: &Message, receipt: &Receipt) -> usize {
    if message.origin == Origin::Will || message.qos == QoS::ExactlyOnce {
        return 1;
    }
    message
        .sends
        .iter()
        .filter(|sent| **sent < receipt.at)
        .count()
}

/// First receipts of a publisher's messages of one QoS come in the order in which they were first sent.
fn order(model: &Model, index: ClientIndex, client: &Client, found: &mut Vec<Violation>) {
    let own: Vec<&Subscription> = model
        .subscriptions
        .iter()
        .filter(|subscription| subscription.client == index && !subscription.is_shared())
        .collect();
    let mut seen = std::collections::HashSet::new();
    let mut last: HashMap<(ClientIndex, QoS), (At, MessageIndex)> = HashMap::new();
    for receipt in &client.receipts {
        let Some(message) = model.messages.get(receipt.message) else {
            continue;
        };
        let is_first = seen.insert(receipt.message);
        // Messages that were not acknowledged keep the order as well: only what the subscription may have
        // missed on its first way is left out.
        let in_force = own.iter().any(|subscription| {
            subscription.matches(&message.topic)
                && subscription.periods.iter().any(|period| {
                    period.granted.is_some_and(|at| at <= message.first_sent())
                        && period.leaving.is_none_or(|at| receipt.at < at)
                })
        });
        if !is_first || message.origin == Origin::Will || !in_force {
            continue;
        }
        let key = (message.publisher, message.qos);
        let sent = (message.first_sent(), receipt.message);
        match last.get(&key) {
            Some((before, other)) if *before > sent.0 => {
                let detail = format!("message {other} came first and was sent later");
                let violation = Violation::new(Kind::Reordered, index, receipt.message, receipt.at);
                found.push(violation.with(detail));
            }
            _ => {
                last.insert(key, sent);
            }
        }
    }
}

/// At QoS 2 one member of a group gets a message, once.
fn shared_once(model: &Model, found: &mut Vec<Violation>) {
    let mut owners: HashMap<(&str, MessageIndex), ClientIndex> = HashMap::new();
    for subscription in model.subscriptions.iter().filter(|s| s.is_shared()) {
        let receipts = &model.clients[subscription.client].receipts;
        for receipt in receipts
            .iter()
            .filter(|receipt| receipt.qos == QoS::ExactlyOnce && receipt.pending.is_none())
        {
            let known = model.messages.get(receipt.message);
            if !known.is_some_and(|message| subscription.matches(&message.topic)) {
                continue;
            }
            let owner = owners
                .entry((&subscription.filter, receipt.message))
                .or_insert(subscription.client);
            if *owner != subscription.client {
                let detail = format!("{} has it, too", model.clients[*owner].name);
                let client = subscription.client;
                let violation =
                    Violation::new(Kind::Duplicate, client, receipt.message, receipt.at);
                found.push(violation.with(detail));
            }
        }
    }
}
