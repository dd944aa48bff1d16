//! Servers of Kafka, as the configuration has them. The program that speaks to them is `heraldmq-outlet-kafka`.

use std::path::PathBuf;
use std::time::Duration;

use config::{
    Deliver, KafkaCompression, KafkaSaslConfig, KafkaSourceConfig, KafkaTargetConfig, SaslMechanism,
};
use serde::{Deserialize, Serialize};

/// Servers of Kafka, and how they are connected to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KafkaServersDefinition {
    /// `HOST:PORT`, at least one.
    pub servers: Vec<String>,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Authorities of the servers' certificates.
    pub ca_file: Option<PathBuf>,
    /// The own certificate.
    pub cert_file: Option<PathBuf>,
    /// The key of that.
    pub key_file: Option<PathBuf>,
    /// Who logs in.
    pub sasl: Option<SaslDefinition>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Topics of Kafka, and the group that reads them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KafkaSourceDefinition {
    /// The servers.
    pub servers: KafkaServersDefinition,
    /// The topics.
    pub topics: Vec<String>,
    /// The consumer group.
    pub group: String,
    /// Whether a new group begins with what a topic has.
    pub is_from_beginning: bool,
}

/// Servers of Kafka, and the messages there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KafkaDefinition {
    /// The servers.
    pub servers: KafkaServersDefinition,
    /// The topic there, a template.
    pub topic: String,
    /// The key of a record, a template.
    pub key: String,
    /// Whether each batch is a transaction.
    pub exactly_once: bool,
    /// The topic that says how far outlets with transactions are.
    pub positions_topic: String,
    /// How batches are compressed: `none`, or a codec by the name that Kafka has for it.
    pub compression: String,
}

/// Who logs in by SASL.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SaslDefinition {
    /// The mechanism, by the name that IANA has for it.
    pub mechanism: String,
    /// The user.
    pub user: String,
    /// The file with the password.
    pub password_file: PathBuf,
}

impl KafkaDefinition {
    /// `None`: there are no servers, or the topic is missing, which the check of the configuration refuses.
    pub(crate) fn of(config: &KafkaTargetConfig) -> Option<Self> {
        if config.servers.is_empty() {
            return None;
        }
        let compression = match config.compression {
            KafkaCompression::None => "none",
            KafkaCompression::Gzip => "gzip",
            KafkaCompression::Lz4 => "lz4",
            KafkaCompression::Snappy => "snappy",
            KafkaCompression::Zstd => "zstd",
        };
        Some(Self {
            servers: KafkaServersDefinition {
                servers: config.servers.iter().cloned().collect(),
                tls: config.tls,
                ca_file: config.ca_file.clone(),
                cert_file: config.cert_file.clone(),
                key_file: config.key_file.clone(),
                sasl: SaslDefinition::of(&config.sasl),
                timeout: config.timeout,
            },
            topic: config.topic.clone()?,
            key: config.key.clone(),
            exactly_once: config.exactly_once,
            positions_topic: config.positions_topic.clone(),
            compression: compression.to_owned(),
        })
    }
}

impl KafkaSourceDefinition {
    /// That of an inlet of this name.
    pub(crate) fn of(config: &KafkaSourceConfig, name: &str) -> Self {
        Self {
            servers: KafkaServersDefinition {
                servers: config.servers.iter().cloned().collect(),
                tls: config.tls,
                ca_file: config.ca_file.clone(),
                cert_file: config.cert_file.clone(),
                key_file: config.key_file.clone(),
                sasl: SaslDefinition::of(&config.sasl),
                timeout: config.timeout,
            },
            topics: config.topics.iter().cloned().collect(),
            group: (config.group.clone()).unwrap_or_else(|| format!("hmq-{name}")),
            is_from_beginning: config.deliver == Deliver::All,
        }
    }
}

impl SaslDefinition {
    /// `None`: nobody logs in.
    fn of(config: &KafkaSaslConfig) -> Option<Self> {
        let mechanism = match config.mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        let login = config.user.clone().zip(config.password_file.clone());
        login.map(|(user, password_file)| Self {
            mechanism: mechanism.to_owned(),
            user,
            password_file,
        })
    }
}
