//! `heraldmq profile`: what goes on inside the process of a running node.
//!
//! Deliberately absent: sampling (`profiler`), and what the threads have used (`host`); the node does both when it is asked.

mod cpu;
mod flame;
mod memory;
mod pprof;
mod stacks;
mod symbols;
mod tables;
mod threads;

use admin::cluster::ClusterStatus;

use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};

pub(crate) use tables::functions;

/// Look into the process of a running node: where its CPU time goes, what its threads do, and what takes its memory.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Cpu(cpu::CpuArguments),
    Memory(memory::MemoryArguments),
    Threads(threads::ThreadsArguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Cpu(arguments) => cpu::run(arguments),
        Command::Memory(arguments) => memory::run(arguments),
        Command::Threads(arguments) => threads::run(arguments),
    }
}

/// The path of something of a node: of this one, or of the one that is asked.
fn path_of(port: &HttpPort, node: Option<&String>, rest: &str) -> Result<String, Failure> {
    let node = match node {
        Some(node) => node.clone(),
        None => {
            let status: ClusterStatus = parse(&port.get("/api/v1/cluster")?)?;
            status.node.to_string()
        }
    };
    Ok(format!("/api/v1/nodes/{}/{rest}", in_path(&node)))
}

/// As a part of a path.
pub(crate) fn in_path(text: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(byte.into());
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}
