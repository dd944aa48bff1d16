//! Users of EMQX's built-in database, as its files to import users have them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::Value;

use super::ImportError;
use super::json::{self, Object};
use crate::document::UserEntry;
use crate::imported::Imported;

/// How a file of users is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableFormat {
    /// Lines with commas between, the first of which has the names of the columns.
    Csv,
    /// A list of objects.
    Json,
}

impl TableFormat {
    /// By the end of the name of a file, in any case; `None`: it has neither `.csv` nor `.json`.
    #[must_use]
    pub fn of_file_name(name: &str) -> Option<Self> {
        let (_, end) = name.rsplit_once('.')?;
        match end.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// How the passwords of a file are hashed; the file does not say it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EmqxHash {
    /// One round of SHA with a salt, which is weak.
    Salted(Digest, SaltPosition),
    /// bcrypt: the hash has its salt.
    Bcrypt,
    /// PBKDF2 with a number of iterations.
    Pbkdf2(Digest, NonZero<u32>),
}

/// A digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Digest {
    /// SHA-256, of 32 bytes.
    Sha256,
    /// SHA-512, of 64 bytes.
    Sha512,
}

/// Where the salt stands in what is hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaltPosition {
    /// Before the password.
    Prefix,
    /// Behind the password.
    Suffix,
}

impl FromStr for EmqxHash {
    type Err = String;

    /// Reads `sha256-prefix`, `sha256-suffix`, `sha512-prefix`, `sha512-suffix`, `bcrypt`, `pbkdf2-sha256:ITERATIONS` or
    /// `pbkdf2-sha512:ITERATIONS`.
    ///
    /// # Errors
    /// What is none of these, which names them.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, iterations) = match text.split_once(':') {
            Some((name, iterations)) => (name, Some(iterations)),
            None => (text, None),
        };
        let hash = match name {
            "sha256-prefix" => Self::Salted(Digest::Sha256, SaltPosition::Prefix),
            "sha256-suffix" => Self::Salted(Digest::Sha256, SaltPosition::Suffix),
            "sha512-prefix" => Self::Salted(Digest::Sha512, SaltPosition::Prefix),
            "sha512-suffix" => Self::Salted(Digest::Sha512, SaltPosition::Suffix),
            "bcrypt" => Self::Bcrypt,
            "pbkdf2-sha256" | "pbkdf2-sha512" => {
                let iterations = iterations.and_then(|text| text.parse().ok());
                let iterations = iterations
                    .ok_or_else(|| format!("write {name}:ITERATIONS, such as {name}:4096"))?;
                return Ok(match name {
                    "pbkdf2-sha256" => Self::Pbkdf2(Digest::Sha256, iterations),
                    _ => Self::Pbkdf2(Digest::Sha512, iterations),
                });
            }
            "plain" => {
                return Err(
                    "plain passwords are not taken: give these users new passwords".to_owned(),
                );
            }
            _ => {
                return Err(format!(
                    "{name:?} is none of sha256-prefix, sha256-suffix, sha512-prefix, sha512-suffix, bcrypt, pbkdf2-sha256:ITERATIONS, \
                     pbkdf2-sha512:ITERATIONS"
                ));
            }
        };
        match iterations {
            None => Ok(hash),
            Some(_) => Err(format!("{name} has no iterations")),
        }
    }
}

/// Reads a file by which EMQX imports users, or which has the same columns: `user_id`, `password_hash`, `salt`, `is_superuser`. The
/// users come in the order of names. A user of EMQX is a user name, or a client identifier if its database is set so; here it is a
/// user name.
///
/// Columns that are not known are left out and said.
///
/// # Errors
/// The first row or object that is not understood, without its hash; plain passwords; and salted hashes, unless weak hashes are
/// accepted.
pub fn emqx_users(
    text: &str,
    format: TableFormat,
    hash: &EmqxHash,
    accept_weak_hashes: bool,
) -> Result<Imported, ImportError> {
    if matches!(hash, EmqxHash::Salted(..)) && !accept_weak_hashes {
        let reason = "one round of SHA is a weak hash, and weak hashes are not accepted";
        return Err(ImportError::new("all users", reason));
    }
    let mut imported = Imported::default();
    let rows = match format {
        TableFormat::Csv => csv_rows(text, &mut imported)?,
        TableFormat::Json => json_rows(text, &mut imported)?,
    };
    let mut users = BTreeMap::new();
    for row in rows {
        let wrong = |reason: String| ImportError::new(row.at.clone(), reason);
        if row.user_id.is_empty() {
            return Err(wrong("user_id is empty".to_owned()));
        }
        let text = hash.text(&row.password_hash, &row.salt).map_err(wrong)?;
        let user = UserEntry {
            name: row.user_id.clone(),
            hashes: vec![text],
            superuser: row.is_superuser,
            ..UserEntry::default()
        };
        if users.insert(row.user_id.clone(), user).is_some() {
            return Err(wrong(format!("the user {:?} stands twice", row.user_id)));
        }
    }
    imported.document.users = users.into_values().collect();
    Ok(imported)
}

