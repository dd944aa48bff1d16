//! A table of text with aligned columns.
//!
//! A column is one column of a terminal: most characters take one, East Asian wide ones and most emoji take two, and combining ones
//! none.
//!
//! Deliberately absent: what the cells mean; see `tables.rs` of `report`.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Stands at the end of a cell that is cut.
const CUT: char = '…';

/// Columns of text are not made narrower than this, in columns of a terminal.
const NARROWEST: usize = 8;

/// Between columns.
const GAP: usize = 2;

/// A table with aligned columns: the first and those of text to the left, the others to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of text.
    text: Vec<usize>,
    has_no_header: bool,
    /// The most columns of a row, if there is a limit.
    widest_row: Option<usize>,
    /// The most columns of a cell of text, if there is a limit.
    widest_cell: Option<usize>,
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

    /// The same with rows of at most `columns` columns of a terminal: the widest columns of text are cut, to 8 at least. Rows whose
    /// other columns leave no room are wider.
    #[must_use]
    pub fn with_widest_row(self, columns: usize) -> Self {
        Self {
            widest_row: Some(columns),
            ..self
        }
    }

    /// The same with cells of text of at most `most` columns of a terminal; cut ones end with `…`.
    #[must_use]
    pub fn with_widest_cell(self, most: usize) -> Self {
        Self {
            widest_cell: Some(most),
            ..self
        }
    }

    fn is_text(&self, column: usize) -> bool {
        column == 0 || self.text.contains(&column)
    }

    /// Makes columns of text narrower until a row fits, the widest first.
    fn fit(&self, widths: &mut [usize]) {
        if let Some(most) = self.widest_cell {
            for (column, width) in widths.iter_mut().enumerate() {
                if self.is_text(column) {
                    *width = (*width).min(most);
                }
            }
        }
        let gaps = GAP * widths.len().saturating_sub(1);
        let most = self.widest_row.unwrap_or(usize::MAX);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(most);
        let widest = |widths: &[usize]| {
            let text = (0..widths.len()).filter(|column| self.is_text(*column));
            let wide = text.filter(|column| widths[*column] > NARROWEST);
            wide.max_by_key(|column| widths[*column])
        };
        while excess > 0
            && let Some(column) = widest(widths)
        {
            widths[column] -= 1;
            excess -= 1;
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
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(width_of).collect();
        self.fit(&mut widths);
        for row in shown {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let cell = cut(cell, width);
                // A format's width counts characters.
                let spaces = " ".repeat(width.saturating_sub(cell.width()));
                if self.is_text(column) {
                    write!(line, "{gap}{cell}{spaces}")?;
                } else {
                    write!(line, "{gap}{spaces}{cell}")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// At most `most` columns of a cell; the last one says that there are more.
fn cut(cell: &str, most: usize) -> Cow<'_, str> {
    if cell.width() <= most {
        return Cow::Borrowed(cell);
    }
    let mut room = most.saturating_sub(1);
    let fits = |character: &char| match room.checked_sub(character.width().unwrap_or(0)) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    let mut kept: String = cell.chars().take_while(fits).collect();
    kept.push(CUT);
    Cow::Owned(kept)
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

    #[test]
    fn the_widest_text_is_cut_until_a_row_fits() {
        let mut table = Table::new(["ID", "TOPIC", "N"]).with_text([1]);
        table.row(["i".repeat(12), "t".repeat(1_900), "1,000,000".to_owned()]);
        table.row(["é", "b", "2"]);
        let fitted = table.clone().with_widest_row(40);
        let lines: Vec<String> = fitted.to_string().lines().map(str::to_owned).collect();
        assert_eq!(
            lines[1],
            format!("{}  {}…  1,000,000", "i".repeat(12), "t".repeat(14))
        );
        assert_eq!(lines[2], format!("é{}b{}2", " ".repeat(13), " ".repeat(24)));
        assert!(lines.iter().all(|line| line.chars().count() <= 40));
        // A number is never cut.
        let narrow = table.clone().with_widest_row(10).to_string();
        assert!(narrow.contains("iiiiiii…  ttttttt…  1,000,000"), "{narrow}");
        let cell = table.clone().with_widest_cell(200).to_string();
        assert!(
            cell.contains(&format!("  {}…  1,", "t".repeat(199))),
            "{cell}"
        );
        assert!(table.to_string().contains(&"t".repeat(1_900)));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = Table::new(["ID", "TOPIC", "N"]).with_text([1]);
        table.row(["温度", "工場/一番", "1"]);
        table.row(["temp", "plant/1", "22"]);
        table.row(["e\u{301}", "b", "3"]);
        assert_eq!(
            table.to_string(),
            "ID    TOPIC       N\n温度  工場/一番   1\ntemp  plant/1    22\ne\u{301}     b           3\n"
        );
        // Half of a wide character is none: the cell is one column narrower than it might be.
        assert_eq!(cut("温度計", 4), "温…");
        assert_eq!(cut("温度計", 5), "温度…");
        assert_eq!(cut("温度計", 6), "温度計");
    }
}
