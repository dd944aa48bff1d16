//! The options of `pub` and `sub` that are about the connection; letters as in mosquitto_pub.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use mqtt_proto::{ProtocolVersion, QoS};
use transport::{ClientOptions, ClientTransport};

use super::property::Properties;
use crate::failure::Failure;
use crate::transport_options::TransportOptions;

/// A session that never expires, on the wire.
const NEVER: u32 = u32::MAX;

/// How to connect.
#[derive(Args)]
pub(crate) struct ConnectionOptions {
    /// Host name or address of the broker.
    #[arg(short = 'h', long, default_value = "localhost")]
    host: String,
    /// Port of the broker. Default: 1883, with TLS 8883, with WebSocket 8080, with both 8443.
    #[arg(short, long)]
    port: Option<u16>,
    /// Unix domain socket of the broker, instead of a host and port.
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["host", "port", "ws", "tls", "cafile", "capath", "tls_version", "cert", "insecure"]
    )]
    unix: Option<PathBuf>,
    /// Host, port, user name, password and topic in one URL: mqtt://alice:secret@host:1883/topic, or mqtts:// for TLS.
    #[arg(
        short = 'L',
        long,
        value_name = "URL",
        value_parser = Url::parse,
        conflicts_with_all = ["host", "port", "unix", "username", "password"]
    )]
    url: Option<Url>,
    /// Local address to connect from.
    #[arg(short = 'A', value_name = "ADDRESS", conflicts_with = "unix")]
    pub(super) bind_address: Option<IpAddr>,
    #[command(flatten)]
    transport: TransportOptions,
    /// Client identifier; without it, the broker chooses one.
    #[arg(short, long, value_name = "CLIENT_ID")]
    pub(super) id: Option<String>,
    /// Prefix of the client identifier; the number of the process follows.
    #[arg(short = 'I', long, value_name = "PREFIX", conflicts_with = "id")]
    id_prefix: Option<String>,
    /// User name.
    #[arg(short, long)]
    username: Option<String>,
    /// Password.
    #[arg(short = 'P', long = "pw", value_name = "PASSWORD")]
    password: Option<String>,
    /// Keep alive in seconds; 0: none.
    #[arg(short, long, default_value_t = 60, value_name = "SECONDS")]
    pub(super) keepalive: u16,
    /// Version of MQTT.
    #[arg(short = 'V', long, default_value = "5", value_name = "VERSION")]
    pub(super) protocol_version: Version,
    /// Resume the session of this client identifier, and keep it afterwards (clean start 0).
    #[arg(short = 'c', long, requires = "id")]
    pub(super) disable_clean_session: bool,
    /// Seconds for which the broker keeps the session after the connection ends; -1: for ever (MQTT 5). Default: -1
    /// with -c, else 0.
    #[arg(
        short = 'x',
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        value_parser = parse_session_expiry
    )]
    pub(super) session_expiry_interval: Option<u32>,
    /// A property of a packet (MQTT 5): connect, publish, subscribe, unsubscribe, disconnect or
    /// will, then the property and its value. A user-property has a name and a value.
    #[arg(
        short = 'D',
        long = "property",
        value_names = ["PACKET", "PROPERTY", "VALUE"],
        num_args = 3..=4,
        action = ArgAction::Append
    )]
    property: Vec<String>,
    /// Topic of the will message, which the broker publishes when the connection breaks.
    #[arg(long, value_name = "TOPIC")]
    pub(super) will_topic: Option<String>,
    /// Payload of the will message.
    #[arg(long, value_name = "TEXT", requires = "will_topic", default_value = "")]
    pub(super) will_payload: String,
    /// QoS of the will message.
    #[arg(long, value_name = "QOS", requires = "will_topic", default_value = "0", value_parser = parse_qos)]
    pub(super) will_qos: QoS,
    /// Retain the will message.
    #[arg(long, requires = "will_topic")]
    pub(super) will_retain: bool,
    /// Print no error messages; the exit code reports errors.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print on standard error which packets are sent and received.
    #[arg(short, long)]
    pub(super) debug: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Where a broker listens.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Place<'a> {
    /// A host and a port.
    Port(&'a str, u16),
    /// The path of a Unix socket.
    Socket(&'a Path),
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Version {
    #[value(name = "5", aliases = ["mqttv5", "50", "5.0"])]
    V5,
    #[value(name = "311", aliases = ["mqttv311", "3.1.1"])]
    V311,
    #[value(name = "31", aliases = ["mqttv31", "3.1"])]
    V31,
}

/// `mqtt[s]://[user[:password]@]host[:port][/topic]`, taken apart as mosquitto_pub does: nothing is decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Url {
    tls: bool,
    username: Option<String>,
    password: Option<String>,
    host: String,
    port: Option<u16>,
    topic: Option<String>,
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let expected = || "expected mqtt[s]://[user[:password]@]host[:port]/topic".to_owned();
        let (tls, rest) = match (text.strip_prefix("mqtt://"), text.strip_prefix("mqtts://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            (None, None) => return Err(expected()),
        };
        let (place, topic) = match rest.split_once('/') {
            Some((place, topic)) => (place, Some(topic).filter(|topic| !topic.is_empty())),
            None => (rest, None),
        };
        let (user, place) = match place.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, place),
        };
        let (username, password) = match user.map(|user| user.split_once(':').ok_or(user)) {
            Some(Ok((name, password))) => (Some(name), Some(password)),
            Some(Err(name)) => (Some(name), None),
            None => (None, None),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| expected())?))
            }
            _ => (place, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(expected());
        }
        Ok(Self {
            tls,
            username: username.map(str::to_owned),
            password: password.map(str::to_owned),
            host: host.to_owned(),
            port,
            topic: topic.map(str::to_owned),
        })
    }
}

