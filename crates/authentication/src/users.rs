//! Files of users: `user:hash`, a line for each, `#` before comments.
//!
//! Invariants: a file with any mistake is refused as a whole. A user has one hash for passwords at most,
//! and one for each mechanism of SCRAM.

use std::{collections::HashMap, fmt, hash::BuildHasher, path::Path};

use aws_lc_rs::error::Unspecified;

use crate::{
    file::read_text,
    password_hash::{HashError, PasswordHash, hash_by_argon2id},
    scram_keys::{Mechanism, ScramKeys},
};

/// The largest file that is read: about half a million users.
///
/// Limit: files of users, of keys; key sets | {}; {file::MAX_KEY_FILE_BYTES}; {published::MAX_SET_BYTES} and
/// {jwt::keys::MAX_KEYS} keys | refused; the last key set stays
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// The longest name; longer ones do not fit into CONNECT.
const MAX_NAME_BYTES: usize = 65_535;

/// Users by name.
#[derive(Debug, Default)]
pub struct Users {
    hashes: Vec<Vec<PasswordHash>>,
    places: HashMap<Box<str>, usize>,
}

/// How a password is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// By argon2id, with the parameters that OWASP recommends.
    Argon2id,
    /// For SCRAM-SHA-256 and SCRAM-SHA-512. Plain passwords can be checked against it as well.
    Scram,
}

/// What is wrong with a file of users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsersError {
    line: usize,
    mistake: Mistake,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    NoColon,
    Name,
    Hash(HashError),
    Twice,
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.mistake {
            Mistake::NoColon => f.write_str("not a user and a hash, with a colon between"),
            Mistake::Name => f.write_str("the name is empty or too long"),
            Mistake::Hash(error) => error.fmt(f),
            Mistake::Twice => f.write_str("the user has such a hash already"),
        }
    }
}

impl std::error::Error for UsersError {}

/// Why a file of users cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UsersFileError {
    /// It cannot be read.
    Read(String),
    /// A line is wrong.
    Content(UsersError),
}

impl fmt::Display for UsersFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(why) => f.write_str(why),
            Self::Content(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for UsersFileError {}

impl Users {
    /// Reads a file of at most 64 MiB.
    ///
    /// # Errors
    /// It cannot be read, or has a mistake.
    pub fn read_file(path: &Path) -> Result<Self, UsersFileError> {
        let text = read_text(path, MAX_FILE_BYTES).map_err(UsersFileError::Read)?;
        Self::parse(&text).map_err(UsersFileError::Content)
    }

    /// Reads a file.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, String> {
        let path = path.ok_or("file is missing")?;
        let text = read_text(path, MAX_FILE_BYTES)?;
        Self::parse(&text).map_err(|error| format!("{}, {error}", path.display()))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, UsersError> {
        let mut users = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            users
                .take_line(text)
                .map_err(|mistake| UsersError { line, mistake })?;
        }
        Ok(users)
    }

    fn take_line(&mut self, line: &str) -> Result<(), Mistake> {
        let Some(entry) = Entry::of_line(line)? else {
            return Ok(());
        };
        let hash = PasswordHash::parse(entry.hash).map_err(Mistake::Hash)?;
        let place = *self
            .places
            .entry(entry.name.into())
            .or_insert(self.hashes.len());
        if place == self.hashes.len() {
            self.hashes.push(Vec::new());
        }
        let hashes = &mut self.hashes[place];
        let mechanism = hash.scram_keys().map(|keys| keys.mechanism);
        if hashes
            .iter()
            .any(|other| other.scram_keys().map(|keys| keys.mechanism) == mechanism)
        {
            return Err(Mistake::Twice);
        }
        hashes.push(hash);
        Ok(())
    }

    /// Whether there is a user of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// The names of all, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(|name| &**name)
    }

    /// Whether the password is that of the user; `None`: there is no such user. Takes as long for a name
    /// that does not exist as for one that does.
    #[must_use]
    pub fn check(&self, name: &str, password: &[u8]) -> Option<bool> {
        let place = self.places.get(name);
        let fits = self.hashes[place.copied().or_else(|| self.decoy(name))?]
            .iter()
            .min_by_key(|hash| hash.scram_keys().is_some())?
            .fits(password);
        place.map(|_| fits)
    }

    /// A user for a name that does not exist; always the same, so that the time to check his hash tells
    /// nothing where hashes differ in cost.
    fn decoy(&self, name: &str) -> Option<usize> {
        let count = self.hashes.len() as u64;
        let hash = self.places.hasher().hash_one(name);
        Some(hash.checked_rem(count)? as usize)
    }

    /// What is stored for SCRAM.
    pub(crate) fn scram_keys(&self, name: &str, mechanism: Mechanism) -> Option<&ScramKeys> {
        let place = *self.places.get(name)?;
        scram_keys(&self.hashes[place], mechanism)
    }

    /// The first keys for a mechanism in the file.
    pub(crate) fn first_scram_keys(&self, mechanism: Mechanism) -> Option<&ScramKeys> {
        self.hashes
            .iter()
            .find_map(|hashes| scram_keys(hashes, mechanism))
    }
}

