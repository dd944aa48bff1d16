//! What operators publish, through the loops of this node.

use std::sync::Arc;
use std::time::Duration;

use admin::api::{Encoding, NewMessage, PublishedMessage};
use admin::problem::{Kind, Problem};
use broker_core::{LoopMessage, Operator, PublishForOperator, Published, Settings};
use mqtt_proto::{
    MessageBody, Publish, PublishProperties, QoS, ReasonCode, UserProperties, validate_topic_name,
};
use mqtt_session::ApplicationMessage;
use parking_lot::Mutex;
use store_state::inbox::publisher_hash;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::node::Node;

/// Messages that are given to loops at once.
const AT_ONCE: usize = 64;

/// Publishes messages of people: those of one topic in their order. Each is answered for itself.
pub(super) async fn publish(
    node: &Arc<Node>,
    messages: Vec<NewMessage>,
    budget: Duration,
) -> Vec<Result<PublishedMessage, Problem>> {
    publish_by(Author::Person, node, messages, budget).await
}

/// Publishes messages of the broker's own, which may be below `$hmq`.
///
/// # Errors
/// One of them is not kept, or may not be.
pub(super) async fn publish_internal(
    node: &Arc<Node>,
    messages: Vec<NewMessage>,
    budget: Duration,
) -> Result<(), Problem> {
    let results = publish_by(Author::Broker, node, messages, budget).await;
    results.into_iter().try_for_each(|result| result.map(drop))
}

/// Whose messages are published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Author {
    Person,
    Broker,
}

async fn publish_by(
    author: Author,
    node: &Arc<Node>,
    messages: Vec<NewMessage>,
    budget: Duration,
) -> Vec<Result<PublishedMessage, Problem>> {
    let deadline = Instant::now() + budget;
    let settings = Arc::clone(&node.settings.read());
    let mut results = Vec::new();
    let mut messages = messages.into_iter().peekable();
    while messages.peek().is_some() {
        let asked: Vec<_> = messages
            .by_ref()
            .take(AT_ONCE)
            .map(|message| Asked::new(author, message, &settings))
            .collect();
        let node = Arc::clone(node);
        // A loop may run its turn in the thread that sends.
        let sent = tokio::task::spawn_blocking(move || send(&node, asked)).await;
        for sent in sent.unwrap_or_default() {
            results.push(match sent {
                Ok(sent) => sent.answered(deadline).await,
                Err(problem) => Err(problem),
            });
        }
    }
    results
}

/// A message that is to be published, as a loop takes it.
struct Asked {
    topic: String,
    retain: bool,
    message: ApplicationMessage,
    expiry_s: Option<u32>,
}

/// A message that a loop has.
struct Sent {
    topic: String,
    retain: bool,
    answered: oneshot::Receiver<Published>,
}

fn send(node: &Arc<Node>, asked: Vec<Result<Asked, Problem>>) -> Vec<Result<Sent, Problem>> {
    let loops = node.rim.loops();
    let send = |asked: Asked| {
        let (answer, answered) = oneshot::channel();
        let answer = Mutex::new(Some(answer));
        // Each topic has its loop, so that its messages keep their order.
        let index = publisher_hash(&asked.topic) % loops.loops().max(1) as u64;
        let message = LoopMessage::Publish(PublishForOperator {
            message: asked.message,
            expiry_s: asked.expiry_s,
            operator: Operator::new(move |published| {
                if let Some(answer) = answer.lock().take() {
                    // Who has asked may have given up.
                    let _ = answer.send(published);
                }
            }),
        });
        loops.send(usize::try_from(index).unwrap_or(0), message);
        Sent {
            topic: asked.topic,
            retain: asked.retain,
            answered,
        }
    };
    asked.into_iter().map(|asked| asked.map(send)).collect()
}

impl Sent {
    async fn answered(self, deadline: Instant) -> Result<PublishedMessage, Problem> {
        let published = match timeout_at(deadline, self.answered).await {
            Ok(Ok(published)) => published,
            Ok(Err(_)) => return Err(Problem::new(Kind::NotReady, "the node stops")),
            Err(_) => Published::MayBeKept,
        };
        match published {
            Published::Answered {
                reason,
                not_retained,
            } if !reason.is_error() => Ok(PublishedMessage {
                topic: self.topic,
                reason_code: reason.as_u8(),
                matched: reason != ReasonCode::NoMatchingSubscribers,
                retained: self.retain.then_some(!not_retained),
            }),
            Published::Answered {
                reason,
                not_retained,
            } => {
                let (name, code) = (reason.name(), reason.as_u8());
                let why = format!("a client would be answered {name} (0x{code:02x})");
                let problem = Problem::new(Kind::NotStored, why);
                let retained = self.retain.then_some(!not_retained);
                let problem = problem.with("reason_code", code).with("reason", name);
                Err(problem.with("retained", retained))
            }
            Published::MayBeKept => {
                let why = "not all who are to keep the message have answered in time; they may still keep it";
                Err(Problem::new(Kind::NotStored, why).with("may_have_begun", true))
            }
        }
    }
}

