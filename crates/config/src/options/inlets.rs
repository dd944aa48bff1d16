//! Options of inlets, which bring messages of other brokers in.

use std::{path::PathBuf, time::Duration};

use super::{KafkaSaslConfig, U32};
use crate::{declare::options, listed::Listed, setting::choice};

options! {
    /// An inlet: a process of its own publishes here what another MQTT broker, a topic of Kafka or a stream of NATS gives it, and acknowledges each
    /// message there when this broker has it. docs/operate/inlets.md.
    pub struct InletConfig {
        /// Its name, which no outlet has: 1 to 64 letters, digits, `.`, `_` or `-`, a letter or digit first.
        live "name" => name: Option<String>;
        group "from" => from: InletSourceConfig;
        /// The topic here: a template.
        live "topic" => topic: String = "${topic}".to_owned();
        /// Whether retained messages are retained here.
        live "retain" => retain: bool = true;
    }

    /// Where the messages of an inlet come from: exactly one of the groups is set.
    pub struct InletSourceConfig {
        group "mqtt" => mqtt: MqttSourceConfig;
        group "kafka" => kafka: KafkaSourceConfig;
        group "nats" => nats: NatsSourceConfig;
    }

    /// Another MQTT broker.
    pub struct MqttSourceConfig {
        /// The broker, as `mqtts://HOST:PORT` or `mqtt://HOST:PORT`.
        live "url" => url: Option<String>;
        /// Topic filters there, also `$share/GROUP/FILTER`.
        live "filter" => filter: Listed<String>;
        /// The client identifier there. Unset: `hmq-NAME`. The session there belongs to it.
        live "clientId" => client_id: Option<String>;
        /// The user there.
        live "user" => user: Option<String>;
        /// The password: the content of this file without white space at its end.
        live "passwordFile" => password_file: Option<PathBuf>;
        /// Authorities that sign the broker's certificate, PEM. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// How long the broker keeps the session, with the messages that wait in it, while the inlet is not connected (MQTT 5.0).
        live "keepSeconds" => keep: Duration = Duration::from_hours(7 * 24), unit Seconds, range 60..=U32 - 1;
        /// Whether the inlet begins with the retained messages that there are at the broker.
        live "retained" => retained: bool = true;
        /// How long the broker may take for an answer.
        live "timeoutSeconds" => timeout: Duration = Duration::from_secs(30), unit Seconds, range 1..=3600;
    }

    /// Topics of Kafka, read by the program heraldmq-outlet-kafka: docs/operate/inlets-kafka.md.
    pub struct KafkaSourceConfig {
        /// The servers, each as `HOST:PORT`; they name all others of their cluster.
        live "servers" => servers: Listed<String>;
        /// The topics there.
        live "topics" => topics: Listed<String>;
        /// The consumer group. Unset: `hmq-NAME`. How far the topics are read belongs to it.
        live "group" => group: Option<String>;
        /// Where a group begins that has read nothing of a topic.
        live "deliver" => deliver: Deliver = Deliver::New;
        /// Whether TLS is spoken.
        live "tls" => tls: bool = false;
        /// Authorities that sign the servers' certificates, PEM. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// The inlet's own certificate for the servers, PEM, with those that sign it.
        live "certFile" => cert_file: Option<PathBuf>;
        /// The key of that certificate, PEM.
        live "keyFile" => key_file: Option<PathBuf>;
        group "sasl" => sasl: KafkaSaslConfig;
        /// How long Kafka may take for an answer.
        live "timeoutSeconds" => timeout: Duration = Duration::from_secs(30), unit Seconds, range 1..=3600;
    }

    /// A stream of NATS: docs/operate/inlets-nats.md.
    pub struct NatsSourceConfig {
        /// The servers, each as `nats://HOST:PORT` or `tls://HOST:PORT`.
        live "url" => url: Listed<String>;
        /// The stream.
        live "stream" => stream: Option<String>;
        /// Subjects of the stream, also with `*` and `>`. Unset: all.
        live "subject" => subject: Listed<String>;
        /// The durable consumer of the stream, which is made if it is not there. Unset: `hmq-NAME`. What the stream has given, and what
        /// not yet, belongs to it.
        live "durable" => durable: Option<String>;
        /// Where a consumer begins that is made.
        live "deliver" => deliver: Deliver = Deliver::New;
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
        /// The inlet's own certificate for the servers, PEM, with those that sign it.
        live "certFile" => cert_file: Option<PathBuf>;
        /// The key of that certificate, PEM.
        live "keyFile" => key_file: Option<PathBuf>;
        /// How long a server may take for an answer.
        live "timeoutSeconds" => timeout: Duration = Duration::from_secs(30), unit Seconds, range 1..=3600;
    }
}

choice! {
    /// Where a consumer of NATS, or a group of Kafka, begins.
    pub enum Deliver {
        /// With what is published from then on.
        New = "new",
        /// With what the stream, or the topic, has.
        All = "all",
    }
}
