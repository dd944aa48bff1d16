//! The flags of `bench conn`, `sub` and `pub`. Letters and spellings of `emqtt_bench` are accepted besides our own.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use loadtest::endless::{Activity, Clients, Pattern, Payload, Publishing, Template, Variable};
use loadtest::workload::Login;
use mqtt_proto::{ProtocolVersion, QoS, SubscriptionFilter, validate_topic_name};
use transport::ClientTransport;

use super::super::quantity::{Count, Rate, Size};
use super::super::run::{parse_duration, parse_version};
use super::super::target;
use crate::client::parse_qos;
use crate::failure::Failure;
use crate::transport_options::TransportOptions;

/// How a message of `--message` begins that is in a file.
const TEMPLATE: &str = "template://";

/// Bytes of the longest payload that MQTT has room for, and a little less.
const LONGEST_PAYLOAD: usize = 268_000_000;

/// How fast clients connect.
#[derive(Args)]
struct ConnectPace {
    /// Connections to open per second; 0: as --interval says.
    #[arg(
        short = 'R',
        long,
        visible_alias = "connrate",
        value_name = "RATE",
        default_value = "0"
    )]
    connect_rate: RateOrNone,
    /// Time between the openings of two connections, in ms.
    #[arg(short = 'i', long, value_name = "MS", default_value = "10")]
    interval: Milliseconds,
}

/// When a run ends, and what becomes of its figures.
#[derive(Args)]
pub(super) struct Course {
    /// Stop after this time, as after Ctrl-C.
    #[arg(long, value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Also write the summary to this file, as one object of JSON; `-`: on standard output, and the table on standard
    /// error.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// End with exit code 4 if one of these criteria is missed, such as 'not_connected=0,connect.p99<20ms'.
    ///
    /// Each is a figure, one of < <= = >= >, and a value. Figures: mean, p50, p95, p99, p999, max (also by latency:
    /// connect.p99, with sub deliver.p99, with pub send.p99 and ack.p99), disconnects, connect_failures, not_connected, away;
    /// with sub received; with pub sent, not_sent, unacknowledged, refused. What was not measured is missed.
    #[arg(long, value_name = "CRITERIA")]
    pub(super) require: Option<String>,
}

/// Who connects, how fast, and where to.
#[derive(Args)]
pub(super) struct Common {
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// The broker's listeners; clients take them in turn. Instead of --host and --port.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', conflicts_with_all = ["host", "port"], value_parser = target::parse)]
    target: Vec<String>,
    /// Host names or addresses of the broker; clients take them in turn.
    #[arg(
        short = 'h',
        long,
        value_name = "HOST,…",
        value_delimiter = ',',
        default_value = "localhost"
    )]
    host: Vec<String>,
    /// Port of the broker.
    #[arg(short = 'p', long, default_value_t = 1883, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Protocol version of all connections: 3.1 (or 3), 3.1.1 (or 4) or 5.0.
    #[arg(short = 'V', long, visible_alias = "version", default_value = "5.0", value_parser = parse_protocol)]
    protocol: ProtocolVersion,
    /// Number of clients.
    #[arg(short, long, default_value = "200")]
    count: Count,
    /// Number the clients from the number after this one.
    #[arg(
        short = 'n',
        long,
        visible_alias = "startnumber",
        value_name = "NUMBER",
        default_value = "0"
    )]
    start_number: Count,
    /// Prefix of the client identifiers; the number of the client follows. Default: a new prefix for each run.
    #[arg(long)]
    prefix: Option<String>,
    #[command(flatten)]
    pace: ConnectPace,
    /// User name; %i is the number of the client, %c its client identifier.
    #[arg(short, long)]
    username: Option<String>,
    /// Password of all clients.
    #[arg(
        short = 'P',
        long,
        env = "HERALDMQ_BENCH_PASSWORD",
        hide_env_values = true
    )]
    password: Option<String>,
    /// Keep alive in seconds; 0 for none.
    #[arg(short, long, visible_alias = "keepalive", default_value_t = 300)]
    keep_alive: u16,
    /// Whether clients start with clean sessions. If not, the broker keeps the sessions after the run: by MQTT 5.0 only
    /// for the seconds of --session-expiry, as with emqtt_bench.
    #[arg(short = 'C', long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "true", action = ArgAction::Set)]
    clean: bool,
    /// Seconds for which the broker keeps a session after its connection ends (MQTT 5.0); 0: the session ends with it.
    #[arg(short = 'x', long, value_name = "SECONDS", default_value_t = 0)]
    session_expiry: u32,
    /// Use TLS, as --tls does.
    #[arg(short = 'S', long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    ssl: bool,
    #[command(flatten)]
    transport: TransportOptions,
    /// Addresses of this machine to connect from, in turn.
    #[arg(
        long = "ifaddr",
        visible_alias = "source",
        value_name = "ADDRESS,…",
        value_delimiter = ','
    )]
    pub(super) sources: Vec<IpAddr>,
    #[command(flatten)]
    pub(super) course: Course,
    /// Processes that hold the connections, each on one core. Default: as many as the connections need.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) workers: Option<u16>,
    /// Accepted and ignored: there is nothing to save.
    #[arg(short = 'l', long, hide = true, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    lowmem: bool,
}