impl ConnectionOptions {
    /// The topic of the URL.
    pub(crate) fn topic(&self) -> Option<&str> {
        self.url.as_ref()?.topic.as_deref()
    }

    pub(super) fn username(&self) -> Option<&str> {
        match &self.url {
            Some(url) => url.username.as_deref(),
            None => self.username.as_deref(),
        }
    }

    pub(super) fn password(&self) -> Option<&str> {
        match &self.url {
            Some(url) => url.password.as_deref(),
            None => self.password.as_deref(),
        }
    }

    /// The client identifier, unless the broker is to choose one.
    pub(super) fn client_id(&self) -> Option<String> {
        let prefixed = |prefix: &String| format!("{prefix}{}", std::process::id());
        let prefixed = self.id_prefix.as_ref().map(prefixed);
        self.id.clone().or(prefixed)
    }

    fn host(&self) -> &str {
        self.url.as_ref().map_or(&self.host, |url| &url.host)
    }

    /// TLS and WebSocket.
    pub(super) fn chosen(&self) -> ClientTransport {
        match &self.url {
            Some(Url { tls: true, .. }) => self.transport.clone().with_tls().chosen(),
            _ => self.transport.chosen(),
        }
    }

    pub(crate) fn version(&self) -> ProtocolVersion {
        match self.protocol_version {
            Version::V5 => ProtocolVersion::V5,
            Version::V311 => ProtocolVersion::V3_1_1,
            Version::V31 => ProtocolVersion::V3_1,
        }
    }

    /// Where the broker listens.
    pub(super) fn place(&self) -> Place<'_> {
        match &self.unix {
            Some(path) => Place::Socket(path),
            None => Place::Port(self.host(), self.port()),
        }
    }

    fn port(&self) -> u16 {
        let transport = self.chosen();
        let default = match (transport.tls, transport.websocket) {
            (None, None) => 1883,
            (Some(_), None) => 8883,
            (None, Some(_)) => 8080,
            (Some(_), Some(_)) => 8443,
        };
        let of_url = self.url.as_ref().and_then(|url| url.port);
        of_url.or(self.port).unwrap_or(default)
    }

    /// What the connection begins with.
    ///
    /// # Errors
    /// Files that cannot be used, and a host whose name no certificate can have.
    pub(super) fn layers(&self) -> Result<ClientOptions, Failure> {
        let loaded = self.chosen().load(self.host(), self.port());
        loaded.map_err(|error| Failure::Usage(error.to_string()))
    }

    /// The properties of all packets, checked.
    ///
    /// # Errors
    /// Options that do not go together.
    pub(crate) fn properties(&self) -> Result<Properties, Failure> {
        let properties = Properties::parse(&self.property).map_err(Failure::Usage)?;
        if !self.version().is_v5()
            && (!properties.is_empty() || self.session_expiry_interval.is_some())
        {
            return Err(Failure::Usage("-D and -x need MQTT 5 (-V 5)".to_owned()));
        }
        if self.will_topic.is_none() && properties.of(super::PropertyOf::Will).next().is_some() {
            return Err(Failure::Usage("-D will needs --will-topic".to_owned()));
        }
        if !self.version().is_v5() && self.password().is_some() && self.username().is_none() {
            return Err(Failure::Usage("before MQTT 5, -P needs -u".to_owned()));
        }
        Ok(properties)
    }

    /// What CONNECT says; `None`: the session ends with the connection.
    pub(super) fn session_expiry(&self) -> Option<u32> {
        self.session_expiry_interval
            .or_else(|| self.disable_clean_session.then_some(NEVER))
    }
}

