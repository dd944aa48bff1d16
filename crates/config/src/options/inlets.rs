//! Options of inlets, which bring messages of other brokers in.

use std::{path::PathBuf, time::Duration};

use super::U32;
use crate::{declare::options, listed::Listed};

options! {
    /// An inlet: a process of its own publishes here what another MQTT broker sends it, and acknowledges each message there when this
    /// broker has it. docs/operate/inlets.md.
    pub struct InletConfig {
        /// Its name, which no outlet has: 1 to 64 letters, digits, `.`, `_` or `-`, a letter or digit first.
        live "name" => name: Option<String>;
        group "from" => from: InletSourceConfig;
        /// The topic here: a template.
        live "topic" => topic: String = "${topic}".to_owned();
        /// Whether retained messages are retained here.
        live "retain" => retain: bool = true;
    }

    /// Where the messages of an inlet come from.
    pub struct InletSourceConfig {
        group "mqtt" => mqtt: MqttSourceConfig;
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
}
