//! The process of an inlet: one task that has the state machine, the connection to the node and the one to the other broker.
//!
//! Purpose: what [`Inlet`] wants done is done, and what comes of it is told to it. The node is connected to first: it closes the
//! connection of an older process of the inlet then, which ends.
//!
//! Deliberately absent: what is published when, and acknowledged when (`outlet/src/inlet.rs`).
//!
//! Where to read next: `message.rs`, which says what is published for a message of the other broker.

mod definition;
mod message;
mod session;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mqtt_client::{Answer, Event};
use mqtt_proto::{
    Connect, ConnectProperties, Disconnect, DisconnectProperties, ProtocolVersion, ReasonCode,
};
use outlet::{Inlet, InletAction, InletDrop, InletOptions, InletState, MessageNumber, NodeAnswer};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::Instant;

pub use self::definition::InletDefinition;
use self::message::{Message, Rules};
use self::session::{RECEIVE_MAXIMUM, Session};
use crate::command::Command;
use crate::lines::{Ended, FAREWELL, Lines, PATIENCE, REPORTS, now, tell};
use crate::link::Link;
use crate::report::{Count, Doing, Report, Size, Told, UnixMs};

/// Bytes of messages in memory beyond which no more are read from the other broker.
const MEMORY: usize = 16 << 20;

/// How long DISCONNECT may take.
const LEAVE: Duration = Duration::from_secs(1);

/// What has come from the other broker.
enum Heard {
    Message(Box<Result<(Message, usize), InletDrop>>, Option<Answer>),
    /// An answer that is due whatever becomes of messages.
    Due(Answer),
    Subscribed(Vec<ReasonCode>),
    Ended(ReasonCode),
}

/// What has come from the node.
enum HeardHere {
    Answer(MessageNumber, NodeAnswer),
    Ended(ReasonCode),
}

/// A connection that the other broker has accepted, and what came at once.
type Opened = Result<(Link<()>, Vec<Heard>), String>;

type Opening = Pin<Box<dyn Future<Output = (Session, Opened)>>>;

/// The connection to the other broker.
enum Remote {
    /// There is none.
    None(Session),
    /// One is being made. If that is given up, the session is as before.
    Opening { session: Session, opening: Opening },
    Open {
        session: Session,
        link: Box<Link<()>>,
        /// Until when SUBACK may take; `None`: it has come.
        subscribing: Option<Instant>,
    },
}

struct Worker {
    rules: Arc<Rules>,
    inlet: Inlet<Message, Answer>,
    node: Link<MessageNumber>,
    /// There but while it is replaced.
    remote: Option<Remote>,
    heard: Vec<Heard>,
    heard_here: Vec<HeardHere>,
    reports: OwnedWriteHalf,
    report: Report,
}

/// What ended a wait.
enum Woken {
    Node(io::Result<()>),
    Opened(Box<(Session, Opened)>),
    Remote(io::Result<()>),
    SubscribedLate,
    Line(io::Result<Option<Command>>),
    Deadline,
    Report,
}

/// What is checked without reaching the other broker.
///
/// # Errors
/// What is wrong.
pub(crate) fn check(definition: &InletDefinition) -> Result<(), String> {
    parts(definition).map(|_| ())
}

/// Connects to the other broker as another client, and subscribes to nothing: an inlet that runs is not disturbed.
///
/// # Errors
/// Why it cannot be reached.
pub(crate) async fn probe(definition: &InletDefinition) -> Result<String, String> {
    let (mut session, _) = parts(definition)?;
    session.probe().await
}

fn parts(definition: &InletDefinition) -> Result<(Session, Rules), String> {
    let session = Session::new(definition)?;
    let rules = Rules::new(
        &definition.topic,
        definition.retain,
        &definition.filters,
        (&definition.cluster, session.address()),
    )?;
    Ok((session, rules))
}

