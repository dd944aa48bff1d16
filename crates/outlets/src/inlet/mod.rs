//! The process of an inlet: one task that has the state machine, the connection to the node and the one to the source.
//!
//! Purpose: what [`Inlet`] wants done is done, and what comes of it is told to it. The node is connected to first: it closes the
//! connection of an older process of the inlet then, which ends.
//!
//! Deliberately absent: what is published when, and acknowledged when (`outlet/src/inlet.rs`).
//!
//! Where to read next: `source.rs`; `message.rs`, which says what is published for a message of a source.

mod definition;
mod message;
mod mqtt;
mod nats;
mod source;

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mqtt_client::Event;
use mqtt_proto::{
    Connect, ConnectProperties, Disconnect, DisconnectProperties, ProtocolVersion, ReasonCode,
};
use outlet::{Inlet, InletAction, InletOptions, InletState, MessageNumber, NodeAnswer};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;

pub use self::definition::{
    InletDefinition, MqttSourceDefinition, NatsSourceDefinition, SourceDefinition,
};
use self::message::{Message, Rules};
pub(crate) use self::mqtt::MqttSource;
pub(crate) use self::nats::NatsSource;
pub use self::source::{Arrival, Intake, Source, Token};
use crate::command::Command;
use crate::lines::{Ended, FAREWELL, Lines, PATIENCE, REPORTS, now, tell};
use crate::link::Link;
use crate::report::{Count, Doing, Report, Size, Told, UnixMs};

/// Messages in memory beyond which no more are read from the source.
const MESSAGES: usize = 1_000;

/// Bytes of messages in memory beyond which no more are read from the source.
const MEMORY: usize = 16 << 20;

/// How long taking leave may take.
const LEAVE: Duration = Duration::from_secs(1);

/// What has come from the node.
enum HeardHere {
    Answer(MessageNumber, NodeAnswer),
    Ended(ReasonCode),
}

type Opened = Result<Box<dyn Intake>, String>;

/// The connection to the source.
enum Connection {
    None,
    /// One is being made.
    Opening(BoxFuture<'static, Opened>),
    Open(Box<dyn Intake>),
}

struct Worker {
    rules: Rules,
    inlet: Inlet<Message, Token>,
    node: Link<MessageNumber>,
    source: Box<dyn Source>,
    connection: Connection,
    heard_here: Vec<HeardHere>,
    reports: OwnedWriteHalf,
    report: Report,
}

/// What ended a wait.
enum Woken {
    Node(io::Result<()>),
    Opened(Opened),
    Source(Result<Vec<Arrival>, String>),
    Line(io::Result<Option<Command>>),
    Deadline,
    Report,
}

/// What is checked without reaching the source.
///
/// # Errors
/// What is wrong.
pub(crate) fn check(definition: &InletDefinition, source: &dyn Source) -> Result<(), String> {
    Rules::new(definition, source.address()).map(|_| ())
}

/// Runs an inlet until something ends it. `mqtt`: the connection to the node; `lines` and `reports`: beside it.
pub(crate) async fn run(
    mqtt: UnixStream,
    (definition, source): (Box<InletDefinition>, Box<dyn Source>),
    is_paused: bool,
    mut lines: Lines,
    reports: OwnedWriteHalf,
) -> Ended {
    let rules = match Rules::new(&definition, source.address()) {
        Ok(rules) => rules,
        Err(why) => return Ended::Failed(why),
    };
    let begun = tokio::time::timeout(PATIENCE, begin(mqtt, &definition));
    let node = match begun.await {
        Ok(Ok(node)) => node,
        Ok(Err(why)) => return Ended::Failed(why),
        Err(_) => return Ended::Failed("the node does not answer in time".to_owned()),
    };
    let options = InletOptions {
        messages: MESSAGES,
        bytes: MEMORY,
    };
    let mut worker = Worker {
        rules,
        inlet: Inlet::new(options, is_paused, u64::from(std::process::id())),
        node,
        source,
        connection: Connection::None,
        heard_here: Vec::new(),
        reports,
        report: Report::default(),
    };
    let mut lines = Some(&mut lines);
    let ended = worker.work(&mut lines).await;
    if matches!(ended, Ended::Asked) {
        worker.finish().await;
    }
    ended
}

/// Connects to the node with a session that ends with the connection.
async fn begin(
    mqtt: UnixStream,
    definition: &InletDefinition,
) -> Result<Link<MessageNumber>, String> {
    let mut link = Link::new(Box::new(mqtt));
    let client_id = definition.client_id();
    let connect = Connect {
        version: ProtocolVersion::V5,
        is_bridge: false,
        clean_start: true,
        // The connection ends with either process.
        keep_alive: 0,
        client_id: &client_id,
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    };
    let encoded = link.client().connect(&connect);
    encoded.map_err(|error| error.to_string())?;
    let mut refused = None;
    while !link.client().is_connected() {
        let turn = link.turn(true, |_, event| {
            if let Event::Refused(ack) = event {
                refused = Some(ack.reason);
            }
        });
        let turned = turn.await;
        if let Some(reason) = refused {
            return Err(format!("the node refuses the connection: {reason:?}"));
        }
        turned.map_err(|error| format!("the node ends the connection: {error}"))?;
    }
    Ok(link)
}

impl Worker {
    /// `lines`: `None`: the node says nothing more, and the process ends when the inlet has left the other broker.
    async fn work(&mut self, lines: &mut Option<&mut Lines>) -> Ended {
        let mut reports = tokio::time::interval(REPORTS);
        reports.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.act().await;
            if lines.is_none() && self.inlet.state() == InletState::Paused {
                return Ended::Asked;
            }
            match self.wait(lines, &mut reports).await {
                Woken::Node(Ok(())) => {
                    if let Some(ended) = self.take_here() {
                        return ended;
                    }
                }
                Woken::Node(Err(error)) => {
                    return Ended::Failed(format!("the connection to the node is over: {error}"));
                }
                Woken::Opened(opened) => self.handle_opened(opened),
                Woken::Source(Ok(arrivals)) => self.take(arrivals),
                Woken::Source(Err(why)) => self.lose(&why),
                Woken::Line(Ok(Some(Command::Pause(is_paused)))) => {
                    self.inlet.handle_pause(is_paused);
                }
                Woken::Line(Ok(Some(Command::Stop) | None)) => return Ended::Asked,
                Woken::Line(Ok(Some(Command::Begin { .. }))) => {
                    return Ended::Failed("the node begins twice".to_owned());
                }
                Woken::Line(Err(error)) => return Ended::Failed(error.to_string()),
                Woken::Deadline => self.inlet.handle_deadline(now()),
                Woken::Report => {
                    if self.tell().await.is_err() {
                        return Ended::Asked;
                    }
                }
            }
        }
    }

