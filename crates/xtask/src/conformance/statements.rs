//! The statements of the standards and the exceptions from them, as the CSV files list them.
//!
//! Invariant: an id names one statement, and its prefix names its standard. An exception may still name an id
//! that does not exist; `--check` reports that together with everything else.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::Path;

/// A standard of MQTT; each prints its ids with a prefix of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standard {
    /// MQTT 5.0 (OASIS, 2019).
    V5,
    /// MQTT 3.1.1 (OASIS, 2014).
    V311,
    /// MQTT 3.1 (IBM and Eurotech, 2010), where it differs from 3.1.1.
    V31,
}

impl Standard {
    pub(crate) const ALL: [Self; 3] = [Self::V5, Self::V311, Self::V31];

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::V5 => "5.0",
            Self::V311 => "3.1.1",
            Self::V31 => "3.1",
        }
    }

    /// What an id of this standard begins with.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::V5 => "MQTT-",
            Self::V311 => "MQTT3-",
            Self::V31 => "MQTT31-",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::V5 => "mqtt5.csv",
            Self::V311 => "mqtt311.csv",
            Self::V31 => "mqtt31.csv",
        }
    }
}

/// One normative statement.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    /// As in tags, without the brackets: `MQTT-3.3.1-4`.
    pub(crate) id: String,
    /// `server`, `client` or `both`.
    pub(crate) binds: String,
    pub(crate) summary: String,
}

/// A statement that is not tested, and why.
#[derive(Debug, Clone)]
pub(crate) struct Exception {
    pub(crate) id: String,
    pub(crate) reason: String,
}

/// All statements, in the order of the standards, and all exceptions.
pub(crate) struct Catalogue {
    standards: Vec<(Standard, Vec<Statement>)>,
    exceptions: Vec<Exception>,
    ids: HashSet<String>,
    reasons: HashMap<String, String>,
}

impl Catalogue {
    pub(crate) fn new(
        standards: Vec<(Standard, Vec<Statement>)>,
        exceptions: Vec<Exception>,
    ) -> Self {
        let ids = standards
            .iter()
            .flat_map(|(_, list)| list)
            .map(|statement| statement.id.clone())
            .collect();
        let reasons = exceptions
            .iter()
            .map(|exception| (exception.id.clone(), exception.reason.clone()))
            .collect();
        Self {
            standards,
            exceptions,
            ids,
            reasons,
        }
    }

    /// Reads the CSV files of `folder`.
    pub(crate) fn load(folder: &Path) -> Result<Self, LoadError> {
        let mut seen = HashSet::new();
        let mut standards = Vec::new();
        for standard in Standard::ALL {
            let mut list = Vec::new();
            for (line, [id, binds, summary]) in rows(folder, standard.file(), "id,binds,summary")? {
                let at = |reason| LoadError {
                    file: standard.file(),
                    line,
                    reason,
                };
                if !is_id(&id) || !id.starts_with(standard.prefix()) {
                    return Err(at("not an id of this standard"));
                }
                if !matches!(binds.as_str(), "server" | "client" | "both") {
                    return Err(at("binds neither server nor client nor both"));
                }
                if !seen.insert(id.clone()) {
                    return Err(at("this id is there already"));
                }
                list.push(Statement { id, binds, summary });
            }
            standards.push((standard, list));
        }

        let file = "exceptions.csv";
        let mut excepted = HashSet::new();
        let mut exceptions = Vec::new();
        for (line, [version, id, reason]) in rows(folder, file, "standard,id,reason")? {
            let at = |reason| LoadError { file, line, reason };
            let standard = Standard::ALL
                .into_iter()
                .find(|standard| standard.version() == version);
            if !standard.is_some_and(|standard| id.starts_with(standard.prefix())) {
                return Err(at("standard and id do not go together"));
            }
            if reason.is_empty() {
                return Err(at("an exception needs a reason"));
            }
            if !excepted.insert(id.clone()) {
                return Err(at("this id is there already"));
            }
            exceptions.push(Exception { id, reason });
        }
        Ok(Self::new(standards, exceptions))
    }

    pub(crate) fn of(&self, standard: Standard) -> &[Statement] {
        self.standards
            .iter()
            .find(|(of, _)| *of == standard)
            .map_or(&[], |(_, list)| list)
    }

    pub(crate) fn statements(&self) -> impl Iterator<Item = &Statement> {
        self.standards.iter().flat_map(|(_, list)| list)
    }

    pub(crate) fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }

    /// The reason why this statement is an exception, if it is one.
    pub(crate) fn exception(&self, id: &str) -> Option<&str> {
        self.reasons.get(id).map(String::as_str)
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }
}

/// Whether `text` has the form of an id: `MQTT-3.3.1-4`, `MQTT3-3.3.1-4` or `MQTT31-4`.
pub(crate) fn is_id(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    Standard::ALL
        .into_iter()
        .any(|standard| match text.strip_prefix(standard.prefix()) {
            Some(rest) if standard == Standard::V31 => number(rest),
            Some(rest) => rest.split_once('-').is_some_and(|(section, last)| {
                section.split('.').count() == 3 && section.split('.').all(number) && number(last)
            }),
            None => false,
        })
}

/// Why a CSV file could not be read; the line counts from 1, 0 is the whole file.
#[derive(Debug)]
pub(crate) struct LoadError {
    file: &'static str,
    line: usize,
    reason: &'static str,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "docs/conformance/{}:{}: {}",
            self.file, self.line, self.reason
        )
    }
}

fn rows(
    folder: &Path,
    file: &'static str,
    header: &str,
) -> Result<Vec<(usize, [String; 3])>, LoadError> {
    let at = |line, reason| LoadError { file, line, reason };
    let text = fs::read_to_string(folder.join(file)).map_err(|_| at(0, "cannot be read"))?;
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line));
    if lines.next().is_none_or(|(_, first)| first != header) {
        return Err(at(1, "the header is another one"));
    }
    lines
        .map(|(number, line)| Ok((number, fields(line).ok_or(at(number, "not three fields"))?)))
        .collect()
}

/// Three fields; only the last, which is prose, may be quoted.
fn fields(line: &str) -> Option<[String; 3]> {
    let mut parts = line.splitn(3, ',');
    let (first, second, third) = (parts.next()?, parts.next()?, parts.next()?);
    let third = match third.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?.replace("\"\"", "\""),
        None if third.contains([',', '"']) => return None,
        None => third.to_owned(),
    };
    Some([first.to_owned(), second.to_owned(), third])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_field_may_be_quoted() {
        let read = |line| fields(line).map(|fields| fields.join(" | "));
        assert_eq!(read("a,b,c d").as_deref(), Some("a | b | c d"));
        assert_eq!(
            read("a,b,\"c, \"\"d\"\"\"").as_deref(),
            Some("a | b | c, \"d\"")
        );
        assert_eq!(read("a,b,c,d"), None);
        assert_eq!(read("a,b,\"c"), None);
        assert_eq!(read("a,b"), None);
    }

    #[test]
    fn ids_have_one_form_per_standard() {
        for id in ["MQTT-3.3.1-4", "MQTT3-3.10.4-1", "MQTT31-12"] {
            assert!(is_id(id), "{id}");
        }
        for id in [
            "MQTT-4.2-1",
            "MQTT-3-8.3-4",
            "MQTT-3.1.2.7",
            "MQTT31-3.1.2-7",
            "MQTT-3.3.1-",
            "MQTT-client",
            "MQTT",
        ] {
            assert!(!is_id(id), "{id}");
        }
    }
}
