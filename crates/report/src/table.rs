//! A table of text with aligned columns.
//!
//! Deliberately absent: what the cells mean; see `tables.rs`.

use std::fmt;

/// A table with aligned columns: the first to the left, the others to the right.
#[derive(Clone, Debug, Default)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// A table with this header.
    #[must_use]
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self(vec![header.into_iter().map(Into::into).collect()])
    }

    /// Adds a row; it may be shorter than the header.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.0.push(cells.into_iter().map(Into::into).collect());
    }

    /// The header.
    pub(crate) fn header(&self) -> &[String] {
        self.0.first().map_or(&[], Vec::as_slice)
    }

    /// What stands below the header.
    pub(crate) fn rows(&self) -> &[Vec<String>] {
        self.0.get(1..).unwrap_or_default()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        for row in &self.0 {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    write!(f, "{cell:width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["row", "µs"]);
        table.row(["a long name", "1"]);
        table.row(["b", "12.5"]);
        assert_eq!(
            table.to_string(),
            "row            µs\na long name     1\nb            12.5\n"
        );
    }

    #[test]
    fn a_row_may_be_shorter_than_the_header() {
        let mut table = Table::new(["a", "b"]);
        table.row(["c"]);
        assert_eq!(table.to_string(), "a  b\nc\n");
        assert_eq!(table.header(), ["a", "b"]);
        assert_eq!(table.rows(), [["c"]]);
    }
}
