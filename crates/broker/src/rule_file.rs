//! The file of rules that the configuration names.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use authorization::{MAX_FILE_BYTES, Mistake, Rules};
use config::AuthorizationConfig;

/// A rule file.
#[derive(Debug)]
pub struct RuleFile {
    /// What stands in it.
    pub text: String,
    /// What it says.
    pub rules: Rules,
}

/// Why a rule file is not taken.
#[derive(Debug)]
pub enum RuleFileError {
    /// It cannot be read.
    Unreadable(PathBuf, io::Error),
    /// These lines are wrong.
    Mistakes(PathBuf, Vec<Mistake>),
}

impl fmt::Display for RuleFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Mistakes(path, mistakes) => {
                for (index, mistake) in mistakes.iter().enumerate() {
                    let Mistake { line, reason } = mistake;
                    let separator = if index == 0 { "" } else { "\n" };
                    write!(f, "{separator}{}:{line}: {reason}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for RuleFileError {}

impl RuleFile {
    /// Reads the rule file that the configuration names; without one there are no rules.
    ///
    /// # Errors
    /// A file that cannot be read, or is wrong somewhere.
    pub fn configured(config: &AuthorizationConfig) -> Result<Self, RuleFileError> {
        config.file.as_deref().map_or_else(
            || {
                Ok(Self {
                    text: String::new(),
                    rules: Rules::default(),
                })
            },
            Self::read,
        )
    }

    /// Reads a rule file.
    ///
    /// # Errors
    /// A file that cannot be read, or is wrong somewhere.
    pub fn read(path: &Path) -> Result<Self, RuleFileError> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| {
                // One byte more, so that a file that is too long is seen to be.
                file.take(MAX_FILE_BYTES as u64 + 1)
                    .read_to_string(&mut text)
            })
            .map_err(|error| RuleFileError::Unreadable(path.into(), error))?;
        let rules = Rules::parse(&text)
            .map_err(|mistakes| RuleFileError::Mistakes(path.into(), mistakes))?;
        Ok(Self { text, rules })
    }
}
