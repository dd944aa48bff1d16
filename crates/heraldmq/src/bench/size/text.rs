//! The answer, for a person.

use std::fmt::Write;

use sizing::{
    Cluster, Cost, DISKS, Demand, MACHINES, Needs, Plan, Prices, Pricing, Purchase, Resource,
    Slopes, ZONE_TRAFFIC,
};
use text_table::Table;

/// Kinds of machines that are shown.
const SHOWN: usize = 4;

pub(super) fn text(
    title: &str,
    demand: &Demand,
    slopes: &Slopes,
    prices: &Prices,
    purchase: &Purchase<'_>,
    clusters: &[Cluster],
) -> String {
    let mut text = format!("{title}\n{}\n", sentence(demand));
    let mut heads = vec![
        "machine",
        "nodes",
        "cores",
        "memory GiB",
        "disk GiB",
        "a month",
        "tightest",
    ];
    let has_zones = purchase.zones > 1.0;
    if has_zones {
        heads.push("traffic between zones");
    }
    let mut table = Table::new(heads);
    for cluster in clusters.iter().take(SHOWN) {
        let (resource, share) = cluster.tightest;
        let cells = [
            cluster.machine.name.clone(),
            number(cluster.nodes),
            number(cluster.machine.cores),
            number(cluster.machine.memory_gib),
            number(cluster.disk_gib),
            format!("{} {}", number(cluster.month), prices.currency),
            format!("{} {:.0} %", name(resource), share * 100.0),
        ];
        let zones = has_zones.then(|| format!("{:.0} % of it", zone_share(cluster) * 100.0));
        table.row(cells.into_iter().chain(zones));
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
        let _ = write!(text, "\n{}", costs(best, prices, purchase));
        let of_scenario = |plan: &&Plan| title.starts_with(&format!("{}:", plan.scenario));
        for plan in prices.plans.iter().filter(of_scenario) {
            let _ = write!(text, "\n{}", beside(plan, best, prices, purchase));
        }
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
    for source in sources(prices, purchase) {
        let _ = writeln!(text, "  {source}");
    }
    text
}

/// Of what a cluster costs, the share of traffic between zones, which is an upper bound.
fn zone_share(cluster: &Cluster) -> f64 {
    let traffic = cluster
        .costs
        .iter()
        .filter(|cost| cost.what == ZONE_TRAFFIC);
    let month: f64 = traffic.map(Cost::month).sum();
    if month > 0.0 {
        month / cluster.month
    } else {
        0.0
    }
}

/// What machines are paid for as, in a heading.
fn called(pricing: Option<&Pricing>) -> &str {
    pricing.map_or("list", |pricing| &pricing.name)
}

/// What each term costs a month, with machines paid for in each way: the one that is asked for first.
fn costs(cluster: &Cluster, prices: &Prices, purchase: &Purchase<'_>) -> String {
    let ways = [None]
        .into_iter()
        .chain(prices.pricings.iter().map(Some))
        .filter(|way| *way != purchase.pricing);
    let ways: Vec<Option<&Pricing>> = [purchase.pricing].into_iter().chain(ways).collect();
    let price = |cost: &Cost, way: Option<&Pricing>| match cost.what {
        MACHINES => cost.count * cluster.machine.price(way),
        _ => cost.month(),
    };
    let heads = ["", "count", "of"].map(str::to_owned).into_iter();
    let mut table = Table::new(heads.chain(ways.iter().map(|way| called(*way).to_owned())));
    for cost in &cluster.costs {
        let of = match cost.what {
            MACHINES => cluster.machine.name.clone(),
            _ => cost.of.to_owned(),
        };
        let cells = [format!("  {}", cost.what), number(cost.count), of].into_iter();
        table.row(cells.chain(ways.iter().map(|way| number(price(cost, *way)))));
    }
    let sums = ways.iter().map(|way| {
        let all = cluster.costs.iter();
        number(all.map(|cost| price(cost, *way)).sum())
    });
    let cells = ["  sum", "", ""].map(str::to_owned).into_iter();
    table.row(cells.chain(sums));
    format!(
        "A month of {} in {}, in {}, with machines paid for in each way:\n\n{table}",
        plural(cluster.nodes, "node", "nodes"),
        plural(purchase.zones, "zone", "zones"),
        prices.currency
    )
}

/// Somebody else's plan for the same load and the cheapest cluster, with each term.
fn beside(plan: &Plan, cluster: &Cluster, prices: &Prices, purchase: &Purchase<'_>) -> String {
    let ours = |what: &str| -> Option<f64> {
        let named =
            |cost: &&Cost| cost.what == what || what == DISKS && cost.what.starts_with(DISKS);
        let of: Vec<f64> = cluster
            .costs
            .iter()
            .filter(named)
            .map(Cost::month)
            .collect();
        (!of.is_empty()).then(|| of.iter().sum())
    };
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let mut table = Table::new([
        String::new(),
        plan.name.clone(),
        "by list prices".to_owned(),
        format!("this cluster, {}", called(purchase.pricing)),
        format!("what {} has", plan.name),
    ]);
    for term in &plan.terms {
        table.row([
            format!("  {}", term.what),
            term.month.map_or_else(|| "not counted".to_owned(), number),
            shown(term.list),
            shown(ours(&term.what)),
            term.of.clone(),
        ]);
    }
    for what in [MACHINES, DISKS, ZONE_TRAFFIC] {
        if !plan.terms.iter().any(|term| term.what == what) {
            let row = [format!("  {what}"), "-".to_owned(), "-".to_owned()];
            table.row(row.into_iter().chain([shown(ours(what)), String::new()]));
        }
    }
    let sum =
        |of: fn(&sizing::PlanTerm) -> Option<f64>| number(plan.terms.iter().filter_map(of).sum());
    table.row([
        "  sum".to_owned(),
        sum(|term| term.month),
        sum(|term| term.list),
        number(cluster.month),
        String::new(),
    ]);
    format!(
        "The plan of {} for the same load, beside this one, in {} a month:\n\n{table}  {}\n",
        plan.name, prices.currency, plan.source
    )
}

/// Whose prices they are besides those of machines and of space on disks.
fn sources(prices: &Prices, purchase: &Purchase<'_>) -> Vec<String> {
    let estimate = |pricing: &Pricing| {
        if pricing.estimate {
            " (an estimate)"
        } else {
            ""
        }
    };
    let asked = purchase.pricing.map(|pricing| {
        let share = pricing.share * 100.0;
        format!(
            "{}: {share:.0} % of the list price{}, {}",
            pricing.name,
            estimate(pricing),
            pricing.source
        )
    });
    let others = [
        &prices.disk_operations.source,
        &prices.disk_throughput.source,
        &prices.zone_traffic.source,
    ];
    let others = others.into_iter().filter(|source| !source.is_empty());
    asked.into_iter().chain(others.cloned()).collect()
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
