//! The bytes of each message, as they were when its version was made, and the table of kinds.
//!
//! `UPDATE_GENERATED=1 cargo test -p herald-peer-protocol` writes the files. A line that changes is another version
//! of the protocol (docs/decisions/0016-peer-protocol.md).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use peer_protocol::{
    Carriage, ClockReading, Encode as _, FORMATS, Kind, NodeRequest, PeerMessage, PeerRequest,
    Refusal, ReplicaRequest, VERSIONS, Welcome,
};
use store_state::api::PerStore;

use crate::samples::{messages, requests, since};

fn compare(name: &str, generated: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let path = folder.join(name);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&path, generated).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is not what the code says, which is:\n{generated}",
        path.display()
    );
    written
}

fn entry(out: &mut String, name: &str, value: &str, bytes: &[u8]) {
    writeln!(out, "\n{name}\n  {value}").unwrap();
    for line in bytes.chunks(32) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(out, "    {}", hex.join(" ")).unwrap();
    }
}

/// The bytes below the name of an entry.
fn bytes_of(golden: &str, name: &str) -> Vec<u8> {
    let mut lines = golden.lines().skip_while(|line| *line != name).skip(2);
    let hex: String = lines
        .by_ref()
        .take_while(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    hex.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

#[test]
fn messages_have_the_bytes_that_they_had() {
    for version in VERSIONS {
        let mut out = format!("Messages between nodes in version {version} of the protocol\n");
        let has = |name: &str, kind: Kind| kind.format().since.max(since(name)) <= version;
        let messages = || {
            let all = messages().into_iter();
            all.filter(|(name, message)| has(name, message.kind()))
        };
        let requests = || {
            let all = requests().into_iter();
            all.filter(|(name, request)| has(name, request.kind()))
        };
        for (name, message) in messages() {
            let value = format!("{message:?}");
            entry(&mut out, name, &value, &message.encode(version).unwrap());
        }
        for (name, request) in requests() {
            let bytes = request.clone().encode(version).unwrap();
            entry(&mut out, name, &format!("{request:?}"), &bytes);
        }
        for (name, value, bytes) in others() {
            entry(&mut out, name, &value, &bytes);
        }
        let golden = compare(&format!("v{version}.txt"), &out);
        for (name, message) in messages() {
            let bytes = bytes_of(&golden, name);
            let read = PeerMessage::decode(&bytes, version).unwrap();
            assert_eq!(format!("{read:?}"), format!("{message:?}"), "{name}");
        }
        for (name, request) in requests() {
            let bytes = bytes_of(&golden, name);
            assert_eq!(PeerRequest::decode(&bytes, version), Ok(request), "{name}");
        }
    }
}

/// A welcome, without the store that it does not say.
fn shown(welcome: &Welcome) -> String {
    format!("{welcome:?}").replace(", control: 1", "")
}

/// What has no tag of its own.
fn others() -> Vec<(&'static str, String, Vec<u8>)> {
    let reading = ClockReading {
        incarnation: 1,
        clock_ms: 1_800_000_000_000,
        system_ms: 1_800_000_000_001,
    };
    let done = Ok(());
    let refused = Err(Refusal::Conflict("it leads".to_owned()));
    let welcome = Welcome {
        shards: PerStore {
            session: 1,
            inbox: 2,
            retain: 300,
            control: 1,
        },
        name_seed: 9,
    };
    let seedless = Welcome {
        name_seed: 0,
        ..welcome
    };
    let replica = ReplicaRequest {
        group: 7,
        request: vec![1, 2].into(),
    };
    vec![
        (
            "clock/answer",
            format!("{reading:?}"),
            reading.encode().to_vec(),
        ),
        (
            "node/answer/done",
            format!("{done:?}"),
            NodeRequest::encode_answer(&done).to_vec(),
        ),
        (
            "node/answer/refused",
            format!("{refused:?}"),
            NodeRequest::encode_answer(&refused).to_vec(),
        ),
        ("welcome", shown(&welcome), welcome.encode().to_vec()),
        (
            "welcome/without-seed",
            shown(&seedless),
            seedless.encode().to_vec(),
        ),
        (
            "replica/request",
            format!("{replica:?}"),
            replica.encode().to_vec(),
        ),
    ]
}

#[test]
fn each_kind_has_a_golden_message() {
    let messages = messages().into_iter().map(|(_, message)| message.kind());
    let requests = requests().into_iter().map(|(_, request)| request.kind());
    let sampled: BTreeSet<Kind> = messages.chain(requests).collect();
    let all: BTreeSet<Kind> = FORMATS.iter().map(|format| format.kind).collect();
    assert_eq!(sampled, all);
}

/// A tag that was in the table once stays in this file, as a kind or as retired.
#[test]
fn the_table_of_kinds_is_what_it_was() {
    let mut out = String::from("tag  kind          carriage  limit      answer  since\n");
    for format in &FORMATS {
        let carriage = match format.carriage {
            Carriage::Message => "message",
            Carriage::Request => "request",
        };
        writeln!(
            out,
            "{:<4} {:<13} {carriage:<9} {:<10} {:<7} {}",
            format.tag, format.name, format.limit, format.answer_limit, format.since
        )
        .unwrap();
    }
    for tag in peer_protocol::RETIRED_TAGS {
        writeln!(out, "{tag:<4} retired").unwrap();
    }
    compare("kinds.txt", &out);
}
