//! Event loops with a small service: lines go to all connections of all loops.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use herald_net::{Clock, Descriptors, EventLoops, HandInError, LoopStats, Places, Profile, bind};
use net_api::{
    Arrival, Closed, ConnectionId, Connections, Kind, Next, PeerAddress, Received, Service,
    Transmit,
};
use transport::ServerOptions;

/// Sends each line it receives to every connection; "quit" closes, "big" answers with a megabyte.
#[derive(Default)]
struct Lines {
    members: Vec<ConnectionId>,
    waiting: Vec<(ConnectionId, Vec<u8>)>,
    /// "stand still" waits for this.
    go_on: Option<std::sync::mpsc::Receiver<()>>,
}

/// Units of work that the line "hard" is charged.
const HARD: u32 = 5_000;

impl Lines {
    fn say(&mut self, io: &mut impl Connections<Arc<[u8]>>, line: &[u8]) {
        for member in &self.members {
            self.waiting.push((*member, line.to_vec()));
            io.touch(*member);
        }
    }
}

impl Service for Lines {
    type Mail = Arc<[u8]>;

    fn accept_budget(&mut self, _: &mut impl Connections<Self::Mail>) -> usize {
        usize::MAX
    }

    fn arrived(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        _: PeerAddress,
        _: Arrival,
    ) {
        assert_eq!(io.tag(connection), Some(0));
        self.members.push(connection);
    }

    fn received(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> Received {
        let mut consumed = 0;
        while let Some(end) = bytes[consumed..].iter().position(|b| *b == b'\n') {
            let line = &bytes[consumed..=consumed + end];
            consumed += line.len();
            if line == b"quit\n" {
                self.members.retain(|m| *m != connection);
                io.send_last(connection, b"bye\n".to_vec());
                break;
            }
            if line == b"stand still\n" {
                io.send_last(connection, Vec::new());
                if let Some(go_on) = &self.go_on {
                    // It is dropped, and that is the sign.
                    assert!(go_on.recv().is_err());
                }
                continue;
            }
            if line == b"hard\n" {
                io.charge(HARD);
            }
            if line == b"big\n" {
                self.waiting.push((connection, vec![b'x'; 1 << 20]));
                io.touch(connection);
                continue;
            }
            self.say(io, line);
            let own = io.index();
            for other in (0..io.loops()).filter(|l| *l != own) {
                io.send(other, line.into());
            }
        }
        Received {
            consumed,
            next: Next::Read,
        }
    }

    fn transmit(
        &mut self,
        _: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        out: &mut Vec<u8>,
        _: usize,
    ) -> Transmit {
        self.waiting.retain(|(to, line)| {
            if *to == connection {
                out.extend_from_slice(line);
            }
            *to != connection
        });
        Transmit::Idle
    }

    fn closed(
        &mut self,
        _: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        _: Closed,
    ) {
        self.members.retain(|m| *m != connection);
    }

    fn timer(&mut self, _: &mut impl Connections<Self::Mail>, _: u64) {}

    fn mail(&mut self, io: &mut impl Connections<Self::Mail>, line: Self::Mail) {
        self.say(io, &line);
    }
}

fn start(loops: usize) -> (EventLoops<Lines>, SocketAddr, Vec<Arc<LoopStats>>) {
    start_with((0..loops).map(|_| Lines::default()).collect())
}

fn start_with(services: Vec<Lines>) -> (EventLoops<Lines>, SocketAddr, Vec<Arc<LoopStats>>) {
    let loops = services.len();
    let profile = Profile::new(0, Kind::Tcp, "", ServerOptions::default());
    let listener = bind("127.0.0.1", 0, profile).unwrap();
    let address = listener.address().unwrap();
    let stats: Vec<Arc<LoopStats>> = (0..loops).map(|_| Arc::new(LoopStats::new(1))).collect();
    let loops = EventLoops::start(
        services,
        vec![listener],
        Clock::start(),
        &stats,
        &Places::without_limit(),
    )
    .unwrap();
    (loops, address, stats)
}

fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    BufReader::new(stream)
}

fn line(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line
}

