//! Servers of Kafka, as the configuration has them. The program that speaks to them is `heraldmq-outlet-kafka`.

use std::path::PathBuf;
use std::time::Duration;

use config::{KafkaCompression, KafkaTargetConfig, SaslMechanism};
use serde::{Deserialize, Serialize};

/// Servers of Kafka, and the messages there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KafkaDefinition {
    /// `HOST:PORT`, at least one.
    pub servers: Vec<String>,
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
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Authorities of the servers' certificates.
    pub ca_file: Option<PathBuf>,
    /// The outlet's own certificate.
    pub cert_file: Option<PathBuf>,
    /// The key of that.
    pub key_file: Option<PathBuf>,
    /// Who logs in.
    pub sasl: Option<SaslDefinition>,
    /// How long an acknowledgement may take.
    pub timeout: Duration,
}

/// How an outlet logs in by SASL.
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
        let mechanism = match config.sasl.mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        let login = config
            .sasl
            .user
            .clone()
            .zip(config.sasl.password_file.clone());
        Some(Self {
            servers: config.servers.iter().cloned().collect(),
            topic: config.topic.clone()?,
            key: config.key.clone(),
            exactly_once: config.exactly_once,
            positions_topic: config.positions_topic.clone(),
            compression: compression.to_owned(),
            tls: config.tls,
            ca_file: config.ca_file.clone(),
            cert_file: config.cert_file.clone(),
            key_file: config.key_file.clone(),
            sasl: login.map(|(user, password_file)| SaslDefinition {
                mechanism: mechanism.to_owned(),
                user,
                password_file,
            }),
            timeout: config.timeout,
        })
    }
}