impl EmqxHash {
    /// The text of a hash as it stands in a password file, or what is wrong with it.
    fn text(&self, hash: &str, salt: &str) -> Result<String, String> {
        let some_salt = || match salt.is_empty() {
            true => Err("the salt is missing: a hash without one is not taken".to_owned()),
            false => Ok(salt),
        };
        match self {
            Self::Bcrypt => match hash.starts_with("$2") {
                true => Ok(hash.to_owned()),
                false => Err("password_hash is no hash by bcrypt".to_owned()),
            },
            Self::Salted(digest, position) => {
                let salt = STANDARD.encode(some_salt()?);
                let bytes = of_hexadecimal(hash)
                    .filter(|bytes| bytes.len() == digest.bytes())
                    .ok_or_else(|| {
                        format!(
                            "password_hash has not {} hexadecimal digits",
                            2 * digest.bytes()
                        )
                    })?;
                let position = match position {
                    SaltPosition::Prefix => "prefix",
                    SaltPosition::Suffix => "suffix",
                };
                let digest = digest.name();
                Ok(format!(
                    "${digest}-{position}${salt}${}",
                    STANDARD.encode(bytes)
                ))
            }
            Self::Pbkdf2(digest, iterations) => {
                let salt = of_passlib(some_salt()?.as_bytes());
                let bytes = of_hexadecimal(hash)
                    .ok_or_else(|| "password_hash is not hexadecimal".to_owned())?;
                let digest = digest.name();
                Ok(format!(
                    "$pbkdf2-{digest}${iterations}${salt}${}",
                    of_passlib(&bytes)
                ))
            }
        }
    }
}

impl Digest {
    fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }
}

/// Base64 as passlib writes it.
fn of_passlib(bytes: &[u8]) -> String {
    STANDARD_NO_PAD.encode(bytes).replace('+', ".")
}

fn of_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let bytes: Option<Vec<u8>> = bytes.collect();
    bytes.filter(|_| rest.is_empty() && !text.is_empty())
}

struct Row {
    at: String,
    user_id: String,
    password_hash: String,
    salt: String,
    is_superuser: bool,
}

const PLAIN: &str =
    "the file has plain passwords, which are not taken: give these users new passwords";

fn csv_rows(text: &str, imported: &mut Imported) -> Result<Vec<Row>, ImportError> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    // Not the text of an error: it could have a hash in it.
    let wrong = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        let what = match error.kind() {
            csv::ErrorKind::UnequalLengths { .. } => {
                "the row has not as many fields as there are columns"
            }
            _ => "this is no CSV",
        };
        ImportError::new(format!("line {line}"), what)
    };
    let header = reader.headers().map_err(wrong)?.clone();
    let column = |name: &str| header.iter().position(|column| column == name);
    let columns = ["user_id", "password_hash", "salt", "is_superuser"];
    let mut unknown = String::new();
    for name in header.iter().filter(|name| !columns.contains(name)) {
        let _ = write!(
            unknown,
            "{}{name:?}",
            if unknown.is_empty() { "" } else { ", " }
        );
    }
    let Some(hash) = column("password_hash") else {
        let reason = match column("password") {
            Some(_) => PLAIN,
            None => {
                "the column password_hash is missing; the first line has the names of the columns"
            }
        };
        return Err(ImportError::in_line(1, reason));
    };
    let Some(user) = column("user_id") else {
        return Err(ImportError::in_line(1, "the column user_id is missing"));
    };
    if !unknown.is_empty() {
        imported.leave_out("line 1", format!("columns that are not known: {unknown}"));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(wrong)?;
        let line = record.position().map_or(0, csv::Position::line);
        let field = |place: Option<usize>| place.and_then(|place| record.get(place)).unwrap_or("");
        let at = format!("line {line}");
        rows.push(Row {
            user_id: field(Some(user)).to_owned(),
            password_hash: field(Some(hash)).to_owned(),
            salt: field(column("salt")).to_owned(),
            is_superuser: match field(column("is_superuser")) {
                "true" => true,
                "false" | "" => false,
                _ => {
                    return Err(ImportError::new(
                        at,
                        "is_superuser is neither true nor false",
                    ));
                }
            },
            at,
        });
    }
    Ok(rows)
}

