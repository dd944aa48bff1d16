//! The keys of the API: random secrets, of which the file has the hash.
//!
//! A key is `hmq_<identifier>_<secret>`. The secret has 256 random bits, so its hash needs no slow function: nobody guesses
//! it, and a flood of requests with wrong keys costs the node little.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::Role;

/// What keys begin with, so that programs that look for secrets in texts find them.
const PREFIX: &str = "hmq_";

/// Bytes of a secret.
const SECRET: usize = 32;

/// Keys of one file.
const MOST_KEYS: usize = 1_024;

/// The longest name of a key, in bytes.
const LONGEST_NAME: usize = 128;

/// The identifier of a key: 8 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct KeyId(String);

impl KeyId {
    fn new(text: &str) -> Option<Self> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (text.len() == 8 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }
}

impl KeyId {
    /// As the control store has it.
    pub(crate) fn number(&self) -> control::KeyId {
        let number = u32::from_str_radix(&self.0, 16);
        control::KeyId(number.expect("an identifier has 8 hexadecimal digits"))
    }
}

impl From<control::KeyId> for KeyId {
    fn from(id: control::KeyId) -> Self {
        Self(id.to_string())
    }
}

/// The identifier and the secret of what somebody shows as a key.
pub(super) fn split(shown: &str) -> Option<(KeyId, &str)> {
    let (id, secret) = shown.strip_prefix(PREFIX)?.split_once('_')?;
    Some((KeyId::new(id)?, secret))
}

/// A key that was made.
pub(crate) struct MadeKey {
    /// Which.
    pub(crate) id: KeyId,
    /// What a request shows.
    pub(crate) text: Zeroizing<String>,
    /// SHA-256 of its secret.
    pub(crate) sha256: [u8; 32],
}

/// Makes a key; `None` for the identifier: a random one.
pub(crate) fn make_key(id: Option<KeyId>) -> MadeKey {
    let id = id.unwrap_or_else(|| control::KeyId(rand::random()).into());
    let bytes = Zeroizing::new(rand::random::<[u8; SECRET]>());
    let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(*bytes));
    MadeKey {
        text: Zeroizing::new(format!("{PREFIX}{id}_{}", *secret)),
        sha256: Sha256::digest(secret.as_bytes()).into(),
        id,
    }
}

impl TryFrom<String> for KeyId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(&text).ok_or("a key's identifier has 8 hexadecimal digits")
    }
}

impl std::str::FromStr for KeyId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.to_owned().try_into()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key as the file has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Which.
    pub id: KeyId,
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was made.
    #[serde(with = "time")]
    pub created: SystemTime,
    /// From when on it is refused; `None`: it stays.
    #[serde(default, with = "optional_time")]
    pub ends: Option<SystemTime>,
    /// SHA-256 of the secret, in base64url.
    sha256: String,
}

impl Key {
    /// Whether it is refused from now on because of its end.
    #[must_use]
    pub fn has_ended(&self, now: SystemTime) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }
}

/// What a file of keys has.
#[derive(Debug, Default)]
pub struct Keys(BTreeMap<KeyId, Key>);

/// A key that was made; its text is shown once and kept nowhere.
#[derive(Debug)]
pub struct Added {
    /// The key.
    pub key: Key,
    /// What a request shows.
    pub text: Zeroizing<String>,
}

impl Keys {
    /// Whose a shown key is. How long that takes does not depend on the secret.
    #[must_use]
    pub fn find(&self, shown: &str, now: SystemTime) -> Option<&Key> {
        let (id, secret) = split(shown)?;
        let key = self.0.get(&id)?;
        let is_known = bool::from(hash(secret).as_bytes().ct_eq(key.sha256.as_bytes()));
        (is_known && !key.has_ended(now)).then_some(key)
    }

