//! With shells that wait on pipes: each ends when the test says so, and not before.

use super::*;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::process::Cpu;

/// Waits for a signal, and for the shell to end should a test fail.
const WAIT: &str = "tail --pid=$$ -f /dev/null";

/// A shell that does what it is told, line by line, and says what its commands print.
struct Shell {
    child: Child,
    commands: Option<ChildStdin>,
    said: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    fn new() -> Self {
        let mut child = Command::new("sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It says there whom it was told to end.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = child.stdin.take();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut shell = Self {
            child,
            commands,
            said,
        };
        // While it starts, it opens files and gets memory: two readings differ.
        assert_eq!(shell.tell("echo started"), "started");
        shell
    }

    /// Runs commands that print one line.
    fn tell(&mut self, commands: &str) -> String {
        let stdin = self.commands.as_mut().unwrap();
        writeln!(stdin, "{commands}").unwrap();
        self.said.next().unwrap().unwrap()
    }

    /// Starts a child that waits for a signal, and returns its identifier.
    fn start_child(&mut self) -> u32 {
        self.tell(&format!("{WAIT} & echo $!")).parse().unwrap()
    }

    fn tree(&self) -> Processes {
        Processes::tree(self.child.id())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.commands.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn children_and_their_children_are_added_up() {
    let mut shell = Shell::new();
    let mut tree = shell.tree();
    assert_eq!(tree.usage().unwrap().threads, 1);
    let alone = tree.usage().unwrap();

    let child = shell.start_child();
    let grandchild = shell.tell(&format!("({WAIT} & echo $!; wait) & subshell=$!"));
    let four = tree.usage().unwrap();
    assert_eq!(four.threads, 4);
    assert!(four.descriptors > alone.descriptors);
    assert!(four.resident_bytes > alone.resident_bytes);
    let exact = tree.resident_bytes().unwrap();
    assert!(0 < exact && exact < four.resident_bytes, "{exact} {four:?}");

    shell.tell(&format!("kill {child}; wait {child}; echo ended"));
    assert_eq!(tree.usage().unwrap().threads, 3);
    // The subshell ends and leaves its child to init; it still belongs to the tree.
    shell.tell("kill $subshell; wait $subshell; echo ended");
    assert_eq!(tree.usage().unwrap().threads, 2);
    shell.tell(&format!("kill {grandchild}; echo killed"));
}

#[test]
fn the_time_of_a_child_that_ended_stays() {
    let mut shell = Shell::new();
    let mut tree = shell.tree();
    let mut last = tree.usage().unwrap().cpu();
    let worker: u32 = shell
        .tell("(while :; do :; done) & echo $!")
        .parse()
        .unwrap();
    // Until the kernel has counted some ticks of it.
    while tree.usage().unwrap().cpu().total() < Duration::from_millis(50) {
        std::thread::yield_now();
    }
    let mut readings = vec![tree.usage().unwrap().cpu()];
    shell.tell(&format!("kill {worker}; wait {worker}; echo ended"));
    readings.push(tree.usage().unwrap().cpu());
    readings.push(tree.usage().unwrap().cpu());
    for reading in readings {
        assert!(reading.user >= last.user && reading.system >= last.system);
        last = reading;
    }
    assert!(last.total() >= Duration::from_millis(50));
    // The shell waited for its child, so the kernel's own sum is there to compare with.
    let stat = tree.root().stat().unwrap();
    let kernel: Cpu = stat.own + stat.children;
    let tick = Duration::from_millis(10);
    assert!(
        kernel.total().abs_diff(last.total()) <= 4 * tick,
        "{kernel:?} {last:?}"
    );
}

#[test]
fn a_process_without_children_has_its_own_resident_memory() {
    let shell = Shell::new();
    let process = Process::new(shell.child.id());
    let mut tree = shell.tree();
    assert_eq!(
        tree.resident_bytes().unwrap(),
        process.resident_bytes().unwrap()
    );
}

#[test]
fn a_tree_that_has_ended_is_an_error() {
    let shell = Shell::new();
    let mut tree = shell.tree();
    tree.usage().unwrap();
    drop(shell);
    let ended = tree.usage().unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::NotFound);
    assert_eq!(
        tree.resident_bytes().unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
}

#[test]
fn a_process_that_nobody_has_waited_for_holds_nothing() {
    let mut child = Command::new("true").spawn().unwrap();
    let process = Process::new(child.id());
    while !process.stat().unwrap().ended {
        std::thread::yield_now();
    }
    let ended = Processes::tree(child.id()).usage().unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::NotFound);
    child.wait().unwrap();
}
