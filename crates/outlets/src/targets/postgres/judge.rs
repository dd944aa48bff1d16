//! Which errors of PostgreSQL are about a message, and which somebody can mend.

use std::sync::Arc;

use http_client::with_causes;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

/// Characters of an error that are told.
const QUOTED: usize = 300;

/// Why messages were not written. Nothing of them is in the database, unless the answer to COMMIT is what is missing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database will never take one of them.
    Refused {
        /// Its place; `None`: not known.
        at: Option<usize>,
        why: Arc<str>,
    },
    /// It may take them later.
    Later(Arc<str>),
    /// Another process has the outlet.
    Fenced,
}

impl Failure {
    /// What an error says that came after the rows began to be written.
    pub(super) fn of(error: &Error, at: impl FnOnce(&DbError) -> Option<usize>) -> Self {
        match error.as_db_error() {
            Some(said) if refuses(said.code()) => Self::Refused {
                at: at(said),
                why: in_words(error),
            },
            _ => Self::Later(in_words(error)),
        }
    }

    /// An error that is not about a message, as no row was written yet.
    pub(super) fn later(error: &Error) -> Self {
        Self::Later(in_words(error))
    }
}

/// Whether an error means that the same message will never be taken: data that a type does not allow (22), constraints (23),
/// `WITH CHECK OPTION` (44), limits such as how deep JSON may be and how long a row of an index (54), and what a trigger raises (P0001).
/// Anything else is somebody's to mend, or goes over: wrong passwords (28), missing tables, columns and rights (42), full disks (53),
/// conflicts of transactions (40), a server that ends or stops a statement (57), one that is only for reading (25).
pub(super) fn refuses(state: &SqlState) -> bool {
    let code = state.code();
    let classes = ["22", "23", "44", "54"];
    classes.iter().any(|class| code.starts_with(class)) || *state == SqlState::RAISE_EXCEPTION
}

/// The place of the row that a COPY of `table` failed at. The server says `COPY table, line 7, column …` there, if its messages are English.
pub(super) fn place_in_copy(context: &str, table: &str) -> Option<usize> {
    let rest = context.strip_prefix("COPY ")?.strip_prefix(table)?;
    let rest = rest.strip_prefix(", line ")?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let line: usize = rest.get(..digits)?.parse().ok()?;
    line.checked_sub(1)
}

/// An error in one line. Details are left out: they have rows of the table.
pub(super) fn in_words(error: &Error) -> Arc<str> {
    let text = match error.as_db_error() {
        Some(said) => format!("{} (SQLSTATE {})", said.message(), said.code().code()),
        None => with_causes(error),
    };
    let shown = text.chars().take(QUOTED);
    let shown: String = shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_can_cause_is_refused_and_what_somebody_can_mend_is_tried_again() {
        let of = |code: &str| refuses(&SqlState::from_code(code));
        for code in [
            "22P02", "22003", "22007", "22021", "22P05", "22001", "23502", "23503", "23505",
            "23514", "44000", "54000", "54001", "P0001",
        ] {
            assert!(of(code), "{code}");
        }
        for code in [
            "08006", "0A000", "25006", "25P02", "28P01", "28000", "3D000", "40001", "40P01",
            "42501", "42703", "42P01", "53100", "53200", "53300", "55P03", "57014", "57P01",
            "57P03", "58030", "XX000", "P0002", "HV000",
        ] {
            assert!(!of(code), "{code}");
        }
    }

    #[test]
    fn the_place_is_that_of_the_line() {
        assert_eq!(
            place_in_copy("COPY state, line 5, column value: \"x\"", "state"),
            Some(4)
        );
        assert_eq!(place_in_copy("COPY state, line 12", "state"), Some(11));
        assert_eq!(
            place_in_copy("COPY a, line 3, line 7, column b", "a, line 3"),
            Some(6)
        );
        for other in [
            "COPY other, line 5",
            "COPY state, line 0",
            "COPY state, line x",
            "COPY state, Zeile 5",
            "",
        ] {
            assert_eq!(place_in_copy(other, "state"), None, "{other}");
        }
    }
}
