//! The header of the PROXY protocol: whatever comes, whole or in pieces, it comes to the same.

use transport::{Layers, ProxyOptions, ServerOptions};

use crate::{Input, Target};

pub(crate) const TARGET: Target = Target {
    name: "proxy",
    run,
    seeds,
};

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let versions = input.below(4);
    let piece = usize::from(input.byte()).max(1);
    let options = ServerOptions {
        proxy: Some(ProxyOptions {
            v1: versions & 1 == 0,
            v2: versions & 2 == 0,
            names: true,
        }),
        ..ServerOptions::default()
    };
    if input.is_empty() {
        return;
    }
    let whole = read(&options, std::iter::once(input.0));
    let pieces = read(&options, input.0.chunks(piece));
    assert_eq!(whole, pieces);
}

/// Whether the header was taken, whom it names, and what stood behind it.
fn read<'a>(
    options: &ServerOptions,
    mut pieces: impl Iterator<Item = &'a [u8]>,
) -> (bool, Option<String>, Vec<u8>) {
    let mut layers = Layers::accept(options).expect("there is a layer");
    let mut inner = Vec::new();
    let taken = pieces.all(|piece| layers.receive(piece, &mut inner).is_ok());
    let source = layers.source().map(|source| format!("{source:?}"));
    (taken, source, inner)
}

fn seeds() -> Vec<Vec<u8>> {
    let v2 = |command: u8, family: u8, body: &[u8]| {
        let mut header = b"\0\x07\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([command, family, 0, body.len() as u8]);
        header.extend(body);
        header.extend(b"\x10\x0c");
        header
    };
    let inet = [192, 0, 2, 7, 10, 0, 0, 1, 0xC3, 0x50, 0x07, 0x5B];
    vec![
        b"\0\x05PROXY TCP4 192.0.2.7 10.0.0.1 50000 1883\r\n\x10\x0c".to_vec(),
        b"\0\x05PROXY TCP6 2001:db8::7 ::1 1 65535\r\n".to_vec(),
        b"\0\x05PROXY UNKNOWN\r\n".to_vec(),
        v2(0x21, 0x11, &inet),
        v2(0x21, 0x21, &[7; 36]),
        v2(0x21, 0x31, &[b'x'; 216]),
        v2(0x20, 0, &[]),
        v2(0x21, 0x11, &[&inet[..], &[4, 0, 3, 1, 2, 3]].concat()),
    ]
}