/// Runs an inlet until something ends it. `mqtt`: the connection to the node; `lines` and `reports`: beside it.
pub(crate) async fn run(
    mqtt: UnixStream,
    definition: Box<InletDefinition>,
    is_paused: bool,
    mut lines: Lines,
    reports: OwnedWriteHalf,
) -> Ended {
    let (session, rules) = match parts(&definition) {
        Ok(parts) => parts,
        Err(why) => return Ended::Failed(why),
    };
    let begun = tokio::time::timeout(PATIENCE, begin(mqtt, &definition));
    let node = match begun.await {
        Ok(Ok(node)) => node,
        Ok(Err(why)) => return Ended::Failed(why),
        Err(_) => return Ended::Failed("the node does not answer in time".to_owned()),
    };
    let options = InletOptions {
        messages: RECEIVE_MAXIMUM.get().into(),
        bytes: MEMORY,
    };
    let mut worker = Worker {
        rules: Arc::new(rules),
        inlet: Inlet::new(options, is_paused, u64::from(std::process::id())),
        node,
        remote: Some(Remote::None(session)),
        heard: Vec::new(),
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
                Woken::Opened(opened) => {
                    let (session, opened) = *opened;
                    self.handle_opened(session, opened);
                }
                Woken::Remote(Ok(())) => self.take(),
                Woken::Remote(Err(error)) => {
                    self.take();
                    self.lose(&format!("the broker ends the connection: {error}"));
                }
                Woken::SubscribedLate => self.lose("the broker does not answer SUBSCRIBE in time"),
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
            rules,
            node,
            remote,
            heard,
            heard_here,
            ..
        } = self;
        let there = async {
            match remote {
                Some(Remote::Opening { opening, .. }) => Woken::Opened(Box::new(opening.await)),
                Some(Remote::Open {
                    link, subscribing, ..
                }) => {
                    // Its SUBACK is read also while there is no room.
                    let reads = reads || subscribing.is_some();
                    let turn = link.turn(reads, |_, event| heard.extend(hear(rules, event)));
                    match *subscribing {
                        None => Woken::Remote(turn.await),
                        Some(until) => match tokio::time::timeout_at(until, turn).await {
                            Ok(turned) => Woken::Remote(turned),
                            Err(_) => Woken::SubscribedLate,
                        },
                    }
                }
                Some(Remote::None(_)) | None => std::future::pending().await,
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
                    let session = match self.remote.take() {
                        Some(Remote::None(session)) => session,
                        other => {
                            self.remote = other;
                            unreachable!("the inlet connects only when there is no connection");
                        }
                    };
                    let rules = Arc::clone(&self.rules);
                    let opening = Box::pin(open(session.clone(), rules));
                    self.remote = Some(Remote::Opening { session, opening });
                }
                InletAction::Disconnect => self.disconnect().await,
                InletAction::Acknowledge(answer) => {
                    if let Some(Remote::Open { link, .. }) = &mut self.remote {
                        // Without a connection it comes again.
                        link.client().answer(answer);
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

    fn handle_opened(&mut self, session: Session, opened: Opened) {
        match opened {
            Ok((mut link, heard)) => {
                let until = Instant::now() + session.timeout();
                let subscribed = session.subscribe(link.client());
                self.remote = Some(Remote::Open {
                    session,
                    link: Box::new(link),
                    subscribing: Some(until),
                });
                self.inlet.handle_connected();
                self.heard.extend(heard);
                self.take();
                if let Err(why) = subscribed {
                    self.lose(&why);
                }
            }
            Err(why) => {
                self.remote = Some(Remote::None(session));
                self.inlet.handle_connection_lost(why.into(), now());
            }
        }
    }

    /// Takes what has come from the other broker.
    fn take(&mut self) {
        for heard in std::mem::take(&mut self.heard) {
            match heard {
                Heard::Message(message, answer) => match *message {
                    Ok((message, bytes)) => self.inlet.handle_message(message, bytes, answer),
                    Err(why) => self.inlet.handle_drop(why, answer),
                },
                Heard::Due(answer) => {
                    if let Some(Remote::Open { link, .. }) = &mut self.remote {
                        link.client().answer(answer);
                    }
                }
                Heard::Subscribed(reasons) => self.handle_subscribed(&reasons),
                Heard::Ended(reason) => {
                    return self.lose(&format!("the broker ends the connection: {reason:?}"));
                }
            }
        }
    }

    fn handle_subscribed(&mut self, reasons: &[ReasonCode]) {
        if let Some(Remote::Open {
            session,
            subscribing,
            ..
        }) = &mut self.remote
        {
            *subscribing = None;
            match reasons.iter().position(|reason| reason.is_error()) {
                None => self.inlet.handle_subscribed(),
                Some(place) => {
                    let filter = session.filter(place).to_owned();
                    self.lose(&format!("the broker refuses the filter {filter}"));
                }
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

    /// The connection to the other broker is over.
    fn lose(&mut self, why: &str) {
        self.heard.clear();
        if let Some(Remote::Open { session, .. }) = self.remote.take_if(|remote| is_open(remote)) {
            self.remote = Some(Remote::None(session));
            self.inlet.handle_connection_lost(why.into(), now());
        }
    }

    /// Takes leave of the other broker, if there is a connection, and waits for that for [`LEAVE`] at most.
    async fn disconnect(&mut self) {
        self.heard.clear();
        let session = match self.remote.take() {
            Some(Remote::Open {
                session, mut link, ..
            }) => {
                let leaves = say_goodbye(&mut link);
                // The session stays there either way; what it has not heard of comes again.
                let _: Result<(), _> = tokio::time::timeout(LEAVE, leaves).await;
                session
            }
            Some(Remote::None(session) | Remote::Opening { session, .. }) => session,
            None => unreachable!("the connection is replaced, never taken away"),
        };
        self.remote = Some(Remote::None(session));
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

fn is_open(remote: &Remote) -> bool {
    matches!(remote, Remote::Open { .. })
}

/// Opens a connection to the other broker.
async fn open(mut session: Session, rules: Arc<Rules>) -> (Session, Opened) {
    let mut heard = Vec::new();
    let opened = session.open(|event| heard.extend(hear(&rules, event)));
    let opened = opened.await;
    let opened = opened.map(|link| (link, heard));
    (session, opened)
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

fn hear(rules: &Rules, event: Event<'_, ()>) -> Option<Heard> {
    match event {
        Event::Message(incoming) => {
            let message = rules.message(&incoming.publish);
            Some(Heard::Message(Box::new(message), incoming.answer))
        }
        // With QoS 2, which is not subscribed to: it was handled before.
        Event::Duplicate(incoming) => incoming.answer.map(Heard::Due),
        Event::Released { answer, .. } => answer.map(Heard::Due),
        Event::Subscribed(ack) => Some(Heard::Subscribed(ack.reasons.iter().collect())),
        Event::Disconnected(disconnect) => Some(Heard::Ended(disconnect.reason)),
        _ => None,
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
