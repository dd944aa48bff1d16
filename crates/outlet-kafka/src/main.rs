//! The process of an outlet whose target is Kafka, or of an inlet whose source is Kafka: librdkafka is large, and written in C, so it is no part of `heraldmq` itself.
//!
//! Purpose: a node starts this program, with [`outlets::PROCESS`], for outlets to Kafka and inlets from it, as it starts itself for others. With
//! [`outlets::CHECK`] and [`outlets::PROBE`] the program says of a definition on its standard input, in JSON, whether it is right, and
//! whether Kafka can be reached.
//!
//! Invariants: those of [`outlets`]. What an attempt has not delivered in its time is taken back from the library, and a new producer
//! begins: nothing that was given up overtakes what is given again.
//!
//! Deliberately absent: what is published at the node, and acknowledged, when ([`outlets`]).
//!
//! Where to read next: `source.rs` for inlets; `target.rs` for outlets; `record.rs` for what becomes of a message, `exact.rs` for transactions.

mod arrival;
mod client;
mod exact;
mod group;
mod header;
mod record;
mod source;
mod target;

use std::io::{self, Read as _};
use std::process::ExitCode;

use outlets::{
    Connectors, Definition, Ended, InletDefinition, Source, SourceDefinition, Target,
    TargetDefinition, Transfer,
};

use self::source::KafkaSource;
use self::target::KafkaTarget;

/// Bytes of the longest definition.
const LONGEST: u64 = 64 << 20;

/// The only target and source of this program.
#[derive(Debug)]
struct Kafka;

impl Connectors for Kafka {
    fn target(&self, definition: &Definition) -> Result<Box<dyn Target>, String> {
        match &definition.target {
            TargetDefinition::Kafka(kafka) => Ok(Box::new(KafkaTarget::new(definition, kafka)?)),
            _ => Err("this program is for outlets to Kafka only".to_owned()),
        }
    }

    fn source(&self, inlet: &InletDefinition) -> Result<Box<dyn Source>, String> {
        match &inlet.source {
            SourceDefinition::Kafka(kafka) => Ok(Box::new(KafkaSource::new(inlet, kafka)?)),
            _ => Err("this program is for inlets from Kafka only".to_owned()),
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [outlets::PROCESS] => match outlets::process(&Kafka) {
            // A later process has what this one had.
            Ended::Asked | Ended::Fenced => Ok(String::new()),
            Ended::Failed(why) => Err(format!("outlet: {why}")),
        },
        [outlets::CHECK] => read()
            .and_then(|transfer| outlets::check(&Kafka, &transfer))
            .map(|()| String::new()),
        [outlets::PROBE] => read().and_then(|transfer| outlets::probe(&Kafka, &transfer)),
        _ => Err(
            "only heraldmq starts this program, for outlets to Kafka and inlets from it".to_owned(),
        ),
    };
    match done {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => say(io::stdout(), &text, ExitCode::SUCCESS),
        Err(why) => say(io::stderr(), &why, ExitCode::FAILURE),
    }
}

fn say(mut to: impl io::Write, text: &str, code: ExitCode) -> ExitCode {
    match writeln!(to, "{text}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn read() -> Result<Transfer, String> {
    let mut text = Vec::new();
    let mut limited = io::stdin().lock().take(LONGEST);
    let read = limited.read_to_end(&mut text);
    read.map_err(|error| format!("the definition cannot be read: {error}"))?;
    serde_json::from_slice(&text)
        .map_err(|error| format!("the definition is of another version than this program: {error}"))
}
