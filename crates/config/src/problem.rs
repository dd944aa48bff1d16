//! What can be wrong with a configuration, and how it is said: one line each, for standard error.

use std::{error::Error, fmt, path::PathBuf};

/// Everything that is wrong with a configuration. `Display` prints one line per problem, without
/// a line end after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// In the order file, environment, `--set`, checks across options. Never empty.
    pub problems: Vec<Problem>,
}

/// One violation and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where to look.
    pub origin: Origin,
    /// What is wrong there.
    pub violation: Violation,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line (from 1) of the configuration file; 0 if it is about the file as a whole.
    File(PathBuf, u64),
    /// An environment variable, by its name.
    Environment(String),
    /// A `--set`, by what followed it.
    Argument(String),
    /// `--data-dir`.
    DataDir,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The file could not be read; the text is the operating system's reason.
    Unreadable(String),
    /// The file has more bytes than this.
    TooLarge(u64),
    /// The file is not UTF-8.
    NotUtf8,
    /// Not YAML, or beyond the limits on nesting, aliases and the like; the text is the parser's.
    Yaml(String),
    /// There is no such option.
    UnknownKey {
        /// Path of the key as written.
        key: String,
        /// Path of the nearest option or group, and how near it is.
        nearest: Nearest,
    },
    /// A key with dots in a file, where groups are nested instead.
    DottedKey {
        /// Path of the key as written.
        key: String,
    },
    /// A value that its option does not allow.
    Value {
        /// Path of the option.
        key: String,
        /// What is allowed.
        expected: String,
        /// What was written.
        found: String,
    },
    /// So many problems that the file was not looked at beyond this line.
    TooManyProblems,
    /// A `--set` without `=`.
    NotAnAssignment,
    /// A single value for a `tcpListener` that the file gives as a list of several.
    SeveralItems {
        /// Path of the list.
        key: String,
        /// Number of its items.
        items: usize,
    },
    /// The same option in two environment variables that differ in letter case.
    SetTwice {
        /// Path of the option.
        key: String,
    },
    /// Two options contradict each other.
    Conflict {
        /// Path of the option to change.
        key: String,
        /// What must hold.
        statement: String,
    },
}

/// The known name nearest to an unknown one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nearest {
    /// Equal but for letter case.
    OtherCase(String),
    /// A likely mistyping.
    Similar(String),
    /// The nearest there is, and yet rather different.
    Remote(String),
}

impl Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.violation)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("configuration"),
            Self::File(path, 0) => write!(f, "{}", path.display()),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {}", Shown(name)),
            Self::Argument(argument) => write!(f, "--set {}", Shown(argument)),
            Self::DataDir => f.write_str("--data-dir"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(reason) => write!(f, "cannot be read: {reason}"),
            Self::TooLarge(most) => write!(f, "has more than {most} bytes"),
            Self::NotUtf8 => f.write_str("is not UTF-8 text"),
            Self::Yaml(reason) => f.write_str(reason),
            Self::UnknownKey { key, nearest } => {
                write!(f, "unknown key `{}`; {nearest}", Shown(key))
            }
            Self::DottedKey { key } => write!(
                f,
                "unknown key `{}`; in a file, write the parts between dots as nested maps",
                Shown(key)
            ),
            Self::Value {
                key,
                expected,
                found,
            } => {
                write!(f, "{key}: expected {expected}, found {found}")
            }
            Self::TooManyProblems => f.write_str("too many problems; the rest was not checked"),
            Self::NotAnAssignment => f.write_str("expected key=value"),
            Self::SeveralItems { key, items } => {
                write!(
                    f,
                    "{key} is a list of {items} in the file and can only be changed there"
                )
            }
            Self::SetTwice { key } => {
                write!(
                    f,
                    "{key} is also set by a variable that differs only in letter case"
                )
            }
            Self::Conflict { key, statement } => write!(f, "{key}: {statement}"),
        }
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCase(name) => {
                write!(f, "did you mean `{name}`? (letter case matters)")
            }
            Self::Similar(name) => write!(f, "did you mean `{name}`?"),
            Self::Remote(name) => write!(f, "the nearest known key is `{name}`"),
        }
    }
}

/// Foreign text, kept to one line of a sensible length.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 200;
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(LONGEST) {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        if characters.next().is_some() {
            f.write_str("…")
        } else {
            Ok(())
        }
    }
}
