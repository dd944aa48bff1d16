//! A client with a session that outlives its connections: it tells the model all that it does and sees. What the
//! standard asks of a client, and what it keeps over a connection, is [`mqtt_client`]'s.
//!
//! Call order: [`Client::connect`], then [`Client::turn`] again and again, with publishing, subscribing
//! and [`Client::disconnect`] in between; [`Client::lose`] when the broker or the connection has ended.
//!
//! Invariant: an answer that is held back is given on the connection of its message, or not at all.
//!
//! Deliberately absent: when to do what; the cast and the run decide.

mod inbound;
mod interest;
mod link;
mod outbound;

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU16;
use std::time::Duration;

use mqtt_client::{Acknowledgements, Answer, Event};
use mqtt_proto::{
    Connect, ConnectProperties, Disconnect, DisconnectProperties, LastWill, ProtocolVersion, QoS,
    ReasonCode, WillProperties,
};

use crate::chance::Chance;
use crate::model::{
    ClientIndex, Message, MessageIndex, Model, Origin, SubscriptionIndex, Unfinished,
};
use interest::Interest;
use link::{Link, Phase, State};
pub use outbound::message_of;

/// Longer than any run, in seconds.
const FOREVER_S: u32 = 24 * 60 * 60;

/// A will delay, in seconds, from which on a will is not due within a run.
const NOT_IN_THIS_RUN_S: u32 = 600;

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Client identifier.
    pub name: String,
    /// Protocol version.
    pub version: ProtocolVersion,
    /// How many messages the server may send unacknowledged; 5.0 only.
    pub receive_maximum: u16,
    /// How many messages it publishes without waiting for an acknowledgement.
    pub window: usize,
}

/// The will of each connection of a client.
#[derive(Clone, Debug)]
pub struct WillPlan {
    /// Where to.
    pub topic: String,
    /// Of publishing.
    pub qos: QoS,
    /// Seconds; not 0 only with 5.0.
    pub delay_s: u32,
}

/// When a client acknowledges what it receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// As soon as it can.
    AtOnce,
    /// Many at a time, after a while.
    Late,
    /// Not on this connection.
    Never,
}

/// How a client treats its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behaviour {
    /// When it acknowledges.
    pub answers: Answers,
    /// Whether it reads little and seldom.
    pub reads_slowly: bool,
}

impl Behaviour {
    /// Reads and acknowledges all at once.
    pub const PROMPT: Self = Self {
        answers: Answers::AtOnce,
        reads_slowly: false,
    };
}

/// A client.
#[derive(Debug)]
pub struct Client {
    index: ClientIndex,
    identity: Identity,
    will: Option<WillPlan>,
    behaviour: Behaviour,
    link: Option<Link>,
    mqtt: mqtt_client::Client<MessageIndex>,
    interests: Vec<Interest>,
    /// Messages at QoS 2 that wait for PUBREL, by packet identifier: what the model is told of one that comes again.
    received: BTreeMap<u16, MessageIndex>,
    held: VecDeque<Answer>,
    /// The will of the last connection, if only its delay keeps it from being published.
    delayed_will: Option<MessageIndex>,
    /// It has given up a CONNECT that was not answered. The server may handle that behind later ones, and a
    /// connection that takes a session over discards a will that waits for its delay.
    is_astray: bool,
}

impl Client {
    /// A client that never connected.
    #[must_use]
    pub fn new(identity: Identity, will: Option<WillPlan>, model: &mut Model) -> Self {
        Self {
            index: model.add_client(&identity.name),
            identity,
            will,
            behaviour: Behaviour::PROMPT,
            link: None,
            mqtt: mqtt_client::Client::new(Acknowledgements::Manual),
            interests: Vec::new(),
            received: BTreeMap::new(),
            held: VecDeque::new(),
            delayed_will: None,
            is_astray: false,
        }
    }

    /// By its place in the model.
    #[must_use]
    pub fn index(&self) -> ClientIndex {
        self.index
    }

