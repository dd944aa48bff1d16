//! `heraldmq profile threads`: what the threads had used at two moments, and the difference.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use admin::api::{Amount, ThreadUsageRow, ThreadsUsage, TurnTimes};
use text_table::{Table, units};

use super::path_of;
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};
use crate::output::{fitted, print};

/// List what each thread of a node does: CPU time, waits for a core, wake-ups, and the longest turn of event loops.
///
/// Without --seconds, of the last 50 to 60 s, or since the node has started if that is less.
#[derive(clap::Args)]
pub(super) struct ThreadsArguments {
    #[command(flatten)]
    port: HttpPort,
    /// From now on for so long, 1 to 3600 s: the node is asked at the beginning and at the end. Without it, of the last minute.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: Option<u16>,
    /// The identifier or name of the node; the node that is asked passes the request on. Without it, that node.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Print the answer of the broker, as JSON; with --seconds both answers, each on a line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &ThreadsArguments) -> Result<(), Failure> {
    let port = &arguments.port;
    let path = path_of(port, arguments.node.as_ref(), "profile/threads")?;
    let first = port.get(&path)?;
    let Some(seconds) = arguments.seconds else {
        if arguments.json {
            return print(&format!("{first}\n"));
        }
        let usage: ThreadsUsage = parse(&first)?;
        return show(&before(&usage), &usage);
    };
    thread::sleep(Duration::from_secs(seconds.into()));
    let second = port.get(&path)?;
    if arguments.json {
        return print(&format!("{first}\n{second}\n"));
    }
    show(&parse(&first)?, &parse(&second)?)
}

/// What the threads had used up to a minute before, or at the start: nothing.
fn before(usage: &ThreadsUsage) -> ThreadsUsage {
    let earlier = usage.earlier.clone();
    let (uptime_us, threads) = earlier.map_or((Amount(0), Vec::new()), |earlier| {
        (earlier.uptime_us, earlier.threads)
    });
    ThreadsUsage {
        uptime_us,
        threads,
        earlier: None,
        ..usage.clone()
    }
}

fn show(first: &ThreadsUsage, second: &ThreadsUsage) -> Result<(), Failure> {
    let lasted = difference(second.uptime_us, first.uptime_us) / 1e6;
    print(&format!(
        "In {lasted:.0} s:\n{}",
        fitted(table(first, second), false)
    ))
}

/// What each thread has used between two looks, those first that used most.
fn table(first: &ThreadsUsage, second: &ThreadsUsage) -> Table {
    let lasted = difference(second.uptime_us, first.uptime_us).max(1.0) / 1e6;
    let before: BTreeMap<u64, &ThreadUsageRow> =
        first.threads.iter().map(|row| (row.id.0, row)).collect();
    let mut rows: Vec<(f64, [String; 6])> = Vec::new();
    for row in &second.threads {
        // A thread that began meanwhile had used nothing; one of another name has got the number of one that has ended.
        let earlier = before
            .get(&row.id.0)
            .filter(|earlier| earlier.name == row.name);
        let since = |now: Option<Amount>, then: Option<Option<Amount>>| {
            let then = then.unwrap_or(Some(Amount(0)));
            Some(difference(now?, then?) / lasted)
        };
        let cpu = since(
            Some(row.cpu_us),
            earlier.map(|earlier| Some(earlier.cpu_us)),
        );
        let no_core = since(row.no_core_us, earlier.map(|earlier| earlier.no_core_us));
        let wake_ups = since(row.wake_ups, earlier.map(|earlier| earlier.wake_ups));
        let share = |used: Option<f64>| units::or_none(used, |us| format!("{:.1} %", us / 1e4));
        let turns = row.turns.as_deref().map(|now| {
            let then = earlier.and_then(|earlier| earlier.turns.as_deref());
            grown(now, then.unwrap_or_default())
        });
        let count = turns
            .as_ref()
            .map(|grown| grown.iter().map(|(_, count)| count).sum());
        let longest = turns.as_ref().and_then(|grown| grown.last());
        let longest = longest.map_or(units::NONE.to_owned(), |(up_to, _)| match up_to {
            Some(ms) => format!("≤ {} ms", units::ms(*ms)),
            None => "over a minute".to_owned(),
        });
        let cells = [
            row.name.clone(),
            share(cpu),
            share(no_core),
            units::or_none(wake_ups, units::rate),
            units::or_none(count.map(|count: u64| count as f64 / lasted), units::rate),
            longest,
        ];
        rows.push((cpu.unwrap_or_default(), cells));
    }
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let header = [
        "THREAD",
        "CPU",
        "NO CORE",
        "WAKE-UPS/S",
        "TURNS/S",
        "LONGEST TURN",
    ];
    let mut table = Table::new(header).with_text([0]);
    rows.into_iter().for_each(|(_, cells)| {
        table.row(cells);
    });
    table
}

