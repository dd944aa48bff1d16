//! Clients' layers against servers' layers, whatever the pieces that arrive.

use crate::authority::{Authority, SERVER};
use herald_transport::{
    ClientAuth, ClientOptions, Layers, ProxyOptions, ServerOptions, Tickets, TransportError,
    WebSocketTarget,
};
use proptest::prelude::*;

const PROXY: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 50000 8883\r\n";

/// Which layers there are.
#[derive(Clone, Copy, Debug)]
struct Stack {
    proxy: bool,
    tls: bool,
    websocket: bool,
}

impl Stack {
    const fn of(proxy: bool, tls: bool, websocket: bool) -> Self {
        Self {
            proxy,
            tls,
            websocket,
        }
    }
}

/// One side, and what has arrived there.
struct Side {
    layers: Box<Layers>,
    received: Vec<u8>,
}

impl Side {
    fn new(layers: Option<Box<Layers>>) -> Self {
        Self {
            layers: layers.expect("there are layers"),
            received: Vec::new(),
        }
    }

    /// Takes bytes in pieces and returns what is sent in answer.
    fn take(&mut self, bytes: &[u8], piece: usize) -> Result<Vec<u8>, TransportError> {
        for piece in bytes.chunks(piece) {
            self.layers.receive(piece, &mut self.received)?;
        }
        Ok(self.output())
    }

    fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        self.layers.take_output(&mut output);
        assert!(!self.layers.has_output());
        output
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        self.layers.send(bytes, &mut output);
        output
    }

    fn close(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        self.layers.close(&mut output);
        output
    }
}

struct Sides {
    client: Side,
    server: Side,
    /// Sent by the client and not yet taken by the server.
    to_server: Vec<u8>,
}

impl Sides {
    fn new(stack: Stack, authority: &Authority) -> Self {
        Self::with_path(stack, authority, "/mqtt")
    }

    /// The path is the client's.
    fn with_path(stack: Stack, authority: &Authority, path: &str) -> Self {
        let server_tls = authority.server(ClientAuth::None);
        let server_tls = server_tls.load(&Tickets::default()).expect("loads");
        let client_tls = authority.client().load().expect("loads");
        let name = SERVER.try_into().expect("a name");
        let both = ProxyOptions {
            v1: true,
            v2: true,
            names: false,
        };
        let server = Side::new(Layers::accept(&ServerOptions {
            proxy: stack.proxy.then_some(both),
            tls: stack.tls.then(|| server_tls.into()),
            websocket: stack
                .websocket
                .then(|| herald_transport::WebSocketServer::at("/mqtt")),
        }));
        let mut client = Side::new(Layers::connect(&ClientOptions {
            tls: stack.tls.then_some((client_tls, name)),
            websocket: stack.websocket.then(|| WebSocketTarget {
                host: SERVER.to_owned(),
                path: path.to_owned(),
            }),
        }));
        let mut to_server = if stack.proxy {
            PROXY.to_vec()
        } else {
            Vec::new()
        };
        to_server.extend(client.output());
        Self {
            client,
            server,
            to_server,
        }
    }

    /// Lets bytes go to and fro until there are none.
    fn exchange(&mut self, piece: usize) {
        while !self.to_server.is_empty() {
            let answer = self.server.take(&self.to_server, piece).expect("is valid");
            self.to_server = self.client.take(&answer, piece).expect("is valid");
        }
    }
}

/// Every stack that has a client's side of its own.
const STACKS: [Stack; 6] = [
    Stack::of(false, true, false),
    Stack::of(false, false, true),
    Stack::of(false, true, true),
    Stack::of(true, true, false),
    Stack::of(true, false, true),
    Stack::of(true, true, true),
];

#[test]
fn no_layers_for_plain_mqtt() {
    assert!(Layers::accept(&ServerOptions::default()).is_none());
    assert!(Layers::connect(&ClientOptions::default()).is_none());
}

/// Sends these packets from the client and back, cut into pieces of this size.
fn talk(stack: Stack, authority: &Authority, packets: &[Vec<u8>], piece: usize) {
    let mut sides = Sides::new(stack, authority);
    assert!(!sides.server.layers.is_established());
    sides.exchange(piece);
    assert!(sides.client.layers.is_established(), "{stack:?}");
    assert!(sides.server.layers.is_established(), "{stack:?}");
    assert_eq!(sides.server.layers.source().is_some(), stack.proxy);

    for packet in packets {
        sides.to_server.extend(sides.client.send(packet));
    }
    sides.exchange(piece);
    let sent = packets.concat();
    assert_eq!(sides.server.received, sent, "{stack:?}");

    let answer = sides.server.send(&sent);
    let further = sides.client.take(&answer, piece).expect("is valid");
    assert!(further.is_empty());
    assert_eq!(sides.client.received, sent, "{stack:?}");

    let end = sides.client.close();
    let result = sides.server.take(&end, piece);
    assert!(matches!(result, Err(TransportError::Closed)), "{stack:?}");
    let end = sides.server.output();
    let result = sides.client.take(&end, piece);
    assert!(matches!(result, Err(TransportError::Closed)), "{stack:?}");
}

