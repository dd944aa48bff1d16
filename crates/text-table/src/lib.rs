//! Tables of text with aligned columns, and figures as a person reads them.
//!
//! Purpose: what a command prints for a person.
//!
//! Invariant: a cell is as it was given, with spaces added, unless the table has a limit: then a long cell ends with `…`.
//!
//! Deliberately absent: what the cells mean, JSON and CSV, and how wide a terminal is.

#![forbid(unsafe_code)]

mod table;
pub mod units;

pub use table::Table;
