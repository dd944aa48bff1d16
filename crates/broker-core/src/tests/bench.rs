//! What a part of a loop is tested on: the ground floor of a loop, with clients, and nothing of the other parts.

use std::sync::Arc;

use mqtt_proto::{Connect, MessageBody, Packet, ProtocolVersion, QoS};
use mqtt_session::{
    Accepted, ApplicationMessage, Delivery, PacketIdSet, Policy, Restored, Session,
    SubscriptionIdSet, Timestamp,
};
use net_api::{Key, Kind};

use super::connections::{Connection, Memory};
use super::packets;
use super::process::{Process, START_MS};
use super::world::settings;
use crate::clients::{BetweenLoops, Client, Clients, FromLoop, LoopMessage, Timer};
use crate::inbox::{Attachment, Epoch, InboxNumber, Inboxes, Sequence};
use crate::node::{Node, NodeOptions};
use crate::settings::Settings;
use crate::turn::{Base, Effect, Turn};

/// Loops of the node; the first is the one that the part is in.
const LOOPS: usize = 2;

pub(crate) struct Bench {
    pub(crate) base: Base<Process>,
    pub(crate) clients: Clients,
    pub(crate) io: Memory,
}

impl Bench {
    /// With other settings than those by default.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        let options = NodeOptions {
            settings: Arc::new(settings),
            guard: Arc::new(guard::Guard::new(&config::Config::default().abuse)),
            listener_kinds: Box::new([Kind::Tcp]),
            loops: LOOPS,
            recent_drops: 16,
            seed: 1,
        };
        let node = Arc::new(Node::new(options, Process::new()));
        let mut io = Memory::new(0, LOOPS, START_MS);
        io.turn = 1;
        Self {
            base: Base::new(node, 0),
            clients: Clients::default(),
            io,
        }
    }

    /// What a part works with.
    pub(crate) fn turn(&mut self) -> Turn<'_, Process, Memory> {
        Turn {
            base: &mut self.base,
            clients: &mut self.clients,
            io: &mut self.io,
        }
    }

    /// A client that is connected. Nothing of its connection is read until somebody says so.
    pub(crate) fn connect(&mut self, client_id: &str) -> Key {
        self.connect_with(client_id, &[], |connect, policy, now| {
            Session::open(connect, client_id.into(), Accepted::default(), policy, now)
        })
    }

    /// The same, with a session that the store keeps.
    pub(crate) fn connect_durable(&mut self, client_id: &str) -> Key {
        self.connect_with(client_id, &["durable"], |connect, policy, now| {
            let (accepted, restored) = (Accepted::default(), Restored::default());
            Session::open_durable(
                connect,
                client_id.into(),
                accepted,
                true,
                restored,
                policy,
                now,
            )
        })
    }

    /// The same, attached to its inbox.
    pub(crate) fn connect_attached(&mut self, client_id: &str, epoch: Epoch) -> Key {
        let key = self.connect_durable(client_id);
        let attachment = Attachment {
            epoch,
            number: InboxNumber(1),
            incarnation: Epoch(1),
            present: false,
            sent: Sequence(1),
            first: Sequence(1),
            received: PacketIdSet::new(),
            repeated: PacketIdSet::new(),
        };
        Inboxes::handle_attached(&self.base, &mut self.clients, key, attachment);
        key
    }

    pub(crate) fn connect_with(
        &mut self,
        client_id: &str,
        words: &[&str],
        open: impl FnOnce(&Connect<'_>, &Policy, Timestamp) -> Session,
    ) -> Key {
        let (_, frame) = packets::connect(client_id, words);
        let Ok(Packet::Connect(connect)) = Packet::decode(&frame, ProtocolVersion::V5) else {
            panic!("it is a CONNECT");
        };
        let policy = &self.base.settings.limits.policy;
        let session = open(&connect, policy, Timestamp(self.io.now_ms));
        let connection = self.io.connections.insert(Connection {
            client: client_id.to_owned(),
            is_paused: true,
            ..Connection::default()
        });
        self.clients.insert(Client::new(session, connection))
    }

    /// Queues a message of QoS 1 for a client.
    pub(crate) fn queue(&mut self, key: Key, topic: &str) {
        let delivery = delivery(topic, QoS::AtLeastOnce);
        let policy = &self.base.settings.beyond_limit;
        let session = &mut self.clients.get_mut(key).unwrap().session;
        let _ = session.deliver(delivery, policy, Timestamp(self.io.now_ms));
    }

    /// The settings are read again.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = settings();
        change(&mut settings);
        self.base.settings = Arc::new(settings);
    }

    /// What the part has done since this was last asked: in alphabetical order.
    pub(crate) fn effects(&mut self) -> Vec<String> {
        let mut seen = Vec::new();
        let mut messages = Vec::new();
        self.io.append_messages(&mut messages);
        for (_, message) in messages {
            seen.push(match message {
                LoopMessage::Loop(FromLoop(BetweenLoops::Hold(..))) => "hold".to_owned(),
                LoopMessage::Loop(FromLoop(BetweenLoops::Release(_))) => "release".to_owned(),
                other => format!("{other:?}"),
            });
        }
        for timer in std::mem::take(&mut self.io.timers).into_values() {
            seen.push(match Timer::from_bits(timer) {
                Some(Timer::Hold(_)) => "timer of the hold".to_owned(),
                Some(Timer::Replay(_)) => "timer of the replay".to_owned(),
                Some(Timer::Throttled(_)) => "timer of the pause".to_owned(),
                Some(Timer::Linger(_)) => "timer of the lingering".to_owned(),
                _ => format!("timer {timer}"),
            });
        }
        while let Some(effect) = self.base.next_effect() {
            seen.push(match effect {
                Effect::HeldFrames(_) => "handle what was kept".to_owned(),
                Effect::End(key, _) => format!("end {}", self.clients.client_id(key)),
                Effect::Forget(key) => format!("forget {}", self.clients.client_id(key)),
                Effect::Logout(key) => format!("log {} out", self.clients.client_id(key)),
                other => format!("{other:?}"),
            });
        }
        let read: Vec<Key> = self.io.connections.keys().collect();
        for id in read {
            if let Some(connection) = self.io.connections.get_mut(id) {
                if !std::mem::replace(&mut connection.is_paused, true) {
                    seen.push(format!("read {}", connection.client));
                }
                if std::mem::take(&mut connection.is_touched) {
                    seen.push(format!("write to {}", connection.client));
                }
            }
        }
        seen.sort();
        seen
    }
}

/// A message of the broker's for one subscription.
pub(crate) fn delivery(topic: &str, qos: QoS) -> Delivery {
    let message = Arc::new(ApplicationMessage {
        body: MessageBody::new(topic, b"x"),
        qos,
        retain: false,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    });
    Delivery {
        message,
        qos,
        retain: false,
        subscription_ids: SubscriptionIdSet::default(),
        group: None,
    }
}