    /// Whether it has a connection, accepted or not yet.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Whether its connection is accepted and in use.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.link
            .as_ref()
            .is_some_and(|link| link.phase == Phase::Up)
    }

    /// Whether it has sent DISCONNECT and waits for the server to close.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.link
            .as_ref()
            .is_some_and(|link| link.phase == Phase::Leaving)
    }

    /// Whether the socket is worth waiting for.
    #[must_use]
    pub fn socket(&self) -> Option<&TcpStream> {
        let link = self.link.as_ref()?;
        (!self.behaviour.reads_slowly).then_some(&link.stream)
    }

    /// Connects and sends CONNECT, to go on with the session.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(
        &mut self,
        server: SocketAddr,
        behaviour: Behaviour,
        model: &mut Model,
    ) -> io::Result<()> {
        let mut link = Link::open(server)?;
        self.behaviour = behaviour;
        self.held.clear();
        self.delayed_will = None;
        model.connecting(self.index);
        link.will = self.will.as_ref().map(|plan| {
            let topic = plan.topic.clone();
            let will = model.add_message(Message::new(Origin::Will, self.index, topic, plan.qos));
            model.sent(will);
            if plan.delay_s >= NOT_IN_THIS_RUN_S {
                model.withdrawn(will);
            }
            will
        });
        let payload = link.will.map(outbound::payload).unwrap_or_default();
        self.mqtt
            .connect(&connect_packet(
                &self.identity,
                self.will.as_ref(),
                &payload,
            ))
            .expect("the cast's names can be written");
        self.link = Some(link);
        self.flush(model);
        Ok(())
    }

    /// Ends the connection normally: DISCONNECT, then the server closes.
    pub fn disconnect(&mut self, model: &mut Model) {
        if let Some(link) = self.link.as_mut().filter(|link| link.phase == Phase::Up) {
            self.mqtt
                .disconnect(&Disconnect {
                    reason: ReasonCode::Success,
                    properties: DisconnectProperties::default(),
                })
                .expect("a connected client can take leave");
            link.phase = Phase::Leaving;
            model.tick();
            self.flush(model);
        }
    }

    /// Takes what has come, and sends what there is to send.
    pub fn turn(&mut self, model: &mut Model, chance: &mut Chance) {
        if self.behaviour.reads_slowly && !chance.once_in(4) {
            return;
        }
        if self.behaviour.answers == Answers::Late && chance.once_in(30) {
            self.release_answers(model);
        }
        let limit = if self.behaviour.reads_slowly {
            1024
        } else {
            usize::MAX
        };
        match self.take(limit, model) {
            State::Open => self.flush(model),
            State::Closed => self.end(model, true),
            State::Broken => self.end(model, false),
        }
    }

    /// The broker has been killed, or the connection is to break: takes what had come before.
    pub fn lose(&mut self, model: &mut Model) {
        self.behaviour.answers = Answers::Never;
        self.take(usize::MAX, model);
        self.end(model, false);
    }

    /// What is open of messages both ways, when nothing should be.
    pub fn note_unfinished(&self, model: &mut Model) {
        let at = model.tick();
        let in_flight = self.mqtt.messages_in_flight();
        let outbox = in_flight.map(|message| (*message, Unfinished::Acknowledgement));
        let received = self
            .received
            .values()
            .map(|message| (*message, Unfinished::Release));
        for (message, what) in outbox.chain(received) {
            model.unfinished.push((self.index, message, what, at));
        }
    }

    /// Whether it has nothing more to send, and waits for nothing but messages.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.mqtt.in_flight() == 0
            && self.received.is_empty()
            && self.interests.iter().all(Interest::is_settled)
    }

    /// The server has ended, or has handled all that was sent to it.
    pub fn has_been_heard(&mut self) {
        self.is_astray = false;
    }

    /// It will stay away until its will has been published.
    pub fn await_will(&mut self, model: &mut Model) {
        if let Some(will) = self.delayed_will.take() {
            model.acknowledged(will);
        }
    }

    /// Handles packets until there are no more or `limit` bytes are read.
    fn take(&mut self, limit: usize, model: &mut Model) -> State {
        let Some(link) = &mut self.link else {
            return State::Open;
        };
        let (input, state) = link.fill(limit);
        let mut arrival = self.mqtt.handle_bytes(&input);
        let mut is_accepted = false;
        loop {
            let handled = match self.mqtt.poll_event(&mut arrival) {
                Ok(None) => break,
                Ok(Some(Event::Refused(_) | Event::Disconnected(_))) => return State::Broken,
                Ok(Some(event)) => {
                    is_accepted |= matches!(event, Event::Connected(_));
                    self.handle(&event, model)
                }
                Err(error) => Err(error.source().unwrap_or(&error).to_string()),
            };
            if let Err(complaint) = handled {
                model.complain(self.index, complaint);
                return State::Broken;
            }
        }
        self.send_again(model);
        if is_accepted && self.mqtt.is_connected() {
            self.request_all(model);
        }
        state
    }

    fn handle(&mut self, event: &Event<'_, MessageIndex>, model: &mut Model) -> Result<(), String> {
        match event {
            Event::Connected(packet) => self.accepted(packet.session_present, model),
            Event::Message(incoming) | Event::Duplicate(incoming) => {
                self.receive(incoming, model)?;
            }
            Event::Released { packet_id, answer } => self.released(*packet_id, *answer, model),
            // At QoS 2, PUBREC says that the server has the message.
            Event::Received(message) => model.acknowledged(*message),
            Event::Acknowledged(ack) => Self::acknowledged(ack, model),
            Event::Subscribed(packet) => {
                let is_granted = packet.reasons.iter().all(|reason| !reason.is_error());
                self.request_answered(packet.packet_id, is_granted, model);
            }
            Event::Unsubscribed(packet) => {
                // Before 5.0 there are no reasons.
                let is_granted = packet.reasons.iter().all(|reason| !reason.is_error());
                self.request_answered(packet.packet_id, is_granted, model);
            }
            Event::Refused(_)
            | Event::Disconnected(_)
            | Event::Discarded(_)
            | Event::PingResp
            | Event::Stray { .. } => {}
        }
        Ok(())
    }

    fn accepted(&mut self, session_present: bool, model: &mut Model) {
        model.connected(self.index, session_present);
        if let Some(link) = &mut self.link {
            link.phase = Phase::Up;
        }
        if !session_present {
            self.received.clear();
            self.forget_subscriptions();
        }
    }

    fn flush(&mut self, model: &mut Model) {
        let Some(link) = &mut self.link else { return };
        match link.write(self.mqtt.poll_transmit()) {
            // Without keep alive, the time does not count.
            Ok(count) => self.mqtt.handle_transmitted(count, Duration::ZERO),
            Err(_) => self.lose(model),
        }
    }

    /// The connection is over; decides about its will. `in_order`: the server has closed it, and has not said why.
    fn end(&mut self, model: &mut Model, in_order: bool) {
        self.held.clear();
        let Some(link) = self.link.take() else { return };
        self.mqtt.handle_connection_closed();
        self.is_astray |= link.phase == Phase::Connecting;
        let (Some(will), Some(plan)) = (link.will, &self.will) else {
            return;
        };
        match link.phase {
            _ if plan.delay_s >= NOT_IN_THIS_RUN_S => {}
            // Closed as the answer to DISCONNECT: the server has recorded it. A server that cannot, or that ends the
            // connection for a reason of its own, breaks it or sends a DISCONNECT.
            Phase::Leaving if in_order => model.withdrawn(will),
            Phase::Up if plan.delay_s == 0 => model.acknowledged(will),
            Phase::Up => self.delayed_will = Some(will).filter(|_| !self.is_astray),
            Phase::Leaving | Phase::Connecting => {}
        }
    }

    /// Adds a filter that it may subscribe to.
    pub fn add_interest(&mut self, subscription: SubscriptionIndex) {
        self.interests.push(Interest::new(subscription));
    }
}

