//! `heraldmq bench slopes`: what one more message, connection and session takes on this machine.
//!
//! A slope of messages is the CPU time of a run at a moderate rate, divided by its messages; what is added to a message, such as a
//! replica, is what two such runs differ in. Those of connections and sessions are what a run with many and one with few differ in.
//! Brokers are started for it, on loopback, with the settings as delivered but for the rate limits, and ended.
//!
//! Deliberately absent: TLS, which needs a certificate, and disk; these are taken over from the built-in slopes, and said to be.

use std::fmt::Write;
use std::time::{Duration, Instant};

use loadtest::workload::{Activity, Login, Messages, Pace, Part};
use loadtest::{Plan, Topology, Workload};
use mqtt_proto::{ProtocolVersion, QoS};
use report::Record;
use sizing::{Batched, OfQuality, Slopes};

use super::launch::{Launch, Started};
use super::node::Node;
use super::observers::{Observers, Observing};
use super::run::{How, Request};
use super::systems::{self, Pids, Watched};
use super::yaml;
use crate::failure::{Failure, complain};
use crate::transport_options::TransportOptions;

/// How long a cluster may take until each shard has three voters.
const FORMED: Duration = Duration::from_secs(30);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Pairs, or publishers, of each run with messages: many clients that each say little.
const CLIENTS: usize = 500;

/// Pairs of each run that brings as many messages as it can, and messages of each that are under way.
const FEW: usize = 60;
const WINDOW: u16 = 64;

/// Connections of the run with few, and of the one with many.
const CONNECTIONS: [usize; 2] = [2_000, 8_000];

const PAYLOAD: usize = 256;

/// A run that brought less of what was asked for says nothing about a message.
const CARRIED: f64 = 0.9;

/// Measure the slopes that `heraldmq size` uses, on this machine.
///
/// The command takes some minutes, starts brokers on loopback ports, and prints the slopes as YAML. Nothing else should
/// run on the machine meanwhile.
#[derive(clap::Args)]
pub(super) struct MeasureSlopes {
    /// Messages per second of each run: so few that most messages arrive alone, as those of many clients do.
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    rate: u32,
    /// How long each run is measured.
    #[arg(long, default_value = "8s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// The first of nine ports on 127.0.0.1.
    #[arg(long, default_value_t = 22_900, value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    port: u16,
    #[command(flatten)]
    observing: Observing,
}

/// Which brokers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nodes {
    One,
    /// Each shard with three voters.
    Three,
}

/// What a run has shown.
struct Figures {
    cpu_s: f64,
    connecting_cpu_s: f64,
    messages: f64,
    resident_bytes: f64,
    /// Before the first connection.
    rest_bytes: f64,
}

