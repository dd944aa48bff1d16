//! Payloads that are JSON objects of numbers, as TBMQ's publishers send them: the stamp is in their digits.
//!
//! Invariant: all payloads of a template have the same length and differ only in digits, so that the stamp is
//! read without a parser.

use crate::verify::Stamp;

/// Digits of a stamp: four numbers of 32 bits.
const STAMP_DIGITS: usize = 4 * WORD_DIGITS;

/// Decimal digits of a number of 32 bits.
const WORD_DIGITS: usize = 10;

/// Digits of a value after `1.`, at least: five keys as of TBMQ's report make its 114 bytes.
const VALUE_DIGITS: usize = 12;

/// A payload with zeros for the stamp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// Places of the stamp's digits.
    places: Vec<usize>,
}

impl Template {
    /// With these keys, padded with spaces to `len` bytes; longer if they need more.
    pub(crate) fn new(keys: &[String], len: usize) -> Self {
        let digits = VALUE_DIGITS.max(STAMP_DIGITS.div_ceil(keys.len().max(1)));
        let mut bytes = vec![b'{'];
        let mut places = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            if number > 0 {
                bytes.push(b',');
            }
            // As JSON: with quotes and escapes.
            bytes.extend(serde_json::Value::from(key.as_str()).to_string().bytes());
            bytes.extend(b":1.");
            places.extend(bytes.len()..bytes.len() + digits);
            bytes.resize(bytes.len() + digits, b'0');
        }
        places.truncate(STAMP_DIGITS);
        bytes.resize((bytes.len() + 1).max(len.saturating_sub(1)), b' ');
        bytes.push(b'}');
        Self { bytes, places }
    }

    /// Bytes of each payload.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes a payload; `to` must have its length.
    pub(crate) fn write(&self, stamp: Stamp, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes);
        let words = stamp.to_bytes();
        let words = words
            .chunks_exact(4)
            .map(|word| word.iter().fold(0_u32, |w, &b| w << 8 | u32::from(b)));
        for (mut word, places) in words.zip(self.places.chunks_exact(WORD_DIGITS)) {
            for &place in places.iter().rev() {
                to[place] = b'0' + (word % 10) as u8;
                word /= 10;
            }
        }
    }

    /// Reads a payload; `None` if it is none of these.
    pub(crate) fn read(&self, payload: &[u8]) -> Option<Stamp> {
        if payload.len() != self.bytes.len() {
            return None;
        }
        let mut stamp = [0; Stamp::LEN];
        let words = stamp.chunks_exact_mut(4);
        for (to, places) in words.zip(self.places.chunks_exact(WORD_DIGITS)) {
            let mut word = 0_u64;
            for &place in places {
                let digit = payload[place].wrapping_sub(b'0');
                word = word * 10 + u64::from((digit < 10).then_some(digit)?);
            }
            to.copy_from_slice(&u32::try_from(word).ok()?.to_be_bytes());
        }
        Some(Stamp::from_bytes(&stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Run;

    #[test]
    fn a_stamp_survives_json_whatever_the_keys() {
        let report = ["lat", "long", "speed", "fuel", "batLvl"];
        for (keys, least, len) in [
            (&report[..], 1, 114),
            (&report[..], 200, 200),
            (&["a"][..], 0, 49),
            (&["\"", "b"][..], 0, 57),
        ] {
            let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
            let template = Template::new(&keys, least);
            assert_eq!(template.len(), len, "{keys:?}");
            let stamp = Stamp {
                publisher: u32::MAX,
                sequence: 7,
                run: Run::named("x"),
                due_ns: 123_456_789_012_345,
            };
            let mut payload = vec![0; len];
            template.write(stamp, &mut payload);
            assert_eq!(template.read(&payload), Some(stamp));
            let json: serde_json::Value = serde_json::from_slice(&payload).unwrap();
            assert_eq!(json.as_object().unwrap().len(), keys.len(), "{json}");
            assert_eq!(template.read(&payload[1..]), None);
            assert_eq!(template.read(&vec![b'x'; len]), None);
        }
    }
}