fn difference(now: Amount, then: Amount) -> f64 {
    now.0.saturating_sub(then.0) as f64
}

/// The buckets that have grown, the shortest first.
fn grown(now: &[TurnTimes], then: &[TurnTimes]) -> Vec<(Option<f64>, u64)> {
    let grown = now.iter().map(|bucket| {
        let before = then.iter().find(|then| then.up_to_ms == bucket.up_to_ms);
        let before = before.map_or(0, |then| then.count.0);
        (bucket.up_to_ms, bucket.count.0.saturating_sub(before))
    });
    grown.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use admin::api::EarlierThreads;
    use admin::cluster::NodeId;

    use super::*;

    fn look(uptime_us: u64, threads: Vec<ThreadUsageRow>) -> ThreadsUsage {
        ThreadsUsage {
            node: NodeId(7),
            node_name: "a".into(),
            uptime_us: Amount(uptime_us),
            threads,
            earlier: None,
        }
    }

    fn row(id: u64, name: &str, cpu_us: u64, turns: Option<&[(f64, u64)]>) -> ThreadUsageRow {
        let turns = turns.map(|turns| {
            let turns = turns.iter().map(|(up_to, count)| TurnTimes {
                up_to_ms: Some(*up_to),
                count: Amount(*count),
            });
            turns.collect()
        });
        ThreadUsageRow {
            id: Amount(id),
            name: name.into(),
            cpu_us: Amount(cpu_us),
            system_us: Amount(0),
            no_core_us: Some(Amount(cpu_us / 10)),
            wake_ups: None,
            turns,
        }
    }

    #[test]
    fn the_difference_of_two_looks_is_by_second_and_the_longest_turn_is_that_of_between() {
        let first = [
            row(1, "heraldmq", 1_000_000, None),
            row(2, "loop-0", 5_000_000, Some(&[(0.5, 10), (64.0, 1)])),
            row(3, "ended", 1, None),
        ];
        let second = [
            row(1, "heraldmq", 1_000_000, None),
            row(
                2,
                "loop-0",
                6_000_000,
                Some(&[(0.5, 30), (4.0, 2), (64.0, 1)]),
            ),
            row(3, "new", 200_000, None),
        ];
        let table = table(&look(0, first.into()), &look(2_000_000, second.into()));
        let rows: Vec<Vec<String>> = table.rows().iter().map(|row| row.to_vec()).collect();
        let expected = [
            ["loop-0", "50.0 %", "5.0 %", "-", "11", "≤ 4.00 ms"],
            ["new", "10.0 %", "1.0 %", "-", "-", "-"],
            ["heraldmq", "0.0 %", "0.0 %", "-", "-", "-"],
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn one_answer_shows_the_last_minute_or_the_time_since_the_start() {
        let mut usage = look(100_000_000, vec![row(1, "loop-0", 30_000_000, None)]);
        let cpu = |usage: &ThreadsUsage| table(&before(usage), usage).rows()[0][1].clone();
        assert_eq!(cpu(&usage), "30.0 %");
        usage.earlier = Some(EarlierThreads {
            uptime_us: Amount(50_000_000),
            threads: vec![row(1, "loop-0", 5_000_000, None)],
        });
        assert_eq!(cpu(&usage), "50.0 %");
    }
}
