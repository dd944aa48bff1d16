//! One flipped bit in a batch of the log is flipped back, if the checksum of the batch says which bit it was.
//!
//! A CRC is linear: what a flipped bit changes of the checksum depends on how far it is from the end, and on nothing else. So the
//! difference between the checksum that was written and that of the bytes names the bit, without trying each. On a lone node nothing
//! else brings the batch back.
//!
//! Invariants: only a batch that begins before the end of what was synced is changed, and only by one bit in at most [`BYTES_MOST`] bytes; a
//! batch counts only if all of it is whole afterwards, and its entries have the positions that its footer names. Two flipped bits in up to
//! 11 KiB are never taken for one: CRC-32 tells any three from none there. Of larger damage one in 8,000 is taken for one bit at 64 KiB,
//! and one in a million at 500 bytes.
//!
//! Deliberately absent: the header of a file, which is a constant (`mend.rs`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::check::{Damage, Finding};
use crate::files::Files;
use crate::log_files::{
    BATCH_HEADER, Batches, CHECKSUM, LogFile, Part, What, batch_at, list, read, said_batch,
};
use crate::record::Record;

/// Longer batches are left as they are: more damage would be taken for one bit.
const BYTES_MOST: usize = 64 * 1024;

/// Bits that are flipped back in one file, at most.
const BITS_MOST: usize = 16;

/// Damaged batches that are looked at in one start, at most: about four seconds for the longest.
const TRIES_MOST: usize = 1_024;

/// How many damaged batches may still be looked at.
struct Tries(usize);

/// A bit in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bit {
    byte: usize,
    mask: u8,
}

impl Bit {
    fn flip(self, bytes: &mut [u8]) {
        if let Some(byte) = bytes.get_mut(self.byte) {
            *byte ^= self.mask;
        }
    }
}

/// Flipped bits in the files of a log, which are not flipped back yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlippedBits(BTreeMap<LogFile, Vec<Bit>>);