impl MeasureSlopes {
    pub(super) fn run(&self) -> Result<String, Failure> {
        let built_in: Slopes = yaml::parse(sizing::SLOPES).map_err(Failure::Runtime)?;
        let observers = self.observing.open()?;
        loadtest::prepare_descriptors();
        let run = |nodes, what: &str, topology: &Topology, qos, is_clean| {
            self.per_message(&observers, nodes, what, topology, (qos, is_clean))
        };
        let flood = |nodes, what: &str, is_clean| self.at_most(&observers, nodes, what, is_clean);
        let fan_in = Topology::FanIn {
            publishers: CLIENTS,
        };
        let pairs = Topology::Pairs { pairs: CLIENTS };
        let [publish0, publish1, publish2] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]
            .map(|qos| run(Nodes::One, "publishing", &fan_in, qos, true));
        let publish_us = OfQuality {
            qos0: publish0?,
            qos1: publish1?,
            qos2: publish2?,
        };
        let [pair0, pair1, pair2] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]
            .map(|qos| run(Nodes::One, "pairs", &pairs, qos, true));
        let less = |whole: f64, part: f64| (whole - part).max(0.0);
        let (pair0, pair1) = (pair0?, pair1?);
        let deliver_us = OfQuality {
            qos0: less(pair0, publish_us.qos0),
            qos1: less(pair1, publish_us.qos1),
            qos2: less(pair2?, publish_us.qos2),
        };
        let durable = run(Nodes::One, "durable pairs", &pairs, QoS::AtLeastOnce, false)?;
        let clean_three = run(
            Nodes::Three,
            "pairs on three nodes",
            &pairs,
            QoS::AtLeastOnce,
            true,
        )?;
        let durable_three = run(
            Nodes::Three,
            "durable pairs on three nodes",
            &pairs,
            QoS::AtLeastOnce,
            false,
        )?;
        // Two thirds of the pairs are on two nodes.
        let crossing_us = less(clean_three, pair1) * 1.5;
        let replica_us = less(durable_three, durable + crossing_us / 1.5) / 2.0;
        let clean_least = flood(Nodes::One, "pairs, all they can", true)?;
        let durable_least = flood(Nodes::One, "durable pairs, all they can", false)?;
        let three_least = flood(Nodes::Three, "pairs on three nodes, all they can", true)?;
        let kept_least = flood(
            Nodes::Three,
            "durable pairs on three nodes, all they can",
            false,
        )?;
        let crossing_least = less(three_least, clean_least) * 1.5;
        let replica_least = less(kept_least, durable_least + crossing_least / 1.5) / 2.0;
        let batched = |alone: f64, least: f64| Batched { alone, least };
        let [clean_few, clean_many] =
            CONNECTIONS.map(|count| self.connections(&observers, count, true));
        let (clean_few, clean_many) = (clean_few?, clean_many?);
        let [kept_few, kept_many] =
            CONNECTIONS.map(|count| self.connections(&observers, count, false));
        let (kept_few, kept_many) = (kept_few?, kept_many?);
        let more = (CONNECTIONS[1] - CONNECTIONS[0]) as f64;
        let bytes =
            |few: &Figures, many: &Figures| less(many.resident_bytes, few.resident_bytes) / more;
        let connection_bytes = bytes(&clean_few, &clean_many);
        let machine = systems::machine();
        let measured = format!(
            "{} x {}, {}, at {}/s; TLS, ping, kernel and disk from: {}",
            machine.cores,
            machine.cpu,
            machine.kernel,
            text_table::units::counted(self.rate.into(), "message", "messages"),
            built_in.measured
        );
        Ok(text(&Slopes {
            measured,
            publish_us,
            deliver_us,
            rate: self.rate.into(),
            durable_us: batched(less(durable, publish_us.qos1), durable_least),
            replica_us: batched(replica_us, replica_least),
            crossing_us: batched(crossing_us, crossing_least),
            connect_us: less(clean_many.connecting_cpu_s, clean_few.connecting_cpu_s) * 1e6 / more,
            connection_bytes,
            session_bytes: less(bytes(&kept_few, &kept_many), connection_bytes),
            node_bytes: clean_few.rest_bytes,
            ..built_in
        }))
    }

    /// CPU µs of all nodes for a message.
    fn per_message(
        &self,
        observers: &Observers,
        nodes: Nodes,
        what: &str,
        topology: &Topology,
        (qos, clean_session): (QoS, bool),
    ) -> Result<f64, Failure> {
        let per_second = f64::from(self.rate);
        let messages = Messages {
            topology: topology.clone(),
            payload_len: PAYLOAD,
            qos,
            pace: Pace::Open { per_second },
            clean_session,
            retain: false,
            read_rate: None,
        };
        let workload = workload(messages);
        complain(&format!("{what}, QoS {}", qos as u8));
        let figures = self.play(observers, nodes, workload)?;
        if figures.messages < per_second * self.duration.as_secs_f64() * CARRIED {
            let message =
                format!("{what}: this machine does not carry the rate; try a lower --rate");
            return Err(Failure::Runtime(message));
        }
        Ok(figures.cpu_s * 1e6 / figures.messages)
    }

    /// CPU µs of all nodes for a message of QoS 1, where as many come as can.
    fn at_most(
        &self,
        observers: &Observers,
        nodes: Nodes,
        what: &str,
        clean_session: bool,
    ) -> Result<f64, Failure> {
        let messages = Messages {
            topology: Topology::Pairs { pairs: FEW },
            payload_len: PAYLOAD,
            qos: QoS::AtLeastOnce,
            pace: Pace::Closed { window: WINDOW },
            clean_session,
            retain: false,
            read_rate: None,
        };
        let workload = workload(messages);
        complain(what);
        let figures = self.play(observers, nodes, workload)?;
        Ok(figures.cpu_s * 1e6 / figures.messages.max(1.0))
    }

    /// With so many connections, a subscription each.
    fn connections(
        &self,
        observers: &Observers,
        count: usize,
        is_clean: bool,
    ) -> Result<Figures, Failure> {
        let name = format!("conn-tcp-{count}-5K_1n_{is_clean}");
        let plan = name.parse::<Plan>();
        let plan = plan.map_err(|error| Failure::Runtime(error.to_string()))?;
        let sessions = if is_clean {
            "clean sessions"
        } else {
            "persistent sessions"
        };
        let connections = text_table::units::counted(count as u64, "connection", "connections");
        complain(&format!("{connections} with {sessions}"));
        self.play(
            observers,
            Nodes::One,
            plan.workload(Login::new(ProtocolVersion::V5)),
        )
    }

    fn play(
        &self,
        observers: &Observers,
        nodes: Nodes,
        workload: Workload,
    ) -> Result<Figures, Failure> {
        let count = match nodes {
            Nodes::One => 1,
            Nodes::Three => 3,
        };
        let mut started = Vec::new();
        for number in 0..count {
            started.push(self.start(observers, number, count)?);
        }
        if nodes == Nodes::Three {
            self.await_voters(observers)?;
        }
        let targets: Vec<String> = (0..count).map(|number| self.address(number)).collect();
        let pids = started.iter().map(Started::pid).collect();
        let how = self.how(pids);
        let request = Request {
            scenario: "slopes".to_owned(),
            reading: String::new(),
            workload,
            plan: None,
            scale: 1.0,
            duration: self.duration,
            targets: &targets,
            how: &how,
            is_started_afresh: true,
        };
        let record = request.record(observers)?;
        if observers.interrupt().is_set() {
            return Err(Failure::Runtime("interrupted".to_owned()));
        }
        Ok(Figures::of(&record))
    }

    fn address(&self, number: u16) -> String {
        format!("127.0.0.1:{}", self.port + 3 * number)
    }

    fn start(&self, observers: &Observers, number: u16, count: u16) -> Result<Started, Failure> {
        let port = self.port + 3 * number;
        let mut sets = vec![
            format!("mqttServerConfig.tcpListener.port={port}"),
            format!("http.port={}", port + 1),
            "limits.connection.bytesPerSecondIn=0".to_owned(),
            "limits.connection.bytesPerSecondOut=0".to_owned(),
            "allowAnonymous=true".to_owned(),
        ];
        if count > 1 {
            let seeds =
                (0..count).map(|number| format!("127.0.0.1:{}", self.port + 3 * number + 2));
            let seeds: Vec<String> = seeds.collect();
            sets.extend([
                format!("bootstrap={}", number == 0),
                "clusterConfig.host=127.0.0.1".to_owned(),
                format!("clusterConfig.port={}", port + 2),
                format!("clusterConfig.seedEndpoints={}", seeds.join(",")),
            ]);
        }
        let mut command: Vec<String> = ["heraldmq", "serve", "--data-dir", "{dir}"]
            .map(str::to_owned)
            .into();
        for set in sets {
            command.extend(["--set".to_owned(), set]);
        }
        let launch = Launch {
            command,
            files: std::collections::BTreeMap::new(),
        };
        launch.start(&[self.address(number)], observers.interrupt())
    }

    /// Waits until each shard has three voters, so that what is measured has.
    fn await_voters(&self, observers: &Observers) -> Result<(), Failure> {
        let deadline = Instant::now() + FORMED;
        let url = format!("http://127.0.0.1:{}/api/v1/cluster", self.port + 1);
        while !has_three_voters(&url) {
            if observers.interrupt().is_set() || Instant::now() >= deadline {
                let message = "the shards of three nodes did not get three voters each";
                return Err(Failure::Runtime(message.to_owned()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn how(&self, pids: Vec<u32>) -> How {
        How {
            duration: Some(self.duration),
            warm_up: Duration::from_secs(2),
            watched: Watched {
                pid: pids.into_iter().map(|pid| Pids::Given(vec![pid])).collect(),
                metrics: Vec::new(),
            },
            warm_up_messages: None,
            workers: Some(1),
            agent: Vec::new(),
            token: String::new(),
            transport: TransportOptions::default(),
            protocol: ProtocolVersion::V5,
            keep_alive: 0,
            username: None,
            password: None,
            label: None,
            broker: None,
        }
    }
}

fn workload(messages: Messages) -> Workload {
    Workload {
        parts: vec![Part::new("load", Activity::Messages(messages))],
        login: Login::new(ProtocolVersion::V5),
    }
}

/// Whether a node says so of all shards. While it cannot be asked, no.
fn has_three_voters(url: &str) -> bool {
    let shards = Node::new(url).voters().unwrap_or_default();
    !shards.is_empty() && shards.iter().all(|(_, voters)| *voters == 3)
}

impl Figures {
    fn of(record: &Record) -> Self {
        let systems = record.system.iter();
        Self {
            cpu_s: systems.clone().map(|s| s.cpu_user_s + s.cpu_system_s).sum(),
            connecting_cpu_s: systems.clone().map(|s| s.connecting_cpu_s).sum(),
            messages: record.messages_per_second * record.seconds,
            resident_bytes: systems.clone().map(|s| s.resident_bytes as f64).sum(),
            rest_bytes: systems.map(|s| s.resident_bytes_before as f64).sum(),
        }
    }
}

/// As `heraldmq size --slopes` reads it.
fn text(slopes: &Slopes) -> String {
    let of_quality = |of: &OfQuality| {
        format!(
            "{{ qos0: {:.1}, qos1: {:.1}, qos2: {:.1} }}",
            of.qos0, of.qos1, of.qos2
        )
    };
    let mut text = format!(
        "# Slopes for `heraldmq size --slopes FILE`, by `heraldmq bench slopes`. CPU in us, sizes in bytes.\n\
         measured: {:?}\npublish_us: {}\ndeliver_us: {}\nrate: {}\n",
        slopes.measured,
        of_quality(&slopes.publish_us),
        of_quality(&slopes.deliver_us),
        slopes.rate
    );
    for (name, cost) in [
        ("durable_us", &slopes.durable_us),
        ("replica_us", &slopes.replica_us),
        ("crossing_us", &slopes.crossing_us),
    ] {
        let Batched { alone, least } = cost;
        let _ = writeln!(text, "{name}: {{ alone: {alone:.1}, least: {least:.1} }}");
    }
    for (name, value) in [
        ("ping_us", slopes.ping_us),
        ("connect_us", slopes.connect_us),
        ("connect_tls_us", slopes.connect_tls_us),
        ("connection_bytes", slopes.connection_bytes),
        ("connection_tls_bytes", slopes.connection_tls_bytes),
        ("socket_bytes", slopes.socket_bytes),
        ("session_bytes", slopes.session_bytes),
        ("session_disk_bytes", slopes.session_disk_bytes),
        ("queued_disk_bytes", slopes.queued_disk_bytes),
        ("retained_bytes", slopes.retained_bytes),
        ("log_bytes", slopes.log_bytes),
        ("node_bytes", slopes.node_bytes),
        ("node_disk_bytes", slopes.node_disk_bytes),
    ] {
        let digits = usize::from(name.ends_with("_us"));
        let _ = writeln!(text, "{name}: {value:.digits$}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut slopes: Slopes = yaml::parse(sizing::SLOPES).unwrap();
        slopes.measured = "2 x \"EPYC\": here, # and there".to_owned();
        let read: Slopes = yaml::parse(&text(&slopes)).unwrap();
        assert_eq!(read.measured, slopes.measured);
        assert_eq!(read.durable_us, slopes.durable_us);
        assert_eq!(read.publish_us, slopes.publish_us);
    }
}
