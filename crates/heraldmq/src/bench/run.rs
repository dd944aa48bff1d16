//! `heraldmq bench run`: from a command line to a record.

use std::time::{Duration, SystemTime};

use loadtest::workload::Login;
use loadtest::{
    Crew, Criteria, Listener, Plan, Recruit, Settings, Title, Workload, most_connections, play,
};
use mqtt_proto::ProtocolVersion;
use report::{Record, Setting};
use text_table::units::{count, counted};
use transport::ClientTransport;

use super::about;
use super::agent::WORKER;
use super::cold_start;
use super::find_max::Found;
use super::observers::{Announcement, Observers, Observing};
use super::outputs::{Outputs, print};
use super::premises;
use super::require::Require;
use super::scenario::{Chosen, Scenario};
use super::systems::{self, Watched};
use super::target;
use crate::failure::{Failure, complain};
use crate::transport_options::TransportOptions;

/// How long to measure, if nothing says it.
const DURATION: Duration = Duration::from_secs(10);

/// A scenario, where to, and what to do with the figures.
#[derive(clap::Args)]
pub(super) struct Run {
    #[command(flatten)]
    chosen: Chosen,
    /// The broker's listeners; publishers and subscribers are spread over all of them.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', required = true, value_parser = target::parse)]
    target: Vec<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    outputs: Outputs,
    #[command(flatten)]
    observing: Observing,
    #[command(flatten)]
    require: Require,
    /// Find the highest rate at which these criteria hold, such as 'p99<20ms,loss=0'.
    ///
    /// Figures: mean, p50, p95, p99, p999, max (also of connect, subscribe, ack and deliver:
    /// ack.p99), loss, duplicated, reordered, stray, disconnects, cpu, memory, rate.
    #[arg(long, value_name = "CRITERIA")]
    find_max: Option<Criteria>,
}

/// How to run, whatever the scenario.
#[derive(clap::Args, Clone)]
pub(super) struct How {
    /// How long to measure. Default: the duration in the scenario's file, else 10 s.
    #[arg(long, value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// How long the load runs before the measurement.
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    pub(super) warm_up: Duration,
    /// Messages that each publisher sends before the load, and that the broker must acknowledge. Default: 6 for a test
    /// of TBMQ, else 0.
    #[arg(long, value_name = "N")]
    pub(super) warm_up_messages: Option<u16>,
    #[command(flatten)]
    pub(super) watched: Watched,
    /// Processes that generate the load, each on one core; with --agent, on each agent. Default: as many as the
    /// connections need.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) workers: Option<u16>,
    /// Let agents (`heraldmq bench agent`) on these machines generate the load.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = target::parse)]
    pub(super) agent: Vec<String>,
    /// The token of the agents.
    #[arg(
        long,
        env = "HERALDMQ_BENCH_TOKEN",
        hide_env_values = true,
        default_value = ""
    )]
    pub(super) token: String,
    #[command(flatten)]
    pub(super) transport: TransportOptions,
    /// Protocol version of all connections: 3.1, 3.1.1 or 5.0.
    #[arg(long, default_value = "5.0", value_parser = parse_version)]
    pub(super) protocol: ProtocolVersion,
    /// Keep alive of all connections in seconds; 0 for none.
    #[arg(long, default_value_t = 0)]
    pub(super) keep_alive: u16,
    /// User name of all connections.
    #[arg(long)]
    pub(super) username: Option<String>,
    /// Password of all connections.
    #[arg(long, env = "HERALDMQ_BENCH_PASSWORD", hide_env_values = true)]
    pub(super) password: Option<String>,
    /// Name of the run in reports, for example the broker's name.
    #[arg(long, value_name = "NAME")]
    pub(super) label: Option<String>,
    /// The broker and its version, for the report. Not needed for HeraldMQ with --metrics.
    #[arg(long, value_name = "TEXT")]
    pub(super) broker: Option<String>,
}

/// Everything that is known of a run before it begins.
#[derive(Clone)]
pub(super) struct Request<'a> {
    pub(super) scenario: String,
    pub(super) reading: String,
    pub(super) workload: Workload,
    pub(super) plan: Option<Plan>,
    /// The size that would fit by its own, to tell one who asked for too much.
    pub(super) scale: f64,
    /// How long to measure.
    pub(super) duration: Duration,
    pub(super) targets: &'a [String],
    pub(super) how: &'a How,
    /// Whether the caller has just started the broker, in a folder of its own.
    pub(super) is_started_afresh: bool,
}

