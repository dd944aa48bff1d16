//! Secrets from files.

use std::path::Path;

/// The longest secret, in bytes.
const LONGEST: usize = 64 * 1024;

/// The content of a file without white space at its end.
///
/// # Errors
/// The file cannot be read, is empty, or is longer than 64 KiB. Errors name the file, never its content.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let named = |why: &str| format!("{}: {why}", path.display());
    let mut secret = std::fs::read(path).map_err(|error| named(&error.to_string()))?;
    secret.truncate(secret.trim_ascii_end().len());
    match secret.len() {
        0 => Err(named("the file is empty")),
        1..=LONGEST => Ok(secret),
        _ => Err(named("larger than 64 KiB")),
    }
}
