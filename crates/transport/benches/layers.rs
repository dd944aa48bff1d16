//! What the layers cost: handshakes, records, frames, and the memory of idle connections.
//! `HERALD_BENCH_SMOKE=1` runs each a few times only, to see that it works.

#[path = "../tests/transport/authority.rs"]
#[expect(dead_code, reason = "tests use the rest")]
mod authority;

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::{Authority, SERVER};
use herald_transport::{
    ClientAuth, ClientOptions, Layers, ServerOptions, Tickets, WebSocketTarget,
};
use rustls::client::Resumption;

fn is_smoke() -> bool {
    std::env::var_os("HERALD_BENCH_SMOKE").is_some()
}

/// Prints the best of nine rounds: on a shared machine the fastest round is the least disturbed one. `run`
/// says how much of its time counts.
#[expect(clippy::print_stdout, reason = "the report of a benchmark")]
fn measure(name: &str, batch: u32, mut run: impl FnMut() -> Duration) {
    let (rounds, round_time) = if is_smoke() {
        (1, Duration::ZERO)
    } else {
        (9, Duration::from_millis(100))
    };
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let mut spent = Duration::ZERO;
        let mut runs = 0_u32;
        loop {
            for _ in 0..batch {
                spent += run();
            }
            runs += batch;
            if spent >= round_time {
                break;
            }
        }
        best = best.min(spent.as_nanos() as f64 / f64::from(runs));
    }
    println!("{name:<44} {best:>10.1} ns");
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

/// Both sides of a connection.
struct Sides {
    client: Box<Layers>,
    server: Box<Layers>,
    /// What the server's share of the handshakes took.
    handshake: Duration,
}

fn connect(server: &ServerOptions, client: &ClientOptions) -> Sides {
    let mut sides = Sides {
        client: Layers::connect(client).expect("there are layers"),
        server: Layers::accept(server).expect("there are layers"),
        handshake: Duration::ZERO,
    };
    let (mut bytes, mut inner) = (Vec::new(), Vec::new());
    while sides.client.has_output() {
        sides.client.take_output(&mut bytes);
        sides.handshake += timed(|| {
            let received = sides.server.receive(&bytes, &mut inner);
            received.expect("is valid");
            bytes.clear();
            sides.server.take_output(&mut bytes);
        });
        let received = sides.client.receive(&bytes, &mut inner);
        received.expect("is valid");
        bytes.clear();
    }
    assert!(sides.server.is_established());
    sides
}

/// Sending by the server, and receiving from the client.
fn traffic(name: &str, sides: &mut Sides, length: usize) {
    let message = vec![7; length];
    let mut out = Vec::with_capacity(length + 1_024);
    measure(&format!("{name}: send {length} B"), 100, || {
        out.clear();
        timed(|| sides.server.send(black_box(&message), &mut out))
    });
    let mut inner = Vec::with_capacity(length);
    measure(&format!("{name}: receive {length} B"), 100, || {
        out.clear();
        inner.clear();
        sides.client.send(&message, &mut out);
        timed(|| {
            let received = sides.server.receive(black_box(&out), &mut inner);
            assert!(received.is_ok());
        })
    });
}

/// Resident bytes for each of many idle connections.
#[expect(clippy::print_stdout, reason = "the report of a benchmark")]
fn memory(name: &str, server: &ServerOptions, client: &ClientOptions) {
    let count = if is_smoke() { 10 } else { 5_000 };
    let before = resident();
    let idle: Vec<Box<Layers>> = (0..count).map(|_| connect(server, client).server).collect();
    let bytes = resident().saturating_sub(before) / idle.len();
    println!("{name:<44} {bytes:>10} B resident");
}

/// This process's resident memory in bytes.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse::<usize>().ok());
    pages.expect("the second number") * 4_096
}

fn main() {
    let authority = Authority::new();
    let server_tls = authority.server(ClientAuth::None);
    let server_tls = server_tls.load(&Tickets::default()).expect("loads");
    let resuming = authority.client().load().expect("loads");
    let mut full = resuming.clone();
    Arc::make_mut(&mut full).resumption = Resumption::disabled();
    let name = || SERVER.try_into().expect("a name");

    let tls = ServerOptions {
        tls: Some(server_tls.into()),
        ..ServerOptions::default()
    };
    let websocket = ServerOptions {
        websocket: Some(herald_transport::WebSocketServer::at("/mqtt")),
        ..ServerOptions::default()
    };
    let full = ClientOptions {
        tls: Some((full, name())),
        ..ClientOptions::default()
    };
    let resuming = ClientOptions {
        tls: Some((resuming, name())),
        ..ClientOptions::default()
    };
    let upgrade = ClientOptions {
        websocket: Some(WebSocketTarget {
            host: SERVER.to_owned(),
            path: "/mqtt".to_owned(),
        }),
        ..ClientOptions::default()
    };

    memory("TLS 1.3, idle", &tls, &full);
    memory("WebSocket, idle", &websocket, &upgrade);
    for (name, server, client) in [
        ("TLS 1.3, full handshake", &tls, &full),
        ("TLS 1.3, resumed handshake", &tls, &resuming),
        ("WebSocket handshake", &websocket, &upgrade),
    ] {
        measure(&format!("{name}, server"), 10, || {
            connect(server, client).handshake
        });
    }
    let mut sides = connect(&tls, &full);
    traffic("TLS 1.3", &mut sides, 100);
    traffic("TLS 1.3", &mut sides, 16 * 1024);
    let mut sides = connect(&websocket, &upgrade);
    traffic("WebSocket", &mut sides, 100);
    traffic("WebSocket", &mut sides, 16 * 1024);
}
