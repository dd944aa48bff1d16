//! Another MQTT broker as a source: a session there that lasts.

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use mqtt_client::{Answer, Client, Event};
use mqtt_proto::{
    ConnectProperties, ProtocolVersion, Publish, QoS, ReasonCode, RetainHandling,
    SubscribeProperties, SubscriptionFilter, SubscriptionOptions, filter_matches,
};
use outlet::{InletDrop, Item};
use tokio::time::{Instant, timeout_at};

use super::definition::MqttSourceDefinition;
use super::source::{Arrival, Intake, Source, Token};
use crate::lines::now;
use crate::link::Link;
use crate::properties::standard;
use crate::remote::{Opening, Remote};

/// Messages that the other broker sends without an acknowledgement, at most (5.0).
const RECEIVE_MAXIMUM: NonZeroU16 = NonZeroU16::new(1_000).unwrap();

/// How a broker is spoken to, the first that it takes. Before 5.0, only for a bridge messages have RETAIN as they were published,
/// and not every broker knows bridges.
const DIALECTS: [(ProtocolVersion, bool); 3] = [
    (ProtocolVersion::V5, false),
    (ProtocolVersion::V3_1_1, true),
    (ProtocolVersion::V3_1_1, false),
];

/// The session, and how it is connected to.
#[derive(Clone, Debug)]
pub(crate) struct MqttSource {
    remote: Remote,
    filters: Vec<String>,
    wanted: Arc<Wanted>,
    keep: Duration,
    retained: bool,
    /// The place in [`DIALECTS`], of all copies.
    dialect: Arc<AtomicUsize>,
}

/// What topics the inlet's filters match. The session may have others, from an earlier configuration.
#[derive(Debug)]
struct Wanted {
    /// Without `$share/…/`; `None`: some have forms of the other broker's own, by which nothing can be told.
    filters: Option<Vec<String>>,
}

/// A connection that the other broker has accepted.
struct MqttIntake {
    link: Link<()>,
    wanted: Arc<Wanted>,
    filters: Vec<String>,
    heard: Heard,
    /// Until when SUBACK may take; `None`: it has come.
    subscribing: Option<Instant>,
}

/// What has come on a connection.
#[derive(Default)]
struct Heard {
    arrivals: Vec<Arrival>,
    /// Answers that are due whatever becomes of messages.
    due: Vec<Answer>,
    /// Of the messages that are not acknowledged, in their order.
    answers: VecDeque<(Token, Answer)>,
    next: Token,
    subscribed: Option<Vec<ReasonCode>>,
    /// The connection is over, and why.
    ended: Option<String>,
}

impl MqttSource {
    /// # Errors
    /// The URL is none of a broker.
    pub(crate) fn new(definition: &MqttSourceDefinition) -> Result<Self, String> {
        Ok(Self {
            remote: Remote::new(&definition.broker)?,
            filters: definition.filters.clone(),
            wanted: Arc::new(Wanted::new(&definition.filters)),
            keep: definition.keep,
            retained: definition.retained,
            dialect: Arc::default(),
        })
    }

    /// Connects, and goes on with the session if the broker has it.
    async fn connected(&self) -> Result<MqttIntake, String> {
        let client_id = &self.remote.definition.client_id;
        let mut heard = Heard::default();
        let connected = self.connect(client_id, false, |event| heard.handle(event, &self.wanted));
        let mut link = connected.await?;
        self.subscribe(link.client())?;
        Ok(MqttIntake {
            link,
            wanted: Arc::clone(&self.wanted),
            filters: self.filters.clone(),
            heard,
            subscribing: Some(Instant::now() + self.remote.definition.timeout),
        })
    }

    /// Connects as another client without a session, and leaves.
    async fn reached(&self) -> Result<String, String> {
        let client_id = format!("{}-test", self.remote.definition.client_id);
        self.connect(&client_id, true, |_| ()).await?;
        Ok(match self.dialect().0 {
            ProtocolVersion::V5 => "the broker accepts the client, with MQTT 5.0",
            _ => "the broker accepts the client, with MQTT 3.1.1",
        }
        .to_owned())
    }

