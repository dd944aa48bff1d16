//! Flipped bits and lost files: an error or the right content, never anything else.

use super::*;

/// What comes of opening a folder and reading all of it.
fn read_all(folder: &Path) -> Result<(Model, Option<Vec<u8>>), String> {
    let table = open(folder).shard(1).map_err(|error| error.to_string())?;
    let content = content(&table).map_err(|error| error.to_string())?;
    Ok((content, table.mark().map_err(|error| error.to_string())?))
}

/// A folder with merged and unmerged files.
fn filled() -> (tempfile::TempDir, Model) {
    let at = scratch();
    let mut model = Model::default();
    let table = open(at.path()).shard(1).unwrap();
    for number in 0..=RUNS_MOST as u32 + 1 {
        let changes = checkpoint(number);
        model.apply(&changes);
        table.write(&changes, b"mark").unwrap();
        if number == RUNS_MOST as u32 {
            table.maintain().unwrap();
        }
    }
    drop(table);
    // Opening removes the lists of files that were replaced, so that each file left counts.
    read_all(at.path()).unwrap();
    (at, model)
}

#[test]
fn a_flipped_bit_is_noticed_or_harmless() {
    let (at, model) = filled();
    let expected = Ok((model, Some(b"mark".to_vec())));
    assert_eq!(read_all(at.path()), expected);
    for file in files(at.path()) {
        let whole = fs::read(&file).unwrap();
        let mut noticed = 0;
        for place in places(whole.len()) {
            let mut bytes = whole.clone();
            // The highest bit has the worst effect on a length.
            bytes[place] ^= [0x80, 0x01][place % 2];
            fs::write(&file, bytes).unwrap();
            match read_all(at.path()) {
                Err(_) => noticed += 1,
                found => assert_eq!(found, expected, "{} {place}", file.display()),
            }
            fs::write(&file, &whole).unwrap();
        }
        // Nine bytes of a sorted file mean nothing.
        let unnoticed = places(whole.len()).count() - noticed;
        assert!(unnoticed <= 9, "{} {unnoticed}", file.display());
    }
    assert_eq!(read_all(at.path()), expected);
}

/// Every byte of a small file; some, and all at the end, of a larger one.
fn places(length: usize) -> impl Iterator<Item = usize> {
    (0..length)
        .filter(move |place| length < 1_000 || place.is_multiple_of(31) || place + 300 > length)
}

#[test]
fn a_file_that_is_cut_or_gone_is_noticed() {
    let (at, _) = filled();
    for file in files(at.path()) {
        let whole = fs::read(&file).unwrap();
        // The last bytes of a sorted file mean nothing.
        for length in [0, 1, whole.len() / 2, whole.len() - 20] {
            fs::write(&file, &whole[..length]).unwrap();
            match read_all(at.path()) {
                Err(said) => assert!(said.contains("damaged"), "{said}"),
                Ok(_) => panic!("{} cut to {length}", file.display()),
            }
        }
        fs::remove_file(&file).unwrap();
        let said = read_all(at.path()).unwrap_err();
        assert!(said.contains("damaged"), "{said}");
        assert!(said.contains(at.path().to_str().unwrap()), "{said}");
        fs::write(&file, &whole).unwrap();
    }
    read_all(at.path()).unwrap();
}

#[test]
fn a_damaged_shard_leaves_the_others_alone() {
    let (at, _) = filled();
    let tables = open(at.path());
    tables.shard(2).unwrap();
    let list = files(&at.path().join(folder_of(1)))
        .into_iter()
        .find(|file| file.ends_with("current"))
        .unwrap();
    fs::write(list, b"").unwrap();
    assert!(tables.shard(1).is_err());
    assert_eq!(tables.shards().unwrap(), [1, 2]);
    let table = tables.shard(2).unwrap();
    table.write(&Changes::default(), b"fine").unwrap();
}

#[test]
fn a_block_that_is_damaged_while_the_table_is_open_is_an_error() {
    let at = scratch();
    let none = TablesOptions {
        cache_bytes: 0,
        ..TablesOptions::default()
    };
    let table = Tables::open(at.path(), none).unwrap().shard(1).unwrap();
    let mut changes = Changes::default();
    (0..100).for_each(|number| changes.put(key(number), noise(number)));
    table.write(&changes, b"mark").unwrap();
    let file = files(&at.path().join(folder_of(1)).join("tables")).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[2_000] ^= 1;
    fs::write(&file, bytes).unwrap();
    let said = table.get(&key(3)).unwrap_err().to_string();
    assert!(said.contains("is damaged"), "{said}");
    assert!(content(&table).is_err());
    assert!(table.get(&key(90)).is_ok());
}
