use super::*;
use proptest::prelude::*;

fn open(is_client: bool) -> WebSocket {
    WebSocket::new(Stage::Open, is_client)
}

/// A frame with these first two bytes; a mask follows if the second says so.
fn frame(first: u8, second: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];
    let mut frame = vec![first, second];
    let start = if second & 0x80 == 0 {
        frame.len()
    } else {
        frame.extend(MASK);
        frame.len()
    };
    frame.extend(payload);
    if second & 0x80 != 0 {
        apply_mask(&mut frame[start..], MASK);
    }
    frame
}

fn from_client(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("short");
    frame(first, 0x80 | length, payload)
}

struct Received {
    inner: Vec<u8>,
    output: Vec<u8>,
    result: Result<(), TransportError>,
}

fn receive(websocket: &mut WebSocket, bytes: &[u8]) -> Received {
    let (mut inner, mut output) = (Vec::new(), Vec::new());
    let result = websocket.receive(bytes, &mut inner, &mut output);
    Received {
        inner,
        output,
        result,
    }
}

/// What an open server makes of these frames.
fn served(frames: &[Vec<u8>]) -> Received {
    receive(&mut open(false), &frames.concat())
}

/// The code of the Close frame that answers these frames.
fn close_code(frames: &[Vec<u8>]) -> u16 {
    let received = served(frames);
    let error = received.result.expect_err("is a violation");
    assert!(matches!(error, TransportError::WebSocket(_)), "{error}");
    let [0x88, 2, high, low] = received.output[..] else {
        panic!("no Close frame: {:?}", received.output);
    };
    u16::from_be_bytes([high, low])
}

