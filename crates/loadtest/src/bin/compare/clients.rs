//! What a load costs the one who makes it: a bare epoll loop beside `heraldmq bench`, at the same rate.
//!
//! The loop is one thread that does the reads and writes of the load and nothing else: no latency, no books, no checks. It wakes
//! for each message as the load test does. Both run against a relay, in turns.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use host::Process;
use loadtest::{Timer, monotonic_ns};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde_json::Value;

use crate::brokers::{Launcher, Which};
use crate::rows::Failure;

const TIMER: Token = Token(usize::MAX);
const CHUNK: usize = 64 * 1024;
const NS_PER_S: f64 = 1e9;

/// Messages before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);

/// Pairs of a publisher and a subscriber that have a topic for themselves; QoS 0, payloads of 32 bytes.
#[derive(clap::Args, Clone)]
pub(crate) struct Load {
    /// Pairs.
    #[arg(long, default_value_t = 100)]
    pairs: u16,
    /// Messages per second of all publishers.
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
    /// Seconds of the measurement, after one of warm-up.
    #[arg(long, default_value_t = 5)]
    seconds: u16,
}

/// Prints CPU time per message of the loop and of the load test, a line a round and the medians.
pub(crate) fn run(
    load: &Load,
    rounds: usize,
    tool: &Path,
    launcher: &mut Launcher,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let (mut loops, mut tools) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let relay = launcher.start(Which::Relay)?;
        let of_loop = in_child(load, relay.address)?;
        drop(relay);
        let relay = launcher.start(Which::Relay)?;
        let of_tool = load_test(load, tool, relay.address)?;
        writeln!(
            out,
            "round {round}: loop {of_loop:.2} µs, heraldmq bench {of_tool:.2} µs"
        )?;
        loops.push(of_loop);
        tools.push(of_tool);
    }
    if let (Some(of_loop), Some(of_tool)) = (crate::median(&loops), crate::median(&tools)) {
        let times = of_tool / of_loop;
        writeln!(
            out,
            "median: loop {of_loop:.2} µs, heraldmq bench {of_tool:.2} µs per message, {times:.2} times as much"
        )?;
    }
    Ok(())
}

/// The loop in a process of its own, so that what it costs is nothing else.
fn in_child(load: &Load, relay: SocketAddr) -> Result<f64, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["loop", &relay.to_string()]);
    command.args(["--pairs", &load.pairs.to_string()]);
    command.args(["--rate", &load.rate.to_string()]);
    command.args(["--seconds", &load.seconds.to_string()]);
    let text = output(&mut command)?;
    let figure = text.trim().parse();
    figure.map_err(|_| Failure::Start(format!("the loop said {text:?}")))
}

/// CPU time per message of all the load test's processes, in µs.
fn load_test(load: &Load, tool: &Path, relay: SocketAddr) -> Result<f64, Failure> {
    let folder = tempfile_folder()?;
    let (file, json) = (folder.join("load.yml"), folder.join("run.json"));
    let rate = f64::from(load.rate) / f64::from(load.pairs);
    std::fs::write(
        &file,
        format!(
            "name: pairs\nparts:\n  - pairs: {{ pairs: {}, rate: {rate}, payload: 32, qos: 0 }}\n",
            load.pairs
        ),
    )?;
    let mut command = Command::new(tool);
    command.args(["bench", "run"]).arg(&file);
    command.args(["--target", &relay.to_string(), "--protocol", "3.1.1"]);
    command.args(["--quiet", "--warm-up", "1s", "--duration"]);
    command
        .arg(format!("{}s", load.seconds))
        .arg("--json")
        .arg(&json);
    output(&mut command)?;
    let record: Value = serde_json::from_slice(&std::fs::read(&json)?).map_err(io::Error::from)?;
    std::fs::remove_dir_all(folder)?;
    let figure = |name: &str| record[name].as_f64().unwrap_or(f64::NAN);
    let cpu_s = figure("tool_cpu_user_s") + figure("tool_cpu_system_s");
    Ok(cpu_s * 1e6 / (figure("messages_per_second") * figure("seconds")))
}

