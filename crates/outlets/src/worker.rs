//! The process of an outlet: one task that has the pump, the connection to the node and the target.
//!
//! Purpose: what the pump wants done is done, and what comes of it is told to the pump. When the node ends the connection, the process
//! ends: what was not acknowledged comes again to the next one.
//!
//! Everything is read from the node as long as there is room, and while a dead letter waits for its acknowledgement, which comes behind
//! messages that the node has sent already. The node sends no more messages above QoS 0 than the Receive Maximum.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::num::{NonZeroU16, NonZeroU32};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mqtt_client::{Answer, Client, Event};
use mqtt_proto::{
    Connect, ConnectProperties, Disconnect, DisconnectProperties, ProtocolVersion, Publish,
    PublishProperties, QoS, ReasonCode, RetainHandling, SubscribeProperties, SubscriptionOptions,
    UnsubscribeProperties, UserProperties,
};
use outlet::{Action, Attempt, Delivery, Item, LetterOutcome, OpenError, Position, Pump, State};
use outlet_rules::Verdict;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;

use crate::command::{Caution, Command};
use crate::definition::Definition;
use crate::epoch::{EPOCH, Epoch, POSITION};
use crate::lines::{Ended, FAREWELL, Lines, PATIENCE, REPORTS, now, tell};
use crate::link::Link;
use crate::properties::standard;
use crate::report::{Count, Doing, Report, Size, Told, UnixMs};
use crate::rules::{Gate, Next};
use crate::target::Target;

/// Runs an outlet until something ends it. `mqtt`: the connection to the node; `lines` and `reports`: beside it.
pub(crate) async fn run(
    mqtt: UnixStream,
    target: Box<dyn Target>,
    definition: Box<Definition>,
    (is_paused, caution): (bool, Caution),
    mut lines: Lines,
    reports: OwnedWriteHalf,
) -> Ended {
    let gate = match Gate::new(&definition, &caution, Instant::now()) {
        Ok(gate) => gate,
        Err(why) => return Ended::Failed(why),
    };
    let begun = tokio::time::timeout(PATIENCE, begin(mqtt, &definition));
    let (link, epoch, heard) = match begun.await {
        Ok(Ok(begun)) => begun,
        Ok(Err(why)) => return Ended::Failed(why),
        Err(_) => return Ended::Failed("the node does not answer in time".to_owned()),
    };
    let mut worker = Worker {
        pump: Pump::new(definition.options(), u64::from(std::process::id())),
        definition,
        gate,
        link,
        epoch,
        answers: VecDeque::new(),
        heard: Vec::new(),
        target: Some(target),
        busy: None,
        letter: false,
        reports,
        report: Report::default(),
        last_position: None,
        delivering_since: Instant::now(),
        delivering_last: None,
    };
    if is_paused {
        worker.pump.handle_pause(true, now());
    }
    if let Some(ended) = worker.take(heard) {
        return ended;
    }
    let ended = worker.work(&mut lines).await;
    worker.finish().await;
    ended
}

/// What has come from the node.
enum Heard {
    Message(Box<Item>, Option<Answer>),
    Letter(LetterOutcome),
    Subscribed(Vec<ReasonCode>),
    Ended(ReasonCode),
}

/// What became of what the target was asked for.
enum Done {
    Opened(Result<Option<Position>, OpenError>),
    Delivered(Delivery),
}

type Busy = Pin<Box<dyn Future<Output = (Box<dyn Target>, Done)>>>;

struct Worker {
    definition: Box<Definition>,
    gate: Gate,
    pump: Pump,
    link: Link<()>,
    epoch: Epoch,
    /// Of the messages that are not acknowledged, in their order.
    answers: VecDeque<Answer>,
    heard: Vec<Heard>,
    /// There if it does nothing.
    target: Option<Box<dyn Target>>,
    busy: Option<Busy>,
    /// A dead letter is not acknowledged yet.
    letter: bool,
    reports: OwnedWriteHalf,
    report: Report,
    last_position: Option<Position>,
    delivering_since: Instant,
    /// Position of the last message of the batch that is with the target.
    delivering_last: Option<Position>,
}

