//! Options of outlets, which take messages to other systems.

use std::{num::NonZero, path::PathBuf, time::Duration};

use super::U32;
use crate::{declare::options, listed::Listed, setting::choice};

options! {
    /// An outlet: a durable session of the broker's own, whose messages a process of its own takes to another system, the target.
    /// A message is acknowledged when the target has it, so what is on its way survives crashes of the process, of nodes and of
    /// the target. docs/operate/outlets.md.
    pub struct OutletConfig {
        /// Its name: 1 to 64 letters, digits, `.`, `_` or `-`, a letter or digit first. Its session is called `$outlet/NAME/0`.
        live "name" => name: Option<String>;
        group "source" => source: OutletSourceConfig;
        /// Which messages go on: a rule in the language jq. A message goes on if the first output is neither false nor null.
        /// docs/operate/outlets-rules.md.
        live "where" => condition: Option<String>;
        /// What the target gets as payload: the first output of a rule in the language jq. A string is taken as it is, another
        /// value as JSON; without an output the message does not go on.
        live "map" => map: Option<String>;
        group "target" => target: OutletTargetConfig;
        group "batch" => batch: OutletBatchConfig;
        /// Size of the messages that the outlet's process reads ahead. More stay in the session's queue.
        live "memory" => memory: u64 = 16 << 20, unit Bytes, range 65_536..=1_073_741_824;
        /// How long a batch is tried before its messages become dead letters. Unset: for ever.
        live "giveUpSeconds" => give_up: Option<NonZero<u32>>, unit Seconds;
        group "deadLetter" => dead_letter: DeadLetterConfig;
    }

    /// Which messages an outlet takes.
    pub struct OutletSourceConfig {
        /// Topic filters, also `$share/GROUP/FILTER`.
        live "filter" => filter: Listed<String>;
        /// Kinds of events, such as `client.connected, alarm.raised`: what happens on all nodes becomes messages. docs/operate/outlets.md
        /// lists the kinds.
        live "events" => events: Listed<String>;
        /// How long messages are kept while no node runs the outlet, or after it is removed from the file.
        live "keepSeconds" => keep: Duration = Duration::from_hours(7 * 24), unit Seconds, range 60..=U32 - 1;
        /// Whether the outlet begins with the retained messages that there are.
        live "retained" => retained: bool = false;
    }

    /// Where an outlet takes its messages: exactly one of the groups is set.
    pub struct OutletTargetConfig {
        group "file" => file: FileTargetConfig;
        group "http" => http: HttpTargetConfig;
        group "kafka" => kafka: KafkaTargetConfig;
        group "mqtt" => mqtt: MqttTargetConfig;
        group "nats" => nats: NatsTargetConfig;
        group "postgres" => postgres: PostgresTargetConfig;
    }

    /// Messages are appended to a file, each once, also if processes are killed: docs/operate/outlets-file.md.
    pub struct FileTargetConfig {
        /// The file. Beside it, `PATH.position` says how much of it counts.
        live "path" => path: Option<PathBuf>;
        /// What is written of a message, with a line feed behind it: a template. Unset: a JSON object.
        live "record" => record: Option<String>;
    }

    /// Messages are the bodies of HTTP requests: docs/operate/outlets-http.md.
    pub struct HttpTargetConfig {
        /// Where requests go, as `https://HOST:PORT/PATH` or `http://HOST:PORT/PATH`.
        live "url" => url: Option<String>;
        /// The method.
        live "method" => method: HttpMethod = HttpMethod::Post;
        /// What a request has. With `raw` it has one message, whatever `batch` says.
        live "body" => body: HttpBody = HttpBody::Lines;
        /// What stands in a body of a message: a template. Unset: a JSON object; for `raw`, the payload as it is.
        live "record" => record: Option<String>;
        /// Headers of each request, one `Name: value` a line: the content of this file, such as `Authorization: Bearer …`.
        live "headersFile" => headers_file: Option<PathBuf>;
        /// A secret: the header `X-Hmq-Signature` of each request is then `sha256=` and the HMAC-SHA256 of its body in
        /// hexadecimal digits, by the content of this file without white space at its end.
        live "secretFile" => secret_file: Option<PathBuf>;
        /// Authorities that sign the server's certificate, PEM. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// How long an answer may take.
        live "timeoutSeconds" => timeout: Duration = Duration::from_secs(30), unit Seconds, range 1..=3600;
        /// With `raw`: how many requests are on their way at the same time, each with one message. 1: all messages arrive in their order.
        live "concurrency" => concurrency: u32 = 1, range 1..=256;
        /// With more than one request at the same time: messages of one key arrive in their order. A template.
        live "orderKey" => order_key: String = "${topic}".to_owned();
    }

    /// Messages are records of Kafka, written by the program heraldmq-outlet-kafka: docs/operate/outlets-kafka.md.
    pub struct KafkaTargetConfig {
        /// The servers, each as `HOST:PORT`; they name all others of their cluster.
        live "servers" => servers: Listed<String>;
        /// The topic there: a template. A level separator in `${topic}` becomes `.`.
        live "topic" => topic: Option<String>;
        /// The key of a record: a template. Records of one key go to one partition, in their order.
        live "key" => key: String = "${topic}".to_owned();
        /// Whether each batch is a transaction, so that a message is there once for readers of what is committed (`read_committed`).
        live "exactlyOnce" => exactly_once: bool = false;
        /// With transactions: the topic that says how far the outlets are. It is made if it is not there.
        live "positionsTopic" => positions_topic: String = "heraldmq-positions".to_owned();
        /// How records are compressed.
        live "compression" => compression: KafkaCompression = KafkaCompression::None;
        /// Whether TLS is spoken.
        live "tls" => tls: bool = false;
        /// Authorities that sign the servers' certificates, PEM. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// The outlet's own certificate for the servers, PEM, with those that sign it.
        live "certFile" => cert_file: Option<PathBuf>;
        /// The key of that certificate, PEM.
        live "keyFile" => key_file: Option<PathBuf>;
        group "sasl" => sasl: KafkaSaslConfig;
        /// How long Kafka may take to acknowledge a batch.
        live "timeoutSeconds" => timeout: Duration = Duration::from_secs(30), unit Seconds, range 1..=3600;
    }

    /// How an outlet or an inlet logs in at Kafka. Without a user it does not.
    pub struct KafkaSaslConfig {
        /// The mechanism.
        live "mechanism" => mechanism: SaslMechanism = SaslMechanism::ScramSha512;
        /// The user there.
        live "user" => user: Option<String>;
        /// The password: the content of this file without white space at its end.
        live "passwordFile" => password_file: Option<PathBuf>;
    }

    /// Messages are published at another MQTT broker: docs/operate/outlets-mqtt.md.
    pub struct MqttTargetConfig {
        /// The broker, as `mqtts://HOST:PORT` or `mqtt://HOST:PORT`.
        live "url" => url: Option<String>;
        /// The client identifier there. Unset: `hmq-NAME`.
        live "clientId" => client_id: Option<String>;
        /// The user there.
        live "user" => user: Option<String>;
        /// The password: the content of this file without white space at its end.
        live "passwordFile" => password_file: Option<PathBuf>;
        /// Authorities that sign the broker's certificate, PEM. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// The topic there: a template.
        live "topic" => topic: String = "${topic}".to_owned();
        /// Whether retained messages are retained there.
        live "retain" => retain: bool = true;
        /// How long the broker may take for an answer.
        live "timeoutSeconds" => timeout: Duration = Duration::from_secs(30), unit Seconds, range 1..=3600;
    }

    /// Messages are published to NATS, and acknowledged by JetStream: docs/operate/outlets-nats.md.
    pub struct NatsTargetConfig {
        /// The servers, each as `nats://HOST:PORT` or `tls://HOST:PORT`.
        live "url" => url: Listed<String>;
        /// The subject: a template. Topic levels become its tokens. Unset: the topic.
        live "subject" => subject: Option<String>;
        /// The stream that has to take the messages. Unset: the one that has the subject.
        live "stream" => stream: Option<String>;
        /// The user there.
        live "user" => user: Option<String>;
        /// The password: the content of this file without white space at its end.
        live "passwordFile" => password_file: Option<PathBuf>;
        /// A token instead of a user: the content of this file without white space at its end.
        live "tokenFile" => token_file: Option<PathBuf>;
        /// Credentials instead of a user: a file of `nsc`, `.creds`, or one with the seed of an NKEY.
        live "credentialsFile" => credentials_file: Option<PathBuf>;
        /// Authorities that sign the servers' certificates, PEM. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// The outlet's own certificate for the servers, PEM, with those that sign it.
        live "certFile" => cert_file: Option<PathBuf>;
        /// The key of that certificate, PEM.
        live "keyFile" => key_file: Option<PathBuf>;
        /// How long a server may take for an answer.
        live "timeoutSeconds" => timeout: Duration = Duration::from_secs(30), unit Seconds, range 1..=3600;
    }

    /// Messages are rows of PostgreSQL, each once: docs/operate/outlets-postgres.md.
    pub struct PostgresTargetConfig {
        /// The database, as `postgres://USER@HOST:PORT/DATABASE`, with `?sslmode=require` for TLS. A password in it is refused.
        live "url" => url: Option<String>;
        /// The password: the content of this file without white space at its end.
        live "passwordFile" => password_file: Option<PathBuf>;
        /// Authorities that sign the server's certificate, PEM, for `sslmode=require`. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// The table that gets a row for each message, as `TABLE` or `SCHEMA.TABLE`, as PostgreSQL has the name.
        live "table" => table: Option<String>;
        group "columns" => columns: Vec<PostgresColumnConfig>;
        /// A statement that is run for each message, in place of `table`: what stands in `${…}` is a parameter.
        live "statement" => statement: Option<String>;
        /// How long a connection, and a transaction, may take.
        live "timeoutSeconds" => timeout: Duration = Duration::from_secs(30), unit Seconds, range 1..=3600;
    }

    /// A column of the rows; others have their defaults.
    pub struct PostgresColumnConfig {
        /// Its name, as PostgreSQL has it.
        live "name" => name: Option<String>;
        /// What it gets, as text of its type: a template.
        live "value" => value: Option<String>;
        /// Whether a message that lacks a piece of the template has NULL there. Otherwise it is refused.
        live "optional" => optional: bool = false;
    }

    /// What goes to the target at once.
    pub struct OutletBatchConfig {
        /// Messages at most.
        live "messages" => messages: u32 = 1_000, range 1..=65_535;
        /// Size of the messages at most. A message that is larger goes alone.
        live "bytes" => bytes: u64 = 1 << 20, unit Bytes, range 1..=268_435_456;
        /// How long the first message waits for others.
        live "lingerMs" => linger: Duration = Duration::from_millis(20), unit Milliseconds, range 0..=60_000;
    }

    /// What becomes of messages that the target refuses.
    pub struct DeadLetterConfig {
        /// The topic under which they are published here, with QoS 1. Unset: they are dropped, and counted.
        live "topic" => topic: Option<String>;
    }
}

choice! {
    /// A method of HTTP.
    pub enum HttpMethod {
        /// POST.
        Post = "POST",
        /// PUT.
        Put = "PUT",
    }

    /// A codec of Kafka.
    pub enum KafkaCompression {
        /// Not at all.
        None = "none",
        /// Gzip.
        Gzip = "gzip",
        /// LZ4.
        Lz4 = "lz4",
        /// Snappy.
        Snappy = "snappy",
        /// Zstandard.
        Zstd = "zstd",
    }

    /// A mechanism of SASL.
    pub enum SaslMechanism {
        /// The password itself (RFC 4616): only over TLS is it hidden.
        Plain = "PLAIN",
        /// A proof of the password (RFC 7677).
        ScramSha256 = "SCRAM-SHA-256",
        /// The same with a longer digest.
        ScramSha512 = "SCRAM-SHA-512",
    }

    /// What an HTTP request of an outlet has.
    pub enum HttpBody {
        /// One message.
        Raw = "raw",
        /// A JSON array of messages.
        Array = "array",
        /// Messages in lines (NDJSON).
        Lines = "lines",
    }
}
