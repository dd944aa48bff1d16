//! The broker under load, by process identifier or by the address of its metrics.

use std::io;
use std::str::FromStr;

use host::{Process, Processes};
use loadtest::{Reading, System};
use report::Machine;

use super::node::Node;
use crate::failure::Failure;

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
            shards: None,
        })
    }
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
}
