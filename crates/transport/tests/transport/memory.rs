//! What a connection keeps in memory.

use crate::authority::{Authority, SERVER};
use allocation_counter::measure;
use herald_transport::{
    ClientAuth, ClientOptions, Layers, ServerOptions, Tickets, WebSocketTarget,
};

/// What an idle connection may keep beyond one of plain MQTT.
const IDLE_TLS: i64 = 3 * 1024;
const IDLE_WEBSOCKET: i64 = 384;
/// What one may keep that has sent the beginning of something and no more.
const INCOMPLETE: i64 = 40 * 1024;

/// What the client says and the server answers, until both are content.
fn exchange(client: &mut Layers, server: &mut Layers) {
    let (mut bytes, mut inner) = (Vec::new(), Vec::new());
    while client.has_output() || server.has_output() {
        client.take_output(&mut bytes);
        server.receive(&bytes, &mut inner).expect("is valid");
        bytes.clear();
        server.take_output(&mut bytes);
        client.receive(&bytes, &mut inner).expect("is valid");
        bytes.clear();
    }
}

fn options(tls: bool, websocket: bool) -> (ServerOptions, ClientOptions) {
    let authority = Authority::new();
    let server_tls = authority.server(ClientAuth::None);
    let server_tls = server_tls.load(&Tickets::default()).expect("loads");
    let client_tls = authority.client().load().expect("loads");
    let name = SERVER.try_into().expect("a name");
    let target = || WebSocketTarget {
        host: SERVER.to_owned(),
        path: "/mqtt".to_owned(),
    };
    let server = ServerOptions {
        proxy: None,
        tls: tls.then(|| server_tls.into()),
        websocket: websocket.then(|| herald_transport::WebSocketServer::at("/mqtt")),
    };
    let client = ClientOptions {
        tls: tls.then_some((client_tls, name)),
        websocket: websocket.then(target),
    };
    (server, client)
}

/// Bytes that an established server connection keeps.
fn idle(tls: bool, websocket: bool) -> i64 {
    let (server_options, client_options) = options(tls, websocket);
    let connection = || {
        let mut server = Layers::accept(&server_options).expect("there are layers");
        let mut client = Layers::connect(&client_options).expect("there are layers");
        exchange(&mut client, &mut server);
        let mut bytes = Vec::new();
        client.send(b"\xC0\x00", &mut bytes);
        let mut inner = Vec::new();
        server.receive(&bytes, &mut inner).expect("is valid");
        assert!(server.is_established() && inner == b"\xC0\x00");
        server
    };
    // The first connection fills what the process has once.
    let _ = connection();
    let mut server = None;
    let info = measure(|| server = Some(connection()));
    drop(server);
    info.bytes_current
}

#[test]
fn an_idle_connection_keeps_little() {
    for (tls, websocket, limit) in [
        (true, false, IDLE_TLS),
        (false, true, IDLE_WEBSOCKET),
        (true, true, IDLE_TLS),
    ] {
        let bytes = idle(tls, websocket);
        assert!(
            (1..=limit).contains(&bytes),
            "TLS {tls}, WebSocket {websocket}: {bytes} bytes of {limit}"
        );
    }
}

#[test]
fn an_incomplete_record_is_kept_in_memory_of_its_size() {
    let (server_options, client_options) = options(true, false);
    let mut server = Layers::accept(&server_options).expect("there are layers");
    let mut client = Layers::connect(&client_options).expect("there are layers");
    exchange(&mut client, &mut server);
    let mut bytes = Vec::new();
    client.send(&[7; 64 * 1024], &mut bytes);
    client.send(&[7; 100], &mut bytes);
    bytes.pop();
    let mut inner = Vec::with_capacity(64 * 1024);
    let info = measure(|| server.receive(&bytes, &mut inner).expect("is valid"));
    assert_eq!(inner.len(), 64 * 1024);
    assert!((1..=1_000).contains(&info.bytes_current));
}

/// Bytes that the layers keep after these, in pieces.
fn kept(tls: bool, websocket: bool, bytes: &[u8]) -> i64 {
    let (server_options, _) = options(tls, websocket);
    let mut server = Layers::accept(&server_options).expect("there are layers");
    let mut most = 0;
    let mut now = 0;
    for piece in bytes.chunks(1_000) {
        let mut inner = Vec::new();
        let info = measure(|| {
            let _ = server.receive(piece, &mut inner);
        });
        now += info.bytes_current;
        most = most.max(now);
    }
    most
}

#[test]
fn an_incomplete_handshake_is_limited() {
    // A client hello of 60,000 bytes, in records of 1,000.
    let mut hello = vec![1, 0, 0xEA, 0x60];
    hello.resize(60_004, 0);
    let records: Vec<u8> = hello
        .chunks(1_000)
        .flat_map(|part| {
            let length = u16::try_from(part.len()).expect("short").to_be_bytes();
            [&[22, 3, 1], &length[..], part].concat()
        })
        .collect();
    let bytes = kept(true, false, &records);
    assert!((1_000..=INCOMPLETE).contains(&bytes), "{bytes}");

    let head = [b"GET /mqtt HTTP/1.1\r\nA: ".to_vec(), vec![b'x'; 100_000]].concat();
    let bytes = kept(false, true, &head);
    assert!((1_000..=INCOMPLETE).contains(&bytes), "{bytes}");
}