    /// All keys, by their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.values()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A file of keys: JSON, which only its owner may read.
#[derive(Clone, Debug)]
pub struct KeyFile(PathBuf);

/// Why a file of keys cannot be used or changed.
#[derive(Debug)]
pub enum KeyFileError {
    /// It cannot be read or written.
    Io(io::Error),
    /// It is no file of keys.
    Format(serde_json::Error),
    /// Others may read or change it.
    Open,
    /// It has two keys of one identifier.
    Twice(KeyId),
    /// It has more than 1,024.
    TooMany,
    /// A name is empty, longer than 128 bytes, or has control characters.
    Name,
    /// It has no key of this identifier.
    Unknown(KeyId),
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Format(error) => write!(f, "it is no file of keys: {error}"),
            Self::Open => f.write_str("others may read or change it; chmod 600 makes it safe"),
            Self::Twice(id) => write!(f, "the key {id} is in it twice"),
            Self::TooMany => write!(f, "a file has at most {MOST_KEYS} keys"),
            Self::Name => write!(
                f,
                "a name has 1 to {LONGEST_NAME} bytes and no control characters"
            ),
            Self::Unknown(id) => write!(f, "there is no key {id}"),
        }
    }
}

impl std::error::Error for KeyFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Format(error) => Some(error),
            Self::Open | Self::Twice(_) | Self::TooMany | Self::Name | Self::Unknown(_) => None,
        }
    }
}

impl From<io::Error> for KeyFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl KeyFile {
    /// The file at a path, which need not exist.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Its keys.
    ///
    /// # Errors
    /// It does not exist or cannot be used.
    pub fn read(&self) -> Result<Keys, KeyFileError> {
        let mode = fs::metadata(&self.0)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Open);
        }
        let text = fs::read(&self.0)?;
        let listed: Vec<Key> = serde_json::from_slice(&text).map_err(KeyFileError::Format)?;
        if listed.len() > MOST_KEYS {
            return Err(KeyFileError::TooMany);
        }
        let mut keys = BTreeMap::new();
        for key in listed {
            check_name(&key.name)?;
            if let Some(before) = keys.insert(key.id.clone(), key) {
                return Err(KeyFileError::Twice(before.id));
            }
        }
        Ok(Keys(keys))
    }

    /// Adds a key; makes the file if there is none.
    ///
    /// # Errors
    /// The file cannot be used or written, or the name is none; nothing was added.
    pub fn add(
        &self,
        name: &str,
        role: Role,
        lasts: Option<Duration>,
    ) -> Result<Added, KeyFileError> {
        check_name(name)?;
        let mut keys = self.read_or_new()?;
        if keys.0.len() >= MOST_KEYS {
            return Err(KeyFileError::TooMany);
        }
        let MadeKey { id, text, sha256 } = loop {
            let made = make_key(None);
            if !keys.0.contains_key(&made.id) {
                break made;
            }
        };
        // Whole seconds, as the file has them.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now_s());
        let key = Key {
            id: id.clone(),
            name: name.to_owned(),
            role,
            created: now,
            ends: lasts.map(|lasts| now + lasts),
            sha256: URL_SAFE_NO_PAD.encode(sha256),
        };
        keys.0.insert(id.clone(), key.clone());
        self.write(&keys)?;
        Ok(Added { key, text })
    }

    /// Takes a key out.
    ///
    /// # Errors
    /// There is no such key, or the file cannot be used or written.
    pub fn remove(&self, id: &KeyId) -> Result<Key, KeyFileError> {
        let mut keys = self.read()?;
        let removed = keys.0.remove(id);
        let removed = removed.ok_or_else(|| KeyFileError::Unknown(id.clone()))?;
        self.write(&keys)?;
        Ok(removed)
    }

    fn read_or_new(&self) -> Result<Keys, KeyFileError> {
        match self.read() {
            Err(KeyFileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Keys::default())
            }
            read => read,
        }
    }

    /// Replaces the file by one that was synced, so that a crash leaves the old one or the new one.
    fn write(&self, keys: &Keys) -> Result<(), KeyFileError> {
        let folder = match self.0.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let listed: Vec<&Key> = keys.iter().collect();
        let mut text = serde_json::to_vec_pretty(&listed).map_err(KeyFileError::Format)?;
        text.push(b'\n');
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.as_file()
            .set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        file.persist(&self.0).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()?;
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), KeyFileError> {
    let is_long = name.is_empty() || name.len() > LONGEST_NAME;
    match is_long || name.chars().any(char::is_control) {
        true => Err(KeyFileError::Name),
        false => Ok(()),
    }
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn hash(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret.as_bytes()))
}

