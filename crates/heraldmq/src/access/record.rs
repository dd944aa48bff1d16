//! A record of the HTTP API: read, changed and put back.

use admin::api::AccessEffects;
use serde_json::{Map, Value};

use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, Sent, parse};
use crate::output::print;

/// What commands that change records say of their ends.
pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 refused, or the node does not answer; 2 wrong command line; 3 not found; 5 somebody else has changed it meanwhile.";

/// How a change is made.
#[derive(clap::Args)]
pub(super) struct How {
    #[command(flatten)]
    pub(super) node: HttpPort,
    /// Say what it would do, and change nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print the broker's answer unchanged, as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl How {
    /// Sends a change, and prints what its answer says: with --json all of it, else the secret that was generated, or what a dry run
    /// says.
    pub(super) fn send(&self, sent: &Sent<'_>) -> Result<(), Failure> {
        let query: &[_] = match self.dry_run {
            true => &[("dry_run", "true".to_owned())],
            false => &[],
        };
        let answer = self.node.send(&Sent { query, ..*sent })?;
        if self.json {
            return match answer.body.is_empty() {
                true => Ok(()),
                false => print(&(answer.body + "\n")),
            };
        }
        if self.dry_run {
            let effects: AccessEffects = parse(&answer.body)?;
            return print(&said(&effects));
        }
        let made: Value = match answer.body.as_str() {
            "" => Value::Null,
            body => parse(body)?,
        };
        match made["secret"].as_str() {
            Some(secret) => print(&format!("{secret}\n")),
            None => Ok(()),
        }
    }

    /// Reads a record, changes it, and puts it back if nobody else has changed it meanwhile.
    pub(super) fn change(
        &self,
        path: &str,
        read_only: &[&str],
        change: impl FnOnce(&mut Map<String, Value>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let read = self.node.send(&Sent::of("GET", path))?;
        let mut record: Map<String, Value> = parse(&read.body)?;
        for field in read_only {
            record.remove(*field);
        }
        let before = record.clone();
        change(&mut record)?;
        if record == before {
            complain("nothing is different");
            return Ok(());
        }
        let tag = read.tag.as_deref();
        let condition = tag.map(|tag| ("if-match", tag));
        let body = Value::Object(record);
        self.send(&Sent {
            condition,
            body: Some(&body),
            ..Sent::of("PUT", path)
        })
    }
}

fn said(effects: &AccessEffects) -> String {
    let would = serde_json::to_value(effects.would).expect("a word is JSON");
    let would = would.as_str().unwrap_or_default();
    let ended = match effects.clients_ended {
        Some(count) if effects.at_least => format!("at least {}", count.0),
        Some(count) => count.0.to_string(),
        None => "not known".to_owned(),
    };
    format!("would {would} it; clients disconnected: {ended}\n")
}

/// The path of a record: its name is one segment, whatever is in it.
pub(super) fn path_of(list: &str, name: &str) -> String {
    let mut path = format!("{list}/");
    for byte in name.bytes() {
        match byte {
            b'-' | b'_' | b'~' => path.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => path.push(byte.into()),
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// A text of which the empty one is none.
pub(super) fn or_null(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => text.into(),
    }
}

/// Prints a record as lines of names and values.
pub(super) fn print_record(text: &str) -> Result<(), Failure> {
    let record: Map<String, Value> = parse(text)?;
    let width = record.keys().map(String::len).max().unwrap_or_default();
    let mut shown = String::new();
    for (name, value) in &record {
        let lines: Vec<String> = match value {
            Value::Null => vec!["-".to_owned()],
            Value::String(text) if text.is_empty() => vec!["-".to_owned()],
            Value::String(text) => vec![crate::look::shown(text)],
            Value::Array(values) if values.is_empty() => vec!["-".to_owned()],
            Value::Array(values) => {
                let texts = values
                    .iter()
                    .map(|value| value.as_str().unwrap_or_default());
                texts.map(crate::look::shown).collect()
            }
            value => vec![value.to_string()],
        };
        for (place, line) in lines.iter().enumerate() {
            let name = if place == 0 { name.as_str() } else { "" };
            shown.push_str(&format!("{name:width$}  {line}\n"));
        }
    }
    print(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        for (name, path) in [
            ("ann", "/u/ann"),
            ("a/b", "/u/a%2Fb"),
            ("..", "/u/%2E%2E"),
            ("ä ?#%", "/u/%C3%A4%20%3F%23%25"),
        ] {
            assert_eq!(path_of("/u", name), path);
        }
    }
}
