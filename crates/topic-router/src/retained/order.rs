//! The order of topics.
//!
//! Invariant: comparing the bytes of two keys compares their topics level by level. For that the
//! separator must be the least byte, so it changes places with the bytes below it; all of these are
//! ASCII, and the mapping is reversible. The topics below a topic follow it at once, before its siblings.

/// The separator in a key.
pub(super) const SEPARATOR: u8 = byte(b'/');
/// The least byte that can follow a level which is longer than a given one.
pub(super) const LONGER: u8 = SEPARATOR + 1;
pub(super) const SINGLE: &[u8] = &[byte(b'+')];
pub(super) const MULTI: &[u8] = &[byte(b'#')];
pub(super) const DOLLAR: u8 = byte(b'$');

const fn byte(byte: u8) -> u8 {
    match byte {
        b'/' => 0,
        below if below < b'/' => below + 1,
        above => above,
    }
}

/// The key of a topic name or filter.
pub(super) fn of_topic(topic: &str) -> Vec<u8> {
    topic.bytes().map(byte).collect()
}

/// The topic of a key, written to `topic`.
pub(super) fn to_topic<'a>(key: &[u8], topic: &'a mut Vec<u8>) -> &'a str {
    topic.clear();
    topic.extend(key.iter().map(|&byte| match byte {
        0 => b'/',
        below if below <= b'/' => below - 1,
        above => above,
    }));
    core::str::from_utf8(topic).expect("a key is made of a str by a reversible mapping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_compare_one_by_one_and_every_byte_returns() {
        let sorted = [
            "", "/", "//", "/a", "\0", " ", "$", "a", "a/", "a//", "a/b", "a\0", "a!", "a!/b",
            "a0", "ab", "é",
        ];
        assert!(sorted.is_sorted_by_key(|topic| of_topic(topic)));
        let all: String = (0..=char::from_u32(0x250).expect("a character").into())
            .filter_map(char::from_u32)
            .collect();
        assert_eq!(to_topic(&of_topic(&all), &mut Vec::new()), all);
    }
}
