//! Rows of slots that a split has given away: nobody finds them, and merging removes them.

use store_state::{Descriptor, SlotRange};

use super::*;

/// The kind of the rows that belong to slots.
pub(super) const KIND: u8 = b'Q';

pub(super) const ROWS: u32 = 8_000;

/// Rows of the kind belong to the shard that has their slot, others to each.
pub(super) fn keeps(key: &[u8], range: SlotRange) -> bool {
    match key {
        [KIND, high, low, ..] => range.contains(u16::from_be_bytes([*high, *low])),
        _ => true,
    }
}

pub(super) fn open_halves(folder: &Path) -> Tables {
    let options = TablesOptions {
        keeps,
        ..TablesOptions::default()
    };
    Tables::open(folder, options).unwrap()
}

/// The key of a row, of which eight have each slot below [`ROWS`] / 8.
pub(super) fn row(number: u32) -> Vec<u8> {
    let slot = ((number / 8) as u16).to_be_bytes();
    [&[KIND][..], &slot, &number.to_be_bytes()].concat()
}

/// The numbered rows with values that cannot be compressed.
pub(super) fn rows(numbers: impl Iterator<Item = u32>) -> Changes {
    let mut changes = Changes::default();
    numbers.for_each(|number| changes.put(row(number), noise(number)));
    changes
}

/// A split at the slot that has half of the rows below it: the descriptors of the parent and of the child.
pub(super) fn halves() -> (Descriptor, Descriptor) {
    let mut parent = Descriptor::first(SlotRange::ALL);
    let child = parent.split_off(ROWS as u16 / 16);
    (parent, child)
}

pub(super) fn descriptor(of: &Descriptor) -> Changes {
    let mut changes = Changes::default();
    changes.put(DESCRIPTOR_KEY.to_vec(), of.to_row());
    changes
}

/// All that the files of a table have, foreign rows too, but the mark.
pub(super) fn on_disk(table: &ShardTable) -> Model {
    let records = table.tree().range(vec![RECORD].., SeqNo::MAX, None);
    let records = records.map(|record| record.into_inner().unwrap());
    Model(
        records
            .map(|(key, value)| (key[1..].to_vec(), value.to_vec()))
            .collect(),
    )
}

impl Model {
    /// What of it belongs to a shard of this range.
    pub(super) fn of(&self, range: SlotRange) -> Self {
        let mut own = self.clone();
        own.0.retain(|key, _| keeps(key, range));
        own
    }
}

/// A table of one shard with merged and unmerged files, some of whose rows are overwritten or removed, and what it holds.
pub(super) fn filled(table: &ShardTable) -> Model {
    let mut model = Model::default();
    let mut write = |changes: Changes| {
        model.apply(&changes);
        table.write(&changes, b"before").unwrap();
    };
    for part in 0..4 {
        write(rows((0..ROWS).filter(|number| number % 4 == part)));
    }
    table.change(Tree::merge).unwrap();
    let mut changes = Changes::default();
    changes.put(b"M".to_vec(), b"machine".to_vec());
    for number in (0..ROWS).step_by(5) {
        match number % 2 {
            0 => changes.delete(row(number)),
            _ => changes.put(row(number), noise(number + ROWS)),
        }
    }
    write(changes);
    model
}

#[test]
fn rows_of_slots_that_were_given_away_are_found_by_nobody_and_removed() {
    for half in [halves().0, halves().1] {
        let at = scratch();
        let tables = open_halves(at.path());
        let table = tables.shard(1).unwrap();
        let mut model = filled(&table);
        table.maintain().unwrap();
        assert_eq!(content(&table).unwrap(), model);
        assert_eq!(on_disk(&table), model, "a row of a shard that is whole");
        let whole = table.disk_bytes();

        let changes = descriptor(&half);
        table.write(&changes, b"split").unwrap();
        model.apply(&changes);
        let own = model.of(half.range);
        assert!(own.0.len() * 3 < model.0.len() * 2);
        assert_eq!(content(&table).unwrap(), own);
        assert_eq!(on_disk(&table), model, "a row went before its time");
        drop((table, tables));

        // What is known of the range is on disk.
        let table = open_halves(at.path()).shard(1).unwrap();
        assert_eq!(content(&table).unwrap(), own);
        table.maintain().unwrap();
        assert_eq!(on_disk(&table), own);
        assert_eq!(content(&table).unwrap(), own);
        assert!(table.disk_bytes() * 3 < whole * 2);
        assert_eq!(table.mark().unwrap(), Some(b"split".to_vec()));
        let files = files(at.path());
        table.maintain().unwrap();
        assert_eq!(files, super::files(at.path()), "written again for nothing");
    }
}