/// Reads `0`, `1` or `2`.
///
/// # Errors
/// What is expected instead.
pub(crate) fn parse_qos(text: &str) -> Result<QoS, String> {
    text.parse()
        .ok()
        .and_then(QoS::from_u8)
        .ok_or_else(|| "expected 0, 1 or 2".to_owned())
}

fn parse_session_expiry(text: &str) -> Result<u32, String> {
    match text {
        "-1" => Ok(NEVER),
        seconds => seconds
            .parse()
            .map_err(|_| format!("expected -1 or 0 to {NEVER}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        options: ConnectionOptions,
    }

    fn parse(line: &str) -> Result<ConnectionOptions, String> {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))
            .map(|line| line.options)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn versions_have_the_names_of_mosquitto_and_short_ones() {
        for (name, version) in [
            ("5", ProtocolVersion::V5),
            ("mqttv5", ProtocolVersion::V5),
            ("311", ProtocolVersion::V3_1_1),
            ("mqttv311", ProtocolVersion::V3_1_1),
            ("mqttv31", ProtocolVersion::V3_1),
        ] {
            assert_eq!(parse(&format!("-V {name}")).unwrap().version(), version);
        }
        assert!(parse("-V 4").is_err());
    }

    #[test]
    fn session_expiry_follows_clean_start_unless_given() {
        let expiry = |line| parse(line).unwrap().session_expiry();
        assert_eq!(expiry(""), None);
        assert_eq!(expiry("-i me -c"), Some(NEVER));
        assert_eq!(expiry("-i me -c -x 30"), Some(30));
        assert_eq!(expiry("-x -1"), Some(NEVER));
        assert!(parse("-x -2").is_err());
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        assert!(
            parse("-c").is_err(),
            "a session to keep needs an identifier"
        );
        assert!(parse("--will-retain").is_err());
        for line in [
            "-V 311 -x 5",
            "-V 311 -D publish content-type text",
            "-D will content-type text",
            "-V 311 -P secret",
        ] {
            assert!(
                matches!(parse(line).unwrap().properties(), Err(Failure::Usage(_))),
                "{line}"
            );
        }
    }

    #[test]
    fn the_port_follows_tls_and_websocket_unless_given() {
        for (line, port) in [
            ("", 1883),
            ("--tls", 8883),
            ("--cafile ca.pem", 8883),
            ("--insecure", 8883),
            ("--cert c.pem --key k.pem", 8883),
            ("--ws", 8080),
            ("--ws=/path --tls", 8443),
            ("--tls -p 1", 1),
        ] {
            let options = parse(line).unwrap();
            assert_eq!(options.place(), Place::Port("localhost", port), "{line}");
        }
        let options = parse("--unix mqtt.sock").unwrap();
        assert_eq!(options.place(), Place::Socket(Path::new("mqtt.sock")));
        assert!(parse("--unix mqtt.sock --tls").is_err());
        assert!(parse("--cert c.pem").is_err());
    }

    #[test]
    fn h_is_the_host() {
        assert_eq!(parse("-h example.org").unwrap().host(), "example.org");
    }

    #[test]
    fn a_url_has_it_all() {
        let options = parse("-L mqtt://alice:se:c@host.example:77/a/+/b").unwrap();
        assert_eq!(options.place(), Place::Port("host.example", 77));
        assert_eq!(options.username(), Some("alice"));
        assert_eq!(options.password(), Some("se:c"));
        assert_eq!(options.topic(), Some("a/+/b"));
        for (line, port) in [
            ("-L mqtt://h", 1883),
            ("-L mqtts://h/t", 8883),
            ("-L mqtts://h:1/t", 1),
        ] {
            assert_eq!(
                parse(line).unwrap().place(),
                Place::Port("h", port),
                "{line}"
            );
        }
        let six = parse("-L mqtt://[::1]:5/t").unwrap();
        assert_eq!(six.place(), Place::Port("::1", 5));
        for wrong in ["http://h/t", "mqtt:///t", "mqtt://h:x/t"] {
            assert!(parse(&format!("-L {wrong}")).is_err(), "{wrong}");
        }
        assert!(parse("-L mqtt://h/t -h other").is_err());
    }

    #[test]
    fn an_identifier_can_have_a_prefix() {
        let id = parse("-I sensor-").unwrap().client_id();
        assert_eq!(id, Some(format!("sensor-{}", std::process::id())));
        assert!(parse("-I a -i b").is_err());
    }

    #[test]
    fn several_properties_stand_behind_one_another() {
        let options = parse(
            "-D publish user-property a b -D publish content-type text -D connect receive-maximum 7",
        );
        let properties = options.unwrap().properties().unwrap();
        assert_eq!(properties.of(super::super::PropertyOf::Publish).count(), 2);
        assert_eq!(properties.of(super::super::PropertyOf::Connect).count(), 1);
    }
}
