//! Who takes part in a run, and what each does when it is its turn.
//!
//! Topics: `t/P/0` to `t/P/3` for load, `work/P` for the group, `keep/P/K` for retained messages, `will/W`
//! for wills; P, K and W are numbers. Within a client no two filters match the same topic.

use mqtt_proto::{ProtocolVersion, QoS};

use crate::chance::Chance;
use crate::client::{Answers, Behaviour, Client, Identity, WillPlan};
use crate::model::{Message, Model, Origin, SubscriptionIndex};

/// Topics of each publisher's load.
const TOPICS: u64 = 4;

/// Retained topics of each publisher.
const KEPT: u64 = 3;

/// Delays of wills in seconds, in turn; the last is over long after the run.
const WILL_DELAYS: [u32; 5] = [0, 0, 1, 2, 3600];

/// How many of each kind there are.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Publishers.
    pub publishers: usize,
    /// Subscribers, besides two that watch wills.
    pub subscribers: usize,
    /// Members of the shared subscription.
    pub members: usize,
    /// Clients with a will.
    pub mourned: usize,
}

/// Clients by what they do.
#[derive(Debug)]
pub struct Cast {
    /// All publish, to topics of their own.
    pub publishers: Vec<Client>,
    /// All receive.
    pub receivers: Vec<Client>,
    /// All have wills, and do nothing but come and go.
    pub mourned: Vec<Client>,
    /// Publishes to every topic when a drain asks for it.
    pub prober: Client,
    /// Subscriptions that come and go, by the place of their receiver.
    fickle: Vec<(usize, SubscriptionIndex)>,
}

impl Cast {
    /// Enters all into the model. Nobody is connected.
    #[must_use]
    pub fn new(numbers: Numbers, model: &mut Model) -> Self {
        let mut cast = Self {
            publishers: (0..numbers.publishers)
                .map(|number| Client::new(identity("publisher", number), None, model))
                .collect(),
            receivers: Vec::new(),
            mourned: (0..numbers.mourned)
                .map(|number| mourned(number, model))
                .collect(),
            prober: Client::new(identity("prober", 1), None, model),
            fickle: Vec::new(),
        };
        let publishers = numbers.publishers;
        for number in 0..2 {
            cast.add_receiver(
                "watcher",
                number,
                QoS::ExactlyOnce,
                &["will/#".into()],
                model,
            );
        }
        for number in 0..numbers.subscribers {
            let qos = if number.is_multiple_of(3) {
                QoS::AtLeastOnce
            } else {
                QoS::ExactlyOnce
            };
            let own = number % publishers;
            let other = (number + 1) % publishers;
            let (filters, fickle) = match number % 4 {
                0 => (vec!["t/+/0".to_owned()], Some("t/+/2")),
                1 => (vec![format!("t/{own}/#")], None),
                2 => (vec!["t/#".to_owned()], None),
                _ if own == other => (vec![format!("t/{own}/1")], Some("t/+/3")),
                _ => (
                    vec![format!("t/{own}/1"), format!("t/{other}/1")],
                    Some("t/+/3"),
                ),
            };
            let place = cast.add_receiver("subscriber", number, qos, &filters, model);
            if let Some(filter) = fickle {
                let receiver = &mut cast.receivers[place];
                let subscription = model.add_subscription(receiver.index(), filter, qos);
                receiver.add_interest(subscription);
                cast.fickle.push((place, subscription));
            }
        }
        for number in 0..numbers.members {
            let filter = ["$share/crew/work/#".into()];
            cast.add_receiver("member", number, QoS::ExactlyOnce, &filter, model);
        }
        cast
    }

    fn add_receiver(
        &mut self,
        role: &str,
        number: usize,
        qos: QoS,
        filters: &[String],
        model: &mut Model,
    ) -> usize {
        let mut client = Client::new(identity(role, number), None, model);
        for filter in filters {
            let subscription = model.add_subscription(client.index(), filter, qos);
            client.add_interest(subscription);
            client.want(subscription, true, model);
        }
        self.receivers.push(client);
        self.receivers.len() - 1
    }

