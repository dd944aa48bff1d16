//! The rows of the tables: how keys and values are laid out.
//!
//! Invariants: keys of a kind sort by slot, so that the rows of a range of slots stand together; a value
//! begins with the number of the format that it was written in.
//!
//! Deliberately absent: what the rows mean.

use std::ops::ControlFlow;

use serde::{Serialize, de::DeserializeOwned};

use crate::load_error::LoadError;
use crate::slot::SlotRange;
use crate::table::Table;

/// The format that this version writes.
pub(crate) const FORMAT: u8 = 1;

/// Bytes before the name in a key: the kind, and the slot.
const HEAD: usize = 3;

/// The key of the row of a client or topic with this slot.
pub(crate) fn key(kind: u8, slot: u16, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(HEAD + name.len() + size_of::<u64>());
    key.push(kind);
    key.extend_from_slice(&slot.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

/// The key of one of several rows of a client: by an epoch, or the number of an inbox.
pub(crate) fn numbered_key(kind: u8, slot: u16, name: &str, number: u64) -> Vec<u8> {
    let mut key = key(kind, slot, name);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The key of a row in a table of a test.
#[cfg(test)]
pub(crate) fn unseeded_key(kind: u8, name: &str) -> Vec<u8> {
    key(kind, crate::NameHash::default().slot_of(name), name)
}

/// The same of one of several rows.
#[cfg(test)]
pub(crate) fn unseeded_numbered_key(kind: u8, name: &str, number: u64) -> Vec<u8> {
    numbered_key(kind, crate::NameHash::default().slot_of(name), name, number)
}

/// The slot in a key whose rows sort by it. `None`: the key is too short for one.
pub(crate) fn slot(key: &[u8]) -> Option<u16> {
    let slot = key.get(1..HEAD)?.first_chunk()?;
    Some(u16::from_be_bytes(*slot))
}

/// The name in a key that [`key`] made.
pub(crate) fn name(key: &[u8]) -> Result<&str, LoadError> {
    key.get(HEAD..)
        .and_then(|name| std::str::from_utf8(name).ok())
        .ok_or_else(|| damaged(key, "the key has no name"))
}

/// The name and the number in a key that [`numbered_key`] made.
pub(crate) fn name_and_number(key: &[u8]) -> Result<(&str, u64), LoadError> {
    let Some((head, number)) = key.split_last_chunk() else {
        return Err(damaged(key, "the key has no number"));
    };
    Ok((name(head)?, u64::from_be_bytes(*number)))
}

/// Whether a row belongs to a shard of this range: by the slot in its key, if its kind has one. Other rows belong to
/// each shard.
pub(crate) fn is_within(key: &[u8], range: SlotRange, kinds_with_slot: &[u8]) -> bool {
    match key {
        [kind, high, low, ..] if kinds_with_slot.contains(kind) => {
            range.contains(u16::from_be_bytes([*high, *low]))
        }
        _ => true,
    }
}

/// A value as it is written.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(value, vec![FORMAT]).expect("memory takes what is written to it")
}

/// A value as it was written.
pub(crate) fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, LoadError> {
    let (value, rest) = decode_first(key, value)?;
    is_all(key, rest)?;
    Ok(value)
}

/// A value as it was written, and what stands behind it, if anything does: earlier versions wrote only the
/// value.
pub(crate) fn decode_with<T: DeserializeOwned, Behind: DeserializeOwned>(
    key: &[u8],
    value: &[u8],
) -> Result<(T, Option<Behind>), LoadError> {
    let (value, rest) = decode_first(key, value)?;
    if rest.is_empty() {
        return Ok((value, None));
    }
    let (behind, rest) = take(key, rest)?;
    is_all(key, rest)?;
    Ok((value, Some(behind)))
}

/// The beginning of a value, and the bytes behind it.
pub(crate) fn decode_first<'a, T: DeserializeOwned>(
    key: &[u8],
    value: &'a [u8],
) -> Result<(T, &'a [u8]), LoadError> {
    let Some((&format, value)) = value.split_first() else {
        return Err(damaged(key, "it is empty"));
    };
    if format != FORMAT {
        return Err(LoadError::Format {
            found: format.into(),
            known: FORMAT.into(),
        });
    }
    take(key, value)
}

fn take<'a, T: DeserializeOwned>(key: &[u8], bytes: &'a [u8]) -> Result<(T, &'a [u8]), LoadError> {
    let taken: Result<(T, &[u8]), _> = postcard::take_from_bytes(bytes);
    taken.map_err(|error| damaged(key, &error.to_string()))
}

fn is_all(key: &[u8], rest: &[u8]) -> Result<(), LoadError> {
    if rest.is_empty() {
        return Ok(());
    }
    Err(damaged(key, "it is longer than it should be"))
}

