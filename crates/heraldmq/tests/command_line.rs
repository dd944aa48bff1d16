//! Exit codes and output of the command line that need no broker.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output},
};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heraldmq"))
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// A configuration file that lives as long as the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &str) -> Self {
        let path = env::temp_dir().join(format!("heraldmq-{}-{name}", std::process::id()));
        fs::write(&path, content).expect("the temporary folder is writable");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Left behind, it would disturb nobody.
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn version_and_help_go_to_standard_output() {
    let version = run(&["-V"]);
    assert_eq!(version.status.code(), Some(0));
    let first = concat!("heraldmq ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(text(&version.stdout), first);
    let version = run(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    let rest = text(&version.stdout).strip_prefix(first).expect(first);
    let keys: Vec<&str> = rest
        .lines()
        .filter_map(|line| Some(line.split_once(": ")?.0))
        .collect();
    assert_eq!(
        keys,
        [
            "commit",
            "target",
            "optimisation",
            "protocol",
            "levels",
            "features"
        ],
        "{rest}"
    );
    for command in ["serve", "check-config", "pub", "sub", "completions", "man"] {
        let help = run(&[command, "--help"]);
        assert_eq!(help.status.code(), Some(0), "{command}");
        assert!(text(&help.stdout).contains("Usage: heraldmq"), "{command}");
        assert!(help.stderr.is_empty(), "{command}");
    }
}

#[test]
fn completions_and_manual_pages_know_all_commands() {
    for (shell, word) in [
        ("bash", "complete -F _heraldmq"),
        ("zsh", "#compdef heraldmq"),
        ("fish", "complete -c heraldmq"),
    ] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        assert!(script.contains(word), "{shell}");
        for known in ["check-config", "transfer-leader", "data-dir"] {
            assert!(script.contains(known), "{shell} {known}");
        }
    }
    assert_eq!(run(&["completions", "csh"]).status.code(), Some(2));

    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let pages = folder.path().join("new/man1");
    let pages_text = pages.to_str().expect("UTF-8");
    assert_eq!(run(&["man", pages_text]).status.code(), Some(0));
    for (page, word) in [
        ("heraldmq.1", "check\\-config"),
        ("heraldmq-serve.1", "\\-\\-data\\-dir"),
        ("heraldmq-cluster-transfer-leader.1", "retain"),
    ] {
        let page = fs::read_to_string(pages.join(page)).expect(page);
        assert!(page.starts_with(".") && page.contains(word), "{page}");
    }
    let file = File::new("pages", "");
    let output = run(&["man", file.path()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr).lines().count(), 1);
}

#[test]
fn the_example_configuration_is_right() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/standalone.yml");
    let output = run(&["check-config", example]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "OK\n");
}

#[test]
fn each_problem_of_a_configuration_is_a_line() {
    let file = File::new("wrong.yml", "mqtt: {maximumQos: 7}\nlimit: {}\n");
    let output = run(&["check-config", file.path()]);
    assert_eq!(output.status.code(), Some(2));
    let lines: Vec<&str> = text(&output.stderr).lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains("mqtt.maximumQos") && lines[1].contains("`limits`"),
        "{lines:?}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn a_mistyped_log_level_is_wrong_before_anything_starts() {
    let file = File::new("level.yml", "log: {level: inof}\n");
    for arguments in [
        ["check-config", file.path()].as_slice(),
        &["serve", "--config", file.path()],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{arguments:?}");
    }
}

#[test]
fn a_data_folder_that_is_a_file_is_one_line() {
    let file = File::new("data", "");
    let output = run(&["serve", "--data-dir", file.path()]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("heraldmq: data folder "), "{message}");
}

#[test]
fn wrong_options_are_exit_code_2() {
    for arguments in [
        ["pub", "-t", "a/#", "-m", "x"].as_slice(),
        &["pub", "-t", "a"],
        &["pub", "-t", "a", "-m", "x", "-n"],
        &["pub", "-t", "a", "-m", "x", "-q", "3"],
        &[
            "pub",
            "-t",
            "a",
            "-m",
            "x",
            "-V",
            "311",
            "-D",
            "publish",
            "content-type",
            "text",
        ],
        &["sub"],
        &["sub", "-t", "a/#/b"],
        &["sub", "-t", "a", "-F", "%y"],
        &["sub", "-t", "a", "-C", "0"],
        &["sub", "-t", "a", "-V", "311", "--no-local"],
        &["serve", "--set", "nothing.like.this=1"],
        &["serve", "--config", "/nonexistent.yml"],
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}