/// Open connections and keep them open.
///
/// Runs until Ctrl-C, or for --duration. Connections that break are opened again.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(in crate::bench) struct Conn {
    #[command(flatten)]
    pub(super) common: Common,
}

/// Subscribe and count the messages that arrive.
///
/// Runs until Ctrl-C, or for --duration. Connections that break are opened again. Latency is shown for messages of
/// `heraldmq bench pub --size`: from the moment at which a message was due to its arrival, by the clocks of both
/// machines.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(in crate::bench) struct Sub {
    #[command(flatten)]
    pub(super) common: Common,
    /// Topic filter, may be given several times; %i is the number of the client, %c its client identifier, %u its user
    /// name.
    #[arg(short, long, required = true, value_parser = parse_filter)]
    topic: Vec<String>,
    /// QoS of the subscriptions: 0, 1 or 2.
    #[arg(short, long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
}

/// Publish messages at a fixed rate of each client.
///
/// Runs until Ctrl-C, for --duration, or until each client has sent --limit messages, and then waits for
/// acknowledgements. Connections that break are opened again. If a message cannot be sent when it is due, also because
/// its client has no connection, it is sent later, and the wait is part of its latency. What is not sent at the end is
/// counted as not sent.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(in crate::bench) struct Pub {
    #[command(flatten)]
    pub(super) common: Common,
    /// Topic; %i is the number of the client, %c its client identifier, %u its user name.
    #[arg(short, long, value_parser = parse_topic)]
    topic: String,
    /// QoS of the messages: 0, 1 or 2.
    #[arg(short, long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// Bytes of each payload, and number of letters of %RANDOM% in a template.
    #[arg(short, long, default_value = "256", value_parser = parse_size)]
    size: Size,
    /// Payload; template://FILE is the same as --template FILE.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["file", "template"])]
    message: Option<String>,
    /// File with the payload.
    #[arg(short, long, conflicts_with = "template")]
    file: Option<PathBuf>,
    /// File with a payload in which %TIMESTAMP% (seconds), %TIMESTAMPMS%, …US%, …NS%, %UNIQUE%, %RANDOM%, %i, %c and %u
    /// are filled in.
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Ask the broker to retain the messages.
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    retain: bool,
    /// Time between two messages of a client, in ms.
    #[arg(
        short = 'I',
        long,
        visible_alias = "interval_of_msg",
        value_name = "MS",
        default_value = "1000"
    )]
    message_interval: Milliseconds,
    /// Messages of each client per second, instead of --message-interval.
    #[arg(long, value_name = "RATE", conflicts_with = "message_interval")]
    message_rate: Option<Rate>,
    /// Messages that each client sends before the run ends; 0: no end.
    #[arg(short = 'L', long, value_name = "COUNT", default_value_t = 0)]
    limit: u32,
    /// Messages of QoS 1 and 2 that a client may have unacknowledged; 0: as many as the broker allows.
    #[arg(short = 'F', long, value_name = "COUNT", default_value_t = 0)]
    inflight: u16,
    /// Publish nothing before all clients have tried to connect.
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    wait_before_publishing: bool,
}

