//! Numbers with a unit, as a person writes them in a file: `10k`, `1KiB`, `0.5`, `20s`.
//!
//! Invariant: a quantity that was read is finite and not negative.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// Counts and sizes end here; more is a typing error.
const HIGHEST: f64 = 1e12;

/// A count, 0 allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Count(pub(super) usize);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("k", 1e3), ("K", 1e3), ("M", 1e6)];
        let count = whole(text, &units, "a count such as 500, 10k or 1M")?;
        Ok(Self(count))
    }
}

/// Bytes, 0 allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size(pub(super) usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [
            ("KiB", 1024.0),
            ("MiB", 1024.0 * 1024.0),
            ("KB", 1e3),
            ("MB", 1e6),
            ("k", 1e3),
            ("B", 1.0),
        ];
        let size = whole(text, &units, "a size in bytes such as 256, 10KB or 1KiB")?;
        Ok(Self(size))
    }
}

/// Something per second, above 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rate(pub(super) f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("k", 1e3), ("K", 1e3), ("M", 1e6)];
        match number(text, &units) {
            Some(rate) if rate > 0.0 => Ok(Self(rate)),
            _ => Err(expected(
                "a number per second, above 0, such as 0.5, 10 or 1k",
                text,
            )),
        }
    }
}

/// A time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Time(pub(super) Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = humantime::parse_duration(text);
        time.map(Self)
            .map_err(|_| expected("a time such as 10s, 500ms or 1m30s", text))
    }
}

/// A scalar of a file, by the characters that stand there.
pub(super) fn from_text<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: std::fmt::Display>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(from)?;
    text.parse().map_err(de::Error::custom)
}

/// Lets types be read by [`from_text`].
macro_rules! read_from_text {
    ($($type:ty),+) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::bench::quantity::from_text(from)
            }
        }
    )+};
}
pub(super) use read_from_text;

read_from_text!(Count, Size, Rate, Time);

fn expected(what: &str, found: &str) -> String {
    let found: String = found.chars().take(40).collect();
    format!("expected {what}, found {found:?}")
}

fn whole(text: &str, units: &[(&str, f64)], what: &str) -> Result<usize, String> {
    match number(text, units) {
        Some(value) if value.fract() == 0.0 => Ok(value as usize),
        _ => Err(expected(what, text)),
    }
}

/// A number and one of the units, or none.
fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let of_unit = |&(unit, factor): &(&str, f64)| Some((text.strip_suffix(unit)?, factor));
    let (digits, factor) = units.iter().find_map(of_unit).unwrap_or((text, 1.0));
    let digits = digits.trim_end();
    // Rust also reads `inf`, `nan` and `1e3`.
    let is_plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let value: f64 = digits.parse().ok().filter(|_| is_plain)?;
    // 1.005 * 1000 is a hair off 1005.
    let value = (value * factor * 1e6).round() / 1e6;
    (value <= HIGHEST).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_are_whole_numbers_with_units() {
        let count = |text: &str| text.parse::<Count>().map(|count| count.0).ok();
        assert_eq!(count("500"), Some(500));
        assert_eq!(count("10k"), Some(10_000));
        assert_eq!(count("1.005K"), Some(1_005));
        assert_eq!(count("1M"), Some(1_000_000));
        let size = |text: &str| text.parse::<Size>().map(|size| size.0).ok();
        assert_eq!(size("1KiB"), Some(1_024));
        assert_eq!(size("1 KB"), Some(1_000));
        assert_eq!(size("2MiB"), Some(2 << 20));
        assert_eq!(size("16"), Some(16));
        for wrong in [
            "", "k", "1.5", "-1", "1kk", "0x10", "1e3", "inf", "9999999M",
        ] {
            assert_eq!(count(wrong), None, "{wrong}");
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rates_are_above_0_and_times_have_units() {
        let rate = |text: &str| text.parse::<Rate>().map(|rate| rate.0).ok();
        assert_eq!(rate("0.5"), Some(0.5));
        assert_eq!(rate("1k"), Some(1_000.0));
        for wrong in ["0", "-1", "fast", "nan", ""] {
            assert_eq!(rate(wrong), None, "{wrong}");
        }
        assert_eq!("500ms".parse(), Ok(Time(Duration::from_millis(500))));
        assert!("10".parse::<Time>().is_err());
        let said = "10".parse::<Time>().unwrap_err();
        assert_eq!(
            said,
            "expected a time such as 10s, 500ms or 1m30s, found \"10\""
        );
    }
}
