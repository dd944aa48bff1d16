//! What happens now: counts, rates, and events.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use admin::api::{Counts, Event, Gap, QueueRow, Stats};
use admin::cluster::NodeId;
use admin::page::{Missing, Page};
use report::Table;

use super::cells::{number, rate, shown};
use super::messages::queues_table;
use super::shown::{EXIT_CODES, Shown, exit_code, print};
use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, parse};

/// Show what the nodes have counted since they started.
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
    let table = match arguments.shown.no_header {
        true => table.without_header(),
        false => table,
    };
    print(&table.to_string())?;
    Ok(exit_code(&stats.partial))
}

/// Show rates and the largest queues, again and again.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    node: HttpPort,
    /// How often, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    every: u64,
    /// How many times; without end if not given.
    #[arg(long, value_name = "COUNT")]
    times: Option<u64>,
    /// What makes a queue one of the first.
    #[arg(long, default_value = "messages", value_parser = ["messages", "bytes", "age"])]
    by: String,
}

pub(crate) fn top(arguments: &TopArguments) -> Result<ExitCode, Failure> {
    let node = &arguments.node;
    let ask = || -> Result<(Instant, Stats), Failure> {
        let text = node.get("/api/v1/stats")?;
        Ok((Instant::now(), parse(&text)?))
    };
    let query = [("by", arguments.by.clone()), ("limit", "10".to_owned())];
    let mut before = ask()?;
    let mut partial = Vec::new();
    let mut shown_times = 0;
    while arguments.times.is_none_or(|times| shown_times < times) {
        std::thread::sleep(Duration::from_secs(arguments.every));
        let now = ask()?;
        let queues: Page<QueueRow> = parse(&node.get_with("/api/v1/queues", &query)?)?;
        // A terminal shows the last one only.
        let clear = match io::stdout().is_terminal() {
            true => "\u{1b}[H\u{1b}[2J",
            false => "",
        };
        let text = screen((&before.1, &now.1), now.0 - before.0, &queues.items);
        print(&format!("{clear}{text}"))?;
        partial = now.1.partial.clone();
        before = now;
        shown_times += 1;
    }
    Ok(exit_code(&partial))
}

fn screen((before, now): (&Stats, &Stats), elapsed: Duration, queues: &[QueueRow]) -> String {
    let was: BTreeMap<NodeId, &Counts> = before
        .nodes
        .iter()
        .map(|of| (of.node, &of.counts))
        .collect();
    let header = [
        "NODE",
        "IN/S",
        "OUT/S",
        "DROPS/S",
        "CONNECTS/S",
        "CLIENTS",
        "SESSIONS",
        "QUEUED",
    ];
    let mut table = Table::new(header);
    let mut sums = [0.0; 3];
    for node in &now.nodes {
        let counts = &node.counts;
        // A node that has started anew counts from 0, and one that has not answered before has no rate yet.
        let since = |pick: fn(&Counts) -> u64| {
            let grown = pick(counts).checked_sub(pick(was.get(&node.node)?))?;
            Some(grown as f64 / elapsed.as_secs_f64())
        };
        let rates = [
            since(|of| of.messages_in),
            since(|of| of.messages_out),
            since(|of| of.dropped),
            since(|of| of.connects),
        ];
        for (sum, value) in sums.iter_mut().zip(rates) {
            *sum += value.unwrap_or_default();
        }
        let counts = [counts.connections, counts.sessions, counts.queued_messages];
        let cells = rates.into_iter().map(rate);
        let cells = cells.chain(counts.map(|count| number(Some(count))));
        table.row([shown(&node.node_name)].into_iter().chain(cells));
    }
    let [messages_in, messages_out, dropped] = sums.map(|sum| rate(Some(sum)));
    let mut screen = format!(
        "{} nodes  in {messages_in}/s  out {messages_out}/s  drops {dropped}/s  clients {}  queued {}  {}\n",
        now.nodes.len(),
        number(Some(now.total.connections)),
        number(Some(now.total.queued_messages)),
        now.as_of,
    );
    for missing in &now.partial {
        // Writing to a string does not fail.
        let _ = writeln!(
            screen,
            "partial: {} ({})",
            missing.node_name,
            missing.reason.name()
        );
    }
    screen += &format!("\n{table}");
    if !queues.is_empty() {
        screen += &format!("\n{}", queues_table(queues));
    }
    screen
}

/// Print what happens on all nodes, as it happens.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct EventsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only these types, with commas between them, such as client.connected,message.dropped.
    #[arg(long = "type", value_name = "TYPES")]
    kinds: Option<String>,
    /// Only what concerns this client.
    #[arg(long)]
    client: Option<String>,
    /// Only what concerns clients whose identifiers begin so.
    #[arg(long, conflicts_with = "client")]
    prefix: Option<String>,
    /// Only what concerns topics that this filter matches.
    #[arg(long)]
    topic: Option<String>,
    /// End after so many seconds.
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    lasts: Option<u64>,
    /// Print each event as it came, JSON, a line each.
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
    let stream = arguments.node.stream("/api/v1/events", &query, lasts)?;
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

fn show_event(kind: &str, data: &str, json: bool) -> Result<(), Failure> {
    match kind {
        "hello" => Ok(()),
        "gap" => {
            let gap: Gap = parse(data)?;
            let count = gap
                .count
                .map_or("some".to_owned(), |count| number(Some(count)));
            complain(&format!(
                "{}: {count} events were missed",
                shown(&gap.node_name)
            ));
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
        "end" => {
            complain(&format!("the stream ends: {data}"));
            Ok(())
        }
        _ if json => print(&format!("{data}\n")),
        _ => print(&line(&parse(data)?, kind)),
    }
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
    use admin::api::NodeStats;

    use super::*;

    fn stats(of: &[(u64, u64)]) -> Stats {
        let nodes = of.iter().map(|(node, messages_in)| NodeStats {
            node: NodeId(*node),
            node_name: format!("mq-{node}"),
            counts: Counts {
                messages_in: *messages_in,
                connections: 1_234,
                ..Counts::default()
            },
        });
        let nodes: Vec<NodeStats> = nodes.collect();
        Stats {
            total: Counts::default(),
            as_of: admin::api::At::unix_ms(0),
            nodes,
            partial: Vec::new(),
        }
    }

    #[test]
    fn rates_are_of_those_that_were_there_before() {
        let before = stats(&[(1, 100), (2, 500)]);
        let now = stats(&[(1, 300), (2, 7), (3, 9)]);
        let screen = screen((&before, &now), Duration::from_secs(2), &[]);
        assert!(screen.starts_with("3 nodes  in 100/s"), "{screen}");
        let first = |name: &str| {
            let line = screen.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_ascii_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(first("mq-1"), "100");
        assert_eq!(first("mq-2"), "-");
        assert_eq!(first("mq-3"), "-");
    }

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
