use mqtt_proto::{QoS, ReasonCode};

use super::{Kind, missing, verify};
use crate::model::{
    At, ClientIndex, FullDisk, Message, MessageIndex, Model, Origin, Reading, Receipt,
    SubscriptionIndex, Unfinished,
};

/// A publisher, and a subscriber to `t/#` and `will/#`; both have a session.
struct World {
    model: Model,
    publisher: ClientIndex,
    subscriber: ClientIndex,
    subscription: SubscriptionIndex,
}

impl World {
    fn new() -> Self {
        let mut model = Model::default();
        let publisher = model.add_client("publisher");
        let subscriber = model.add_client("subscriber");
        let subscription = model.add_subscription(subscriber, "t/#", QoS::ExactlyOnce);
        let wills = model.add_subscription(subscriber, "will/#", QoS::ExactlyOnce);
        for client in [publisher, subscriber] {
            model.connecting(client);
            model.connected(client, false);
        }
        for subscription in [subscription, wills] {
            model.subscribing(subscription);
            model.subscribed(subscription);
        }
        Self {
            model,
            publisher,
            subscriber,
            subscription,
        }
    }

    /// A message that was sent and not acknowledged.
    fn send(&mut self, origin: Origin, topic: &str, qos: QoS) -> MessageIndex {
        let message = Message::new(origin, self.publisher, topic.to_owned(), qos);
        let index = self.model.add_message(message);
        self.model.sent(index);
        index
    }

    /// A message that was sent and acknowledged to the end.
    fn publish(&mut self, qos: QoS) -> MessageIndex {
        let index = self.send(Origin::Load, "t/1", qos);
        self.acknowledge(index);
        index
    }

    fn acknowledge(&mut self, message: MessageIndex) {
        self.model.acknowledged(message);
        if self.model.messages[message].qos == QoS::ExactlyOnce {
            self.model.completed(message);
        }
    }

    fn retain(&mut self, clears: bool, is_acknowledged: bool) -> MessageIndex {
        let index = self.send(Origin::Load, "keep/1", QoS::AtLeastOnce);
        self.model.messages[index].retain = true;
        self.model.messages[index].clears = clears;
        if is_acknowledged {
            self.acknowledge(index);
        }
        index
    }

    fn will(&mut self) -> MessageIndex {
        self.send(Origin::Will, "will/1", QoS::AtLeastOnce)
    }

    /// The subscriber receives a message for the first time under this identifier.
    fn receive(&mut self, message: MessageIndex, packet_id: u16, dup: bool) {
        self.receive_at(self.subscriber, message, packet_id, dup, None);
    }

    fn receive_at(
        &mut self,
        client: ClientIndex,
        message: MessageIndex,
        packet_id: u16,
        dup: bool,
        pending: Option<MessageIndex>,
    ) {
        let receipt = Receipt {
            message,
            connection: self.model.clients[client].connections,
            packet_id,
            qos: self.model.messages[message].qos,
            dup,
            pending,
            at: At::default(),
            answered: None,
            released: None,
        };
        self.model.received(client, receipt);
    }

    fn answer(&mut self, packet_id: u16) {
        self.model.answered(self.subscriber, packet_id);
    }

    fn reconnect(&mut self) {
        self.model.connecting(self.subscriber);
        self.model.connected(self.subscriber, true);
    }

    fn read(&mut self, value: Option<MessageIndex>) {
        let from = self.model.tick();
        let to = self.model.tick();
        let values = value.map(|value| ("keep/1".to_owned(), value));
        self.model.readings.push(Reading {
            from,
            to,
            values: values.into_iter().collect(),
        });
    }

    fn settle(&mut self) {
        let at = self.model.tick();
        self.model.settled.push(at);
    }

    #[track_caller]
    fn expect(&self, kinds: &[Kind]) {
        let found: Vec<Kind> = verify(&self.model)
            .iter()
            .map(|violation| violation.kind)
            .collect();
        assert_eq!(found, kinds);
    }
}

const QOS1: QoS = QoS::AtLeastOnce;
const QOS2: QoS = QoS::ExactlyOnce;

#[test]
fn what_arrives_once_in_order_is_right() {
    let mut world = World::new();
    for number in 1..4 {
        for qos in [QOS1, QOS2] {
            let message = world.publish(qos);
            world.receive(message, number, false);
            world.answer(number);
        }
    }
    world.expect(&[]);
}

