//! A connection goes to another loop with its unread bytes, and with what the service sends along.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use herald_net::{
    Arrival, Clock, Closed, ConnectionId, EventLoops, Io, LoopStats, Next, Received, Service,
    Transmit, bind,
};

/// A byte names the loop that answers it: its number, and what came along with the connection.
#[derive(Default)]
struct Answering {
    accompanied: Vec<(ConnectionId, String)>,
}

impl Service for Answering {
    type Mail = String;

    fn accept_budget(&mut self, _: &mut Io<String>) -> usize {
        usize::MAX
    }

    fn arrived(&mut self, _: &mut Io<String>, _: ConnectionId, _: SocketAddr, _: Arrival) {}

    fn accompanied(&mut self, _: &mut Io<String>, connection: ConnectionId, mail: String) {
        self.accompanied.push((connection, mail));
    }

    fn received(&mut self, io: &mut Io<String>, id: ConnectionId, bytes: &[u8]) -> Received {
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
        io.touch(id);
        Received {
            consumed: bytes.len(),
            next: Next::Read,
        }
    }

    fn transmit(
        &mut self,
        io: &mut Io<String>,
        id: ConnectionId,
        out: &mut Vec<u8>,
        _: usize,
    ) -> Transmit {
        let mine = self.accompanied.iter().position(|(to, _)| *to == id);
        let mail = mine.map(|index| self.accompanied.swap_remove(index).1);
        out.extend_from_slice(format!("{} {mail:?}\n", io.index()).as_bytes());
        Transmit::Close
    }

    fn closed(&mut self, _: &mut Io<String>, _: ConnectionId, _: Closed) {}

    fn timer(&mut self, _: &mut Io<String>, _: u64) {}

    fn mail(&mut self, _: &mut Io<String>, mail: String) {
        panic!("{mail:?} lost its connection");
    }
}

fn start() -> (EventLoops<Answering>, SocketAddr) {
    let listener = bind("127.0.0.1", 0).unwrap();
    let address = listener.address();
    let stats: Vec<Arc<LoopStats>> = (0..2).map(|_| Arc::default()).collect();
    let services = (0..2).map(|_| Answering::default()).collect();
    let loops = EventLoops::start(services, vec![listener], Clock::start(), &stats).unwrap();
    (loops, address)
}

fn answer(address: SocketAddr, question: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream.write_all(question.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_accompanies_a_connection_reaches_its_new_loop_with_it() {
    let (loops, address) = start();
    // The only connection is dealt to the loop that listens, which is the first.
    assert_eq!(answer(address, "1+"), "1 Some(\"from 0\")\n");
    loops.stop();
}

#[test]
fn a_connection_may_move_alone() {
    let (loops, address) = start();
    assert_eq!(answer(address, "1"), "1 None\n");
    loops.stop();
}
