//! A number in a small file that is overwritten often.
//!
//! Purpose: the two newest values stand in two slots, a page apart, each with a checksum. Writing goes to
//! the slot of the older one, so that a write which is torn by a crash costs that value only.
//!
//! A slot that is there and not whole may have held the newest number, or a write that was torn before anybody knew of it: these
//! look alike, and callers are told ([`Slots::has_broken`]).
//!
//! Deliberately absent: what the number means, and whether it must be synced; callers say.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a slot: count, number and checksum of both.
const SLOT_BYTES: usize = 24;
/// Bytes from slot to slot; what a disk tears is smaller.
const SLOT_DISTANCE: u64 = 4_096;

/// The file, open for reading and writing.
#[derive(Debug)]
pub(super) struct Slots {
    file: File,
    /// How many numbers were written; the newest stands in slot `count % 2`.
    count: u64,
    /// A slot has been written before, and is not whole.
    has_broken: bool,
}

/// What stands in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// Nothing was written yet.
    Unwritten,
    /// Something that does not fit its checksum.
    Broken,
    /// Count and number.
    Whole(u64, u64),
}

impl Slots {
    /// Reads the newest whole number; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn open(file: File) -> io::Result<(Self, Option<u64>)> {
        let slots = [read_slot(&file, 0)?, read_slot(&file, 1)?];
        let whole = slots.into_iter().filter_map(|slot| match slot {
            Slot::Whole(count, number) => Some((count, number)),
            Slot::Unwritten | Slot::Broken => None,
        });
        let newest = whole.max();
        let count = newest.map_or(0, |(count, _)| count);
        // From the second number on both slots have been written.
        let is_lost = count > 1 && slots.contains(&Slot::Unwritten);
        let opened = Self {
            file,
            count,
            has_broken: is_lost || slots.contains(&Slot::Broken),
        };
        Ok((opened, newest.map(|(_, number)| number)))
    }

    /// Whether a slot was broken when the file was opened: it may have held a number after the newest whole one.
    pub(super) fn has_broken(&self) -> bool {
        self.has_broken
    }

    /// Writes the next number, unsynced: it outlives the process, but perhaps not the machine.
    ///
    /// # Errors
    /// The file cannot be written; the number before is then still there.
    pub(super) fn write(&mut self, number: u64) -> io::Result<()> {
        let count = self.count.wrapping_add(1);
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(&count.to_le_bytes());
        slot[8..16].copy_from_slice(&number.to_le_bytes());
        let checksum = xxh3_64(&slot[..16]);
        slot[16..].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_all_at(&slot, (count % 2) * SLOT_DISTANCE)?;
        self.count = count;
        Ok(())
    }

    /// Writes the next number and brings it to disk.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub(super) fn write_synced(&mut self, number: u64) -> io::Result<()> {
        self.write(number)?;
        self.file.sync_all()
    }
}

/// What stands in a slot. A file that ends within the slot reads as if zeros followed.
fn read_slot(file: &File, index: u64) -> io::Result<Slot> {
    let mut slot = [0; SLOT_BYTES];
    match file.read_exact_at(&mut slot, index * SLOT_DISTANCE) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        other => other?,
    }
    let field = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&slot[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    // A file with a hole reads as zeros, whose count no slot ever has.
    let is_whole = field(0) > 0 && field(16) == xxh3_64(&slot[..16]);
    Ok(match is_whole {
        true => Slot::Whole(field(0), field(8)),
        false if slot == [0; SLOT_BYTES] => Slot::Unwritten,
        false => Slot::Broken,
    })
}
