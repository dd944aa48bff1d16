//! The answer, for a person.

use std::fmt::Write;

use sizing::{Cluster, Demand, Needs, Prices, Resource, Slopes};
use text_table::Table;

/// Kinds of machines that are shown.
const SHOWN: usize = 4;

pub(super) fn text(
    title: &str,
    demand: &Demand,
    slopes: &Slopes,
    prices: &Prices,
    clusters: &[Cluster],
) -> String {
    let mut text = format!("{title}\n{}\n", sentence(demand));
    let mut table = Table::new([
        "machine",
        "nodes",
        "cores",
        "memory GiB",
        "disk GiB",
        "a month",
        "tightest",
    ]);
    for cluster in clusters.iter().take(SHOWN) {
        let (resource, share) = cluster.tightest;
        table.row([
            cluster.machine.name.clone(),
            number(cluster.nodes),
            number(cluster.machine.cores),
            number(cluster.machine.memory_gib),
            number(cluster.disk_gib),
            format!("{} {}", number(cluster.month), prices.currency),
            format!("{} {:.0} %", name(resource), share * 100.0),
        ]);
    }
    let _ = write!(text, "\n{table}");
    if let Some(best) = clusters.first() {
        let nodes = best.nodes;
        let _ = write!(
            text,
            "\nWhat {} of {} for:\n\n",
            plural(nodes, "node", "nodes"),
            match nodes {
                1.0 => format!("{} is used", best.machine.name),
                _ => format!("{} are used", best.machine.name),
            }
        );
        text += &terms(demand, slopes, nodes);
        if demand.connections > 0.0 {
            let each = best.month / demand.connections;
            let _ = writeln!(
                text,
                "\n{} {} a month for each connection.",
                price(each),
                prices.currency
            );
        }
    }
    let _ = write!(
        text,
        "\nA node uses 60 % of its cores, memory and network at most while {} down, and half of its disk.\n\
         Slopes: {}\nPrices: {}\n",
        match number(demand.may_fail).as_str() {
            "0" => "none is".to_owned(),
            "1" => "one other node is".to_owned(),
            more => format!("{more} other nodes are"),
        },
        slopes.measured,
        prices.source
    );
    text
}

/// A number with its noun.
fn plural(value: f64, one: &str, many: &str) -> String {
    match number(value).as_str() {
        "1" => format!("1 {one}"),
        number => format!("{number} {many}"),
    }
}

/// What is asked for, in one line.
fn sentence(demand: &Demand) -> String {
    let mut parts = vec![plural(demand.connections, "connection", "connections")];
    if demand.sessions > 0.0 {
        parts.push(plural(
            demand.sessions,
            "persistent session",
            "persistent sessions",
        ));
    }
    if demand.publishes_per_s > 0.0 || demand.deliveries_per_s > 0.0 {
        parts.push(format!(
            "{}/s in, {} out, {} of them durable, {} each",
            plural(demand.publishes_per_s, "message", "messages"),
            number(demand.deliveries_per_s),
            number(demand.durable_per_s),
            plural(demand.payload_bytes, "byte", "bytes")
        ));
    }
    if demand.queued > 0.0 {
        parts.push(plural(demand.queued, "message waiting", "messages waiting"));
    }
    if demand.retained > 0.0 {
        parts.push(format!("{} retained", number(demand.retained)));
    }
    parts.push(match demand.voters {
        1.0 => "one voter".to_owned(),
        voters => format!("{} voters", number(voters)),
    });
    parts.push(match demand.may_fail {
        0.0 => "no node may fail".to_owned(),
        1.0 => "one node may fail".to_owned(),
        nodes => format!("{} nodes may fail", number(nodes)),
    });
    parts.join(", ")
}

/// Each term, and the sum of each resource.
fn terms(demand: &Demand, slopes: &Slopes, nodes: f64) -> String {
    let needs = Needs::of(demand, slopes, nodes);
    let mut table = Table::new(["", "amount", "count", "of", "each", "slope"]);
    for resource in [
        Resource::Cores,
        Resource::Memory,
        Resource::Disk,
        Resource::DiskWrites,
        Resource::NetworkIn,
        Resource::NetworkOut,
    ] {
        let sum = needs.sum(resource);
        if sum <= 0.0 {
            continue;
        }
        table.row([name(resource).to_owned(), amount(resource, sum)]);
        for term in needs.0.iter().filter(|term| term.resource == resource) {
            table.row([
                format!("  {}", term.what),
                amount(resource, term.amount()),
                number(term.count),
                term.formula.to_owned(),
                match resource {
                    Resource::Cores => format!("{:.1} us", term.each * 1e6),
                    _ => format!("{} B", number(term.each)),
                },
                term.slope.to_owned(),
            ]);
        }
    }
    table.to_string()
}

fn name(resource: Resource) -> &'static str {
    match resource {
        Resource::Cores => "cores",
        Resource::Memory => "memory",
        Resource::Disk => "disk",
        Resource::DiskWrites => "disk writes",
        Resource::NetworkIn => "network in",
        Resource::NetworkOut => "network out",
    }
}

fn amount(resource: Resource, amount: f64) -> String {
    let gib = amount / f64::from(1 << 30);
    match resource {
        Resource::Cores => format!("{amount:.2}"),
        Resource::Memory | Resource::Disk => format!("{gib:.2} GiB"),
        Resource::DiskWrites => format!("{:.1} MB/s", amount / 1e6),
        Resource::NetworkIn | Resource::NetworkOut => format!("{:.2} Gbit/s", amount * 8.0 / 1e9),
    }
}

/// A whole number with commas.
fn number(number: f64) -> String {
    text_table::units::count(number.round() as u64)
}

/// Small ones keep two digits that mean something.
fn price(price: f64) -> String {
    let digits = if price >= 1.0 {
        2
    } else {
        (1.0 - price.log10().floor()) as usize
    };
    format!("{price:.digits$}")
}
