//! Runs over TLS and WebSocket: the same counts as over TCP, and an end if the broker is not to be trusted.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use loadtest::workload::{Activity, Messages, Pace};
use loadtest::{Listener, Topology, Workload};
use mqtt_proto::QoS;
use report::Record;
use socket2::SockRef;
use tempfile::TempDir;
use transport::{
    ClientAuth, ClientTls, ClientTransport, Layers, MinimumVersion, ServerOptions, ServerTls,
    Tickets,
};

use crate::broker::Broker;
use crate::crew::{activity, crew, record, settings};

const HOST: &str = "localhost";

/// A certificate that signs itself, and its files.
struct Certificate {
    _folder: TempDir,
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificate {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
        let [certificate, key] =
            ["certificate.pem", "key.pem"].map(|name| folder.path().join(name));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Self {
            _folder: folder,
            certificate,
            key,
        }
    }

    fn server(&self, websocket: bool) -> ServerTls {
        ServerTls {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_auth: ClientAuth::None,
            authorities: None,
            revocation_lists: None,
            minimum_version: MinimumVersion::V1_3,
            websocket,
        }
    }

    fn client(&self, websocket: bool) -> ClientTls {
        ClientTls {
            authorities: Some(self.certificate.clone()),
            websocket,
            ..ClientTls::default()
        }
    }
}

/// What a listener's sockets hold: little, so that clients have to wait for room.
const RECEIVE_BUFFER: usize = 4 * 1024;

/// A listener of the broker with layers.
fn listen(options: ServerOptions, broker: &Broker) -> Listener {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&socket)
        .set_recv_buffer_size(RECEIVE_BUFFER)
        .unwrap();
    let (address, broker) = (socket.local_addr().unwrap(), broker.address);
    thread::spawn(move || {
        for stream in socket.incoming() {
            serve(stream.unwrap(), &options, broker);
        }
    });
    Listener {
        host: HOST.to_owned(),
        address,
    }
}

/// Passes on what comes from either side until one of them ends.
fn serve(client: TcpStream, options: &ServerOptions, broker: SocketAddr) {
    let broker = TcpStream::connect(broker).unwrap();
    let layers = Arc::new(Mutex::new(Layers::accept(options).unwrap()));
    let (ours, theirs) = (client.try_clone().unwrap(), broker.try_clone().unwrap());
    let sealing = layers.clone();
    thread::spawn(move || {
        pump(&broker, &client, |bytes, out| {
            sealing.lock().unwrap().send(bytes, out);
            true
        });
    });
    thread::spawn(move || {
        pump(&ours, &theirs, |bytes, out| {
            let mut layers = layers.lock().unwrap();
            let is_right = layers.receive(bytes, out).is_ok();
            let mut answer = Vec::new();
            layers.take_output(&mut answer);
            (&ours).write_all(&answer).is_ok() && is_right
        });
    });
}

/// Ends both connections when `pass` says so.
fn pump(
    mut from: &TcpStream,
    mut to: &TcpStream,
    mut pass: impl FnMut(&[u8], &mut Vec<u8>) -> bool,
) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let mut out = Vec::new();
        let goes_on = pass(&chunk[..count], &mut out);
        if to.write_all(&out).is_err() || !goes_on {
            break;
        }
    }
    // Whoever has ended is gone already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn pairs(qos: QoS, payload_len: usize, pace: Pace) -> Workload {
    activity(Activity::Messages(Messages {
        topology: Topology::Pairs { pairs: 3 },
        payload_len,
        qos,
        pace,
        clean_session: true,
        retain: false,
        read_rate: None,
    }))
}

/// A run of two workers through layers; what they begin with is for the client to say.
fn play(
    options: ServerOptions,
    transport: ClientTransport,
    workload: Workload,
) -> Result<Record, String> {
    let broker = Broker::start(&[]);
    let mut settings = settings(workload, &broker, Duration::from_millis(300));
    settings.listeners = vec![listen(options, &broker)];
    settings.transport = transport;
    let played = record(crew(2), &settings);
    if played.is_ok() {
        let sessions = broker.seen_when_empty().sessions;
        assert!(sessions.iter().all(|session| session.took_leave));
    }
    played.map_err(|error| error.to_string())
}

/// Small messages, and some of many TLS records that no socket takes at once.
#[test]
fn every_layer_gets_all_messages() {
    let certificate = Certificate::new();
    let small = |qos| pairs(qos, 32, Pace::Open { per_second: 600.0 });
    let large = || pairs(QoS::AtLeastOnce, 4_000_000, Pace::Closed { window: 1 });
    for (tls, websocket) in [(true, false), (false, true), (true, true)] {
        for workload in [small(QoS::AtMostOnce), small(QoS::ExactlyOnce), large()] {
            let files = certificate.server(websocket);
            let options = ServerOptions {
                proxy: None,
                tls: tls.then(|| files.load(&Tickets::default()).unwrap().into()),
                websocket: websocket.then(|| transport::WebSocketServer::at("/mqtt")),
            };
            let transport = ClientTransport {
                tls: tls.then(|| certificate.client(websocket)),
                websocket: websocket.then(|| "/mqtt".to_owned()),
            };
            let counts = play(options, transport, workload).unwrap().counts;
            let case = format!("TLS {tls}, WebSocket {websocket}: {counts:?}");
            assert!(counts.sent > 0, "{case}");
            assert_eq!(counts.delivered, counts.sent, "{case}");
            let faults = [counts.lost, counts.duplicated, counts.reordered];
            assert_eq!(faults, [0; 3], "{case}");
            assert_eq!(counts.disconnects, 0, "{case}");
        }
    }
}

#[test]
fn a_broker_that_is_not_trusted_ends_the_run() {
    let (own, other) = (Certificate::new(), Certificate::new());
    let tls = own.server(false).load(&Tickets::default()).unwrap();
    let options = ServerOptions {
        tls: Some(tls.into()),
        ..ServerOptions::default()
    };
    let transport = |tls| ClientTransport {
        tls: Some(tls),
        websocket: None,
    };
    let workload = pairs(QoS::AtMostOnce, 32, Pace::Open { per_second: 600.0 });
    let play = |tls| play(options.clone(), transport(tls), workload.clone());

    let said = play(other.client(false)).unwrap_err();
    assert!(said.contains("client test-part-"), "{said}");
    assert!(said.contains("TLS: invalid peer certificate"), "{said}");
    let anyone = ClientTls {
        insecure: true,
        ..other.client(false)
    };
    assert_eq!(play(anyone).unwrap().counts.lost, 0);
    let nothing = ClientTls {
        authorities: Some("no-such-file.pem".into()),
        ..ClientTls::default()
    };
    let said = play(nothing).unwrap_err();
    assert!(said.contains("no-such-file.pem"), "{said}");
}