    fn dialect(&self) -> (ProtocolVersion, bool) {
        let found = DIALECTS.get(self.dialect.load(Ordering::Relaxed));
        *found.expect("the place is that of a dialect")
    }

    async fn connect(
        &self,
        client_id: &str,
        clean_start: bool,
        mut handle: impl FnMut(Event<'_, ()>),
    ) -> Result<Link<()>, String> {
        // The longest time means for ever, which is not meant.
        let keep_s = u32::try_from(self.keep.as_secs()).unwrap_or(u32::MAX - 1);
        loop {
            let (version, is_bridge) = self.dialect();
            let properties = match version {
                ProtocolVersion::V5 => ConnectProperties {
                    session_expiry_interval: (!clean_start).then_some(keep_s),
                    receive_maximum: Some(RECEIVE_MAXIMUM),
                    ..ConnectProperties::default()
                },
                _ => ConnectProperties::default(),
            };
            let opening = Opening {
                version,
                is_bridge,
                clean_start,
                client_id,
                properties,
            };
            let deadline = Instant::now() + self.remote.definition.timeout;
            let connected = self.remote.connect(&opening, deadline, &mut handle).await?;
            match connected {
                Ok(link) => return Ok(link),
                Err(ReasonCode::UnsupportedProtocolVersion)
                    if self.dialect.load(Ordering::Relaxed) + 1 < DIALECTS.len() =>
                {
                    self.dialect.fetch_add(1, Ordering::Relaxed);
                }
                Err(reason) => {
                    // It may be another broker next time.
                    self.dialect.store(0, Ordering::Relaxed);
                    return Err(format!("the broker refuses the client: {reason:?}"));
                }
            }
        }
    }

    /// Asks for the filters of the inlet, again too: the configuration may have others than the session.
    fn subscribe(&self, client: &mut Client<()>) -> Result<(), String> {
        let options = |filter: &str| SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            // A shared subscription has no such option [MQTT-3.8.3-4].
            no_local: !filter.starts_with("$share/"),
            retain_as_published: true,
            retain_handling: match self.retained {
                true => RetainHandling::SendIfNew,
                false => RetainHandling::DoNotSend,
            },
        };
        let before = |options: SubscriptionOptions| match client.version() {
            ProtocolVersion::V5 => options,
            _ => SubscriptionOptions {
                no_local: false,
                retain_as_published: false,
                retain_handling: RetainHandling::SendAtSubscribe,
                ..options
            },
        };
        let filters: Vec<_> = self
            .filters
            .iter()
            .map(|filter| (filter.as_str(), before(options(filter))))
            .collect();
        let subscribed = client.subscribe(&filters, SubscribeProperties::default());
        subscribed.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Source for MqttSource {
    /// Host and port.
    fn address(&self) -> &str {
        self.remote.address()
    }

    fn open(&self) -> BoxFuture<'static, Result<Box<dyn Intake>, String>> {
        let source = self.clone();
        async move {
            let intake: Box<dyn Intake> = Box::new(source.connected().await?);
            Ok(intake)
        }
        .boxed()
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, String>> {
        let source = self.clone();
        async move { source.reached().await }.boxed()
    }
}

impl Wanted {
    fn new(filters: &[String]) -> Self {
        let plain = filters.iter().map(|filter| {
            let is_shared = filter.starts_with("$share/");
            let parsed = SubscriptionFilter::parse(filter).ok()?;
            let is_known = is_shared || !filter.starts_with('$') || filter.starts_with("$SYS/");
            is_known.then(|| parsed.filter.to_owned())
        });
        Self {
            filters: plain.collect(),
        }
    }

    fn has(&self, topic: &str) -> bool {
        self.filters.as_ref().is_none_or(|filters| {
            let mut filters = filters.iter();
            filters.any(|filter| filter_matches(filter, topic))
        })
    }
}

impl Heard {
    fn handle(&mut self, event: Event<'_, ()>, wanted: &Wanted) {
        match event {
            Event::Message(incoming) => {
                let token = incoming.answer.map(|answer| {
                    let token = self.next.advance();
                    self.answers.push_back((token, answer));
                    token
                });
                self.arrivals
                    .push(arrival(&incoming.publish, token, wanted));
            }
            // With QoS 2, which is not subscribed to: it was handled before.
            Event::Duplicate(incoming) => self.due.extend(incoming.answer),
            Event::Released { answer, .. } => self.due.extend(answer),
            Event::Subscribed(ack) => self.subscribed = Some(ack.reasons.iter().collect()),
            Event::Disconnected(disconnect) => {
                let reason = disconnect.reason;
                self.ended = Some(format!("the broker ends the connection: {reason:?}"));
            }
            _ => {}
        }
    }
}

fn arrival(publish: &Publish<'_>, token: Option<Token>, wanted: &Wanted) -> Arrival {
    if !wanted.has(publish.topic) {
        let why = format!(
            "{} matches no filter of the inlet: its session at the other broker has an older filter",
            publish.topic
        );
        return Arrival::Dropped(InletDrop::Refused(why.into()), token);
    }
    let received = now();
    let pairs = publish.properties.user_properties.iter();
    let item = Item {
        position: None,
        topic: publish.topic.into(),
        payload: bytes::Bytes::copy_from_slice(publish.payload),
        qos: publish.qos.as_u8(),
        retain: publish.retain,
        received,
        properties: pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        standard: standard(&publish.properties, received),
    };
    Arrival::Message(Box::new(item), token)
}

impl MqttIntake {
    async fn turn(&mut self, reads: bool) -> Result<Vec<Arrival>, String> {
        if self.heard.arrivals.is_empty() && self.heard.ended.is_none() {
            let Self {
                link,
                heard,
                wanted,
                subscribing,
                ..
            } = self;
            // Its SUBACK is read also while there is no room.
            let reads = reads || subscribing.is_some();
            let turn = link.turn(reads, |_, event| heard.handle(event, wanted));
            let turned = match *subscribing {
                None => turn.await,
                Some(until) => match timeout_at(until, turn).await {
                    Ok(turned) => turned,
                    Err(_) => return Err("the broker does not answer SUBSCRIBE in time".to_owned()),
                },
            };
            if let Err(error) = turned {
                let why = || format!("the broker ends the connection: {error}");
                self.heard.ended.get_or_insert_with(why);
            }
        }
        for answer in std::mem::take(&mut self.heard.due) {
            self.link.client().answer(answer);
        }
        if let Some(reasons) = self.heard.subscribed.take() {
            self.subscribing = None;
            let refused = reasons.iter().position(|reason| reason.is_error());
            match refused.and_then(|place| self.filters.get(place)) {
                Some(filter) => {
                    let why = format!("the broker refuses the filter {filter}");
                    self.heard.ended = Some(why);
                }
                None => self.heard.arrivals.push(Arrival::Ready),
            }
        }
        // What came before the end counts: messages of QoS 0 do not come again.
        match &self.heard.ended {
            Some(why) if self.heard.arrivals.is_empty() => Err(why.clone()),
            _ => Ok(std::mem::take(&mut self.heard.arrivals)),
        }
    }

    /// Sends DISCONNECT behind what waits to be sent. The session stays there.
    async fn leave(mut self) {
        super::say_goodbye(&mut self.link).await;
    }
}

impl Intake for MqttIntake {
    fn next(&mut self, reads: bool) -> BoxFuture<'_, Result<Vec<Arrival>, String>> {
        self.turn(reads).boxed()
    }

    fn acknowledge(&mut self, token: Token) {
        while let Some((found, answer)) = self.heard.answers.pop_front() {
            if found == token {
                self.link.client().answer(answer);
                return;
            }
        }
        unreachable!("a message is acknowledged once, and in its order");
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.leave().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_unknown_forms_let_everything_through() {
        let wanted = |filters: &[&str], topic| {
            let filters: Vec<String> = filters.iter().map(|one| (*one).to_owned()).collect();
            Wanted::new(&filters).has(topic)
        };
        assert!(wanted(&["a/#", "$share/g/c"], "a/b") && wanted(&["a", "$share/g/c"], "c"));
        assert!(!wanted(&["a/#", "$share/g/c"], "b"));
        assert!(wanted(&["$exclusive/a/#"], "b"));
    }
}