impl Asked {
    /// What no client could publish either is refused.
    fn new(author: Author, new: NewMessage, settings: &Settings) -> Result<Self, Problem> {
        let wrong = |pointer: &str, why: String| {
            Problem::new(Kind::InvalidBody, why).with("pointer", pointer)
        };
        let policy = &settings.limits.policy;
        let is_topic = |topic: &str| validate_topic_name(topic).map_err(|error| error.to_string());
        is_topic(&new.topic).map_err(|error| wrong("/topic", format!("`topic`: {error}")))?;
        let topic = new.topic.as_bytes();
        let is_internal = broker_core::is_internal(topic) && author == Author::Person;
        if broker_core::is_own(topic) || is_internal {
            let why = "the topics of the broker itself are published by it alone";
            return Err(wrong("/topic", why.to_owned()));
        }
        if !policy.admits_topic(&new.topic) {
            let why = "`topic` is longer or has more levels than `limits.topic` allows";
            return Err(wrong("/topic", why.to_owned()));
        }
        let qos = QoS::from_u8(new.qos).filter(|qos| *qos <= policy.maximum_qos);
        let Some(qos) = qos else {
            let most = policy.maximum_qos.as_u8();
            return Err(wrong("/qos", format!("`qos` is 0 to {most}")));
        };
        if new.retain && new.topic.len() > broker_core::STORED_NAME {
            let most = broker_core::STORED_NAME;
            let why = format!("the topic of a retained message has at most {most} bytes");
            return Err(wrong("/topic", why));
        }
        if new.retain && !policy.retain_available {
            let why = "`mqtt.retainAvailable` is off";
            return Err(wrong("/retain", why.to_owned()));
        }
        let Some(payload) = new.encoding.read(new.payload) else {
            return Err(wrong("/payload", "`payload` is no base64".to_owned()));
        };
        if new.payload_is_utf8 && std::str::from_utf8(&payload).is_err() {
            let why = "`payload` is not UTF-8, as `payload_is_utf8` says";
            return Err(wrong("/payload", why.to_owned()));
        }
        if let Some(topic) = &new.response_topic {
            is_topic(topic)
                .map_err(|error| wrong("/response_topic", format!("`response_topic`: {error}")))?;
        }
        let is_text = |text: &str| !text.contains('\0') && text.len() <= usize::from(u16::MAX);
        if new
            .content_type
            .as_deref()
            .is_some_and(|text| !is_text(text))
        {
            let why = "`content_type` has at most 65,535 bytes, and no U+0000";
            return Err(wrong("/content_type", why.to_owned()));
        }
        let correlation = new.correlation_data.map(|text| Encoding::Base64.read(text));
        let correlation = match correlation {
            Some(Some(data)) if data.len() <= usize::from(u16::MAX) => Some(data),
            None => None,
            Some(_) => {
                let why = "`correlation_data` is base64 of at most 65,535 bytes";
                return Err(wrong("/correlation_data", why.to_owned()));
            }
        };
        let pairs: Vec<(&str, &str)> = new
            .user_properties
            .iter()
            .map(|property| (&*property.name, &*property.value))
            .collect();
        let mut buffer = Vec::new();
        let user_properties = UserProperties::encode_from(&pairs, &mut buffer).map_err(|_| {
            let why = "names and values have at most 65,535 bytes, and no U+0000";
            wrong("/user_properties", why.to_owned())
        })?;
        let properties = PublishProperties {
            payload_format_indicator: new.payload_is_utf8.then_some(true),
            content_type: new.content_type.as_deref(),
            response_topic: new.response_topic.as_deref(),
            correlation_data: correlation.as_deref(),
            user_properties,
            ..PublishProperties::default()
        };
        let publish = Publish {
            dup: false,
            qos,
            retain: new.retain,
            topic: &new.topic,
            packet_id: None,
            properties,
            payload: &payload,
        };
        let body = MessageBody::from_publish(&publish, &new.topic);
        if body.as_bytes().len() > policy.maximum_packet_size as usize {
            let why = "the message is larger than `limits.connection.maximumPacketSize`";
            return Err(wrong("/payload", why.to_owned()));
        }
        Ok(Self {
            message: ApplicationMessage {
                body,
                qos,
                retain: new.retain,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            },
            topic: new.topic,
            retain: new.retain,
            expiry_s: new.message_expiry_s,
        })
    }
}
