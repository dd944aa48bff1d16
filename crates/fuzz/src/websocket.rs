//! WebSocket, the server's side: whatever comes, whole or in pieces, it comes to the same.

use std::sync::Arc;

use transport::{Forwarded, ForwardedHeader, Layers, ServerOptions, WebSocketServer};

use crate::{Input, Target};

pub(crate) const TARGET: Target = Target {
    name: "websocket",
    run,
    seeds,
};

const REQUEST: &[u8] =
    b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Protocol: mqtt\r\n\r\n";

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let is_open = input.flag();
    let piece = usize::from(input.byte()).max(1);
    let options = ServerOptions {
        websocket: Some(Arc::new(WebSocketServer {
            path: "/mqtt".to_owned(),
            origins: vec!["https://app.example.com".to_owned()],
            require_origin: false,
            forwarded: Some(Forwarded {
                header: ForwardedHeader::Forwarded,
                trusted: Arc::new(|ip| ip.is_loopback()),
            }),
        })),
        ..ServerOptions::default()
    };
    // Mutations seldom keep a handshake whole, so that is given to most of them.
    let opening = if is_open { REQUEST } else { b"" };
    let bytes = [opening, input.0].concat();
    let whole = read(&options, std::iter::once(&bytes[..]));
    let pieces = read(&options, bytes.chunks(piece));
    assert_eq!(whole, pieces);
    assert!(whole.1.len() <= bytes.len());
}

/// Why it ended, what came of it, and what was answered.
fn read<'a>(
    options: &ServerOptions,
    mut pieces: impl Iterator<Item = &'a [u8]>,
) -> (Option<String>, Vec<u8>, Vec<u8>) {
    let mut layers = Layers::accept(options).expect("there is a layer");
    let mut inner = Vec::new();
    let end = pieces.find_map(|piece| layers.receive(piece, &mut inner).err());
    let mut answer = Vec::new();
    layers.take_output(&mut answer);
    (end.map(|end| end.to_string()), inner, answer)
}

fn seeds() -> Vec<Vec<u8>> {
    let frames: [&[u8]; 6] = [
        b"\x82\x82\x01\x02\x03\x04\x11\x0e",
        b"\x02\x81\0\0\0\0\x10\x80\x81\0\0\0\0\x0c",
        b"\x89\x82\x01\x02\x03\x04hi\x82\xfe\0\x7e\0\0\0\0",
        b"\x88\x82\0\0\0\0\x03\xe8",
        b"\x81\x81\0\0\0\0x",
        b"\x82\xff\0\0\0\0\0\x01\0\0\0\0\0\0",
    ];
    let mut seeds: Vec<_> = frames.map(|frame| [b"\x01\x03", frame].concat()).into();
    seeds.push([b"\0\x10", REQUEST, frames[0]].concat());
    seeds
}
