//! `heraldmq cluster` against a node that is made up: what it asks, what it prints, how it ends.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread;

use serde_json::{Value, json};

/// One request as it came.
struct Asked {
    /// Method and path.
    what: String,
    authorization: Option<String>,
    body: Value,
}

/// Runs the command against a node that gives one answer.
fn cluster(arguments: &[&str], status: &str, answer: &str) -> (Output, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
        answer.len()
    );
    let node = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the command connects");
        let asked = read(BufReader::new(&stream));
        stream.write_all(answer.as_bytes()).expect("it listens");
        asked
    });
    let output = run(&[&["--url", &url], arguments].concat());
    (output, node.join().expect("the request is understood"))
}

/// `--url` and the like stand behind the subcommand.
fn run(arguments: &[&str]) -> Output {
    let (url, rest) = arguments.split_at(2);
    let words = rest
        .iter()
        .take_while(|word| **word == "upgrade" || **word == "finish");
    let (subcommand, behind) = rest.split_at(words.count().max(1));
    Command::new(env!("CARGO_BIN_EXE_heraldmq"))
        .arg("cluster")
        .args([subcommand, url, behind].concat())
        .output()
        .expect("the command runs")
}

fn read(mut stream: impl BufRead) -> Asked {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a request");
        line.trim_end().to_owned()
    };
    let what = line().trim_end_matches(" HTTP/1.1").to_owned();
    let (mut authorization, mut length) = (None, 0);
    loop {
        let header = line();
        match header.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                authorization = Some(value.to_owned());
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().expect("a number");
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Asked {
        what,
        authorization,
        body,
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn state() -> Value {
    let (one, two) = ("0000000000000001", "5f3a90c2d1e4b867");
    json!({
        "cluster": "00000000000000ff", "env": "Test", "node": one,
        "level": {"lowest": 3, "highest": 3, "possible": 3, "known": 4, "changes": [{"level": 4, "programs": "0.1.0", "changes": "all"}],
                  "held_up_by": [{"node": two, "name": "", "version": "0.0.9", "reason": "it knows the levels up to 3"}]},
        "nodes": [
            {"node": one, "name": "rack-1", "address": "10.0.0.1:8899", "state": "up", "reach": "up",
             "version": "0.1.0", "commit": "1f2e3d4", "levels": "3", "incarnation": 3, "connections": 12, "clock_offset_ms": -600_020},
            {"node": two, "address": "10.0.0.2:8899", "state": "draining", "reach": "suspect",
             "version": "0.1.0", "incarnation": 1},
        ],
        "shards": [
            {"store": "session", "shard": 0, "first": 0, "last": 32_767, "version": 2, "leader": one, "voters": [one, two],
             "learners": [], "term": 7,
             "load": {"propose_us": 20_000, "apply_us": 100_000, "read_us": 3_400, "requests": 512,
                      "wait_us": 800, "log_bytes": 9_000, "half": {"slot": 30_720, "below": 49}},
             "split": {"decision": "one_slot", "reason": "slot 7 alone has most of it", "names": ["boiler"], "seconds": 4}},
            {"store": "inbox", "shard": 1, "leader": null, "voters": [one], "learners": [two],
             "term": 8},
        ],
    })
}

#[test]
fn an_upgrade_is_finished_unless_a_node_holds_it_up() {
    let (output, asked) = cluster(
        &["upgrade", "finish", "--dry-run"],
        "200 OK",
        &state().to_string(),
    );
    assert_eq!(asked.what, "GET /api/v1/cluster");
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines,
        [
            "level 3 of 4 (held up by 1 of the nodes)",
            "level 4 (programs: 0.1.0): all",
            "held up by node 5f3a90c2d1e4b867 (?): it knows the levels up to 3",
        ]
    );
    assert!(text(&output.stderr).contains("the level cannot be raised"));
    let mut earlier = state();
    earlier.as_object_mut().expect("an object").remove("level");
    let (output, _) = cluster(&["upgrade", "finish"], "200 OK", &earlier.to_string());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("a version without levels"));
}

