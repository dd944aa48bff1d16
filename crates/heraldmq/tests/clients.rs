//! `heraldmq pub` and `heraldmq sub` as processes, against a broker that follows a script.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use mqtt_proto::{
    ConnAck, Packet, PacketId, ProtocolVersion, PubAck, PubComp, PubRec, PubRel, Publish, QoS,
    ReasonCode, ReasonCodes, SubAck, peek_frame,
};

const V5: ProtocolVersion = ProtocolVersion::V5;

/// The broker's side of one connection.
struct Peer {
    stream: TcpStream,
    pending: Vec<u8>,
}

impl Peer {
    /// The next packet, handed to `check`.
    fn expect<T>(&mut self, check: impl FnOnce(Packet<'_>) -> T) -> T {
        loop {
            if let Some(header) = peek_frame(&self.pending, Some(V5)).expect("a frame")
                && self.pending.len() >= header.len()
            {
                let frame: Vec<u8> = self.pending.drain(..header.len()).collect();
                return check(Packet::decode(&frame, V5).expect("a packet"));
            }
            let mut chunk = [0; 1024];
            let length = self
                .stream
                .read(&mut chunk)
                .expect("the client sends in time");
            assert!(length > 0, "the client closed the connection too early");
            self.pending.extend_from_slice(&chunk[..length]);
        }
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let mut frame = Vec::new();
        packet.encode(V5, &mut frame).expect("encodable");
        self.stream.write_all(&frame).expect("the client is there");
    }

    fn accept(&mut self, reason: ReasonCode) {
        self.expect(|packet| assert!(matches!(packet, Packet::Connect(_)), "{packet:?}"));
        let properties = Default::default();
        self.send(&Packet::ConnAck(ConnAck {
            session_present: false,
            reason,
            properties,
        }));
    }

    fn subscribe(&mut self, reason: ReasonCode) {
        let packet_id = self.expect(|packet| match packet {
            Packet::Subscribe(subscribe) => subscribe.packet_id,
            other => panic!("{other:?}"),
        });
        let reasons = [reason];
        let reasons = ReasonCodes::from(reasons.as_slice());
        self.send(&Packet::SubAck(SubAck {
            packet_id,
            properties: Default::default(),
            reasons,
        }));
    }

    fn publish(&mut self, qos: QoS, id: u16, payload: &str) {
        self.send(&Packet::Publish(Publish {
            dup: false,
            qos,
            retain: false,
            topic: "a",
            packet_id: PacketId::new(id),
            properties: Default::default(),
            payload: payload.as_bytes(),
        }));
    }

    fn expect_disconnect(&mut self) {
        self.expect(|packet| assert!(matches!(packet, Packet::Disconnect(_)), "{packet:?}"));
    }
}

/// Runs a client with `arguments` against `script`.
fn run(arguments: &[&str], script: impl FnOnce(Peer) + Send + 'static) -> Output {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let broker: JoinHandle<()> = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a socket");
        script(Peer {
            stream,
            pending: Vec::new(),
        });
    });
    let output = Command::new(env!("CARGO_BIN_EXE_heraldmq"))
        .args(arguments)
        .args(["-h", "127.0.0.1", "-p", &port])
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    broker.join().expect("the script ran to its end");
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn a_refused_connection_is_one_line_that_names_the_reason() {
    for command in [["pub", "-t", "a", "-m", "x"], ["sub", "-t", "a", "-q", "0"]] {
        let output = run(&command, |mut peer| peer.accept(ReasonCode::NotAuthorized));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            text(&output.stderr),
            "heraldmq: the broker refused the connection: Not authorized (0x87)\n"
        );
    }
}

#[test]
fn pub_waits_for_the_whole_handshake_of_qos_2() {
    let output = run(&["pub", "-t", "a", "-m", "x", "-q", "2"], |mut peer| {
        peer.accept(ReasonCode::Success);
        let packet_id = peer.expect(|packet| match packet {
            Packet::Publish(publish) => publish.packet_id.expect("QoS 2"),
            other => panic!("{other:?}"),
        });
        let (reason, properties) = (ReasonCode::Success, Default::default());
        peer.send(&Packet::PubRec(PubRec {
            packet_id,
            reason,
            properties,
        }));
        peer.expect(|packet| assert!(matches!(packet, Packet::PubRel(_)), "{packet:?}"));
        peer.send(&Packet::PubComp(PubComp {
            packet_id,
            reason,
            properties,
        }));
        peer.expect_disconnect();
    });
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_refused_message_fails() {
    let output = run(&["pub", "-t", "a", "-m", "x", "-q", "1"], |mut peer| {
        peer.accept(ReasonCode::Success);
        let packet_id = peer.expect(|packet| match packet {
            Packet::Publish(publish) => publish.packet_id.expect("QoS 1"),
            other => panic!("{other:?}"),
        });
        let (reason, properties) = (ReasonCode::QuotaExceeded, Default::default());
        peer.send(&Packet::PubAck(PubAck {
            packet_id,
            reason,
            properties,
        }));
        peer.expect_disconnect();
    });
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "heraldmq: the broker refused the message: Quota exceeded (0x97)\n"
    );
}

#[test]
fn sub_prints_a_repeated_message_of_qos_2_once_and_completes_it_before_it_ends() {
    let output = run(&["sub", "-t", "a", "-q", "2", "-C", "1"], |mut peer| {
        peer.accept(ReasonCode::Success);
        peer.subscribe(ReasonCode::GrantedQoS2);
        peer.publish(QoS::ExactlyOnce, 9, "once");
        peer.publish(QoS::ExactlyOnce, 9, "once");
        let packet_id = peer.expect(|packet| match packet {
            Packet::PubRec(ack) => ack.packet_id,
            other => panic!("{other:?}"),
        });
        let (reason, properties) = (ReasonCode::Success, Default::default());
        peer.send(&Packet::PubRel(PubRel {
            packet_id,
            reason,
            properties,
        }));
        peer.expect(|packet| assert!(matches!(packet, Packet::PubComp(_)), "{packet:?}"));
        peer.expect_disconnect();
    });
    assert_eq!(text(&output.stdout), "once\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_refused_subscription_fails() {
    let output = run(&["sub", "-t", "a"], |mut peer| {
        peer.accept(ReasonCode::Success);
        peer.subscribe(ReasonCode::NotAuthorized);
        peer.expect_disconnect();
    });
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "heraldmq: the broker refused the subscription to a: Not authorized (0x87)\n"
    );
}

#[test]
fn time_over_is_exit_code_27() {
    let output = run(&["sub", "-t", "a", "-W", "1"], |mut peer| {
        peer.accept(ReasonCode::Success);
        peer.subscribe(ReasonCode::Success);
        peer.expect_disconnect();
    });
    assert_eq!(output.status.code(), Some(27));
}

#[test]
fn a_lost_connection_is_a_failure() {
    let output = run(&["sub", "-t", "a", "--no-reconnect"], |mut peer| {
        peer.accept(ReasonCode::Success);
        peer.subscribe(ReasonCode::Success);
    });
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "heraldmq: the broker closed the connection\n"
    );
}
