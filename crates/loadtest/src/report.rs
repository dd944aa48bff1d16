//! Figures as a plain table and as JSON.

use std::fmt;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

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

/// The usual figures of a histogram of ns, in µs.
#[must_use]
pub fn latency_json(histogram: &Histogram<u64>) -> Value {
    let us = |ns: u64| ns as f64 / 1e3;
    json!({
        "count": histogram.len(),
        "mean_us": histogram.mean() / 1e3,
        "p50_us": us(histogram.value_at_quantile(0.5)),
        "p95_us": us(histogram.value_at_quantile(0.95)),
        "p99_us": us(histogram.value_at_quantile(0.99)),
        "p999_us": us(histogram.value_at_quantile(0.999)),
        "max_us": us(histogram.max()),
    })
}

/// The usual figures, and all buckets that are not empty: `[highest value in ns, count]`, ascending.
#[must_use]
pub fn histogram_json(histogram: &Histogram<u64>) -> Value {
    let buckets: Vec<[u64; 2]> = histogram
        .iter_recorded()
        .map(|bucket| [bucket.value_iterated_to(), bucket.count_at_value()])
        .collect();
    let mut figures = latency_json(histogram);
    figures["buckets_ns"] = json!(buckets);
    figures
}

/// The middle value, or the mean of the two; `None` if there is none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
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
    fn the_buckets_of_a_histogram_hold_all_that_was_recorded() {
        let mut histogram = Histogram::new(3).unwrap();
        for value in [5, 5, 7, 2_000_000] {
            histogram.record(value).unwrap();
        }
        let json = histogram_json(&histogram);
        assert_eq!(json["count"], 4);
        assert_eq!(json["buckets_ns"][0], json!([5, 2]));
        assert_eq!(json["buckets_ns"][1], json!([7, 1]));
        assert_eq!(json["buckets_ns"][2][1], 1);
        assert_eq!(json["buckets_ns"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }
}
