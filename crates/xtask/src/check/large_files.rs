//! No file of the repository is large: each version of a picture or of something built stays in the history for ever.
//!
//! Deliberately absent: what git ignores, and copies of the sources without their history, which have nothing to grow.

use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::git::git;

/// Bytes of the largest file.
const LIMIT: u64 = 200_000;

/// What is generated, as text whose changes are small, and may be larger.
const LARGER: &[&str] = &["docs/reference/openapi.json"];

/// Lock files, by their names.
const LOCKS: &[&str] = &["Cargo.lock", "package-lock.json"];

pub(super) fn findings(root: &Path) -> Result<Vec<Finding>, String> {
    if !root.join(".git").exists() {
        return Ok(Vec::new());
    }
    // What is not added yet, too.
    let listed = git(
        root,
        &[
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
    )?;
    let mut found = Vec::new();
    for path in listed.split_terminator('\0') {
        let name = path.rsplit('/').next().unwrap_or(path);
        if LARGER.contains(&path) || LOCKS.contains(&name) {
            continue;
        }
        // It may be gone from the folder, and not yet from the index.
        let bytes = fs::symlink_metadata(root.join(path)).map_or(0, |of| of.len());
        if bytes > LIMIT {
            found.push(Finding {
                rule: "large-file".to_owned(),
                place: "files".to_owned(),
                text: format!(
                    "{path}: {} bytes, {LIMIT} are the limit: what is built goes to target/, a picture has fewer colours (pngquant)",
                    bytes
                ),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::fixture::repository;
    use crate::source::fixture::Tree;

    #[test]
    fn a_large_picture_is_refused_and_a_lock_file_is_not() {
        let large = "x".repeat(300_000);
        let files = [
            ("docs/images/a.png", &*large),
            ("docs/images/b.png", "x"),
            ("target/c.png", &large),
            ("Cargo.lock", &large),
            ("docs/reference/openapi.json", &large),
            (".gitignore", "/target\n"),
        ];
        let without_history = Tree::new(&files);
        let found = findings(&without_history.0).expect("a tree");
        assert!(found.is_empty());
        let found = findings(&repository(&files, "a").0).expect("a tree");
        let texts: Vec<_> = found.iter().map(|finding| &*finding.text).collect();
        assert!(
            matches!(*texts, [text] if text.starts_with("docs/images/a.png: 300000 bytes")),
            "{texts:?}"
        );
    }
}