/// A rate, or 0 for none.
#[derive(Clone, Copy, PartialEq, Debug)]
struct RateOrNone(Option<f64>);

impl std::str::FromStr for RateOrNone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "0" => Ok(Self(None)),
            rate => Ok(Self(Some(rate.parse::<Rate>()?.0))),
        }
    }
}

/// A time above 0.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Milliseconds(Duration);

impl std::str::FromStr for Milliseconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let seconds = text.parse().map(|ms: f64| ms / 1e3);
        let duration = seconds
            .ok()
            .and_then(|s| Duration::try_from_secs_f64(s).ok());
        match duration.filter(|duration| !duration.is_zero()) {
            Some(duration) => Ok(Self(duration)),
            None => Err("expected milliseconds above 0, such as 10 or 0.5"),
        }
    }
}

impl Common {
    /// Each as HOST:PORT.
    pub(super) fn targets(&self) -> Vec<String> {
        match self.target.is_empty() {
            true => self.host.iter().map(|host| self.with_port(host)).collect(),
            false => self.target.clone(),
        }
    }

    fn with_port(&self, host: &str) -> String {
        let port = self.port;
        match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }

    pub(super) fn transport(&self) -> ClientTransport {
        let options = self.transport.clone();
        match self.ssl {
            true => options.with_tls().chosen(),
            false => options.chosen(),
        }
    }

    /// The clients of a run that is called `run` among all others.
    pub(super) fn clients(&self, run: &str, command: &str) -> Result<Clients, Failure> {
        let username = self.username.as_deref().map(Pattern::parse);
        if username
            .as_ref()
            .is_some_and(|name| name.has(Variable::Username))
        {
            let message = "--username: %u stands for the user name itself";
            return Err(Failure::Usage(message.to_owned()));
        }
        if self.count.0 == 0 {
            return Err(Failure::Usage("--count: must be above 0".to_owned()));
        }
        let mut login = Login::new(self.protocol);
        login.keep_alive_s = self.keep_alive;
        login.password.clone_from(&self.password);
        let prefix = self.prefix.clone();
        let per_second = self.pace.connect_rate.0;
        Ok(Clients {
            count: self.count.0,
            first: self.start_number.0 + 1,
            prefix: prefix.unwrap_or_else(|| format!("{run}-{command}-")),
            username,
            login,
            clean: self.clean,
            session_expiry_s: Some(self.session_expiry).filter(|&seconds| seconds > 0),
            per_second: per_second.unwrap_or_else(|| 1.0 / self.pace.interval.0.as_secs_f64()),
        })
    }

    /// A text for each client; one that needs user names needs to have some.
    fn pattern(&self, text: &str) -> Result<Pattern, Failure> {
        let pattern = Pattern::parse(text);
        if pattern.has(Variable::Username) && self.username.is_none() {
            return Err(Failure::Usage(format!(
                "{text}: %u stands for the user name, and there is no --username"
            )));
        }
        Ok(pattern)
    }
}

impl Sub {
    pub(super) fn activity(&self) -> Result<Activity, Failure> {
        let filters = self.topic.iter().map(|topic| self.common.pattern(topic));
        Ok(Activity::Subscribe {
            filters: filters.collect::<Result<_, _>>()?,
            qos: self.qos,
        })
    }
}