#[test]
fn a_range_that_is_narrowed_again_loses_rows_again() {
    let at = scratch();
    let table = open_halves(at.path()).shard(1).unwrap();
    let mut model = filled(&table);
    let (mut parent, _) = halves();
    for at in [400, 200, 100] {
        let _given_away = parent.split_off(at);
        let changes = descriptor(&parent);
        model.apply(&changes);
        table.write(&changes, b"split").unwrap();
        assert_eq!(content(&table).unwrap(), model.of(parent.range));
        table.maintain().unwrap();
        assert_eq!(on_disk(&table), model.of(parent.range));
    }
}

#[test]
fn merging_of_fresh_checkpoints_removes_foreign_rows_and_resurrects_none() {
    let at = scratch();
    let table = open_halves(at.path()).shard(1).unwrap();
    let mut model = filled(&table);
    let (parent, _) = halves();
    for number in 0..40 {
        let mut changes = match number {
            7 => descriptor(&parent),
            _ => Changes::default(),
        };
        // Removed, and written again, on its own side of the cut once there is one.
        let own = (number * 50..number * 50 + 40).map(row);
        for (place, key) in own.enumerate() {
            match (number as usize + place) % 3 {
                0 => changes.delete(key),
                _ => changes.put(key, noise(number)),
            }
        }
        model.apply(&changes);
        table.write(&changes, b"on").unwrap();
        table.change(Tree::merge).unwrap();
        let range = if number < 7 {
            SlotRange::ALL
        } else {
            parent.range
        };
        assert_eq!(content(&table).unwrap(), model.of(range), "{number}");
    }
}

#[test]
fn a_snapshot_has_the_rows_of_its_shard_and_no_others() {
    for half in [halves().0, halves().1] {
        let at = scratch();
        let tables = open_halves(at.path());
        let (from, to) = (tables.shard(1).unwrap(), tables.shard(2).unwrap());
        let mut model = filled(&from);
        let send = |is_split: bool| {
            let mut reader = from.reader().unwrap().unwrap();
            let mark = reader.mark().to_vec();
            let mut writer = to.receive().unwrap();
            while let Some(bytes) = reader.next(4_096).unwrap() {
                writer.write(&bytes).unwrap();
            }
            assert_eq!(writer.has_descriptor(), is_split);
            writer.finish(&mark).unwrap();
        };
        // The checkpoint before the split: whoever applies the split behind it needs all rows.
        send(false);
        assert_eq!(on_disk(&to), model);

        let changes = descriptor(&half);
        model.apply(&changes);
        from.write(&changes, b"split").unwrap();
        send(true);
        assert_eq!(on_disk(&from), model);
        assert_eq!(on_disk(&to), model.of(half.range));
        assert_eq!(content(&to).unwrap(), model.of(half.range));
        assert_eq!(to.mark().unwrap(), Some(b"split".to_vec()));

        // The receiver knows its range as well.
        to.write(&rows(0..ROWS), b"next").unwrap();
        let mut all = model.clone();
        all.apply(&rows(0..ROWS));
        assert_eq!(content(&to).unwrap(), all.of(half.range));
    }
}

#[test]
fn a_descriptor_that_cannot_be_understood_loses_no_row() {
    let at = scratch();
    let tables = open_halves(at.path());
    let table = tables.shard(1).unwrap();
    let mut model = filled(&table);
    let mut changes = Changes::default();
    changes.put(DESCRIPTOR_KEY.to_vec(), b"\x09later".to_vec());
    model.apply(&changes);
    table.write(&changes, b"").unwrap();
    drop((table, tables));
    let table = open_halves(at.path()).shard(1).unwrap();
    table.change(Tree::rewrite).unwrap();
    table.maintain().unwrap();
    assert_eq!(on_disk(&table), model);
    assert_eq!(content(&table).unwrap(), model);
}
