//! A connection goes to another loop with its unread bytes, and with what the service sends along.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use herald_net::{Clock, EventLoops, LoopStats, Places, Profile, bind};
use net_api::{
    Arrival, Closed, ConnectionId, Connections, Kind, Next, PeerAddress, Received, Service,
    Transmit,
};
use transport::ServerOptions;

const OPENING: &str = "GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A byte names the loop that answers it: its number, and what came along with the connection. Before "-"
/// it does not ask for the answer to be sent.
#[derive(Default)]
struct Answering {
    accompanied: Vec<(ConnectionId, String)>,
}

impl Service for Answering {
    type Mail = String;

    fn accept_budget(&mut self, _: &mut impl Connections<String>) -> usize {
        usize::MAX
    }

    fn arrived(
        &mut self,
        _: &mut impl Connections<String>,
        _: ConnectionId,
        _: PeerAddress,
        _: Arrival,
    ) {
    }

    fn accompanied(
        &mut self,
        _: &mut impl Connections<String>,
        connection: ConnectionId,
        mail: String,
    ) {
        self.accompanied.push((connection, mail));
    }

    fn received(
        &mut self,
        io: &mut impl Connections<String>,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Received {
        let wanted = usize::from(bytes[0] - b'0');
        if wanted != io.index() {
            if bytes.len() > 1 {
                io.accompany(format!("from {}", io.index()));
            }
            return Received {
                consumed: 0,
                next: Next::HandOver(wanted),
            };
        }
        if !bytes.ends_with(b"-") {
            io.touch(id);
        }
        Received {
            consumed: bytes.len(),
            next: Next::Read,
        }
    }

    fn transmit(
        &mut self,
        io: &mut impl Connections<String>,
        id: ConnectionId,
        out: &mut Vec<u8>,
        _: usize,
    ) -> Transmit {
        let mine = self.accompanied.iter().position(|(to, _)| *to == id);
        let mail = mine.map(|index| self.accompanied.swap_remove(index).1);
        out.extend_from_slice(format!("{} {mail:?}\n", io.index()).as_bytes());
        Transmit::Close
    }

    fn closed(&mut self, _: &mut impl Connections<String>, _: ConnectionId, _: Closed) {}

    fn timer(&mut self, _: &mut impl Connections<String>, _: u64) {}

    fn mail(&mut self, _: &mut impl Connections<String>, mail: String) {
        panic!("{mail:?} lost its connection");
    }
}

fn start(options: ServerOptions) -> (EventLoops<Answering>, SocketAddr) {
    let profile = Profile::new(0, Kind::Tcp, "", options);
    let listener = bind("127.0.0.1", 0, profile).unwrap();
    let address = listener.address().unwrap();
    let stats: Vec<Arc<LoopStats>> = (0..2).map(|_| Arc::new(LoopStats::new(1))).collect();
    let services = (0..2).map(|_| Answering::default()).collect();
    let loops = EventLoops::start(
        services,
        vec![listener],
        Clock::start(),
        &stats,
        &Places::without_limit(),
    )
    .unwrap();
    (loops, address)
}

fn answer(address: SocketAddr, question: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(question).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_accompanies_a_connection_reaches_its_new_loop_with_it() {
    let (loops, address) = start(ServerOptions::default());
    // The only connection is dealt to the loop that listens, which is the first.
    assert_eq!(answer(address, b"1+"), "1 Some(\"from 0\")\n");
    loops.stop();
}

#[test]
fn a_connection_may_move_alone() {
    let (loops, address) = start(ServerOptions::default());
    assert_eq!(answer(address, b"1"), "1 None\n");
    loops.stop();
}

#[test]
fn a_connection_moves_with_what_its_layers_have_to_send() {
    let (loops, address) = start(ServerOptions {
        websocket: Some(transport::WebSocketServer::at("/mqtt")),
        ..ServerOptions::default()
    });
    // The answer to the handshake is not sent yet when the frame behind it, "1-", moves the connection; and
    // the service has nothing to say.
    let question = [OPENING.as_bytes(), b"\x82\x82\0\0\0\x001-"].concat();
    let answer = answer(address, &question);
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains("1 Some(\"from 0\")\n"), "{answer}");
    loops.stop();
}
