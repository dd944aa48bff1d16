//! `heraldmq profile memory`: what takes the memory of a node.

use admin::api::{MemoryKnown, MemoryProfile};
use text_table::{Table, units};

use super::path_of;
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};
use crate::output::{fitted, print};

/// List what takes the memory of a node, by structure. All rows together are the resident memory of its process.
#[derive(clap::Args)]
pub(super) struct MemoryArguments {
    #[command(flatten)]
    port: HttpPort,
    /// The identifier or name of the node; the node that is asked passes the request on. Without it, that node.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Print the answer of the broker, as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &MemoryArguments) -> Result<(), Failure> {
    let port = &arguments.port;
    let path = path_of(port, arguments.node.as_ref(), "profile/memory")?;
    let answer = port.get(&path)?;
    if arguments.json {
        return print(&format!("{answer}\n"));
    }
    print(&fitted(table(&parse(&answer)?), false).to_string())
}

/// The largest first, and the sum last. Structures of which there is nothing are left out.
fn table(profile: &MemoryProfile) -> Table {
    let mut rows: Vec<_> = profile.structures.iter().collect();
    rows.retain(|row| row.bytes != 0);
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    let mut table =
        Table::new(["STRUCTURE", "COUNT", "BYTES", "SHARE", "EACH", "HOW"]).with_text([0, 5]);
    let resident = profile.resident_bytes.0;
    let share = |bytes: i64| match resident {
        0 => units::NONE.to_owned(),
        whole => format!("{:.1} %", bytes as f64 * 100.0 / whole as f64),
    };
    let none = || units::NONE.to_owned();
    for row in rows {
        let count = row.count.filter(|count| count.0 > 0);
        let sign = if row.bytes < 0 { "-" } else { "" };
        table.row([
            row.structure.replace('_', " "),
            count.map_or_else(none, |count| units::count(count.0)),
            format!("{sign}{}", units::count(row.bytes.unsigned_abs())),
            share(row.bytes),
            count.map_or_else(none, |count| {
                units::count(row.bytes.unsigned_abs() / count.0)
            }),
            match row.how {
                MemoryKnown::Counted => "counted",
                MemoryKnown::Estimated => "estimated",
                MemoryKnown::Remainder => "remainder",
            }
            .to_owned(),
        ]);
    }
    let sum = i64::try_from(resident).unwrap_or(i64::MAX);
    table.row([
        "resident memory".to_owned(),
        none(),
        units::count(resident),
        share(sum),
        none(),
        String::new(),
    ]);
    table
}

#[cfg(test)]
mod tests {
    use admin::api::{Amount, MemoryRow};
    use admin::cluster::NodeId;

    use super::*;

    #[test]
    fn the_largest_structures_come_first_and_the_sum_last() {
        let row = |structure: &str, count: Option<u64>, bytes, how| MemoryRow {
            structure: structure.to_owned(),
            count: count.map(Amount),
            bytes,
            how,
        };
        let profile = MemoryProfile {
            node: NodeId(7),
            node_name: "a".into(),
            resident_bytes: Amount(10_000),
            allocator: None,
            structures: vec![
                row("match_cache", Some(0), 0, MemoryKnown::Counted),
                row("connections", Some(20), 2_560, MemoryKnown::Estimated),
                row("program_files", None, 7_500, MemoryKnown::Counted),
                row("not_accounted_for", None, -60, MemoryKnown::Remainder),
            ],
        };
        let table = table(&profile);
        let rows: Vec<Vec<String>> = table.rows().iter().map(|row| row.to_vec()).collect();
        let expected = [
            ["program files", "-", "7,500", "75.0 %", "-", "counted"],
            ["connections", "20", "2,560", "25.6 %", "128", "estimated"],
            ["not accounted for", "-", "-60", "-0.6 %", "-", "remainder"],
            ["resident memory", "-", "10,000", "100.0 %", "-", ""],
        ];
        assert_eq!(rows, expected);
    }
}