#[test]
fn lines_reach_the_connections_of_all_loops_in_order() {
    let (loops, address, stats) = start(3);
    let mut clients: Vec<_> = (0..6).map(|_| connect(address)).collect();
    // Each has arrived when each has heard its own line.
    for client in &mut clients {
        client.get_mut().write_all(b"hello\n").unwrap();
        assert_eq!(line(client), "hello\n");
    }
    assert!(
        stats.iter().all(|s| s.open.get() == 2),
        "connections are dealt evenly"
    );
    for n in 0..1000 {
        clients[0]
            .get_mut()
            .write_all(format!("{n}\n").as_bytes())
            .unwrap();
    }
    for client in &mut clients {
        let mut expected = 0;
        while expected < 1000 {
            let line = line(client);
            if line != "hello\n" {
                assert_eq!(line, format!("{expected}\n"));
                expected += 1;
            }
        }
    }
    loops.stop();
}

#[test]
fn last_bytes_arrive_although_input_was_left_unread() {
    let (loops, address, _) = start(1);
    for _ in 0..50 {
        let mut client = connect(address);
        let mut bytes = b"quit\n".to_vec();
        bytes.resize(300_000, b'z');
        // The rest may meet a closed socket: that is the point.
        let _ = client.get_mut().write_all(&bytes);
        assert_eq!(line(&mut client), "bye\n");
    }
    loops.stop();
}

#[test]
fn a_full_socket_keeps_the_rest_for_later() {
    let (loops, address, _) = start(2);
    let mut client = connect(address);
    for _ in 0..20 {
        client.get_mut().write_all(b"big\n").unwrap();
    }
    let mut all = vec![0; 20 << 20];
    client.read_exact(&mut all).unwrap();
    assert!(all.iter().all(|b| *b == b'x'));
    loops.stop();
}

#[test]
fn a_turn_that_has_done_enough_leaves_the_rest_to_the_next() {
    const CLIENTS: u64 = 50;
    let (go_on, waits) = std::sync::mpsc::channel();
    let service = Lines {
        go_on: Some(waits),
        ..Lines::default()
    };
    let (loops, address, stats) = start_with(vec![service]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(address)).collect();
    for client in &mut clients {
        // All are accepted and have been read once.
        client.get_mut().write_all(b"big\n").unwrap();
        let mut big = vec![0; 1 << 20];
        client.read_exact(&mut big).unwrap();
    }
    let mut standing = connect(address);
    standing.get_mut().write_all(b"stand still\n").unwrap();
    // What comes while the loop stands still is read in one turn, unless that is cut.
    for client in &mut clients {
        client.get_mut().write_all(b"hard\n").unwrap();
    }
    let before = stats[0].turns.get();
    drop(go_on);
    for client in &mut clients {
        let mut lines = 0;
        while lines < CLIENTS {
            let mut line = String::new();
            client.read_line(&mut line).unwrap();
            assert_eq!(line, "hard\n");
            lines += 1;
        }
    }
    // Two lines make a part of a turn, of which a turn has two.
    let turns = stats[0].turns.get() - before;
    assert!(turns >= CLIENTS / 4, "{turns}");
    assert!(stats[0].put_off.get() > 0);
    loops.stop();
}

/// Waits for a condition.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_socket_that_is_handed_in_is_a_connection_as_others_are() {
    let stats: Vec<Arc<LoopStats>> = (0..2).map(|_| Arc::new(LoopStats::new(1))).collect();
    let places = Places::new(Descriptors(2));
    let services = vec![Lines::default(), Lines::default()];
    let loops = EventLoops::start(services, Vec::new(), Clock::start(), &stats, &places).unwrap();
    let remote = loops.remote();
    let profile = Profile::new(0, Kind::Outlet, "", ServerOptions::default());
    let hand_in = || {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        remote.hand_in(near, Arc::clone(&profile)).map(|()| far)
    };
    let mut first = hand_in().unwrap();
    until("it is open", || stats.iter().any(|s| s.open.get() == 1));
    let mut second = hand_in().unwrap();
    until("each loop has one", || {
        stats.iter().all(|s| s.open.get() == 1)
    });
    assert!(matches!(hand_in(), Err(HandInError::NoPlace)));
    assert_eq!(places.taken(), Descriptors(2));
    second.write_all(b"hello\n").unwrap();
    for client in [&mut first, &mut second] {
        let mut line = [0; 6];
        client.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"hello\n");
    }
    // Its end is seen at the other end, in either direction.
    drop(first);
    until("its place is free", || places.taken() == Descriptors(1));
    second.write_all(b"quit\n").unwrap();
    let mut rest = String::new();
    second.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "bye\n");
    until("all places are free", || places.taken() == Descriptors(0));
    let accepted = stats.iter().map(|s| s.listener(0).accepted.get());
    assert_eq!(accepted.sum::<u64>(), 2);
    loops.stop();
}
