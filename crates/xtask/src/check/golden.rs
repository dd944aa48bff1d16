//! Golden files are added, and never changed: what earlier programs wrote stays what it was, whatever a test says of it.
//!
//! `crates/xtask/golden.csv` has a line for each of them, with a digest of its bytes. `check --update` adds lines for new files, and
//! never changes or removes one.
//!
//! Deliberately absent: what the files hold; the tests that read them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use super::finding::Finding;

/// The list.
const LIST: &str = "crates/xtask/golden.csv";

/// Folders of golden files, with what the names of those in them begin with that never change, and the first line of the list.
const FOLDERS: &[(&str, &str)] = &[
    ("crates/store-state/tests/golden", ""),
    // What is beside it says what is written now, and grows.
    ("crates/inspection/tests/golden/frozen-1", ""),
    // The file of the newest version grows until a release has it; `kinds.txt` grows for ever.
    ("crates/peer-protocol/tests/golden", "v"),
];

const HEAD: &str = "file,digest\n";

/// The digests by path, as the list has them.
fn listed(root: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(root.join(LIST)).unwrap_or_default();
    let lines = text.lines().skip(1);
    let pairs = lines.filter_map(|line| line.split_once(','));
    pairs
        .map(|(path, digest)| (path.to_owned(), digest.to_owned()))
        .collect()
}

/// The digests by path, as the files are.
fn found(root: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<(String, &str)> = FOLDERS
        .iter()
        .map(|(folder, prefix)| ((*folder).to_owned(), *prefix))
        .collect();
    while let Some((folder, prefix)) = folders.pop() {
        let entries = match fs::read_dir(root.join(&folder)) {
            // Trees of tests have none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            if entry.file_type()?.is_dir() {
                folders.push((path, prefix));
            } else if name.starts_with(prefix) {
                found.insert(path, digest(&fs::read(entry.path())?));
            }
        }
    }
    Ok(found)
}

/// FNV-1a with 64 bits: a file is not changed by mistake so that it stays.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

pub(super) fn findings(root: &Path) -> io::Result<Vec<Finding>> {
    let (listed, found) = (listed(root), found(root)?);
    let mut wrong = Vec::new();
    for (path, digest) in &listed {
        match found.get(path) {
            None => wrong.push((path, "it is gone: what earlier programs wrote is read for ever")),
            Some(now) if now != digest => wrong.push((
                path,
                "it was changed: a golden file never is; a change of what is written needs a level or a version of its own",
            )),
            Some(_) => {}
        }
    }
    let new = found.keys().filter(|path| !listed.contains_key(*path));
    wrong.extend(new.map(|path| (path, "it is not listed: `xtask check --update` lists it")));
    Ok(wrong
        .into_iter()
        .map(|(path, what)| Finding {
            rule: "golden".to_owned(),
            place: "golden".to_owned(),
            text: format!("{path}: {what}"),
        })
        .collect())
}

/// Lists the files that are new.
pub(super) fn update(root: &Path) -> io::Result<()> {
    let mut listed = listed(root);
    for (path, digest) in found(root)? {
        listed.entry(path).or_insert(digest);
    }
    if listed.is_empty() {
        return Ok(());
    }
    let mut text = HEAD.to_owned();
    for (path, digest) in listed {
        // Memory takes what is written to it.
        let _ = writeln!(text, "{path},{digest}");
    }
    fs::write(root.join(LIST), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::Tree;

    #[test]
    fn a_golden_file_is_added_and_never_changed() {
        let path = "crates/store-state/tests/golden/level-2/digests";
        let tree = Tree::new(&[(path, "a"), ("crates/xtask/src/main.rs", "")]);
        let texts = || {
            let found = findings(&tree.0).expect("a tree");
            found
                .into_iter()
                .map(|finding| finding.text)
                .collect::<Vec<_>>()
        };
        assert!(texts()[0].contains("it is not listed"), "{:?}", texts());
        update(&tree.0).expect("a tree");
        assert!(texts().is_empty());
        tree.write(path, "b");
        assert!(texts()[0].contains("it was changed"), "{:?}", texts());
        update(&tree.0).expect("a tree");
        assert!(texts()[0].contains("it was changed"), "{:?}", texts());
        fs::remove_file(tree.0.join(path)).expect("a file");
        assert!(texts()[0].contains("it is gone"), "{:?}", texts());
    }
}
