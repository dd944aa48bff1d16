//! What messages say: a number, and after it bytes that follow from it and cannot be compressed.

use crate::node::PAYLOAD;

/// The payload of the message of a number.
pub(crate) fn of(number: u64) -> [u8; PAYLOAD] {
    let mut payload = [0; PAYLOAD];
    let mut word = number;
    for place in payload.chunks_exact_mut(8) {
        place.copy_from_slice(&word.to_le_bytes());
        // SplitMix64
        word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^= word >> 31;
    }
    payload
}
