//! What decoding takes in memory, and what encoding allocates.

use allocation_counter::measure;
use peer_protocol::{Encode as _, Kind, PeerMessage, PublicationsFrame, VERSIONS};

use crate::samples::{messages, publications};

const VERSION: u16 = *VERSIONS.end();

/// Bytes of memory for a byte of a message, and whatever the message is.
const FACTOR: usize = 64;
const BASE: usize = 4 * 1024;

/// Lengths that are not there.
const CLAIMED: [u8; 5] = [0xFF, 0xFF, 0xFF, 0xFF, 0x0F];

fn is_in_proportion(bytes: &[u8]) {
    let taken = measure(|| drop(PeerMessage::decode(bytes, VERSION)));
    let most = BASE + FACTOR * bytes.len();
    assert!(
        taken.bytes_max as usize <= most,
        "{} bytes for {} bytes, {:02x?}",
        taken.bytes_max,
        bytes.len(),
        &bytes[..bytes.len().min(64)]
    );
}

#[test]
fn decoding_takes_memory_in_proportion_to_the_bytes() {
    for (_, message) in messages() {
        let bytes = message.encode(VERSION).unwrap();
        is_in_proportion(&bytes);
        for at in 1..bytes.len() {
            let claimed = [&bytes[..at], &CLAIMED, &bytes[at..]].concat();
            is_in_proportion(&claimed);
            let padded = [&bytes[..at], &CLAIMED, &[0; 20_000]].concat();
            is_in_proportion(&padded);
        }
    }
}

#[test]
fn a_message_is_appended_to_a_frame_without_an_allocation_of_its_own() {
    let publications = publications();
    let mut frame = PublicationsFrame::new(3);
    // Room for the rest.
    frame.push_encoded(&publications.messages[0].append(Vec::with_capacity(64 * 1024)));
    let mut encoded = Vec::with_capacity(64 * 1024);
    for _ in 0..4 {
        encoded = publications.messages[1].append(encoded);
    }
    let grown = encoded.len();
    let appended = measure(|| {
        encoded = publications.messages[1].append(std::mem::take(&mut encoded));
    });
    assert!(encoded.len() > grown);
    assert_eq!(appended.count_total, 0, "in a buffer with room");
    let mut frame = Some(frame);
    let sent = measure(|| {
        let bytes = frame.take().unwrap().encode(VERSION).unwrap();
        assert_eq!(bytes[0], Kind::Publications.tag());
    });
    assert!(sent.count_total <= 1, "a frame is not copied: {sent:?}");
}