fn connect_packet<'a>(
    identity: &'a Identity,
    will: Option<&'a WillPlan>,
    will_payload: &'a [u8],
) -> Connect<'a> {
    let is_v5 = identity.version.is_v5();
    Connect {
        version: identity.version,
        is_bridge: false,
        clean_start: false,
        keep_alive: 0,
        client_id: &identity.name,
        will: will.map(|plan| LastWill {
            topic: &plan.topic,
            payload: will_payload,
            qos: plan.qos,
            retain: false,
            properties: WillProperties {
                will_delay_interval: (is_v5 && plan.delay_s > 0).then_some(plan.delay_s),
                message_expiry_interval: is_v5.then_some(FOREVER_S),
                ..WillProperties::default()
            },
        }),
        username: None,
        password: None,
        properties: ConnectProperties {
            session_expiry_interval: is_v5.then_some(FOREVER_S),
            receive_maximum: NonZeroU16::new(identity.receive_maximum).filter(|_| is_v5),
            ..ConnectProperties::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::model::Outcome;

    /// Connects, is answered or not, and loses the connection; its will.
    fn connection(
        client: &mut Client,
        server: &TcpListener,
        is_answered: bool,
        model: &mut Model,
    ) -> MessageIndex {
        let address = server.local_addr().unwrap();
        client
            .connect(address, Behaviour::PROMPT, model)
            .expect("the listener is there");
        let (mut accepted, _) = server.accept().unwrap();
        if is_answered {
            // CONNACK of 5.0: no session, success, no properties.
            accepted.write_all(&[0x20, 3, 0, 0, 0]).unwrap();
            while !client.is_up() {
                client.turn(model, &mut Chance::new(1));
            }
        }
        client.lose(model);
        model.messages.len() - 1
    }

    #[test]
    fn an_earlier_connect_may_overtake_and_discard_a_delayed_will() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut model = Model::default();
        let identity = Identity {
            name: "mourned".into(),
            version: ProtocolVersion::V5,
            receive_maximum: 5,
            window: 5,
        };
        let plan = WillPlan {
            topic: "will/1".into(),
            qos: QoS::AtLeastOnce,
            delay_s: 1,
        };
        let mut client = Client::new(identity, Some(plan), &mut model);
        let mut is_due = |is_answered, client: &mut Client| {
            let will = connection(client, &server, is_answered, &mut model);
            client.await_will(&mut model);
            matches!(model.messages[will].outcome, Outcome::Acknowledged(_))
        };
        assert!(is_due(true, &mut client));
        assert!(!is_due(false, &mut client), "it may not have connected");
        assert!(!is_due(true, &mut client), "the one before may come later");
        client.has_been_heard();
        assert!(is_due(true, &mut client));
    }
}