impl Run {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let scenario = self.chosen.scenario()?;
        let request = Request::new(&self.chosen, &scenario, &self.target, &self.how);
        let observers = self.observing.open()?;
        let mut outputs = self.outputs.open()?;
        let Some(criteria) = &self.find_max else {
            let record = request.record(&observers)?;
            outputs.write_one(&record)?;
            print(&text(&record));
            return self.require.judge([&record]);
        };
        let found = Found::search(&request, criteria, &observers)?;
        outputs.write(&request.scenario, &found.records)?;
        let best = found.records.last();
        let shown = best.map(text).unwrap_or_default();
        print(&format!("{}\n\n{shown}", found.sentence));
        self.require.judge(best)
    }
}

/// What a user sees of a run.
fn text(record: &Record) -> String {
    let (scenario, reading) = (&record.scenario, &record.reading);
    format!("{scenario}: {reading}\n\n{}", record.summary())
}

impl How {
    pub(super) fn login(&self) -> Login {
        Login {
            keep_alive_s: self.keep_alive,
            username: self.username.clone(),
            password: self.password.clone(),
            ..Login::new(self.protocol)
        }
    }
}

impl<'a> Request<'a> {
    /// `scenario` is what was chosen, read.
    pub(super) fn new(
        chosen: &Chosen,
        scenario: &Scenario,
        targets: &'a [String],
        how: &'a How,
    ) -> Self {
        let mut reading = scenario.reading();
        if let Some(scaling) = chosen.scaling() {
            reading += &format!("; scaled: {scaling}");
        }
        let mut workload = scenario.workload(how.login());
        if let Some(count) = how.warm_up_messages {
            for part in &mut workload.parts {
                part.warm_up_messages = usize::from(count);
            }
        }
        Self {
            scenario: scenario.name(),
            reading,
            workload,
            plan: scenario.plan().cloned(),
            scale: chosen.scale.value,
            duration: how.duration.or(scenario.duration()).unwrap_or(DURATION),
            targets,
            how,
            is_started_afresh: false,
        }
    }

    /// Plays it once.
    pub(super) fn record(&self, observers: &Observers) -> Result<Record, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::Runtime(format!("{}: {error}", self.targets.join(",")))
        };
        let listeners = target::listeners(self.targets)?;
        let recruits = self.recruits()?;
        let settings = self.settings(listeners, recruits.len());
        let cold_start_warning = self.check_cold_start()?;
        let premises = self.warn_of_premises();
        let is_loopback = addresses_are_loopback(&settings);
        let watched = &self.how.watched;
        let mut systems = watched.open(is_loopback)?;
        let said = self.how.broker.as_deref();
        let about = about::broker(said, &watched.pids()?, &watched.metrics);
        let crew = Crew::recruit(&recruits).map_err(|error| failed(&error))?;
        let started_at = SystemTime::now();
        let mut onlookers = observers.begin(&Announcement {
            scenario: self.scenario.clone(),
            label: self.label(),
            measured: settings.duration,
            systems: systems.iter().map(|system| system.name()).collect(),
        });
        let played = play(crew, &settings, &mut systems, &mut onlookers).map_err(|e| failed(&e))?;
        let mut title = self.title(started_at, recruits.len());
        title.settings.extend(about);
        let mut record = played.record(&self.workload, title);
        record.warnings.extend(cold_start_warning);
        record.warnings.extend(premises);
        Ok(record)
    }

    /// What the broker is not, as the scenario takes it for granted.
    fn warn_of_premises(&self) -> Vec<String> {
        let metrics = &self.how.watched.metrics;
        let of_plan = |plan| premises::of_plan(plan, self.targets, metrics);
        let warnings = self.plan.as_ref().map(of_plan).unwrap_or_default();
        for warning in &warnings {
            complain(&format!("warning: {warning}"));
        }
        warnings
    }

    /// Whether the scenario is a cold start.
    pub(super) fn is_cold(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.is_cold)
    }

    /// Refuses a cold start of a broker that holds something; a warning where nobody can know.
    fn check_cold_start(&self) -> Result<Option<String>, Failure> {
        let urls = &self.how.watched.metrics;
        if !self.is_cold() || self.is_started_afresh {
            return Ok(None);
        }
        if urls.is_empty() {
            complain(&format!("warning: {}", cold_start::UNKNOWN));
            return Ok(Some(cold_start::UNKNOWN.to_owned()));
        }
        cold_start::check(urls).map(|()| None)
    }

    /// Who makes the load.
    fn recruits(&self) -> Result<Vec<Recruit>, Failure> {
        let how = self.how;
        let connections = self.workload.connections();
        let fitting = most_connections();
        let machines = how.agent.len().max(1);
        let needed = connections.div_ceil(fitting).div_ceil(machines).max(1);
        let workers = how.workers.map_or(needed, usize::from);
        if workers > usize::from(u16::MAX) || needed > workers {
            let divisor = needed.div_ceil(workers.min(8)) as f64 / self.scale;
            return Err(Failure::Runtime(format!(
                "{} wanted, but {} with at most {} each (ulimit -n) cannot hold them; use more --workers, or \
                 --scale 1/{}",
                counted(connections as u64, "connection is", "connections are"),
                counted((workers * machines) as u64, "worker", "workers"),
                count(fitting as u64),
                divisor.ceil()
            )));
        }
        if how.agent.is_empty() {
            let program = std::env::current_exe().map_err(|e| Failure::Runtime(e.to_string()))?;
            let arguments = WORKER.map(str::to_owned).to_vec();
            return Ok(vec![Recruit::Process { program, arguments }; workers]);
        }
        let agents = how.agent.iter().map(|address| Recruit::Agent {
            address: address.clone(),
            token: how.token.clone(),
        });
        Ok(agents
            .flat_map(|agent| std::iter::repeat_n(agent, workers))
            .collect())
    }

    fn settings(&self, listeners: Vec<Listener>, workers: usize) -> Settings {
        let addresses: Vec<_> = listeners.iter().map(|l| l.address).collect();
        let connections = self.workload.connections();
        Settings {
            workload: self.workload.clone(),
            sources: target::sources(&addresses, connections, workers),
            listeners,
            transport: self.how.transport.chosen(),
            warm_up: self.how.warm_up,
            duration: self.duration,
            prefix: prefix(),
        }
    }

    fn label(&self) -> String {
        let label = self.how.label.clone();
        label.unwrap_or_else(|| self.targets.join(", "))
    }

    fn title(&self, started_at: SystemTime, workers: usize) -> Title {
        let how = self.how;
        let mut settings = vec![
            setting("target", self.targets.join(", ")),
            setting("protocol", version_name(how.protocol)),
            setting("warm-up", humantime::format_duration(how.warm_up)),
            setting("duration", humantime::format_duration(self.duration)),
            setting("workers", workers),
        ];
        let parts = &self.workload.parts;
        if let Some(count @ 1..) = parts.iter().map(|part| part.warm_up_messages).max() {
            settings.push(setting(
                "warm-up messages",
                format!("{count} per publisher"),
            ));
        }
        if !how.agent.is_empty() {
            settings.push(setting("agents", how.agent.join(", ")));
        }
        if let Some(name) = transport_name(&how.transport.chosen()) {
            settings.push(setting("transport", name));
        }
        if how.keep_alive > 0 {
            settings.push(setting("keep alive", format!("{} s", how.keep_alive)));
        }
        if let Some(plan) = &self.plan {
            settings.extend(plan_settings(plan));
        }
        Title {
            scenario: self.scenario.clone(),
            label: self.label(),
            reading: self.reading.clone(),
            started_at: humantime::format_rfc3339_seconds(started_at).to_string(),
            settings,
            machine: systems::machine(),
            plan: self.plan.clone(),
        }
    }
}

