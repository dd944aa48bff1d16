//! What commands print on standard output.
//!
//! Deliberately absent: messages on standard error; see `failure.rs`.

use std::io::{self, IsTerminal as _, Write as _};

use text_table::Table;

use crate::failure::Failure;

/// The most characters of a cell, where no terminal says how wide a row may be.
const WIDEST_CELL: usize = 200;

/// Prints text on standard output.
///
/// # Errors
/// Standard output takes nothing, for another reason than that nobody reads on.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::Runtime(error.to_string())),
    }
}

/// The table with long cells cut: rows are not wider than the terminal, and elsewhere cells have 200 characters at most. A `wide`
/// one is as it is.
pub(crate) fn fitted(table: Table, wide: bool) -> Table {
    if wide {
        return table;
    }
    match terminal_columns() {
        Some(columns) => table.with_widest_row(columns),
        None => table.with_widest_cell(WIDEST_CELL),
    }
}

/// Columns of the terminal that standard output is; `None` if it is none, or does not say.
fn terminal_columns() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