/// Visits the rows of a kind whose slots are in a range.
pub(crate) fn each(
    table: &dyn Table,
    kind: u8,
    range: SlotRange,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let from = [&[kind][..], &range.first.to_be_bytes()].concat();
    let to = match range.last.checked_add(1) {
        Some(end) => [&[kind][..], &end.to_be_bytes()].concat(),
        None => vec![kind + 1],
    };
    let mut result = Ok(());
    table.range(&from, &to, &mut |key, value| {
        result = visit(key, value);
        if result.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    result
}

/// A row that cannot be read.
pub(crate) fn damaged(key: &[u8], what: &str) -> LoadError {
    LoadError::Damaged {
        key: key.iter().map(|byte| format!("{byte:02x}")).collect(),
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Changes, test_table::TestTable};

    #[test]
    fn keys_say_what_they_were_made_of() {
        assert_eq!(name(&key(b'S', 7, "a/ü")), Ok("a/ü"));
        assert_eq!(
            name_and_number(&numbered_key(b'W', 7, "a", 1 << 40)),
            Ok(("a", 1 << 40))
        );
        assert_eq!(key(b'S', 0x1234, "a")[1..3], [0x12, 0x34]);
        for bad in [&b""[..], b"S", b"S\0\0\xff"] {
            assert!(matches!(name(bad), Err(LoadError::Damaged { .. })));
        }
        assert!(matches!(
            name_and_number(b"W\0\0\0\0\0\0\0\0"),
            Err(LoadError::Damaged { .. })
        ));
    }

    #[test]
    fn a_row_is_within_the_range_that_has_its_slot() {
        let is_within = |key: &[u8], first, last| is_within(key, SlotRange { first, last }, b"SW");
        let row = key(b'S', 0x1234, "a");
        assert!(is_within(&row, 0x1234, 0x1234));
        assert!(!is_within(&row, 0, 0x1233) && !is_within(&row, 0x1235, u16::MAX));
        for other in [b"M".to_vec(), key(b'T', 0x1234, "a"), b"S\0".to_vec()] {
            assert!(is_within(&other, 0, 0));
        }
    }

    #[test]
    fn a_value_that_is_not_what_it_should_be_is_refused() {
        let value = encode(&(7u64, "text"));
        assert_eq!(
            decode::<(u64, String)>(b"k", &value),
            Ok((7, "text".to_owned()))
        );
        for cut in 0..value.len() {
            let result = decode::<(u64, String)>(b"k", &value[..cut]);
            assert!(matches!(result, Err(LoadError::Damaged { .. })), "{cut}");
        }
        let longer = [&value[..], &[0]].concat();
        let result = decode::<(u64, String)>(b"k", &longer);
        assert!(matches!(result, Err(LoadError::Damaged { .. })));
        let other = [&[FORMAT + 1], &value[1..]].concat();
        let (found, known) = (2, 1);
        assert_eq!(
            decode::<(u64, String)>(b"k", &other),
            Err(LoadError::Format { found, known })
        );
    }

    #[test]
    fn what_stands_behind_a_value_may_be_missing() {
        type Decoded = Result<(u64, Option<String>), LoadError>;
        let decode = |value: &[u8]| -> Decoded { decode_with(b"k", value) };
        assert_eq!(decode(&encode(&7u64)), Ok((7, None)));
        let with = encode(&(7u64, "text"));
        assert_eq!(decode(&with), Ok((7, Some("text".to_owned()))));
        for cut in (0..with.len()).filter(|cut| *cut != 2) {
            assert!(decode(&with[..cut]).is_err(), "{cut}");
        }
        assert!(decode(&[&with[..], &[0]].concat()).is_err());
    }

    #[test]
    fn only_rows_of_the_kind_and_the_range_are_visited() {
        let mut table = TestTable::default();
        let mut changes = Changes::default();
        for kind in *b"RST" {
            for slot in [0u16, 9, 10, 20, 21, u16::MAX] {
                let key = [&[kind][..], &slot.to_be_bytes(), b"x"].concat();
                changes.put(key, Vec::new());
            }
        }
        table.write(&changes);
        let slots = |first, last| {
            let mut found = Vec::new();
            let visited = each(&table, b'S', SlotRange { first, last }, |key, _| {
                found.push(u16::from_be_bytes([key[1], key[2]]));
                Ok(())
            });
            assert_eq!(visited, Ok(()));
            found
        };
        assert_eq!(slots(10, 20), [10, 20]);
        assert_eq!(slots(21, u16::MAX), [21, u16::MAX]);
        assert_eq!(slots(0, 0), [0]);
    }
}
