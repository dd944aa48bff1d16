//! The conformance matrix: every statement of the MQTT standards beside the code and the tests that cite it.
//!
//! The statements stand in `docs/conformance/mqtt5.csv`, `mqtt311.csv` and `mqtt31.csv`, the exceptions in
//! `exceptions.csv`; `scan` finds the citations, `report` writes `docs/conformance.md`. The same input always
//! gives the same file: it names files and functions, never line numbers or dates.
//!
//! Deliberately absent: any judgement whether a test proves what it cites. That is for the reader of the test.

mod report;
mod scan;
mod statements;

use std::fmt;
use std::fs;
use std::path::Path;

use report::Evidence;
use scan::{Citation, Kind};
use statements::Catalogue;

const REPORT: &str = "docs/conformance.md";

/// Writes the report and returns its totals.
pub(crate) fn write(root: &Path) -> Result<String, String> {
    let (catalogue, citations) = read(root)?;
    let evidence = Evidence::collect(&citations);
    let text = report::render(&catalogue, &evidence);
    let path = root.join(REPORT);
    fs::write(&path, text).map_err(|error| format!("{}: {error}\n", path.display()))?;
    Ok(report::totals(&catalogue, &evidence))
}

/// Compares without writing. The inner result is the totals, or what was found wrong, one finding per line.
pub(crate) fn check(root: &Path) -> Result<Result<String, String>, String> {
    let (catalogue, citations) = read(root)?;
    let evidence = Evidence::collect(&citations);
    let mut findings = findings(&catalogue, &citations, &evidence);
    // A missing report is out of date as well.
    let written = fs::read_to_string(root.join(REPORT)).unwrap_or_default();
    if written != report::render(&catalogue, &evidence) {
        findings.push(Finding::OutOfDate);
    }

    let totals = report::totals(&catalogue, &evidence);
    if findings.is_empty() {
        return Ok(Ok(totals));
    }
    let mut text: String = findings
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect();
    text += &format!("{} findings\n{totals}", findings.len());
    Ok(Err(text))
}

fn read(root: &Path) -> Result<(Catalogue, Vec<Citation>), String> {
    let catalogue =
        Catalogue::load(&root.join("docs/conformance")).map_err(|error| format!("{error}\n"))?;
    let citations =
        scan::workspace(root).map_err(|error| format!("scanning {}: {error}\n", root.display()))?;
    Ok((catalogue, citations))
}

/// What keeps the matrix from being complete and true.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// The report does not say what code and tests say.
    OutOfDate,
    /// The statement is neither tested nor an exception.
    Gap { id: String, summary: String },
    /// A tag that is no statement: misspelt, or of the wrong standard.
    UnknownTag { id: String, file: String },
    /// An exception for something that is no statement.
    UnknownException { id: String },
    /// An exception for a statement that is tested: it is no longer one.
    StaleException { id: String, file: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfDate => write!(
                f,
                "{REPORT} is out of date: run `cargo run -p xtask -- conformance`"
            ),
            Self::Gap { id, summary } => {
                write!(f, "[{id}] is neither tested nor an exception: {summary}")
            }
            Self::UnknownTag { id, file } => write!(f, "[{id}] in {file} is no statement"),
            Self::UnknownException { id } => write!(f, "exceptions.csv: [{id}] is no statement"),
            Self::StaleException { id, file } => {
                write!(f, "exceptions.csv: [{id}] is tested in {file}")
            }
        }
    }
}

