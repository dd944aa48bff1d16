//! What happens now: counts and events.

use std::io::BufRead as _;
use std::process::ExitCode;
use std::time::Duration;

use admin::api::{ClientRates, Counts, Event, Gap, Stats};
use admin::page::Missing;
use text_table::{Table, units::counted};

use super::cells::{number, rate, shown};
use super::shown::{EXIT_CODES, Shown, exit_code, path_of};
use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, parse};
use crate::output::print;

/// How long a client may be watched, in s.
const LONGEST_S: u64 = 3_600;

/// Show the counters of all nodes since they started.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    node: HttpPort,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn stats(arguments: &StatsArguments) -> Result<ExitCode, Failure> {
    let text = arguments.node.get("/api/v1/stats")?;
    let stats: Stats = parse(&text)?;
    if arguments.shown.json {
        print(&(text + "\n"))?;
        return Ok(exit_code(&stats.partial));
    }
    let header = [
        "NODE",
        "CLIENTS",
        "SESSIONS",
        "SUBSCRIPTIONS",
        "RETAINED",
        "QUEUED",
        "IN",
        "OUT",
        "DROPPED",
    ];
    let mut table = Table::new(header);
    let mut add = |name: String, of: &Counts| {
        let counts = [
            of.connections,
            of.sessions,
            of.subscriptions,
            of.retained_messages,
            of.queued_messages,
            of.messages_in,
            of.messages_out,
            of.dropped,
        ];
        table.row(
            [name]
                .into_iter()
                .chain(counts.map(|count| number(Some(count)))),
        );
    };
    for node in &stats.nodes {
        add(shown(&node.node_name), &node.counts);
    }
    if stats.nodes.len() > 1 {
        add("all".to_owned(), &stats.total);
    }
    print(&arguments.shown.fit(table, true).to_string())?;
    Ok(exit_code(&stats.partial))
}

/// Print events of all nodes as they happen.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct EventsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only these types, separated by commas, such as client.connected,message.dropped.
    #[arg(long = "type", value_name = "TYPES")]
    kinds: Option<String>,
    /// Only events of this client.
    #[arg(long)]
    client: Option<String>,
    /// Only events of clients whose identifiers start with this.
    #[arg(long, conflicts_with = "client")]
    prefix: Option<String>,
    /// Only events on topics that match this filter.
    #[arg(long)]
    topic: Option<String>,
    /// Also print the messages and bytes of the client, in and out, each second, for an hour at most.
    #[arg(long, requires = "client", conflicts_with_all = ["kinds", "topic"])]
    rates: bool,
    /// Stop after this many seconds.
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    lasts: Option<u64>,
    /// Print each event as JSON, one per line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn events(arguments: &EventsArguments) -> Result<ExitCode, Failure> {
    let given = [
        ("type", &arguments.kinds),
        ("client_id", &arguments.client),
        ("prefix", &arguments.prefix),
        ("topic", &arguments.topic),
    ];
    let given = given.into_iter();
    let query: Vec<(&str, String)> = given
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect();
    let lasts = arguments.lasts.map(Duration::from_secs);
    let watched = arguments.client.as_deref().filter(|_| arguments.rates);
    let stream = match watched {
        Some(client_id) => {
            let path = path_of(client_id).ok_or_else(|| {
                Failure::Usage(format!(
                    "no path has the client identifier {}",
                    shown(client_id)
                ))
            })?;
            let seconds = arguments.lasts.unwrap_or(LONGEST_S).clamp(1, LONGEST_S);
            let query = [("seconds", seconds.to_string())];
            // The stream ends by itself.
            arguments
                .node
                .stream(&format!("{path}/watch"), &query, None)?
        }
        None => arguments.node.stream("/api/v1/events", &query, lasts)?,
    };
    let mut kind = String::new();
    for line in stream.lines() {
        let line = match line {
            Ok(line) => line,
            // Its time is over.
            Err(_) if lasts.is_some() => break,
            Err(error) => return Err(Failure::Runtime(error.to_string())),
        };
        match line.split_once(": ") {
            Some(("event", name)) => name.clone_into(&mut kind),
            Some(("data", data)) => show_event(&kind, data, arguments.json)?,
            _ => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a stream ends.
#[derive(serde::Deserialize)]
struct StreamEnd {
    reason: String,
}

fn show_event(kind: &str, data: &str, json: bool) -> Result<(), Failure> {
    match kind {
        "hello" => Ok(()),
        "gap" => {
            let gap: Gap = parse(data)?;
            let missed = gap.count.map_or("some events".to_owned(), |count| {
                counted(count, "event", "events")
            });
            complain(&format!("{}: missed {missed}", shown(&gap.node_name)));
            Ok(())
        }
        "partial" => {
            let missing: Vec<Missing> = parse(data)?;
            for of in missing {
                complain(&format!(
                    "partial: {} ({})",
                    shown(&of.node_name),
                    of.reason.name()
                ));
            }
            Ok(())
        }
        "rates" if !json => print(&rates_line(&parse(data)?)),
        // The time that was asked for.
        "end" if parse::<StreamEnd>(data)?.reason == "time" => Ok(()),
        "end" => {
            complain(&format!("the stream ends: {data}"));
            Ok(())
        }
        _ if json => print(&format!("{data}\n")),
        _ => print(&line(&parse(data)?, kind)),
    }
}

/// What a client does, as a line for people.
fn rates_line(of: &ClientRates) -> String {
    let [messages_in, bytes_in] = [of.messages_in_per_s, of.bytes_in_per_s].map(rate);
    let [messages_out, bytes_out] = [of.messages_out_per_s, of.bytes_out_per_s].map(rate);
    format!(
        "{}  in {messages_in}/s, {bytes_in} B/s  out {messages_out}/s, {bytes_out} B/s\n",
        of.at
    )
}

/// An event as a line for people.
fn line(event: &Event, kind: &str) -> String {
    let mut line = format!("{}  {}  {}", event.at, shown(&event.node_name), shown(kind));
    let texts = [&event.client_id, &event.user, &event.address, &event.topic];
    for text in texts.into_iter().flatten() {
        line += &format!("  {}", shown(text));
    }
    if let Some(count) = event.count {
        line += &format!("  {}", number(Some(count)));
    }
    for text in [&event.reason, &event.detail].into_iter().flatten() {
        line += &format!("  {}", shown(text));
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_write_moves_no_cursor_in_a_line() {
        let data = r#"{"type":"client.connected","at":"2026-11-24T10:12:03.120Z","node":"1","node_name":"a","seq":"7",
            "client_id":"c\u001b[2J","user":null,"address":null,"reason":null,"topic":null,"count":null,"detail":null}"#;
        let line = line(&parse(data).unwrap(), "client.connected");
        assert_eq!(
            line,
            "2026-11-24T10:12:03.120Z  a  client.connected  c\\u{1b}[2J\n"
        );
    }
}
