//! A table of text with aligned columns.
//!
//! Deliberately absent: what the cells mean; see `tables.rs` of `report`.

use std::fmt::{self, Write as _};

/// A table with aligned columns: the first and those of text to the left, the others to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of text.
    text: Vec<usize>,
    has_no_header: bool,
}

impl Table {
    /// A table with this header.
    #[must_use]
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self {
            rows: vec![header.into_iter().map(Into::into).collect()],
            ..Self::default()
        }
    }

    /// The same with columns of text, counted from 0: they begin at the left.
    #[must_use]
    pub fn with_text(self, columns: impl IntoIterator<Item = usize>) -> Self {
        Self {
            text: columns.into_iter().collect(),
            ..self
        }
    }

    /// The same, shown without its header.
    #[must_use]
    pub fn without_header(self) -> Self {
        Self {
            has_no_header: true,
            ..self
        }
    }

    /// Adds a row; it may be shorter than the header.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The header.
    pub fn header(&self) -> &[String] {
        self.rows.first().map_or(&[], Vec::as_slice)
    }

    /// What stands below the header.
    pub fn rows(&self) -> &[Vec<String>] {
        self.rows.get(1..).unwrap_or_default()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self.has_no_header {
            true => self.rows(),
            false => &self.rows,
        };
        let columns = shown.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |column: usize| {
            let cells = shown.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        for row in shown {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                if column == 0 || self.text.contains(&column) {
                    write!(line, "{gap}{cell:width$}")?;
                } else {
                    write!(line, "{gap}{cell:>width$}")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
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
    fn text_begins_at_the_left_and_a_header_can_be_left_out() {
        let mut table = Table::new(["id", "text", "n"]).with_text([1]);
        table.row(["a", "bcdef", "1"]);
        table.row(["b", "c", "22"]);
        assert_eq!(
            table.to_string(),
            "id  text    n\na   bcdef   1\nb   c      22\n"
        );
        assert_eq!(
            table.without_header().to_string(),
            "a  bcdef   1\nb  c      22\n"
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
