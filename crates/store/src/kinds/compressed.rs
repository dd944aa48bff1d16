//! Entries as LZ4 blocks.
//!
//! ```text
//! 8, length of the plain entry (4 bytes, little-endian), LZ4 block
//! ```
//!
//! Which entries are tried follows from measurements (decision 43): short ones do not shrink, those of few long messages
//! cost more than they save, and an attempt that fails makes the next ones rarer ([`Attempts`]).
//!
//! A raft-engine checksum is over each entry of the log, so a block that cannot be read comes from a program that is wrong.

use std::cell::RefCell;

use bytes::Bytes;
use consensus::{COMMAND_LIMIT, CorruptCommand};
use lz4_flex::block::{self, CompressTable};
use store_state::Attempts;

/// The format of entries that are compressed; the first byte of each. Programs of earlier levels do not read it.
pub(crate) const COMPRESSED: u8 = 8;

/// Bytes before the block.
const HEADER: usize = 5;

/// An entry of fewer bytes is not tried: most are of one message, in which nothing repeats, and each that does not shrink keeps
/// longer ones from being tried.
const SHORTEST: usize = 512;

/// Bytes of an entry for each of its requests, above which it is not tried.
const LONGEST_REQUEST: usize = 4 << 10;

/// An entry of more bytes is not tried: what is needed for it stays with the thread.
const LONGEST: usize = 1 << 20;

/// Bytes that a byte of an LZ4 block can stand for, at most.
const MOST_OF_BYTE: usize = 255;

/// What a thread that compresses keeps for it: 8 KiB, or 16 KiB once an entry had 64 KiB, and as much again as the longest entry.
#[derive(Default)]
struct Workspace {
    table: CompressTable,
    block: Vec<u8>,
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// An entry of so many requests as it is written: compressed if that saves a third of its bytes.
pub(crate) fn smaller(plain: Vec<u8>, requests: usize, attempts: &Attempts) -> Bytes {
    let is_tried = (SHORTEST..=LONGEST).contains(&plain.len())
        && plain.len() / requests.max(1) <= LONGEST_REQUEST
        && attempts.is_due();
    if !is_tried {
        return plain.into();
    }
    let compressed = WORKSPACE.with_borrow_mut(|workspace| compress(&plain, workspace));
    attempts.tell(compressed.is_some());
    compressed.unwrap_or_else(|| plain.into())
}

/// `None`: it would not save a third.
fn compress(plain: &[u8], workspace: &mut Workspace) -> Option<Bytes> {
    let Workspace { table, block } = workspace;
    let room = HEADER + block::get_maximum_output_size(plain.len());
    if block.len() < room {
        block.resize(room, 0);
    }
    block[0] = COMPRESSED;
    let len = u32::try_from(plain.len()).expect("an entry that is tried has 1 MiB at most");
    block[1..HEADER].copy_from_slice(&len.to_le_bytes());
    let compressed = block::compress_into_with_table(plain, &mut block[HEADER..], table);
    let len = HEADER + compressed.expect("there is room for the longest block");
    (len <= plain.len() / 3 * 2).then(|| Bytes::copy_from_slice(&block[..len]))
}

/// The plain entry of a compressed one, which has `bytes` behind its format.
///
/// # Errors
/// It is no block, has another length than it says, or says one that no entry has.
pub(crate) fn plain(bytes: &[u8]) -> Result<Vec<u8>, CorruptCommand> {
    let corrupt = |why: String| CorruptCommand(format!("a compressed entry {why}"));
    let Some((len, block)) = bytes.split_first_chunk() else {
        return Err(corrupt("without a length".to_owned()));
    };
    let len = u32::from_le_bytes(*len) as usize;
    if len > COMMAND_LIMIT {
        return Err(corrupt(format!(
            "says that it has {len} bytes, and none has more than {COMMAND_LIMIT}"
        )));
    }
    if len / MOST_OF_BYTE > block.len() {
        let block = block.len();
        return Err(corrupt(format!(
            "says that it has {len} bytes, and its block has {block}"
        )));
    }
    let mut plain = vec![0; len];
    let read = block::decompress_into(block, &mut plain);
    let read = read.map_err(|error| corrupt(format!("cannot be read: {error}")))?;
    if read != len {
        return Err(corrupt(format!(
            "says that it has {len} bytes, and has {read}"
        )));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A compressed entry without its format.
    fn compressed(plain: &[u8]) -> Vec<u8> {
        let compressed = smaller(plain.to_vec(), plain.len(), &Attempts::default());
        assert_eq!(compressed[0], COMPRESSED);
        compressed[1..].to_vec()
    }

    #[test]
    fn what_repeats_is_compressed_and_read_again() {
        for len in [512, 1_000, 40_000] {
            let entry = b"temperature ".repeat(len / 12 + 1);
            let entry = &entry[..len];
            assert_eq!(plain(&compressed(entry)).unwrap(), entry);
        }
        // As the format was first written: it must be read for ever.
        let golden = [
            32, 0, 0, 0, 0x1f, b'a', 1, 0, 7, 0x50, b'a', b'a', b'a', b'a', b'a',
        ];
        assert_eq!(plain(&golden).unwrap(), [b'a'; 32]);
    }

    #[test]
    fn what_does_not_shrink_is_as_it_was() {
        let attempts = Attempts::default();
        let mut state = 1_u32;
        let random = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        });
        let random: Vec<u8> = random.take(10_000).collect();
        let repeats = vec![7; 200_000];
        for (entry, requests) in [(&repeats[..511], 1), (&repeats[..], 48), (&random, 10)] {
            assert_eq!(smaller(entry.to_vec(), requests, &attempts), entry);
        }
        // The attempt has failed, so the next entry is not tried, whatever it is.
        assert_eq!(smaller(repeats.clone(), 100, &attempts), repeats);
        assert_eq!(smaller(repeats.clone(), 100, &attempts)[0], COMPRESSED);
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let entry = b"temperature ".repeat(50);
        let whole = compressed(&entry);
        for len in 0..whole.len() {
            plain(&whole[..len]).unwrap_err();
        }
        plain(&[&whole[..], &[0]].concat()).unwrap_err();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                // A literal may have changed; the checksum of the log finds that.
                assert!(plain(&damaged).is_err() || plain(&damaged).unwrap().len() == entry.len());
            }
        }
    }

    #[test]
    fn a_length_that_no_entry_has_is_refused_before_memory_is_taken() {
        let mut bomb = vec![0xff; 100];
        bomb[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let refused = plain(&bomb).unwrap_err();
        assert!(
            refused.0.contains("says that it has 4294967295 bytes"),
            "{refused}"
        );
        let most = u32::try_from(COMMAND_LIMIT).unwrap();
        bomb[..4].copy_from_slice(&most.to_le_bytes());
        let refused = plain(&bomb).unwrap_err();
        assert!(refused.0.contains("its block has 96"), "{refused}");
        // A block that grows beyond what it says is ended there.
        let mut bomb = compressed(&[0; 1 << 20]);
        bomb[..4].copy_from_slice(&1_000_u32.to_le_bytes());
        plain(&bomb).unwrap_err();
    }
}