#[test]
fn the_examples_of_the_rfc_are_read() {
    // RFC 6455 §5.7, with binary frames.
    let mut hello = vec![
        0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    assert_eq!(served(&[hello.clone()]).inner, b"Hello");
    hello[1] = 0x05;
    assert_eq!(close_code(&[hello]), 1002);
    let unmasked = [0x02, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
    let received = receive(&mut open(true), &unmasked);
    assert_eq!(received.inner, b"Hello");
}

// [MQTT-6.0.0-2] [MQTT3-6.0.0-2]
#[test]
fn packets_and_frames_need_not_be_aligned() {
    let pingreq = b"\xC0\x00";
    let two_in_one = from_client(0x82, &pingreq.repeat(2));
    assert_eq!(served(&[two_in_one]).inner, pingreq.repeat(2));
    let received = served(&[
        from_client(0x82, b"\xC0"),
        from_client(0x82, b"\x00"),
        from_client(0x02, b"\xC0"),
        from_client(0x00, b""),
        from_client(0x89, b"between fragments"),
        from_client(0x80, b"\x00"),
    ]);
    assert_eq!(received.inner, pingreq.repeat(2));
    assert!(received.result.is_ok());
}

// [MQTT-6.0.0-1] [MQTT3-6.0.0-1]
#[test]
fn a_text_frame_closes_the_connection() {
    assert_eq!(close_code(&[from_client(0x81, b"\xC0\x00")]), 1003);
    let fragments = [from_client(0x02, b"\xC0"), from_client(0x81, b"\x00")];
    assert_eq!(close_code(&fragments), 1003);
}

// [MQTT-6.0.0-1] [MQTT3-6.0.0-1]
#[test]
fn packets_are_sent_in_binary_frames() {
    let mut output = Vec::new();
    open(false).send(b"\xD0\x00", &mut output);
    assert_eq!(output, b"\x82\x02\xD0\x00");
    let mut output = Vec::new();
    open(true).send(b"\xC0\x00", &mut output);
    assert_eq!(output[..2], [0x82, 0x82]);
    assert_eq!(served(&[output]).inner, b"\xC0\x00");
}

#[test]
fn lengths_in_all_three_forms() {
    for length in [0, 1, 125, 126, 65_535, 65_536, 200_000] {
        let payload: Vec<u8> = (0..=255).cycle().take(length).collect();
        let mut output = Vec::new();
        open(true).send(&payload, &mut output);
        assert!(output.len() <= WebSocket::frame_length(length));
        assert_eq!(served(&[output]).inner, payload);
    }
}

#[test]
fn a_ping_is_answered_and_a_pong_is_not() {
    let received = served(&[from_client(0x89, b"here?"), from_client(0x8A, b"yes")]);
    assert_eq!(received.output, b"\x8A\x05here?");
    assert!(received.result.is_ok());
    assert!(received.inner.is_empty());
}

#[test]
fn violations_are_answered_by_1002() {
    let long = |second: u8, length: &[u8]| {
        let mut header = vec![0x82, 0x80 | second];
        header.extend(length);
        header.extend([0; 4]);
        header
    };
    for (what, frames) in [
        ("not masked", vec![frame(0x82, 0x01, b"x")]),
        ("a reserved bit", vec![from_client(0xC2, b"x")]),
        ("an unknown data frame", vec![from_client(0x83, b"x")]),
        ("an unknown control frame", vec![from_client(0x8B, b"x")]),
        ("nothing to continue", vec![from_client(0x80, b"x")]),
        (
            "another message within one",
            vec![from_client(0x02, b"x"), from_client(0x82, b"x")],
        ),
        ("a ping in fragments", vec![from_client(0x09, b"x")]),
        (
            "a long ping",
            vec![from_client(0x89, &[0; 126]), vec![0; 10]],
        ),
        ("16 bits for a length of 125", vec![long(126, &[0, 125])]),
        (
            "64 bits for a length of 65,535",
            vec![long(127, &[0, 0, 0, 0, 0, 0, 0xFF, 0xFF])],
        ),
        ("a length beyond 63 bits", vec![long(127, &[0xFF; 8])]),
        ("a Close of one byte", vec![from_client(0x88, &[3])]),
        (
            "a Close with code 1005",
            vec![from_client(0x88, &[3, 0xED])],
        ),
        (
            "a Close not in UTF-8",
            vec![from_client(0x88, &[3, 0xE8, 0xFF])],
        ),
    ] {
        assert_eq!(close_code(&frames), 1002, "{what}");
    }
}

#[test]
fn a_close_is_answered_once() {
    let received = served(&[
        from_client(0x82, b"\xE0\x00"),
        from_client(0x88, &[3, 0xE8, b'b', b'y', b'e']),
        from_client(0x82, b"ignored"),
    ]);
    assert_eq!(received.inner, b"\xE0\x00");
    assert_eq!(received.output, [0x88, 2, 3, 0xE8]);
    assert!(matches!(received.result, Err(TransportError::Closed)));

    let received = served(&[from_client(0x88, b"")]);
    assert_eq!(received.output, [0x88, 0]);

    let mut closing = open(false);
    let mut output = Vec::new();
    closing.close(&mut output);
    closing.close(&mut output);
    closing.send(b"late", &mut output);
    assert_eq!(output, [0x88, 2, 3, 0xE8]);
    let received = receive(&mut closing, &from_client(0x88, &[3, 0xE8]));
    assert!(received.output.is_empty());
    assert!(matches!(received.result, Err(TransportError::Closed)));
}

#[test]
fn an_idle_websocket_keeps_nothing() {
    let mut server = WebSocket::accept(Server::at("/mqtt"));
    let mut client = WebSocket::connect(Target {
        host: "broker".to_owned(),
        path: "/mqtt".to_owned(),
    });
    let request = receive(&mut client, &[]).output;
    let response = receive(&mut server, &request).output;
    receive(&mut client, &response).result.expect("opens");
    let mut frames = Vec::new();
    client.send(b"\xC0\x00", &mut frames);
    let (first, second) = frames.split_at(1);
    receive(&mut server, first).result.expect("is a beginning");
    assert_eq!(server.incomplete.len(), 1);
    receive(&mut server, second).result.expect("is the rest");
    assert!(client.is_established() && server.is_established());
    assert_eq!(server.incomplete.capacity(), 0);
    assert_eq!(client.incomplete.capacity(), 0);
}

proptest! {
    #[test]
    fn masking_is_that_of_the_rfc(
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        mask in any::<[u8; 4]>(),
    ) {
        let mut fast = bytes.clone();
        apply_mask(&mut fast, mask);
        let slow: Vec<u8> = bytes.iter().enumerate().map(|(i, byte)| byte ^ mask[i % 4]).collect();
        prop_assert_eq!(fast, slow);
    }

    #[test]
    fn arbitrary_frames_never_panic_and_are_not_hoarded(
        is_client in any::<bool>(),
        frames in proptest::collection::vec(
            (any::<u8>(), any::<u8>(), proptest::collection::vec(any::<u8>(), 0..140)),
            1..8,
        ),
        cut in 1_usize..50,
    ) {
        let mut websocket = open(is_client);
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|(first, second, payload)| frame(*first, *second, payload))
            .collect();
        for piece in bytes.chunks(cut) {
            let received = receive(&mut websocket, piece);
            prop_assert!(received.inner.len() <= piece.len() + LONGEST_HEADER + 125);
            prop_assert!(websocket.incomplete.len() < LONGEST_HEADER + 125);
            if received.result.is_err() {
                break;
            }
        }
    }

    #[test]
    fn arbitrary_heads_never_panic_and_are_not_hoarded(
        request in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..10_000),
    ) {
        let mut websocket = WebSocket::accept(Server::at("/mqtt"));
        let mut input = if request { b"GET /mqtt HTTP/1.1\r\n".to_vec() } else { Vec::new() };
        input.extend(bytes);
        for piece in input.chunks(500) {
            let received = receive(&mut websocket, piece);
            prop_assert!(websocket.incomplete.len() < handshake::HEAD_LIMIT);
            if received.result.is_err() {
                break;
            }
        }
    }
}
