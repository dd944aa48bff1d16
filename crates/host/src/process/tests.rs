//! With processes that wait on a pipe: they end when the test closes it, and not before.

use super::*;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A shell that runs `setup` and then waits for its standard input to be closed.
struct Waiting(Child);

impl Waiting {
    fn after(setup: &str) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", &format!("{setup}\necho ready; read line")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = shell.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(shell)
    }

    fn process(&self) -> Process {
        Process::new(self.0.id())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn resident_memory_grows_with_what_is_touched() {
    let before = Process::own().resident_bytes().unwrap();
    let sampled_before = Process::own().usage().unwrap().resident_bytes;
    let grown = std::hint::black_box(vec![1_u8; 32 << 20]);
    let after = Process::own().resident_bytes().unwrap();
    let sampled_after = Process::own().usage().unwrap().resident_bytes;
    assert_eq!(grown.len(), 32 << 20);
    assert!(after >= before + (30 << 20), "{before} {after}");
    assert!(
        sampled_after >= sampled_before + (24 << 20),
        "{sampled_before} {sampled_after}"
    );
}

#[test]
fn shared_pages_count_in_part() {
    let first = Waiting::after("");
    let second = Waiting::after("");
    for shell in [&first, &second] {
        let proportional = shell.process().proportional_bytes().unwrap();
        let resident = shell.process().resident_bytes().unwrap();
        assert!(
            0 < proportional && proportional < resident,
            "{proportional} {resident}"
        );
    }
}

#[test]
fn threads_and_descriptors_are_counted() {
    let few = Waiting::after("");
    let more = Waiting::after("exec 5</dev/null 6</dev/null 7</dev/null");
    let few = few.process().usage().unwrap();
    let process = more.process();
    let more = process.usage().unwrap();
    assert_eq!(few.threads, 1);
    let count = more.descriptors.unwrap();
    assert_eq!(count, few.descriptors.unwrap() + 3);
    // The same entries in a folder that has no size, as `fd` had none before Linux 6.2.
    let sizeless = format!("/proc/{}/fdinfo", process.pid());
    assert_eq!(fs::metadata(&sizeless).unwrap().len(), 0);
    assert_eq!(count_entries(&sizeless).unwrap(), u64::from(count));
}

#[test]
fn cpu_time_is_that_of_its_modes() {
    let process = Process::own();
    // Work that ends by the kernel's own count and not by a clock.
    while process.cpu().unwrap().user < Duration::from_millis(20) {
        std::hint::black_box((0..100_000_u64).sum::<u64>());
    }
    let usage = process.usage().unwrap();
    assert!(usage.cpu().user >= Duration::from_millis(20));
    assert!(usage.cpu().total() >= usage.cpu_user);
    assert_eq!(
        usage.cpu(),
        Cpu {
            user: usage.cpu_user,
            system: usage.cpu_system
        }
    );
}

#[test]
fn the_name_is_that_of_the_command() {
    assert_eq!(Waiting::after("").process().name().unwrap(), "sh");
}

#[test]
fn a_process_that_ends_is_an_error_before_and_after_it_is_waited_for() {
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    let process = Process::new(child.id());
    // Reading to the end of its output is no proof that it ended, so look until it is a zombie.
    while !process.stat().unwrap().ended {
        std::thread::yield_now();
    }
    let not_found = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::NotFound);
    not_found(process.usage().unwrap_err());
    not_found(process.cpu().unwrap_err());
    child.wait().unwrap();
    not_found(process.usage().unwrap_err());
    not_found(process.resident_bytes().unwrap_err());
    not_found(process.name().unwrap_err());
    not_found(process.network_bytes().unwrap_err());
}

#[test]
fn ending_between_opening_and_reading_is_ending() {
    assert!(is_ended(&Errno::SRCH.into()));
    assert!(!is_ended(&Errno::ACCESS.into()));
}

#[test]
fn resident_pages_are_the_second_number() {
    assert_eq!(parse_resident_pages("900 500 300 1 0 2 0\n"), Some(500));
    assert_eq!(parse_resident_pages("900"), None);
}

#[test]
fn own_network_can_be_read() {
    Process::own().network_bytes().unwrap();
}

#[test]
fn a_rollup_is_read_by_its_field() {
    let rollup = "0-1 ---p 00000000 00:00 0 [rollup]\nRss:    1640 kB\nPss:     448 kB\n";
    assert_eq!(parse_rolled_up(rollup, "Rss:"), Some(1640 << 10));
    assert_eq!(parse_rolled_up(rollup, "Pss:"), Some(448 << 10));
    assert_eq!(parse_rolled_up(rollup, "Swap:"), None);
    assert_eq!(parse_rolled_up("Rss: 1640", "Rss:"), None);
    assert_eq!(
        parse_rolled_up("Rss: 18446744073709551615 kB", "Rss:"),
        None
    );
}
