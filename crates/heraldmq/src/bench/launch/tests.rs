use std::net::TcpListener;

use super::*;

fn launch(command: &[&str], files: &[(&str, &str)]) -> Launch {
    let owned = |(name, content): &(&str, &str)| ((*name).to_owned(), (*content).to_owned());
    Launch {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        files: files.iter().map(owned).collect(),
    }
}

/// An address that nobody listens on, nor will: its port is free again, and tests beside this one listen on 127.0.0.1.
fn free_address() -> String {
    let listener = TcpListener::bind("127.93.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn refusal(launch: &Launch, address: String) -> String {
    match launch.start(&[address], &Interrupt::default()) {
        Err(Failure::Runtime(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// What the condition yields once it is true.
fn until<T>(condition: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "it did not come true");
        thread::yield_now();
    }
}

#[test]
fn files_lie_in_the_folder_of_the_start_and_know_it() {
    let files = [("b.conf", "data {dir}/data\n")];
    let cat = launch(&["sh", "-c", "cat b.conf; sleep 1000"], &files);
    let started = cat.spawn().unwrap();
    let dir = started.folder.dir();
    let content = fs::read_to_string(dir.join("b.conf")).unwrap();
    assert_eq!(content, format!("data {}/data\n", dir.display()));
}

#[test]
fn neither_process_nor_child_nor_folder_is_left() {
    // The shell says whose child is the other process, and waits for it.
    let parent = launch(&["sh", "-c", "sleep 1000 & echo $! > child; wait"], &[]);
    let started = parent.spawn().unwrap();
    let path = started.folder.dir().join("child");
    let child = until(|| {
        fs::read_to_string(&path)
            .ok()
            .filter(|pid| pid.ends_with('\n'))
    });
    let (pid, folder) = (started.pid(), started.folder.0.clone());
    drop(started);
    assert!(!folder.exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    // Whoever adopts it may take a while to bury it.
    let stat = format!("/proc/{}/stat", child.trim());
    until(|| match fs::read_to_string(&stat) {
        Ok(alive) if !alive.contains(") Z ") => None,
        _ => Some(()),
    });
}

#[test]
fn a_broker_that_dies_is_reported_with_its_last_words() {
    let script = "for n in $(seq 20); do echo line $n; done; echo no such option >&2; exit 3";
    let message = refusal(&launch(&["sh", "-c", script], &[]), free_address());
    assert!(
        message.starts_with("the broker is dead (exit status: 3)"),
        "{message}"
    );
    assert!(
        message.ends_with("\n  | line 20\n  | no such option"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1 + LAST_LINES, "{message}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let message = refusal(&launch(&["no-such-broker", "-x"], &[]), free_address());
    assert!(message.starts_with("no-such-broker -x: "), "{message}");
}

#[test]
fn nothing_is_started_where_somebody_listens_already() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let message = refusal(&launch(&["no-such-broker"], &[]), address);
    assert!(
        message.starts_with("another process listens on"),
        "{message}"
    );
}