    async fn wait(
        &mut self,
        lines: &mut Option<&mut Lines>,
        reports: &mut tokio::time::Interval,
    ) -> Woken {
        let reads = self.inlet.wants_more();
        let due = self.inlet.poll_deadline();
        let waits = due.map(|due| due.0.saturating_sub(now().0));
        let waits = waits.map_or(Duration::MAX, Duration::from_millis);
        let Self {
            node,
            connection,
            heard_here,
            ..
        } = self;
        let there = async {
            match connection {
                Connection::None => std::future::pending().await,
                Connection::Opening(opening) => Woken::Opened(opening.await),
                Connection::Open(intake) => Woken::Source(intake.next(reads).await),
            }
        };
        let line = async {
            match lines {
                Some(lines) => lines.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            moved = node.turn(true, |_, event| heard_here.extend(hear_here(event))) => Woken::Node(moved),
            woken = there => woken,
            line = line => Woken::Line(line),
            () = tokio::time::sleep(waits) => Woken::Deadline,
            _ = reports.tick() => Woken::Report,
        }
    }

    /// Does what the inlet wants done, and publishes what the node has room for.
    async fn act(&mut self) {
        self.publish();
        while let Some(action) = self.inlet.poll_action() {
            match action {
                InletAction::Connect => {
                    assert!(
                        matches!(self.connection, Connection::None),
                        "the inlet connects only when there is no connection"
                    );
                    self.connection = Connection::Opening(self.source.open());
                }
                InletAction::Disconnect => self.disconnect().await,
                InletAction::Acknowledge(token) => {
                    if let Connection::Open(intake) = &mut self.connection {
                        // Without a connection it comes again.
                        intake.acknowledge(token);
                    }
                }
            }
            self.publish();
        }
    }

    fn publish(&mut self) {
        let limits = self.node.client().server_limits();
        while let Some((number, message)) = self.inlet.poll_publish() {
            let qos = message.qos().min(limits.maximum_qos);
            if !self.node.client().has_room(qos) {
                // It is published when the node has answered others.
                break;
            }
            let client = self.node.client();
            let published = message.publish((qos, limits.retain_available), |packet| {
                let published = client.publish(packet, number);
                published.map_err(|error| error.to_string())
            });
            match published {
                Ok(id) => {
                    self.inlet.handle_published(number, id.is_some());
                    if id.is_none() {
                        self.report.delivered_at = Some(UnixMs(now().0));
                    }
                }
                Err(why) => {
                    let why = NodeAnswer::Refused(why.into());
                    self.inlet.handle_answer(number, why, now());
                }
            }
        }
    }

    fn handle_opened(&mut self, opened: Opened) {
        match opened {
            Ok(intake) => {
                self.connection = Connection::Open(intake);
                self.inlet.handle_connected();
            }
            Err(why) => self.lose(&why),
        }
    }

    /// Takes what has come from the source.
    fn take(&mut self, arrivals: Vec<Arrival>) {
        for arrival in arrivals {
            match arrival {
                Arrival::Message(item, token) => match self.rules.message(*item) {
                    Ok((message, bytes)) => self.inlet.handle_message(message, bytes, token),
                    Err(why) => self.inlet.handle_drop(why, token),
                },
                Arrival::Dropped(why, token) => self.inlet.handle_drop(why, token),
                Arrival::Ready => self.inlet.handle_subscribed(),
            }
        }
    }

    /// Takes what has come from the node; gives why the process ends, if it does.
    fn take_here(&mut self) -> Option<Ended> {
        for heard in std::mem::take(&mut self.heard_here) {
            match heard {
                HeardHere::Answer(number, answer) => {
                    if answer == NodeAnswer::Taken {
                        self.report.delivered_at = Some(UnixMs(now().0));
                    }
                    self.inlet.handle_answer(number, answer, now());
                }
                HeardHere::Ended(ReasonCode::SessionTakenOver) => return Some(Ended::Fenced),
                HeardHere::Ended(reason) => {
                    return Some(Ended::Failed(format!(
                        "the node ends the connection: {reason:?}"
                    )));
                }
            }
        }
        None
    }

    /// The connection to the source is over, or none could be made.
    fn lose(&mut self, why: &str) {
        self.connection = Connection::None;
        self.inlet.handle_connection_lost(why.into(), now());
    }

    /// Takes leave of the source, if there is a connection, and waits for that for [`LEAVE`] at most.
    async fn disconnect(&mut self) {
        let connection = std::mem::replace(&mut self.connection, Connection::None);
        if let Connection::Open(intake) = connection {
            // What it has not heard of comes again.
            let _: Result<(), _> = tokio::time::timeout(LEAVE, intake.close()).await;
        }
    }

    async fn tell(&mut self) -> io::Result<()> {
        let figures = self.inlet.figures();
        let (doing, attempt) = match self.inlet.state() {
            InletState::Connected {
                is_subscribed: true,
            } => match self.inlet.busy() {
                0 => (Doing::Running, 0),
                busy => (Doing::Retrying, busy),
            },
            InletState::Connecting | InletState::Connected { .. } => (Doing::Opening, 0),
            InletState::Waiting { attempt, .. } => (Doing::Retrying, attempt.0),
            InletState::Leaving | InletState::Paused => (Doing::Paused, 0),
        };
        let (messages, bytes) = self.inlet.waiting();
        self.report = Report {
            doing,
            attempt: Count(attempt.into()),
            last_error: self.inlet.last_error().map(str::to_owned),
            delivered: Count(figures.delivered.0),
            retries: Count(figures.retries.0),
            refused: Count(figures.refused.0),
            looped: Count(figures.looped.0),
            waiting_messages: Count(messages as u64),
            waiting_bytes: Size(bytes as u64),
            ..std::mem::take(&mut self.report)
        };
        let told = Told::Report(Box::new(self.report.clone()));
        tell(&mut self.reports, &told).await
    }

    /// Waits shortly for the node's answers, so that the other broker gets its acknowledgements, and takes leave of both.
    async fn finish(&mut self) {
        let ends = async {
            self.inlet.handle_pause(true);
            let ended = self.work(&mut None).await;
            if matches!(ended, Ended::Asked) {
                say_goodbye(&mut self.node).await;
            }
        };
        // What is not finished by then comes again to the next process, as after a crash.
        if tokio::time::timeout(FAREWELL, ends).await.is_err() {
            return;
        }
        // A node that is gone hears nothing.
        let _: io::Result<()> = self.tell().await;
    }
}

/// Sends DISCONNECT behind what waits to be sent.
async fn say_goodbye<M: Clone>(link: &mut Link<M>) {
    let leave = Disconnect {
        reason: ReasonCode::Success,
        properties: DisconnectProperties::default(),
    };
    if link.client().disconnect(&leave).is_ok() {
        while !link.client().poll_transmit().is_empty() {
            if link.turn(false, |_, _| ()).await.is_err() {
                break;
            }
        }
    }
}

fn hear_here(event: Event<'_, MessageNumber>) -> Option<HeardHere> {
    match event {
        Event::Acknowledged(ack) => {
            let why = || match ack.reason_string {
                Some(said) => format!("the node answers {:?}: {said}", ack.reason),
                None => format!("the node answers {:?}", ack.reason),
            };
            let answer = match ack.reason {
                reason if !reason.is_error() => NodeAnswer::Taken,
                ReasonCode::QuotaExceeded
                | ReasonCode::PacketIdentifierInUse
                | ReasonCode::ServerBusy => NodeAnswer::Busy(why().into()),
                _ => NodeAnswer::Refused(why().into()),
            };
            Some(HeardHere::Answer(ack.message, answer))
        }
        Event::Disconnected(disconnect) => Some(HeardHere::Ended(disconnect.reason)),
        _ => None,
    }
}