#[test]
fn every_stack_carries_bytes_cut_at_every_position() {
    let authority = Authority::new();
    let packets = [b"\xC0\x00".to_vec(), vec![7; 300]];
    for stack in STACKS {
        talk(stack, &authority, &packets, 1);
    }
}

#[test]
fn every_stack_carries_more_than_a_record() {
    let authority = Authority::new();
    let packets = [vec![1; 100_000], vec![2; 16 * 1024]];
    for stack in STACKS {
        talk(stack, &authority, &packets, usize::MAX);
    }
}

#[test]
fn a_proxy_header_may_come_with_what_follows() {
    let options = ServerOptions {
        proxy: Some(ProxyOptions {
            v1: true,
            v2: false,
            names: false,
        }),
        ..ServerOptions::default()
    };
    let mut server = Side::new(Layers::accept(&options));
    let bytes = [PROXY, b"\x10\x0C"].concat();
    assert!(
        server
            .take(&bytes, usize::MAX)
            .expect("is valid")
            .is_empty()
    );
    assert!(server.layers.is_established());
    assert_eq!(server.received, b"\x10\x0C");
    let source = "192.0.2.7:50000".parse().expect("an address");
    assert_eq!(server.layers.source(), Some(source));
    assert_eq!(server.send(b"\x20\x02"), b"\x20\x02");
}

#[test]
fn what_comes_before_an_end_is_received() {
    let authority = Authority::new();
    for stack in STACKS {
        let mut sides = Sides::new(stack, &authority);
        sides.exchange(usize::MAX);
        let mut bytes = sides.client.send(b"\xE0\x00");
        bytes.extend(sides.client.close());
        let result = sides.server.take(&bytes, usize::MAX);
        assert!(matches!(result, Err(TransportError::Closed)));
        assert_eq!(sides.server.received, b"\xE0\x00");
    }
}

#[test]
fn a_refused_path_is_answered_through_every_layer() {
    let authority = Authority::new();
    for stack in STACKS.into_iter().filter(|stack| stack.websocket) {
        let mut sides = Sides::with_path(stack, &authority, "/other");
        let refusal = loop {
            match sides.server.take(&sides.to_server, usize::MAX) {
                Ok(answer) => sides.to_server = sides.client.take(&answer, 1).expect("is valid"),
                Err(TransportError::WebSocket(what)) => break what,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(refusal, "no WebSocket at this path");
        let answer = sides.server.output();
        let result = sides.client.take(&answer, usize::MAX);
        let error = result.expect_err("is refused").to_string();
        assert!(error.contains("does not open a WebSocket"), "{error}");
    }
}

#[test]
fn what_the_layers_have_to_say_goes_first() {
    let mut sides = Sides::new(Stack::of(false, true, false), &Authority::new());
    let whole = usize::MAX;
    let answer = sides.server.take(&sides.to_server, whole);
    let finished = sides.client.take(&answer.expect("is valid"), whole);
    let mut inner = Vec::new();
    let received = sides
        .server
        .layers
        .receive(&finished.expect("is valid"), &mut inner);
    received.expect("is valid");
    assert!(sides.server.layers.has_output(), "a session ticket");
    let bytes = sides.server.send(b"\x20\x02");
    sides.client.take(&bytes, whole).expect("is in order");
    assert_eq!(sides.client.received, b"\x20\x02");
}

/// Bytes that mean nothing, or begin as if they did.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let start = prop::sample::select(vec![
        &b""[..],
        PROXY,
        b"\x16\x03\x01\x00\xC0\x01\x00\x00\xBC\x03\x03",
        b"\x16\x03\x01",
        b"GET /mqtt HTTP/1.1\r\nHost: x\r\n",
    ]);
    let bytes = prop::collection::vec(any::<u8>(), 0..2_000);
    (start, bytes).prop_map(|(start, bytes)| [start, &bytes].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_pieces_carry_the_same_bytes(
        stack in prop::sample::select(STACKS.to_vec()),
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3_000), 1..6),
        piece in 1_usize..2_000,
    ) {
        talk(stack, &Authority::new(), &packets, piece);
    }

    #[test]
    fn hostile_bytes_never_panic(
        stack in prop::sample::select(STACKS.to_vec()),
        bytes in hostile(),
        piece in 1_usize..500,
    ) {
        let mut server = Sides::new(stack, &Authority::new()).server;
        let _ = server.take(&bytes, piece);
        prop_assert!(server.received.is_empty());
        let _ = server.close();
    }

    #[test]
    fn damaged_bytes_never_panic(
        stack in prop::sample::select(STACKS.to_vec()),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        piece in 1_usize..500,
    ) {
        let mut sides = Sides::new(stack, &Authority::new());
        sides.exchange(usize::MAX);
        let mut bytes = sides.client.send(&[7; 200]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = sides.server.take(&bytes, piece);
        if stack.tls {
            prop_assert!(sides.server.received.iter().all(|byte| *byte == 7));
        }
    }
}
