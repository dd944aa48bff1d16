//! What the node tells the process of an outlet.

use std::path::PathBuf;
use std::time::Duration;

use config::{HttpBody, HttpMethod, OutletConfig};
use outlet::{BatchLimits, Milliseconds, Options};
use serde::{Deserialize, Serialize};

use crate::kafka_definition::KafkaDefinition;
use crate::report::Size;
use crate::rule_texts::RuleTexts;
use crate::targets::postgres::PostgresDefinition;

/// Before the kind of an event in the topic of its message.
pub const EVENTS: &str = "$hmq/event/";

/// Messages of a batch at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MessageCount(pub u32);

/// An outlet, as the configuration has it. Secrets are named by their files, which the process reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// What tells this cluster from others: of letters and digits.
    pub cluster: String,
    /// Its topic filters.
    pub filters: Vec<String>,
    /// Filters that the session may have from before, and that end if they are not among these.
    pub former_filters: Vec<String>,
    /// How long the session stays without a connection.
    pub keep: Duration,
    /// Whether it begins with the retained messages.
    pub retained: bool,
    /// Which messages go on, and as what.
    pub rules: RuleTexts,
    /// What takes the messages.
    pub target: TargetDefinition,
    /// Messages of a batch.
    pub batch_messages: MessageCount,
    /// Bytes of a batch.
    pub batch_bytes: Size,
    /// How long a batch waits for more.
    pub linger: Duration,
    /// Bytes that are read ahead.
    pub memory: Size,
    /// How long a batch is tried; `None`: for ever.
    pub give_up: Option<Duration>,
    /// Where dead letters are published.
    pub dead_letter: Option<String>,
}

/// What takes the messages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetDefinition {
    /// A file.
    File {
        /// Where it is.
        path: PathBuf,
        /// What is written of a message; `None`: a JSON object.
        record: Option<String>,
    },
    /// An HTTP server.
    Http(HttpDefinition),
    /// Kafka.
    Kafka(KafkaDefinition),
    /// Another MQTT broker.
    Mqtt(MqttDefinition),
    /// NATS.
    Nats(NatsDefinition),
    /// A database of PostgreSQL.
    Postgres(PostgresDefinition),
}

/// An HTTP server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HttpDefinition {
    /// Where requests go.
    pub url: String,
    /// PUT instead of POST.
    pub is_put: bool,
    /// What a request has.
    pub body: BodyForm,
    /// What stands in it of a message; `None`: a JSON object, or the payload.
    pub record: Option<String>,
    /// Headers of each request.
    pub headers_file: Option<PathBuf>,
    /// The secret that bodies are signed with.
    pub secret_file: Option<PathBuf>,
    /// Authorities of the server's certificate.
    pub ca_file: Option<PathBuf>,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Requests with one message that are on their way at the same time.
    pub concurrency: MessageCount,
    /// What messages have in common that arrive in their order, a template.
    pub order_key: String,
}

/// What an HTTP request has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BodyForm {
    /// One message.
    Raw,
    /// A JSON array of messages.
    Array,
    /// Messages in lines.
    Lines,
}

/// Another MQTT broker, and the messages there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MqttDefinition {
    /// The broker.
    pub broker: BrokerDefinition,
    /// The topic there, a template.
    pub topic: String,
    /// Whether retained messages are retained there.
    pub retain: bool,
}

/// How another MQTT broker is connected to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrokerDefinition {
    /// `mqtts://HOST:PORT` or `mqtt://HOST:PORT`.
    pub url: String,
    /// The client identifier there.
    pub client_id: String,
    /// The user there.
    pub user: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// Authorities of the broker's certificate.
    pub ca_file: Option<PathBuf>,
    /// How long the broker may take.
    pub timeout: Duration,
}

/// Servers of NATS, and the messages there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NatsDefinition {
    /// The servers.
    pub servers: NatsServersDefinition,
    /// The subject, a template; `None`: the topic.
    pub subject: Option<String>,
    /// The stream that has to take the messages; `None`: the one with the subject.
    pub stream: Option<String>,
}

/// How servers of NATS are connected to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NatsServersDefinition {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`, at least one.
    pub urls: Vec<String>,
    /// The user there.
    pub user: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The file with a token.
    pub token_file: Option<PathBuf>,
    /// The file with a key, and perhaps a JSON Web Token.
    pub credentials_file: Option<PathBuf>,
    /// Authorities of the servers' certificates.
    pub ca_file: Option<PathBuf>,
    /// An own certificate.
    pub cert_file: Option<PathBuf>,
    /// The key of that.
    pub key_file: Option<PathBuf>,
    /// How long an acknowledgement may take.
    pub timeout: Duration,
}

