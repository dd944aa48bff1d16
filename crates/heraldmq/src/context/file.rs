//! The file of contexts: `heraldmq/contexts.json` below `$XDG_CONFIG_HOME`, or below `~/.config`.
//!
//! Invariants: the file has paths of keys, never a key; it is replaced as a whole; only its owner reads it; a command that
//! changes it has locked `contexts.lock` beside it, so that two at the same time both count. A file with anything unknown in it
//! is refused, with its path and the line.
//!
//! Deliberately absent: which context a command takes; see `choice.rs`.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use ureq::http::Uri;

use crate::failure::Failure;
use crate::passwd;

/// Permissions of a new folder.
const OWNER_ONLY: u32 = 0o700;

/// Longest name of a context, in bytes.
const LONGEST_NAME: usize = 64;

/// All contexts of a person.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The name of the one that commands take if nothing else names a broker.
    #[serde(default)]
    pub(crate) in_use: Option<String>,
    /// By name.
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// How one broker, or one cluster, is reached.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// The HTTP port.
    pub(crate) url: Url,
    /// An absolute path of a file with a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<PathBuf>,
    /// An absolute path of a file with certificates of authorities, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
}

/// `http://host[:port]` or `https://host[:port]`, perhaps with a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Url(String);

impl Url {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Url {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let refused = || format!("`{text}` is not a URL such as http://127.0.0.1:8091");
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let is_plain =
            uri.query().is_none() && uri.authority().is_some_and(|of| !of.as_str().contains('@'));
        match is_http && is_plain {
            true => Ok(Self(text)),
            false => Err(refused()),
        }
    }
}

impl<'de> Deserialize<'de> for Url {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        // An error of a visitor has the line of the text; one of `serde(try_from)` has that of what follows.
        impl Visitor<'_> for Text {
            type Value = Url;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Url, E> {
                Url::try_from(text.to_owned()).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// A name of letters, digits, `-`, `_` and `.`, up to 64 characters.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_allowed) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "expected up to {LONGEST_NAME} letters, digits, `-`, `_` and `.`"
        )),
    }
}

/// Where the file is; `None` if neither `XDG_CONFIG_HOME` nor `HOME` has an absolute path.
fn path() -> Option<PathBuf> {
    let absolute = |variable: &str| {
        let folder = PathBuf::from(env::var_os(variable)?);
        folder.is_absolute().then_some(folder)
    };
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("heraldmq/contexts.json"))
}

/// Waits until no other command changes the file; the others wait until what is returned is dropped. The file itself is
/// replaced, so another one beside it is locked.
fn lock(path: &Path) -> Result<File, Failure> {
    let folder = path.parent().expect("the path has a folder");
    let mut made = DirBuilder::new();
    made.recursive(true).mode(OWNER_ONLY);
    made.create(folder).map_err(|error| failed(path, &error))?;
    let path = path.with_extension("lock");
    let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| failed(&path, &error))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Runtime(format!("{}: {error}", path.display()))
}

impl Contexts {
    /// The contexts in the file. A file that is not there has none.
    ///
    /// # Errors
    /// The file cannot be read, or is not what `write` makes.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Some(path) = path() else {
            return Ok(Self::default());
        };
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&path, &text),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(Self::default())
            }
            Err(error) => Err(Failure::Usage(format!("{}: {error}", path.display()))),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let at =
            |line: usize, why: &str| Failure::Usage(format!("{}:{line}: {why}", path.display()));
        let contexts: Self = serde_json::from_str(text).map_err(|error| {
            let why = error.to_string();
            // The line stands in front.
            let place = format!(" at line {} column {}", error.line(), error.column());
            at(error.line(), why.strip_suffix(&place).unwrap_or(&why))
        })?;
        match &contexts.in_use {
            Some(name) if !contexts.contexts.contains_key(name) => {
                let line = text.lines().position(|line| line.contains("\"in_use\""));
                let why = format!("in_use names `{name}`, and there is no such context");
                Err(at(line.unwrap_or(0) + 1, &why))
            }
            _ => Ok(contexts),
        }
    }

    /// Changes the contexts and replaces the file, while no other command does. Makes its folder if there is none; a refused
    /// change makes nothing.
    ///
    /// # Errors
    /// Those of `read` and of `change`; there is no place for the file, or it cannot be locked or written.
    pub(super) fn change<T>(
        change: impl Fn(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        change(&mut Self::read()?)?;
        let path = path().ok_or_else(|| {
            let why =
                "contexts have no place: neither XDG_CONFIG_HOME nor HOME is an absolute path";
            Failure::Runtime(why.to_owned())
        })?;
        let _lock = lock(&path)?;
        // Another command may have changed them meanwhile.
        let mut contexts = Self::read()?;
        let done = change(&mut contexts)?;
        let text = serde_json::to_string_pretty(&contexts).expect("text becomes JSON");
        passwd::replace(&path, &(text + "\n")).map_err(|error| failed(&path, &error))?;
        Ok(done)
    }

    /// Says that there is no context of this name, and which there are.
    pub(super) fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
        match names.as_slice() {
            [] => format!("there is no context `{name}`; `heraldmq context add` adds one"),
            names => format!(
                "there is no context `{name}`; there are: {}",
                names.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_file_is_refused_with_its_line() {
        for (text, expected) in [
            ("{\n \"in_use\": flase\n}", "f.json:2: expected ident"),
            (
                "{\n \"inuse\": \"a\"}",
                "f.json:2: unknown field `inuse`, expected `in_use` or `contexts`",
            ),
            (
                "{\"contexts\": {\n\"a\": {\"url\": \"localhost:8091\"\n}}}",
                "f.json:2: `localhost:8091` is not a URL such as http://127.0.0.1:8091",
            ),
            (
                "{\"contexts\": {},\n\"in_use\": \"a\"}",
                "f.json:2: in_use names `a`, and there is no such context",
            ),
        ] {
            let refused = Contexts::parse(Path::new("f.json"), text).unwrap_err();
            assert_eq!(refused, Failure::Usage(expected.to_owned()), "{text}");
        }
        Contexts::parse(Path::new("f.json"), "{}").unwrap();
    }

    #[test]
    fn urls_have_a_scheme_and_a_host_and_no_password() {
        for text in [
            "http://127.0.0.1:8091",
            "https://mq.example/",
            "http://[::1]:8091/below",
        ] {
            Url::try_from(text.to_owned()).unwrap();
        }
        for text in [
            "",
            "mq.example",
            "ftp://a",
            "http://",
            "http://u:p@a",
            "http://a/?b=c",
            "/a",
        ] {
            Url::try_from(text.to_owned()).unwrap_err();
        }
    }
}
