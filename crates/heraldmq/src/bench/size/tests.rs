use clap::Parser;

use super::*;
use sizing::Needs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/sizing.md");

const LIST_PRICES: Purchase<'_> = Purchase {
    pricing: None,
    zones: 1.0,
};

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
}

fn arguments(line: &[&str]) -> Result<Arguments, String> {
    let line = ["size"].iter().chain(line);
    let cli = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
    Ok(cli.arguments)
}

fn demand(line: &[&str]) -> Demand {
    arguments(line).unwrap().demand().unwrap().0
}

fn built_in() -> (Slopes, Prices) {
    (
        built_in_or(None, SLOPES).unwrap(),
        built_in_or(None, PRICES).unwrap(),
    )
}

fn printed(line: &[&str]) -> String {
    let arguments = arguments(line).unwrap();
    let (demand, title) = arguments.demand().unwrap();
    let (slopes, prices) = built_in();
    let purchase = arguments.purchase(&demand, &prices).unwrap();
    answer(&title, &demand, &slopes, &prices, &purchase).unwrap()
}

#[test]
fn a_scenario_says_what_is_asked_for() {
    let of = demand(&["15k_15k_qos1_p256_1mps_3n_3v"]);
    let expected = Demand {
        connections: 30_000.0,
        sessions: 15_000.0,
        publishes_per_s: 15_000.0,
        deliveries_per_s: 15_000.0,
        durable_per_s: 15_000.0,
        quality: Quality::AtLeastOnce,
        payload_bytes: 256.0,
        voters: 3.0,
        may_fail: 1.0,
        ..Demand::default()
    };
    assert_eq!(of, expected);
    let fan_out = demand(&["1_300000_qos0_p256_1mps_3n"]);
    assert_eq!(
        (fan_out.publishes_per_s, fan_out.deliveries_per_s),
        (1.0, 300_000.0)
    );
    assert_eq!((fan_out.voters, fan_out.may_fail), (1.0, 0.0));
    let idle = demand(&["conn-tcp-1M-5K_1n_true"]);
    assert_eq!((idle.connections, idle.connects_per_s), (1e6, 5_000.0));
    assert_eq!(idle.deliveries_per_s, 0.0);
}

#[test]
fn options_change_what_a_scenario_says() {
    let of = demand(&[
        "15k_15k_qos1_p256_1mps_3n_3v",
        "--fan-out",
        "2",
        "--durable",
        "0.5",
        "--retention",
        "100s",
        "--away",
        "0.1",
        "--may-fail",
        "2",
    ]);
    assert_eq!(
        (of.deliveries_per_s, of.durable_per_s),
        (30_000.0, 15_000.0)
    );
    assert_eq!((of.queued, of.voters, of.may_fail), (150_000.0, 5.0, 2.0));
    let alone = demand(&["--connections", "10k", "--publish-rate", "5k", "--qos", "2"]);
    assert_eq!(
        (alone.deliveries_per_s, alone.durable_per_s),
        (5_000.0, 0.0)
    );
    assert_eq!((alone.quality, alone.voters), (Quality::ExactlyOnce, 1.0));
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    for (line, why) in [
        (
            &["--publish-rate", "5", "--durable", "1"][..],
            "needs --qos 1 or 2",
        ),
        (
            &[
                "--publish-rate",
                "5",
                "--qos",
                "1",
                "--durable",
                "1",
                "--voters",
                "1",
                "--may-fail",
                "1",
            ],
            "--voters 3",
        ),
        (&["nonsense"], "nonsense"),
    ] {
        let failure = arguments(line).unwrap().demand().unwrap_err();
        let Failure::Usage(message) = failure else {
            panic!("{failure:?}");
        };
        assert!(message.contains(why), "{message}");
    }
    for line in [
        ["--voters", "2"],
        ["--durable", "1.1"],
        ["--fan-out", "-1"],
        ["--fan-out", "inf"],
    ] {
        assert!(arguments(&line).is_err(), "{line:?}");
    }
    let (slopes, prices) = built_in();
    let endless = Demand {
        publishes_per_s: 1e12,
        ..Demand::default()
    };
    assert!(answer("", &endless, &slopes, &prices, &LIST_PRICES).is_err());
}

#[test]
fn the_answer_names_slopes_and_their_place() {
    let text = printed(&["15k_15k_qos1_p256_1mps_3n_3v"]);
    for word in [
        "durable_us",
        "durable/s x (voters - 1)",
        "replica_us",
        "cores",
        "USD",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (slopes, prices) = built_in();
    assert!(
        text.contains(&slopes.measured) && text.contains(&prices.source),
        "{text}"
    );
}

/// As a shell divides a line: what is in double quotes is one word.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (number, part) in line.split('"').enumerate() {
        if number % 2 == 1 {
            words.push(part);
        } else {
            words.extend(part.split_whitespace());
        }
    }
    words
}

/// What the page shows is what the command prints.
#[test]
fn the_sizing_page_shows_what_is_printed() {
    const BEGIN: &str = "```console\n$ heraldmq size ";
    let page = std::fs::read_to_string(PAGE).unwrap();
    let mut wanted = String::new();
    let mut rest = page.as_str();
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let (line, behind) = behind.split_once('\n').unwrap();
        let (_, behind) = behind.split_once("```\n").unwrap();
        let words = words(line);
        wanted += &format!("{before}{BEGIN}{line}\n{}```\n", printed(&words));
        rest = behind;
    }
    wanted += rest;
    assert!(wanted.matches(BEGIN).count() >= 5);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
    } else {
        assert_eq!(
            page, wanted,
            "UPDATE_GENERATED=1 cargo test -p heraldmq sizing_page"
        );
    }
}

