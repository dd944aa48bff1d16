use proptest::prelude::*;

use super::*;
use crate::published::published;

fn read(name: &str) -> Plan {
    name.parse()
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn readings(name: &str) -> Vec<String> {
    match name.parse::<Plan>() {
        Err(NameError::Ambiguous(plans)) => plans.iter().map(ToString::to_string).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

/// Rows whose printed number of connections is not the sum of what their names say: two misprints, and
/// fan-outs whose one publisher is not counted.
fn has_misprinted_connections(row: &Published) -> bool {
    row.note.contains("prints 400.4k connections")
        || row.section == "clean fan-out"
        || row.scenario.starts_with("15k_15k") && row.scenario.ends_with("_1n_1v")
}

#[test]
fn every_row_is_read_as_its_columns_say() {
    for row in published() {
        let is_cold = row.section == "persistent cold start";
        let name = format!("{}{}", row.scenario, if is_cold { "_cold" } else { "" });
        let plan = match name.parse::<Plan>() {
            Ok(plan) => plan,
            // The standalone report has the name in a clean and in a persistent section.
            Err(NameError::Ambiguous(plans)) => {
                let rows = published().iter().filter(|other| other.scenario == name);
                assert_eq!(rows.count(), 2, "{name}");
                assert_eq!(plans.len(), 2, "{name}");
                let of_row = plans.into_iter().find(|plan| plan.published == Some(row));
                of_row.unwrap_or_else(|| panic!("{name} lacks a row's reading"))
            }
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(Plan::of_row(row).as_ref(), Some(&plan), "{name}");
        assert_eq!(plan.published, Some(row), "{name}");
        assert_eq!(plan.qos, row.qos.unwrap_or(QoS::AtMostOnce), "{name}");
        assert_eq!(plan.payload_len, row.payload_len.unwrap_or(0), "{name}");
        if row.product != "EMQX" {
            assert_eq!(plan.rate, row.rate.unwrap_or(0.0), "{name}");
        }
        if let Some(connections) = row.connections
            && !has_misprinted_connections(row)
        {
            assert_eq!(plan.connections(), connections, "{name}");
        }
        let kind = match plan.topology {
            Topology::Pairs { .. } => "frequency",
            Topology::Shared { .. } => "shared",
            Topology::FanOut { .. } => "fan-out",
            Topology::FanIn { .. } => "fan-in",
            Topology::Groups { .. } => "application subscribers",
            Topology::Idle { .. } => "million connections",
            Topology::Listed(_) => unreachable!("no name stands for one"),
        };
        let is_kind = row.section.ends_with(kind) || (kind == "frequency" && is_cold);
        assert!(is_kind, "{name}: {kind} in {}", row.section);
        if let Some(session) = ["clean", "persistent"]
            .into_iter()
            .find(|session| row.section.starts_with(session))
        {
            assert_eq!(plan.clean_session, session == "clean", "{name}");
        }
        // A broker delivers what the load asks for, or less if it cannot.
        if let Some(total) = row.total_per_second {
            assert!(plan.total_per_second() >= total, "{name}");
            assert!(plan.total_per_second() <= total * 1.5, "{name}");
        }
    }
}

#[test]
fn emqx_names_and_notes_tell_the_same_rates() {
    for row in published().iter().filter(|row| row.product == "EMQX") {
        let plan = read(row.scenario);
        let mut rates = row.scenario.split('-').skip(2).map(|rate| {
            let digits = rate.trim_end_matches(['k', 'K']);
            let unit = if digits == rate { 1.0 } else { 1e3 };
            digits.parse::<f64>().unwrap() * unit
        });
        assert_eq!(rates.next(), Some(plan.sent_per_second()), "{plan}");
        let out = plan.sent_per_second() * plan.topology.receivers_per_message();
        assert_eq!(rates.next(), Some(out), "{plan}");
        assert_eq!(plan.background, 100_000, "{plan}");
    }
}

#[test]
fn the_forms_of_the_reports() {
    let plan = read("30k_30k_qos1_p256_1mps_3n_3v");
    assert_eq!(plan.source, Source::BifroMqCluster);
    assert_eq!(plan.topology, Topology::Pairs { pairs: 30_000 });
    assert_eq!((plan.nodes, plan.voters), (3, Some(3)));
    assert!(!plan.clean_session);

    let plan = read("conn-tcp-1M-5K_1n_false");
    let connections = 1_000_000;
    assert_eq!(plan.topology, Topology::Idle { connections });
    assert_eq!(plan.connect_rate, Some(5_000.0));
    assert!(!plan.clean_session && plan.published.is_some());

    let plan = read("qos1-p10K-1-5k");
    assert_eq!(plan.to_string(), "qos1-p10k-1-5K");
    let plan = read("qos2-p256-7K-7K");
    let (publishers, members) = (700, 10);
    assert_eq!(
        plan.topology,
        Topology::Shared {
            publishers,
            members
        }
    );

    let plan = read("1.2k_1.2k_qos2_p32_50mps");
    assert_eq!(plan.rate, 100.0, "the table's column counts");

    let plan = read("100M publishers, 500 APPLICATION subscribers, 1 h");
    assert_eq!(plan.sent_per_second().round(), 3e6);
    assert_eq!(plan.connect_rate, Some(22_000.0));
}

#[test]
fn names_outside_the_tables_are_read_where_only_one_reading_is_left() {
    let plan = read("500_5_qos1_p64_2mps_3n");
    let (publishers, members) = (500, 5);
    assert_eq!(
        plan.topology,
        Topology::Shared {
            publishers,
            members
        }
    );
    assert!(plan.clean_session && plan.published.is_none());
    assert_eq!(plan.to_string(), "share_true_500_5_qos1_p64_2mps_3n");
    let plan = read("fanout_false_1_50_qos1_p64_0.5mps");
    assert_eq!(plan.rate, 0.5);
    assert!(!plan.clean_session);
    assert_eq!(plan.source, Source::BifroMqStandalone);
}

#[test]
fn a_name_of_two_tables_is_refused_with_both() {
    assert_eq!(
        readings("100_100_qos0_p1024_50mps"),
        [
            "true_100_100_qos0_p1024_50mps",
            "false_100_100_qos0_p1024_50mps"
        ]
    );
    let error = "100_100_qos0_p1024_50mps".parse::<Plan>().unwrap_err();
    assert_eq!(error.to_string().lines().count(), 3, "{error}");
}

#[test]
fn what_numbers_leave_open_is_refused() {
    assert_eq!(
        readings("5_70_qos0_p32_1mps_1n"),
        [
            "fanout_true_5_70_qos0_p32_1mps_1n",
            "share_true_5_70_qos0_p32_1mps_1n"
        ]
    );
    assert_eq!(
        readings("false_5_70_qos0_p32_1mps"),
        [
            "fanout_false_5_70_qos0_p32_1mps",
            "share_false_5_70_qos0_p32_1mps"
        ]
    );
    assert_eq!(readings("70_70_qos0_p32_1mps").len(), 4);
}

#[test]
fn wrong_names_say_what_is_wrong() {
    let part = |name: &str| match name.parse::<Plan>() {
        Err(NameError::Part { part, .. }) => part,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(part("x_2k_qos0_p32_1mps"), "x");
    assert_eq!(part("0_2k_qos0_p32_1mps"), "0");
    assert_eq!(part("1.2345k_2k_qos0_p32_1mps"), "1.2345k");
    assert_eq!(part("2k_2k_qos3_p32_1mps"), "qos3");
    assert_eq!(part("2k_2k_qos0_32_1mps"), "32");
    assert_eq!(part("2k_2k_qos0_p32_0mps"), "0mps");
    assert_eq!(part("2k_2k_qos0_p32_1mps_0n"), "0n");
    assert_eq!(part("conn-tcp-1M-5K_1n_maybe"), "maybe");
    for (name, error) in [
        ("", NameError::UnknownForm),
        ("2k_2k", NameError::UnknownForm),
        ("qos0-p256-41K-0", NameError::Unlisted),
        ("2k_2k_qos0_p32_1mps_1n_3v", NameError::Voters),
        ("true_2k_2k_qos0_p32_1mps_3n_3v", NameError::Voters),
    ] {
        assert_eq!(name.parse::<Plan>(), Err(error), "{name}");
    }
}

#[test]
fn scaling_keeps_at_least_one_of_each() {
    let plan = read("qos0-p256-4-40K").scaled(0.01, 0.5);
    let (publishers, subscribers) = (4, 100);
    assert_eq!(
        plan.topology,
        Topology::FanOut {
            publishers,
            subscribers
        }
    );
    assert_eq!((plan.background, plan.rate), (1_000, 0.5));
    let plan = read("100k_1000_qos0_p256_1mps_1n").scaled(1e-4, 1.0);
    let (publishers, members) = (10, 1);
    assert_eq!(
        plan.topology,
        Topology::Shared {
            publishers,
            members
        }
    );
}

/// Names of the right form, with parts that are mostly right.
fn near_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        concat!(
            "(share_|fanout_)?(true_|false_)?",
            "[1-9][0-9]{0,3}(\\.[0-9]{1,3})?[kKmM]?_[1-9][0-9]{0,5}k?",
            "_qos[0-2]_p[1-9][0-9]{0,4}_[1-9][0-9]{0,2}(\\.[0-9]{1,4})?mps(_[1-5]n(_[1-5]v)?)?"
        ),
        "conn-tcp-[0-9.]{1,5}[kKmM]?-[0-9]{1,4}[kK]?_[0-9]n_(true|false)",
        "qos[0-3]-p[0-9]{1,3}[kK]?-[0-9]{1,2}[kK]?-[0-9]{1,2}[kK]?",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_name_panics_and_each_plan_is_read_back(name in near_name()) {
        let plans = match name.parse::<Plan>() {
            Ok(plan) => vec![plan],
            Err(NameError::Ambiguous(plans)) => plans,
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                Vec::new()
            }
        };
        for plan in plans {
            prop_assert_eq!(plan.to_string().parse::<Plan>(), Ok(plan.clone()));
        }
    }
}

#[test]
fn every_plan_of_the_tables_is_read_back() {
    for plan in published().iter().filter_map(Plan::of_row) {
        assert_eq!(plan.to_string().parse::<Plan>(), Ok(plan));
    }
}

#[test]
fn a_cold_start_is_the_same_load_with_the_row_of_its_section() {
    let (warm, cold) = (
        read("30k_30k_qos1_p256_1mps_3n_1v"),
        read("30k_30k_qos1_p256_1mps_3n_1v_cold"),
    );
    let section = |plan: &Plan| plan.published.map(|row| row.section);
    assert_eq!(section(&warm), Some("persistent low-frequency"));
    assert_eq!(section(&cold), Some("persistent cold start"));
    assert_eq!(cold.to_string(), format!("{warm}_cold"));
    assert!(cold.is_cold && !warm.is_cold);
    let same = Plan {
        published: warm.published,
        name: warm.name.clone(),
        is_cold: false,
        ..cold.clone()
    };
    assert_eq!(same, warm);
    assert!(
        cold.reading()
            .ends_with("persistent sessions, on a new data folder")
    );
    assert_eq!(read(&cold.to_string()), cold);
}

#[test]
fn every_name_can_be_cold_once() {
    for row in published() {
        let Some(warm) = Plan::of_row(row).filter(|plan| !plan.is_cold) else {
            continue;
        };
        let cold = read(&format!("{warm}_cold"));
        assert_eq!((&cold.topology, cold.rate), (&warm.topology, warm.rate));
        let has_row = warm.to_string() == "false_30k_30k_qos1_p256_1mps_3n_1v";
        assert_eq!(cold.published.is_some(), has_row, "{cold}");
        assert_eq!(read(&cold.to_string()), cold);
    }
    let twice = "30k_30k_qos1_p256_1mps_3n_1v_cold_cold";
    assert!(twice.parse::<Plan>().is_err());
    let names = readings("5k_5k_qos1_p16_1mps_cold");
    assert!(
        names.len() > 1 && names.iter().all(|name| name.ends_with("_cold")),
        "{names:?}"
    );
}
