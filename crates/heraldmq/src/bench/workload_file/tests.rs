use super::*;

fn parse(text: &str) -> Result<Document, String> {
    yaml::parse(text)
}

fn part(text: &str) -> Part {
    let document = parse(&format!("parts:\n- {text}\n"));
    let mut parts = document.map(|document| document.parts);
    match parts.as_mut().map(Vec::pop) {
        Ok(Some(part)) => part,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn each_kind_of_part_becomes_its_activity() {
    let messages = |topology, per_second| Messages {
        topology,
        payload_len: 64,
        qos: QoS::AtMostOnce,
        pace: Pace::Open { per_second },
        clean_session: true,
        retain: false,
        read_rate: None,
    };
    for (text, kind, activity) in [
        (
            "background: { connections: 10k }",
            "background",
            Activity::Background {
                connections: 10_000,
            },
        ),
        (
            "pairs: { pairs: 500, rate: 10, payload: 64 }",
            "pairs",
            Activity::Messages(messages(Topology::Pairs { pairs: 500 }, 5_000.0)),
        ),
        (
            "fan-out: { publishers: 2, subscribers: 1k, rate: 0.5, payload: 64 }",
            "fan-out",
            Activity::Messages(messages(
                Topology::FanOut {
                    publishers: 2,
                    subscribers: 1_000,
                },
                1.0,
            )),
        ),
        (
            "fan-in: { publishers: 100, rate: 1k, payload: 64, qos: 1 }",
            "fan-in",
            Activity::Messages(Messages {
                qos: QoS::AtLeastOnce,
                ..messages(Topology::FanIn { publishers: 100 }, 100_000.0)
            }),
        ),
        (
            "shared: { publishers: 100, subscribers: 10, window: 4, payload: 64, retain: true }",
            "shared",
            Activity::Messages(Messages {
                pace: Pace::Closed { window: 4 },
                retain: true,
                ..messages(
                    Topology::Shared {
                        publishers: 100,
                        members: 10,
                    },
                    0.0,
                )
            }),
        ),
        (
            "groups: { publishers: 10, subscribers: 5, rate: 1, payload: 64, qos: 2, \
             clean_session: false, read_rate: 10KiB }",
            "groups",
            Activity::Messages(Messages {
                qos: QoS::ExactlyOnce,
                clean_session: false,
                read_rate: Some(10_240),
                ..messages(
                    Topology::Groups {
                        publishers: 10,
                        groups: 5,
                    },
                    10.0,
                )
            }),
        ),
        (
            "churn: { connections: 1k, per_second: 100, subscribe: true, abrupt: true }",
            "churn",
            Activity::Churn(Churn {
                connections: 1_000,
                per_second: 100.0,
                subscribe: true,
                abrupt: true,
                clean_session: true,
            }),
        ),
        (
            "wills: { connections: 200, per_second: 20, payload: 32, qos: 1 }",
            "wills",
            Activity::Wills(Wills {
                connections: 200,
                per_second: 20.0,
                payload_len: 32,
                qos: QoS::AtLeastOnce,
            }),
        ),
        (
            "retained: { topics: 500, readers: 20, per_second: 10, payload: 128 }",
            "retained",
            Activity::Retained(Retained {
                topics: 500,
                payload_len: 128,
                qos: QoS::AtMostOnce,
                readers: 20,
                per_second: 10.0,
            }),
        ),
    ] {
        assert_eq!(part(text), Part::new(kind, activity), "{text}");
    }
}

#[test]
fn a_part_has_a_time_and_a_connect_rate_of_its_own() {
    let text = "{ background: { connections: 1 }, name: x, from: 10s, for: 1m, connect_rate: 100 }";
    let part = part(text);
    assert_eq!(part.name, "x");
    assert_eq!((part.from_s, part.for_s), (10.0, Some(60.0)));
    assert_eq!(part.connect_rate, Some(100.0));
}

#[test]
fn parts_without_a_name_get_one_that_no_other_has() {
    let document = parse(
        "parts:\n\
         - background: { connections: 1 }\n\
         - background: { connections: 1 }\n\
         - background: { connections: 1 }\n  name: background-2\n\
         - background: { connections: 1 }\n",
    );
    let parts = document.unwrap().parts;
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(
        names,
        ["background", "background-3", "background-2", "background-4"]
    );
}

#[test]
fn what_is_wrong_is_said_with_line_and_key() {
    for (part, expected) in [
        (
            "pairs: { pairs: 5, rat: 1, payload: 64 }",
            ":2: parts[0].pairs.rat: unknown key \"rat\"; the nearest is `rate`",
        ),
        (
            "pair: { pairs: 5 }",
            ":2: parts[0].pair: unknown key \"pair\"; the nearest is `pairs`",
        ),
        (
            "fan-in: { publishers: 5, subscribers: 1, rate: 1, payload: 64 }",
            ":2: parts[0].fan-in.subscribers: unknown key",
        ),
        (
            "pairs: { pairs: 5, rate: 1 }",
            ":2: parts[0].pairs: `payload` is missing",
        ),
        (
            "pairs: { pairs: 5, payload: 64 }",
            ":2: parts[0]: pairs: it needs either `rate` or `window`",
        ),
        (
            "pairs: { pairs: 5, payload: 64, rate: 1, window: 1 }",
            ":2: parts[0]: pairs: it needs either `rate` or `window`",
        ),
        (
            "groups: { publishers: 5, subscribers: 0, rate: 1, payload: 64 }",
            ":2: parts[0]: groups: each kind of client must be at least 1",
        ),
        (
            "pairs: { pairs: 5, rate: 1, payload: 8 }",
            ":2: parts[0]: pairs: a payload needs at least 16 bytes",
        ),
        (
            "pairs: { pairs: 5, rate: 1, payload: 64, qos: 3 }",
            ":2: parts[0].pairs.qos: expected 0, 1 or 2",
        ),
        (
            "pairs: { pairs: 5, rate: 1, payload: 64, read_rate: 0 }",
            ":2: parts[0]: pairs: `read_rate` is bytes per second",
        ),
        (
            "pairs: { pairs: many, rate: 1, payload: 64 }",
            ":2: parts[0].pairs.pairs: expected a count such as 500, 10k or 1M, found \"many\"",
        ),
        (
            "{ background: { connections: 1 }, for: 0s }",
            ":2: parts[0]: background: its times",
        ),
        (
            "{ background: { connections: 1 }, from: 10 }",
            ":2: parts[0].from: expected a time",
        ),
        (
            "{ background: { connections: 1 }, churn: { connections: 1, per_second: 1 } }",
            ":2: parts[0]: a part is exactly one of",
        ),
        ("name: x", ":2: parts[0]: a part is exactly one of"),
        (
            "{ background: { connections: 1 }, tls: true }",
            ":2: parts[0].tls: not there yet",
        ),
    ] {
        let error = parse(&format!("parts:\n- {part}\n")).unwrap_err();
        assert!(error.starts_with(expected), "{part}: {error}");
    }
    for (text, expected) in [
        ("parts: []\n", ": there is nothing to play"),
        ("name: x\n", ":1: `parts` is missing"),
        (
            "websocket: true\nparts:\n- background: { connections: 1 }\n",
            ":1: websocket: not there yet",
        ),
        (
            "parts:\n- { background: { connections: 1 }, name: x }\n- { background: { connections: 1 }, name: x }\n",
            ": x: a part's name must be its own",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

/// Code blocks of a language on the page of the formats.
fn examples(language: &str) -> Vec<String> {
    let page = include_str!("../../../../../docs/reference/workloads.md");
    let blocks = page.split("```").skip(1).step_by(2);
    let of_language = blocks.filter_map(|block| block.strip_prefix(language));
    of_language.map(str::to_owned).collect()
}

#[test]
fn the_examples_of_the_page_are_read() {
    let yaml = examples("yaml");
    let mut kinds: Vec<String> = Vec::new();
    for example in &yaml {
        let document = parse(example).unwrap_or_else(|error| panic!("{example}: {error}"));
        kinds.extend(document.parts.into_iter().map(|part| part.name));
    }
    for kind in ONE_KIND
        .split([' ', ','])
        .skip_while(|&word| word != "background")
    {
        let is_kind = !kind.is_empty() && kind != "and";
        assert!(!is_kind || kinds.iter().any(|k| k == kind), "{kind}");
    }
    let json = examples("json");
    assert_eq!(json.len(), 1);
    let test = loadtest::tbmq::Test::read(&json[0]).unwrap();
    let login = Login::new(ProtocolVersion::V5);
    let combined = loadtest::tbmq::combine(&[test], login).unwrap();
    assert_eq!(combined.workload.connections(), 201);
}