    /// Everybody.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Client> {
        let named = [&mut self.publishers, &mut self.receivers, &mut self.mourned];
        named
            .into_iter()
            .flatten()
            .chain(std::iter::once(&mut self.prober))
    }

    /// All but the prober.
    pub fn regulars(&mut self) -> impl Iterator<Item = &mut Client> {
        let named = [&mut self.publishers, &mut self.receivers, &mut self.mourned];
        named.into_iter().flatten()
    }

    /// All publishers do what they do in a moment: publish a little, if there is room.
    pub fn publish(&mut self, model: &mut Model, chance: &mut Chance) {
        for (number, publisher) in self.publishers.iter_mut().enumerate() {
            for _ in 0..chance.among(0..3) {
                if publisher.has_room() {
                    publisher.publish(load(number, publisher.index(), chance), model);
                }
            }
        }
    }

    /// Now and then somebody subscribes or unsubscribes, and a client with a will comes or goes.
    pub fn change(&mut self, model: &mut Model, chance: &mut Chance) {
        for (place, subscription) in &self.fickle {
            let receiver = &mut self.receivers[*place];
            if receiver.is_up() && chance.once_in(20) {
                let is_wanted = !receiver.wants(*subscription);
                receiver.want(*subscription, is_wanted, model);
            }
        }
        for client in &mut self.mourned {
            match chance.among(0..60) {
                0 => client.disconnect(model),
                1 => client.lose(model),
                _ => {}
            }
        }
    }

    /// Publishes a message to every topic that load goes to, as far as there is room; `topics` are those
    /// that are left.
    pub fn probe(&mut self, topics: &mut Vec<String>, model: &mut Model) {
        while self.prober.has_room()
            && let Some(topic) = topics.pop()
        {
            let publisher = self.prober.index();
            let probe = Message::new(Origin::Probe, publisher, topic, QoS::ExactlyOnce);
            self.prober.publish(probe, model);
        }
    }

    /// Every topic that load goes to, retained messages aside.
    #[must_use]
    pub fn topics(&self) -> Vec<String> {
        let mut topics = vec!["work/probe".to_owned(), "will/probe".to_owned()];
        for publisher in 0..self.publishers.len() {
            topics.extend((0..TOPICS).map(|topic| format!("t/{publisher}/{topic}")));
        }
        topics
    }
}

fn identity(role: &str, number: usize) -> Identity {
    let is_v5 = number % 2 == 1;
    Identity {
        name: format!("{role}-{number}"),
        version: if is_v5 {
            ProtocolVersion::V5
        } else {
            ProtocolVersion::V3_1_1
        },
        receive_maximum: [5, 20, 100][number % 3],
        window: [4, 20][number / 2 % 2],
    }
}

fn mourned(number: usize, model: &mut Model) -> Client {
    let delay_s = WILL_DELAYS[number % WILL_DELAYS.len()];
    let mut identity = identity("mourned", number);
    if delay_s > 0 {
        identity.version = ProtocolVersion::V5;
    }
    let will = WillPlan {
        topic: format!("will/{number}"),
        qos: if number.is_multiple_of(3) {
            QoS::AtLeastOnce
        } else {
            QoS::ExactlyOnce
        },
        delay_s,
    };
    Client::new(identity, Some(will), model)
}

fn load(number: usize, publisher: usize, chance: &mut Chance) -> Message {
    let qos = if chance.once_in(2) {
        QoS::AtLeastOnce
    } else {
        QoS::ExactlyOnce
    };
    let message = |topic, qos| Message::new(Origin::Load, publisher, topic, qos);
    match chance.among(0..10) {
        0 => {
            // One QoS, so that the last of a topic is the last that was sent.
            let topic = format!("keep/{number}/{}", chance.among(0..KEPT));
            let mut kept = message(topic, QoS::AtLeastOnce);
            kept.retain = true;
            kept.clears = chance.once_in(6);
            kept
        }
        1 | 2 => message(format!("work/{number}"), qos),
        _ => message(format!("t/{number}/{}", chance.among(0..TOPICS)), qos),
    }
}

/// How a client behaves for a while.
#[must_use]
pub fn behaviour(chance: &mut Chance) -> Behaviour {
    Behaviour {
        answers: match chance.among(0..6) {
            0 => Answers::Never,
            1 | 2 => Answers::Late,
            _ => Answers::AtOnce,
        },
        reads_slowly: chance.once_in(5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model counts on the one, probes on the other.
    #[test]
    fn no_client_gets_a_topic_twice_and_every_subscription_a_topic() {
        for publishers in 1..6 {
            let mut model = Model::default();
            let numbers = Numbers {
                publishers,
                subscribers: 12,
                members: 2,
                mourned: 5,
            };
            let topics = Cast::new(numbers, &mut model).topics();
            for topic in &topics {
                for client in 0..model.clients.len() {
                    let own = model.subscriptions.iter().filter(|s| s.client == client);
                    assert!(own.filter(|own| own.matches(topic)).count() <= 1, "{topic}");
                }
            }
            for subscription in &model.subscriptions {
                let is_probed = topics.iter().any(|topic| subscription.matches(topic));
                assert!(is_probed, "{}", subscription.filter);
            }
        }
    }
}