/// What ended a wait.
enum Woken {
    Link(io::Result<()>),
    Target(Box<dyn Target>, Done),
    Line(io::Result<Option<Command>>),
    Deadline,
    Report,
}

impl Worker {
    async fn work(&mut self, lines: &mut Lines) -> Ended {
        let mut reports = tokio::time::interval(REPORTS);
        reports.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.act();
            if self.judge().await.is_err() {
                return Ended::Asked;
            }
            if self.pump.state() == State::Fenced {
                return Ended::Fenced;
            }
            let woken = self.wait(lines, &mut reports).await;
            match woken {
                Woken::Link(Ok(())) => {
                    let heard = std::mem::take(&mut self.heard);
                    if let Some(ended) = self.take(heard) {
                        return ended;
                    }
                }
                Woken::Link(Err(error)) => {
                    return Ended::Failed(format!("the connection to the node is over: {error}"));
                }
                Woken::Target(target, done) => {
                    self.target = Some(target);
                    self.handle(done);
                }
                Woken::Line(Ok(Some(Command::Pause(is_paused)))) => {
                    self.pump.handle_pause(is_paused, now());
                }
                Woken::Line(Ok(Some(Command::Stop) | None)) => return Ended::Asked,
                Woken::Line(Ok(Some(Command::Begin { .. }))) => {
                    return Ended::Failed("the node begins twice".to_owned());
                }
                Woken::Line(Err(error)) => return Ended::Failed(error.to_string()),
                Woken::Deadline => self.pump.handle_deadline(now()),
                Woken::Report => {
                    if self.tell().await.is_err() {
                        return Ended::Asked;
                    }
                }
            }
        }
    }

    async fn wait(&mut self, lines: &mut Lines, reports: &mut tokio::time::Interval) -> Woken {
        let reads = (self.pump.wants_more() && !self.gate.holds()) || self.letter;
        let due = self.pump.poll_deadline();
        let waits = due.map(|due| due.0.saturating_sub(now().0));
        let waits = waits.map_or(Duration::MAX, Duration::from_millis);
        let Self {
            link,
            heard,
            busy,
            target,
            ..
        } = self;
        let at_target = async {
            match (busy, target) {
                (Some(busy), _) => busy.await,
                (None, Some(target)) => match target.idle().await {},
                (None, None) => unreachable!("the target is there, or something is done with it"),
            }
        };
        tokio::select! {
            moved = link.turn(reads, |_, event| heard.extend(hear(event))) => Woken::Link(moved),
            (target, done) = at_target => {
                self.busy = None;
                Woken::Target(target, done)
            }
            line = lines.next() => Woken::Line(line),
            () = tokio::time::sleep(waits) => Woken::Deadline,
            _ = reports.tick() => Woken::Report,
        }
    }

    /// Does what the pump wants done.
    fn act(&mut self) {
        while let Some(action) = self.pump.poll_action() {
            match action {
                Action::Open => self.begin(|mut target, epoch| async move {
                    let opened = target.open(epoch).await;
                    (target, Done::Opened(opened))
                }),
                Action::Deliver(batch) => {
                    self.delivering_since = Instant::now();
                    self.delivering_last = batch.iter().rev().find_map(|item| item.position);
                    self.begin(|mut target, _| async move {
                        let delivery = target.deliver(&batch).await;
                        (target, Done::Delivered(delivery))
                    });
                }
                Action::Acknowledge(count) => {
                    for answer in self.answers.drain(..count) {
                        // Without a connection it comes again, to the next process.
                        self.link.client().answer(answer);
                    }
                }
                Action::Letter {
                    item,
                    why,
                    attempts,
                } => self.publish_letter(&item, &why, attempts),
            }
        }
    }

    fn begin<F>(&mut self, what: impl FnOnce(Box<dyn Target>, Epoch) -> F)
    where
        F: Future<Output = (Box<dyn Target>, Done)> + 'static,
    {
        let target = self.target.take();
        let target = target.expect("the pump wants one thing of the target at a time");
        self.busy = Some(Box::pin(what(target, self.epoch)));
    }

    fn handle(&mut self, done: Done) {
        match done {
            Done::Opened(Ok(has)) => self.pump.handle_opened(has, now()),
            Done::Opened(Err(error)) => self.pump.handle_open_error(error, now()),
            Done::Delivered(delivery) => {
                self.report.batches.0 += 1;
                let took = self.delivering_since.elapsed().as_micros();
                self.report.delivering.0 += u64::try_from(took).unwrap_or(u64::MAX);
                if delivery == Delivery::All {
                    self.last_position = self.delivering_last.or(self.last_position);
                    self.report.delivered_at = Some(UnixMs(now().0));
                }
                self.pump.handle_delivery(delivery, now());
            }
        }
    }

    fn publish_letter(&mut self, item: &Item, why: &str, attempts: Attempt) {
        let topic = self.definition.dead_letter.as_deref();
        let topic = topic.expect("the pump has been told whether there are dead letters");
        let attempts = attempts.0.to_string();
        let position = item.position.map(|position| position.to_string());
        let mut pairs: Vec<(&str, &str)> = item
            .properties
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        pairs.extend([
            ("hmq-outlet", self.definition.name.as_str()),
            ("hmq-reason", why),
            ("hmq-topic", &item.topic),
            ("hmq-attempts", &attempts),
        ]);
        if let Some(position) = &position {
            pairs.push((POSITION, position));
        }
        let standard = &item.standard;
        let mut buffer = Vec::new();
        let published = UserProperties::encode_from(&pairs, &mut buffer)
            .map_err(|error| error.to_string())
            .and_then(|user_properties| {
                let packet = Publish {
                    dup: false,
                    qos: QoS::AtLeastOnce,
                    retain: false,
                    topic,
                    packet_id: None,
                    properties: PublishProperties {
                        payload_format_indicator: standard.is_utf8,
                        // A dead letter waits for somebody to look at it, so it does not expire.
                        message_expiry_interval: None,
                        content_type: standard.content_type.as_deref(),
                        response_topic: standard.response_topic.as_deref(),
                        correlation_data: standard.correlation_data.as_deref(),
                        user_properties,
                        ..PublishProperties::default()
                    },
                    payload: &item.payload,
                };
                let published = self.link.client().publish(packet, ());
                published.map_err(|error| error.to_string())
            });
        match published {
            Ok(_) => self.letter = true,
            Err(why) => {
                let outcome = LetterOutcome::Failed(why.into());
                self.pump.handle_letter(outcome, now());
            }
        }
    }

    /// Takes what has come; gives why the process ends, if it does.
    fn take(&mut self, heard: Vec<Heard>) -> Option<Ended> {
        for heard in heard {
            match heard {
                Heard::Message(item, answer) => {
                    if answer.is_some() && item.position.is_none() {
                        // Without it nobody could tell whether the target has the message; another connection gets it again.
                        let why = "the node has not said where a message stands";
                        return Some(Ended::Failed(why.to_owned()));
                    }
                    self.answers.extend(answer);
                    self.gate.handle_item(item);
                }
                Heard::Letter(outcome) => {
                    self.letter = false;
                    self.pump.handle_letter(outcome, now());
                }
                Heard::Subscribed(_) => {}
                Heard::Ended(ReasonCode::SessionTakenOver) => return Some(Ended::Fenced),
                Heard::Ended(reason) => {
                    return Some(Ended::Failed(format!(
                        "the node ends the connection: {reason:?}"
                    )));
                }
            }
            self.act();
        }
        None
    }

    /// Has the rules judge what has come. An error: the node is gone.
    async fn judge(&mut self) -> io::Result<()> {
        loop {
            let is_sent = self.link.client().poll_transmit().is_empty();
            let is_settled = is_sent && !self.pump.has_refusal();
            let (mut item, told) = match self.gate.next(is_settled, Instant::now()) {
                Next::Ready(item, told) => (item, told),
                Next::Held | Next::None => return Ok(()),
            };
            if let Some(position) = told {
                // If the process ends on it, what it has counted is not lost.
                self.tell().await?;
                let line = Told::Evaluating(Some(position.to_string()));
                tell(&mut self.reports, &line).await?;
            }
            let verdict = self.gate.judge(&item);
            if told.is_some() {
                tell(&mut self.reports, &Told::Evaluating(None)).await?;
            }
            match verdict {
                Verdict::Unchanged => self.pump.handle_item(*item, now()),
                Verdict::Changed(payload) => {
                    item.payload = payload;
                    item.standard = item.standard.without_payload();
                    self.pump.handle_item(*item, now());
                }
                Verdict::Filtered => self.pump.handle_filtered(*item, now()),
                Verdict::Refused(why) => self.pump.handle_refused(*item, why, now()),
            }
            self.act();
        }
    }

    async fn tell(&mut self) -> io::Result<()> {
        let figures = self.pump.figures();
        let (doing, attempt) = match self.pump.state() {
            State::Opening => (Doing::Opening, 0),
            State::Collecting | State::Letting => (Doing::Running, 0),
            State::Delivering { attempt } => (Doing::Running, attempt.0),
            State::Waiting { attempt, .. } => (Doing::Retrying, attempt.0),
            State::Paused => (Doing::Paused, 0),
            State::Fenced => (Doing::Fenced, 0),
        };
        let (messages, bytes) = self.pump.waiting();
        self.report = Report {
            doing,
            attempt: Count(attempt.into()),
            last_error: self.pump.last_error().map(str::to_owned),
            delivered: Count(figures.delivered.0),
            left_out: Count(figures.left_out.0),
            retries: Count(figures.retries.0),
            dead: Count(figures.dead.0),
            unclaimed: Count(figures.unclaimed.0),
            refused: Count(figures.refused.0),
            filtered: Count(figures.filtered.0),
            looped: self
                .target
                .as_ref()
                .map_or(self.report.looped, |target| target.looped()),
            waiting_messages: Count(messages as u64),
            waiting_bytes: Size(bytes as u64),
            position: self.last_position.map(|position| position.to_string()),
            ..std::mem::take(&mut self.report)
        };
        let told = Told::Report(Box::new(self.report.clone()));
        tell(&mut self.reports, &told).await
    }

    /// Waits shortly for what is with the target, so that it is acknowledged, and takes leave.
    async fn finish(&mut self) {
        let ends = async {
            if let Some(busy) = self.busy.take() {
                let (_, done) = busy.await;
                self.target = None;
                if let Done::Delivered(Delivery::All) = &done {
                    self.handle(done);
                    while let Some(action) = self.pump.poll_action() {
                        if let Action::Acknowledge(count) = action {
                            for answer in self.answers.drain(..count) {
                                self.link.client().answer(answer);
                            }
                        }
                    }
                }
            }
            let leave = Disconnect {
                reason: ReasonCode::Success,
                properties: DisconnectProperties::default(),
            };
            if self.link.client().disconnect(&leave).is_ok() {
                while !self.link.client().poll_transmit().is_empty() {
                    if self.link.turn(false, |_, _| ()).await.is_err() {
                        break;
                    }
                }
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

/// Connects to the node and subscribes. Gives the number of the connection, and what has come meanwhile.
async fn begin(
    mqtt: UnixStream,
    definition: &Definition,
) -> Result<(Link<()>, Epoch, Vec<Heard>), String> {
    let mut link = Link::new(Box::new(mqtt));
    let receive_maximum = u16::try_from(definition.batch_messages.0.saturating_mul(2));
    // The longest time means for ever, which is not meant.
    let keep_s = u32::try_from(definition.keep.as_secs()).unwrap_or(u32::MAX - 1);
    let client_id = definition.client_id();
    let connect = Connect {
        version: ProtocolVersion::V5,
        is_bridge: false,
        clean_start: false,
        // The connection ends with either process.
        keep_alive: 0,
        client_id: &client_id,
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties {
            session_expiry_interval: Some(keep_s),
            receive_maximum: NonZeroU16::new(receive_maximum.unwrap_or(u16::MAX)),
            maximum_packet_size: None::<NonZeroU32>,
            ..ConnectProperties::default()
        },
    };
    let encoded = link.client().connect(&connect);
    encoded.map_err(|error| error.to_string())?;
    let (mut heard, mut epoch, mut refused) = (Vec::new(), None, None);
    while !link.client().is_connected() {
        let turn = link.turn(true, |_, event| match event {
            Event::Connected(ack) => {
                let mut properties = ack.properties.user_properties.iter();
                let found = properties.find(|(name, _)| *name == EPOCH);
                epoch = found.and_then(|(_, value)| value.parse().ok());
            }
            Event::Refused(ack) => refused = Some(ack.reason),
            event => heard.extend(hear(event)),
        });
        let turned = turn.await;
        if let Some(reason) = refused {
            return Err(format!("the node refuses the connection: {reason:?}"));
        }
        turned.map_err(|error| format!("the node ends the connection: {error}"))?;
    }
    let Some(epoch) = epoch else {
        return Err("the node does not say which connection this is".to_owned());
    };
    subscribe(link.client(), definition).map_err(|error| error.to_string())?;
    loop {
        let subscribed = heard.iter().find_map(|heard| match heard {
            Heard::Subscribed(reasons) => Some(reasons.clone()),
            _ => None,
        });
        if let Some(reasons) = subscribed {
            let refused = reasons.iter().position(|reason| reason.is_error());
            return match refused.and_then(|index| definition.filters.get(index)) {
                Some(filter) => Err(format!("the node refuses the filter {filter}")),
                None => Ok((link, Epoch(epoch), heard)),
            };
        }
        let turned = link.turn(true, |_, event| heard.extend(hear(event))).await;
        turned.map_err(|error| format!("the node ends the connection: {error}"))?;
    }
}

fn subscribe(
    client: &mut Client<()>,
    definition: &Definition,
) -> Result<(), mqtt_client::CommandError> {
    let options = |filter: &str| SubscriptionOptions {
        qos: QoS::AtLeastOnce,
        // The outlet's dead letters do not come back; a shared subscription has no such option [MQTT-3.8.3-4].
        no_local: !filter.starts_with("$share/"),
        retain_as_published: true,
        retain_handling: match definition.retained {
            true => RetainHandling::SendIfNew,
            false => RetainHandling::DoNotSend,
        },
    };
    let former = definition.former_filters.iter().map(String::as_str);
    let former: Vec<&str> = former
        .filter(|former| !definition.filters.iter().any(|filter| filter == former))
        .collect();
    if !former.is_empty() {
        client.unsubscribe(&former, UnsubscribeProperties::default())?;
    }
    let filters: Vec<_> = definition
        .filters
        .iter()
        .map(|filter| (filter.as_str(), options(filter)))
        .collect();
    client.subscribe(&filters, SubscribeProperties::default())?;
    Ok(())
}

fn hear(event: Event<'_, ()>) -> Option<Heard> {
    match event {
        Event::Message(incoming) => {
            let publish = incoming.publish;
            let (mut position, mut properties) = (None, Vec::new());
            let mut pairs = publish.properties.user_properties.iter().peekable();
            // The node's own stands before those of the publisher, and only above QoS 0.
            if publish.qos != QoS::AtMostOnce
                && let Some((_, value)) = pairs.next_if(|(name, _)| *name == POSITION)
            {
                position = value.parse().ok();
            }
            for (name, value) in pairs {
                // A publisher's says nothing.
                if name != POSITION {
                    properties.push((name.into(), value.into()));
                }
            }
            let received = now();
            let item = Item {
                position,
                topic: publish.topic.into(),
                payload: Bytes::copy_from_slice(publish.payload),
                qos: publish.qos.as_u8(),
                retain: publish.retain,
                received,
                properties,
                standard: standard(&publish.properties, received),
            };
            Some(Heard::Message(Box::new(item), incoming.answer))
        }
        Event::Acknowledged(ack) => Some(Heard::Letter(match ack.reason {
            ReasonCode::NoMatchingSubscribers => LetterOutcome::Unclaimed,
            reason if reason.is_error() => {
                LetterOutcome::Failed(Arc::from(format!("the node answers {reason:?}")))
            }
            _ => LetterOutcome::Stored,
        })),
        Event::Subscribed(ack) => Some(Heard::Subscribed(ack.reasons.iter().collect())),
        Event::Disconnected(disconnect) => Some(Heard::Ended(disconnect.reason)),
        _ => None,
    }
}