fn scram_keys(hashes: &[PasswordHash], mechanism: Mechanism) -> Option<&ScramKeys> {
    hashes
        .iter()
        .filter_map(PasswordHash::scram_keys)
        .find(|keys| keys.mechanism == mechanism)
}

/// A line that is neither empty nor a comment.
struct Entry<'a> {
    name: &'a str,
    hash: &'a str,
}

impl<'a> Entry<'a> {
    fn of_line(line: &'a str) -> Result<Option<Self>, Mistake> {
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let (name, hash) = line.split_once(':').ok_or(Mistake::NoColon)?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Mistake::Name);
        }
        let hash = hash.trim_end();
        Ok(Some(Self { name, hash }))
    }
}

/// Why a file of users cannot be changed as asked.
#[derive(Debug)]
pub enum EditError {
    /// What the file holds is wrong.
    File(UsersError),
    /// The name is empty or too long, begins with `#`, or has a colon or a control character in it.
    Name,
    /// There is no such user.
    Unknown,
    /// The operating system has no random numbers.
    Random,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Name => f.write_str(
                "a user name must not be empty, begin with #, or have a colon or a control character in it",
            ),
            Self::Unknown => f.write_str("there is no such user"),
            Self::Random => f.write_str("the operating system gives no random numbers"),
        }
    }
}

impl std::error::Error for EditError {}

impl From<UsersError> for EditError {
    fn from(error: UsersError) -> Self {
        Self::File(error)
    }
}

impl From<Unspecified> for EditError {
    fn from(_: Unspecified) -> Self {
        Self::Random
    }
}

/// The text of a file of users, in which a user has this password and no other. All else stays.
///
/// # Errors
/// [`EditError`]
pub fn with_user(
    text: &str,
    name: &str,
    password: &[u8],
    storage: Storage,
) -> Result<String, EditError> {
    check_name(name)?;
    let (mut lines, place) = lines_without(text, name)?;
    let place = place.unwrap_or(lines.len());
    let entries: Vec<String> = new_hashes(password, storage)?
        .iter()
        .map(|hash| format!("{name}:{hash}"))
        .collect();
    lines.splice(place..place, entries.iter().map(String::as_str));
    Ok(joined(&lines))
}

/// The text of a file of users without a user. All else stays.
///
/// # Errors
/// [`EditError`]
pub fn without_user(text: &str, name: &str) -> Result<String, EditError> {
    let (lines, place) = lines_without(text, name)?;
    place.ok_or(EditError::Unknown)?;
    Ok(joined(&lines))
}

fn check_name(name: &str) -> Result<(), EditError> {
    let is_bad = name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || name.starts_with('#')
        || name.contains(|c: char| c == ':' || c.is_control());
    if is_bad { Err(EditError::Name) } else { Ok(()) }
}

fn new_hashes(password: &[u8], storage: Storage) -> Result<Vec<String>, EditError> {
    match storage {
        Storage::Argon2id => Ok(vec![
            hash_by_argon2id(password).map_err(|_| EditError::Random)?,
        ]),
        Storage::Scram => Mechanism::ALL
            .into_iter()
            .map(|mechanism| Ok(ScramKeys::new(mechanism, password)?.to_text()))
            .collect(),
    }
}

/// The lines of a file but for those of a user, and where the first of them stood.
fn lines_without<'a>(
    text: &'a str,
    name: &str,
) -> Result<(Vec<&'a str>, Option<usize>), UsersError> {
    Users::parse(text)?;
    let is_of_user =
        |line: &str| matches!(Entry::of_line(line), Ok(Some(entry)) if entry.name == name);
    let place = text.lines().position(is_of_user);
    let lines = text.lines().filter(|line| !is_of_user(line)).collect();
    Ok((lines, place))
}

fn joined(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| [*line, "\n"]).collect()
}

#[cfg(test)]
mod tests;
