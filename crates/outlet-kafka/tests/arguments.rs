//! The program as it is started.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs it with an argument and a standard input. Gives whether it succeeded, and what it complained.
fn run(argument: &str, input: &[u8]) -> (bool, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_heraldmq-outlet-kafka"))
        .arg(argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.stdout.is_empty());
    let complained = String::from_utf8(ended.stderr).unwrap();
    (ended.status.success(), complained)
}

#[test]
fn what_is_no_definition_and_no_node_is_told() {
    for (argument, input, why) in [
        ("check", &b"{"[..], "of another version than this program"),
        (
            "probe",
            b"{\"Outlet\":{}}",
            "of another version than this program",
        ),
        ("outlet-process", b"", "only a node starts this command"),
        ("serve", b"", "only heraldmq starts this program"),
    ] {
        let (is_fine, complained) = run(argument, input);
        assert!(
            !is_fine && complained.contains(why),
            "{argument}: {complained}"
        );
    }
}
