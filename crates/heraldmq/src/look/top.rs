//! `heraldmq top`: rates, the busiest clients and topics, the slowest clients, and the first queues, again and again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use admin::api::{BusyClient, BusyTopic, Counts, QueueRow, Stats};
use admin::cluster::NodeId;
use admin::page::Page;
use serde::de::DeserializeOwned;
use text_table::{Table, units::counted};

use super::cells::{milliseconds, number, rate, shown};
use super::messages::queues_table;
use super::shown::{EXIT_CODES, exit_code};
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};
use crate::output::{fitted, print};

/// Show live rates, the busiest clients and topics, the slowest clients and the largest queues.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Seconds between updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    every: u64,
    /// The number of updates; without it, updates go on until the command is stopped.
    #[arg(long, value_name = "COUNT")]
    times: Option<u64>,
    /// Sort the queues by this.
    #[arg(long, default_value = "messages", value_parser = ["messages", "bytes", "age"])]
    by: String,
    /// The number of rows of each list.
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rows: u16,
}

/// What is first, each list in its order.
#[derive(Debug, Default)]
struct First {
    publishers: Vec<BusyClient>,
    subscribers: Vec<BusyClient>,
    slowest: Vec<BusyClient>,
    topics: Vec<BusyTopic>,
    queues: Vec<QueueRow>,
}

impl First {
    fn ask(arguments: &TopArguments) -> Result<Self, Failure> {
        fn list<T: DeserializeOwned>(
            arguments: &TopArguments,
            path: &str,
            by: &str,
        ) -> Result<Vec<T>, Failure> {
            let query = [("by", by.to_owned()), ("limit", arguments.rows.to_string())];
            let page: Page<T> = match arguments.node.get_with(path, &query) {
                Ok(text) => parse(&text)?,
                // A broker before this version.
                Err(Failure::NotFound(_)) => return Ok(Vec::new()),
                Err(failure) => return Err(failure),
            };
            Ok(page.items)
        }
        Ok(Self {
            publishers: list(arguments, "/api/v1/top/publishers", "messages")?,
            subscribers: list(arguments, "/api/v1/top/subscribers", "messages")?,
            slowest: list(arguments, "/api/v1/top/subscribers", "delay")?,
            topics: list(arguments, "/api/v1/top/topics", "messages")?,
            queues: list(arguments, "/api/v1/queues", &arguments.by)?,
        })
    }
}

pub(crate) fn top(arguments: &TopArguments) -> Result<ExitCode, Failure> {
    let ask = || -> Result<(Instant, Stats), Failure> {
        let text = arguments.node.get("/api/v1/stats")?;
        Ok((Instant::now(), parse(&text)?))
    };
    let mut before = ask()?;
    let mut partial = Vec::new();
    let mut shown_times = 0;
    while arguments.times.is_none_or(|times| shown_times < times) {
        std::thread::sleep(Duration::from_secs(arguments.every));
        let now = ask()?;
        let first = First::ask(arguments)?;
        // A terminal shows the last one only.
        let clear = match io::stdout().is_terminal() {
            true => "\u{1b}[H\u{1b}[2J",
            false => "",
        };
        let text = screen((&before.1, &now.1), now.0 - before.0, &first);
        print(&format!("{clear}{text}"))?;
        partial = now.1.partial.clone();
        before = now;
        shown_times += 1;
    }
    Ok(exit_code(&partial))
}

fn screen((before, now): (&Stats, &Stats), elapsed: Duration, first: &First) -> String {
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
        "{}  in {messages_in}/s  out {messages_out}/s  drops {dropped}/s  clients {}  queued {}  {}\n",
        counted(now.nodes.len() as u64, "node", "nodes"),
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
    screen += &format!("\n{}", fitted(table, false));
    for (title, clients) in [
        ("PUBLISHER", &first.publishers),
        ("SUBSCRIBER", &first.subscribers),
        ("SLOWEST", &first.slowest),
    ] {
        if !clients.is_empty() {
            screen += &format!("\n{}", fitted(clients_table(title, clients), false));
        }
    }
    if !first.topics.is_empty() {
        screen += &format!("\n{}", fitted(topics_table(&first.topics), false));
    }
    if !first.queues.is_empty() {
        screen += &format!("\n{}", fitted(queues_table(&first.queues), false));
    }
    screen
}

fn clients_table(title: &str, rows: &[BusyClient]) -> Table {
    let has_delays = rows.iter().any(|row| row.delay_max_ms.is_some());
    let header = [title, "NODE", "MESSAGES/S", "BYTES/S"].into_iter();
    let delays = ["DELAY", "LONGEST"].into_iter().filter(|_| has_delays);
    let mut table = Table::new(header.chain(delays)).with_text(1..2);
    for row in rows {
        let cells = [
            shown(&row.client_id),
            shown(&row.node_name),
            rate(Some(row.rates.messages_per_s)),
            rate(Some(row.rates.bytes_per_s)),
        ];
        let delays = [row.delay_mean_ms, row.delay_max_ms].map(milliseconds);
        let delays = delays.into_iter().filter(|_| has_delays);
        table.row(cells.into_iter().chain(delays));
    }
    table
}

fn topics_table(rows: &[BusyTopic]) -> Table {
    let mut table = Table::new(["TOPIC", "MESSAGES/S", "BYTES/S"]);
    for row in rows {
        let rates = [row.rates.messages_per_s, row.rates.bytes_per_s];
        let rates = rates.map(|per_s| rate(Some(per_s)));
        table.row([shown(&row.topic)].into_iter().chain(rates));
    }
    table
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
        let screen = screen((&before, &now), Duration::from_secs(2), &First::default());
        assert!(screen.starts_with("3 nodes  in 100/s"), "{screen}");
        let first = |name: &str| {
            let line = screen.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_ascii_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(first("mq-1"), "100");
        assert_eq!(first("mq-2"), "-");
        assert_eq!(first("mq-3"), "-");
    }
}