fn findings(catalogue: &Catalogue, citations: &[Citation], evidence: &Evidence) -> Vec<Finding> {
    let mut found = Vec::new();
    for statement in catalogue.statements() {
        let id = &statement.id;
        if !evidence.cites(id, Kind::Test) && catalogue.exception(id).is_none() {
            found.push(Finding::Gap {
                id: id.clone(),
                summary: statement.summary.clone(),
            });
        }
    }
    let mut unknown: Vec<(&str, &str)> = citations
        .iter()
        .filter(|citation| !catalogue.contains(&citation.id))
        .map(|citation| (citation.id.as_str(), citation.file.as_str()))
        .collect();
    unknown.sort_unstable();
    unknown.dedup();
    found.extend(unknown.into_iter().map(|(id, file)| Finding::UnknownTag {
        id: id.to_owned(),
        file: file.to_owned(),
    }));
    for exception in catalogue.exceptions() {
        let id = exception.id.clone();
        if !catalogue.contains(&id) {
            found.push(Finding::UnknownException { id });
        } else if let Some(file) = evidence.file(&id, Kind::Test) {
            found.push(Finding::StaleException {
                file: file.to_owned(),
                id,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use statements::{Exception, Standard, Statement};

    fn statement(id: &str) -> Statement {
        Statement {
            id: id.to_owned(),
            binds: "server".to_owned(),
            summary: "so it is".to_owned(),
        }
    }

    fn catalogue(exceptions: &[&str]) -> Catalogue {
        let exceptions = exceptions
            .iter()
            .map(|id| Exception {
                id: (*id).to_owned(),
                reason: "not there yet".to_owned(),
            })
            .collect();
        Catalogue::new(
            vec![(
                Standard::V5,
                vec![statement("MQTT-1.0.0-1"), statement("MQTT-1.0.0-2")],
            )],
            exceptions,
        )
    }

    fn citation(id: &str, kind: Kind) -> Citation {
        Citation {
            id: id.to_owned(),
            kind,
            file: "crates/a/src/b.rs".to_owned(),
            function: None,
        }
    }

    fn found(exceptions: &[&str], citations: &[Citation]) -> Vec<Finding> {
        findings(
            &catalogue(exceptions),
            citations,
            &Evidence::collect(citations),
        )
    }

    #[test]
    fn a_tested_statement_and_an_exception_leave_nothing_to_find() {
        assert_eq!(
            found(&["MQTT-1.0.0-2"], &[citation("MQTT-1.0.0-1", Kind::Test)]),
            []
        );
    }

    #[test]
    fn code_without_a_test_is_a_gap() {
        let gap = Finding::Gap {
            id: "MQTT-1.0.0-1".to_owned(),
            summary: "so it is".to_owned(),
        };
        assert_eq!(
            found(&["MQTT-1.0.0-2"], &[citation("MQTT-1.0.0-1", Kind::Code)]),
            [gap]
        );
    }

    #[test]
    fn a_tag_without_a_statement_is_found_once_per_file() {
        let citations = [
            citation("MQTT-1.0.0-1", Kind::Test),
            citation("MQTT-9.9.9-9", Kind::Code),
            citation("MQTT-9.9.9-9", Kind::Code),
        ];
        let unknown = Finding::UnknownTag {
            id: "MQTT-9.9.9-9".to_owned(),
            file: "crates/a/src/b.rs".to_owned(),
        };
        assert_eq!(found(&["MQTT-1.0.0-2"], &citations), [unknown]);
    }

    #[test]
    fn exceptions_have_to_exist_and_to_be_untested() {
        let citations = [
            citation("MQTT-1.0.0-1", Kind::Test),
            citation("MQTT-1.0.0-2", Kind::Test),
        ];
        let unknown = Finding::UnknownException {
            id: "MQTT-9.9.9-9".to_owned(),
        };
        let stale = Finding::StaleException {
            id: "MQTT-1.0.0-2".to_owned(),
            file: "crates/a/src/b.rs".to_owned(),
        };
        assert_eq!(
            found(&["MQTT-9.9.9-9", "MQTT-1.0.0-2"], &citations),
            [unknown, stale]
        );
    }

    #[test]
    fn the_catalogue_of_this_workspace_is_complete() {
        let root = crate::root::find().expect("a workspace");
        let catalogue = Catalogue::load(&root.join("docs/conformance")).expect("the files load");
        let count = |standard| catalogue.of(standard).len();
        // Appendix B of MQTT 5.0 lists 251 statements, that of 3.1.1 lists 141.
        assert_eq!((count(Standard::V5), count(Standard::V311)), (251, 141));
        let unknown: Vec<&str> = catalogue
            .exceptions()
            .iter()
            .map(|exception| exception.id.as_str())
            .filter(|id| !catalogue.contains(id))
            .collect();
        assert_eq!(unknown, [] as [&str; 0]);
    }
}