impl Pub {
    pub(super) fn activity(&self) -> Result<Activity, Failure> {
        let every = match self.message_rate {
            Some(Rate(rate)) => Duration::from_secs_f64(1.0 / rate),
            None => self.message_interval.0,
        };
        Ok(Activity::Publish(Publishing {
            topic: self.common.pattern(&self.topic)?,
            qos: self.qos,
            retain: self.retain,
            every,
            limit: Some(self.limit).filter(|&limit| limit > 0),
            in_flight: Some(self.inflight).filter(|&window| window > 0),
            waits_for_all: self.wait_before_publishing,
            payload: self.payload()?,
        }))
    }

    fn payload(&self) -> Result<Payload, Failure> {
        let message = self.message.as_deref();
        let template = message.and_then(|message| message.strip_prefix(TEMPLATE));
        let template = template
            .map(PathBuf::from)
            .or_else(|| self.template.clone());
        let payload = match (template, message, &self.file) {
            (Some(path), ..) => {
                let text = String::from_utf8(read(&path)?).map_err(|_| {
                    Failure::Usage(format!("{}: a template is UTF-8", path.display()))
                })?;
                Payload::Template(Template::parse(&text, self.size.0))
            }
            (None, Some(message), _) => Payload::Fixed(message.into()),
            (None, None, Some(path)) => Payload::Fixed(read(path)?),
            (None, None, None) => Payload::Sized(self.size.0),
        };
        match &payload {
            Payload::Fixed(bytes) if bytes.len() > LONGEST_PAYLOAD => Err(Failure::Usage(format!(
                "a payload of {} bytes is too long for MQTT",
                bytes.len()
            ))),
            _ => Ok(payload),
        }
    }
}