impl Definition {
    /// The definition of an outlet whose configuration was checked, without what only its node knows; `None`: it has no name or no
    /// target, which the check refuses.
    #[must_use]
    pub fn of(outlet: &OutletConfig) -> Option<Self> {
        let name = outlet.name.clone()?;
        let target = target(outlet, &name)?;
        let goes_alone = matches!(
            &target,
            TargetDefinition::Http(HttpDefinition {
                body: BodyForm::Raw,
                concurrency: MessageCount(1),
                ..
            })
        );
        let batch = &outlet.batch;
        Some(Self {
            cluster: String::new(),
            filters: filters(outlet),
            former_filters: Vec::new(),
            keep: outlet.source.keep,
            retained: outlet.source.retained,
            rules: RuleTexts {
                condition: outlet.condition.clone(),
                map: outlet.map.clone(),
            },
            target,
            batch_messages: MessageCount(if goes_alone { 1 } else { batch.messages }),
            batch_bytes: Size(batch.bytes),
            linger: batch.linger,
            memory: Size(outlet.memory),
            give_up: outlet
                .give_up
                .map(|seconds| Duration::from_secs(seconds.get().into())),
            dead_letter: outlet.dead_letter.topic.clone(),
            name,
        })
    }

    /// The client identifier of its session.
    #[must_use]
    pub fn client_id(&self) -> String {
        client_id(&self.name)
    }

    /// What its pump is told.
    pub(crate) fn options(&self) -> Options {
        let in_memory = |Size(bytes)| usize::try_from(bytes).unwrap_or(usize::MAX);
        Options {
            batch: BatchLimits {
                messages: self.batch_messages.0 as usize,
                bytes: in_memory(self.batch_bytes),
                linger: milliseconds(self.linger),
            },
            memory: in_memory(self.memory),
            give_up: self.give_up.map(milliseconds),
            has_dead_letters: self.dead_letter.is_some(),
        }
    }
}

/// The client identifier of the session of an outlet.
#[must_use]
pub fn client_id(name: &str) -> String {
    format!("$outlet/{name}/0")
}

pub(crate) fn milliseconds(time: Duration) -> Milliseconds {
    Milliseconds(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Topic filters, and the topics of events.
fn filters(outlet: &OutletConfig) -> Vec<String> {
    let events = outlet.source.events.iter();
    let events = events.map(|kind| format!("{EVENTS}{kind}"));
    let filters = outlet.source.filter.iter().cloned();
    filters.chain(events).collect()
}

fn target(outlet: &OutletConfig, name: &str) -> Option<TargetDefinition> {
    let config::OutletTargetConfig {
        file,
        http,
        kafka,
        mqtt,
        nats,
        postgres,
    } = &outlet.target;
    if let Some(kafka) = KafkaDefinition::of(kafka) {
        return Some(TargetDefinition::Kafka(kafka));
    }
    if postgres.url.is_some() {
        return PostgresDefinition::of(postgres).map(TargetDefinition::Postgres);
    }
    if let Some(path) = &file.path {
        return Some(TargetDefinition::File {
            path: path.clone(),
            record: file.record.clone(),
        });
    }
    if let Some(url) = &http.url {
        return Some(TargetDefinition::Http(HttpDefinition {
            url: url.clone(),
            is_put: http.method == HttpMethod::Put,
            body: match http.body {
                HttpBody::Raw => BodyForm::Raw,
                HttpBody::Array => BodyForm::Array,
                HttpBody::Lines => BodyForm::Lines,
            },
            record: http.record.clone(),
            headers_file: http.headers_file.clone(),
            secret_file: http.secret_file.clone(),
            ca_file: http.ca_file.clone(),
            timeout: http.timeout,
            concurrency: MessageCount(http.concurrency),
            order_key: http.order_key.clone(),
        }));
    }
    if !nats.url.is_empty() {
        return Some(TargetDefinition::Nats(NatsDefinition {
            servers: NatsServersDefinition {
                urls: nats.url.iter().cloned().collect(),
                user: nats.user.clone(),
                password_file: nats.password_file.clone(),
                token_file: nats.token_file.clone(),
                credentials_file: nats.credentials_file.clone(),
                ca_file: nats.ca_file.clone(),
                cert_file: nats.cert_file.clone(),
                key_file: nats.key_file.clone(),
                timeout: nats.timeout,
            },
            subject: nats.subject.clone(),
            stream: nats.stream.clone(),
        }));
    }
    let url = mqtt.url.clone()?;
    Some(TargetDefinition::Mqtt(MqttDefinition {
        broker: BrokerDefinition {
            url,
            client_id: (mqtt.client_id.clone()).unwrap_or_else(|| format!("hmq-{name}")),
            user: mqtt.user.clone(),
            password_file: mqtt.password_file.clone(),
            ca_file: mqtt.ca_file.clone(),
            timeout: mqtt.timeout,
        },
        topic: mqtt.topic.clone(),
        retain: mqtt.retain,
    }))
}
