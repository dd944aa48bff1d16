//! Figures as a person reads them: digits in groups, as many decimals as mean something.
//!
//! Deliberately absent: what a program reads; JSON and CSV have numbers as they are.

use std::ops::RangeInclusive;

/// Shown where there is no figure.
pub const NONE: &str = "-";

/// Where there is a figure, as `text` shows it.
pub fn or_none(value: Option<f64>, text: fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), text)
}

/// `1,234,567`.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// A number with its noun: `1 node`, `1,234 nodes`.
pub fn counted(value: u64, one: &str, many: &str) -> String {
    match value {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", count(value)),
    }
}

/// Something per second: whole, but for rates so low that the decimals matter.
pub fn rate(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 {
        two_decimals(value)
    } else {
        grouped(&format!("{value:.0}"))
    }
}

/// Milliseconds, without the unit.
pub fn ms(value: f64) -> String {
    match value {
        ..1.0 => format!("{value:.3}"),
        1.0..100.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

/// Bytes as MB, or as GB from 10 GB on; powers of 1,000.
pub fn bytes(value: f64) -> String {
    if value < 1e10 {
        format!("{:.1} MB", value / 1e6)
    } else {
        format!("{:.2} GB", value / 1e9)
    }
}

/// Bytes per second; below a MB as KB.
pub fn traffic(value: f64) -> String {
    if value < 1e6 {
        format!("{:.1} KB", value / 1e3)
    } else {
        bytes(value)
    }
}

/// From the least to the most; one figure if both are shown alike.
pub fn span(span: &RangeInclusive<f64>, text: fn(f64) -> String) -> String {
    let (least, most) = (text(*span.start()), text(*span.end()));
    if least == most {
        return most;
    }
    // The unit stands once.
    match (least.split_once(' '), most.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}-{most}"),
        _ => format!("{least}-{most}"),
    }
}

/// `12.3`.
pub fn one_decimal(value: f64) -> String {
    format!("{value:.1}")
}

/// `12.34`.
pub fn two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

/// Puts a comma before every third digit from the right.
fn grouped(number: &str) -> String {
    let mut text = String::with_capacity(number.len() + number.len() / 3);
    for (index, character) in number.char_indices() {
        let is_between_digits = text.ends_with(|last: char| last.is_ascii_digit());
        if is_between_digits && (number.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(character);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups_of_three() {
        let counts = [0, 999, 1_000, 123_456, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!(rate(123_456.4), "123,456");
    }

    #[test]
    fn one_is_singular() {
        let nodes = [0, 1, 2, 1_000].map(|value| counted(value, "node", "nodes"));
        assert_eq!(nodes, ["0 nodes", "1 node", "2 nodes", "1,000 nodes"]);
    }

    #[test]
    fn decimals_stand_where_they_mean_something() {
        assert_eq!([0.25, 100.0, 9.5].map(rate), ["0.25", "100", "9.50"]);
        assert_eq!([0.0421, 3.2, 250.0].map(ms), ["0.042", "3.20", "250.0"]);
        assert_eq!([4.5e6, 1.25e10].map(bytes), ["4.5 MB", "12.50 GB"]);
        assert_eq!(or_none(None, ms), NONE);
    }
}