#[test]
fn an_acknowledged_message_that_does_not_arrive_is_lost() {
    for qos in [QOS1, QOS2] {
        let mut world = World::new();
        let message = world.publish(qos);
        assert_eq!(missing(&world.model, 0), [(world.subscriber, message)]);
        assert_eq!(missing(&world.model, message + 1), []);
        world.expect(&[Kind::Lost]);
    }
}

#[test]
fn what_was_not_acknowledged_or_refused_may_be_lost_or_arrive() {
    let mut world = World::new();
    let pending = world.send(Origin::Load, "t/1", QOS2);
    let refused = world.send(Origin::Load, "t/1", QOS1);
    world.model.refused(refused, ReasonCode::QuotaExceeded);
    world.expect(&[]);
    world.receive(pending, 1, false);
    world.receive(refused, 2, false);
    world.expect(&[]);
}

#[test]
fn a_subscription_counts_from_suback_to_unsubscribe() {
    let mut world = World::new();
    let early = world.send(Origin::Load, "t/1", QOS1);
    world.acknowledge(early);
    world.receive(early, 1, false);
    world.model.unsubscribing(world.subscription);
    // Between UNSUBSCRIBE and UNSUBACK either is right.
    let between = world.publish(QOS1);
    world.expect(&[]);
    world.receive(between, 2, false);
    world.model.unsubscribed(world.subscription);
    world.expect(&[]);
    let late = world.publish(QOS1);
    world.expect(&[]);
    world.receive(late, 3, false);
    world.expect(&[Kind::Stray]);
    world.model.subscribing(world.subscription);
    world.publish(QOS1);
    world.expect(&[Kind::Stray]);
    world.model.subscribed(world.subscription);
    world.publish(QOS1);
    world.expect(&[Kind::Stray, Kind::Lost]);
}

#[test]
fn at_qos_2_a_server_may_look_for_subscribers_until_pubcomp() {
    let mut world = World::new();
    let message = world.send(Origin::Load, "t/1", QOS2);
    world.model.acknowledged(message);
    world.model.unsubscribing(world.subscription);
    world.model.completed(message);
    world.expect(&[]);
    world.model.unsubscribed(world.subscription);
    let message = world.send(Origin::Load, "t/1", QOS2);
    world.model.acknowledged(message);
    world.model.subscribing(world.subscription);
    world.receive(message, 1, false);
    world.expect(&[]);
}

#[test]
fn a_missing_probe_is_a_lost_subscription() {
    let mut world = World::new();
    let probe = world.send(Origin::Probe, "t/1", QOS2);
    world.acknowledge(probe);
    world.expect(&[Kind::SubscriptionLost]);
}

#[test]
fn a_message_at_qos_2_comes_once() {
    let mut world = World::new();
    let message = world.publish(QOS2);
    world.receive(message, 1, false);
    world.answer(1);
    world.reconnect();
    // PUBREC may be lost.
    world.receive_at(world.subscriber, message, 1, true, Some(message));
    world.expect(&[]);
    world.model.released(world.subscriber, 1);
    world.receive(message, 1, true);
    world.expect(&[Kind::Duplicate]);
}

#[test]
fn a_message_at_qos_2_sent_again_by_its_publisher_comes_once() {
    let mut world = World::new();
    let message = world.send(Origin::Load, "t/1", QOS2);
    world.model.sent(message);
    world.acknowledge(message);
    world.receive(message, 1, false);
    world.expect(&[]);
    world.receive(message, 2, false);
    world.expect(&[Kind::Duplicate]);
}

#[test]
fn at_qos_1_each_send_may_become_a_message() {
    let mut world = World::new();
    let message = world.send(Origin::Load, "t/1", QOS1);
    world.receive(message, 1, false);
    world.answer(1);
    world.model.sent(message);
    world.acknowledge(message);
    world.receive(message, 2, false);
    world.answer(2);
    world.expect(&[]);
    world.receive(message, 3, false);
    world.expect(&[Kind::Duplicate]);
}

#[test]
fn at_qos_1_what_is_not_acknowledged_comes_again_with_dup_after_a_reconnect() {
    let mut world = World::new();
    let message = world.publish(QOS1);
    world.receive(message, 1, false);
    world.reconnect();
    world.receive(message, 1, true);
    world.answer(1);
    world.reconnect();
    // The acknowledgement may be lost.
    world.receive(message, 1, true);
    world.expect(&[]);
    world.receive(message, 1, true);
    world.expect(&[Kind::Duplicate]);
}