/// The sum of the cheapest cluster, of the way to pay that is asked for.
fn sum(line: &[&str]) -> f64 {
    let text = printed(line);
    let row = text
        .lines()
        .find(|row| row.trim_start().starts_with("sum "));
    let word = row.unwrap().split_whitespace().nth(1).unwrap();
    word.replace(',', "").parse().unwrap()
}

#[test]
fn ways_to_pay_and_zones_change_what_a_month_costs() {
    const NAME: &str = "15k_15k_qos1_p256_1mps_3n_3v";
    let list = sum(&[NAME, "--zones", "1"]);
    for pricing in ["reserved-1y", "reserved-3y", "savings-1y", "spot"] {
        let less = sum(&[NAME, "--zones", "1", "--pricing", pricing]);
        assert!(less < list, "{pricing}: {less}, {list}");
        let text = printed(&[NAME, "--pricing", pricing]);
        assert!(text.contains("(an estimate)"), "{text}");
    }
    // Three voters: a node may fail, so that nodes are in three zones.
    assert_eq!(sum(&[NAME]), sum(&[NAME, "--zones", "3"]));
    assert!(sum(&[NAME]) > list);
    let text = printed(&[NAME]);
    let cheapest = text.lines().find(|line| line.starts_with("c7g.large "));
    let traffic = text
        .lines()
        .find(|line| line.starts_with("  traffic between zones "));
    let traffic = traffic.and_then(|line| line.split_whitespace().last());
    let traffic: f64 = traffic.unwrap().parse().unwrap();
    let share = (traffic / sum(&[NAME]) * 100.0).round();
    let shown = format!("{share} % of it");
    assert!(cheapest.unwrap().ends_with(&shown), "{shown}: {text}");
    let text = printed(&[NAME, "--zones", "1"]);
    assert!(!text.contains("traffic between zones"), "{text}");
}

#[test]
fn a_way_to_pay_that_the_list_has_not_is_refused() {
    let arguments = arguments(&["--connections", "5", "--pricing", "lease"]).unwrap();
    let (demand, _) = arguments.demand().unwrap();
    let (_, mut prices) = built_in();
    let Err(Failure::Usage(message)) = arguments.purchase(&demand, &prices) else {
        panic!("it is taken");
    };
    assert!(message.contains("list, reserved-1y"), "{message}");
    prices.pricings[0].share = 0.0;
    assert!(arguments.purchase(&demand, &prices).is_err());
}

#[test]
fn a_price_list_without_ways_to_pay_is_enough() {
    let text = "{ source: ours, currency: EUR, disk_gib_month: 1, machines: \
                [{ name: own, cores: 8, memory_gib: 16, network_gbps: 1, month: 10 }] }";
    let prices: Prices = yaml::parse(text).unwrap();
    let (slopes, _) = built_in();
    let text = answer(
        "",
        &demand(&["--connections", "5"]),
        &slopes,
        &prices,
        &LIST_PRICES,
    );
    assert!(text.unwrap().contains("30 EUR"));
}

#[test]
fn the_plan_of_a_report_stands_beside_the_cluster() {
    let text = printed(&["100M publishers, 500 APPLICATION subscribers, 1 h"]);
    for word in [
        "26,573",
        "m6g.metal",
        "Kafka",
        "not counted",
        "this cluster, list",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!printed(&["15k_15k_qos1_p256_1mps_3n_3v"]).contains("Kafka"));
}

#[test]
fn values_of_the_chart_are_for_pods() {
    let line = ["15k_15k_qos1_p256_1mps_3n_3v", "--values"];
    let (demand, title) = arguments(&line).unwrap().demand().unwrap();
    let (slopes, prices) = built_in();
    let cluster = &fitting(&demand, &slopes, &prices, &LIST_PRICES).unwrap()[0];
    let text = values::values(&title, &demand, &slopes, cluster);
    let values: serde_json::Value = yaml::parse(&text).unwrap();
    assert_eq!(values["replicas"].as_f64(), Some(cluster.nodes), "{text}");
    let resources = &values["resources"];
    let amount = |of: &str, what: &str, unit| {
        let amount = resources[of][what].as_str().unwrap();
        let digits = amount.strip_suffix(unit).unwrap();
        digits.parse::<f64>().unwrap()
    };
    assert_eq!(
        resources["requests"]["memory"],
        resources["limits"]["memory"]
    );
    assert!(resources["limits"]["cpu"].is_null());
    // A pod fits into one of the machines.
    let cpu = amount("requests", "cpu", "m");
    assert!(
        (250.0..=cluster.machine.cores * 1000.0).contains(&cpu),
        "{text}"
    );
    let memory = amount("requests", "memory", "Mi");
    assert!(
        (512.0..=cluster.machine.memory_gib * 1024.0).contains(&memory),
        "{text}"
    );
    let used = Needs::of(&demand, &slopes, cluster.nodes).sum(sizing::Resource::Cores);
    assert!(cpu * (cluster.nodes - demand.may_fail) * sizing::USED_MOST >= used * 1000.0);
    let disk = format!("{}Gi", cluster.disk_gib);
    assert_eq!(values["storage"]["size"], disk.as_str());
}