fn json_rows(text: &str, imported: &mut Imported) -> Result<Vec<Row>, ImportError> {
    let value = json::parse(text)?;
    let Value::Array(values) = &value else {
        return Err(ImportError::in_line(1, "this is no list of users"));
    };
    let mut rows = Vec::new();
    for (n, value) in (0..).zip(values) {
        let n: usize = n;
        let mut object = Object::new(format!("[{n}]"), value)?;
        let hash = match object.text("password_hash")? {
            Some(hash) => hash,
            None if object.get("password").is_some() => {
                return Err(ImportError::new(object.at, PLAIN));
            }
            None => {
                return Err(ImportError::new(
                    object.place("password_hash"),
                    "this is missing",
                ));
            }
        };
        rows.push(Row {
            at: object.at.clone(),
            user_id: object.name("user_id")?.to_owned(),
            password_hash: hash.to_owned(),
            salt: object.text("salt")?.unwrap_or("").to_owned(),
            is_superuser: object.flag("is_superuser")?.unwrap_or(false),
        });
        object.rest(imported);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: TableFormat, hash: &str) -> Result<Imported, ImportError> {
        emqx_users(text, format, &hash.parse().unwrap(), true)
    }

    #[test]
    fn names_of_hashes_are_read() {
        for name in [
            "sha256-prefix",
            "sha256-suffix",
            "sha512-prefix",
            "sha512-suffix",
            "bcrypt",
            "pbkdf2-sha256:4096",
            "pbkdf2-sha512:1",
        ] {
            assert!(name.parse::<EmqxHash>().is_ok(), "{name}");
        }
        for (name, part) in [
            ("plain", "plain passwords"),
            ("md5", "is none of"),
            ("pbkdf2-sha256", "write pbkdf2-sha256:ITERATIONS"),
            ("pbkdf2-sha256:0", "write pbkdf2-sha256:ITERATIONS"),
            ("bcrypt:10", "no iterations"),
        ] {
            let error = name.parse::<EmqxHash>().unwrap_err();
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[test]
    fn the_name_of_a_file_says_its_format() {
        let format = TableFormat::of_file_name;
        assert_eq!(format("/etc/a.b/users.CSV"), Some(TableFormat::Csv));
        assert_eq!(format("users.json"), Some(TableFormat::Json));
        assert_eq!(format("acl.conf"), None);
        assert_eq!(format("csv"), None);
    }

    #[test]
    fn weak_hashes_are_refused_unless_they_are_accepted() {
        let hash = "sha256-suffix".parse().unwrap();
        let error = emqx_users("", TableFormat::Csv, &hash, false).unwrap_err();
        assert!(error.reason.contains("weak"), "{error}");
    }

    #[test]
    fn columns_may_be_quoted_missing_and_unknown() {
        let text = "user_id,password_hash,tenant\n\"a,b\",$2b$04$x,t\n";
        let imported = read(text, TableFormat::Csv, "bcrypt").unwrap();
        let [user] = &*imported.document.users else {
            panic!("one user");
        };
        assert_eq!((user.name.as_str(), user.superuser), ("a,b", false));
        assert_eq!(user.hashes, ["$2b$04$x"]);
        assert_eq!(imported.left_out.len(), 1);
        assert!(imported.left_out[0].why.contains("\"tenant\""));
    }

    #[test]
    fn mistakes_have_their_place_and_no_hash() {
        const SECRET: &str = "hunter2";
        let csv = TableFormat::Csv;
        let json = TableFormat::Json;
        for (text, format, at, part) in [
            (
                "user_id,password\na,hunter2",
                csv,
                "line 1",
                "plain passwords",
            ),
            (
                "user_id,salt\na,hunter2",
                csv,
                "line 1",
                "password_hash is missing",
            ),
            (
                "password_hash\nhunter2",
                csv,
                "line 1",
                "user_id is missing",
            ),
            (
                "user_id,password_hash,salt\na,hunter2,s",
                csv,
                "line 2",
                "64 hexadecimal",
            ),
            (
                "user_id,password_hash,salt\na,hunter2",
                csv,
                "line 2",
                "as many fields",
            ),
            (
                "user_id,password_hash\na,hunter2",
                csv,
                "line 2",
                "salt is missing",
            ),
            (
                r#"[{"user_id":"a","password":"hunter2"}]"#,
                json,
                "[0]",
                "plain passwords",
            ),
            (
                r#"[{"user_id":"a","password_hash":"hunter2","salt":"s"}]"#,
                json,
                "[0]",
                "64 hexa",
            ),
            (
                r#"[{"user_id":7,"password_hash":"hunter2"}]"#,
                json,
                "[0].user_id",
                "no text",
            ),
            (r#"{"hunter2": 1}"#, json, "line 1", "no list"),
            ("[\n{\"hunter2\"}", json, "line 2", "no JSON"),
        ] {
            let error = read(text, format, "sha256-suffix").unwrap_err();
            assert_eq!(error.at, at, "{text}");
            assert!(error.reason.contains(part), "{text}: {error}");
            assert!(!error.to_string().contains(SECRET), "{error}");
        }
        let twice = "user_id,password_hash\na,$2b$\na,$2b$";
        let error = read(twice, csv, "bcrypt").unwrap_err();
        assert_eq!(error.to_string(), "line 3: the user \"a\" stands twice");
    }
}