#[test]
fn the_state_is_printed_as_tables() {
    let (output, asked) = cluster(&["status"], "200 OK", &state().to_string());
    assert_eq!(asked.what, "GET /api/v1/cluster");
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    assert!(printed.starts_with(
        "cluster 00000000000000ff, env Test, level 3 of 4 (held up by 1 of the nodes)\n"
    ));
    let has_row = |cells: &[&str]| {
        let mut rows = printed
            .lines()
            .map(|line| line.split_whitespace().collect());
        assert!(
            rows.any(|row: Vec<&str>| row == cells),
            "no row {cells:?} in\n{printed}"
        );
    };
    has_row(&[
        "0000000000000001",
        "*",
        "rack-1",
        "10.0.0.1:8899",
        "up",
        "up",
        "12",
        "-600.0s",
        "0.1.0",
        "1f2e3d4",
        "3",
        "3",
    ]);
    has_row(&[
        "5f3a90c2d1e4b867",
        "?",
        "10.0.0.2:8899",
        "draining",
        "suspect",
        "?",
        "?",
        "0.1.0",
        "?",
        "?",
        "1",
    ]);
    has_row(&[
        "session",
        "0",
        "0-32767",
        "2",
        "0000000000000001",
        "0000000000000001",
        "5f3a90c2d1e4b867",
        "7",
        "12.3%",
        "512/s",
        "30720",
        "(49%)",
        "one_slot",
        "(boiler)",
    ]);
    has_row(&[
        "inbox",
        "1",
        "?",
        "?",
        "none",
        "0000000000000001",
        "5f3a90c2d1e4b867",
        "8",
        "-",
        "-",
        "-",
        "-",
    ]);
}

#[test]
fn the_state_is_printed_as_it_came() {
    let (output, _) = cluster(&["status", "--json"], "200 OK", &state().to_string());
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON"),
        state()
    );
}

#[test]
fn a_change_is_asked_for_with_the_token() {
    let token = std::env::temp_dir().join(format!("heraldmq-{}-token", std::process::id()));
    std::fs::write(&token, "secret\n").expect("the temporary folder is writable");
    let token = token.to_str().expect("UTF-8");
    let node = "5f3a90c2d1e4b867";
    let changes: [(&[&str], &str, Value); 8] = [
        (
            &["join", "10.0.0.1:8899"],
            "join",
            json!({"seed": "10.0.0.1:8899"}),
        ),
        (&["leave"], "leave", json!({})),
        (&["drain"], "drain", json!({})),
        (&["evict", node], "evict", json!({"node": node})),
        (
            &["evict", node, "--force"],
            "evict",
            json!({"node": node, "force": true}),
        ),
        (
            &["transfer-leader", "inbox", "3", node],
            "transfer-leader",
            json!({"store": "inbox", "shard": 3, "to": node}),
        ),
        (
            &["split", "inbox", "3"],
            "split",
            json!({"store": "inbox", "shard": 3, "at": null}),
        ),
        (
            &["split", "retain", "0", "--at", "65534"],
            "split",
            json!({"store": "retain", "shard": 0, "at": 65_534}),
        ),
    ];
    for (arguments, path, body) in changes {
        let arguments = [arguments, &["--token-file", token]].concat();
        let (output, asked) = cluster(&arguments, "204 No Content", "");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(asked.what, format!("POST /api/v1/cluster/{path}"));
        assert_eq!(asked.authorization.as_deref(), Some("Bearer secret"));
        assert_eq!(asked.body, body);
        assert!(output.stdout.is_empty());
    }
    std::fs::remove_file(token).expect("it is there");
}

#[test]
fn a_refusal_is_passed_on() {
    let (output, _) = cluster(&["drain"], "409 Conflict", "this node runs alone\n");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("409 Conflict: this node runs alone"),
        "{said}"
    );
}

#[test]
fn nobody_there_is_a_failure() {
    let output = run(&["--url", "http://127.0.0.1:1", "status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("http://127.0.0.1:1/api/v1/cluster"));
}

#[test]
fn wrong_command_lines_are_refused() {
    for wrong in [
        &["evict"][..],
        &["join", "10.0.0.1"],
        &["transfer-leader", "outbox", "0", "1"],
        &["transfer-leader", "inbox", "zero", "1"],
    ] {
        let output = run(&[&["--url", "http://127.0.0.1:1"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
