use std::fs;

use super::*;

const BROKER: &str = "brokers:\n- { name: a, address: localhost:1883 }\n";

fn parse(text: &str) -> Result<Document, String> {
    yaml::parse(text)
}

/// The only broker of a suite.
fn broker(keys: &str) -> Result<Broker, String> {
    let text = format!("brokers:\n- {keys}\nruns: [2k_2k_qos0_p32_100mps_1n]\n");
    let mut brokers = parse(&text)?.brokers;
    Ok(brokers.remove(0))
}

#[test]
fn brokers_are_started_or_run_already() {
    let started = broker(
        "{ name: a, command: [x, -c, \"{dir}/c\"], files: { c: \"port 1\\n\" }, address: localhost:1 }",
    );
    let launch = Launch {
        command: ["x", "-c", "{dir}/c"].map(str::to_owned).to_vec(),
        files: BTreeMap::from([("c".to_owned(), "port 1\n".to_owned())]),
    };
    let started = started.unwrap();
    assert_eq!(started.source, Source::Launch(launch));
    assert_eq!(started.addresses, ["localhost:1"]);

    let running =
        broker("{ name: a, address: [a:1, b:2], pid: 12, metrics: [http://a, http://b] }");
    let watched = Watched {
        pid: vec![Pids::Given(vec![12])],
        metrics: vec!["http://a".to_owned(), "http://b".to_owned()],
    };
    let running = running.unwrap();
    assert_eq!(running.source, Source::Running(watched));
    assert_eq!(running.addresses, ["a:1", "b:2"]);
}

#[test]
fn a_run_is_a_name_or_keys_which_override_the_defaults() {
    let folder = std::env::temp_dir().join(format!("heraldmq-suite-file-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("nightly.yml");
    let text = format!(
        "defaults: {{ scale: 1/100, duration: 5s, workers: 2, protocol: 3.1.1 }}\n{BROKER}runs:\n\
         - 2k_2k_qos0_p32_100mps_1n\n\
         - {{ scenario: own.yml, scale: 1/2, duration: 1s, warm_up: 0s, protocol: 5.0 }}\n"
    );
    fs::write(&path, text).unwrap();
    fs::write(
        folder.join("own.yml"),
        "parts:\n- background: { connections: 10 }\n",
    )
    .unwrap();
    let suite = SuiteFile::read(&path);
    fs::remove_dir_all(&folder).unwrap();
    let suite = suite.unwrap();
    assert_eq!((suite.title.as_str(), suite.repeat), ("nightly", 1));
    let [named, own] = suite.turns.as_slice() else {
        panic!("{:?}", suite.turns);
    };
    assert_eq!(named.scenario.plan().map(Plan::connections), Some(40));
    assert_eq!(
        (named.duration, named.warm_up),
        (Duration::from_secs(5), WARM_UP)
    );
    assert_eq!(named.workers, Some(2));
    assert_eq!(named.protocol, ProtocolVersion::V3_1_1);

    let Scenario::File { name, workload, .. } = &own.scenario else {
        panic!("{own:?}");
    };
    assert_eq!((name.as_str(), workload.connections()), ("own", 5));
    assert_eq!(own.duration, Duration::from_secs(1));
    assert_eq!(own.warm_up, Duration::ZERO);
    assert_eq!((own.workers, own.protocol), (Some(2), ProtocolVersion::V5));
}

#[test]
fn what_is_wrong_with_a_run_is_said_with_line_and_key() {
    for (run, expected) in [
        ("nonsense", ":4: runs[0]: nonsense: no report names"),
        (
            "{ scenario: nonsense }",
            ":4: runs[0].scenario: nonsense: no report names",
        ),
        ("{ scale: 1/2 }", ":4: runs[0]: `scenario` is missing"),
        (
            "{ scenario: x.yml, sclae: 1/2 }",
            ":4: runs[0].sclae: unknown key \"sclae\"; the nearest is `scale`",
        ),
        (
            "{ scenario: x.yml, scale: 2 }",
            ":4: runs[0].scale: expected a share",
        ),
        (
            "{ scenario: x.yml, duration: 0s }",
            ":4: runs[0].duration: must be above 0",
        ),
        (
            "{ scenario: x.yml, protocol: 4 }",
            ":4: runs[0].protocol: expected 3.1, 3.1.1 or 5.0",
        ),
        ("{ scenario: x.yml, workers: 0 }", ":4: runs[0].workers: "),
        ("[x]", ":4: runs[0]: "),
    ] {
        let error = parse(&format!("{BROKER}runs:\n- {run}\n")).unwrap_err();
        assert!(error.starts_with(expected), "{run}: {error}");
    }
}

#[test]
fn what_is_wrong_with_a_broker_is_said_with_line_and_key() {
    for (keys, expected) in [
        ("{ name: a }", ":2: brokers[0]: `address` is missing"),
        (
            "{ name: a, address: localhost }",
            ":2: brokers[0].address: expected HOST:PORT",
        ),
        (
            "{ name: a, address: [] }",
            ":2: brokers[0].address: the list is empty",
        ),
        (
            "{ name: a, adress: a:1 }",
            ":2: brokers[0].adress: unknown key \"adress\"; the nearest is `address`",
        ),
        (
            "{ name: a, address: a:1, pid: me }",
            ":2: brokers[0].pid: invalid digit",
        ),
        (
            "{ name: a, address: a:1, command: [] }",
            ":2: brokers[0]: \"a\": `command` is empty",
        ),
        (
            "{ name: a, address: a:1, command: [x], pid: 1 }",
            ":2: brokers[0]: \"a\": `pid` and `metrics`",
        ),
        (
            "{ name: a, address: a:1, command: [x], files: { ../c: y } }",
            ":2: brokers[0]: \"a\": `files` have names",
        ),
        (
            "{ name: a, address: a:1, files: { c: y } }",
            ":2: brokers[0]: \"a\": `files` are for",
        ),
    ] {
        let error = broker(keys).unwrap_err();
        assert!(error.starts_with(expected), "{keys}: {error}");
    }
}

#[test]
fn a_suite_has_brokers_and_runs_that_can_be_told_apart() {
    let run = "runs: [2k_2k_qos0_p32_100mps_1n]\n";
    let twice = BROKER.replace("brokers:\n", "") + run;
    for (text, expected) in [
        (format!("brokers: []\n{run}"), "a suite needs at least one"),
        (format!("{BROKER}runs: []\n"), "a suite needs at least one"),
        (format!("{BROKER}{twice}"), "two brokers are named \"a\""),
        (
            format!("defaults: {{ scenario: x.yml }}\n{BROKER}{run}"),
            "`defaults` names no scenario",
        ),
        (format!("repeat: 0\n{BROKER}{run}"), "repeat"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
