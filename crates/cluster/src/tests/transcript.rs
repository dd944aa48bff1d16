//! A whole link as a dialogue, byte by byte: the handshake, then routes, a publication, a hold, a takeover.
//!
//! `UPDATE_GENERATED=1 cargo test -p herald-cluster transcript` writes `transcript.txt`. A line that changes is another
//! version of the protocol (docs/decisions/0016-peer-protocol.md).

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use mqtt_proto::{MessageBody, QoS};
use mqtt_session::ApplicationMessage;
use peer_protocol::{
    Control, Encode as _, Forwarded, Older, PeerMessage, Publications, Takeover, Whom,
};
use route_exchange::{Batch, Key, Message, State, Value};

use crate::members::list::Place;
use crate::protocol::frame::{Frame, Kind};
use crate::protocol::handshake::{Identity, Party, Purpose};
use crate::{Channel, Secret, Versions};

const DATA: Purpose = Purpose::Carry(Channel::Data);
const VERSION: u16 = 1;
const NONCES: [[u8; 32]; 2] = [[0x11; 32], [0x22; 32]];

/// Something that one node says to the other.
#[derive(PartialEq, Eq, Debug)]
struct Line {
    from: u64,
    what: String,
    bytes: Vec<u8>,
}

fn party(node: u64) -> Party {
    let identity = Identity {
        env: "Test".to_owned(),
        cluster: 7,
        place: Place {
            node,
            incarnation: 1,
            address: format!("10.0.0.{node}:8899"),
        },
        instance: node,
        history: Default::default(),
        versions: Versions::FIRST,
        founds: false,
    };
    let secret = Secret::new(b"secret".to_vec());
    Party::new(identity, Some(&secret))
}

fn line(from: u64, what: impl Into<String>, bytes: &[u8]) -> Line {
    Line {
        from,
        what: what.into(),
        bytes: bytes.to_vec(),
    }
}

fn handshake() -> Vec<Line> {
    let (one, two) = (party(1), party(2));
    let (dialling, hello) = one.dial(DATA, Some(2), NONCES[0]);
    let (challenging, challenge) = two.answer(&hello, true, NONCES[1]).unwrap();
    let (_, proof) = dialling.prove(&challenge).unwrap();
    let verdict = challenging.check(&proof).unwrap().verdict(Ok(None));
    vec![
        line(1, "hello", &hello),
        line(2, "challenge", &challenge),
        line(1, "proof", &proof),
        line(2, "verdict", &verdict),
    ]
}

fn messages() -> Vec<(u64, PeerMessage<'static>)> {
    let batch = Batch {
        stream: 1 << 32,
        sequence: 1,
        routes: vec![(
            Key::Filter("a/+".into()),
            Some(Value::Sessions { all: true }),
        )],
        number: 1,
        complete: true,
        echo_ms: None,
    };
    let state = State {
        stream: 1 << 32,
        sequence: 1,
        number: 1,
        missed: None,
        beat_ms: None,
    };
    let message = ApplicationMessage {
        body: MessageBody::new("a/b", b"payload"),
        qos: QoS::AtLeastOnce,
        retain: false,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    };
    let publisher = peer_protocol::found_by(0, 5, 1);
    let publications = Publications {
        from_loop: 0,
        messages: vec![Forwarded {
            message: Arc::new(message),
            publisher,
            whom: Whom::Sessions,
            origin: None,
        }],
    };
    let correlation_id = 1 << 32 | 1;
    let close = Takeover::Close {
        correlation_id,
        what: Older {
            client: "c".into(),
            epoch: 2,
            number: 0,
            resumes: true,
        },
    };
    let closed = Takeover::Closed {
        correlation_id,
        unreleased: vec![9],
    };
    vec![
        (2, Message::Batch(batch).into()),
        (1, Message::State(state).into()),
        (1, PeerMessage::Publications(publications)),
        (2, Control::Hold { publisher }.into()),
        (2, Control::Release { publisher }.into()),
        (1, close.into()),
        (2, closed.into()),
    ]
}

/// A frame as it stands on the wire.
fn framed(payload: Bytes) -> Vec<u8> {
    let frame = Frame::message(payload);
    let mut bytes = BytesMut::new();
    frame.encode_head(&mut bytes);
    bytes.extend_from_slice(&frame.payload);
    bytes.to_vec()
}

fn dialogue() -> Vec<Line> {
    let said = messages().into_iter().map(|(from, message)| {
        let what = format!("{message:?}");
        line(from, what, &framed(message.encode(VERSION).unwrap()))
    });
    handshake().into_iter().chain(said).collect()
}

fn written(lines: &[Line]) -> String {
    let mut out = format!("A link between node 1, which dials, and node 2, in version {VERSION}\n");
    for Line { from, what, bytes } in lines {
        writeln!(out, "\n{from} → {}  {what}", 3 - from).unwrap();
        for line in bytes.chunks(32) {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "    {}", hex.join(" ")).unwrap();
        }
    }
    out
}

fn read(text: &str) -> Vec<Line> {
    let entries = text.split("\n\n").skip(1);
    let entry = |entry: &str| {
        let (head, hex) = entry.split_once('\n').unwrap();
        let (names, what) = head.split_once("  ").unwrap();
        let bytes = hex.split_whitespace();
        Line {
            from: names[..1].parse().unwrap(),
            what: what.to_owned(),
            bytes: bytes
                .map(|byte| u8::from_str_radix(byte, 16).unwrap())
                .collect(),
        }
    };
    entries.map(entry).collect()
}

#[test]
fn a_link_says_what_it_said() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/transcript.txt");
    let dialogue = dialogue();
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, written(&dialogue)).unwrap();
    }
    let golden = read(&fs::read_to_string(&path).unwrap_or_default());
    assert_eq!(golden, dialogue, "{} is another dialogue", path.display());
    replay(&golden);
}

/// Each side hears what the other one says in the file, and answers what it says there itself.
fn replay(golden: &[Line]) {
    let (said_first, frames) = golden.split_at(4);
    let [hello, challenge, proof, verdict] = said_first else {
        panic!("a handshake has four parts");
    };
    let (one, two) = (party(1), party(2));
    let (dialling, said) = one.dial(DATA, Some(2), NONCES[0]);
    assert_eq!(said, hello.bytes);
    let (challenging, said) = two.answer(&hello.bytes, true, NONCES[1]).unwrap();
    assert_eq!(said, challenge.bytes);
    let (proving, said) = dialling.prove(&challenge.bytes).unwrap();
    assert_eq!(said, proof.bytes);
    let judging = challenging.check(&proof.bytes).unwrap();
    assert_eq!(judging.verdict(Ok(None)), verdict.bytes);
    assert_eq!((proving.version, judging.version), (VERSION, VERSION));
    let (peer, admission) = proving.conclude(&verdict.bytes).ok().unwrap();
    assert_eq!((peer.place.node, admission.is_none()), (2, true));
    for Line { what, bytes, .. } in frames {
        let (length, frame) = bytes.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_be_bytes(*length) as usize, frame.len());
        let frame = Frame::decode(Bytes::copy_from_slice(frame)).unwrap();
        assert_eq!(frame.kind, Kind::Message);
        let message = PeerMessage::decode(&frame.payload, VERSION).unwrap();
        assert_eq!(format!("{message:?}"), *what);
        assert_eq!(framed(message.encode(VERSION).unwrap()), *bytes);
    }
}