#[test]
fn after_an_orderly_end_what_was_acknowledged_does_not_come_again() {
    let mut world = World::new();
    let message = world.publish(QOS1);
    world.receive(message, 1, false);
    world.answer(1);
    world.settle();
    world.reconnect();
    world.receive(message, 1, true);
    world.expect(&[Kind::Duplicate]);
}

#[test]
fn what_comes_again_without_dup_is_found() {
    for qos in [QOS1, QOS2] {
        let mut world = World::new();
        let message = world.publish(qos);
        world.receive(message, 1, false);
        world.reconnect();
        let pending = (qos == QOS2).then_some(message);
        world.receive_at(world.subscriber, message, 1, false, pending);
        world.expect(&[Kind::DupMissing]);
    }
}

#[test]
fn an_identifier_used_before_pubrel_is_found() {
    let mut world = World::new();
    let (first, second) = (world.publish(QOS2), world.publish(QOS2));
    world.receive(first, 1, false);
    world.receive_at(world.subscriber, second, 1, false, Some(first));
    // The application does not get it either.
    world.expect(&[Kind::Lost, Kind::IdentifierReused]);
}

#[test]
fn a_message_that_overtakes_is_found() {
    for qos in [QOS1, QOS2] {
        let mut world = World::new();
        let (first, second) = (world.publish(qos), world.publish(qos));
        world.receive(second, 1, false);
        world.receive(first, 2, false);
        world.expect(&[Kind::Reordered]);
    }
}

#[test]
fn order_is_kept_per_qos_and_by_first_receipts() {
    let mut world = World::new();
    let (first, other) = (world.publish(QOS1), world.publish(QOS2));
    let third = world.publish(QOS1);
    world.receive(other, 1, false);
    world.receive(first, 2, false);
    world.receive(third, 3, false);
    world.reconnect();
    world.receive(first, 2, true);
    world.receive(third, 3, true);
    world.expect(&[]);
}

#[test]
fn what_was_first_sent_before_the_subscription_may_come_late() {
    let mut world = World::new();
    world.model.unsubscribing(world.subscription);
    world.model.unsubscribed(world.subscription);
    let first = world.send(Origin::Load, "t/1", QOS1);
    world.model.subscribing(world.subscription);
    world.model.subscribed(world.subscription);
    let second = world.publish(QOS1);
    world.receive(second, 1, false);
    world.model.sent(first);
    world.acknowledge(first);
    world.receive(first, 2, false);
    world.expect(&[]);
}

#[test]
fn a_lost_session_and_its_messages_are_found() {
    let mut world = World::new();
    world.publish(QOS1);
    world.model.connecting(world.subscriber);
    world.model.connected(world.subscriber, false);
    world.publish(QOS1);
    world.expect(&[Kind::Lost, Kind::SessionLost]);
}

#[test]
fn what_stays_open_is_found() {
    let mut world = World::new();
    let message = world.publish(QOS2);
    world.receive(message, 1, false);
    let at = world.model.tick();
    let open = [
        (world.publisher, message, Unfinished::Acknowledgement, at),
        (world.subscriber, message, Unfinished::Release, at),
    ];
    world.model.unfinished.extend(open);
    world.expect(&[Kind::NeverAcknowledged, Kind::ReleaseMissing]);
}

#[test]
fn a_will_comes_once_or_not_at_all() {
    let mut world = World::new();
    let will = world.will();
    // Nothing is known of its connection.
    world.expect(&[]);
    world.model.acknowledged(will);
    world.expect(&[Kind::WillLost]);
    world.receive(will, 1, false);
    world.expect(&[]);
    world.answer(1);
    world.receive(will, 2, false);
    world.expect(&[Kind::WillTwice]);
}

#[test]
fn a_withdrawn_will_that_comes_is_found() {
    let mut world = World::new();
    let will = world.will();
    world.model.withdrawn(will);
    world.expect(&[]);
    world.receive(will, 1, false);
    world.expect(&[Kind::WillWithdrawn]);
}

#[test]
fn a_will_that_is_published_late_meets_later_subscriptions() {
    let mut world = World::new();
    let will = world.will();
    world.model.acknowledged(will);
    let late = world.model.add_client("late");
    let wills = world
        .model
        .add_subscription(late, "will/#", QoS::ExactlyOnce);
    world.model.connecting(late);
    world.model.connected(late, false);
    world.model.subscribing(wills);
    world.model.subscribed(wills);
    world.receive(will, 1, false);
    world.receive_at(late, will, 1, false, None);
    world.expect(&[]);
}

