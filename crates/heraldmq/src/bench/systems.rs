//! The broker under load, by process identifier or by the address of its metrics.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use host::{Process, Processes};
use loadtest::{Reading, System};
use report::Machine;
use ureq::Agent;

use crate::failure::Failure;

/// How long a node may take to answer with its metrics.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is to be watched.
#[derive(clap::Args, Clone, PartialEq, Debug, Default)]
pub(super) struct Watched {
    /// The broker's processes on this machine, with their children.
    #[arg(long, value_name = "PID,…")]
    pub(super) pid: Vec<Pids>,
    /// A HeraldMQ node by its metrics, such as http://10.0.0.5:8091/metrics; may be repeated.
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    pub(super) metrics: Vec<String>,
}

/// One or several, as pidof(1) prints them or with commas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pids(pub(super) Vec<u32>);

impl FromStr for Pids {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split([',', ' ', '\n']).filter(|word| !word.is_empty());
        let pids: Result<Vec<u32>, _> = words.map(str::parse).collect();
        match pids {
            Ok(pids) if !pids.is_empty() => Ok(Self(pids)),
            _ => Err("expected process identifiers, such as 4711"),
        }
    }
}

impl Watched {
    /// All of it, ready to be read.
    pub(super) fn open(&self, is_loopback: bool) -> Result<Vec<Box<dyn System>>, Failure> {
        let mut systems: Vec<Box<dyn System>> = Vec::new();
        for &pid in self.pid.iter().flat_map(|pids| &pids.0) {
            let named = Process::new(pid).name();
            let name = named.map_err(|_| Failure::Runtime(format!("there is no process {pid}")))?;
            systems.push(Box::new(Watch {
                name: format!("pid {pid} ({name})"),
                processes: Processes::tree(pid),
                is_loopback,
            }));
        }
        for url in &self.metrics {
            systems.push(Box::new(Node::new(url)));
        }
        Ok(systems)
    }
}

/// A process and its children.
struct Watch {
    name: String,
    processes: Processes,
    is_loopback: bool,
}

impl System for Watch {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&mut self) -> io::Result<Reading> {
        let usage = self.processes.usage()?;
        // On loopback everything counts as received and as sent, also what is between others; what the
        // clients count is the truth there.
        let network = match self.is_loopback {
            true => None,
            false => self.processes.root().network_bytes().ok(),
        };
        Ok(Reading {
            cpu_user: usage.cpu_user,
            cpu_system: usage.cpu_system,
            resident_bytes: usage.resident_bytes,
            threads: Some(usage.threads),
            descriptors: usage.descriptors,
            network_in_bytes: network.map(|bytes| bytes.received),
            network_out_bytes: network.map(|bytes| bytes.sent),
        })
    }
}

/// A node of HeraldMQ, which tells all of this itself.
struct Node {
    url: String,
    agent: Agent,
}

impl Node {
    fn new(url: &str) -> Self {
        let config = Agent::config_builder().timeout_global(Some(PATIENCE));
        Self {
            url: url.to_owned(),
            agent: config.build().into(),
        }
    }
}

impl System for Node {
    fn name(&self) -> String {
        self.url.clone()
    }

    fn read(&mut self) -> io::Result<Reading> {
        let answer = self.agent.get(&self.url).call();
        let body = answer.and_then(|mut answer| answer.body_mut().read_to_string());
        reading(&body.map_err(io::Error::other)?)
    }
}

/// What a page of metrics says.
fn reading(metrics: &str) -> io::Result<Reading> {
    let value = |name: &str| -> Option<f64> {
        let mut lines = metrics.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    let needed = |name: &str| {
        let missing = || io::Error::other(format!("{name} is not among the metrics of HeraldMQ"));
        value(name).ok_or_else(missing)
    };
    let seconds = |name: &str| {
        let seconds = Duration::try_from_secs_f64(needed(name)?);
        seconds.map_err(|error| io::Error::other(format!("{name}: {error}")))
    };
    let count = |name: &str| value(name).map(|value| value as u64);
    let small = |name: &str| value(name).map(|value| value as u32);
    Ok(Reading {
        cpu_user: seconds("heraldmq_cpu_user_seconds_total")?,
        cpu_system: seconds("heraldmq_cpu_system_seconds_total")?,
        resident_bytes: needed("heraldmq_resident_memory_bytes")? as u64,
        threads: small("heraldmq_threads"),
        descriptors: small("heraldmq_descriptors_open"),
        network_in_bytes: count("heraldmq_received_bytes_total"),
        network_out_bytes: count("heraldmq_sent_bytes_total"),
    })
}

/// This machine, for the record.
pub(super) fn machine() -> Machine {
    let host::Machine {
        cpu,
        cores,
        memory_bytes,
        kernel,
        congestion_control,
    } = host::Machine::read();
    Machine {
        cpu,
        cores,
        memory_bytes,
        kernel,
        congestion_control,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_identifiers_are_taken_as_pidof_prints_them() {
        assert_eq!("7".parse(), Ok(Pids(vec![7])));
        assert_eq!("7 8,9\n".parse(), Ok(Pids(vec![7, 8, 9])));
        for wrong in ["", " ", "mosquitto", "7x", "-1"] {
            assert!(wrong.parse::<Pids>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_of_metrics_is_read_and_a_strange_one_refused() {
        let page = "# HELP heraldmq_threads Threads\n\
            heraldmq_threads 4\n\
            heraldmq_cpu_user_seconds_total 1.5\n\
            heraldmq_cpu_system_seconds_total 0.25\n\
            heraldmq_received_bytes_total 77\n\
            heraldmq_resident_memory_bytes 1000000\n";
        let reading = reading(page).unwrap();
        assert_eq!(reading.cpu_user, Duration::from_millis(1_500));
        assert_eq!(reading.cpu_system, Duration::from_millis(250));
        assert_eq!(reading.resident_bytes, 1_000_000);
        assert_eq!(reading.threads, Some(4));
        assert_eq!(reading.network_in_bytes, Some(77));
        assert_eq!(reading.network_out_bytes, None);
        let error = super::reading("up 1\n").unwrap_err();
        assert!(error.to_string().contains("heraldmq_cpu_user"), "{error}");
    }
}
