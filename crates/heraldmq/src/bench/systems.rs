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
    /// The broker's processes on this machine, with their children: process identifiers, or a name that only one
    /// process has.
    #[arg(long, value_name = "PID,…|NAME")]
    pub(super) pid: Vec<Pids>,
    /// The metrics of a HeraldMQ node, such as http://10.0.0.5:8091/metrics; may be repeated.
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    pub(super) metrics: Vec<String>,
}

/// Processes, as they were named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pids {
    /// One or several, as pidof(1) prints them or with commas.
    Given(Vec<u32>),
    /// The only one of this name, but for its children.
    Named(String),
}

impl FromStr for Pids {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split([',', ' ', '\n']).filter(|word| !word.is_empty());
        let words: Vec<&str> = words.collect();
        let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let pids: Result<Vec<u32>, _> = words.iter().map(|word| word.parse()).collect();
        match (pids, words.as_slice()) {
            (Ok(pids), [_, ..]) => Ok(Self::Given(pids)),
            (Err(_), [name])
                if !is_number(name) && !name.contains('/') && !name.starts_with('-') =>
            {
                Ok(Self::Named((*name).to_owned()))
            }
            _ => Err("expected process identifiers, such as 4711, or the name of a process"),
        }
    }
}

impl Pids {
    fn find(&self) -> Result<Vec<u32>, Failure> {
        let name = match self {
            Self::Given(pids) => return Ok(pids.clone()),
            Self::Named(name) => name,
        };
        let found = Processes::named(name).map_err(|e| Failure::Runtime(e.to_string()))?;
        match found.as_slice() {
            [_] => Ok(found),
            [] => Err(Failure::Runtime(format!("no process is called {name}"))),
            several => {
                let pids: Vec<String> = several.iter().map(u32::to_string).collect();
                let pids = pids.join(",");
                Err(Failure::Runtime(format!(
                    "several processes are called {name}: --pid {pids} watches all of them"
                )))
            }
        }
    }
}

impl Watched {
    /// All processes, found.
    pub(super) fn pids(&self) -> Result<Vec<u32>, Failure> {
        let found: Result<Vec<Vec<u32>>, Failure> = self.pid.iter().map(Pids::find).collect();
        Ok(found?.concat())
    }

    /// All of it, ready to be read.
    pub(super) fn open(&self, is_loopback: bool) -> Result<Vec<Box<dyn System>>, Failure> {
        let mut systems: Vec<Box<dyn System>> = Vec::new();
        for pid in self.pids()? {
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
        assert_eq!("7".parse(), Ok(Pids::Given(vec![7])));
        assert_eq!("7 8,9\n".parse(), Ok(Pids::Given(vec![7, 8, 9])));
        let named = Pids::Named("beam.smp".to_owned());
        assert_eq!("beam.smp".parse(), Ok(named));
        for wrong in ["", " ", "a b", "7,x", "-1", "99999999999", "/usr/sbin/a"] {
            assert!(wrong.parse::<Pids>().is_err(), "{wrong}");
        }
    }
}