/// The secret of `http.tokenFile`: an administrator's, without identifier or end.
pub struct Token(Zeroizing<Vec<u8>>);

impl Token {
    /// The content of a file, without white space around it.
    ///
    /// # Errors
    /// The file cannot be read, or is empty.
    pub fn read(path: &Path) -> io::Result<Self> {
        let content = Zeroizing::new(fs::read(path)?);
        match content.trim_ascii() {
            b"" => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is empty",
            )),
            token => Ok(Self(Zeroizing::new(token.to_vec()))),
        }
    }

    /// Whether somebody knows it. How long that takes depends on the length alone.
    pub(super) fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Times as RFC 3339.
mod time {
    use std::time::SystemTime;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_rfc3339_seconds(*time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_rfc3339(&text).map_err(D::Error::custom)
    }
}

mod optional_time {
    use std::time::SystemTime;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::time::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let time = text.map(|text| humantime::parse_rfc3339(&text));
        time.transpose().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, KeyFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::new(&folder.path().join("keys.json"));
        (folder, file)
    }

    #[test]
    fn a_key_is_known_in_full_until_it_ends_or_is_removed() {
        let (_folder, file) = folder();
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        let added = file.add("ci", Role::Operator, Some(hour)).unwrap();
        let other = file.add("grafana", Role::Viewer, None).unwrap();
        let keys = file.read().unwrap();
        assert_eq!(keys.find(&added.text, now), Some(&added.key));
        assert_eq!(
            keys.find(&other.text, now + 1_000_000 * hour),
            Some(&other.key)
        );
        assert_eq!(keys.find(&added.text, now + 2 * hour), None);
        let text = added.text.as_str();
        let others_secret = format!("hmq_{}_{}", added.key.id, &other.text[13..]);
        for shown in [
            "",
            "hmq_",
            "hmq__",
            &text[..text.len() - 1],
            &format!("{text}a"),
            &text.to_uppercase(),
            &text[4..],
            &others_secret,
        ] {
            assert_eq!(keys.find(shown, now), None, "{shown}");
        }
        file.remove(&added.key.id).unwrap();
        assert_eq!(file.read().unwrap().find(&added.text, now), None);
        let again = file.remove(&added.key.id).unwrap_err();
        assert!(matches!(again, KeyFileError::Unknown(_)), "{again}");
    }

    #[test]
    fn the_file_has_no_secret_and_is_its_owners() {
        let (folder, file) = folder();
        let added = file.add("ci", Role::Administrator, None).unwrap();
        let path = folder.path().join("keys.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&added.text[13..]));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(file.read(), Err(KeyFileError::Open)));
    }

    #[test]
    fn what_is_no_file_of_keys_is_refused() {
        let (folder, file) = folder();
        let key = r#"{"id": "0123abcd", "name": "a", "role": "viewer", "created": "2026-01-01T00:00:00Z", "sha256": "x"}"#;
        let wrong = [
            String::new(),
            "{}".to_owned(),
            format!("[{key}, {key}]"),
            format!("[{}]", key.replace("0123abcd", "0123abc")),
            format!("[{}]", key.replace("viewer", "root")),
            format!("[{}]", key.replace("\"a\"", "\"\"")),
            format!("[{}]", key.replace("\"sha256\"", "\"secret\"")),
        ];
        let path = folder.path().join("keys.json");
        for text in wrong {
            fs::write(&path, &text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            assert!(file.read().is_err(), "{text}");
        }
        fs::write(&path, format!("[{key}]")).unwrap();
        assert_eq!(file.read().unwrap().iter().count(), 1);
        assert!(matches!(
            file.add("a\nb", Role::Viewer, None),
            Err(KeyFileError::Name)
        ));
    }

    fn token(content: &str) -> io::Result<Token> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        Token::read(file.path())
    }

    #[test]
    fn a_token_is_known_in_full_only() {
        let token = token("secret\n").unwrap();
        assert!(token.is(b"secret"));
        for shown in ["", "secre", "secrets", "Secret", "secret\n"] {
            assert!(!token.is(shown.as_bytes()), "{shown}");
        }
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[test]
    fn an_empty_token_is_none() {
        assert!(token(" \n").is_err());
    }
}