#[test]
fn what_closed_a_connection_is_open_if_the_broker_may_have_ended() {
    let mut world = World::new();
    let before = world.will();
    world.model.withdrawn(before);
    let from = world.model.tick();
    let since = world.will();
    world.model.withdrawn(since);
    world.model.doubt_withdrawals(from);
    world.receive(since, 1, false);
    world.expect(&[]);
    world.receive(before, 2, false);
    world.expect(&[Kind::WillWithdrawn]);
}

#[test]
fn the_last_acknowledged_value_or_a_later_one_is_retained() {
    let mut world = World::new();
    let first = world.retain(false, true);
    let second = world.retain(false, true);
    let pending = world.retain(false, false);
    for right in [second, pending] {
        world.read(Some(right));
    }
    world.expect(&[]);
    world.read(Some(first));
    world.expect(&[Kind::RetainedWrong]);
    world.read(None);
    world.expect(&[Kind::RetainedWrong; 2]);
}

#[test]
fn what_was_cleared_is_not_retained() {
    let mut world = World::new();
    let first = world.retain(false, true);
    world.read(Some(first));
    world.retain(true, false);
    world.read(Some(first));
    world.read(None);
    world.retain(true, true);
    world.read(None);
    world.expect(&[]);
    world.read(Some(first));
    world.expect(&[Kind::RetainedWrong]);
}

#[test]
fn some_member_of_a_group_gets_a_message_and_at_qos_2_only_one() {
    let mut world = World::new();
    let members = ["one", "two"].map(|name| {
        let client = world.model.add_client(name);
        let subscription = world
            .model
            .add_subscription(client, "$share/g/work/#", QOS2);
        world.model.connecting(client);
        world.model.connected(client, false);
        world.model.subscribing(subscription);
        world.model.subscribed(subscription);
        client
    });
    let message = world.send(Origin::Load, "work/1", QOS2);
    world.acknowledge(message);
    world.expect(&[Kind::Lost]);
    world.receive_at(members[1], message, 1, false, None);
    world.expect(&[]);
    world.receive_at(members[0], message, 1, false, None);
    world.expect(&[Kind::Duplicate]);
}

#[test]
fn on_a_full_disk_nothing_for_sessions_is_acknowledged() {
    let mut world = World::new();
    let from = world.model.tick();
    let nobodys = world.send(Origin::Load, "elsewhere", QOS1);
    world.acknowledge(nobodys);
    let message = world.publish(QOS1);
    world.receive(message, 1, false);
    let to = world.model.tick();
    let full = FullDisk {
        from,
        to,
        served: true,
        recovered: true,
    };
    world.model.full_disks.push(full);
    world.expect(&[Kind::AcknowledgedOnFullDisk]);
    world.model.full_disks[0].from = to;
    world.expect(&[]);
    world.model.full_disks[0].served = false;
    world.model.full_disks[0].recovered = false;
    world.expect(&[Kind::NotServedOnFullDisk, Kind::NotRecoveredFromFullDisk]);
}

#[test]
fn an_end_and_a_breach_of_protocol_are_found() {
    let mut world = World::new();
    world.model.complain(world.subscriber, "nonsense".into());
    let at = world.model.tick();
    world.model.exits.push((at, "killed".into()));
    world.expect(&[Kind::ProtocolBroken, Kind::BrokerEnded]);
}

#[test]
fn a_violation_tells_the_history_of_its_message() {
    let mut world = World::new();
    world.model.set_time(3, 250);
    let message = world.publish(QOS1);
    world.model.received(
        world.publisher,
        Receipt {
            message,
            connection: 1,
            packet_id: 9,
            qos: QOS1,
            dup: true,
            pending: None,
            at: At::default(),
            answered: None,
            released: None,
        },
    );
    let violations = verify(&world.model);
    let told = violations[0].describe(&world.model);
    for part in [
        "an acknowledged message was lost [Lost], round 3 +250 ms",
        "client subscriber, message 0",
        "publisher published it: t/1, QoS 1",
        ": acknowledged",
        "publisher received it: connection 1, packet identifier 9, QoS 1, DUP 1",
    ] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
}