fn tempfile_folder() -> io::Result<std::path::PathBuf> {
    let folder = std::env::temp_dir().join(format!("herald-compare-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn output(command: &mut Command) -> Result<String, Failure> {
    let done = command.stdin(Stdio::null()).output()?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        let program = command.get_program().display();
        return Err(Failure::Start(format!("{program}: {said}")));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A client of the loop.
struct Client {
    stream: TcpStream,
    /// Its next PUBLISH, whose first bytes are ever the same.
    publish: Vec<u8>,
}

/// Plays the load and prints the CPU time of this process per message, in µs.
pub(crate) fn bare_loop(load: &Load, relay: SocketAddr) -> io::Result<()> {
    let pairs = usize::from(load.pairs);
    let mut poll = Poll::new()?;
    let timer = Timer::new(poll.registry(), TIMER)?;
    let mut clients = Vec::new();
    for number in 0..2 * pairs {
        let topic = format!("pair/{}", number % pairs);
        clients.push(connect(&poll, relay, number, &topic, number >= pairs)?);
    }
    let step_ns = NS_PER_S / f64::from(load.rate);
    let start_ns = monotonic_ns();
    let measured_ns = start_ns + u64::try_from(WARM_UP.as_nanos()).unwrap_or(0);
    let end_ns = measured_ns + u64::from(load.seconds) * 1_000_000_000;
    let due = |message: u64| start_ns + (message as f64 * step_ns) as u64;
    let mut before = None;
    let mut events = Events::with_capacity(1_024);
    let mut buffer = vec![0; CHUNK];
    let (mut sent, mut counted) = (0_u64, 0_u64);
    loop {
        let now_ns = monotonic_ns();
        if now_ns >= end_ns {
            break;
        }
        if now_ns >= measured_ns && before.is_none() {
            before = Some(Process::own().cpu()?);
            counted = sent;
        }
        while due(sent) <= now_ns {
            let publisher = usize::try_from(sent).unwrap_or(0) % pairs;
            if let Some(client) = clients.get_mut(publisher) {
                let at = client.publish.len() - 8;
                client.publish[at..].copy_from_slice(&due(sent).to_be_bytes());
                client.stream.write_all(&client.publish)?;
            }
            sent += 1;
        }
        timer.arm(due(sent))?;
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            // The timer is nobody's.
            let read = match clients.get_mut(event.token().0) {
                Some(client) => client.stream.read(&mut buffer),
                None => Ok(1),
            };
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    let used = Process::own().cpu()? - before.unwrap_or_default();
    let messages = (sent - counted).max(1) as f64;
    writeln!(
        io::stdout(),
        "{}",
        used.total().as_secs_f64() * 1e6 / messages
    )
}

/// Connects with MQTT 3.1.1, and subscribes if it is to.
fn connect(
    poll: &Poll,
    relay: SocketAddr,
    number: usize,
    topic: &str,
    subscribes: bool,
) -> io::Result<Client> {
    let id = format!("loop-{number}");
    let mut hello = vec![0x10, byte(12 + id.len()), 0, 4];
    hello.extend(b"MQTT\x04\x02\0\0\0");
    hello.push(byte(id.len()));
    hello.extend(id.bytes());
    let mut stream = std::net::TcpStream::connect(relay)?;
    stream.set_nodelay(true)?;
    stream.write_all(&hello)?;
    stream.read_exact(&mut [0; 4])?;
    if subscribes {
        let mut subscribe = vec![0x82, byte(5 + topic.len()), 0, 1, 0, byte(topic.len())];
        subscribe.extend(topic.bytes());
        subscribe.push(0);
        stream.write_all(&subscribe)?;
        stream.read_exact(&mut [0; 5])?;
    }
    let mut publish = vec![0x30, byte(2 + topic.len() + 32), 0, byte(topic.len())];
    publish.extend(topic.bytes());
    publish.extend([0; 32]);
    stream.set_nonblocking(true)?;
    let mut stream = TcpStream::from_std(stream);
    let token = Token(number);
    poll.registry()
        .register(&mut stream, token, Interest::READABLE)?;
    Ok(Client { stream, publish })
}

/// A length that is below 128 here.
fn byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}
