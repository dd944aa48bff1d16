//! Reading and writing the data types of §1.5: integers, variable byte integers, strings, binary data.
//!
//! Invariant: every take is checked; what a [`Reader`] hands out borrows from the frame. Writers leave
//! `out` as it was when they fail.

use crate::frame::MAX_REMAINING_LENGTH;
use crate::{DecodeError, EncodeError, PacketId};

/// A cursor over the bytes of one packet.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read yet.
    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn variable_byte_integer(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for position in 0..4 {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << (7 * position);
            if byte & 0x80 == 0 {
                // [MQTT-1.5.5-1] the shortest form only: a last byte of 0 would add nothing.
                if byte == 0 && position > 0 {
                    return Err(DecodeError::VariableByteIntegerNotMinimal);
                }
                return Ok(value);
            }
        }
        Err(DecodeError::VariableByteIntegerTooLong)
    }

    /// Binary data: two bytes of length, then as many bytes.
    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    #[inline]
    pub(crate) fn string(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.binary()?;
        // [MQTT-1.5.4-1] [MQTT3-1.5.3-1] well-formed UTF-8, hence no surrogates.
        let string = std::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)?;
        // [MQTT-1.5.4-2] [MQTT3-1.5.3-2] no U+0000.
        if contains_nul(bytes) {
            return Err(DecodeError::NulInString);
        }
        // [MQTT-1.5.4-3] [MQTT3-1.5.3-3] U+FEFF is a character like any other: nothing is stripped.
        Ok(string)
    }

    /// A topic name, except that it may be empty; `wildcard` is the error for wildcard characters.
    #[inline]
    pub(crate) fn topic(&mut self, wildcard: DecodeError) -> Result<&'a str, DecodeError> {
        let bytes = self.binary()?;
        // [MQTT-1.5.4-1] [MQTT3-1.5.3-1] well-formed UTF-8.
        let topic = std::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)?;
        if is_plain(bytes) {
            return Ok(topic);
        }
        // [MQTT-1.5.4-2] [MQTT3-1.5.3-2] no U+0000. The caller names the rule on wildcards.
        Err(if contains_nul(bytes) {
            DecodeError::NulInString
        } else {
            wildcard
        })
    }

    #[inline]
    pub(crate) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        // [MQTT-2.2.1-3] [MQTT-2.2.1-4] [MQTT3-2.3.1-1] never 0.
        PacketId::new(self.u16()?).ok_or(DecodeError::PacketIdentifierZero)
    }

    /// Ends the packet here.
    #[inline]
    pub(crate) const fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes)
        }
    }
}

const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// Non-zero if and only if some byte of `word` is zero.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(EVERY_BYTE) & !word & (EVERY_BYTE << 7)
}

/// Whether any byte, taken eight at a time, makes `find` non-zero. The last eight overlap those before;
/// fewer than eight are padded with a letter, which is neither NUL nor a wildcard character. A library
/// search stops at the first hit and pays for that on each of the strings that hold none.
#[inline]
fn any_byte(bytes: &[u8], find: impl Fn(u64) -> u64) -> bool {
    let mut found = 0;
    match bytes.last_chunk::<8>() {
        Some(last) => {
            for word in bytes.as_chunks::<8>().0 {
                found |= find(u64::from_le_bytes(*word));
            }
            found |= find(u64::from_le_bytes(*last));
        }
        None => {
            let mut word = u64::from(b'a') * EVERY_BYTE;
            for byte in bytes {
                word = word << 8 | u64::from(*byte);
            }
            found |= find(word);
        }
    }
    found != 0
}

#[inline]
pub(crate) fn contains_nul(bytes: &[u8]) -> bool {
    any_byte(bytes, zero_bytes)
}

/// Non-zero if and only if some byte of `word` is `+` (0x2B) or `#` (0x23): one bit apart, so one
/// comparison finds both.
#[inline]
const fn wildcard_bytes(word: u64) -> u64 {
    zero_bytes((word | (EVERY_BYTE << 3)) ^ (b'+' as u64 * EVERY_BYTE))
}

#[inline]
pub(crate) fn contains_wildcard(bytes: &[u8]) -> bool {
    any_byte(bytes, wildcard_bytes)
}

/// Whether `bytes` hold neither U+0000 nor a wildcard character.
#[inline]
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    !any_byte(bytes, |word| zero_bytes(word) | wildcard_bytes(word))
}

/// Bytes that a variable byte integer takes; values above 268,435,455 do not occur.
#[inline]
pub(crate) const fn variable_byte_integer_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

#[inline]
pub(crate) fn put_variable_byte_integer(mut value: usize, out: &mut Vec<u8>) {
    while value > 0x7F {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub(crate) fn put_u16(value: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn put_u32(value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn put_binary(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let len = u16::try_from(bytes.len()).map_err(|_| EncodeError::FieldTooLong)?;
    put_u16(len, out);
    out.extend_from_slice(bytes);
    Ok(())
}

#[inline]
pub(crate) fn put_string(string: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if contains_nul(string.as_bytes()) {
        return Err(EncodeError::NulInString);
    }
    put_binary(string.as_bytes(), out)
}

/// Writes a topic name, which may be empty only if `may_be_empty`.
#[inline]
pub(crate) fn put_topic(
    topic: &str,
    may_be_empty: bool,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let bytes = topic.as_bytes();
    if bytes.is_empty() && !may_be_empty || !is_plain(bytes) {
        return Err(EncodeError::TopicNameInvalid);
    }
    put_binary(bytes, out)
}

/// Writes a length as variable byte integer in front of what `write` appends, plus `behind` bytes that
/// the caller appends later.
///
/// One byte is set aside for the length, and what was written moves up when that is not enough: most
/// blocks are shorter than 128 bytes, and counting each before writing it would say everything twice.
#[inline]
pub(crate) fn put_length_prefixed(
    out: &mut Vec<u8>,
    behind: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.push(0);
    write(out)?;
    let length = out.len() - start - 1 + behind;
    if length <= 0x7F {
        if let Some(first) = out.get_mut(start) {
            *first = length as u8;
        }
        return Ok(());
    }
    if length > MAX_REMAINING_LENGTH {
        return Err(EncodeError::PacketTooLarge);
    }
    let mut encoded = [0; 4];
    let mut rest = length;
    let mut used = 0;
    for byte in &mut encoded {
        *byte = rest as u8 & 0x7F | if rest > 0x7F { 0x80 } else { 0 };
        used += 1;
        rest >>= 7;
        if rest == 0 {
            break;
        }
    }
    out.splice(start..=start, encoded.into_iter().take(used));
    Ok(())
}

/// Appends one frame: fixed header, what `write` appends, `payload`.
#[inline]
pub(crate) fn put_frame(
    first_byte: u8,
    payload: &[u8],
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.push(first_byte);
    let written = put_length_prefixed(out, payload.len(), write);
    match written {
        Ok(()) => out.extend_from_slice(payload),
        Err(_) => out.truncate(start),
    }
    written
}

#[cfg(test)]
mod tests;