fn read(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Numbers of CONNECT, as `emqtt_bench` has them, besides our names.
fn parse_protocol(text: &str) -> Result<ProtocolVersion, &'static str> {
    match text {
        "3" => Ok(ProtocolVersion::V3_1),
        "4" => Ok(ProtocolVersion::V3_1_1),
        name => parse_version(name),
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.0 {
        0..=LONGEST_PAYLOAD => Ok(size),
        _ => Err(format!("MQTT has room for {LONGEST_PAYLOAD} bytes")),
    }
}

fn parse_topic(text: &str) -> Result<String, String> {
    validate_topic_name(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

fn parse_filter(text: &str) -> Result<String, String> {
    SubscriptionFilter::parse(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(clap::Subcommand)]
    enum Command {
        Conn(Conn),
        Sub(Sub),
        Pub(Box<Pub>),
    }

    fn parsed(line: &str) -> Result<Command, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Cli::try_parse_from(words)
            .map(|cli| cli.command)
            .map_err(|error| error.to_string())
    }

    fn publishing(line: &str) -> Result<(Clients, Publishing), String> {
        let Command::Pub(publisher) = parsed(line)? else {
            panic!("{line}");
        };
        let told = |failure| match failure {
            Failure::Usage(message) | Failure::Runtime(message) => message,
            other => panic!("{other:?}"),
        };
        let clients = publisher.common.clients("run", "pub").map_err(told)?;
        match publisher.activity().map_err(told)? {
            Activity::Publish(publishing) => Ok((clients, publishing)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_lines_of_emqtt_bench_are_understood() {
        let line = "pub -h 10.0.0.1,10.0.0.2 -p 1884 -V 4 -c 5 -n 100 -i 2 -u user%i -P pw -k 60 -C false -x 30 -t a/%i \
                    -q 1 -s 64 -r true -I 100 -L 20 -F 3 -w true --prefix dev- -l";
        let (clients, publishing) = publishing(line).unwrap();
        assert_eq!((clients.count, clients.first), (5, 101));
        assert_eq!(clients.prefix, "dev-");
        assert_eq!(clients.per_second, 500.0);
        assert_eq!(clients.login.version, ProtocolVersion::V3_1_1);
        assert_eq!(clients.login.keep_alive_s, 60);
        assert_eq!((clients.clean, clients.session_expiry_s), (false, Some(30)));
        assert_eq!(publishing.topic, Pattern::parse("a/%i"));
        assert_eq!(publishing.every, Duration::from_millis(100));
        assert_eq!(
            (publishing.limit, publishing.in_flight),
            (Some(20), Some(3))
        );
        assert!(publishing.retain && publishing.waits_for_all);
        assert_eq!(publishing.payload, Payload::Sized(64));
        let Ok(Command::Conn(conn)) = parsed("conn -c 20 -R 100 -h ::1 -S --cacertfile ca.pem")
        else {
            panic!("not understood");
        };
        assert_eq!(conn.common.targets(), ["[::1]:1883"]);
        assert!(conn.common.transport().tls.is_some());
        let lines = [
            "sub -c 50000 -i 10 -t bench/%i -q 2 -t other/# --ifaddr 127.0.0.2,127.0.0.3",
            "sub --count 5 --startnumber 7 --topic a --keepalive 30 --clean false --ws",
            "pub -t a -r -w -I 1 -m hello --interval_of_msg 10",
        ];
        for line in &lines[..2] {
            assert_eq!(parsed(line).map(drop), Ok(()), "{line}");
        }
    }

    #[test]
    fn our_own_spellings_mean_the_same() {
        let line =
            "pub --target a:1,b:2 --topic t --message-rate 50 --connect-rate 1k --protocol 3.1";
        let (clients, publishing) = publishing(line).unwrap();
        assert_eq!((clients.first, clients.per_second), (1, 1_000.0));
        assert_eq!(clients.prefix, "run-pub-");
        assert_eq!(publishing.every, Duration::from_millis(20));
        assert_eq!((publishing.limit, publishing.in_flight), (None, None));
        assert!(clients.clean && !publishing.retain && !publishing.waits_for_all);
    }

    #[test]
    fn wrong_flags_are_told() {
        for (line, mention) in [
            ("pub -c 5", "--topic"),
            ("pub -t a/#", "a/#"),
            ("sub -t a/#/b", "a/#/b"),
            ("sub -c 1", "--topic"),
            ("pub -t a -q 3", "0, 1 or 2"),
            ("pub -t a -I 0", "milliseconds above 0"),
            ("pub -t a -I 10 --message-rate 5", "--message-rate"),
            ("pub -t a -c 0", "--count"),
            ("pub -t a -i x", "milliseconds above 0"),
            ("pub -t a -s 300000KB", "268000000"),
            ("pub -t a -m x --file y", "--file"),
            ("pub -t %u", "--username"),
            ("pub -t a -u %u", "--username"),
            ("pub -t a -m template:///no/such", "/no/such"),
            ("pub -t a --file /no/such", "/no/such"),
            ("conn --quic", "--quic"),
            ("conn --target a:1 -h b", "--host"),
            ("conn -V 6", "3.1"),
            ("conn -p 0", "0"),
            ("conn --ifaddr eth0", "eth0"),
        ] {
            let said = match line.starts_with("pub") {
                true => publishing(line).map(drop),
                false => parsed(line).map(drop),
            };
            let said = said.expect_err(line);
            assert!(said.contains(mention), "{line}: {said}");
        }
    }

    #[test]
    fn payloads_come_from_a_text_a_file_or_a_template() {
        let path = std::env::temp_dir().join(format!("payload-{}", std::process::id()));
        std::fs::write(&path, "at %TIMESTAMPMS%").unwrap();
        let payload = |flags: String| publishing(&format!("pub -t a {flags}")).unwrap().1.payload;
        let shown = path.display();
        let template = Payload::Template(Template::parse("at %TIMESTAMPMS%", 256));
        assert_eq!(payload(format!("-m template://{shown}")), template);
        assert_eq!(payload(format!("--template {shown}")), template);
        let fixed = Payload::Fixed(b"at %TIMESTAMPMS%".to_vec());
        assert_eq!(payload(format!("--file {shown}")), fixed);
        assert_eq!(payload("-m -x".to_owned()), Payload::Fixed(b"-x".to_vec()));
        std::fs::remove_file(&path).unwrap();
    }
}
