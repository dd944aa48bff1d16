//! Connections with layers, here WebSocket: what they have to send, and how they end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use herald_net::{Clock, EventLoops, HandshakeFailure, LoopStats, Places, Profile, bind};
use net_api::{
    Arrival, Closed, ConnectionId, Connections, Key, Kind, Next, PeerAddress, Rates, Received,
    Service, Transmit,
};
use transport::ServerOptions;

/// Long past everything that these tests wait for.
const NEVER: Duration = Duration::from_secs(60);

const OPENING: &[u8] =
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A frame with a mask of zeroes, which leaves the payload as it is.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let mut frame = vec![0x80 | opcode, 0x80 | length, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

const BINARY: u8 = 2;
const CLOSE: u8 = 8;

#[derive(PartialEq, Eq, Debug)]
enum Heard {
    Bytes(Vec<u8>),
    Closed(Option<String>),
}

/// Tells what it hears. It pauses each connection first, and takes the bytes when that is over.
struct Pausing {
    heard: Sender<Heard>,
    has_paused: bool,
}

impl Service for Pausing {
    type Mail = ();

    fn accept_budget(&mut self, io: &mut impl Connections<()>) -> usize {
        io.set_limits(Rates::default(), Vec::new(), 100);
        usize::MAX
    }

    fn arrived(
        &mut self,
        _: &mut impl Connections<()>,
        _: ConnectionId,
        _: PeerAddress,
        _: Arrival,
    ) {
    }

    fn received(
        &mut self,
        io: &mut impl Connections<()>,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Received {
        if !self.has_paused {
            self.has_paused = true;
            io.arm(io.now_ms() + 20, id.to_bits());
            return Received {
                consumed: 0,
                next: Next::Pause,
            };
        }
        self.heard.send(Heard::Bytes(bytes.to_vec())).unwrap();
        Received {
            consumed: bytes.len(),
            next: Next::Read,
        }
    }

    fn transmit(
        &mut self,
        _: &mut impl Connections<()>,
        _: ConnectionId,
        _: &mut Vec<u8>,
        _: usize,
    ) -> Transmit {
        Transmit::Idle
    }

    fn closed(&mut self, _: &mut impl Connections<()>, _: ConnectionId, cause: Closed) {
        let error = cause.error().map(ToString::to_string);
        self.heard.send(Heard::Closed(error)).unwrap();
    }

    fn timer(&mut self, io: &mut impl Connections<()>, timer: u64) {
        io.resume(Key::from_bits(timer));
    }

    fn mail(&mut self, _: &mut impl Connections<()>, (): ()) {}
}

struct Running {
    loops: EventLoops<Pausing>,
    client: TcpStream,
    heard: Receiver<Heard>,
    stats: Arc<LoopStats>,
}

fn start() -> Running {
    let options = ServerOptions {
        websocket: Some(transport::WebSocketServer::at("/mqtt")),
        ..ServerOptions::default()
    };
    let listener = bind("127.0.0.1", 0, Profile::new(7, Kind::Ws, "", options)).unwrap();
    let address: SocketAddr = listener.address().unwrap();
    let (heard, hearing) = channel();
    let stats = Arc::new(LoopStats::new(8));
    let service = Pausing {
        heard,
        has_paused: false,
    };
    let loops = EventLoops::start(
        vec![service],
        vec![listener],
        Clock::start(),
        &[Arc::clone(&stats)],
        &Places::without_limit(),
    );
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(NEVER)).unwrap();
    Running {
        loops: loops.unwrap(),
        client,
        heard: hearing,
        stats,
    }
}

#[test]
fn bytes_before_the_end_are_heard_although_a_pause_came_between() {
    let mut running = start();
    let goodbye = [OPENING, &frame(BINARY, b"goodbye"), &frame(CLOSE, &[])].concat();
    running.client.write_all(&goodbye).unwrap();
    let mut answer = Vec::new();
    running.client.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    let heard: Vec<Heard> = (0..2)
        .map(|_| running.heard.recv_timeout(NEVER).unwrap())
        .collect();
    assert_eq!(
        heard,
        [Heard::Bytes(b"goodbye".to_vec()), Heard::Closed(None)]
    );
    running.loops.stop();
}

#[test]
fn a_refused_handshake_is_answered_and_counted() {
    let mut running = start();
    running
        .client
        .write_all(b"POST / HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    running.client.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 4"));
    let heard = running.heard.recv_timeout(NEVER).unwrap();
    assert!(matches!(heard, Heard::Closed(Some(_))), "{heard:?}");
    let stats = running.stats.listener(7);
    assert_eq!(stats.failed(HandshakeFailure::WebSocket).get(), 1);
    running.loops.stop();
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let mut running = start();
    let (beginning, _) = OPENING.split_at(20);
    running.client.write_all(beginning).unwrap();
    assert_eq!(running.client.read(&mut [0]).unwrap(), 0);
    let stats = running.stats.listener(7);
    assert_eq!(stats.failed(HandshakeFailure::Timeout).get(), 1);
    assert_eq!(stats.open.get(), 0);
    running.loops.stop();
}