/// Runs at the same time or one after another must not see each other's messages. Short, because client
/// identifiers of MQTT 3.1 begin with it.
pub(super) fn prefix() -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let number = (now.as_millis() as u32) << 12 ^ std::process::id();
    format!("bench-{number:08x}")
}

fn addresses_are_loopback(settings: &Settings) -> bool {
    settings
        .listeners
        .iter()
        .all(|listener| listener.address.ip().is_loopback())
}

pub(super) fn setting(name: &str, value: impl ToString) -> Setting {
    Setting {
        name: name.to_owned(),
        value: value.to_string(),
    }
}

fn plan_settings(plan: &Plan) -> Vec<Setting> {
    let mut settings = vec![setting("connections", plan.connections())];
    if plan.rate > 0.0 {
        settings.extend([
            setting("rate per publisher", format!("{} msg/s", plan.rate)),
            setting("payload", format!("{} bytes", plan.payload_len)),
            setting("QoS", plan.qos.as_u8()),
        ]);
    }
    settings
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() {
        return Err("must be above 0".to_owned());
    }
    Ok(duration)
}

pub(super) fn parse_version(text: &str) -> Result<ProtocolVersion, &'static str> {
    match text {
        "3.1" => Ok(ProtocolVersion::V3_1),
        "3.1.1" => Ok(ProtocolVersion::V3_1_1),
        "5" | "5.0" => Ok(ProtocolVersion::V5),
        _ => Err("expected 3.1, 3.1.1 or 5.0"),
    }
}

/// `None`: plain MQTT over TCP.
fn transport_name(transport: &ClientTransport) -> Option<&'static str> {
    match (&transport.tls, &transport.websocket) {
        (None, None) => None,
        (Some(_), None) => Some("TLS"),
        (None, Some(_)) => Some("WebSocket"),
        (Some(_), Some(_)) => Some("WebSocket over TLS"),
    }
}

fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::V3_1 => "MQTT 3.1",
        ProtocolVersion::V3_1_1 => "MQTT 3.1.1",
        ProtocolVersion::V5 => "MQTT 5.0",
    }
}