impl FlippedBits {
    /// Looks for them in a folder. `synced`: how many bytes of each file were synced. Changes nothing.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn find(
        files: &dyn Files,
        folder: &Path,
        synced: &BTreeMap<LogFile, u64>,
    ) -> io::Result<Self> {
        let mut found = Self::default();
        let mut tries = Tries(TRIES_MOST);
        let listed = list(folder)?.into_iter();
        for (file, end) in listed.filter_map(|file| Some((file, *synced.get(&file)?))) {
            let mut content = read(files, &file.path(folder))?;
            let mut bits = Vec::new();
            while bits.len() < BITS_MOST
                && let Some(bit) = find_in_file(&content, file, end, &mut tries)
            {
                bit.flip(&mut content);
                bits.push(bit);
            }
            if !bits.is_empty() {
                found.0.insert(file, bits);
            }
        }
        Ok(found)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What people are told of them.
    pub(crate) fn findings(&self, folder: &Path) -> Vec<Finding> {
        let bits = self.0.iter();
        let bits = bits.flat_map(|(file, bits)| bits.iter().map(|bit| (file.path(folder), bit)));
        bits.map(|(path, bit)| Finding {
            path,
            what: Damage::Bit {
                at: bit.byte as u64,
            },
        })
        .collect()
    }

    /// Flips those of one file in its content.
    pub(crate) fn flip(&self, file: LogFile, content: &mut [u8]) {
        let bits = self.0.get(&file).into_iter().flatten();
        bits.for_each(|bit| bit.flip(content));
    }

    /// Flips all of them back in the files, and syncs these.
    ///
    /// # Errors
    /// A file cannot be read or written. What was flipped before is flipped back, and the next start goes on.
    pub(crate) fn flip_back(&self, files: &dyn Files, folder: &Path) -> io::Result<()> {
        for (file, bits) in &self.0 {
            let open = files.open(&file.path(folder), true)?;
            for bit in bits {
                let mut byte = [0];
                let at = bit.byte as u64;
                let mut bytes = open.read_at(&mut byte, at)?;
                byte[0] ^= bit.mask;
                if bytes == 1 {
                    bytes = open.write_at(&byte, at)?;
                }
                if bytes != 1 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            open.sync()?;
        }
        for finding in self.findings(folder) {
            tracing::warn!("the log was damaged in one bit, which is flipped back: {finding}");
        }
        Ok(())
    }
}

/// A flipped bit in a batch of a file of which so many bytes were synced.
fn find_in_file(content: &[u8], file: LogFile, synced: u64, tries: &mut Tries) -> Option<Bit> {
    let damaged = Batches::new(content, file, synced).filter_map(|part| match part {
        Part::Batch(batch) => (!batch.is_whole()).then_some(batch.bytes.start),
        Part::Unreadable(bytes) => Some(bytes.start),
    });
    let mut of_synced = damaged.take_while(|begin| (*begin as u64) < synced);
    of_synced.find_map(|begin| {
        tries.0 = tries.0.checked_sub(1)?;
        find(content, begin, file.number.signature())
    })
}

/// The flipped bit in the batch that begins at `begin`; `None`: more is damaged, or it cannot be told.
fn find(content: &[u8], begin: usize, signature: u32) -> Option<Bit> {
    let bytes = content.get(begin..)?;
    let bytes = &bytes[..bytes.len().min(BYTES_MOST)];
    let at = |bit: usize| Bit {
        byte: bit / 8,
        mask: 1 << (bit % 8),
    };
    // The header has no checksum of its own: the rest fits it or not.
    let of_header = (0..BATCH_HEADER * 8).map(at);
    let of_parts = said_batch(bytes).into_iter().flat_map(|said| {
        let entries = said.entries.map(|entries| (entries, 0));
        [entries, Some((said.items, signature))]
            .into_iter()
            .flatten()
    });
    let of_parts = of_parts.filter_map(|(part, signature)| {
        let (part_bytes, checksum) = bytes.get(part.clone())?.split_last_chunk::<CHECKSUM>()?;
        let written = u32::from_le_bytes(*checksum) ^ signature;
        let bit = flipped_bit(part_bytes.len(), crc32fast::hash(part_bytes) ^ written)?;
        Some(at(part.start * 8 + bit))
    });
    let mut repaired = bytes.to_vec();
    let found = of_parts.chain(of_header).find(|bit| {
        bit.flip(&mut repaired);
        let is_right = is_right(&repaired, signature);
        bit.flip(&mut repaired);
        is_right
    });
    found.map(|bit| Bit {
        byte: begin + bit.byte,
        ..bit
    })
}

/// Whether bytes begin with a batch that is whole, with entries at the positions that it says.
fn is_right(bytes: &[u8], signature: u32) -> bool {
    let batch = batch_at(bytes, 0, signature).filter(|batch| batch.is_whole());
    let parts = batch.and_then(|batch| Some((batch.items(bytes)?, bytes.get(batch.entries)?)));
    parts.is_some_and(|(items, entries)| {
        items.iter().all(|item| match &item.what {
            What::Entries { first, at } => (*first..).zip(at).all(|(index, at)| {
                let record = entries.get(at.start as usize..at.end as usize);
                let id = record.and_then(|record| Record::from_bytes(record).log_id());
                id.is_some_and(|id| id.index == index)
            }),
            What::Clean | What::Compact { .. } | What::Put { .. } | What::Delete { .. } => true,
        })
    })
}

/// Which bit of `len` bytes, followed by their CRC-32 in four bytes, is flipped, if one is and the checksums differ in `difference`. Bits
/// are counted from the lowest of the first byte on, those of the written checksum behind all others.
fn flipped_bit(len: usize, difference: u32) -> Option<usize> {
    if difference.count_ones() == 1 {
        return Some(len * 8 + difference.trailing_zeros() as usize);
    }
    // What each bit of a byte changes, from the last byte on: one more byte of zeros follows each time.
    let mut changes: [u32; 8] = std::array::from_fn(|bit| shifted(1 << bit));
    for byte in (0..len).rev() {
        if let Some(bit) = changes.iter().position(|change| *change == difference) {
            return Some(byte * 8 + bit);
        }
        changes = changes.map(shifted);
    }
    None
}

/// A CRC-32 after one more byte of zeros, as far as it is linear.
fn shifted(mut crc: u32) -> u32 {
    const POLYNOMIAL: u32 = 0xEDB8_8320;
    for _ in 0..8 {
        crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(len: usize) -> Vec<u8> {
        let mut state = 7u32;
        let bytes = (0..len).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let mut bytes: Vec<u8> = bytes.collect();
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    fn difference(bytes: &[u8]) -> u32 {
        let (bytes, checksum) = bytes.split_last_chunk().unwrap();
        crc32fast::hash(bytes) ^ u32::from_le_bytes(*checksum)
    }

    #[test]
    fn each_flipped_bit_is_found_that_of_the_checksum_too() {
        for len in [1, 2, 17, 300] {
            let whole = content(len);
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(flipped_bit(len, difference(&bytes)), Some(bit), "{len}");
            }
        }
        let mut long = content(BYTES_MOST);
        long[3] ^= 4;
        assert_eq!(flipped_bit(BYTES_MOST, difference(&long)), Some(3 * 8 + 2));
    }

    #[test]
    fn two_flipped_bits_are_never_taken_for_one() {
        let len = 60;
        let whole = content(len);
        assert_eq!(flipped_bit(len, 0), None, "nothing is flipped");
        for first in 0..whole.len() * 8 {
            for second in 0..first {
                let mut bytes = whole.clone();
                bytes[first / 8] ^= 1 << (first % 8);
                bytes[second / 8] ^= 1 << (second % 8);
                assert_eq!(flipped_bit(len, difference(&bytes)), None);
            }
        }
    }
}
