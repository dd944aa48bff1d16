//! Where the workspace is, as it is run: with one target folder for two checkouts, the program may be that of the
//! other one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace of the package that Cargo runs; without Cargo, of the current directory.
///
/// # Errors
/// There is none, as a sentence.
pub(crate) fn find() -> Result<PathBuf, String> {
    let start = match env::var_os("CARGO_MANIFEST_DIR") {
        Some(package) => PathBuf::from(package),
        None => env::current_dir().map_err(|error| format!("the current directory: {error}\n"))?,
    };
    above(&start).ok_or_else(|| {
        format!(
            "no workspace at {} or above it: run this by `cargo run -p xtask`, or inside the workspace\n",
            start.display()
        )
    })
}

/// The nearest workspace that a directory is in.
fn above(start: &Path) -> Option<PathBuf> {
    let is_root = |directory: &&Path| {
        let manifest = fs::read_to_string(directory.join("Cargo.toml"));
        manifest.is_ok_and(|manifest| manifest.lines().any(|line| line.trim() == "[workspace]"))
    };
    start.ancestors().find(is_root).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_workspace_above_is_found() {
        let folder = env::temp_dir().join(format!("xtask-root-{}", std::process::id()));
        let package = folder.join("crates/one");
        fs::create_dir_all(package.join("src")).expect("a folder");
        fs::write(package.join("Cargo.toml"), "[package]\n").expect("a file");
        assert_ne!(above(&package.join("src")).as_deref(), Some(&*folder));
        fs::write(folder.join("Cargo.toml"), "[workspace]\nmembers = []\n").expect("a file");
        let found = above(&package.join("src"));
        fs::remove_dir_all(&folder).expect("it is there");
        assert_eq!(found, Some(folder));
    }
}
